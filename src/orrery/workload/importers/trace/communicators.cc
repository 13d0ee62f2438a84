#include "orrery/workload/importers/trace/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

using formats::TraceComm;
using formats::TraceGroup;
using formats::TraceProgram;
using graph::GroupSlot;

constexpr std::uint32_t kNoProgram = 0xFFFFFFFFu;

bool HasRoot(const TraceComm& c) {
  return c.kind == "broadcast" || c.kind == "reduce" || c.kind == "gather" || c.kind == "scatter";
}
bool IsMessage(const TraceComm& c) { return c.kind == "send" || c.kind == "recv"; }

std::size_t PlaceIn(const TraceGroup& group, std::int64_t rank) {
  return static_cast<std::size_t>(std::ranges::find(group.ranks, static_cast<std::uint32_t>(rank)) -
                                  group.ranks.begin());
}

// The role that a dimension of a mesh is named for.
std::optional<GroupSlot> RoleOfDimension(std::string_view name) {
  struct Named {
    std::string_view name;
    GroupSlot slot;
  };
  constexpr Named kNames[] = {{"tp", GroupSlot::kTp},
                              {"dp", GroupSlot::kDp},
                              {"ddp", GroupSlot::kDp},
                              {"data", GroupSlot::kDp},
                              {"pp", GroupSlot::kPp},
                              {"pipe", GroupSlot::kPp},
                              {"cp", GroupSlot::kCp},
                              {"ep", GroupSlot::kEp},
                              {"etp", GroupSlot::kExpertTp},
                              {"edp", GroupSlot::kExpertDp},
                              {"fsdp", GroupSlot::kShard},
                              {"dp_shard", GroupSlot::kShard},
                              {"shard", GroupSlot::kShard},
                              {"dp_replicate", GroupSlot::kReplica},
                              {"replicate", GroupSlot::kReplica}};
  for (const Named& n : kNames) {
    if (n.name == name) return n.slot;
  }
  return std::nullopt;
}

// From Megatron's descriptions ("EXPERT_DATA_PARALLEL_GROUP") and device meshes' ("mesh_dp").
std::optional<GroupSlot> RoleOfDescription(const std::string& text) {
  if (text.starts_with("mesh_")) return RoleOfDimension(std::string_view(text).substr(5));
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (has("EXPERT")) {
    if (has("DATA")) return GroupSlot::kExpertDp;
    return has("TENSOR") ? GroupSlot::kExpertTp : GroupSlot::kEp;
  }
  if (has("TENSOR")) return has("PIPELINE") ? GroupSlot::kModel : GroupSlot::kTp;
  if (has("PIPELINE")) return GroupSlot::kPp;
  if (has("EMBEDDING")) return GroupSlot::kEmbedding;
  if (has("DATA")) return GroupSlot::kDp;
  if (has("CONTEXT")) return GroupSlot::kCp;
  if (has("MODEL")) return GroupSlot::kModel;
  return std::nullopt;
}

}  // namespace

Result<Communicators> Communicators::Create(const formats::TraceDirectory& directory,
                                            graph::Graph* graph) {
  Communicators out(directory);
  out.mesh_ = directory.mesh;
  ORRERY_RETURN_IF_ERROR(out.InferMesh());
  std::size_t stride = directory.world_size;
  for (const auto& dimension : out.mesh_) out.strides_.push_back(stride /= dimension.size);
  ORRERY_RETURN_IF_ERROR(out.AssignRanks());
  out.CollectUses();
  for (std::size_t p = 0; p < out.uses_.size(); ++p) {
    for (Use& use : out.uses_[p]) ORRERY_RETURN_IF_ERROR(out.FindSpans(p, &use));
  }
  ORRERY_RETURN_IF_ERROR(out.Bind(graph));
  return out;
}

// A mesh whose planes are the groups of the one rank that was traced.
Status Communicators::InferMesh() {
  const formats::TraceDirectory& d = directory_;
  const bool one = d.programs.size() == 1 && d.programs[0].ranks.size() == 1;
  if (!mesh_.empty() || !one || d.world_size == 1) return {};
  const formats::RankTrace& trace = d.programs[0].trace;
  if (std::ranges::any_of(trace.comms, IsMessage)) return {};
  std::set<std::size_t> cuts{1, d.world_size};
  for (const TraceComm& c : trace.comms) {
    const std::vector<std::uint32_t>& ranks = trace.groups[c.group].ranks;
    if (ranks.size() < 2) continue;
    const std::size_t step = ranks[1] - ranks[0];
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      if (ranks[i] - ranks[i - 1] != step) return {};
    }
    cuts.insert(step);
    cuts.insert(step * ranks.size());
  }
  std::size_t before = 0;
  for (const std::size_t cut : cuts) {
    if (before > 0 && (cut % before != 0 || d.world_size % cut != 0)) return {};
    if (before > 0) {
      mesh_.push_back({fmt::format("stride {}", before), static_cast<std::uint32_t>(cut / before)});
    }
    before = cut;
  }
  std::ranges::reverse(mesh_);
  stands_for_all_ = true;
  assumed_.push_back(
      fmt::format("rank {} was traced, and stands for all {} ranks", trace.rank, d.world_size));
  return {};
}

Status Communicators::AssignRanks() {
  program_of_.assign(directory_.world_size, kNoProgram);
  for (std::size_t p = 0; p < directory_.programs.size(); ++p) {
    ranks_.push_back(directory_.programs[p].ranks);
    if (stands_for_all_) {
      ranks_[p].resize(directory_.world_size);
      std::iota(ranks_[p].begin(), ranks_[p].end(), 0U);
    }
    for (const std::uint32_t rank : ranks_[p]) {
      if (program_of_[rank] != kNoProgram) {
        return InvalidInput("rank {} stands in two programs of {}", rank, formats::kTraceIndex);
      }
      program_of_[rank] = static_cast<std::uint32_t>(p);
    }
    if (ranks_[p].size() > 1 && mesh_.empty()) {
      return InvalidInput("rank {} stands for others, and {} has no mesh",
                          directory_.programs[p].rank, formats::kTraceIndex);
    }
  }
  const auto none = std::ranges::find(program_of_, kNoProgram);
  if (none == program_of_.end()) return {};
  const auto missing = std::ranges::count(program_of_, kNoProgram);
  return InvalidInput(
      "no program stands for rank {}, nor for {} others of {}: trace them, too (orrery-trace "
      "--rank 0,1,…), or say how ranks are numbered (--mesh pp=2,dp=4)",
      none - program_of_.begin(), missing - 1, directory_.world_size);
}

void Communicators::CollectUses() {
  for (const TraceProgram& program : directory_.programs) {
    std::vector<Use>& uses = uses_.emplace_back();
    for (const TraceComm& c : program.trace.comms) {
      const std::size_t root =
          HasRoot(c) && c.peer >= 0 ? PlaceIn(program.trace.groups[c.group], c.peer) : 0;
      auto known = std::ranges::find_if(
          uses, [&](const Use& u) { return u.group == c.group && u.root == root; });
      if (known == uses.end()) {
        uses.push_back({.group = c.group, .root = root});
        known = uses.end() - 1;
      }
      known->messages |= IsMessage(c);
    }
  }
}

std::size_t Communicators::UseOf(std::size_t p, const TraceComm& c) const {
  const std::size_t root =
      HasRoot(c) && c.peer >= 0 ? PlaceIn(directory_.programs[p].trace.groups[c.group], c.peer) : 0;
  const auto& uses = uses_[p];
  return static_cast<std::size_t>(
      std::ranges::find_if(uses,
                           [&](const Use& u) { return u.group == c.group && u.root == root; }) -
      uses.begin());
}

// Along which dimensions of the mesh the members of a group differ. Ranks that stand for each other
// lie apart along some dimensions, and each has a group of its own only if the group spans these
// wholly or not at all; along the others it may hold some places (first and last stage).
Status Communicators::FindSpans(std::size_t p, Use* use) const {
  const TraceProgram& program = directory_.programs[p];
  const TraceGroup& group = program.trace.groups[use->group];
  if (use->root >= group.ranks.size() || PlaceIn(group, program.rank) == group.ranks.size()) {
    return InvalidInput("{}: group '{}' lacks rank {}, or the root of a collective",
                        Printable(program.file), Printable(group.name), program.rank);
  }
  const auto place = [&](std::uint32_t r, std::size_t d) {
    return r / strides_[d] % mesh_[d].size;
  };
  const auto differ = [&](const std::vector<std::uint32_t>& ranks, std::size_t d) {
    return std::ranges::any_of(
        ranks, [&](std::uint32_t r) { return place(r, d) != place(program.rank, d); });
  };
  std::size_t whole = 1;
  std::vector<std::size_t> fixed;  // spanned, and of one place for all that the program stands for
  for (std::size_t d = 0; d < mesh_.size(); ++d) {
    if (!differ(group.ranks, d)) continue;
    use->spans.push_back(d);
    if (differ(ranks_[p], d)) {
      whole *= mesh_[d].size;
    } else {
      fixed.push_back(d);
    }
  }
  std::set<std::uint64_t> held;
  for (const std::uint32_t r : group.ranks) {
    std::uint64_t at = 0;
    for (const std::size_t d : fixed) at = at * mesh_[d].size + place(r, d);
    held.insert(at);
  }
  if (ranks_[p].size() == 1 || whole * held.size() == group.ranks.size()) return {};
  return InvalidInput(
      "{}: group '{}' of {} ranks is no plane of the mesh, so that rank {} cannot stand for others",
      Printable(program.file), Printable(group.name), group.ranks.size(), program.rank);
}

// `rank` with the place of `to` along the dimensions.
std::uint32_t Communicators::Moved(std::uint32_t rank, std::uint32_t to,
                                   const std::vector<std::size_t>& spans) const {
  std::int64_t moved = rank;
  for (const std::size_t d : spans) {
    const auto place = [&](std::uint32_t r) {
      return static_cast<std::int64_t>(r / strides_[d] % mesh_[d].size);
    };
    moved += (place(to) - place(rank)) * static_cast<std::int64_t>(strides_[d]);
  }
  return static_cast<std::uint32_t>(moved);
}

std::vector<std::uint32_t> Communicators::MembersOf(std::size_t p, const Use& use,
                                                    std::uint32_t rank) const {
  std::vector<std::uint32_t> ranks = directory_.programs[p].trace.groups[use.group].ranks;
  std::rotate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(use.root), ranks.end());
  if (ranks_[p].size() > 1) {
    for (std::uint32_t& r : ranks) r = Moved(rank, r, use.spans);
  }
  return ranks;
}

Status Communicators::Bind(graph::Graph* graph) {
  struct Key {
    std::uint32_t first = 0, last = 0;
    std::size_t size = 0, root = 0;
    std::string name;
    auto operator<=>(const Key&) const = default;
  };
  struct Found {
    std::size_t program = 0, use = 0;
    std::uint32_t rank = 0;
    GroupId id;
  };
  std::map<Key, std::size_t> known;
  std::vector<Found> found;
  std::vector<std::vector<std::size_t>> of_rank(directory_.world_size);  // into found, by use
  std::vector<std::size_t> parent;                                       // of kinds
  const auto root_of = [&](std::size_t k) {
    while (parent[k] != k) k = parent[k];
    return k;
  };
  for (auto& uses : uses_) {
    for (Use& use : uses) {
      use.kind = parent.size();
      parent.push_back(use.kind);
    }
  }
  for (std::uint32_t rank = 0; rank < directory_.world_size; ++rank) {
    const std::size_t p = program_of_[rank];
    const bool composed = ranks_[p].size() > 1;
    for (std::size_t u = 0; u < uses_[p].size(); ++u) {
      const Use& use = uses_[p][u];
      const TraceGroup& group = directory_.programs[p].trace.groups[use.group];
      const auto at = [&](std::size_t place) {
        const std::uint32_t r = group.ranks[(place + use.root) % group.ranks.size()];
        return composed ? Moved(rank, r, use.spans) : r;
      };
      const Key key{at(0), at(group.ranks.size() - 1), group.ranks.size(), use.root, group.name};
      const auto [entry, fresh] = known.emplace(key, found.size());
      if (fresh) {
        found.push_back({p, u, rank, GroupId()});
      } else {
        const Found& first = found[entry->second];
        const std::size_t a = root_of(uses_[first.program][first.use].kind), b = root_of(use.kind);
        parent[std::max(a, b)] = std::min(a, b);
      }
      of_rank[rank].push_back(entry->second);
    }
  }
  for (auto& uses : uses_) {
    for (Use& use : uses) use.kind = root_of(use.kind);
  }
  AssignSlots();
  for (Found& f : found) {
    const Use& use = uses_[f.program][f.use];
    std::vector<RankId> members;
    for (const std::uint32_t r : MembersOf(f.program, use, f.rank)) members.emplace_back(r);
    const bool behind = static_cast<std::size_t>(use.slot) >= graph::kGroupSlots;
    f.id = graph->groups.Add(behind ? GroupSlot::kModel : use.slot, members);
  }
  graph->bindings.resize(directory_.world_size);
  for (std::uint32_t rank = 0; rank < directory_.world_size; ++rank) {
    graph::Binding& b = graph->bindings[rank];
    const std::size_t p = program_of_[rank];
    b.program = ProgramId(p);
    b.job = JobId(std::size_t{0});
    b.logical_rank = rank;
    b.more_groups = static_cast<std::uint32_t>(graph->more_groups.size());
    for (std::size_t u = 0; u < uses_[p].size(); ++u) {
      const auto slot = static_cast<std::size_t>(uses_[p][u].slot);
      const GroupId id = found[of_rank[rank][u]].id;
      if (slot < graph::kGroupSlots) {
        b.groups[slot] = id;
      } else {
        graph->more_groups.resize(
            std::max(graph->more_groups.size(), b.more_groups + slot - graph::kGroupSlots + 1));
        graph->more_groups[b.more_groups + slot - graph::kGroupSlots] = id;
      }
    }
  }
  for (std::size_t p = 0; p < uses_.size(); ++p) BindNeighbours(p, graph);
  return {};
}

// One slot for all uses of a kind, different ones within a program.
void Communicators::AssignSlots() {
  constexpr std::array kSpare = {GroupSlot::kModel,     GroupSlot::kShard, GroupSlot::kReplica,
                                 GroupSlot::kEmbedding, GroupSlot::kDp,    GroupSlot::kExpertDp,
                                 GroupSlot::kCp,        GroupSlot::kEp};
  std::map<std::size_t, std::vector<std::pair<std::size_t, std::size_t>>> kinds;
  for (std::size_t p = 0; p < uses_.size(); ++p) {
    for (std::size_t u = 0; u < uses_[p].size(); ++u) kinds[uses_[p][u].kind].push_back({p, u});
  }
  std::vector<std::set<GroupSlot>> taken(uses_.size());
  std::uint32_t behind = graph::kGroupSlots;
  for (const auto& entry : kinds) {
    const auto& members = entry.second;
    const auto [p, u] = members.front();
    const Use& use = uses_[p][u];
    const TraceGroup& group = directory_.programs[p].trace.groups[use.group];
    const bool messages = std::ranges::any_of(
        members, [&](const auto& m) { return uses_[m.first][m.second].messages; });
    std::optional<GroupSlot> role = RoleOfDescription(group.description);
    if (!role && use.spans.size() == 1) role = RoleOfDimension(mesh_[use.spans[0]].name);
    if (messages && (!role || *role == GroupSlot::kTp)) role = GroupSlot::kPp;
    const auto free = [&](GroupSlot slot) {
      return std::ranges::none_of(members,
                                  [&](const auto& m) { return taken[m.first].contains(slot); });
    };
    const bool told = role && free(*role);
    if (!told) {
      const bool world = group.ranks.size() == directory_.world_size;
      role = world && !role && free(GroupSlot::kDp) ? GroupSlot::kDp : GroupSlot(behind);
      for (const GroupSlot spare : kSpare) {
        if (static_cast<std::size_t>(*role) >= graph::kGroupSlots && free(spare)) role = spare;
      }
      if (static_cast<std::size_t>(*role) >= graph::kGroupSlots) ++behind;
      assumed_.push_back(fmt::format(
          "group '{}' of {} ranks counts as '{}' in the breakdown",
          Printable(group.description.empty() ? group.name : group.description), group.ranks.size(),
          static_cast<std::size_t>(*role) < graph::kGroupSlots ? Name(*role)
                                                               : Name(GroupSlot::kModel)));
    }
    for (const auto& [q, v] : members) {
      uses_[q][v].slot = *role;
      taken[q].insert(*role);
    }
  }
}

// Those before and behind a rank in a group that passes messages round.
void Communicators::BindNeighbours(std::size_t p, graph::Graph* graph) const {
  for (const Use& use : uses_[p]) {
    const bool pipeline = use.slot == GroupSlot::kPp;
    if (!use.messages || (!pipeline && use.slot != GroupSlot::kCp)) continue;
    for (const std::uint32_t rank : ranks_[p]) {
      const std::vector<std::uint32_t> members = MembersOf(p, use, rank);
      const std::size_t n = members.size();
      if (n < 2) continue;
      const auto place =
          static_cast<std::size_t>(std::ranges::find(members, rank) - members.begin());
      auto& peers = graph->bindings[rank].peers;
      const auto slot = static_cast<std::size_t>(pipeline ? graph::PeerSlot::kPrevious
                                                          : graph::PeerSlot::kCpPrevious);
      peers[slot] = RankId(members[(place + n - 1) % n]);
      peers[slot + 1] = RankId(members[(place + 1) % n]);
    }
  }
}

GroupSlot Communicators::SlotOf(std::size_t p, const TraceComm& comm) const {
  return uses_[p][UseOf(p, comm)].slot;
}

std::set<GroupSlot> Communicators::Slots() const {
  std::set<GroupSlot> slots;
  for (const std::vector<Use>& uses : uses_) {
    for (const Use& use : uses) slots.insert(use.slot);
  }
  return slots;
}

graph::Peer Communicators::PeerOf(std::size_t p, const TraceComm& comm) const {
  const TraceProgram& program = directory_.programs[p];
  const TraceGroup& group = program.trace.groups[comm.group];
  const std::size_t n = group.ranks.size();
  const std::size_t self = PlaceIn(group, program.rank), peer = PlaceIn(group, comm.peer);
  const std::size_t offset = (peer + n - self) % n;
  const GroupSlot slot = SlotOf(p, comm);
  const bool pipeline = slot == GroupSlot::kPp;
  if (pipeline || slot == GroupSlot::kCp) {
    const bool next = offset == 1 && (n > 2 || peer > self), previous = offset == n - 1;
    if (next) return pipeline ? graph::PeerSlot::kNext : graph::PeerSlot::kCpNext;
    if (previous) return pipeline ? graph::PeerSlot::kPrevious : graph::PeerSlot::kCpPrevious;
  }
  return {graph::PeerKind::kOffset, static_cast<std::int32_t>(offset)};
}

}  // namespace orrery::workload
