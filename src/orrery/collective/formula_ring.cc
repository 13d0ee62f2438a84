// Rings that rotate: all-reduce, all-gather, reduce-scatter (formula.h).
#include "orrery/collective/formula.h"

#include <algorithm>

namespace orrery::collective {

using model::Chunk;
using model::Edge;

double Formula::NvlinkChannels() const {
  if (ppn() == 1) return 0;
  if (!net() || plan_.shape.nics < ppn()) return plan_.channels;
  return plan_.channels -
         plan_.channels / ppn();  // a GPU beside its NIC is exit of every ppn-th ring
}

// A path through a piece of a ring (its full rounds, or its tail) either walks, every step being
// the next one of the same lane or a hop to the next member, or waits at one port. A path may
// change from one to the other between the two pieces.
struct Formula::Walk {
  double lane = 0;             // all steps of one lane
  double hops = 0;             // hops that a path may take instead of a step
  double local = 0;            // what a hop inside the domain costs more than the lane's step
  double crossing = 0;         // and one through the network
  double nvlink = 0, nic = 0;  // busy time of the ports
  double turns = 0, slices = 0;
  double bytes = 0;
};

Formula::Walk Formula::WalkOf(const Chunk& chunk, double rounds) const {
  Walk walk;
  if (chunk.slices == 0) return walk;
  const auto steps = static_cast<double>(model::RingSteps(plan_));
  const double own = LaneWork(chunk);
  const double work = Work(chunk.slice, model::kStreams);
  walk.lane = rounds * steps * own;
  walk.hops = rounds * (steps - 1);
  walk.local = work + Delay(box_.intra, chunk.slice) - own;
  walk.crossing = net() ? work + Delay(box_.inter, chunk.slice) - own : walk.local;
  walk.nvlink = walk.hops * NvlinkChannels() * Serial(box_.intra, chunk);
  walk.nic = net() ? walk.hops * NicChannels() * Serial(box_.inter, chunk) : 0;
  walk.slices = walk.hops * chunk.slices;
  walk.turns =
      walk.slices * (work + std::max(walk.crossing, ppn() > 1 ? walk.local : -1e18) + own + back());
  walk.bytes = rounds * steps * Bytes(chunk);
  return walk;
}

// The longest walk: one member's lane, or with one crossing, or with every crossing that lies on
// the way, every ppn-th hop, and between crossings hops only. `skew`: of what it hops behind;
// `offset`: hops before the first crossing.
double Formula::Longest(const Walk& walk, double skew, double offset) const {
  if (walk.hops == 0) return 0;
  const double local = std::max(0.0, walk.local);
  double more = -1e18;
  if (net()) {
    const double crossings = CeilDiv(std::max(0.0, walk.hops - offset), ppn());
    const double between = std::max(0.0, crossings - 1) * (ppn() - 1) + std::min(offset, walk.hops);
    const double rest = walk.hops - crossings - between;
    more = crossings * walk.crossing + between * walk.local + rest * local;
    if (offset == 0) {
      more = std::max(more, walk.crossing + std::min(walk.hops - 1, 2.0 * (ppn() - 1)) * local);
    }
  }
  if (ppn() > 1 || !net()) {
    const double most = net() ? std::min(walk.hops, ppn() - 1.0) : walk.hops;
    more = std::max(more, walk.local > 0 ? most * local : walk.local);
  }
  return walk.lane + std::max(0.0, more + skew);
}

// Channels that begin together stay in phase, unless those that are left keep the port busy while
// one of them is under way.
bool Formula::InPhase(const Chunk& chunk, const Edge& e, double channels) const {
  return (channels - 1) * Serial(e, chunk) <
         chunk.slices * Work(chunk.slice, model::kStreams) + Delay(e, chunk.slice);
}

// The same over both pieces. Where a path crosses in both, its hops between crossings are counted
// once through: what the first piece leaves undone the second one must walk before it crosses.
double Formula::Longest(const Walk& full, const Walk& tail, double skew) const {
  if (full.hops == 0 || tail.hops == 0) return Longest(full.hops > 0 ? full : tail, skew, 0);
  if (!net()) return Longest(full, skew, 0) + Longest(tail, 0, 0);
  const auto stay = [&](const Walk& w) {
    return w.lane + (ppn() > 1 ? std::min(w.hops, ppn() - 1.0) * std::max(0.0, w.local) : 0);
  };
  const double crossed = CeilDiv(full.hops, ppn());
  const double later = CeilDiv(full.hops + tail.hops, ppn()) - crossed;
  const double first = std::min(full.hops - crossed, crossed * (ppn() - 1));
  const double second = (crossed + later - 1) * (ppn() - 1) - first;
  const double both = full.lane + crossed * full.crossing + first * full.local +
                      (full.hops - crossed - first) * std::max(0.0, full.local) + tail.lane +
                      later * tail.crossing + second * tail.local +
                      std::max(0.0, tail.hops - later - second) * std::max(0.0, tail.local) + skew;
  return std::max({both, Longest(full, skew, 0) + stay(tail), stay(full) + Longest(tail, skew, 0)});
}

// First slices before which a second one goes. In general it stands behind those of all channels.
// But alone on their nodes, where it is ready before the last channel's first slice, channels drift
// apart until it only finds one message under way, on average in its middle.
double Formula::Passed(const Chunk& chunk, const Edge& e, double channels, double hops) const {
  const double ready =
      Work(chunk.slice, model::kStreams) / e.Serial(model::OnWire(plan_.protocol, chunk.slice));
  return hops == 1 && net() && ready < channels - 1 ? channels - std::max(1.0, ready) - 0.5 : 0;
}

// What a port waits at the end of a round for the next one to begin: the round's last slice must
// cross to the next member that sends through such a port, and be consumed there, before that
// member begins again. Meanwhile the port has the other channels' messages.
double Formula::Dry(const Chunk& chunk, const Edge& e, double channels, double hops) const {
  const double work = Work(chunk.slice, model::kStreams);
  const double serial = e.Serial(model::OnWire(plan_.protocol, chunk.slice));
  const double way = serial + e.latency + e.post + 2 * work +
                     (hops - 1) * (work + Delay(box_.intra, chunk.slice)) -
                     Passed(chunk, e, channels, hops) * (Serial(e, chunk) - serial);
  const double others = channels * serial * ((hops - 1) * chunk.slices + 1);
  return InPhase(chunk, e, channels) ? std::max(0.0, way - others) : 0;
}

// A piece at a port: its messages one after the other; or once round all members between two such
// ports as often as that fits, and the rest of the messages at the port.
double Formula::AtPort(const Chunk& chunk, double rounds, const Edge& e, double channels,
                       double hops) const {
  if (chunk.slices == 0 || channels == 0) return 0;
  const double sends = static_cast<double>(model::RingSteps(plan_)) - 1;
  const double step = channels * Serial(e, chunk);
  const double work = Work(chunk.slice, model::kStreams);
  const double serial = e.Serial(model::OnWire(plan_.protocol, chunk.slice));
  const double all = rounds * sends * step + (rounds - 1) * Dry(chunk, e, channels, hops);
  const double circle =
      serial + e.latency + e.post + work + (hops - 1) * (work + Delay(box_.intra, chunk.slice));
  const double circles = CeilDiv(rounds * sends, hops) - 1;
  const bool alone = InPhase(chunk, e, channels);
  const double turn = std::max(
      chunk.slices * work,
      alone ? (channels - Passed(chunk, e, channels, hops)) * (Serial(e, chunk) - serial) + work
            : 0);
  const double around =
      circles * circle + (rounds * sends - circles * hops) * step + (rounds - 1) * turn;
  // Drifting apart takes about a round a channel.
  const double drift = alone ? std::min(rounds - 1, channels) * Passed(chunk, e, channels, hops) *
                                   (Serial(e, chunk) - serial)
                             : 0;
  return std::max(all, around) + drift;
}

Terms Formula::Ring() const {
  const Chunk& first = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const Chunk& final = pieces_.tail.slices > 0 ? pieces_.tail : pieces_.full;
  const double rounds = static_cast<double>(pieces_.rounds);
  const Walk full = WalkOf(pieces_.full, rounds);
  const Walk tail = WalkOf(pieces_.tail, 1);
  const double enter = Work(first.slice, model::kStreams);
  const double leave = Work(final.last(), model::kStreams);
  const double skew = Skew(first);
  const bool both = full.hops > 0 && tail.hops > 0;
  double total = Longest(full, tail, skew);
  const auto port = [&](const Edge& e, double channels, double hops) {
    const double gap = e.post + e.latency;  // from the end of work to the port, and behind it
    const double in_full = rounds > 0 ? AtPort(pieces_.full, rounds, e, channels, hops) : 0;
    const double in_tail = AtPort(pieces_.tail, 1, e, channels, hops);
    if (in_full + in_tail <= 0) return;
    const double between = both ? Dry(pieces_.full, e, channels, hops) : 0;
    total = std::max(total, enter + gap + in_full + between + in_tail + leave);
    if (both) {
      // What left through the port has come to a member that is hops - 1 away from the next port.
      total = std::max(total, enter + gap + in_full + enter + Longest(tail, 0, hops - 1));
      total = std::max(total, Longest(full, 0, 0) + leave + gap + in_tail + leave);
    }
  };
  port(box_.intra, NvlinkChannels(), 1);
  if (net()) port(box_.inter, NicChannels(), ppn());
  const double slices = full.slices + tail.slices;
  const double turn = (full.turns + tail.turns) / slices;
  const Edge& often = ppn() > 1 || !net() ? box_.intra : box_.inter;
  const std::int64_t message = model::OnWire(plan_.protocol, first.slice);
  const double step = std::max({enter, (enter + Delay(often, first.slice)) / first.slices,
                                NvlinkChannels() * box_.intra.Serial(message),
                                net() ? NicChannels() * box_.inter.Serial(message) : 0});
  total = std::max(total, Credit(turn, slices, step));
  if (net() && full.hops + tail.hops > ppn()) {
    // Twice over the network, the rest on credits.
    const double twice = Delay(box_.inter, first.slice) +
                         (ppn() - 1) * Delay(box_.intra, first.slice) + ppn() * enter;
    total = std::max(total, twice + Credit(turn, slices - ppn() * first.slices, step));
  }
  Terms terms;
  terms.total = total;
  terms.transfer =
      std::max({full.bytes + tail.bytes, full.nvlink + tail.nvlink, full.nic + tail.nic});
  return terms;
}

}  // namespace orrery::collective
