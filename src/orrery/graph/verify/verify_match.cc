// Members of a group agree on their collectives, peers on their messages.
#include <algorithm>
#include <optional>

#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph::verify {
namespace {

// One communication of a program, for the message that names the first difference.
struct Occurrence {
  ProgramId program;
  std::size_t call = 0, op = 0;
  BlockId block;
  const Comm* comm = nullptr;
};

// The communications of a rank that `wanted` picks, in order. Slow: for messages only.
template <class Wanted>
std::vector<Occurrence> Expand(const Graph& graph, std::size_t rank, const Wanted& wanted) {
  const ProgramId id = graph.bindings[rank].program;
  std::vector<Occurrence> found;
  const auto add = [&](const std::vector<Call>& calls) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const Block& block = graph.blocks[calls[c].block.index()];
      for (int i = 0; i < calls[c].repeat; ++i) {
        for (std::size_t o = 0; o < block.ops.size(); ++o) {
          if (block.ops[o].kind != OpKind::kComm) continue;
          const Comm& comm = block.comms[block.ops[o].index];
          if (wanted(comm)) found.push_back({id, c, o, calls[c].block, &comm});
        }
      }
    }
  };
  add(graph.programs[id.index()].prologue);
  add(graph.programs[id.index()].calls);
  return found;
}

std::string Describe(const Graph& graph, std::size_t rank, const std::vector<Occurrence>& list,
                     std::size_t i) {
  if (i >= list.size()) {
    return fmt::format("rank {} ({}) has only {}", rank, Where(graph, graph.bindings[rank].program),
                       list.size());
  }
  const Occurrence& o = list[i];
  return fmt::format("rank {} ({}, call {}, {}, op {}) has {} of {} bytes of {} on stream {}", rank,
                     Where(graph, o.program), o.call, Where(graph, o.block), o.op,
                     Name(o.comm->collective), o.comm->bytes.value, Name(o.comm->dtype),
                     o.comm->stream);
}

// First index at which the lists differ.
std::size_t Difference(const std::vector<Occurrence>& x, const std::vector<Occurrence>& y,
                       bool messages) {
  std::size_t i = 0;
  while (i < x.size() && i < y.size()) {
    const Comm& c = *x[i].comm;
    const Comm& d = *y[i].comm;
    if (c.bytes.value != d.bytes.value) break;
    if (!messages && (c.collective != d.collective || c.dtype != d.dtype || c.stream != d.stream)) {
      break;
    }
    ++i;
  }
  return i;
}

Status Disagree(const Graph& graph, GroupSlot slot, GroupId group, std::size_t a, std::size_t b) {
  const auto wanted = [slot](const Comm& c) {
    return !IsPointToPoint(c.collective) && c.group == slot;
  };
  const auto x = Expand(graph, a, wanted), y = Expand(graph, b, wanted);
  const std::size_t i = Difference(x, y, false);
  return InvalidInput("group {} ({}): members disagree on collective {}: {}; {}", group.value,
                      Name(slot), i, Describe(graph, a, x, i), Describe(graph, b, y, i));
}

// The set of slots by which `rank` names `peer`.
std::size_t SlotsFor(const Binding& binding, std::size_t peer) {
  std::size_t set = 0;
  for (std::size_t s = 0; s < kPeerSlots; ++s) {
    if (binding.peers[s].valid() && binding.peers[s].index() == peer) set |= std::size_t{1} << s;
  }
  return set;
}

Status Unmatched(const Graph& graph, std::size_t from, std::size_t from_set, std::size_t to,
                 std::size_t to_set, std::size_t tag) {
  const auto sends = Expand(graph, from, [=](const Comm& c) {
    return c.collective == Collective::kSend && static_cast<std::size_t>(c.tag) == tag &&
           (from_set >> static_cast<unsigned>(c.peer.value) & 1) != 0;
  });
  const auto receives = Expand(graph, to, [=](const Comm& c) {
    return c.collective == Collective::kRecv && static_cast<std::size_t>(c.tag) == tag &&
           (to_set >> static_cast<unsigned>(c.peer.value) & 1) != 0;
  });
  const std::size_t i = Difference(sends, receives, true);
  return InvalidInput("messages of rank {} to rank {} with tag {}, number {}: {}; {}", from, to,
                      tag, i, Describe(graph, from, sends, i), Describe(graph, to, receives, i));
}

// What `from` sends to `to` is what `to` receives from it, for every tag. Empty sets: nothing.
std::optional<std::size_t> MismatchedTag(const ProgramFacts& from, std::size_t from_set,
                                         const ProgramFacts& to, std::size_t to_set,
                                         std::size_t tags) {
  for (std::size_t tag = 0; tag < tags; ++tag) {
    const Sequence sent =
        from_set == 0 ? Sequence() : from.messages[MessageIndex(true, tag, from_set)];
    const Sequence received =
        to_set == 0 ? Sequence() : to.messages[MessageIndex(false, tag, to_set)];
    if (!(sent == received)) return tag;
  }
  return std::nullopt;
}

Status CheckMember(const Matching& m, GroupId id, GroupSlot slot, std::size_t first,
                   std::size_t member) {
  const Graph& graph = m.graph;
  const Binding& b = graph.bindings[member];
  if (b.groups[static_cast<std::size_t>(slot)] != id) {
    return InvalidInput("group {} ({}) has rank {}, whose slot names another group", id.value,
                        Name(slot), member);
  }
  const Binding& head = graph.bindings[first];
  if (b.job != head.job) {
    return InvalidInput("group {} ({}): ranks {} and {} are of different jobs", id.value,
                        Name(slot), first, member);
  }
  if (b.program == head.program) return {};
  const auto s = static_cast<std::size_t>(slot);
  if (m.of(member).collectives[s] == m.of(first).collectives[s]) return {};
  return Disagree(graph, slot, id, first, member);
}

}  // namespace

Status MatchGroups(const Matching& m) {
  const Graph& graph = m.graph;
  std::vector<GroupId> seen(graph.bindings.size());
  std::size_t members = 0, bound = 0;
  for (std::size_t g = 0; g < graph.groups.size(); ++g) {
    const GroupId id(g);
    const GroupSlot slot = graph.groups.slot(id);
    if (slot >= GroupSlot::kCount) return InvalidInput("group {}: unknown slot", g);
    const std::span<const RankId> list = graph.groups.members(id);
    if (list.empty()) return InvalidInput("group {} ({}) is empty", g, Name(slot));
    members += list.size();
    const auto s = static_cast<std::size_t>(slot);
    const Binding* first = list.front().index() < graph.bindings.size()
                               ? &graph.bindings[list.front().index()]
                               : nullptr;
    for (const RankId rank : list) {
      if (rank.index() >= graph.bindings.size()) {
        return InvalidInput("group {} ({}): rank {} of {}", g, Name(slot), rank.value,
                            graph.bindings.size());
      }
      if (seen[rank.index()] == id) {
        return InvalidInput("group {} ({}) has rank {} twice", g, Name(slot), rank.value);
      }
      seen[rank.index()] = id;
      const Binding& b = graph.bindings[rank.index()];
      const bool like_first = b.program == first->program && b.job == first->job;
      if (like_first && b.groups[s] == id) [[likely]]
        continue;
      ORRERY_RETURN_IF_ERROR(CheckMember(m, id, slot, list.front().index(), rank.index()));
    }
  }
  for (const Binding& b : graph.bindings) {
    for (const GroupId id : b.groups) bound += id.valid() ? 1 : 0;
  }
  if (members == bound) return {};
  // Some rank names a group that it is no member of.
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    for (std::size_t s = 0; s < kGroupSlots; ++s) {
      const GroupId id = graph.bindings[r].groups[s];
      if (!id.valid()) continue;
      const auto list = graph.groups.members(id);
      const bool has = std::find(list.begin(), list.end(), RankId(r)) != list.end();
      if (has && graph.groups.slot(id) == static_cast<GroupSlot>(s)) continue;
      return InvalidInput("rank {}: its slot '{}' names group {} ({}), which does not have it", r,
                          Name(static_cast<GroupSlot>(s)), id.value, Name(graph.groups.slot(id)));
    }
  }
  return {};
}

Status MatchPeers(const Matching& m) {
  const Graph& graph = m.graph;
  if (m.tags == 0) return {};
  // Pairs of programs with the same slots between them need one look.
  const std::size_t programs = graph.programs.size();
  constexpr std::size_t kMostRemembered = 64;  // 2 MiB of bits
  const bool remember = programs <= kMostRemembered;
  std::vector<bool> known(remember ? programs * programs * kPeerSets * kPeerSets : 0);
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const Binding& b = graph.bindings[r];
    for (std::size_t s = 0; s < kPeerSlots; ++s) {
      if (!b.peers[s].valid()) continue;
      const std::size_t peer = b.peers[s].index();
      const Binding& other = graph.bindings[peer];
      const std::size_t mine = SlotsFor(b, peer), its = SlotsFor(other, r);
      if (remember) {
        const std::size_t pair = b.program.index() * programs + other.program.index();
        const std::size_t key = (pair * kPeerSets + mine) * kPeerSets + its;
        if (known[key]) continue;
        known[key] = true;
      }
      if (const auto tag = MismatchedTag(m.of(r), mine, m.of(peer), its, m.tags)) {
        return Unmatched(graph, r, mine, peer, its, *tag);
      }
      if (const auto tag = MismatchedTag(m.of(peer), its, m.of(r), mine, m.tags)) {
        return Unmatched(graph, peer, its, r, mine, *tag);
      }
    }
  }
  return {};
}

}  // namespace orrery::graph::verify
