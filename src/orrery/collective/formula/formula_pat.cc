// The price of PAT (pat.h).
#include <algorithm>
#include <cstddef>
#include <vector>

#include "orrery/collective/algorithms/pat.h"
#include "orrery/collective/formula/formula.h"

namespace orrery::collective {
namespace pat {
namespace {

// The lanes of one member's channels on one NIC.
class Course {
 public:
  Course(const Pattern& pattern, const Plan& plan, const model::WhiteBox& box)
      : actions_(pattern.Actions()),
        box_(box),
        dims_(static_cast<std::size_t>(pattern.dims)),
        credits_(static_cast<std::size_t>(plan.credits)),
        lanes_(static_cast<std::size_t>(CeilDiv(plan.channels, std::max(1, plan.shape.nics)))),
        taken_(lanes_.size()),
        wires_(lanes_.size() * dims_),
        arrived_(wires_.size() * credits_),
        returned_(wires_.size() * credits_) {}

  // `loops` with full blocks and one with those of `tail` (0: none), the channels' messages in the
  // order in which they reach the port.
  void Run(std::int64_t loops, std::int64_t full, std::int64_t tail) {
    const auto of_loop = static_cast<std::int64_t>(actions_.size());
    const std::int64_t all = of_loop * (loops + (tail > 0 ? 1 : 0));
    ends_.assign(static_cast<std::size_t>(loops + 1), 0);
    for (;;) {
      std::size_t next = lanes_.size();
      double soonest = 0;
      for (std::size_t c = 0; c < lanes_.size(); ++c) {
        if (taken_[c] == all) continue;
        const double end = End(taken_[c] / of_loop < loops ? full : tail, c);
        if (next < lanes_.size() && end >= soonest) continue;
        next = c;
        soonest = end;
      }
      if (next == lanes_.size()) return;
      const std::int64_t loop = taken_[next] / of_loop;
      Take(loop < loops ? full : tail, next);
      double& end = ends_[static_cast<std::size_t>(loop)];
      end = std::max(end, lanes_[next]);
    }
  }
  double end() const { return *std::max_element(lanes_.begin(), lanes_.end()); }
  double end_of(std::int64_t loop) const { return ends_[static_cast<std::size_t>(loop)]; }

 private:
  // Messages sent and consumed over one connection: both its own one and that of its source.
  struct Wire {
    std::size_t sent = 0, received = 0;
  };

  const Action& Next(std::size_t c) const {
    return actions_[static_cast<std::size_t>(taken_[c]) % actions_.size()];
  }
  std::size_t At(int dimension, std::size_t c) const {
    return c * dims_ + static_cast<std::size_t>(std::max(0, dimension));
  }

  // Of a channel's next action with blocks of `bytes`.
  double End(std::int64_t bytes, std::size_t c) const {
    const Action& action = Next(c);
    const bool sends = action.send >= 0;
    const std::size_t out = At(action.send, c), in = At(action.receive, c);
    double start = lanes_[c];
    if (action.receive >= 0) {
      start = std::max(start, arrived_[in * credits_ + wires_[in].received % credits_]);
    }
    if (sends && wires_[out].sent >= credits_) {
      start = std::max(start, returned_[out * credits_ + wires_[out].sent % credits_]);
    }
    const std::int64_t data = bytes * (sends ? action.send_blocks : action.receive_blocks);
    return start + box_.sync +
           static_cast<double>(data) * box_.per_byte * (sends ? model::kStreams : 2);
  }

  void Take(std::int64_t bytes, std::size_t c) {
    const Action& action = Next(c);
    const std::size_t out = At(action.send, c), in = At(action.receive, c);
    const double end = lanes_[c] = End(bytes, c);
    ++taken_[c];
    if (action.receive >= 0) {
      returned_[in * credits_ + wires_[in].received % credits_] = end + box_.inter.latency;
      ++wires_[in].received;
    }
    if (action.send < 0) return;
    const std::int64_t data = bytes * action.send_blocks;
    const double leaves = std::max(end + box_.inter.post, port_);
    port_ = leaves + box_.inter.Serial(data);
    arrived_[out * credits_ + wires_[out].sent % credits_] =
        leaves + box_.inter.Delay(data) - box_.inter.post;
    ++wires_[out].sent;
  }

  std::vector<Action> actions_;
  const model::WhiteBox& box_;
  std::size_t dims_, credits_;
  std::vector<double> lanes_;               // by channel: the end of its last step
  std::vector<std::int64_t> taken_;         // by channel: actions
  std::vector<double> ends_;                // by loop: of its last lane
  std::vector<Wire> wires_;                 // by channel * dims + dimension
  std::vector<double> arrived_, returned_;  // by wire * credits + message: the last `credits` ones
  double port_ = 0;
};

}  // namespace

SimTime Play(const Plan& plan, const model::WhiteBox& box) {
  const Pattern pattern(plan);
  const model::Pieces pieces = model::Cut(plan);
  Course course(pattern, plan, box);
  constexpr std::int64_t kLoops = 4;
  const std::int64_t loops = std::min(pieces.rounds, kLoops);
  course.Run(loops, pieces.full.bytes, pieces.tail.bytes);
  double total = course.end();
  if (pieces.rounds > kLoops) {
    total += static_cast<double>(pieces.rounds - kLoops) *
             (course.end_of(kLoops - 1) - course.end_of(kLoops - 2));
  }
  return RoundToPs(total);
}

}  // namespace pat

Terms Formula::Pat() const {
  const double channels = NicChannels();
  const auto sent = static_cast<double>(pieces_.share) * (plan_.shape.ranks - 1);
  Terms terms;
  terms.total = static_cast<double>(plan_.phases);
  terms.transfer =
      std::min(terms.total, std::max(channels * box_.inter.Serial(static_cast<std::int64_t>(sent)),
                                     sent * box_.per_byte * model::kStreams));
  return terms;
}

}  // namespace orrery::collective
