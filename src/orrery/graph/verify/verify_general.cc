// Programs, bindings and groups of graphs that are not straight. Sizes that differ by rank, and
// messages, are compared when a graph runs: which send meets which receive may hang on time.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include "orrery/base/hash.h"
#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph::verify {
namespace {

// The collectives of a rank on one group. A block that nobody issues has no order.
struct Collectives {
  Sequence in_order;
  std::uint64_t in_any_order = 0;
  std::uint64_t count = 0;
  bool ordered = true;

  void Add(const Collectives& other, std::uint64_t times) {
    Sequence power = other.in_order;
    for (std::uint64_t left = times; left > 0; left >>= 1) {
      if (left & 1) in_order.Append(power);
      power.Append(Sequence(power));
    }
    in_any_order += times * other.in_any_order;
    count += times * other.count;
    ordered = ordered && other.ordered;
  }
  bool Agrees(const Collectives& other) const {
    if (ordered && other.ordered) return in_order == other.in_order && count == other.count;
    return in_any_order == other.in_any_order && count == other.count;
  }
};

// What blocks, and so programs, use of a binding.
struct Use {
  std::set<std::uint32_t> groups;                           // slots that must be bound
  std::map<std::uint32_t, std::int32_t> members;            // slot: the greatest member named in it
  std::map<std::uint32_t, std::set<std::uint32_t>> shares;  // slot: of how many members
  std::uint32_t neighbours = 0;                             // peer slots, as bits
  std::set<std::pair<std::int32_t, std::int64_t>> sizes;    // columns of bytes, and factors
  std::set<std::pair<std::int32_t, std::int64_t>> times;    // columns of times, and factors
  std::set<std::int32_t> ranks;                             // columns of peers
  std::map<std::uint32_t, Collectives> collectives;         // by slot

  void AddCall(const Use& block, std::uint64_t times) {
    for (const auto& [slot, c] : block.collectives) collectives[slot].Add(c, times);
  }
  void AddBlock(const Use& other) {
    groups.insert(other.groups.begin(), other.groups.end());
    for (const auto& [slot, m] : other.members) members[slot] = std::max(members[slot], m);
    for (const auto& [slot, n] : other.shares) shares[slot].insert(n.begin(), n.end());
    neighbours |= other.neighbours;
    sizes.insert(other.sizes.begin(), other.sizes.end());
    times.insert(other.times.begin(), other.times.end());
    ranks.insert(other.ranks.begin(), other.ranks.end());
  }
};

struct BlockUse {
  Use use;
  std::vector<EventUse> events;  // first uses
};

void AddPeer(const Comm& comm, Use* use) {
  const auto slot = static_cast<std::uint32_t>(comm.group);
  bool counts = slot >= kGroupSlots;
  switch (comm.peer.kind) {
    case PeerKind::kSlot:
      use->neighbours |= 1u << static_cast<unsigned>(comm.peer.value);
      break;
    case PeerKind::kColumn:
      use->ranks.insert(comm.peer.value);
      break;
    case PeerKind::kMember:
      counts = true;
      use->members[slot] = std::max(use->members[slot], comm.peer.value);
      break;
    case PeerKind::kOffset:
      counts = true;
      break;
    case PeerKind::kAny:
      break;
  }
  if (counts) use->groups.insert(slot);
}

void AddComm(const Graph& graph, const Comm& comm, bool ordered, Use* use) {
  if (comm.bytes.slot >= 0) use->sizes.emplace(comm.bytes.slot, comm.bytes.value);
  if (comm.measured.slot >= 0 && comm.measured.value >= 0) {
    use->times.emplace(comm.measured.slot, comm.measured.value);
  }
  if (IsCopy(comm.collective)) return;
  if (IsPointToPoint(comm.collective)) return AddPeer(comm, use);
  const auto slot = static_cast<std::uint32_t>(comm.group);
  use->groups.insert(slot);
  if (comm.shares.valid()) {
    use->shares[slot].insert(graph.shares[comm.shares.index()].ranks);
  }
  const std::uint64_t element = Hasher().Add(comm.collective).Add(comm.dtype).value();
  use->collectives[slot].Add({Sequence::Of(element), element, 1, ordered}, 1);
}

BlockUse UseOf(const Graph& graph, const Block& block) {
  BlockUse found;
  std::unordered_set<std::int32_t> recorded, waited;
  for (std::uint32_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    std::int32_t records = op.kind == OpKind::kRecord ? op.event : kNoEvent;
    if (op.kind == OpKind::kComm) {
      const Comm& comm = block.comms[op.index];
      AddComm(graph, comm, block.issue == Issue::kHost, &found.use);
      records = comm.event;
    } else if (op.kind == OpKind::kTimed && block.times[op.index].slot >= 0) {
      found.use.times.emplace(block.times[op.index].slot, block.times[op.index].value);
    } else if ((op.kind == OpKind::kWait || op.kind == OpKind::kFree) && op.event != kNoEvent) {
      // Of what the block itself has recorded before, the program has nothing to say.
      if (!recorded.contains(op.event) && waited.insert(op.event).second) {
        found.events.push_back({o, op.event, true});
      }
    }
    if (records != kNoEvent && recorded.insert(records).second) {
      found.events.push_back({o, records, false});
    }
  }
  return found;
}

// All numbers of a column, times `factor`, are sizes or times up to `limit`. Bounds without a look
// at the rows wherever these say enough.
Status CheckColumn(const Columns& columns, std::int32_t slot, std::int64_t factor,
                   std::int64_t limit) {
  const auto s = static_cast<std::size_t>(slot);
  if (s >= columns.size()) {
    return InvalidInput("numeric slot {} of {} columns", slot, columns.size());
  }
  const Columns::Column& c = columns.descriptors()[s];
  std::int64_t most = c.base, product = 0;
  const std::int64_t codes = c.width == 0   ? 0
                             : c.width >= 8 ? std::numeric_limits<std::int64_t>::max()
                                            : (std::int64_t{1} << (8 * c.width)) - 1;
  const bool bounded = c.base >= 0 && c.unit >= 0 &&
                       !__builtin_mul_overflow(c.unit, codes, &most) &&
                       !__builtin_add_overflow(most, c.base, &most) &&
                       !__builtin_mul_overflow(most, factor, &product) && product <= limit;
  for (std::size_t row = 0; !bounded && row < columns.rows(); ++row) {
    const std::int64_t v = columns.at(s, row);
    if (v >= 0 && !__builtin_mul_overflow(v, factor, &product) && product <= limit) continue;
    return InvalidInput("column {}, row {}: {} times {} is no size or time", slot, row, v, factor);
  }
  return {};
}

Status CheckColumns(const Graph& graph, ProgramId id, const Use& use, bool fully) {
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  const Columns& columns = graph.programs[id.index()].columns;
  for (const auto& [slot, factor] : use.sizes) {
    ORRERY_RETURN_IF_ERROR(CheckColumn(columns, slot, factor, fully ? kMostBytes : kNoLimit));
  }
  for (const auto& [slot, factor] : use.times) {
    ORRERY_RETURN_IF_ERROR(CheckColumn(columns, slot, factor, kNoLimit));
  }
  for (const std::int32_t slot : use.ranks) {
    if (static_cast<std::size_t>(slot) < columns.size()) continue;
    return InvalidInput("numeric slot {} of {} columns", slot, columns.size());
  }
  return {};
}

Status CheckProgram(const Graph& graph, ProgramId id, std::span<const BlockUse> blocks, bool fully,
                    Use* use) {
  const Program& program = graph.programs[id.index()];
  if (program.events < 0) return InvalidInput("{}: {} events", Where(graph, id), program.events);
  RecordedEvents recorded;
  std::unordered_set<BlockId> seen;
  for (const bool prologue : {true, false}) {
    const std::vector<Call>& calls = prologue ? program.prologue : program.calls;
    if (calls.size() > std::size_t{std::numeric_limits<std::int32_t>::max()}) {
      return InvalidInput("{}: more than 2^31 calls", Where(graph, id));
    }
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const Call& call = calls[c];
      if (call.block.index() >= graph.blocks.size()) {
        return InvalidInput("{}, call {}: block {} of {}", Where(graph, id), c, call.block.value,
                            graph.blocks.size());
      }
      const BlockUse& block = blocks[call.block.index()];
      Status status = CheckCall(program, call, block.events, &recorded);
      if (!status.ok()) return std::move(status).In(Where(graph, id, call, c, prologue));
      use->AddCall(block.use, call.repeat);
      if (seen.insert(call.block).second) use->AddBlock(block.use);
    }
  }
  return CheckColumns(graph, id, *use, fully).In(Where(graph, id));
}

// The groups that each rank is a member of, in one flat array.
class Memberships {
 public:
  explicit Memberships(const Graph& graph) : begin_(graph.bindings.size() + 1) {
    for (std::size_t g = 0; g < graph.groups.size(); ++g) {
      for (const RankId r : graph.groups.members(GroupId(g))) ++begin_[r.index() + 1];
    }
    for (std::size_t r = 1; r < begin_.size(); ++r) begin_[r] += begin_[r - 1];
    std::vector<std::size_t> at(begin_.begin(), begin_.end() - 1);
    groups_.resize(begin_.back());
    for (std::size_t g = 0; g < graph.groups.size(); ++g) {
      for (const RankId r : graph.groups.members(GroupId(g))) groups_[at[r.index()]++] = GroupId(g);
    }
  }
  bool Has(std::size_t rank, GroupId group) const {
    return std::binary_search(groups_.begin() + static_cast<std::ptrdiff_t>(begin_[rank]),
                              groups_.begin() + static_cast<std::ptrdiff_t>(begin_[rank + 1]),
                              group);
  }

 private:
  std::vector<std::size_t> begin_;
  std::vector<GroupId> groups_;
};

Status CheckGroups(const Graph& graph) {
  std::vector<GroupId> seen(graph.bindings.size());
  for (std::size_t g = 0; g < graph.groups.size(); ++g) {
    const GroupId id(g);
    const GroupSlot role = graph.groups.slot(id);
    if (role >= GroupSlot::kCount) return InvalidInput("group {}: unknown role", g);
    const std::span<const RankId> members = graph.groups.members(id);
    for (const RankId rank : members) {
      if (rank.index() >= graph.bindings.size()) {
        return InvalidInput("group {} ({}): rank {} of {}", g, Name(role), rank.value,
                            graph.bindings.size());
      }
      if (seen[rank.index()] == id) {
        return InvalidInput("group {} ({}) has rank {} twice", g, Name(role), rank.value);
      }
      seen[rank.index()] = id;
      if (graph.bindings[rank.index()].job == graph.bindings[members[0].index()].job) continue;
      return InvalidInput("group {} ({}): ranks {} and {} are of different jobs", g, Name(role),
                          members[0].value, rank.value);
    }
  }
  for (std::size_t i = 0; i < graph.more_groups.size(); ++i) {
    const GroupId id = graph.more_groups[i];
    if (!id.valid() || id.index() < graph.groups.size()) continue;
    return InvalidInput("more groups {}: group {} of {}", i, id.value, graph.groups.size());
  }
  return {};
}

std::string SlotName(std::uint32_t slot) { return graph::SlotName(static_cast<GroupSlot>(slot)); }

// A group in a slot, which the rank is a member of.
Status CheckSlot(const Graph& graph, const Memberships& memberships, std::size_t rank,
                 std::uint32_t slot, GroupId id) {
  if (id.index() >= graph.groups.size()) {
    return InvalidInput("{} uses the slot '{}', which is not bound to one of the {} groups",
                        Where(graph, graph.bindings[rank].program), SlotName(slot),
                        graph.groups.size());
  }
  const GroupSlot role = graph.groups.slot(id);
  if (memberships.Has(rank, id) &&
      (slot >= kGroupSlots || static_cast<std::uint32_t>(role) == slot)) {
    return {};
  }
  return InvalidInput("its slot '{}' names group {} ({}), which {}", SlotName(slot), id.value,
                      Name(role),
                      memberships.Has(rank, id) ? "has another role" : "does not have it");
}

Status CheckUsedGroups(const Graph& graph, const Memberships& memberships, std::size_t rank,
                       const Use& use) {
  const Binding& b = graph.bindings[rank];
  std::set<GroupId> named;
  for (const std::uint32_t slot : use.groups) {
    const std::size_t more = std::size_t{b.more_groups} + slot;
    if (slot >= kGroupSlots && more - kGroupSlots >= graph.more_groups.size()) {
      return InvalidInput("{} uses the slot '{}' from {} on, of {} more groups",
                          Where(graph, b.program), SlotName(slot), b.more_groups,
                          graph.more_groups.size());
    }
    const GroupId id = graph.group(b, static_cast<GroupSlot>(slot));
    ORRERY_RETURN_IF_ERROR(CheckSlot(graph, memberships, rank, slot, id));
    if (!named.insert(id).second) {
      return InvalidInput("{}: group {} stands in two slots", Where(graph, b.program), id.value);
    }
    const std::size_t members = graph.groups.members(id).size();
    const auto most = use.members.find(slot);
    if (most != use.members.end() && static_cast<std::size_t>(most->second) >= members) {
      return InvalidInput("{}: a peer is member {} of group {}, which has {}",
                          Where(graph, b.program), most->second, id.value, members);
    }
    const auto shares = use.shares.find(slot);
    if (shares == use.shares.end()) continue;
    for (const std::uint32_t needed : shares->second) {
      if (needed == members) continue;
      return InvalidInput("shares are of {} members, its group '{}' has {}", needed, SlotName(slot),
                          members);
    }
  }
  return {};
}

Status CheckBinding(const Graph& graph, const Memberships& memberships, std::size_t rank,
                    const Use& use) {
  const Binding& b = graph.bindings[rank];
  for (std::uint32_t s = 0; s < kGroupSlots; ++s) {
    if (!b.groups[s].valid()) continue;
    ORRERY_RETURN_IF_ERROR(CheckSlot(graph, memberships, rank, s, b.groups[s]));
  }
  ORRERY_RETURN_IF_ERROR(CheckUsedGroups(graph, memberships, rank, use));
  for (std::size_t s = 0; s < kPeerSlots; ++s) {
    const RankId peer = b.peers[s];
    const bool used = (use.neighbours >> s & 1) != 0;
    if (!peer.valid() && !used) continue;
    if (peer.index() < graph.bindings.size() && graph.bindings[peer.index()].job == b.job) continue;
    return InvalidInput("{}: the peer '{}' is not a rank of the job", Where(graph, b.program),
                        Name(static_cast<PeerSlot>(s)));
  }
  const Columns& columns = graph.programs[b.program.index()].columns;
  const bool reads = !use.sizes.empty() || !use.times.empty() || !use.ranks.empty();
  if (reads && b.row >= columns.rows()) {
    return InvalidInput("{}: row {} of {}", Where(graph, b.program), b.row, columns.rows());
  }
  const std::int64_t ranks = graph.jobs[b.job.index()].ranks;
  for (const std::int32_t slot : use.ranks) {
    const std::int64_t peer = columns.at(static_cast<std::size_t>(slot), b.row);
    if (peer >= 0 && peer < ranks) continue;
    return InvalidInput("{}: the peer in numeric slot {} is rank {} of a job of {}",
                        Where(graph, b.program), slot, peer, ranks);
  }
  return {};
}

// Members of a group agree on its collectives.
Status CheckCollectives(const Graph& graph, std::span<const Use> uses) {
  struct First {
    std::size_t rank = 0;
    const Collectives* collectives = nullptr;
    std::size_t named = 0;
  };
  const auto disagree = [&](GroupId id, std::size_t a, std::uint64_t na, std::size_t b,
                            std::uint64_t nb) {
    return InvalidInput(
        "group {} ({}): members disagree on their collectives: rank {} ({}) has {}, rank {} ({}) "
        "has {}{}",
        id.value, Name(graph.groups.slot(id)), a, Where(graph, graph.bindings[a].program), na, b,
        Where(graph, graph.bindings[b].program), nb, na == nb ? " of other kinds or types" : "");
  };
  std::vector<First> first(graph.groups.size());
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const Binding& b = graph.bindings[r];
    for (const auto& [slot, collectives] : uses[b.program.index()].collectives) {
      const GroupId id = graph.group(b, static_cast<GroupSlot>(slot));
      First& f = first[id.index()];
      if (f.collectives == nullptr) f = {r, &collectives, 0};
      ++f.named;
      if (f.collectives == &collectives || f.collectives->Agrees(collectives)) continue;
      return disagree(id, f.rank, f.collectives->count, r, collectives.count);
    }
  }
  for (std::size_t g = 0; g < first.size(); ++g) {
    const std::span<const RankId> members = graph.groups.members(GroupId(g));
    if (first[g].collectives == nullptr || first[g].named == members.size()) continue;
    for (const RankId r : members) {
      const Binding& b = graph.bindings[r.index()];
      bool names = false;
      for (const auto& [slot, c] : uses[b.program.index()].collectives) {
        names = names || graph.group(b, static_cast<GroupSlot>(slot)) == GroupId(g);
      }
      if (names) continue;
      return disagree(GroupId(g), first[g].rank, first[g].collectives->count, r.index(), 0);
    }
  }
  return {};
}

}  // namespace

Status CheckGeneral(const Graph& graph, bool fully) {
  std::vector<BlockUse> blocks;
  for (const Block& block : graph.blocks) blocks.push_back(UseOf(graph, block));
  std::vector<Use> uses(graph.programs.size());
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    ORRERY_RETURN_IF_ERROR(CheckProgram(graph, ProgramId(p), blocks, fully, &uses[p]));
  }
  ORRERY_RETURN_IF_ERROR(CheckGroups(graph));
  const Memberships memberships(graph);
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const Use& use = uses[graph.bindings[r].program.index()];
    if (Status status = CheckBinding(graph, memberships, r, use); !status.ok()) {
      return std::move(status).In(fmt::format("rank {}", r));
    }
  }
  return fully ? CheckCollectives(graph, uses) : Status();
}

}  // namespace orrery::graph::verify
