// When each operation of a graph starts and ends, found the slow and plain way: what graph.h says
// of streams, events, dependencies, holds and meetings, with lists of everything that came before
// and a search through all operations at every step. The general machine is held against it.
//
// It knows what graph/general_samples.h draws, with kernels replaced by operations of known time
// and no holds of messages; a communication takes what `duration` says from its last arrival on.
// Where two operations that want one thing become ready at one picosecond it says so, in `tied`.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "orrery/engine/general/op_costs.h"
#include "orrery/graph/graph.h"

namespace orrery::testing {

struct ReferenceInputs {
  const graph::Graph* graph = nullptr;
  const compute::CostModel* compute = nullptr;
  const cluster::Spec* spec = nullptr;
  std::function<SimTime(std::int64_t bytes)> duration;
};

class ReferenceScheduler {
 public:
  explicit ReferenceScheduler(const ReferenceInputs& in) : in_(in), graph_(*in.graph) {
    for (std::uint32_t rank = 0; rank < graph_.bindings.size(); ++rank) AddRank(rank);
  }

  // By rank, the end of its last operation; -1 for a rank that never ends.
  std::vector<SimTime> Run() {
    while (true) {
      SettlePlain();
      if (!TakeNext()) break;
    }
    std::vector<SimTime> ends(graph_.bindings.size(), 0);
    for (const Item& i : items_) {
      SimTime& end = ends[i.rank];
      end = i.end < 0 || end < 0 ? -1 : std::max(end, i.end);
    }
    return ends;
  }

  bool tied() const { return tied_; }

 private:
  static constexpr std::uint16_t kNone = graph::Hold::kNone;
  using List = std::vector<std::size_t>;  // items
  struct Item {
    std::uint32_t rank = 0;
    List after_end, after_start;
    std::size_t looked = 0;  // of after_end: these have ended
    std::size_t issued_by = kNobodyIssued;
    SimTime lag = 0;  // of issue
    SimTime duration = 0;
    const graph::Comm* comm = nullptr;
    std::int64_t bytes = 0;
    std::uint32_t stream = graph::kNoStream;  // only one that is not in order
    std::uint16_t cpu = kNone, nic = kNone;
    std::int32_t priority = 0;
    SimTime ready = -1, entered = -1, start = -1, end = -1;
  };
  static constexpr std::size_t kNobodyIssued = ~std::size_t{0};

  // What a rank has come to while its program is read.
  struct Reader {
    std::map<std::uint32_t, List> streams;
    std::map<std::int32_t, List> events;
    List host, before_batch, after_batch;
    std::uint32_t batch = 0;
    SimTime pending = 0;
  };

  void AddRank(std::uint32_t rank) {
    const graph::Binding& b = graph_.bindings[rank];
    Reader r;
    for (const graph::Call& call : graph_.programs[b.program.index()].calls) {
      const graph::Block& block = graph_.blocks[call.block.index()];
      const engine::general::BlockCosts costs =
          *engine::general::CostsOf(block, *in_.compute, *in_.spec, 1);
      for (int i = 0; i < call.repeat; ++i) AddBlock(rank, call, block, costs, &r);
    }
  }

  void AddBlock(std::uint32_t rank, const graph::Call& call, const graph::Block& block,
                const engine::general::BlockCosts& costs, Reader* r) {
    const bool issued = block.issue == graph::Issue::kHost;
    std::vector<std::size_t> number(block.ops.size(), kNobodyIssued);
    r->batch = 0;
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      const graph::Op& op = block.ops[i];
      const std::int32_t event = op.event == graph::kCallEvent ? call.event : op.event;
      if (op.kind != graph::OpKind::kComm && issued) r->batch = 0;
      switch (op.kind) {
        case graph::OpKind::kHost:
          r->pending += block.host_ps[op.index];
          break;
        case graph::OpKind::kRecord:
          r->events[event] = r->streams[op.stream];
          break;
        case graph::OpKind::kWait: {
          const bool host = op.stream == graph::kHostStream;
          if (host) IssuePending(rank, r);
          Append(r->events[event], host ? &r->host : &r->streams[op.stream]);
          break;
        }
        case graph::OpKind::kHostSync:
          Append(r->streams[op.stream], &r->host);
          IssuePending(rank, r);
          break;
        case graph::OpKind::kTimed:
        case graph::OpKind::kComm: {
          const bool comm = op.kind == graph::OpKind::kComm;
          const graph::Comm* c = comm ? &block.comms[op.index] : nullptr;
          const bool joins = comm && c->batch != 0 && c->batch == r->batch;
          if (issued && !joins) Issue(rank, costs.ops[i].host, r);
          number[i] = AddOp(rank, call, block, op, c, joins, r);
          break;
        }
        default:
          break;
      }
    }
    if (issued) IssuePending(rank, r);
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      for (const graph::Dep d : block.deps_of(i)) {
        Item& item = items_[number[i]];
        (d.on_start ? item.after_start : item.after_end).push_back(number[d.op]);
      }
    }
  }

  std::size_t AddOp(std::uint32_t rank, const graph::Call& call, const graph::Block& block,
                    const graph::Op& op, const graph::Comm* comm, bool joins, Reader* r) {
    const graph::Binding& b = graph_.bindings[rank];
    const bool issued = block.issue == graph::Issue::kHost;
    const std::uint32_t stream = block.stream_of(op);
    const bool in_order =
        stream != graph::kNoStream && graph_.order_of(stream) == graph::StreamOrder::kInOrder;
    const std::size_t number = items_.size();
    Item& item = items_.emplace_back();
    item.rank = rank;
    if (issued) {
      item.issued_by = r->host.back();
      item.lag = comm == nullptr ? in_.compute->launch_latency() : 0;
    }
    if (comm == nullptr) {
      item.duration = graph_.number(b, block.times[op.index]);
      item.priority = op.priority;
      if (op.hold != 0) {
        item.cpu = block.holds[op.hold - 1u].cpu;
        item.nic = block.holds[op.hold - 1u].nic;
      }
      if (in_order) {
        item.after_end = r->streams[stream];
        r->streams[stream].push_back(number);
      } else {
        item.stream = stream;
      }
      return number;
    }
    item.comm = comm;
    item.bytes = graph_.number(b, comm->bytes);
    if (!joins) {
      r->before_batch = in_order ? r->streams[stream] : List();
      r->after_batch = issued && comm->after != graph::kNoStream ? r->streams[comm->after] : List();
    }
    r->batch = comm->batch;
    item.after_end = r->before_batch;
    Append(r->after_batch, &item.after_end);
    if (in_order) r->streams[stream].push_back(number);
    if (issued && comm->blocking && comm->after != graph::kNoStream) {
      r->streams[comm->after].push_back(number);
    }
    if (comm->event != graph::kNoEvent) {
      List& event = r->events[comm->event == graph::kCallEvent ? call.event : comm->event];
      // A group call records an event when all that name it are over.
      const bool same = joins && !event.empty() && items_[event.back()].comm != nullptr &&
                        items_[event.back()].rank == rank && event.back() >= batch_first_;
      if (!joins) batch_first_ = number;
      if (!same) event.clear();
      event.push_back(number);
    } else if (!joins) {
      batch_first_ = number;
    }
    return number;
  }

  void Issue(std::uint32_t rank, SimTime launch, Reader* r) {
    Item& item = items_.emplace_back();
    item.rank = rank;
    item.after_end = r->host;
    const double scale = 1.0 / in_.spec->cpu_relative_speed;
    item.duration = RoundToPs(static_cast<double>(r->pending) * scale) + launch;
    r->pending = 0;
    r->host.push_back(items_.size() - 1);
  }
  void IssuePending(std::uint32_t rank, Reader* r) {
    if (r->pending > 0) Issue(rank, 0, r);
  }
  static void Append(const List& from, List* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  bool FindReady(Item* i) {
    for (; i->looked < i->after_end.size(); ++i->looked) {
      if (items_[i->after_end[i->looked]].end < 0) return false;
    }
    if (i->issued_by != kNobodyIssued && items_[i->issued_by].end < 0) return false;
    for (const std::size_t s : i->after_start) {
      if (items_[s].start < 0) return false;
    }
    SimTime ready = i->issued_by == kNobodyIssued ? 0 : items_[i->issued_by].end + i->lag;
    for (const std::size_t e : i->after_end) ready = std::max(ready, items_[e].end);
    for (const std::size_t s : i->after_start) ready = std::max(ready, items_[s].start);
    i->ready = ready;
    return true;
  }

  // What nothing but its predecessors holds up.
  void SettlePlain() {
    for (bool more = true; more;) {
      more = false;
      for (Item& i : items_) {
        if (i.ready >= 0 || !FindReady(&i)) continue;
        more = true;
        if (i.comm != nullptr || i.cpu != kNone || i.nic != kNone || i.stream != graph::kNoStream) {
          continue;
        }
        i.start = i.ready;
        i.end = i.start + i.duration;
      }
    }
  }

  struct Unit {
    SimTime free = 0;
    bool busy = false;  // a stream whose operation waits for what it holds
  };
  Unit& unit(char what, std::uint32_t rank, std::uint32_t number) {
    return units_[{what, rank, number}];
  }

  // The first thing that can happen now: a communication is posted, a stream taken, an operation
  // begun with what it holds. Nothing that is not yet known to be ready can come before it.
  bool TakeNext() {
    Item* best = nullptr;
    SimTime best_time = 0;
    for (Item& i : items_) {
      if (i.ready < 0 || i.start >= 0) continue;
      SimTime time = i.ready;
      if (i.comm == nullptr && i.stream != graph::kNoStream && i.entered < 0) {
        const Unit& s = unit('s', i.rank, i.stream);
        if (s.busy) continue;
        time = std::max(time, s.free);
      } else if (i.comm == nullptr) {
        time = std::max(time, i.entered);
        if (i.cpu != kNone) time = std::max(time, unit('c', i.rank, i.cpu).free);
        if (i.nic != kNone) time = std::max(time, unit('n', i.rank, i.nic).free);
      }
      if (best == nullptr || time < best_time || (time == best_time && Before(i, *best, time))) {
        best = &i;
        best_time = time;
      }
    }
    if (best == nullptr) return false;
    for (const Item& i : items_) {
      const bool other = i.ready >= 0 && i.start < 0 && &i != best && i.rank == best->rank;
      if (!other || i.comm != nullptr || std::max(i.ready, i.entered) > best_time) continue;
      const bool one = (i.stream == best->stream && i.stream != graph::kNoStream) ||
                       (i.cpu == best->cpu && i.cpu != kNone) ||
                       (i.nic == best->nic && i.nic != kNone);
      tied_ = tied_ || (one && !Before(*best, i, best_time));
    }
    if (best->comm != nullptr) {
      Post(best);
    } else if (best->stream != graph::kNoStream && best->entered < 0) {
      best->entered = best_time;
      unit('s', best->rank, best->stream).busy = true;
      if (best->cpu == kNone && best->nic == kNone) Start(best, best_time);
    } else {
      Start(best, best_time);
    }
    return true;
  }
  // Of two that may go on at `time`: a stream serves in its order; else who has waited longer is
  // first, and of those that begin to wait now whom a stream serves next. Two that do not wait for
  // one thing may come in any order.
  bool Before(const Item& a, const Item& b, SimTime time) const {
    const auto on_stream = [](const Item& i) {
      return i.comm == nullptr && i.stream != graph::kNoStream;
    };
    const auto outside = [&](const Item& i) { return on_stream(i) && i.entered < 0; };
    const bool one_stream = outside(a) && outside(b) && a.rank == b.rank && a.stream == b.stream;
    if (one_stream && a.ready < time && b.ready < time) {
      const graph::StreamOrder order = graph_.order_of(a.stream);
      if (order == graph::StreamOrder::kLast) return a.ready >= b.ready;
      if (order == graph::StreamOrder::kPriority && a.priority != b.priority) {
        return a.priority > b.priority;
      }
      return a.ready < b.ready;
    }
    const auto since = [&](const Item& i) {
      return outside(i) && i.ready < time ? time : std::max(i.ready, i.entered);
    };
    if (since(a) != since(b)) return since(a) < since(b);
    const auto served = [&](const Item& i) { return on_stream(i) && i.ready < since(i); };
    return served(a) && !served(b);
  }

  void Start(Item* i, SimTime time) {
    i->start = time;
    i->end = time + i->duration;
    if (i->cpu != kNone) unit('c', i->rank, i->cpu).free = i->end;
    if (i->nic != kNone) unit('n', i->rank, i->nic).free = i->end;
    if (i->stream != graph::kNoStream) unit('s', i->rank, i->stream) = {i->end, false};
  }

  struct Meeting {
    List members;
  };
  void Post(Item* i) {
    i->start = i->ready;
    const auto number = static_cast<std::size_t>(i - items_.data());
    const graph::Binding& b = graph_.bindings[i->rank];
    if (!graph::IsPointToPoint(i->comm->collective)) {
      const GroupId group = graph_.group(b, i->comm->group);
      const auto members = graph_.groups.members(group);
      if (members.size() < 2) {
        i->end = i->start;
        return;
      }
      const std::size_t turn = turns_[{group.value, i->rank}]++;
      List& here = meetings_[{group.value, turn}];
      here.push_back(number);
      if (here.size() == members.size()) EndAll(here);
      return;
    }
    const bool sends = i->comm->collective == graph::Collective::kSend;
    const std::uint32_t peer = PeerOf(*i);
    const std::tuple pair(sends ? i->rank : peer, sends ? peer : i->rank, i->comm->tag);
    List& others = (sends ? receives_ : sends_)[pair];
    if (others.empty()) {
      (sends ? sends_ : receives_)[pair].push_back(number);
      return;
    }
    const List both = {others.front(), number};
    others.erase(others.begin());
    EndAll(both);
  }
  void EndAll(const List& members) {
    SimTime last = 0;
    for (const std::size_t m : members) last = std::max(last, items_[m].start);
    const SimTime end = last + in_.duration(items_[members[0]].bytes);
    for (const std::size_t m : members) items_[m].end = end;
  }
  std::uint32_t PeerOf(const Item& i) const {
    const graph::Binding& b = graph_.bindings[i.rank];
    const graph::Peer peer = i.comm->peer;
    if (peer.kind == graph::PeerKind::kSlot) {
      return b.peers[static_cast<std::size_t>(peer.slot())].value;
    }
    if (peer.kind == graph::PeerKind::kColumn) {
      return i.rank - b.logical_rank +
             static_cast<std::uint32_t>(graph_.number(b, {1, peer.value}));
    }
    const auto members = graph_.groups.members(graph_.group(b, i.comm->group));
    const auto n = static_cast<std::int64_t>(members.size());
    std::int64_t place = peer.value;
    if (peer.kind == graph::PeerKind::kOffset) {
      const auto own = std::find(members.begin(), members.end(), RankId(i.rank));
      place = (((own - members.begin()) + place) % n + n) % n;
    }
    return members[static_cast<std::size_t>(place)].value;
  }

  const ReferenceInputs in_;
  const graph::Graph& graph_;
  std::vector<Item> items_;
  std::size_t batch_first_ = 0;
  bool tied_ = false;
  std::map<std::tuple<char, std::uint32_t, std::uint32_t>, Unit> units_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> turns_;
  std::map<std::pair<std::uint32_t, std::size_t>, List> meetings_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::int32_t>, List> sends_, receives_;
};

}  // namespace orrery::testing
