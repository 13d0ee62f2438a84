#include "orrery/workload/schedules/writer.h"

namespace orrery::workload {

using Kind = formats::GoalSchedule::Kind;

void ScheduleWriter::Begin(std::uint32_t tag, Op after, std::span<const std::uint32_t> members,
                           bool started) {
  tag_ = tag;
  after_ = after;
  started_ = started;
  members_ = members;
  first_ = step_ = out_.ops_of_rank();
  state_.clear();
  behind_.clear();
}

ScheduleWriter::Op ScheduleWriter::Add(Kind kind, std::int64_t size, int peer) {
  const std::uint32_t rank = members_.empty() ? static_cast<std::uint32_t>(peer)
                                              : members_[static_cast<std::size_t>(peer)];
  const bool message = kind != Kind::kCalc;
  const Op op = out_.Add(kind, size, message ? rank : 0, message ? tag_ : 0);
  state_.emplace_back();
  for (const Op other : behind_) {
    out_.Require(op, other);
    state_.back().follows = true;
  }
  return op;
}

ScheduleWriter::Op ScheduleWriter::Send(std::int64_t bytes, int to) {
  return Add(Kind::kSend, bytes, to);
}
ScheduleWriter::Op ScheduleWriter::Recv(std::int64_t bytes, int from) {
  return Add(Kind::kRecv, bytes, from);
}
ScheduleWriter::Op ScheduleWriter::Calc(std::int64_t ns) { return Add(Kind::kCalc, ns, 0); }

void ScheduleWriter::Require(Op op, Op other) {
  if (op == kNone || other == kNone || other < step_) return;
  out_.Require(op, other);
  state_[op - first_].follows = true;
  state_[other - first_].followed = true;
}

std::vector<ScheduleWriter::Op> ScheduleWriter::Open(Op first, std::size_t most) {
  std::vector<Op> open;
  const Op end = out_.ops_of_rank();
  for (Op op = first; op < end; ++op) {
    if (!state_[op - first_].followed) open.push_back(op);
  }
  if (open.size() <= most) return open;
  const Op join = out_.Add(Kind::kCalc, 0);
  state_.push_back({.follows = true});
  for (const Op op : open) {
    out_.Require(join, op);
    state_[op - first_].followed = true;
  }
  return {join};
}

void ScheduleWriter::Step() {
  if (posting_ == Posting::kAhead || out_.ops_of_rank() == step_) return;
  constexpr std::size_t kMostBehind = 2;  // a send and a receive
  behind_ = Open(step_, kMostBehind);
  step_ = out_.ops_of_rank();
}

ScheduleWriter::Op ScheduleWriter::End() {
  const Op end = out_.ops_of_rank();
  if (end == first_) return after_;
  if (after_ != kNone) {
    for (Op op = first_; op < end; ++op) {
      if (!state_[op - first_].follows) out_.Require(op, after_, started_);
    }
  }
  // Of an algorithm in steps what the last one leaves open.
  const bool empty = end == step_;
  const std::vector<Op> last = empty ? behind_ : Open(step_, 1);
  if (last.size() == 1) return last.front();
  const Op join = out_.Add(Kind::kCalc, 0);
  for (const Op op : last) out_.Require(join, op);
  return join;
}

}  // namespace orrery::workload
