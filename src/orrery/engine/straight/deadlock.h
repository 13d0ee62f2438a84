// The reports of runs that cannot go on: who waits for whom.
#pragma once

#include <utility>
#include <vector>

#include "orrery/engine/straight/machine.h"

namespace orrery::engine {

inline constexpr std::size_t kShownInDeadlock = 8;

struct Waiting {
  std::uint32_t rank = 0;  // simulated
  const BlockPrice* block =
      nullptr;  // of the communication it stands in; null: it waits for an event
  std::uint32_t item = 0, call = 0;
  std::vector<std::uint32_t> missing;  // ranks that have not come; of the first kShownInDeadlock
};

// Names up to eight ranks with the operation each stands in and the ranks that it waits for.
Status DeadlockReport(const graph::Graph& graph, const Layout& layout,
                      const std::vector<Waiting>& waiting);

// A rank issued more communications without waiting for them than the engine counts.
Status OverfullReport(const graph::Graph& graph, const Layout& layout, std::uint32_t rank);

// Members of a meeting came to different communications; null: nobody is bound to the slot.
Status MismatchReport(RankId rank, const CommPrice& comm, const CommPrice* other);

// The report of a machine whose meets know who has `arrived` and, of a pair, who `came`.
template <class Machine, class Meets>
class Missing {
 public:
  Missing(Machine& machine, const Layout& layout, const Meets& meets)
      : machine_(machine), layout_(layout), meets_(meets) {}

  std::vector<Waiting> All() {
    std::vector<Waiting> waiting;
    for (std::uint32_t r = 0; r < layout_.ranks.size(); ++r) {
      if (machine_.state(r).status == RankStatus::kDone) continue;
      Waiting w;
      w.rank = r;
      for (int i = 0; i < layout_.streams; ++i) {
        const StreamState& q = machine_.stream(r, i);
        if (q.block_item == kNobody) continue;
        w.block = q.block;
        w.item = q.block_item;
        w.call = q.call;
        if (waiting.size() < kShownInDeadlock) AddMissing(r, q, &w.missing);
        break;
      }
      waiting.push_back(std::move(w));
    }
    return waiting;
  }

 private:
  void AddMissing(std::uint32_t r, const StreamState& q, std::vector<std::uint32_t>* missing) {
    const Item& item = machine_.head(q);
    const SimRank& rank = layout_.ranks[r];
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const graph::Comm& comm = q.block->comms[item.first + i].comm;
      const std::uint32_t id = MeetOf(rank, comm);
      if (id == kNobody || meets_[id].arrived == layout_.meets[id].count) continue;
      const MeetInfo& info = layout_.meets[id];
      const auto* members = layout_.participants.data() + info.first;
      if (info.pair) {
        missing->push_back(members[meets_[id].came & 1 ? 1 : 0]);
        continue;
      }
      for (std::uint32_t m = 0; m < info.count; ++m) {
        if (!StandsIn(members[m], id)) missing->push_back(members[m]);
      }
    }
  }

  bool StandsIn(std::uint32_t r, std::uint32_t id) {
    for (int i = 0; i < layout_.streams; ++i) {
      const StreamState& q = machine_.stream(r, i);
      if (q.block_item == kNobody) continue;
      const graph::Comm& comm = q.block->comms[machine_.head(q).first].comm;
      if (graph::IsPointToPoint(comm.collective)) continue;
      if (layout_.ranks[r].meet[static_cast<std::size_t>(comm.group)] == id) return true;
    }
    return false;
  }

  Machine& machine_;
  const Layout& layout_;
  const Meets& meets_;
};

template <class Machine, class Meets>
Status Deadlock(Machine& machine, const graph::Graph& graph, const Layout& layout,
                const Meets& meets) {
  if (const std::uint32_t r = machine.overfull(); r != kNobody) {
    return OverfullReport(graph, layout, r);
  }
  return DeadlockReport(graph, layout, Missing(machine, layout, meets).All());
}

}  // namespace orrery::engine
