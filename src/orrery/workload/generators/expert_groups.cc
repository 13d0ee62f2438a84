#include "orrery/workload/generators/expert_groups.h"

#include <vector>

namespace orrery::workload {

using graph::GroupSlot;

namespace {

class Groups {
 public:
  explicit Groups(graph::Graph* graph) : graph_(graph) {}

  // `count` ranks from `first` on, `stride` apart.
  void Add(GroupSlot slot, std::size_t first, std::size_t stride, std::size_t count) {
    if (count == 1) return;
    members_.clear();
    for (std::size_t i = 0; i < count; ++i) members_.emplace_back(first + i * stride);
    const GroupId id = graph_->groups.Add(slot, members_);
    for (const RankId rank : members_) {
      graph_->bindings[rank.index()].groups[static_cast<std::size_t>(slot)] = id;
    }
  }

 private:
  graph::Graph* graph_;
  std::vector<RankId> members_;
};

}  // namespace

void AddExpertGroups(const Plan& plan, std::size_t first, graph::Graph* graph) {
  const auto etp = static_cast<std::size_t>(plan.expert_tp());
  const auto ep = static_cast<std::size_t>(plan.ep);
  const auto edp = static_cast<std::size_t>(plan.expert_dp());
  const auto width = static_cast<std::size_t>(plan.stage_ranks());
  Groups groups(graph);
  for (std::size_t p = 0; p < static_cast<std::size_t>(plan.pp); ++p) {
    const std::size_t stage = first + p * width;
    for (std::size_t i = 0; i < ep * edp; ++i)
      groups.Add(GroupSlot::kExpertTp, stage + i * etp, 1, etp);
    for (std::size_t d = 0; d < edp; ++d) {
      for (std::size_t t = 0; t < etp; ++t) {
        groups.Add(GroupSlot::kEp, stage + d * etp * ep + t, etp, ep);
      }
    }
    for (std::size_t i = 0; i < etp * ep; ++i)
      groups.Add(GroupSlot::kExpertDp, stage + i, etp * ep, edp);
  }
}

}  // namespace orrery::workload
