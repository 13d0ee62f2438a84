#include "orrery/job/work_floor.h"

#include <array>
#include <optional>

namespace orrery::job {
namespace {

// The groups of one rank of a program, whose shapes are those of all its ranks.
class GroupShapes {
 public:
  GroupShapes(const graph::Graph& graph, const cluster::Cluster& cluster,
              const cluster::Placement& placement, const graph::Binding& binding)
      : graph_(graph), cluster_(cluster), placement_(placement), binding_(binding) {}

  // Null where the slot has no group, or one of a single rank.
  const collective::GroupShape* Find(graph::GroupSlot slot) {
    const auto s = static_cast<std::size_t>(slot);
    const GroupId group = binding_.groups[s];
    if (!group.valid() || graph_.groups.members(group).size() < 2) return nullptr;
    if (!shapes_[s]) {
      std::vector<DeviceId> devices;
      for (const RankId rank : graph_.groups.members(group)) {
        devices.push_back(placement_.device[rank.index()]);
      }
      shapes_[s] = collective::ShapeOf(cluster_, devices);
    }
    return &*shapes_[s];
  }

 private:
  const graph::Graph& graph_;
  const cluster::Cluster& cluster_;
  const cluster::Placement& placement_;
  const graph::Binding& binding_;
  std::array<std::optional<collective::GroupShape>, graph::kGroupSlots> shapes_;
};

SimTime BlockFloor(const graph::Block& block, const collective::Planner& planner,
                   const compute::CostModel& compute, GroupShapes* shapes) {
  SimTime floor = 0;
  for (const graph::Op& op : block.ops) {  // a block may hold kernels that none of its ops runs
    if (op.kind == graph::OpKind::kKernel) floor += compute.Price(block.kernels[op.index]).duration;
  }
  for (const graph::Comm& comm : block.comms) {
    if (!comm.blocking || graph::IsPointToPoint(comm.collective) ||
        graph::IsCopy(comm.collective) || comm.bytes.slot >= 0 || comm.shares.valid()) {
      continue;
    }
    const collective::GroupShape* shape = shapes->Find(comm.group);
    if (shape == nullptr) continue;
    const auto plan = planner.MakePlan(comm.collective, comm.bytes.value, *shape);
    if (plan.ok()) floor += planner.ClosedForm(*plan).total();
  }
  return floor;
}

}  // namespace

WorkFloor FloorOf(const graph::Graph& graph, const cluster::Cluster& cluster,
                  const cluster::Placement& placement, const compute::CostModel& compute,
                  const collective::Planner& planner) {
  std::vector<const graph::Binding*> first(graph.programs.size());
  for (const graph::Binding& binding : graph.bindings) {
    const graph::Binding*& one = first[binding.program.index()];
    if (one == nullptr) one = &binding;
  }
  WorkFloor floor;
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    WorkFloor::Program& sum = floor.programs.emplace_back();
    if (first[p] == nullptr) continue;
    GroupShapes shapes(graph, cluster, placement, *first[p]);
    std::vector<std::optional<SimTime>> blocks(graph.blocks.size());
    for (const graph::Call& call : graph.programs[p].calls) {
      const graph::Block& block = graph.blocks[call.block.index()];
      std::optional<SimTime>& one = blocks[call.block.index()];
      if (!one) one = BlockFloor(block, planner, compute, &shapes);
      const std::string& name = graph.name(block.name);
      const bool end = name.starts_with("embedding") || name.starts_with("head");
      (call.microbatch < 0 ? sum.rest : end ? sum.ends : sum.layers) += *one * call.repeat;
    }
  }
  return floor;
}

}  // namespace orrery::job
