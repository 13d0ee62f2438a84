#include "orrery/job/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace orrery::job {
namespace {

using KernelKey = std::tuple<NameId, NameId, compute::Provenance>;
using CollectiveKey = std::tuple<graph::GroupSlot, graph::Collective, std::int64_t, bool>;

class Adder {
 public:
  Adder(const graph::Graph& graph, const cluster::Cluster& cluster,
        const cluster::Placement& placement, const compute::CostModel& compute,
        const collective::Planner& planner, const graph::Binding& binding)
      : graph_(graph),
        cluster_(cluster),
        placement_(placement),
        compute_(compute),
        planner_(planner),
        binding_(binding) {}

  void Add(const graph::Call& call) {
    const graph::Block& block = graph_.blocks[call.block.index()];
    for (const graph::Op& op : block.ops) {
      if (op.kind == graph::OpKind::kKernel) AddKernel(op, block.kernels[op.index], call.repeat);
      if (op.kind == graph::OpKind::kComm) AddComm(block.comms[op.index], call.repeat);
    }
  }

  Shares Take(std::int32_t stage, std::int64_t ranks) {
    Shares shares{.stage = stage, .ranks = ranks, .kernels = {}, .collectives = {}};
    for (auto& [key, kernel] : kernels_) shares.kernels.push_back(std::move(kernel));
    for (auto& [key, one] : collectives_) shares.collectives.push_back(std::move(one));
    std::stable_sort(shares.kernels.begin(), shares.kernels.end(),
                     [](const KernelShare& a, const KernelShare& b) { return a.time > b.time; });
    std::stable_sort(shares.collectives.begin(), shares.collectives.end(),
                     [](const CollectiveShare& a, const CollectiveShare& b) {
                       return a.each * a.runs > b.each * b.runs;
                     });
    return shares;
  }

 private:
  void AddKernel(const graph::Op& op, const graph::Kernel& kernel, std::int64_t runs) {
    const compute::KernelTime time = compute_.Price(kernel);
    KernelShare& share = kernels_[{op.name, op.module, time.provenance}];
    if (share.runs == 0) {
      share.name = op.name.valid() ? graph_.name(op.name) : "";
      share.module = op.module.valid() ? graph_.name(op.module) : "";
      share.provenance = time.provenance;
    }
    share.runs += runs;
    share.time += time.duration * runs;
    share.spread = std::max(share.spread, static_cast<double>(time.spread));
  }

  void AddComm(const graph::Comm& comm, std::int64_t runs) {
    if (graph::IsPointToPoint(comm.collective) || graph::IsCopy(comm.collective)) return;
    const GroupId group = binding_.groups[static_cast<std::size_t>(comm.group)];
    if (!group.valid() || graph_.groups.members(group).size() < 2) return;
    const std::int64_t bytes = graph_.number(binding_, comm.bytes);
    CollectiveShare& share = collectives_[{comm.group, comm.collective, bytes, comm.blocking}];
    if (share.runs == 0) Describe(comm, group, bytes, &share);
    share.runs += runs;
  }

  void Describe(const graph::Comm& comm, GroupId group, std::int64_t bytes,
                CollectiveShare* share) const {
    std::vector<DeviceId> devices;
    for (const RankId rank : graph_.groups.members(group)) {
      devices.push_back(placement_.device[rank.index()]);
    }
    const collective::GroupShape shape = collective::ShapeOf(cluster_, devices);
    share->group = comm.group;
    share->collective = comm.collective;
    share->bytes = bytes;
    share->blocking = comm.blocking;
    share->ranks = shape.ranks;
    share->domains = shape.domains;
    const auto plan = planner_.MakePlan(comm.collective, bytes, shape);
    if (!plan.ok()) return;
    share->each = planner_.ClosedForm(*plan).total();
    share->plan = fmt::format("{}, {}, {} channels", collective::Name(plan->algorithm),
                              collective::Name(plan->protocol), plan->channels);
  }

  const graph::Graph& graph_;
  const cluster::Cluster& cluster_;
  const cluster::Placement& placement_;
  const compute::CostModel& compute_;
  const collective::Planner& planner_;
  const graph::Binding& binding_;
  std::map<KernelKey, KernelShare> kernels_;
  std::map<CollectiveKey, CollectiveShare> collectives_;
};

}  // namespace

std::vector<Shares> SharesOf(const graph::Graph& graph, const cluster::Cluster& cluster,
                             const cluster::Placement& placement, const compute::CostModel& compute,
                             const collective::Planner& planner) {
  std::vector<Shares> all;
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    const auto runs = [&](const graph::Binding& one) { return one.program.index() == p; };
    const auto binding = std::find_if(graph.bindings.begin(), graph.bindings.end(), runs);
    if (binding == graph.bindings.end()) continue;
    Adder adder(graph, cluster, placement, compute, planner, *binding);
    for (const graph::Call& call : graph.programs[p].calls) adder.Add(call);
    all.push_back(adder.Take(graph.programs[p].stage, std::ranges::count_if(graph.bindings, runs)));
  }
  return all;
}

}  // namespace orrery::job
