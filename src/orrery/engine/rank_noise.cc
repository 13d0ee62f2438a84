#include "orrery/engine/rank_noise.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "orrery/constants/constants.h"

namespace orrery::engine {
namespace {

struct Stage {
  std::size_t ranks = 0;
  std::size_t together = 1;  // of these, those that meet in every pass
  SimTime load = 0;          // kernels of an iteration
  double pace = 1;
};

// How many ranks go through a stage's passes together: the groups whose communications more than
// one micro-batch has. With one micro-batch a pass is the step.
std::size_t RanksTogether(const graph::Graph& graph, const graph::Program& program,
                          const graph::Binding& binding) {
  std::map<graph::GroupSlot, std::int32_t> first;  // micro-batch that has it
  std::set<graph::GroupSlot> counted;
  std::size_t product = 1;
  for (const graph::Call& call : program.calls) {
    if (call.microbatch < 0) continue;
    for (const graph::Comm& comm : graph.blocks[call.block.index()].comms) {
      if (graph::IsPointToPoint(comm.collective) || graph::IsCopy(comm.collective)) continue;
      const std::int32_t seen = first.emplace(comm.group, call.microbatch).first->second;
      if (seen == call.microbatch || !counted.insert(comm.group).second) continue;
      product *= graph.groups.members(graph.group(binding, comm.group)).size();
    }
  }
  return product;
}

// Of one job's stages.
void SetPaces(double deviation, std::vector<Stage*> stages) {
  std::ranges::stable_sort(stages, std::ranges::greater{}, &Stage::load);
  const auto pace = [&](std::size_t n) { return 1 + deviation * constants::SlowestOf(n); };
  const auto most = static_cast<double>(std::max<SimTime>(stages.front()->load, 1));
  double slowest = 0;
  std::size_t ranks = 0;
  for (Stage* stage : stages) {
    ranks += stage->ranks;
    stage->pace = pace(std::min(stage->ranks, stage->together));
    slowest = std::max(slowest, static_cast<double>(stage->load) / most * pace(ranks));
  }
  stages.front()->pace = slowest;
}

}  // namespace

std::vector<double> RankPaces(const graph::Graph& graph, double deviation, PriceCache* prices) {
  std::vector<SimTime> kernels;  // by block
  for (const graph::Block& block : graph.blocks) kernels.push_back(prices->KernelTime(block));
  std::map<std::pair<std::size_t, int>, Stage> stages;  // by job and number
  std::vector<Stage*> stage_of(graph.programs.size());
  for (const graph::Binding& binding : graph.bindings) {
    Stage*& stage = stage_of[binding.program.index()];
    if (stage == nullptr) {
      const graph::Program& program = graph.programs[binding.program.index()];
      stage = &stages[{binding.job.index(), program.stage}];
      SimTime load = 0;
      for (const graph::Call& call : program.calls) {
        const SimTime each = std::min(kernels[call.block.index()], kMaxDuration / call.repeat);
        load = std::min(load + call.repeat * each, kMaxDuration);
      }
      stage->load = std::max(stage->load, load);
      stage->together = std::max(stage->together, RanksTogether(graph, program, binding));
    }
    ++stage->ranks;
  }
  std::vector<Stage*> of_job;
  for (auto at = stages.begin(); at != stages.end();) {
    const std::size_t job = at->first.first;
    of_job.clear();
    for (; at != stages.end() && at->first.first == job; ++at) of_job.push_back(&at->second);
    SetPaces(deviation, of_job);
  }
  std::vector<double> paces;
  for (const Stage* stage : stage_of) paces.push_back(stage == nullptr ? 1 : stage->pace);
  return paces;
}

void CountAsNoise(double pace, Breakdown* parts) {
  SimTime& noise = (*parts)[static_cast<std::size_t>(Part::kNoise)];
  for (const Part part : {Part::kCompute, Part::kOptimizer, Part::kInterference}) {
    SimTime& time = (*parts)[static_cast<std::size_t>(part)];
    if (time <= 0) continue;
    const SimTime own = RoundToPs(static_cast<double>(time) / pace);
    noise += time - own;
    time = own;
  }
}

}  // namespace orrery::engine
