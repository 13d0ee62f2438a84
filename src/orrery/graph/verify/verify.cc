#include "orrery/graph/verify/verify.h"

#include <algorithm>

#include "orrery/graph/verify/straight.h"
#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph {
namespace {

using verify::BlockFacts;
using verify::IsShaped;
using verify::ProgramFacts;
using verify::Where;

Status CheckProgram(const Graph& graph, ProgramId id, std::span<const BlockFacts> facts) {
  const Program& program = graph.programs[id.index()];
  if (program.events < 0) return InvalidInput("{}: {} events", Where(graph, id), program.events);
  verify::RecordedEvents recorded;
  for (const bool prologue : {true, false}) {
    const std::vector<Call>& calls = prologue ? program.prologue : program.calls;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const Call& call = calls[c];
      const bool known = call.block.index() < graph.blocks.size();
      if (known && IsShaped(call) && facts[call.block.index()].events.empty()) [[likely]]
        continue;
      if (!known) {
        return InvalidInput("{}, call {}: block {} of {}", Where(graph, id), c, call.block.value,
                            graph.blocks.size());
      }
      Status status = verify::CheckCall(program, call, facts[call.block.index()].events, &recorded);
      if (!status.ok()) return std::move(status).In(Where(graph, id, call, c, prologue));
    }
  }
  return {};
}

Status CheckBinding(const Graph& graph, std::size_t rank, const ProgramFacts& facts) {
  const Binding& b = graph.bindings[rank];
  for (std::size_t s = 0; s < kGroupSlots; ++s) {
    if (b.groups[s].valid() ? b.groups[s].index() >= graph.groups.size()
                            : (facts.groups >> s & 1) != 0) {
      return InvalidInput("{} uses the slot '{}', which is not bound to one of the {} groups",
                          Where(graph, b.program), Name(static_cast<GroupSlot>(s)),
                          graph.groups.size());
    }
  }
  for (std::size_t s = 0; s < kPeerSlots; ++s) {
    const RankId peer = b.peers[s];
    const bool used = (facts.peers >> s & 1) != 0;
    if (!peer.valid() && !used) continue;
    if (peer.index() >= graph.bindings.size() || (used && peer.index() == rank) ||
        graph.bindings[peer.index()].job != b.job) {
      return InvalidInput("{}: the peer '{}' is not another rank of the job",
                          Where(graph, b.program), Name(static_cast<PeerSlot>(s)));
    }
  }
  return {};
}

constexpr double kMostNoise = 0.5;

// Programs and jobs of ranks, which all that follows relies on.
Status CheckRanks(const Graph& graph) {
  std::vector<std::size_t> ranks(graph.jobs.size());
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const Binding& b = graph.bindings[r];
    if (b.program.index() >= graph.programs.size()) {
      return InvalidInput("rank {}: program {} of {}", r, b.program.value, graph.programs.size());
    }
    if (b.job.index() >= graph.jobs.size()) {
      return InvalidInput("rank {}: job {} of {}", r, b.job.value, graph.jobs.size());
    }
    ++ranks[b.job.index()];
  }
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    const std::size_t rows = graph.programs[p].columns.rows();
    if (rows <= graph.bindings.size()) continue;
    return InvalidInput("{}: columns of {} rows, and there are {} ranks",
                        Where(graph, ProgramId(p)), rows, graph.bindings.size());
  }
  for (std::size_t j = 0; j < ranks.size(); ++j) {
    if (!(graph.jobs[j].noise >= 0 && graph.jobs[j].noise <= kMostNoise)) {  // NaN too
      return InvalidInput("job {} '{}': noise = {} is not 0 to {}", j, graph.jobs[j].name,
                          graph.jobs[j].noise, kMostNoise);
    }
    if (ranks[j] != graph.jobs[j].ranks) {
      return InvalidInput("job {} '{}': {} ranks are bound, not {}", j, graph.jobs[j].name,
                          ranks[j], graph.jobs[j].ranks);
    }
  }
  return {};
}

Status CheckShares(const Graph& graph) {
  for (std::size_t s = 0; s < graph.shares.size(); ++s) {
    const Shares& shares = graph.shares[s];
    const std::size_t parts = shares.parts.size();
    const std::size_t all = std::size_t{shares.ranks} * shares.ranks;
    if (shares.ranks == 0 || (parts != shares.ranks && parts != all)) {
      return InvalidInput("shares {}: {} parts of {} members; one for each, or {}", s, parts,
                          shares.ranks, all);
    }
    if (shares.content_hash == 0) return InvalidInput("shares {}: not sealed", s);
    for (const std::int64_t part : shares.parts) {
      if (part >= 0 && part <= Shares::kMostPart) continue;
      return InvalidInput("shares {}: a part of {} is outside 0 … {}", s, part, Shares::kMostPart);
    }
  }
  return {};
}

// Shares are of as many members as the group has that takes them.
Status CheckGroupsOfShares(const Graph& graph) {
  using Needs = std::array<SharesId, kGroupSlots>;  // one of each number of ranks
  std::vector<Needs> programs(graph.programs.size());
  const auto ranks = [&](SharesId id) { return graph.shares[id.index()].ranks; };
  for (std::size_t p = 0; p < programs.size(); ++p) {
    for (const Call& call : graph.programs[p].calls) {
      const Block& block = graph.blocks[call.block.index()];
      for (const Comm& comm : block.comms) {
        if (!comm.shares.valid() || comm.group >= GroupSlot::kCount) continue;
        SharesId& need = programs[p][static_cast<std::size_t>(comm.group)];
        if (need.valid() && ranks(need) != ranks(comm.shares)) {
          return InvalidInput("{}: shares {} and {} of one group are of {} and {} members",
                              Where(graph, ProgramId(p)), need.value, comm.shares.value,
                              ranks(need), ranks(comm.shares));
        }
        need = comm.shares;
      }
    }
  }
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const Binding& b = graph.bindings[r];
    for (std::size_t s = 0; s < kGroupSlots; ++s) {
      const SharesId need = programs[b.program.index()][s];
      if (!need.valid() || !b.groups[s].valid()) continue;
      const std::size_t members = graph.groups.members(b.groups[s]).size();
      if (members == ranks(need)) continue;
      return InvalidInput("rank {}: shares {} are of {} members, its group '{}' has {}", r,
                          need.value, ranks(need), Name(static_cast<GroupSlot>(s)), members);
    }
  }
  return {};
}

Status CheckTables(const Graph& graph) {
  for (std::size_t s = 0; s < graph.streams.size(); ++s) {
    const Stream& stream = graph.streams[s];
    if (stream.order <= StreamOrder::kPriority &&
        (!stream.name.valid() || stream.name.index() < graph.names().size())) {
      continue;
    }
    return InvalidInput("stream {}: unknown order, or a name beyond the names", s);
  }
  for (std::size_t i = 0; i < graph.routings.size(); ++i) {
    const Routing& r = graph.routings[i];
    const bool named = !r.layer.valid() || r.layer.index() < graph.names().size();
    const bool sized = std::min({r.tokens, r.capacity, r.token_bytes}) >= 0 && r.experts >= 0 &&
                       r.top_k >= 0 && r.top_k <= r.experts;
    if (named && sized) continue;
    return InvalidInput(
        "routing {}: a name beyond the names, a negative size, or more experts a token than "
        "experts",
        i);
  }
  return CheckShares(graph);
}

// A straight graph: digests of what its programs do, compared by program.
Status CheckStraight(const Graph& graph) {
  std::size_t tags = 0;
  std::vector<BlockFacts> blocks;
  blocks.reserve(graph.blocks.size());
  for (const Block& block : graph.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::kComm) continue;
      const Comm& comm = block.comms[op.index];
      if (!IsPointToPoint(comm.collective)) continue;
      tags = std::max(tags, static_cast<std::size_t>(comm.tag) + 1);
    }
    blocks.push_back(verify::FactsOf(block));
  }
  std::vector<ProgramFacts> facts;
  facts.reserve(graph.programs.size());
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    ORRERY_RETURN_IF_ERROR(CheckProgram(graph, ProgramId(p), blocks));
    facts.push_back(verify::FactsOf(graph.programs[p], blocks, tags));
  }
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    Status status = CheckBinding(graph, r, facts[graph.bindings[r].program.index()]);
    if (!status.ok()) return std::move(status).In(fmt::format("rank {}", r));
  }
  if (!graph.shares.empty()) ORRERY_RETURN_IF_ERROR(CheckGroupsOfShares(graph));
  const verify::Matching matching{graph, facts, tags};
  ORRERY_RETURN_IF_ERROR(verify::MatchGroups(matching));
  return verify::MatchPeers(matching);
}

}  // namespace

Status Verify(const Graph& graph, VerifyLevel level) {
  ORRERY_RETURN_IF_ERROR(CheckTables(graph));
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (Status status = verify::CheckBlock(graph, graph.blocks[b]); !status.ok()) {
      return std::move(status).In(Where(graph, BlockId(b)));
    }
  }
  ORRERY_RETURN_IF_ERROR(CheckRanks(graph));
  const bool quick = level == VerifyLevel::kQuick;
  ORRERY_RETURN_IF_ERROR(WhyNotStraight(graph).empty() ? CheckStraight(graph)
                                                       : verify::CheckGeneral(graph, !quick));
  return quick ? Status() : verify::VerifyFully(graph, level == VerifyLevel::kFull);
}

}  // namespace orrery::graph
