// Rings that rotate: all-reduce, all-gather, reduce-scatter (formula.h).
#include "orrery/collective/formula/formula.h"

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
  double wrap = 0;             // what the crossing that closes the ring takes more than others
  double nvlink = 0, nic = 0;  // busy time of the ports
  double turns = 0, slices = 0;
  double bytes = 0;
  double last = 0;  // the same as `local`, of the last hop: its step receives only
};

Formula::Walk Formula::WalkOf(const Chunk& chunk, double rounds) const {
  Walk walk;
  if (chunk.slices == 0) return walk;
  const auto steps = static_cast<double>(model::RingSteps(plan_));
  const double own = LaneWork(chunk);
  const double work = Work(chunk.slice, model::kStreams);
  walk.lane = rounds * (steps * own - (1 - receives_) * Bytes(chunk));
  walk.hops = rounds * (steps - 1);
  walk.local = work + Delay(box_.intra, chunk.slice) - own;
  walk.last = walk.local;
  if (receives_ < 1) {
    walk.last = Delay(box_.intra, chunk.last()) -
                (chunk.slices - 1) * Work(chunk.slice, receives_ * model::kStreams);
  }
  walk.crossing = net() ? work + Delay(box_.inter, chunk.slice) - own : walk.local;
  walk.wrap = Wrap(chunk);
  walk.nvlink = walk.hops * NvlinkChannels() * Serial(box_.intra, chunk);
  walk.nic = net() ? walk.hops * NicChannels() * Serial(box_.inter, chunk) : 0;
  walk.slices = walk.hops * chunk.slices;
  walk.turns =
      walk.slices * (work + std::max(walk.crossing, ppn() > 1 ? walk.local : -1e18) + own + back());
  if (net()) walk.turns += walk.slices * (walk.wrap + box_.wrap.latency - box_.inter.latency);
  walk.bytes = rounds * steps * Bytes(chunk);
  return walk;
}

// How long the crossing that closes the ring takes more than the others: it may leave its rail.
double Formula::Wrap(const Chunk& chunk) const {
  return net() ? Delay(box_.wrap, chunk.slice) - Delay(box_.inter, chunk.slice) : 0;
}

// Of so many crossings one after the other, those that close the ring.
double Formula::Wraps(double crossings) const { return CeilDiv(crossings, plan_.shape.domains); }

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
    more = crossings * walk.crossing + Wraps(crossings) * walk.wrap + between * walk.local +
           rest * local;
    if (offset == 0) {
      more = std::max(
          more, walk.crossing + walk.wrap + std::min(walk.hops - 1, 2.0 * (ppn() - 1)) * local);
    }
  }
  if (ppn() > 1 || !net()) {
    const double most = net() ? std::min(walk.hops, ppn() - 1.0) : walk.hops;
    more = std::max(more, walk.local > 0 ? most * local : walk.last);
  }
  return walk.lane + std::max(0.0, more + skew);
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
                      later * tail.crossing + Wraps(crossed + later) * tail.wrap +
                      second * tail.local +
                      std::max(0.0, tail.hops - later - second) * std::max(0.0, tail.local) + skew;
  return std::max({both, Longest(full, skew, 0) + stay(tail), stay(full) + Longest(tail, skew, 0)});
}

// Where the messages of `channels` go through one port of each GPU that has it, every `hops`th of a
// ring.
struct Formula::Port {
  const Edge& edge;
  double channels = 0, hops = 1;
  bool nic = false;
};

// Channels that begin together stay in phase, unless those that are left keep the port busy while
// one of them is under way.
bool Formula::InPhase(const Chunk& chunk, const Port& port) const {
  return (port.channels - 1) * Serial(port.edge, chunk) <
         chunk.slices * Work(chunk.slice, model::kStreams) + Delay(port.edge, chunk.slice);
}

// A first slice at the port.
double Formula::First(const Chunk& chunk, const Port& port) const {
  return port.edge.Serial(model::OnWire(plan_.protocol, chunk.slice));
}

// First slices before which a second one goes. In general it stands behind those of all channels.
// But alone on their nodes, where it is ready before the last channel's first slice, channels drift
// apart until it only finds one message under way, on average in its middle.
double Formula::Passed(const Chunk& chunk, const Port& port) const {
  const double ready = Work(chunk.slice, model::kStreams) / First(chunk, port);
  return port.hops == 1 && port.nic && ready < port.channels - 1
             ? port.channels - std::max(1.0, ready) - 0.5
             : 0;
}

// What a port waits at the end of a round for the next one to begin: the round's last slice must
// cross to the next member that sends through such a port (`more`: what this crossing takes more
// than others), and be consumed there, before that member begins again. Meanwhile the port has the
// other channels' messages. At the end of the `first` round no channel has drifted.
double Formula::Dry(const Chunk& chunk, const Port& port, double more, bool first) const {
  if (!first && !InPhase(chunk, port)) return 0;
  const double serial = First(chunk, port);
  const double passed = first ? 0 : Passed(chunk, port);
  const double way = Circle(chunk, port) + more + Work(chunk.slice, model::kStreams) -
                     passed * (Serial(port.edge, chunk) - serial);
  const double others = port.channels * serial * ((port.hops - 1) * chunk.slices + 1);
  return std::max(0.0, way - others);
}

// All rounds' waits: the ring is closed by every domains-th of the crossings between them.
double Formula::Dries(const Chunk& chunk, double rounds, const Port& port) const {
  if (rounds < 2) return 0;
  if (!InPhase(chunk, port)) return Dry(chunk, port, 0, true);
  const double dry = Dry(chunk, port, 0, false);
  if (!port.nic) return (rounds - 1) * dry;
  return (rounds - 1) * dry + Wraps(rounds - 1) * (Dry(chunk, port, Wrap(chunk), false) - dry);
}

// From a port once round to the next one: the message, and the members between.
double Formula::Circle(const Chunk& chunk, const Port& port) const {
  const double work = Work(chunk.slice, model::kStreams);
  return First(chunk, port) + port.edge.latency + port.edge.post + work +
         (port.hops - 1) * (work + Delay(box_.intra, chunk.slice));
}

// What a port waits within its rows (all channels' slices of a step) from the second round on.
// Where it has run dry, channels begin again one after the other, and a second slice that is ready
// before the last channel's first one keeps its place before it. Then it may come late: once round
// to the next port with a first slice, the second one's work, and the rest of the row.
double Formula::Late(const Chunk& chunk, double rounds, const Port& port) const {
  const double work = Work(chunk.slice, model::kStreams);
  const double ready = work / First(chunk, port);
  const bool keeps = port.nic && port.hops > 1 && chunk.slices == 2 && ready < port.channels - 1;
  if (!keeps || rounds < 2 || Dry(chunk, port, 0, false) == 0) return 0;
  const double left = 2 * port.channels - std::max(1.0, Whole(ready));
  const double rows = port.hops + 1;
  const double late = Circle(chunk, port) + work + left * First(chunk, port) -
                      rows * port.channels * Serial(port.edge, chunk);
  return std::max(0.0, late) * (rounds - 1) * Sends() / rows;
}

// A piece at a port: its messages one after the other; or once round all members between two such
// ports as often as that fits, and the rest of the messages at the port.
double Formula::AtPort(const Chunk& chunk, double rounds, const Port& port) const {
  if (chunk.slices == 0 || port.channels == 0) return 0;
  const double step = port.channels * Serial(port.edge, chunk);
  const double second = Serial(port.edge, chunk) - First(chunk, port);
  const double work = Work(chunk.slice, model::kStreams);
  const double all =
      rounds * Sends() * step + Dries(chunk, rounds, port) + Late(chunk, rounds, port);
  const double circles = CeilDiv(rounds * Sends(), port.hops) - 1;
  const bool alone = InPhase(chunk, port);
  const double passed = alone ? Passed(chunk, port) : 0;
  const double turn =
      std::max(chunk.slices * work, alone ? (port.channels - passed) * second + work : 0);
  const double around = circles * Circle(chunk, port) +
                        (port.nic ? Wraps(circles) * Wrap(chunk) : 0) +
                        (rounds * Sends() - circles * port.hops) * step + (rounds - 1) * turn;
  // Drifting apart takes about a round a channel.
  return std::max(all, around) + std::min(rounds - 1, port.channels) * passed * second;
}

// Domain by domain over the network, for some of the way, and the rest on credits of the slowest
// crossing. A path takes either as often as it fits, or a few times less where what is left over
// then takes credits in place of short hops; full rounds by credits and the tail over the network.
double Formula::WalkAndCredits(const Walk& full, const Walk& tail, double step) const {
  const auto domain = [&](const Chunk& chunk) {
    return ppn() * Work(chunk.slice, model::kStreams) + Delay(box_.inter, chunk.slice) +
           (ppn() - 1) * Delay(box_.intra, chunk.slice);
  };
  const auto time = [&](double in_full, double in_tail) {
    if (in_full < 0 || in_tail < 0 || in_full + in_tail < 1) return 0.0;
    const double full_left = full.slices - in_full * ppn() * pieces_.full.slices;
    const double tail_left = tail.slices - in_tail * ppn() * pieces_.tail.slices;
    const double left = full_left + tail_left;
    double walked =
        Whole((in_full + in_tail) / plan_.shape.domains) * std::max(full.wrap, tail.wrap);
    if (in_full > 0) {
      walked += in_full * domain(pieces_.full) +
                Whole(in_full * ppn() / Sends()) * LaneWork(pieces_.full);
    }
    if (in_tail > 0) walked += in_tail * domain(pieces_.tail);
    if (left < 1) return walked;
    const double turns = (full_left > 0 ? full_left * full.turns / full.slices : 0) +
                         (tail_left > 0 ? tail_left * tail.turns / tail.slices : 0);
    return walked + Credit(turns / left, left, step);
  };
  const double most_full = Whole(full.hops / ppn()), most_tail = Whole(tail.hops / ppn());
  double longest = 0;
  for (const double x : {0.0, most_full - 1, most_full}) {
    for (const double y : {0.0, most_tail - 2, most_tail - 1, most_tail}) {
      longest = std::max(longest, time(x, y));
    }
  }
  return longest;
}

// While channels are in step (WhiteBox::in_step), their first round takes what it takes alone by
// the slower lanes.
Terms Formula::Ring() const {
  Terms terms = RingApart();
  if (box_.in_step <= 1 || pieces_.share == 0) return terms;
  Formula first = *this;
  if (pieces_.rounds > 0) {
    first.pieces_.rounds = 1;
    first.pieces_.tail = {};
  }
  const double apart = first.RingApart().total;
  first.box_.per_byte *= box_.in_step;
  first.receives_ = 1 / box_.in_step;
  terms.total += std::max(0.0, first.RingApart().total - apart);
  // Then the links wait for the next round's first slices.
  const Chunk& next = pieces_.rounds > 1 ? pieces_.full : pieces_.tail;
  if (pieces_.rounds > 0 && next.slices > 0) {
    const double wait = Work(next.slice, model::kStreams) + box_.intra.post + box_.intra.latency;
    terms.total += ppn() > 2 ? wait : wait / 2;  // sends every other step
  }
  return terms;
}

Terms Formula::RingApart() const {
  const Chunk& first = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const Chunk& final = pieces_.tail.slices > 0 ? pieces_.tail : pieces_.full;
  const double rounds = static_cast<double>(pieces_.rounds);
  const Walk full = WalkOf(pieces_.full, rounds);
  const Walk tail = WalkOf(pieces_.tail, 1);
  const double enter = Work(first.slice, model::kStreams);
  const double leave = Work(final.last(), receives_ * model::kStreams);
  const double skew = Skew(first);
  const bool both = full.hops > 0 && tail.hops > 0;
  double total = Longest(full, tail, skew);
  const auto at = [&](const Port& port) {
    // From the end of work to the port, and behind it.
    const double gap = port.edge.post + (port.nic ? box_.wrap.latency : port.edge.latency);
    const double in_full = rounds > 0 ? AtPort(pieces_.full, rounds, port) : 0;
    const double in_tail = AtPort(pieces_.tail, 1, port);
    if (in_full + in_tail <= 0) return;
    const double between = both ? Dry(pieces_.full, port, 0, rounds == 1) : 0;
    total = std::max(total, enter + gap + in_full + between + in_tail + leave);
    if (both) {
      // What left through the port has come to a member that is hops - 1 away from the next port.
      total = std::max(total, enter + gap + in_full + enter + Longest(tail, 0, port.hops - 1));
      total = std::max(total, Longest(full, 0, 0) + leave + gap + in_tail + leave);
    }
  };
  at({box_.intra, NvlinkChannels(), 1, false});
  if (net()) at({box_.inter, NicChannels(), static_cast<double>(ppn()), true});
  const double slices = full.slices + tail.slices;
  const Edge& often = ppn() > 1 || !net() ? box_.intra : box_.inter;
  const double step = std::max({LaneWork(first), enter + Delay(often, first.slice),
                                NvlinkChannels() * Serial(box_.intra, first),
                                net() ? NicChannels() * Serial(box_.inter, first) : 0}) /
                      first.slices;
  // The last of a NIC's channels stands behind the others once: then they come apart.
  const double behind =
      net() ? (NicChannels() - 1) * box_.inter.Serial(model::OnWire(plan_.protocol, first.slice))
            : 0;
  total = std::max(total, behind + Credit((full.turns + tail.turns) / slices, slices, step));
  if (net() && full.hops + tail.hops > ppn()) {
    total = std::max(total, WalkAndCredits(full, tail, step));
  }
  // In one domain, from the second round on.
  if (!net() && rounds > 1) {
    const double apart = std::max(full.lane, full.nvlink);
    const double together = ppn() > 2 ? InLine(full.lane, full.nvlink)
                                      : Together(full.lane, full.nvlink);  // sends every other step
    total += (together - apart) * (rounds - 1) / rounds;
  }
  Terms terms;
  terms.total = total;
  terms.transfer =
      std::max({full.bytes + tail.bytes, full.nvlink + tail.nvlink, full.nic + tail.nic});
  return terms;
}

}  // namespace orrery::collective
