// What the general machine says of a run that cannot end.
#include "orrery/engine/deadlock.h"
#include "orrery/engine/general/machine.h"

namespace orrery::engine::general {

std::string Machine::Describe(std::uint32_t rank, std::uint32_t number) const {
  const Node& n = node_of(rank, number);
  if (n.op == Node::kNoOp) return "host work";
  const graph::Block& block = graph_.blocks[n.block];
  const graph::Op& op = block.ops[n.op];
  std::string where =
      block.issue == graph::Issue::kFree
          ? fmt::format("operation {} of rank {}", n.op, rank)
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
    return Infeasible("rank {} never receives what rank {} sends: {}{}", left.rank,
                      left.item.source, Describe(left.item.source, left.item.node), behind);
  }
  return Infeasible("deadlock: rank {} waits for ever at {}; no message that fits comes{}",
                    left.rank, Describe(left.rank, left.item.node), behind);
}

}  // namespace orrery::engine::general
