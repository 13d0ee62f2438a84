#include "orrery/job/flat_programs.h"

#include <algorithm>

namespace orrery::job {

using engine::general::FlatProgram;
using engine::general::NodeKind;

Result<FlatPrograms> FlatPrograms::Make(const engine::Inputs& inputs, int iterations) {
  const graph::Graph& graph = *inputs.graph;
  FlatPrograms out(inputs);
  out.programs_.resize(graph.programs.size());
  for (const graph::Binding& b : graph.bindings) {
    Program& p = out.programs_[b.program.index()];
    if (p.flat != nullptr) continue;
    const graph::Program& program = graph.programs[b.program.index()];
    const bool once = graph.jobs[b.job.index()].once;
    p.flat = std::make_unique<FlatProgram>(graph, program, once ? 1 : iterations,
                                           [](graph::GroupSlot) { return false; });
    for (const graph::Call& call : program.calls) {
      ORRERY_ASSIGN_OR_RETURN(
          auto costs, engine::general::CostsOf(graph.blocks[call.block.index()], *inputs.compute,
                                               inputs.cluster->spec(), 1));
      p.costs.push_back(std::move(costs));
    }
  }
  return out;
}

SimTime FlatPrograms::Duration(std::uint32_t rank, const Node& n) const {
  if (n.timed) return amount(rank, n);
  const Program& p = programs_[program(rank)];
  const engine::general::BlockCosts& costs = p.costs[p.flat->instance(n).number];
  if (n.kind == NodeKind::kWork) return costs.ops[n.op].duration[0];
  SimTime time =
      RoundToPs(static_cast<double>(amount(rank, n)) / in_->cluster->spec().cpu_relative_speed);
  if (n.op != Node::kNoOp) time += costs.ops[n.op].host;
  return time;
}

std::vector<std::string> FlatPrograms::Lost(bool times) const {
  std::vector<std::string> lost;
  bool lagged = false;
  for (const Program& p : programs_) {
    for (std::size_t i = 0; p.flat != nullptr && !lagged && i < p.flat->size(); ++i) {
      lagged = p.flat->node(i).lagged;
    }
  }
  if (lagged) lost.emplace_back("the time between the host's launch and the kernel's start");
  const auto& blocks = in_->graph->blocks;
  const bool measured = std::ranges::any_of(blocks, [](const graph::Block& b) {
    return std::ranges::any_of(b.comms, [](const graph::Comm& c) { return c.measured.value >= 0; });
  });
  if (measured && times) lost.emplace_back("what communications were measured to take");
  if (std::ranges::any_of(blocks, [](const graph::Block& b) { return !b.buffers.empty(); })) {
    lost.emplace_back("memory: what is allocated and freed");
  }
  return lost;
}

}  // namespace orrery::job
