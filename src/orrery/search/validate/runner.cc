#include "orrery/search/validate/runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "orrery/job/apply_constants.h"

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

Status Runner::Load(const job::Job& job, const std::string& document,
                    const constants::Set& constants) {
  if (simulation_ && document == document_ && constants.hash() == constants_) return {};
  simulation_.reset();
  evaluation_.reset();
  document_ = document;
  constants_ = constants.hash();
  job_ = std::make_unique<job::Job>(job);
  job::ApplyConstants(constants, job_.get());
  ORRERY_ASSIGN_OR_RETURN(job::Simulation ready,
                          job::Simulation::Prepare(*job_, options_, &caches_));
  simulation_.emplace(std::move(ready));
  return {};
}

const Result<job::Evaluation>& Runner::Evaluate() {
  if (!evaluation_) evaluation_.emplace(simulation_->Evaluate());
  return *evaluation_;
}

Result<double> Runner::PeakMemoryGib(Meter meter, MeterRank rank) const {
  std::int64_t peak = 0;
  for (const ProgramId program : ProgramsOn(simulation_->graph(), rank)) {
    ORRERY_ASSIGN_OR_RETURN(const memory::Footprint footprint, simulation_->ReplayMemory(program));
    const std::int64_t bytes = meter == Meter::kAllocated ? footprint.peak_allocated
                               : meter == Meter::kReserved
                                   ? footprint.peak_reserved
                                   : footprint.peak_reserved + footprint.context_bytes;
    peak = std::max(peak, bytes);
  }
  return static_cast<double>(peak) / (1 << 30);
}

}  // namespace orrery::search
