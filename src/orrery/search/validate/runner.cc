#include "orrery/search/validate/runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/constants/constants.h"
#include "orrery/engine/engine.h"
#include "orrery/memory/memory.h"
#include "orrery/results/result.h"

namespace orrery::search {
namespace {

// Programs of the ranks that a meter was read on, once each. O(ranks).
std::vector<ProgramId> ProgramsOn(const graph::Graph& graph, MeterRank rank) {
  if (rank == MeterRank::kFirst) return {graph.bindings.front().program};
  if (rank == MeterRank::kLast) return {graph.bindings.back().program};
  std::vector<ProgramId> programs;
  std::vector<bool> seen(graph.programs.size());
  for (const graph::Binding& binding : graph.bindings) {
    if (seen[binding.program.index()]) continue;
    seen[binding.program.index()] = true;
    programs.push_back(binding.program);
  }
  return programs;
}

}  // namespace

// The preset's name, and what the mapping of a row (machines.h, training.h) may change of it.
std::string MachineKey(const cluster::Spec& s) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", s.name, s.nodes,
                     s.gpus_per_node, s.gpus_per_nvlink_domain, s.nics_per_node, s.nvlink_Bps,
                     s.nic_Bps, s.nic_latency, static_cast<int>(s.fabric), s.oversubscription,
                     s.device.constants.hash(), s.pcie_tree.name, s.pcie_tree.tree,
                     s.device.power_w, s.device.vboost, s.device.cuda, s.cpu_is_amd, s.sharp);
}

Result<std::unique_ptr<Machine>> Machine::Create(const cluster::Spec& spec,
                                                 const std::string& measured_database) {
  ORRERY_ASSIGN_OR_RETURN(cluster::Cluster cluster, cluster::Cluster::Build(spec));
  compute::Options options;
  options.measured_database = measured_database;
  ORRERY_ASSIGN_OR_RETURN(compute::CostModel compute,
                          compute::CostModel::Create(spec.device, options));
  return std::unique_ptr<Machine>(new Machine(std::move(cluster), std::move(compute)));
}

Result<const Machine*> MachinePool::Find(const cluster::Spec& spec) {
  const std::string key = MachineKey(spec);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Machine>& machine = machines_[key];
  if (machine == nullptr) {
    ORRERY_ASSIGN_OR_RETURN(machine, Machine::Create(spec, measured_database_));
  }
  return static_cast<const Machine*>(machine.get());
}

Status Runner::Load(const TrainingCase& c, const constants::Set& constants) {
  cluster::Spec spec = c.cluster;
  cluster::Calibrate(constants, &spec);
  workload::Plan plan = c.plan;
  plan.host = workload::HostOf(c.host, plan, constants);
  experts_ = c.model.experts.count > 0;
  rank_noise_ = constants[constants::kRankNoise];
  input_time_ = plan.input_time();
  ORRERY_ASSIGN_OR_RETURN(const Machine* const machine, pool_->Find(spec));
  if (machine != machine_) {
    machine_ = machine;
    prices_ = std::make_unique<engine::PriceCache>(machine->compute(), machine->planner());
  }
  graph_ = graph::Graph();
  memory_.libraries = {c.libraries};
  memory_.allocator = c.allocator;
  return generator_.AddJob(c.model, plan, "row", &graph_);
}

Result<double> Runner::StepTime(std::vector<std::string>* assumed, constants::StepShares* shares) {
  cluster::Placement placement;
  ORRERY_RETURN_IF_ERROR(cluster::Place(machine_->cluster(), cluster::PlacementKind::kPacked,
                                        graph_.bindings.size(), 0, {}, &placement));
  const engine::Inputs inputs{
      &graph_,   &machine_->cluster(), &placement, &machine_->compute(), &machine_->planner(),
      "analytic"};
  ORRERY_ASSIGN_OR_RETURN(
      const engine::Record record,
      engine::Run(inputs, {.rank_noise = rank_noise_, .input_times = {input_time_}},
                  prices_.get()));
  assumed->insert(assumed->end(), record.warnings.begin(), record.warnings.end());
  engine::Breakdown sums{};
  for (const engine::RankClass& c : record.classes) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += c.breakdown[i] / 1024 * c.size;
  }
  *shares = results::SharesOf(sums, record.compute_spread, experts_);
  return ToSeconds(record.jobs.front().step_time);
}

Result<double> Runner::PeakMemoryGib(Meter meter, MeterRank rank) {
  std::int64_t peak = 0;
  for (const ProgramId program : ProgramsOn(graph_, rank)) {
    ORRERY_ASSIGN_OR_RETURN(
        const memory::Footprint footprint,
        memory::Replay(graph_, program, machine_->cluster().spec().device, memory_));
    const std::int64_t bytes = meter == Meter::kAllocated ? footprint.peak_allocated
                               : meter == Meter::kReserved
                                   ? footprint.peak_reserved
                                   : footprint.peak_reserved + footprint.context_bytes;
    peak = std::max(peak, bytes);
  }
  return static_cast<double>(peak) / (1 << 30);
}

}  // namespace orrery::search
