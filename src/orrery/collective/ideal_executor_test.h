// The contract of lowering.h, executed over links that are ideal FIFOs (network/links.h): what
// the closed form is held against. Test only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/collective/lowering/lowering.h"

namespace orrery::collective {

class IdealExecutor {
 public:
  IdealExecutor(const Schedule& schedule, const cluster::Cluster& cluster,
                std::span<const DeviceId> members);
  // All members arrive at 0; the end of the last one. Aborts the test on a deadlock (returns -1).
  SimTime Run();
  // The same, to the picosecond, where a plan's chunks are alike: once all that is under way has
  // come back to where it was some rounds ago, time repeats, and whole periods are left out. Not
  // for exchanges. `bytes_sent` and `steps` are of what was run.
  SimTime RunPeriodic();
  std::uint64_t skipped_rounds() const { return skipped_; }
  std::uint64_t steps() const { return steps_; }
  std::int64_t bytes_sent(LinkId link) const { return link_bytes_[link.index()]; }

 private:
  struct Lane {
    std::uint64_t index = 0;
    Step step;
    bool busy = false;
    std::uint32_t member = 0;
    int number = 0;
  };
  struct Wire {
    std::vector<LinkId> path;
    SimTime back = 0;  // Σ latencies: a credit's way
    int credits = 0, arrived = 0;
    std::int32_t sender = -1, receiver = -1;  // lanes that use it
  };
  struct Message {
    std::uint32_t connection = 0, hop = 0;
    std::int64_t wire = 0;
    SimTime tail = 0;  // has fully left the hop before at this time
  };
  enum class Kind : std::uint8_t { kWorkEnd, kHop, kArrive, kCredit };
  struct Event {
    SimTime time;
    std::uint64_t sequence;
    Kind kind;
    std::uint32_t index;  // lane, message or connection
    bool operator>(const Event& o) const {
      return time != o.time ? time > o.time : sequence > o.sequence;
    }
  };
  void Push(SimTime time, Kind kind, std::uint32_t index) {
    events_.push_back({time, sequence_++, kind, index});
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  }
  SimTime Execute();
  void TryStart(std::uint32_t lane);
  void FindRounds();
  void FindAlike(graph::Collective collective, std::uint64_t rounds);
  void Recur();
  std::uint64_t State(std::uint64_t round) const;
  std::uint64_t EventState(std::uint64_t hash, const Event& event) const;
  void EndWork(std::uint32_t lane);
  void Hop(std::uint32_t message);

  const Schedule schedule_;
  const cluster::Cluster& cluster_;
  std::vector<DeviceId> members_;
  std::vector<Lane> lanes_;
  std::vector<Wire> wires_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_messages_;
  std::vector<SimTime> link_free_;
  std::vector<std::int64_t> link_bytes_;
  std::vector<Event> events_;  // a heap
  std::uint64_t sequence_ = 0, steps_ = 0;
  std::size_t running_ = 0;
  SimTime now_ = 0;
  // RunPeriodic: steps of a round by lane, the lane that tells them, rounds that are alike, and the
  // states that have been, with round and time.
  std::vector<std::uint64_t> per_round_;
  std::uint32_t teller_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> alike_;  // those still to come, from and to
  std::uint64_t skipped_ = 0;
  bool at_round_ = false;
  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, SimTime>> seen_;
  std::vector<std::size_t> used_links_;
};

}  // namespace orrery::collective
