#include "orrery/engine/straight/inline_block.h"

#include <algorithm>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/engine/work.h"

namespace orrery::engine {
namespace {

// A non-blocking communication of the block on its way.
struct InFlight {
  SimTime start = 0, end = 0;
  interference::Class beside = 0;
  std::int16_t event = graph::kNoEvent;
};

class InlineCourse {
 public:
  // `group`: that all of the block's communications meet, if it has any.
  InlineCourse(graph::GroupSlot group, SimTime launch, BlockPrice* price)
      : group_(group), launch_(launch), price_(price) {}

  // False where the block cannot be inlined after all.
  bool Run() {
    for (const Item& item : price_->items) {
      switch (item.kind) {
        case ItemKind::kWork:
          Work(item);
          break;
        case ItemKind::kComm:
          Communicate(item);
          break;
        case ItemKind::kWait:
          if (!Wait(item)) return false;
          break;
        case ItemKind::kHostSync:
        case ItemKind::kHostPace:
          return false;
      }
    }
    price_->duration = t_;
    price_->host = issued_;
    price_->lag = lag_;
    return flights_.empty();
  }

 private:
  void Add(std::uint64_t key, SimTime at, std::uint64_t digest) {
    price_->m += key;
    price_->o += key * static_cast<std::uint64_t>(at) + digest;
  }

  interference::Class ClassAt(SimTime t) const {
    interference::Class c = 0;
    for (const InFlight& f : flights_) {
      if (f.start <= t && t < f.end) c |= f.beside;
    }
    return c;
  }
  SimTime NextChange(SimTime after) const {
    SimTime next = kNever;
    for (const InFlight& f : flights_) {
      if (f.beside == 0) continue;
      if (f.start > after) next = std::min(next, f.start);
      if (f.end > after) next = std::min(next, f.end);
    }
    return next;
  }

  void Work(const Item& item) {
    lag_ = std::max(lag_, issued_ + item.lag - t_);
    issued_ += item.host;
    if (item.count == 0) return;
    Add(item.key, t_, item.digest);
    WorkProgress p;
    p.time = p.start = t_;
    p.host = -kMaxDuration;  // the host is far ahead: `lag` guards that
    SimTime idle = 0;
    SimTime end = 0;
    for (;;) {
      const interference::Class now = ClassAt(p.time);
      end = Finish(*price_, item, p, now, launch_, &idle);
      const SimTime change = NextChange(p.time);
      if (change >= end) break;
      Advance(*price_, item, &p, change, now, launch_);
    }
    const auto part = item.optimizer ? Part::kOptimizer : Part::kCompute;
    price_->parts[static_cast<std::size_t>(part)] += item.duration[0];
    price_->parts[static_cast<std::size_t>(Part::kInterference)] += end - t_ - item.duration[0];
    t_ = end;
  }

  void Communicate(const Item& item) {
    issued_ += item.host;
    lag_ = std::max(lag_, issued_ - t_);
    const CommPrice& comm = price_->comms[item.first];
    const SimTime start = std::max(t_, free_);
    const SimTime end = start + comm.cost.total();
    // A message round a ring ends twice: as the rank's own and as its neighbour's.
    const bool pair = item.count == 2;
    const std::uint64_t parts = pair ? (Mix64(comm.digest) | 1) + (Mix64(comm.digest + 1) | 1) : 1;
    price_->m += item.key * (kArrivalWeight + parts * (kStartWeight + kEndWeight));
    price_->o += item.key * (kArrivalWeight * static_cast<std::uint64_t>(start) +
                             parts * (kStartWeight * static_cast<std::uint64_t>(start) +
                                      kEndWeight * static_cast<std::uint64_t>(end)));
    free_ = end;
    price_->nvlink_out += comm.cost.member.nvlink_out;
    price_->nvlink_in += comm.cost.member.nvlink_in;
    price_->nvlink_busy += end - start;
    if (item.blocking) {
      price_->parts[static_cast<std::size_t>(Part::kExposed) +
                    static_cast<std::size_t>(comm.comm.group)] += end - t_;
      t_ = end;
      std::erase_if(flights_, [&](const InFlight& f) { return f.event == graph::kNoEvent; });
    } else {
      flights_.push_back({start, end, comm.beside, item.event});
    }
  }

  bool Wait(const Item& item) {
    const auto f = std::find_if(flights_.begin(), flights_.end(),
                                [&](const InFlight& x) { return x.event == item.event; });
    if (f == flights_.end()) return false;  // recorded elsewhere
    if (f->end > t_) {
      price_->parts[static_cast<std::size_t>(Part::kExposed) + static_cast<std::size_t>(group_)] +=
          f->end - t_;
      t_ = f->end;
    }
    // What came before it on the stream has ended, too.
    const SimTime end = f->end;
    flights_.erase(f);
    std::erase_if(flights_,
                  [&](const InFlight& x) { return x.event == graph::kNoEvent && x.end <= end; });
    return true;
  }

  const graph::GroupSlot group_;
  const SimTime launch_;
  BlockPrice* price_;
  SimTime t_ = 0, issued_ = 0, lag_ = 0, free_ = 0;
  std::vector<InFlight> flights_;
};

// To the next and from the previous of a ring that lies in the rank's own class.
bool RoundOwnRing(const View& view, const BlockPrice& price, const Item& item) {
  if (item.count != 2 || item.parts != 2 || !item.one_way) return false;
  const CommPrice& a = price.comms[item.first];
  const CommPrice& b = price.comms[item.first + 1];
  const auto opposite = static_cast<int>(a.comm.peer.slot()) ^ 1;
  return a.digest == b.digest && a.comm.group == b.comm.group && !a.nic && !b.nic &&
         graph::IsPointToPoint(a.comm.collective) && graph::IsPointToPoint(b.comm.collective) &&
         static_cast<int>(b.comm.peer.slot()) == opposite &&
         (view.own_peers >> static_cast<int>(a.comm.peer.slot()) & 1) != 0 &&
         (view.own_peers >> opposite & 1) != 0;
}

// All communication over NVLink within one class, in one group on one stream, one call at a time.
bool MayInline(const View& view, const BlockPrice& price, graph::GroupSlot* slot) {
  int stream = -1;
  for (const Item& item : price.items) {
    if (item.kind != ItemKind::kComm) continue;
    const CommPrice& comm = price.comms[item.first];
    const auto group = comm.comm.group;
    const bool collective = item.count == 1 && !graph::IsPointToPoint(comm.comm.collective) &&
                            comm.plan >= 0 && !comm.nic &&
                            (view.alone >> static_cast<int>(group) & 1) != 0;
    if (!collective && !RoundOwnRing(view, price, item)) return false;
    if (stream >= 0 && (stream != item.stream || *slot != group)) return false;
    stream = item.stream;
    *slot = group;
  }
  return true;
}

}  // namespace

void InlineBlock(const View& view, SimTime launch, BlockPrice* price) {
  graph::GroupSlot group = graph::GroupSlot::kCount;
  price->inlinable = MayInline(view, *price, &group);
  if (price->inlinable) {
    price->meets = group;
    price->inlinable = InlineCourse(group, launch, price).Run();
  }
  if (!price->inlinable) {
    price->m = price->o = 0;
    price->parts = {};
  }
}

}  // namespace orrery::engine
