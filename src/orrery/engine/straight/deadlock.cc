#include "orrery/engine/straight/deadlock.h"

namespace orrery::engine {

Status DeadlockReport(const graph::Graph& graph, const Layout& layout,
                      const std::vector<Waiting>& waiting) {
  constexpr std::size_t kShown = kShownInDeadlock;
  std::string text = fmt::format("deadlock: {} ranks wait for each other", waiting.size());
  for (std::size_t i = 0; i < waiting.size() && i < kShown; ++i) {
    const Waiting& w = waiting[i];
    const SimRank& r = layout.ranks[w.rank];
    const graph::Program& program = graph.programs[layout.variants[r.variant].program.index()];
    text += fmt::format("\n  rank {} ({})", r.rank.value, program.name);
    if (w.block == nullptr) {
      text += " waits for an event that nothing records";
      continue;
    }
    const graph::Block& block = graph.blocks[program.calls[w.call].block.index()];
    const CommPrice& comm = w.block->comms[w.block->items[w.item].first];
    text += fmt::format(" is in {} of {} bytes ({}, call {} of block '{}'), waiting for",
                        graph::Name(comm.comm.collective), comm.comm.bytes.value,
                        graph.name(block.ops[comm.op].name), w.call, graph.name(block.name));
    for (std::size_t m = 0; m < w.missing.size() && m < kShown; ++m) {
      text += fmt::format("{} rank {}", m == 0 ? "" : ",", layout.ranks[w.missing[m]].rank.value);
    }
    if (w.missing.size() > kShown) text += fmt::format(" and {} more", w.missing.size() - kShown);
  }
  if (waiting.size() > kShown) text += fmt::format("\n  … and {} more", waiting.size() - kShown);
  text += "\n  a cycle or a missing partner in the schedule; compare the order of their operations";
  return {Code::kInfeasible, std::move(text)};
}

Status OverfullReport(const graph::Graph& graph, const Layout& layout, std::uint32_t rank) {
  const SimRank& r = layout.ranks[rank];
  return Infeasible(
      "rank {} ({}) has {} communications under way that do not block and issues another, more "
      "than can be told apart: wait for some of them before",
      r.rank.value, graph.programs[layout.variants[r.variant].program.index()].name,
      kMostOutstanding);
}

Status MismatchReport(RankId rank, const CommPrice& comm, const CommPrice* other) {
  const auto say = [](const CommPrice& c) {
    return fmt::format("{} of {} bytes ({})", graph::Name(c.comm.collective), c.comm.bytes.value,
                       graph::Name(c.comm.dtype));
  };
  return Infeasible(
      "rank {} comes to {} where {}", rank.value, say(comm),
      other == nullptr ? "nobody is bound to its slot" : "its partner is in " + say(*other));
}

}  // namespace orrery::engine
