#include "orrery/workload/generators/experts/expert_groups.h"

#include <vector>

namespace orrery::workload {

using graph::GroupSlot;

namespace {

class Groups {
 public:
  Groups(const Plan& plan, std::size_t first, graph::Graph* graph) : graph_(graph), first_(first) {
    const auto pp = static_cast<std::size_t>(plan.parallel.pp);
    if (plan.parallel.rank_order == RankOrder::kDpPp) {
      stage_ = width_ = static_cast<std::size_t>(plan.stage_ranks());
      block_ = stage_;
    } else {
      stage_ = width_ =
          static_cast<std::size_t>(plan.parallel.tp) * static_cast<std::size_t>(plan.parallel.cp);
      block_ = stage_ * pp;
    }
  }

  // `count` ranks of stage p from its `first`-th on, `stride` apart.
  void Add(GroupSlot slot, std::size_t p, std::size_t first, std::size_t stride,
           std::size_t count) {
    if (count == 1) return;
    members_.clear();
    for (std::size_t i = 0; i < count; ++i) members_.push_back(Rank(first + i * stride, p));
    const GroupId id = graph_->groups.Add(slot, members_);
    for (const RankId rank : members_) {
      graph_->bindings[rank.index()].groups[static_cast<std::size_t>(slot)] = id;
    }
  }

  // Binds rank i of stage p to the program so many behind its own.
  void Shift(std::size_t i, std::size_t p, std::size_t by) {
    ProgramId& program = graph_->bindings[Rank(i, p).index()].program;
    program = ProgramId(program.index() + by);
  }

 private:
  // A stage's ranks lie in blocks of width_, one block_ apart.
  RankId Rank(std::size_t i, std::size_t p) const {
    return RankId(first_ + p * stage_ + i / width_ * block_ + i % width_);
  }

  graph::Graph* graph_;
  std::size_t first_, stage_ = 0, width_ = 0, block_ = 0;
  std::vector<RankId> members_;
};

}  // namespace

void AddExpertGroups(const Plan& plan, std::size_t first, bool programs, graph::Graph* graph) {
  const auto etp = static_cast<std::size_t>(plan.expert_tp());
  const auto ep = static_cast<std::size_t>(plan.parallel.ep);
  const auto edp = static_cast<std::size_t>(plan.expert_dp());
  Groups groups(plan, first, graph);
  for (std::size_t p = 0; p < static_cast<std::size_t>(plan.parallel.pp); ++p) {
    for (std::size_t i = 0; programs && i < etp * ep * edp; ++i) groups.Shift(i, p, i / etp % ep);
    for (std::size_t i = 0; i < ep * edp; ++i) groups.Add(GroupSlot::kExpertTp, p, i * etp, 1, etp);
    for (std::size_t d = 0; d < edp; ++d) {
      for (std::size_t t = 0; t < etp; ++t) {
        groups.Add(GroupSlot::kEp, p, d * etp * ep + t, etp, ep);
      }
    }
    for (std::size_t i = 0; i < etp * ep; ++i) {
      groups.Add(GroupSlot::kExpertDp, p, i, etp * ep, edp);
    }
  }
}

}  // namespace orrery::workload
