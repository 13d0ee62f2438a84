// CollNet (formula.h, collnet.h).
#include <algorithm>

#include "orrery/collective/algorithms/collnet.h"
#include "orrery/collective/formula/formula.h"

namespace orrery::collective {

using model::Chunk;

// One round: lanes and ports that work, and a window's turn.
struct Formula::CollNetRound {
  double lane = 0;    // the slowest
  double way = 0;     // of one chunk from the first step to the last
  double ports = 0;   // the busiest
  double credit = 0;  // a chunk's part of the longest turn of a window
  double pace() const { return std::max({lane, ports, credit}); }
};

Formula::CollNetRound Formula::CollNetRoundOf(const Chunk& chunk) const {
  CollNetRound round;
  if (chunk.slices == 0) return round;
  const bool through_switch = plan_.algorithm == Algorithm::kNvls;
  const std::int64_t near = through_switch ? model::OnSwitch(box_, chunk.bytes) : chunk.bytes;
  const double net = box_.inter.Delay(chunk.bytes);
  const double nics = std::max(1, plan_.shape.nics);
  if (plan_.algorithm == Algorithm::kCollNetChain) {
    const double work = Work(chunk.bytes, model::kStreams);
    const double hop = box_.intra.Delay(near);
    const double hops = ppn() - 1;
    const double channels_at_nic = CeilDiv(plan_.channels, nics);
    round.lane = work;
    round.way = 2 * (hops * (work + hop) + work + net);
    const double edges = 2 * hops * plan_.channels / ppn();  // out of a GPU, on average
    round.ports =
        std::max(edges * box_.intra.Serial(near), channels_at_nic * box_.inter.Serial(chunk.bytes));
    round.credit = (std::max(ppn() > 1 ? 2 * work + hop : 0, work + net) + back()) / plan_.credits;
    return round;
  }
  const auto work = [&](collnet::Lane lane) {
    const int warps = collnet::Warps(plan_, lane, true);
    if (warps == 0) return 0.0;
    return static_cast<double>(collnet::OfWarp(plan_, lane, true, chunk.bytes)) * box_.per_byte *
           collnet::Streams(plan_, lane);
  };
  const int parts = collnet::Parts(plan_, true);
  const bool alone = ppn() == 1;
  const bool scatters = nvls::Scatters(plan_.collective), gathers = nvls::Gathers(plan_.collective);
  const double scatter = parts > 0 && scatters ? box_.sync + parts * work(collnet::kScatter) : 0;
  const double gather = parts > 0 && gathers ? box_.sync + parts * work(collnet::kGather) : 0;
  const double reduce = box_.sync + work(collnet::kReduce);
  const double broadcast = box_.sync + work(collnet::kBroadcast);
  const double hop = alone ? 0 : box_.intra.Delay(near);
  round.lane = std::max({scatter, gather, reduce, broadcast});
  const double up = scatters ? scatter + hop : 0, down = gathers ? hop + gather : 0;
  round.way = up + reduce + 2 * net + broadcast + down;
  const double serial = box_.intra.Serial(near);
  const double both = scatters && gathers ? 1 : 0;
  const double near_messages = through_switch ? plan_.heads + both : (1 + both) * (ppn() - 1);
  round.ports = plan_.channels *
                std::max(near_messages * serial * (alone ? 0 : 1), box_.inter.Serial(chunk.bytes));
  const double turn = scatters ? up + reduce : broadcast + down;
  round.credit = (std::max(alone ? 0 : turn, reduce + net) + back()) / plan_.credits;
  return round;
}

double Formula::PaceOfCollNet() const { return CollNetRoundOf(pieces_.full).pace(); }

Terms Formula::CollNet() const {
  const CollNetRound full = CollNetRoundOf(pieces_.full), tail = CollNetRoundOf(pieces_.tail);
  const auto rounds = static_cast<double>(pieces_.rounds);
  Terms terms;
  // The first chunk all the way, the others behind it.
  const double first = rounds > 0 ? full.way : tail.way;
  const double behind = std::max(0.0, rounds - 1) * full.pace() + (rounds > 0 ? tail.pace() : 0);
  terms.total = first + behind + static_cast<double>(plan_.phases);
  terms.transfer =
      std::min(terms.total, rounds * std::max(full.lane - box_.sync, full.ports) +
                                std::max(0.0, std::max(tail.lane - box_.sync, tail.ports)));
  return terms;
}

}  // namespace orrery::collective
