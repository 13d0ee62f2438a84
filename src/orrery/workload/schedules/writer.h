// One rank's messages and work, as algorithms of MPI libraries and of Schedgen write them.
//
// An algorithm says what a member of a team does: sends, receives, work, what needs what, and where
// its steps begin. The writer puts that into a schedule (formats/goal.h) behind what the rank did
// before. How receives are posted is the writer's: ahead, as in Schedgen's schedules, where a
// receive waits for nothing but what an algorithm says; or in steps, as in a library, whose next
// step begins when all of this one is over.
//
// Cost: O(1) an operation, O(1) a dependency.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/formats/goal.h"

namespace orrery::workload {

// A member's place in the group that runs an algorithm.
struct Team {
  int rank = 0, size = 1;
};

enum class Posting : std::uint8_t { kAhead, kInSteps };

class ScheduleWriter {
 public:
  using Op = std::uint32_t;  // its number in the rank
  static constexpr Op kNone = 0xFFFFFFFFu;

  // `out` has begun the rank.
  explicit ScheduleWriter(formats::GoalBuilder* out, Posting posting)
      : out_(*out), posting_(posting) {}

  // What follows, up to End, begins after `after` is over, or has started (kNone: at once), and has
  // this tag. Members count in `members` (ranks of the schedule), which must live until End; empty:
  // they are the ranks.
  void Begin(std::uint32_t tag, Op after, std::span<const std::uint32_t> members = {},
             bool started = false);
  void set_tag(std::uint32_t tag) { tag_ = tag; }
  Op Send(std::int64_t bytes, int to);
  Op Recv(std::int64_t bytes, int from);
  Op Calc(std::int64_t ns);
  // kNone for either: nothing. In steps, what an earlier step did is over anyway.
  void Require(Op op, Op other);
  // A step of the algorithm is complete; plays no part where receives are posted ahead.
  void Step();
  // The operation that is over when all since Begin are; what was given to Begin if there is none.
  Op End();

 private:
  Op Add(formats::GoalSchedule::Kind kind, std::int64_t size, int peer);
  // Operations from `first` on that nothing waits for; one that stands for them where they are
  // more than `most`.
  std::vector<Op> Open(Op first, std::size_t most);

  formats::GoalBuilder& out_;
  Posting posting_;
  std::span<const std::uint32_t> members_;
  std::uint32_t tag_ = 0;
  Op after_ = kNone, first_ = 0, step_ = 0;  // the first of this algorithm, of this step
  bool started_ = false;                     // `after_` need only have started
  std::vector<Op> behind_;                   // what this step begins after
  struct State {
    bool follows = false, followed = false;
  };
  std::vector<State> state_;  // of operations from first_ on
};

}  // namespace orrery::workload
