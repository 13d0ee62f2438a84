// What the general machine says of a run that cannot end.
#include "orrery/engine/general/machine.h"
#include "orrery/engine/straight/deadlock.h"

namespace orrery::engine::general {

std::string Machine::Describe(std::uint32_t rank, std::uint32_t number) const {
  const Node& n = node_of(rank, number);
  if (n.op == Node::kNoOp) return "host work";
  const graph::Block& block = graph_.blocks[n.block];
  const graph::Op& op = block.ops[n.op];
  const std::string place =
      in_.inputs->place ? ", " + in_.inputs->place(rank, n.op) : std::string();
  std::string where =
      block.issue == graph::Issue::kFree
          ? fmt::format("operation {} of rank {}{}", n.op, rank, place)
          : fmt::format("op {}{} of block {}{}", n.op,
                        op.name.valid() ? " '" + graph_.name(op.name) + "'" : "", n.block,
                        block.name.valid() ? " '" + graph_.name(block.name) + "'" : "");
  if (op.kind != graph::OpKind::kComm) return where;
  const graph::Comm& comm = block.comms[op.index];
  std::string text = fmt::format("{} of {} bytes", graph::Name(comm.collective), AmountOf(rank, n));
  if (graph::IsPointToPoint(comm.collective)) {
    const bool sends = comm.collective == graph::Collective::kSend;
    const std::uint32_t peer = PeerOf(rank, n);
    const std::string whom = peer == Matching::kAny   ? "any rank"
                             : peer == Peers::kNobody ? "no rank"
                                                      : fmt::format("rank {}", peer);
    text += fmt::format(" {} {} tag {}", sends ? "to" : "from", whom,
                        comm.tag == graph::kAnyTag
                            ? std::string("any")
                            : fmt::format("{}", static_cast<std::uint32_t>(comm.tag)));
  }
  return fmt::format("{} ({})", text, where);
}

// The other end of what waits, where it stands behind something that never ends.
std::string Machine::NeverPosted(const Matching::Left& left) const {
  const std::uint32_t other = left.message ? left.rank : left.item.source;
  if (other == Matching::kAny) return {};
  const NodeKind kind = left.message ? NodeKind::kReceive : NodeKind::kSend;
  const std::uint32_t peer = left.message ? left.item.source : left.rank;
  const auto fits = [](std::uint32_t a, std::uint32_t b) {
    return a == b || a == Matching::kAny || b == Matching::kAny;
  };
  const auto size = static_cast<std::uint32_t>(ranks_[other].program->flat->size());
  for (std::uint32_t i = 0; i < size; ++i) {
    const Node& n = node_of(other, i);
    if (n.kind != kind || states_[ranks_[other].first + i].open == 0) continue;
    if (!fits(PeerOf(other, n), peer)) continue;
    if (!fits(static_cast<std::uint32_t>(comm_of(n).tag), left.item.tag)) continue;
    return fmt::format(", while {} has yet to begin", Describe(other, i));
  }
  return {};
}

Status Machine::Stuck() const {
  std::uint64_t waits = 0;
  for (const NodeState& s : states_) waits += s.open > 0 ? 1 : 0;
  const std::string behind =
      waits > 0 ? fmt::format("; {} operations wait behind what never ends", waits) : "";
  std::string text;
  std::size_t shown = 0, groups = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t k = 0; k < groups_[g].open.size(); ++k) {
      const std::uint32_t id = groups_[g].open[k];
      if (id == kNobody) continue;
      ++groups;
      if (shown >= kShownInDeadlock) continue;
      ++shown;
      const Meeting& m = meetings_[id];
      const auto members = graph_.groups.members(GroupId(g));
      std::string missing;
      std::size_t absent = 0, first = members.size();
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (groups_[g].next[i] > groups_[g].base + k) {
          first = std::min(first, i);
        } else if (++absent <= kShownInDeadlock) {
          missing += fmt::format("{}{}", missing.empty() ? "" : ", ", members[i].value);
        }
      }
      if (first == members.size()) continue;
      text += fmt::format("\n  rank {} is in {}, waiting for rank {}{}", members[first].value,
                          Describe(members[first].value, m.members[first].node), missing,
                          absent > kShownInDeadlock ? ", …" : "");
    }
  }
  if (groups > 0) {
    return Infeasible("deadlock: {} collectives wait for members{}{}", groups, behind, text);
  }
  Matching::Left left;
  if (!matching_.FirstLeft(&left)) {
    return Infeasible("{} operations never become ready", left_);
  }
  if (left.message) {
    return Infeasible("rank {} never receives what rank {} sends: {}{}{}", left.rank,
                      left.item.source, Describe(left.item.source, left.item.node),
                      NeverPosted(left), behind);
  }
  Matching::Item other;
  const std::string beside =
      matching_.FirstMessage(left.rank, left.item.source, &other)
          ? fmt::format(", while {} waits to be received", Describe(other.source, other.node))
          : NeverPosted(left);
  return Infeasible("deadlock: rank {} waits for ever at {}; no message that fits comes{}{}",
                    left.rank, Describe(left.rank, left.item.node), beside, behind);
}

}  // namespace orrery::engine::general
