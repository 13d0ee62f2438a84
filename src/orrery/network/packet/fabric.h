// The fabric of packets: links, output queues, switches with shared buffers.
//
// Model. A link is a port at its sending end (queues by class, strict order) and a wire. A packet
// is served in b / bandwidth, rounded up to a whole ps, and stands at the other end one latency
// after its last byte left; cut-through switches have it once its first kControlBytes are there,
// and send its last byte no earlier than it came. A queue counts a packet until its service begins.
//
// Switches. A buffer of buffer_per_port for each port is shared. Without PFC a data queue holds
// `queue` bytes, or as much as the buffer has left (dynamic threshold, alpha = 1); what does not
// fit is dropped, or trimmed to its header, which goes with the control messages. With PFC every
// (ingress, class) has a reserve and headroom, and shares the rest up to T = (shared - used) / 8;
// at the threshold it pauses the link it came by, and resumes it two packets below (HPCC's ns-3
// model; pfc_xoff and pfc_xon are fixed thresholds instead). Pause frames take the link's latency
// and no bandwidth. Headroom is 2·latency·rate + 3 packets, so that nothing is lost; that of
// priorities above 0 comes on top of the buffer. ECN marks as RED does on the bytes left behind
// when a data packet's service begins; draws are keyed by (port, packets served).
//
// Method. A switch works in batches: when it is woken at t, it takes all that arrives before t + W,
// W the least latency of what leads to it, and serves its ports as far. All that can reach it
// before t + W has been sent before t, so every decision sees just what the switch would have seen
// then: arrivals and services in the order of time, at one instant services before arrivals, ports
// and links by number. Where nothing that ports share can matter in the batch (its buffer, pauses,
// adaptive choices), each port does its own share of it in one go (batches.cc). Hosts, to which
// transfers come from outside, run ahead as far as none can (ahead.cc).
//
// Cost. A hop is an entry of 24 bytes in the next node's inbox, its move to its port's list, in
// order, and, if it waited, a push and pop in a queue of numbers; the packet's line of the cache is
// written once. The event queue sees one event for each batch. Lines that a batch will need are
// fetched ahead. Memory: about 450 bytes for each idle link, 64 for each packet under way.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/des/event_queue.h"
#include "orrery/network/network.h"
#include "orrery/network/packet/packet.h"
#include "orrery/network/packet/paths.h"
#include "orrery/network/packet/settings.h"
#include "orrery/network/packet/statistics.h"
#include "orrery/network/packet/telemetry.h"

namespace orrery::network::packet {

inline constexpr std::int64_t kReserve = 4096;  // bytes of an ingress and class (HPCC's ns-3)
constexpr std::uint8_t Bit(int cls) { return static_cast<std::uint8_t>(1u << cls); }
// PFC's share of what is left of a buffer: 1/8 (HPCC's ns-3, for ports at the NIC's rate).
constexpr std::int64_t Threshold(std::int64_t left) { return std::max<std::int64_t>(left, 0) >> 3; }

// What the run waits for: a node with work at `time`; in Hosts::timers, a flow's timer.
struct Event {
  SimTime time = 0;
  std::uint32_t target = 0;
  friend bool operator<(const Event& a, const Event& b) { return a.target < b.target; }
};

struct alignas(64) Port {  // in the order of use: a line of the cache or two for most packets
  SimTime free = 0;        // the packet in service has left
  SimTime due = kNever;    // the next service of the queues, at switches
  SimTime latency = 0;
  std::array<SimTime, 2> memo_time = {0, 0};          // times of service of two sizes:
  std::array<std::int32_t, 2> memo_bytes = {-1, -1};  // full packets and control, mostly
  std::uint32_t served = 0;                           // packets
  std::uint32_t from = 0, to = 0;
  std::uint8_t waiting = 0;                     // classes with something queued
  std::uint8_t paused = 0;                      // classes, by the other end
  std::uint8_t pausing = 0;                     // classes of this ingress that the other end pauses
  std::array<std::int64_t, kClasses> queued{};  // bytes
  std::int64_t longest_queue = 0;               // of data, so far
  PortStatistics use;
  std::array<Ring<std::uint32_t>, kClasses> queue;  // packets
  std::int64_t bandwidth_Bps = 0;
  std::array<std::int64_t, kClasses> ingress{};   // bytes that came by here, still at the other end
  std::array<std::int64_t, kClasses> headroom{};  // of them, beyond the threshold
  std::int64_t headroom_limit = 0;
};

inline std::int64_t QueuedData(const Port& port) {
  std::int64_t data = 0;
  for (std::size_t c = 1; c < kClasses; ++c) data += port.queued[c];
  return data;
}

class Fabric {
 public:
  struct Pause {
    SimTime time = 0;
    std::uint32_t port = 0;
    std::uint8_t cls = 0;
    bool on = false;
  };
  // Of a node with hosts' NICs or GPUs: packets that end there go to hosts.h.
  Status Setup(const cluster::Cluster& cluster, const Settings& settings, Paths* paths);

  bool is_host(std::uint32_t node) const { return nodes_[node].host; }
  // Everything at a switch from `now` to the end of the batch.
  void RunSwitch(std::uint32_t number, SimTime now);

  // For hosts. What arrives before `until`, in the order of (time, link).
  void TakeArrivals(std::uint32_t number, SimTime until, std::vector<Passing>* packets,
                    std::vector<Pause>* pauses);
  void TakePause(const Pause& pause);
  // How long nothing reaches the node that has not been sent by now.
  SimTime batch(std::uint32_t node) const { return nodes_[node].batch; }
  // A packet that came to the node by `link` goes to the queue of its next one.
  void Forward(std::uint32_t node, std::uint32_t packet, std::uint32_t link);
  // Puts a packet into the queue of a link.
  void Enqueue(std::uint32_t packet, SimTime now, std::uint32_t out);
  // Begins service. REQUIRES: the link is free at `now`.
  void Serve(std::uint32_t number, std::uint32_t packet, SimTime now);
  // Serves the queues while the link is free at `now`, by class, classes below `below` only.
  bool ServeQueued(std::uint32_t number, SimTime now, int below);
  SimTime NextArrival(std::uint32_t node) const;
  // For lanes alone (lanes.h). Nothing is on the link or queued for it, and it is not paused.
  bool Idle(std::uint32_t link) const;
  // Has the link's port at hand soon.
  void FetchPort(std::uint32_t out) const;
  // Counts packets whose services began at `first` and then one each `step`; CountUse: on a link
  // inside a host, which is no port of the fabric.
  void Count(std::uint32_t link, SimTime first, SimTime step, std::uint32_t count,
             std::int32_t bytes);
  void CountUse(std::uint32_t link, SimTime first, SimTime step, std::uint32_t count,
                std::int32_t bytes);
  // The packet is on the wire of link packet.hop, or queued behind it, from packet.at on.
  void PutOnWire(const Packet& packet);
  void PutInQueue(const Packet& packet, SimTime due);
  // No packet is marked that leaves at most so many bytes behind.
  std::int64_t unmarked(std::uint32_t link) const {
    return settings_.ecn ? ecn_min_[link] : std::numeric_limits<std::int64_t>::max();
  }
  // Asks for the node's turn at `time`; an earlier one stands.
  void Wake(std::uint32_t node, SimTime time) {
    Node& n = nodes_[node];
    if (time >= n.wake) return;
    n.wake = time;
    events.Push({time, node});
  }
  // True if the event is the node's turn, not one that an earlier wake has replaced.
  bool TakeWake(const Event& event) {
    Node& n = nodes_[event.target];
    if (n.wake != event.time) return false;
    n.wake = kNever;
    return true;
  }

  SimTime ServiceTime(Port* port, std::int32_t bytes) const {
    for (std::size_t i : {0, 1}) {
      if (port->memo_bytes[i] == bytes) return port->memo_time[i];
    }
    const std::size_t i = bytes > kControlBytes ? 0 : 1;
    port->memo_bytes[i] = bytes;
    return port->memo_time[i] = TransferTime(bytes, port->bandwidth_Bps);
  }
  Port& port(std::uint32_t number) { return ports_[number]; }
  // On the links to the node, each link's in order.
  std::span<const Passing> inbox(std::uint32_t node) const { return nodes_[node].inbox; }
  std::span<const Port> ports() const { return ports_; }
  Telemetry& telemetry() { return telemetry_; }
  Pool& pool() { return pool_; }
  PacketCounts& counts() { return counts_; }
  const PacketCounts& counts() const { return counts_; }
  UseLog& log() { return log_; }
  QueueLog& queues() { return queues_; }
  const QueueLog& queues() const { return queues_; }
  // Closes what is still paused at the end of the run.
  void Finish(SimTime now);
  // A cycle of links each of which waits for the next, by PFC; empty if there is none.
  std::vector<std::uint32_t> PauseCycle() const;

  des::EventQueue<Event> events;

 private:
  struct Due {  // a port's next service
    SimTime time = 0;
    std::uint32_t port = 0;
    friend bool operator<(const Due& a, const Due& b) {
      return a.time != b.time ? a.time > b.time : a.port > b.port;  // least first in std heaps
    }
  };
  struct alignas(64) Node {
    SimTime wake = kNever;
    SimTime batch = kNever;             // W
    std::vector<Passing> inbox;         // on the links to it; each link's in order
    std::int64_t used = 0, buffer = 0;  // bytes
    bool host = true;
    std::uint32_t first = 0, ports = 0;  // links from it, in leaving_
    std::uint32_t pausing = 0;           // classes of links to it that it pauses
    std::int64_t shared = 0, shared_used = 0;
    std::vector<Due> due;  // heap
    std::vector<Pause> pauses;
  };
  struct BufferStep {  // of what a switch's buffer holds
    SimTime time = 0;
    std::uint32_t order = 0;  // at an instant
    std::int64_t bytes = 0;
  };

  struct Utilisation {  // of a port, for PINT
    double value = 0;
    SimTime last = 0;
    std::int32_t bytes = 0;  // of the last packet
  };

  // Batches.cc.
  void Collect(Node* node, SimTime until);
  void SortArrivals(const Node& node);
  void DropPauses(Node* node) const;
  std::int64_t Sort(Node* node, SimTime until);
  bool PortsAreApart(const Node& node, std::int64_t bytes);
  void RunInOrder(Node* node, std::uint32_t number, SimTime until);
  void RunPorts(Node* node, SimTime until, std::int64_t bytes);
  void FetchQueues(std::uint32_t out) const;
  void FetchQueued(std::uint32_t out) const;
  void RunDue(Node* node, SimTime until);
  void NoteLargest(std::int64_t used);
  SimTime NextWork(const Node& node) const;
  // Fabric.cc: a packet.
  void RunPort(Node* node, std::uint32_t out, std::span<const Passing> arrivals, SimTime until);
  void ServeDue(std::uint32_t number, Port* port);
  void ServeOn(std::uint32_t number, Port* port, std::uint32_t packet, Packet* p, SimTime now);
  bool ServeQueuedOn(std::uint32_t number, Port* port, SimTime now, int below);
  void EnqueueOn(std::uint32_t number, Port* port, std::uint32_t packet, Packet* p, SimTime now);
  void Schedule(Node* node, std::uint32_t number, Port* port, SimTime time);
  void Hold(Node* node, std::int64_t bytes, SimTime now, std::uint32_t link);
  void Accept(Node* node, std::uint32_t packet, std::uint32_t out, Port* port, std::uint32_t in);
  bool MakeRoom(Node* node, std::uint32_t out, std::uint32_t in, std::uint32_t* packet);
  void Drop(std::uint32_t out, std::uint32_t packet);
  void PushOnWire(std::uint32_t number, const Port& port, std::uint32_t packet, const Packet& p);
  // Of the buffer; with PFC control messages are a queue's own affair.
  bool Counts(const Packet& packet) const { return !settings_.pfc || packet.cls > 0; }
  void Observe(std::uint32_t number, Port* port, std::int64_t queue, SimTime now, Packet* p);
  SimTime CutThrough(Port* port, Packet* p, SimTime now);
  void NoteUtilisation(std::uint32_t number, std::int64_t queue, SimTime now, Packet* packet);
  bool Marks(std::uint32_t number, const Port& port, std::int64_t queue) const;
  std::uint32_t Choose(std::uint32_t node, Packet* packet) const;
  static int NextClass(const Port& port) {
    return std::countr_zero(static_cast<unsigned>(port.waiting & ~port.paused) | 1u << kClasses);
  }
  // Pauses.cc.
  bool AdmitLossless(Node* node, const Packet& packet, std::uint32_t in);
  void ReleaseLossless(Node* holder, const Packet& packet, SimTime now);
  void SendPause(std::uint32_t in, std::uint8_t cls, bool on, SimTime now);

  Settings settings_;
  Paths* paths_ = nullptr;
  std::vector<Port> ports_;  // by link
  Pool pool_;
  std::vector<std::uint32_t> leaving_;           // links by the node that they leave
  std::vector<Node> nodes_;                      // by vertex
  std::vector<std::int64_t> ecn_min_, ecn_max_;  // by link
  std::vector<Utilisation> utilisation_;         // by link
  // Of the batch under way.
  std::vector<Passing> arrivals_, sorted_;   // sorted by port
  std::vector<std::uint32_t> first_, next_;  // in sorted_, by slot
  std::vector<std::uint32_t> active_;        // slots with something to do
  std::vector<std::int64_t> came_;           // bytes, by link
  std::vector<BufferStep> steps_;
  bool pauses_come_ = false, by_port_ = false, steps_on_ = false;
  std::int64_t held_ = 0, most_held_ = 0;  // by the port at work, since the batch began
  bool observed_ = false;                  // telemetry or codes
  PacketCounts counts_;
  UseLog log_;
  QueueLog queues_;
  Telemetry telemetry_;
};

}  // namespace orrery::network::packet
