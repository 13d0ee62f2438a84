#include "orrery/graph/verify.h"

#include <algorithm>

#include "orrery/graph/verify_facts.h"

namespace orrery::graph {
namespace {

using verify::BlockFacts;
using verify::EventUse;
using verify::ProgramFacts;
using verify::Where;

bool NameFits(const Graph& graph, NameId name) {
  return !name.valid() || name.index() < graph.names().size();
}

// Why a communication breaks the rules of graph.h; null if it does not.
const char* Fault(const Comm& comm) {
  if (comm.collective > Collective::kScatter) return "unknown collective";
  if (comm.group >= GroupSlot::kCount) return "unknown group slot";
  if (comm.peer >= PeerSlot::kCount) return "unknown peer slot";
  if (comm.dtype > kLastDType) return "unknown element type";
  if (comm.stream == 0) return "a communication on stream 0, the compute stream";
  if (comm.blocking && comm.event != kNoEvent) return "a blocking communication records an event";
  if (!IsPointToPoint(comm.collective) && comm.batch != 0) {
    return "a group call of what is no message";
  }
  if (comm.event < kCallEvent) return "an event number below -2";
  if (comm.tag >= kTags) return "a tag above 1";
  if (comm.bytes.value < 0) return "negative bytes";
  if (comm.bytes.slot < -1) return "a numeric slot below -1";
  if (comm.shares.valid() && comm.collective != Collective::kAllToAll) {
    return "shares of what is no all-to-all";
  }
  if (comm.returned && !comm.shares.valid()) return "returned, and no shares";
  return nullptr;
}

// The size of the table that an operation's index points into; 0 if it needs none.
std::size_t TableOf(const Block& block, OpKind kind) {
  switch (kind) {
    case OpKind::kKernel:
      return block.kernels.size();
    case OpKind::kComm:
      return block.comms.size();
    case OpKind::kHost:
      return block.host_ps.size();
    case OpKind::kAlloc:
    case OpKind::kFree:
      return block.buffers.size();
    case OpKind::kWait:
    case OpKind::kHostSync:
    case OpKind::kHostPace:
      break;
  }
  return 0;
}

Status CheckOp(const Graph& graph, const Block& block, const Op& op) {
  if (op.kind > OpKind::kHostPace) {
    return InvalidInput("unknown kind {}", static_cast<int>(op.kind));
  }
  if (!NameFits(graph, op.name) || !NameFits(graph, op.module)) {
    return InvalidInput("a name beyond the {} names", graph.names().size());
  }
  if (op.kind == OpKind::kWait) {
    if (op.event < kCallEvent || op.event == kNoEvent) return InvalidInput("a wait for no event");
    return {};
  }
  if (op.event != kNoEvent) return InvalidInput("an event on an operation that is no wait");
  if (!HasIndex(op.kind)) return {};
  if (op.index >= TableOf(block, op.kind)) {
    return InvalidInput("index {} of {}", op.index, TableOf(block, op.kind));
  }
  if (op.kind == OpKind::kComm) {
    if (const char* fault = Fault(block.comms[op.index])) return InvalidInput("{}", fault);
  } else if (op.kind == OpKind::kHost && block.host_ps[op.index] < 0) {
    return InvalidInput("host work of {} ps", block.host_ps[op.index]);
  }
  return {};
}

// A group call is issued and ends as one: its members are entries in a row, alike in what the
// stream sees of them.
bool JoinsGroupCall(const Block& block, const Op& before, const Op& op) {
  const Comm& a = block.comms[before.index];
  const Comm& b = block.comms[op.index];
  return op.index == before.index + 1 && a.stream == b.stream && a.blocking == b.blocking &&
         a.event == b.event;
}

Status CheckBlock(const Graph& graph, const Block& block) {
  if (block.content_hash == 0) return InvalidInput("not sealed: call Seal after the last change");
  if (!NameFits(graph, block.name)) return InvalidInput("a name beyond the names");
  if (block.pass > Pass::kOptimizer) return InvalidInput("unknown pass");
  std::array<bool, 256> batch_ended{};
  std::uint8_t batch = 0;
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    if (Status status = CheckOp(graph, block, op); !status.ok()) {
      return std::move(status).In(fmt::format("op {} '{}'", o, verify::NameOf(graph, op.name)));
    }
    const std::uint8_t b = op.kind == OpKind::kComm ? block.comms[op.index].batch : 0;
    if (b != 0 && b == batch && !JoinsGroupCall(block, block.ops[o - 1], op)) {
      return InvalidInput(
          "op {}: members of batch {} differ in stream, event or blocking, or are no entries in a "
          "row",
          o, b);
    }
    if (b == batch) continue;
    batch_ended[batch] = true;
    batch = b;
    if (b != 0 && batch_ended[b]) {
      return InvalidInput("op {}: members of batch {} do not stand next to each other", o, b);
    }
  }
  return {};
}

// Every event that a call waits for was recorded before.
Status CheckEvents(const Program& program, const Call& call, const BlockFacts& facts,
                   std::vector<bool>* recorded) {
  for (const EventUse& use : facts.events) {
    const std::int16_t event = use.event == kCallEvent ? call.event : use.event;
    if (event < 0)
      return InvalidInput("op {}: the event of the call, and the call has none", use.op);
    if (event >= program.events) {
      return InvalidInput("op {}: event {} of {}", use.op, event, program.events);
    }
    if (!use.wait) {
      (*recorded)[static_cast<std::size_t>(event)] = true;
    } else if (!(*recorded)[static_cast<std::size_t>(event)]) {
      return InvalidInput("op {}: waits for event {}, which nothing has recorded", use.op, event);
    }
  }
  return {};
}

Status CheckProgram(const Graph& graph, ProgramId id, std::span<const BlockFacts> facts) {
  const Program& program = graph.programs[id.index()];
  if (program.events < 0) return InvalidInput("{}: {} events", Where(graph, id), program.events);
  std::vector<bool> recorded(static_cast<std::size_t>(program.events));
  for (const bool prologue : {true, false}) {
    const std::vector<Call>& calls = prologue ? program.prologue : program.calls;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const Call& call = calls[c];
      const bool known = call.block.index() < graph.blocks.size();
      const bool shaped =
          call.repeat > 0 && call.microbatch >= -1 && call.chunk >= 0 && call.first_layer >= 0;
      if (known && shaped && facts[call.block.index()].events.empty()) [[likely]]
        continue;
      if (!known) {
        return InvalidInput("{}, call {}: block {} of {}", Where(graph, id), c, call.block.value,
                            graph.blocks.size());
      }
      Status status =
          shaped ? CheckEvents(program, call, facts[call.block.index()], &recorded)
                 : InvalidInput("repeat {}, micro-batch {}, chunk {}, layer {}", call.repeat,
                                call.microbatch, call.chunk, call.first_layer);
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
  const std::size_t end = std::size_t{b.first_number} + static_cast<std::size_t>(facts.numbers);
  if (facts.numbers > 0 && end > graph.numbers.size()) {
    return InvalidInput("{} uses numeric slots up to {}, of {} numbers", Where(graph, b.program),
                        end, graph.numbers.size());
  }
  return {};
}

Status CheckBindings(const Graph& graph, std::span<const ProgramFacts> facts) {
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
    if (Status status = CheckBinding(graph, r, facts[b.program.index()]); !status.ok()) {
      return std::move(status).In(fmt::format("rank {}", r));
    }
  }
  for (std::size_t j = 0; j < ranks.size(); ++j) {
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

}  // namespace

Status Verify(const Graph& graph, VerifyLevel level) {
  ORRERY_RETURN_IF_ERROR(CheckShares(graph));
  bool sized_by_slots = false;
  std::size_t tags = 0;
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (Status status = CheckBlock(graph, graph.blocks[b]); !status.ok()) {
      return std::move(status).In(Where(graph, BlockId(b)));
    }
    for (const Comm& comm : graph.blocks[b].comms) {
      sized_by_slots = sized_by_slots || comm.bytes.slot >= 0;
      if (comm.shares.valid() && comm.shares.index() >= graph.shares.size()) {
        return InvalidInput("{}: shares {} of {}", Where(graph, BlockId(b)), comm.shares.value,
                            graph.shares.size());
      }
      if (IsPointToPoint(comm.collective)) tags = std::max(tags, std::size_t{comm.tag} + 1);
    }
  }
  std::vector<BlockFacts> blocks;
  blocks.reserve(graph.blocks.size());
  for (const Block& block : graph.blocks) {
    blocks.push_back(verify::FactsOf(block, {.counted = !sized_by_slots, .numbers = {}}));
  }
  std::vector<ProgramFacts> facts;
  facts.reserve(graph.programs.size());
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    ORRERY_RETURN_IF_ERROR(CheckProgram(graph, ProgramId(p), blocks));
    facts.push_back(verify::FactsOf(graph.programs[p], blocks, tags));
  }
  ORRERY_RETURN_IF_ERROR(CheckBindings(graph, facts));
  if (!graph.shares.empty()) ORRERY_RETURN_IF_ERROR(CheckGroupsOfShares(graph));
  const verify::Matching matching{graph, facts, false, tags};
  ORRERY_RETURN_IF_ERROR(verify::MatchGroups(matching));
  ORRERY_RETURN_IF_ERROR(verify::MatchPeers(matching));
  return level == VerifyLevel::kFull ? verify::VerifyFully(graph, tags) : Status();
}

}  // namespace orrery::graph
