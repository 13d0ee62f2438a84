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
// and links by number. Hosts, to which transfers come from outside, go event by event (hosts.h).
//
// Cost. A hop is a move from a wire's ring to a queue's and on to the next wire's, a share of a
// sort of the batch's arrivals, and, if it waited, a push and pop in a heap of the switch's busy
// ports. The event queue sees one event for each batch. Memory: about 400 bytes for each idle link.
#pragma once

#include <array>
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

// What the run waits for: a node with work at `time`, or a flow's timer.
struct Event {
  SimTime time = 0;
  std::uint32_t target = 0;
  bool timer = false;
  friend bool operator<(const Event& a, const Event& b) {
    return a.timer != b.timer ? b.timer : a.target < b.target;
  }
};

struct Port {
  SimTime free = 0;  // the packet in service has left
  SimTime latency = 0;
  std::int64_t bandwidth_Bps = 0;
  std::array<std::int32_t, 2> memo_bytes = {-1, -1};  // two sizes and their times of service:
  std::array<SimTime, 2> memo_time = {0, 0};          // full packets and control, mostly
  std::uint32_t from = 0, to = 0;
  std::uint8_t paused = 0;                      // classes, by the other end
  std::uint8_t pausing = 0;                     // classes of this ingress that the other end pauses
  bool in_heap = false;                         // a service is due
  bool listed = false;                          // among the other end's links that carry something
  std::uint32_t served = 0;                     // packets
  std::int64_t sent = 0;                        // bytes
  std::array<std::int64_t, kClasses> queued{};  // bytes
  std::array<std::int64_t, kClasses> ingress{};   // bytes that came by here, still at the other end
  std::array<std::int64_t, kClasses> headroom{};  // of them, beyond the threshold
  std::int64_t headroom_limit = 0;
  std::array<Ring<Packet>, kClasses> queue;
  Ring<Packet> wire;
};

class Fabric {
 public:
  // Of a node with hosts' NICs or GPUs: packets that end there go to hosts.h.
  Status Setup(const cluster::Cluster& cluster, const Settings& settings, Paths* paths);

  bool is_host(std::uint32_t node) const { return nodes_[node].host; }
  // Everything at a switch from `now` to the end of the batch.
  void RunSwitch(std::uint32_t number, SimTime now);

  // For hosts. What has arrived by `now`, in the order of (time, link); pauses are taken in.
  void TakeArrivals(std::uint32_t number, SimTime now, std::vector<Packet>* out);
  // A packet that came to the node by `link` goes to the queue of its next one.
  void Forward(std::uint32_t number, const Packet& packet, std::uint32_t link);
  // Puts a packet into the queue of a link.
  void Enqueue(const Packet& packet, SimTime now, std::uint32_t out);
  // Begins service. REQUIRES: the link is free at `now`.
  void Serve(std::uint32_t number, Packet packet, SimTime now);
  // Serves the queues while the link is free at `now`, by class, classes below `below` only.
  bool ServeQueued(std::uint32_t number, SimTime now, int below);
  SimTime NextArrival(std::uint32_t node) const;
  // For lanes alone (lanes.h). Nothing is on the link or queued for it, and it is not paused.
  bool Idle(std::uint32_t link) const;
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
    events.Push({time, node, false});
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
  std::span<const Port> ports() const { return ports_; }
  Telemetry& telemetry() { return telemetry_; }
  std::span<const PortStatistics> use() const { return use_; }
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
  struct Pause {
    SimTime time = 0;
    std::uint32_t port = 0;
    std::uint8_t cls = 0;
    bool on = false;
  };
  struct Due {  // a port's next service
    SimTime time = 0;
    std::uint32_t port = 0;
    friend bool operator<(const Due& a, const Due& b) {
      return a.time != b.time ? a.time > b.time : a.port > b.port;  // least first in std heaps
    }
  };
  struct Node {
    bool host = true;
    SimTime wake = kNever;
    SimTime batch = kNever;             // W
    std::int64_t buffer = 0, used = 0;  // bytes
    std::int64_t shared = 0, shared_used = 0;
    std::vector<std::uint32_t> carrying;  // links to it with something on the wire
    std::vector<Due> due;                 // heap
    std::vector<Pause> pauses;
  };
  struct Arrival {
    SimTime time = 0;
    std::uint32_t link = kNone;  // kNone: a pause
    std::uint32_t index = 0;     // on the wire, or in pauses
  };

  struct Utilisation {  // of a port, for PINT
    double value = 0;
    SimTime last = 0;
    std::int32_t bytes = 0;  // of the last packet
  };

  void Collect(Node* node, SimTime until);
  void FetchAhead(const Arrival& arrival) const;
  void DropTaken(Node* node);
  void Accept(Node* node, Packet packet, std::uint32_t out, std::uint32_t in);
  bool MakeRoom(Node* node, std::uint32_t out, Packet* packet);
  void Drop(std::uint32_t out, const Packet& packet);
  // Of the buffer; with PFC control messages are a queue's own affair.
  bool Counts(const Packet& packet) const { return !settings_.pfc || packet.cls > 0; }
  bool AdmitLossless(Node* node, const Packet& packet, std::uint32_t in);
  void Release(std::uint32_t number, const Packet& packet, SimTime now);
  void SendPause(std::uint32_t in, std::uint8_t cls, bool on, SimTime now);
  void TakePause(const Pause& pause);
  void NoteUtilisation(std::uint32_t number, std::int64_t queue, SimTime now, Packet* packet);
  bool Marks(std::uint32_t number, std::int64_t queue);
  std::uint32_t Choose(std::uint32_t node, Packet* packet) const;
  int NextClass(const Port& port) const;
  void RunDue(Node* node, SimTime until);
  void Schedule(Node* node, std::uint32_t port, SimTime time);
  SimTime NextWork(const Node& node) const;

  Settings settings_;
  Paths* paths_ = nullptr;
  std::vector<Port> ports_;                      // by link
  std::vector<Node> nodes_;                      // by vertex
  std::vector<std::int64_t> ecn_min_, ecn_max_;  // by link
  std::vector<Utilisation> utilisation_;         // by link
  std::vector<Arrival> arrivals_;                // scratch
  std::vector<PortStatistics> use_;
  PacketCounts counts_;
  UseLog log_;
  QueueLog queues_;
  Telemetry telemetry_;
};

}  // namespace orrery::network::packet
