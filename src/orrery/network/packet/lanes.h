// Lanes: routes that one pair of GPUs has to itself, on which packets are arithmetic.
//
// A lane is a route: the links between GPU and NIC at the sender, through the fabric and to the GPU
// at the receiver. While no other lane has a message under way that crosses any of its links, a
// packet meets nothing but those that its own NIC sent before it, in their order: at every link
// its service begins when it has come and the one before has gone. So nothing is queued and no
// event is needed but one for each message's arrival. Full packets that follow each other as fast
// as the NIC and the link before it let them wait nowhere, for no later link is slower: a stretch
// of them is a `Run`, O(1) whatever its length. A lane is alone only where
//   - it is store and forward, without acknowledgements or a window (none, DCQCN), two packets are
//     too few to be marked, its packets have one way, no link from the NIC on is slower than what
//     comes before, and before the NIC one at most is slower than the NIC;
//   - when its first message begins, its links carry nothing and none is paused.
// When another lane's message, or a notification of a mark, comes onto one of its links, hosts.h
// puts the packets that are under way back where they are at that instant (Hosts::Disturb), and all
// go packet by packet until the lane is empty. The times are the same to the picosecond
// (Packet.ALaneAloneIsExact). Not the same: a short packet that waits behind a longer one on a lane
// alone is in no statistics of queues.
//
// Memory: about 300 bytes a lane, 140 for each run not yet at its NIC.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "orrery/des/event_queue.h"
#include "orrery/network/packet/fabric.h"

namespace orrery::network::packet {

class Lanes {
 public:
  static constexpr std::size_t kHops = 12;  // a longer route is never alone

  // Full packets of one flow, numbers from `number` on, at equal distances.
  struct Run {
    std::array<SimTime, kHops> at{};  // begin of the first packet's service, by hop
    SimTime step = 0;
    std::uint32_t flow = 0, number = 0, count = 1;
    std::int32_t bytes = 0;
    std::uint8_t cls = 0;
  };
  struct Lane {
    std::vector<std::uint32_t> links;   // through the fabric, then inside the receiving host
    std::vector<std::uint32_t> before;  // inside the sending host
    std::vector<std::uint32_t> flows;
    std::size_t hops = 0;  // of the fabric
    bool possible = false, alone = false;
    std::uint32_t messages = 0;                  // under way
    std::uint32_t version = 0;                   // of its landings: others are void
    std::array<SimTime, kHops> free{}, freed{};  // by hop: after all runs; after those dropped
    Ring<Run> runs;                              // not all of which has landed
  };
  // A message's last packet at the receiving NIC.
  struct Landing {
    SimTime time = 0, at_gpu = 0;
    std::uint32_t flow = 0, number = 0, lane = 0, version = 0;
    friend bool operator<(const Landing& a, const Landing& b) {
      return a.flow != b.flow ? a.flow < b.flow : a.number < b.number;
    }
  };
  des::EventQueue<Landing> landings;

  void Setup(const Settings& settings, Fabric* fabric, Paths* paths, std::vector<SimTime>* inside,
             std::size_t links);
  // The lane of a flow that was just added to the paths.
  std::uint32_t LaneOf(std::uint32_t flow);
  Lane& lane(std::uint32_t number) { return lanes_[number]; }
  bool possible() const { return possible_; }
  bool alone(std::uint32_t number) const { return possible_ && lanes_[number].alone; }

  // A message begins. Lanes that were alone and share a link with it: they are to be disturbed.
  void Begin(std::uint32_t number, std::vector<std::uint32_t>* disturbed);
  // A message of the lane is complete.
  void End(std::uint32_t number);
  // A notification goes back to the flow's sender, until it is there. Lanes that were alone and
  // share a link with it: they are to be disturbed.
  void BeginNotice(std::uint32_t flow, std::vector<std::uint32_t>* disturbed);
  void EndNotice(std::uint32_t flow);
  // The lane is no longer alone; its landings are void.
  void Leave(std::uint32_t number);

  // Of a lane alone: forgets runs that landed before `now`.
  void Trim(std::uint32_t number, SimTime now);
  // A packet's service at the NIC begins.
  void Send(std::uint32_t number, const Packet& packet, bool ends_message);
  // Whether a packet of so many bytes, sent now, would wait nowhere.
  bool Clear(const Lane& lane, SimTime now, std::int32_t bytes) const;
  // `packet` and the count - 1 that follow it, one each `step`.
  void SendRun(std::uint32_t number, const Packet& packet, SimTime step, std::uint32_t count);
  // Of the last `flows` runs, one beside the other, only `sent` packets were sent, one each `step`.
  // REQUIRES: sent > 0.
  void Cut(std::uint32_t number, std::uint32_t flows, std::uint32_t sent, SimTime step);

  void Count(const Lane& lane, std::size_t hop, SimTime first, SimTime step, std::uint32_t count,
             std::int32_t bytes);
  SimTime LandingOf(const Lane& lane, const Run& run, std::uint32_t i) const {
    const Port& last = fabric_->port(lane.links[lane.hops - 1]);
    return run.at[lane.hops - 1] + run.step * i + Service(lane, lane.hops - 1, run.bytes) +
           last.latency;
  }
  SimTime Service(const Lane& lane, std::size_t hop, std::int32_t bytes) const {
    return fabric_->ServiceTime(fabric_->port(lane.links[hop]), bytes);
  }

 private:
  bool Clean(const Lane& lane) const;
  bool Enter(std::uint32_t link, std::vector<std::uint32_t>* disturbed);
  void Drop(Lane* lane, const Run& run);

  bool possible_ = false;
  std::int64_t packet_bytes_ = 0;  // of a full packet
  Fabric* fabric_ = nullptr;
  Paths* paths_ = nullptr;
  std::vector<SimTime>* inside_ = nullptr;  // when links inside hosts are free
  std::vector<Lane> lanes_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> by_route_;
  // Lanes with messages under way and notifications on their way, by link.
  std::vector<std::uint32_t> crossing_;
  std::vector<std::uint32_t> owner_;  // the lane alone on it, by link
};

}  // namespace orrery::network::packet
