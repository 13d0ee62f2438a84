#include "orrery/formats/goal.h"

#include <algorithm>
#include <utility>

namespace orrery::formats {
namespace {

// Fails if some operations of a rank wait for each other.
Status CheckAcyclic(const GoalSchedule& schedule, std::size_t rank) {
  const std::size_t first = schedule.first_op[rank], last = schedule.first_op[rank + 1];
  std::vector<std::uint32_t> open, ready;
  for (std::size_t op = first; op < last; ++op) {
    open.push_back(schedule.ops[op].open);
    if (open.back() == 0) ready.push_back(static_cast<std::uint32_t>(op - first));
  }
  std::size_t reached = 0;
  while (!ready.empty()) {
    const std::uint32_t op = ready.back();
    ready.pop_back();
    ++reached;
    for (const std::uint32_t edge : schedule.edges_of(first + op)) {
      const std::uint32_t to = edge & ~GoalSchedule::kStartEdge;
      if (--open[to] == 0) ready.push_back(to);
    }
  }
  if (reached == last - first) return {};
  const std::size_t stuck = static_cast<std::size_t>(
      std::find_if(open.begin(), open.end(), [](std::uint32_t n) { return n > 0; }) - open.begin());
  return InvalidInput(
      "rank {}: {} operations wait for each other, {} is one of them; remove a 'requires'",
      schedule.first_rank + rank, last - first - reached, schedule.Place(first + stuck));
}

}  // namespace

std::string_view Name(GoalSchedule::Kind kind) {
  switch (kind) {
    case GoalSchedule::Kind::kSend:
      return "send";
    case GoalSchedule::Kind::kRecv:
      return "recv";
    case GoalSchedule::Kind::kCalc:
      return "calc";
  }
  return "operation";
}

std::string GoalSchedule::Place(std::size_t op) const {
  if (!lines.empty()) return fmt::format("line {}", lines[op]);
  const auto after = std::upper_bound(first_op.begin(), first_op.end(), op);
  const auto rank = static_cast<std::size_t>(after - first_op.begin()) - 1;
  return fmt::format("operation {} of rank {}", op - first_op[rank], first_rank + rank);
}

void GoalBuilder::BeginRank() {
  if (out_.first_op.empty()) {
    out_.first_op.push_back(0);
  } else {
    CloseRank();
  }
  base_ = out_.ops.size();
}

std::uint32_t GoalBuilder::Add(GoalSchedule::Kind kind, std::int64_t size, std::uint32_t peer,
                               std::uint32_t tag, std::uint8_t cpu, std::uint8_t nic) {
  out_.ops.push_back({size, peer, tag, 0, 0, kind, cpu, nic});
  out_.lines.push_back(line_);
  out_.cpus = std::max(out_.cpus, cpu + 1);
  out_.nics = std::max(out_.nics, nic + 1);
  return static_cast<std::uint32_t>(out_.ops.size() - 1 - base_);
}

void GoalBuilder::Require(std::uint32_t op, std::uint32_t other, bool start) {
  pending_.push_back({other, op | (start ? GoalSchedule::kStartEdge : 0u)});
  ++out_.ops[base_ + op].open;
}

void GoalBuilder::CloseRank() {
  // Counting sort by source keeps the order in which dependencies were written.
  const std::size_t ops = out_.ops.size() - base_;
  std::vector<std::uint32_t> place(ops + 1, 0);
  for (const Edge& edge : pending_) ++place[edge.from + 1];
  for (std::size_t i = 0; i < ops; ++i) place[i + 1] += place[i];
  const std::size_t first = out_.edges.size();
  for (std::size_t i = 0; i < ops; ++i) {
    out_.ops[base_ + i].first_edge = static_cast<std::uint32_t>(first + place[i]);
  }
  out_.edges.resize(first + pending_.size());
  for (const Edge& edge : pending_) out_.edges[first + place[edge.from]++] = edge.to;
  pending_.clear();
  out_.first_op.push_back(static_cast<std::uint32_t>(out_.ops.size()));
}

Result<GoalSchedule> GoalBuilder::Take(bool keep_lines) {
  if (!out_.first_op.empty()) CloseRank();
  GoalSchedule schedule = std::exchange(out_, {});
  schedule.ops.push_back({.first_edge = static_cast<std::uint32_t>(schedule.edges.size())});
  if (!keep_lines) schedule.lines.clear();
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
    ORRERY_RETURN_IF_ERROR(CheckAcyclic(schedule, rank));
  }
  return schedule;
}

}  // namespace orrery::formats
