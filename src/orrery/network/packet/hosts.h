// The ends of packets' ways: queue pairs at NICs, their windows and rates, receivers, recovery.
//
// Model. Transfers of one connection (from, to, salt) are messages of one queue pair, in order; its
// congestion control outlives them, as a NIC's does. A NIC serves its queue pairs in turn, a packet
// each, priority by priority, acknowledgements before data (or among it: control_first); a queue
// pair whose class is paused, whose window is full or whose next packet is not due stands aside. A
// message is complete when all of it and of those before it is at the receiving GPU.
//
// Inside the hosts. Each packet crosses the links between GPU and NIC (PCIe, and NVLink by rail) as
// a message of its own size does in `links`, by arithmetic and without events: before its NIC, read
// ahead by the time that one packet takes there, in the order of sending, and after it in the order
// of arrival.
//
// A route that one pair of GPUs has to itself costs no events a packet: lanes.h.
//
// Controls that hear of marks alone (none, DCQCN) get a notification for each marked packet and
// nothing else, where PFC keeps packets from being lost. Otherwise receivers acknowledge every
// ack_every-th packet, and at once the last of a message, one after which its sender has no window
// left, one that is marked, out of order, again or before others that are there. Go-back-N: what
// comes out of order is lost, and named once for each packet that is missing; the sender returns to
// it. Selective repeat: a packet is sent again when a switch trimmed it (its header says so), when
// three later ones of the same way have arrived, or when the timer ends: after rto, or longer where
// round trips are, srtt + 4 rttvar (RFC 6298, section 2). Timers double, at most eight times, until
// something arrives.
//
// Credit (NDP, EQDS). Packets say how much their sender sends unasked. A receiver owes a pull for
// each packet or header that comes while its sender has something left; a pacer hands them out, one
// flow after the other, at 0.99 of the NIC's rate.
//
// Cost. One turn for each packet sent and each that arrives, several of them an event where the
// host can run ahead of the rest (ahead.cc); O(1) otherwise, O(log) for paced flows. Memory: about
// 600 bytes a queue pair; its messages 32 each while they are under way.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "orrery/network/network.h"
#include "orrery/network/packet/fabric.h"
#include "orrery/network/packet/lanes.h"

namespace orrery::network::packet {

class Hosts {
 public:
  void Setup(const cluster::Cluster& cluster, const Settings& settings, Fabric* fabric,
             Paths* paths);
  // A queue pair's number.
  std::uint32_t AddFlow(DeviceId from, DeviceId to, std::uint64_t salt);
  // Whether a flow can number a message's packets: in 32 bits, over the whole run.
  bool Numbers(std::uint32_t number, std::int64_t bytes) const;
  // REQUIRES: the flow numbers its packets.
  void Post(SimTime now, std::uint32_t number, const Transfer& transfer);
  // The host's turn at `now` and those that follow before `until`.
  // REQUIRES: nothing that it does not know of by `now` reaches it before (RunsAhead).
  void Run(std::uint32_t node, SimTime now, SimTime until);
  // Until when the host can run ahead of `now`, at most `until` and after `now`.
  SimTime RunsAhead(std::uint32_t node, SimTime now, SimTime until);
  void OnTimer(std::uint32_t number, SimTime now);
  // The next message that arrives on a lane alone.
  SimTime NextLanding() const { return lanes_.landings.NextTime(); }
  void TakeLanding();

  struct Done {
    SimTime time = 0;
    std::uint64_t sequence = 0;
    std::uint32_t creator = 0;
    FlightId id = 0;
    friend bool operator<(const Done& a, const Done& b) {
      return a.creator != b.creator ? a.creator < b.creator : a.sequence < b.sequence;
    }
  };
  des::EventQueue<Done> done;     // messages at their GPUs
  des::EventQueue<Event> timers;  // of flows

  bool has_lanes() const { return lanes_.possible(); }
  std::size_t unfinished() const { return unfinished_; }
  std::uint32_t patience() const { return patience_; }  // most timeouts in a row of a flow
  std::uint32_t retransmissions(std::uint32_t flow) const { return flows_[flow].repeated; }

 private:
  struct Message {
    std::uint32_t first = 0, packets = 0;
    std::int64_t bytes = 0;
    std::uint64_t sequence = 0;
    std::uint32_t creator = 0;
    FlightId id = 0;
  };
  struct alignas(64) Flow : FlowView {
    // Sender.
    Pace pace;
    std::uint32_t next = 0, una = 0, end = 0;  // new packet; first not acknowledged; of messages
    std::int64_t in_flight = 0;
    SimTime due = 0;         // the rate lets the next packet go
    SimTime begun = 0;       // the first message of this busy time came
    SimTime fetch_time = 0;  // from GPU to NIC, of a full packet
    std::uint32_t node = 0, to_node = 0, last_link = 0;
    std::uint32_t entropy = 0;  // of the next packet
    std::uint32_t lane = 0;
    std::uint8_t cls = kClasses - 1;
    bool waiting = false;  // in a ready ring or a heap
    bool fetched = false;  // the next packet is at the NIC, or on its way
    bool armed = false;    // a timer event is in the queue
    bool watched = false;  // in endings_
    std::uint32_t timeouts = 0, repeated = 0;
    SimTime deadline = 0;
    SimTime rtt = 0, rtt_swing = 0;  // smoothed: of data that was acknowledged; its deviation
    std::uint32_t credit = 0, pulled = 0, unasked = 0;  // unasked: credit without a pull, in all
    std::uint32_t recovered = 0;                        // packets below were repeated if missing
    Ring<std::uint32_t> again;
    NumberSet acked;
    Ring<Message> messages;
    std::uint32_t at_message = 0;  // where the last look-up ended
    // Load balancing.
    std::uint32_t choices = 0;
    SimTime last_sent = 0, round = 0;
    std::uint32_t round_acks = 0, round_marks = 0, bad_rounds = 0;
    Ring<std::uint32_t> good;  // entropies
    // Receiver.
    std::uint32_t expected = 0, completed = 0;  // of messages in `messages`
    std::uint32_t unacknowledged = 0;
    std::uint32_t nacked = kNone;
    SimTime nacked_at = 0;
    std::uint32_t owed = 0, pulls = 0, headers = 0;
    std::uint32_t told = 0;  // `unasked`, as the newest packet has it
    NumberSet arrived;
  };
  struct Ending {  // no message of the flow ends before `bound`
    SimTime bound = 0, seen = 0;
    std::uint32_t flow = 0;
    friend bool operator<(const Ending& a, const Ending& b) { return a.bound > b.bound; }
  };
  struct Late {  // a flow that may send from `time` on
    SimTime time = 0;
    std::uint32_t flow = 0;
    friend bool operator<(const Late& a, const Late& b) {
      return a.time != b.time ? a.time > b.time : a.flow > b.flow;
    }
  };
  // Full packets that follow each other: `rounds` of each flow in a ready ring, in turn, on a lane
  // alone. The turn of the first is at `turn`, its service begins at `begin`, those of the others
  // one each `step`.
  struct Stretch {
    std::uint32_t flows = 0;  // 0: none is under way
    std::uint32_t rounds = 0, lane = 0;
    SimTime turn = 0, begin = 0, step = 0;
    std::size_t cls = 0;
  };
  struct HostPort {
    std::uint32_t link = 0;
    Stretch stretch;
    std::uint32_t held = kNone;  // the flow whose packet is next and still on its way to the NIC
    SimTime held_until = 0;
    bool transit_next = false;
    std::array<Ring<std::uint32_t>, kClasses> ready;  // flows
    std::vector<Late> late;                           // heap
  };
  struct Fresh {
    std::uint32_t creator = 0;
    std::uint64_t sequence = 0;
    std::uint32_t flow = 0;
  };
  struct Host {
    std::vector<HostPort> ports;
    std::vector<std::uint32_t> inside;  // links inside the host that its packets take
    std::vector<Fresh> fresh;           // messages that came at the instant
    Ring<std::uint32_t> creditors;      // flows that are owed pulls
    SimTime next_pull = 0;
  };

  Host& HostAt(std::uint32_t node);
  // hosts.cc: the NIC.
  HostPort& PortOf(Flow* flow);
  std::int32_t PacketBytes(Flow* flow, std::uint32_t number);
  void TopUp(Flow* flow);
  void SetRateWindow(Flow* flow) const;
  bool HasWork(Flow* flow);
  bool MaySend(Flow* flow);
  void MakeReady(Flow* flow, SimTime now);
  void ServePort(HostPort* port, SimTime now);
  bool SendFromReady(HostPort* port, SimTime now);
  bool SendHeld(HostPort* port, SimTime now);
  void Delay(HostPort* port, const Flow& flow, SimTime time);
  SimTime FetchTime(const Flow& flow, std::int32_t bytes);
  SimTime FetchTimeOf(const Flow& flow, std::int32_t bytes);
  SimTime Fetch(Flow* flow, SimTime now, std::int32_t bytes);
  // When a packet that is ready `at` has crossed links inside a host, one after the other.
  SimTime Cross(std::span<const std::uint32_t> links, SimTime at, std::int32_t bytes);
  void Send(HostPort* port, Flow* flow, SimTime now);
  void Take(std::uint32_t node, std::uint32_t number, SimTime now);
  void Turn(Host* turning, SimTime now);
  SimTime OwnTurn(const Host& host);
  void SendBack(const Packet& cause, Kind kind, std::uint32_t number, std::uint32_t extra,
                SimTime now);
  void GivePulls(Host* host, SimTime now);
  // ahead.cc.
  void Watch(Flow* flow, SimTime now);
  void NoteInside(std::span<const std::uint32_t> links, std::uint32_t node);
  SimTime EndsNoEarlier(const Flow& flow, SimTime now) const;
  SimTime NextEnding(SimTime now, SimTime until);
  // solitary.cc: lanes alone.
  bool SendStretch(HostPort* port, std::size_t cls, SimTime now);
  void EndStretch(HostPort* port, SimTime now);
  void Disturb(std::uint32_t number, SimTime now);
  // balance.cc.
  std::uint32_t NextEntropy(Flow* flow, SimTime now);
  void NoteEntropy(Flow* flow, const Packet& ack, SimTime now);
  // receiver.cc.
  void OnData(const Packet& packet, SimTime now);
  void OnHeader(const Packet& packet, SimTime now);
  void Owe(Flow* flow, SimTime now);
  SimTime ToGpu(const Flow& flow, SimTime now, std::int32_t bytes);
  void Complete(Flow* flow, SimTime at_gpu);
  // sender.cc.
  void OnAck(const Packet& packet, SimTime now);
  void OnNotice(const Packet& packet, SimTime now);
  void OnNack(const Packet& packet, SimTime now);
  void OnPull(const Packet& packet, SimTime now);
  std::int64_t Acknowledge(Flow* flow, const Packet& ack);
  void RepeatMissing(Flow* flow, std::uint32_t seen, SimTime now);
  void Forget(Flow* flow);
  void Measure(Flow* flow, SimTime rtt) const;
  SimTime TimerOf(const Flow& flow) const;
  void Arm(Flow* flow, SimTime now);

  Settings settings_;
  Fabric* fabric_ = nullptr;
  Paths* paths_ = nullptr;
  std::unique_ptr<Control> control_;
  std::vector<Flow> flows_;
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> host_of_;           // by vertex
  std::vector<std::vector<std::uint32_t>> out_;  // links of the fabric by sending host's vertex
  std::vector<SimTime> free_;                    // links inside hosts, by link
  std::vector<std::uint64_t> sequences_;         // by creator
  Lanes lanes_;
  std::vector<std::uint32_t> disturbed_;    // scratch
  std::vector<Passing> arrived_;            // scratch
  std::vector<Fabric::Pause> pauses_;       // scratch
  std::vector<Ending> endings_;             // heap, a flow with messages under way once
  bool ahead_ = false;                      // hosts may run ahead
  std::vector<std::uint32_t> inside_user_;  // of links inside hosts, by link
  std::size_t unfinished_ = 0;
  std::uint32_t patience_ = 0;
};

}  // namespace orrery::network::packet
