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
// Threads. A window begins with a switch's turn and lasts as long as the least latency of a link.
// What is sent in it reaches no other node before it ends, so that all switches' turns of a window
// can go side by side, on several threads, while the owner's goes on with hosts (shared.cc). Who
// sends puts packets into letters of his own thread, which are handed over when the window ends.
// Both give the same times to the picosecond (Packet.ThreadsAgree).
//
// Cost. A hop is an entry of 24 bytes in the next node's inbox, its move to its port's list, in
// order, and, if it waited, a push and pop in a queue of numbers; the packet's line of the cache is
// written once. The event queue sees one event for each batch. Lines that a batch will need are
// fetched ahead. Memory: about 400 bytes for each idle link, 64 for each packet under way, and for
// each further thread 110 a node.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
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
#include "orrery/network/packet/windows.h"

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
  SimTime full_time = 0, control_time = 0;  // of service: of full packets, of kControlBytes
  std::int64_t bandwidth_Bps = 0;
  std::uint32_t served = 0;  // packets
  std::uint32_t from = 0, to = 0;
  std::uint8_t waiting = 0;                     // classes with something queued
  std::uint8_t paused = 0;                      // classes, by the other end
  std::array<std::int64_t, kClasses> queued{};  // bytes
  std::int64_t longest_queue = 0;               // of data, so far
  PortStatistics use;
  std::array<Ring<std::uint32_t>, kClasses> queue;  // packets
};

// With PFC, of a link, by class: what came by it and is still at the other end, whose affair it is.
struct alignas(64) Ingress {
  std::array<std::int64_t, kClasses - 1> bytes{};
  std::array<std::int64_t, kClasses - 1> headroom{};  // of them, beyond the threshold
  std::int64_t headroom_limit = 0;
  std::uint8_t pausing = 0;  // classes

  // Of a class, what is neither reserved for it nor in its headroom.
  std::int64_t excess(std::size_t c) const {
    return std::max<std::int64_t>(bytes[c] - headroom[c] - kReserve, 0);
  }
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
  Status Setup(const cluster::Cluster& cluster, const Settings& settings, Paths* paths);

  // A NIC, or a GPU where there are none: packets that end there go to hosts.h.
  bool is_host(std::uint32_t node) const { return nodes_[node].host; }

  // From now on windows with much to do go over so many threads; `always`: all windows do.
  // REQUIRES: there are switches, no lanes, and no logs of links over time.
  void UseThreads(int threads, bool always);
  // When RunSwitches is due, at the latest.
  SimTime NextSwitches() const { return open_ ? window_end_ : switch_events.NextTime(); }
  // At NextSwitches(): a switch's turn; or opens a window, or closes it.
  void RunSwitches(SimTime now);
  // Closes the window that is open, if any: what switches did until its end is seen.
  void Settle() {
    if (open_) CloseWindow();
  }
  // Nobody has gone beyond the time that comes back, or goes from now on. No window is opened any
  // more. REQUIRES: none is open.
  SimTime EndAfter(SimTime now);
  // All that switches have sent before is known.
  SimTime known_until(SimTime now) const { return open_ ? window_begin_ : now; }

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
    (n.host ? host_events : switch_events).Push({time, node});
  }
  // True if the event is the node's turn, not one that an earlier wake has replaced.
  bool TakeWake(const Event& event) {
    Node& n = nodes_[event.target];
    if (n.wake != event.time) return false;
    n.wake = kNever;
    return true;
  }

  SimTime ServiceTime(const Port& port, std::int32_t bytes) const {
    if (bytes == packet_bytes_) return port.full_time;
    if (bytes == kControlBytes) return port.control_time;
    return TransferTime(bytes, port.bandwidth_Bps);
  }
  const Port& port(std::uint32_t number) const { return ports_[number]; }
  Port& port(std::uint32_t number) { return ports_[number]; }
  // On the links to the node, each link's in order.
  std::span<const Passing> inbox(std::uint32_t node) const { return nodes_[node].inbox; }
  std::span<const Port> ports() const { return ports_; }
  Telemetry& telemetry() { return telemetry_; }
  std::uint32_t NewNote() {
    if (telemetry_.full()) Settle();
    return telemetry_.New();
  }
  Pool& pool() { return pool_; }
  std::uint32_t AddPacket(const Packet& packet) {
    if (pool_.full()) Settle();
    return pool_.Add(packet);
  }
  // Of the owner's thread: hosts', and switches' but what other threads do.
  PacketTotals& totals() { return workers_.front().totals; }
  // Of all. Closes what is still paused.
  const PacketCounts& Count(SimTime now);
  UseLog& log() { return log_; }
  QueueLog& queues() { return queues_; }
  const QueueLog& queues() const { return queues_; }
  // A cycle of links each of which waits for the next, by PFC; empty if there is none.
  std::vector<std::uint32_t> PauseCycle() const;

  des::EventQueue<Event> host_events, switch_events;

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
    std::uint32_t letters = 0;           // the window that unopened ones are of
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

  struct Letters {  // to a node
    std::vector<Passing> packets;
    std::vector<Pause> pauses;
  };
  struct alignas(64) Outgoing : Letters {
    SimTime earliest = kNever;  // that is in them
  };
  // What a thread has of its own.
  struct alignas(64) Worker {
    // Of the batch under way.
    std::vector<Passing> arrivals, sorted;   // sorted by port
    std::vector<std::uint32_t> first, next;  // in `sorted`, by slot
    std::vector<std::uint32_t> active;       // slots with something to do
    std::vector<BufferStep> steps;
    bool pauses_come = false, by_port = false, steps_on = false;
    std::int64_t held = 0, most_held = 0;  // by the port at work, since the batch began
    // Of the window.
    std::vector<Outgoing> outgoing;           // by node
    std::vector<std::uint32_t> addressed;     // nodes that they are for
    std::vector<std::uint32_t> lost, unread;  // packets and records that are free now
    PacketTotals totals;
  };

  struct Utilisation {  // of a port, for PINT
    double value = 0;
    SimTime last = 0;
    std::int32_t bytes = 0;  // of the last packet
  };

  // shared.cc: windows.
  void StartThreads();
  void OpenWindow(SimTime now);
  void CloseWindow();
  void WorkThrough(std::size_t worker);
  bool WorthSharing(SimTime now);
  void Deliver(Worker* w);
  std::uint64_t hops() const;
  Outgoing& LettersTo(Worker* w, std::uint32_t node, SimTime at) {
    Outgoing& out = w->outgoing[node];
    if (out.earliest == kNever) w->addressed.push_back(node);
    out.earliest = std::min(out.earliest, at);
    return out;
  }
  void OpenLetters(std::uint32_t number);
  static void Read(Letters* letters, Node* node);
  static void FetchPackets(const Letters& letters);
  // batches.cc. Everything at a switch from `now` to the end of the batch, which comes back with
  // the time of the next one.
  SimTime RunSwitch(Worker* w, std::uint32_t number, SimTime now);
  void Collect(Worker* w, std::uint32_t number, SimTime until);
  void SortArrivals(Worker* w, const Node& node);
  void DropPauses(const Worker& w, Node* node) const;
  std::int64_t Sort(Worker* w, Node* node, SimTime until);
  bool PortsAreApart(const Worker& w, const Node& node, std::int64_t bytes);
  void RunInOrder(Worker* w, Node* node, SimTime until);
  void RunPorts(Worker* w, Node* node, SimTime until, std::int64_t bytes);
  void FetchQueues(const Worker& w, std::uint32_t out) const;
  void FetchQueued(const Worker& w, std::uint32_t out) const;
  void RunDue(Worker* w, Node* node, SimTime until);
  void NoteLargest(Worker* w, std::int64_t used);
  SimTime NextWork(const Node& node) const;
  // fabric.cc: a packet.
  void RunPort(Worker* w, Node* node, std::uint32_t out, std::span<const Passing> arrivals,
               SimTime until);
  void ForwardOn(Worker* w, std::uint32_t node, std::uint32_t packet, std::uint32_t link);
  void ServeDue(Worker* w, std::uint32_t number, Port* port);
  void ServeOn(Worker* w, std::uint32_t number, Port* port, std::uint32_t packet, Packet* p,
               SimTime now);
  bool ServeQueuedOn(Worker* w, std::uint32_t number, Port* port, SimTime now, int below);
  void EnqueueOn(std::uint32_t number, Port* port, std::uint32_t packet, Packet* p, SimTime now);
  void Schedule(const Worker& w, Node* node, std::uint32_t number, Port* port, SimTime time);
  void Hold(Worker* w, Node* node, std::int64_t bytes, SimTime now, std::uint32_t link);
  void Accept(Worker* w, Node* node, std::uint32_t packet, std::uint32_t out, Port* port,
              std::uint32_t in);
  bool MakeRoom(Worker* w, Node* node, std::uint32_t out, std::uint32_t in, std::uint32_t* packet);
  void Drop(Worker* w, std::uint32_t out, std::uint32_t packet);
  void PushOnWire(Worker* w, std::uint32_t number, const Port& port, std::uint32_t packet,
                  const Packet& p);
  // Of the buffer; with PFC control messages are a queue's own affair.
  bool Counts(const Packet& packet) const { return !settings_.pfc || packet.cls > 0; }
  void Observe(std::uint32_t number, Port* port, std::int64_t queue, SimTime now, Packet* p);
  SimTime CutThrough(Port* port, const Packet& p, SimTime now) const;
  void NoteUtilisation(std::uint32_t number, std::int64_t queue, SimTime now, Packet* packet);
  bool Marks(std::uint32_t number, const Port& port, std::int64_t queue) const;
  std::uint32_t Choose(std::uint32_t node, Packet* packet) const;
  static int NextClass(const Port& port) {
    return std::countr_zero(static_cast<unsigned>(port.waiting & ~port.paused) | 1u << kClasses);
  }
  // pauses.cc.
  bool AdmitLossless(Worker* w, Node* node, const Packet& packet, std::uint32_t in);
  void ReleaseLossless(Worker* w, Node* holder, const Packet& packet, SimTime now);
  void TakePauseOn(Worker* w, const Pause& pause);
  void SendPause(Worker* w, std::uint32_t in, std::uint8_t cls, bool on, SimTime now);

  Settings settings_;
  Paths* paths_ = nullptr;
  std::int32_t packet_bytes_ = 0;  // of full packets
  std::vector<Port> ports_;        // by link
  std::vector<Ingress> ingress_;   // by link, with PFC
  Pool pool_;
  std::vector<std::uint32_t> leaving_;           // links by the node that they leave
  std::vector<Node> nodes_;                      // by vertex
  std::vector<std::int64_t> ecn_min_, ecn_max_;  // by link
  std::vector<Utilisation> utilisation_;         // by link
  std::vector<std::int64_t> came_;               // bytes in a batch, by link
  bool observed_ = false;                        // telemetry or codes
  PacketCounts counts_;                          // its totals: workers'
  UseLog log_;
  QueueLog queues_;
  Telemetry telemetry_;
  std::vector<Worker> workers_ = std::vector<Worker>(1);
  // Of windows that threads share.
  struct Turn {  // a switch's, in the window
    std::uint32_t node = 0;
    SimTime next = kNever;
  };
  SimTime end_ = kNever;  // of the run
  int asked_ = 1;         // threads
  bool open_ = false, always_ = false;
  SimTime window_ = kNever;  // how long one is
  SimTime window_begin_ = 0, window_end_ = 0;
  std::vector<Turn> turns_;
  std::vector<std::atomic<bool>> taken_;  // by turn
  std::vector<Letters> letters_;          // delivered, by node and worker
  SimTime counted_since_ = 0;
  std::uint64_t counted_ = 0;  // hops by then
  std::uint64_t worth_ = 0;    // least hops in a window that is shared
  bool worthwhile_ = false;
  std::unique_ptr<WindowThreads> threads_;
};

}  // namespace orrery::network::packet
