// The plan as a formula. docs/collectives.md derives it; the names are that page's.
//
// Every lane is a max-plus recurrence: a step ends when the step before it and its message have
// come, plus its work. The longest path through such a pipeline is one of few shapes, each priced
// here:
//
// lane: one member does all its steps one after the other;
//
// chain: each step waits for its upstream's message;
//
// credit: a slice leaves only when the one `credits` before it has been consumed;
//
// port: a port moves the messages of all its channels one after the other.
#include <algorithm>
#include <bit>
#include <cmath>

#include "orrery/collective/all_to_all.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using model::Chunk;
using model::Edge;

struct Terms {
  double total = 0;     // without set-up
  double transfer = 0;  // of it, busy time of the bottleneck
};

// Two bounds of nearly the same size hinder each other: messages that find the port taken come late
// to lanes that have no slack. The 16-norm adds 4 % where they are equal and nothing where one is
// far below.
double Together(double a, double b) {
  const double larger = std::max(a, b);
  const double ratio = std::min(a, b) / larger;
  double power = ratio;
  for (int i = 0; i < 4; ++i) power *= power;
  double root = 1 + power;
  for (int i = 0; i < 4; ++i) root = std::sqrt(root);
  return larger * root;
}

double CeilDiv(double a, double b) {
  return static_cast<double>((static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b) - 1) /
                             static_cast<std::int64_t>(b));
}

class Formula {
 public:
  Formula(const Plan& plan, const cluster::Spec& spec)
      : plan_(plan), box_(model::MakeWhiteBox(plan, spec)), pieces_(model::Cut(plan)) {}

  Terms Ring() const;
  Terms Chain() const;
  Terms PointToPoint() const;
  Terms Tree() const;
  double setup() const { return box_.setup; }
  PortBytes Ports() const;

 private:
  double Work(std::int64_t data, int streams) const {
    return box_.sync + static_cast<double>(data) * box_.per_byte * streams;
  }
  double LaneWork(const Chunk& chunk) const {
    return chunk.slices * box_.sync +
           static_cast<double>(chunk.bytes) * box_.per_byte * model::kStreams;
  }
  double Bytes(const Chunk& chunk) const {
    return static_cast<double>(chunk.bytes) * box_.per_byte * model::kStreams;
  }
  double Delay(const Edge& edge, std::int64_t data) const {
    return edge.Delay(model::OnWire(plan_.protocol, data));
  }
  double Serial(const Edge& edge, const Chunk& chunk) const {
    if (chunk.slices == 0) return 0;
    return (chunk.slices - 1) * edge.Serial(model::OnWire(plan_.protocol, chunk.slice)) +
           edge.Serial(model::OnWire(plan_.protocol, chunk.last()));
  }
  // All members begin at once: the last of a port's channels starts this much behind the first.
  double Skew(const Chunk& chunk) const {
    const std::int64_t message = model::OnWire(plan_.protocol, chunk.slice);
    return std::max(std::max(0.0, NvlinkChannels() - 1) * box_.intra.Serial(message),
                    net() ? (NicChannels() - 1) * box_.inter.Serial(message) : 0);
  }
  // A broadcast's root inside its domain sends round the ring and back into the domain.
  double ChainCrossings() const {
    if (!net()) return 0;
    const bool straight = ppn() == 1 || plan_.channels == 1;
    return plan_.shape.domains - (straight ? 1 : 0);
  }
  // A credit's way back.
  double back() const { return net() ? box_.inter.latency : box_.intra.latency; }
  // `slices` through one connection, each of which takes `turn` to give its credit back.
  double Credit(double turn, double slices, double work) const {
    const auto last = static_cast<std::int64_t>(slices) - 1;
    if (last < plan_.credits) return turn - back();
    return static_cast<double>(last / plan_.credits + 1) * turn - back() +
           static_cast<double>(last % plan_.credits) * std::max(work, turn / plan_.credits);
  }
  int ppn() const { return plan_.shape.ranks_per_domain; }
  bool net() const { return plan_.shape.domains > 1; }
  // Channels that the busiest GPU sends over NVLink, and those of the busiest NIC.
  double NvlinkChannels() const;
  double NicChannels() const { return CeilDiv(plan_.channels, std::max(1, plan_.shape.nics)); }
  double TreeFill(const Chunk& chunk) const;
  template <class Way>
  Terms Stream(double nvlink_channels, double nic_channels, double hops, Way way_of,
               double saved) const;

  const Plan& plan_;
  model::WhiteBox box_;
  model::Pieces pieces_;
};

double Formula::NvlinkChannels() const {
  if (ppn() == 1) return 0;
  if (!net() || plan_.shape.nics < ppn()) return plan_.channels;
  return plan_.channels -
         plan_.channels / ppn();  // a GPU beside its NIC is exit of every ppn-th ring
}

Terms Formula::Ring() const {
  const auto steps = static_cast<double>(model::RingSteps(plan_));
  const double sends = steps - 1;
  const auto rounds = static_cast<double>(pieces_.rounds);
  const bool tail = pieces_.tail.slices > 0;
  // Crossings of the network on the longest path: every ppn-th edge of a ring.
  const double all_sends = (rounds + (tail ? 1 : 0)) * sends;
  const double crossings = net() ? CeilDiv(all_sends, ppn()) : 0;
  double lane = 0, chain = 0, nvlink = 0, nic = 0, credit = 0, slices = 0, bytes = 0, jump = -1e18,
         dry = 0;
  const auto add = [&](const Chunk& chunk, double times) {
    const double own = LaneWork(chunk);
    const double step = Work(chunk.slice, model::kStreams);
    const double crossed = crossings * (times * sends / all_sends);
    const double intra = Delay(box_.intra, chunk.slice);
    const double inter = net() ? Delay(box_.inter, chunk.slice) : 0;
    const double slowest = std::max(inter, intra);
    lane += times * steps * own;
    chain += times * (sends * step + own) + crossed * inter + (times * sends - crossed) * intra;
    nvlink += times * sends * NvlinkChannels() * Serial(box_.intra, chunk);
    const double busy = sends * NicChannels() * Serial(box_.inter, chunk);
    const double serial = box_.inter.Serial(model::OnWire(plan_.protocol, chunk.slice));
    nic += times * busy;
    // Alone on their nodes, all members turn to the next round at once: their ports run dry
    // meanwhile.
    dry += times * std::max(busy, 2 * step + inter + busy - NicChannels() * serial);
    credit += times * sends * chunk.slices * (2 * step + slowest + back());
    slices += times * sends * chunk.slices;
    bytes += times * steps * Bytes(chunk);
    // One crossing on a path that otherwise stays on its lane.
    jump = std::max(jump, step + slowest + Skew(chunk) - own);
  };
  if (rounds > 0) add(pieces_.full, rounds);
  if (tail) add(pieces_.tail, 1);
  const Chunk& first = rounds > 0 ? pieces_.full : pieces_.tail;
  if (!net()) nic = 0;
  const std::int64_t last = (tail ? pieces_.tail : pieces_.full).last();
  const double edge = Work(first.slice, model::kStreams);
  const double end = Work(last, model::kStreams);
  if (net() && ppn() == 1 && plan_.channels == 2) {
    nic = std::max(nic, dry - 2 * edge - Delay(box_.inter, first.slice) +
                            box_.inter.Serial(model::OnWire(plan_.protocol, first.slice)));
  }
  const double turn = credit / slices;
  double credits = Credit(turn, slices, lane * sends / (slices * steps));
  if (net() && all_sends > ppn()) {
    // Twice over the network, the rest on credits.
    credits = std::max(credits, Delay(box_.inter, first.slice) +
                                    (ppn() - 1) * Delay(box_.intra, first.slice) + ppn() * edge +
                                    Credit(turn, slices - ppn() * first.slices, edge));
  }
  const auto leave = [&](const Edge& e) {  // the last message behind its port
    return edge + end + Delay(e, last) - e.Serial(model::OnWire(plan_.protocol, last));
  };
  const double alone = std::max({lane + std::max(0.0, jump), chain + Skew(first), credits});
  const double port =
      std::max(nvlink > 0 ? nvlink + leave(box_.intra) : 0, nic > 0 ? nic + leave(box_.inter) : 0);
  Terms terms;
  terms.total = Together(alone, port);
  terms.transfer = std::max({bytes, nvlink, nic});
  return terms;
}

// Broadcast: the ring cut open at the root.
Terms Formula::Chain() const {
  const double hops = plan_.shape.ranks - 1;
  const double crossings = ChainCrossings();
  const auto way = [&](std::int64_t data) {
    return crossings * (net() ? Delay(box_.inter, data) : 0) + hops * Work(data, model::kStreams) +
           std::max(0.0, hops - crossings) * Delay(box_.intra, data);
  };
  const double nvlink_channels = ppn() > 1 ? plan_.channels : 0;
  return Stream(nvlink_channels, net() ? NicChannels() : 0, hops, way, 0);
}

// One hop. Over NVLink the sender writes into the receiver's buffer: the receiver only takes note.
Terms Formula::PointToPoint() const {
  const Edge& edge = net() ? box_.inter : box_.intra;
  const auto receive = [&](std::int64_t data) {
    return net() ? Work(data, model::kStreams) : box_.sync;
  };
  const auto way = [&](std::int64_t data) { return Delay(edge, data) + receive(data); };
  const std::int64_t slice = (pieces_.rounds > 0 ? pieces_.full : pieces_.tail).slice;
  const double saved = Work(slice, model::kStreams) - receive(slice);
  return Stream(net() ? 0 : plan_.channels, net() ? plan_.channels : 0, 1, way, saved);
}

// Chunks one after the other through `hops` connections, `way` from the first one's end of work on
// to the last member's end, less than its own lane; `saved` of each work of the last member.
template <class Way>
Terms Formula::Stream(double nvlink_channels, double nic_channels, double hops, Way way_of,
                      double saved) const {
  const auto rounds = static_cast<double>(pieces_.rounds);
  const Edge& edge = net() ? box_.inter : box_.intra;
  double lane = 0, nvlink = 0, nic = 0, credit = 0, slices = 0, bytes = 0;
  const auto add = [&](const Chunk& chunk, double times) {
    lane += times * LaneWork(chunk);
    nvlink += times * nvlink_channels * Serial(box_.intra, chunk);
    nic += times * nic_channels * Serial(box_.inter, chunk);
    credit += times * chunk.slices *
              (2 * Work(chunk.slice, model::kStreams) - saved + Delay(edge, chunk.slice) + back());
    slices += times * chunk.slices;
    bytes += times * Bytes(chunk);
  };
  if (rounds > 0) add(pieces_.full, rounds);
  if (pieces_.tail.slices > 0) add(pieces_.tail, 1);
  const std::int64_t slice = (rounds > 0 ? pieces_.full : pieces_.tail).slice;
  const double work = Work(slice, model::kStreams);
  const double way = way_of(slice);
  // Behind the first hop a smaller last chunk waits for the full one before it.
  const double last =
      hops > 1 ? way : way_of((pieces_.tail.slices > 0 ? pieces_.tail : pieces_.full).last());
  const double hop = 2 * work - saved + Delay(edge, slice);
  const double nvlink_serial = box_.intra.Serial(model::OnWire(plan_.protocol, slice));
  const double nic_serial = box_.inter.Serial(model::OnWire(plan_.protocol, slice));
  const double queue = std::max(std::max(0.0, nvlink_channels - 1) * nvlink_serial,
                                std::max(0.0, nic_channels - 1) * nic_serial);
  Terms terms;
  terms.total = std::max({lane + way + queue,
                          Credit(credit / slices, slices, lane / slices) + way - hop + work,
                          nvlink_channels > 0 ? work + nvlink - nvlink_serial + last : 0,
                          nic_channels > 0 ? work + nic - nic_serial + last : 0});
  terms.transfer = std::max({bytes, nvlink, nic});
  return terms;
}

// See lowering.cc for the same steps: a lane's work per chunk, in streams.
Terms Formula::Tree() const {
  const int domains = plan_.shape.domains;
  const double channels = plan_.channels;
  const int local = ppn() > 1 ? 1 : 0;
  const int root = local + (net() ? 1 : 0);
  const int children = domains >= 4 ? 2 : domains >= 2 ? 1 : 0;  // of an inner head, through NICs
  const double extra = std::max({0, 2 * (root - 1), local + children - 1});
  // NVLink messages per chunk of the busiest GPU, both ways: two a channel but one where it is head
  // or tail of the chain. One way: half of it.
  double ends = 0;
  if (plan_.shape.nics >= ppn())
    ends = 2 * (plan_.channels / ppn());
  else if (2 * plan_.shape.nics == ppn())
    ends = plan_.channels / plan_.shape.nics;
  const double nvlink_messages = local == 0 ? 0 : ppn() == 2 ? channels : 2 * channels - ends;
  // NIC messages per chunk: tree 1 and tree 2 of the channels at one NIC.
  const double nics = std::max(1, plan_.shape.nics);
  const double first = net() ? CeilDiv(CeilDiv(channels, 2), nics) : 0;
  const double second = net() ? std::max(0.0, NicChannels() - first) : 0;
  const double inner = domains == 2 ? 1 : 1 + children;
  const double nic_messages = inner * first + second;
  const double nic_one_way = std::max(children * first, domains == 2 ? second : first + second);
  double lane = 0, nvlink = 0, nic = 0, bytes = 0, turns = 0, chunks = 0, first_way = 0;
  const auto add = [&](const Chunk& chunk, double times) {
    const double stream = static_cast<double>(chunk.bytes) * box_.per_byte;
    const double work = Work(chunk.bytes, model::kStreams) + extra * stream;
    const double slowest = net() ? Delay(box_.inter, chunk.bytes) : Delay(box_.intra, chunk.bytes);
    const double nvlink_serial = Serial(box_.intra, chunk);
    const double nic_serial = net() ? Serial(box_.inter, chunk) : 0;
    const double step = std::max(work, nic_one_way * nic_serial);
    turns += times * (2 * work + slowest + back());
    chunks += times;
    if (first_way == 0) first_way = step;
    lane += times * step;

    nvlink += times * nvlink_messages * nvlink_serial;
    nic += times * nic_messages * nic_serial;
    bytes += times * (work - box_.sync);
  };
  if (pieces_.rounds > 0) add(pieces_.full, static_cast<double>(pieces_.rounds));
  if (pieces_.tail.slices > 0) add(pieces_.tail, 1);
  const Chunk& chunk = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const double work = Work(chunk.bytes, model::kStreams);
  const double hop = Delay(box_.intra, chunk.bytes) + work;
  const double up = (ppn() - 1) * (local != 0 ? hop : 0);
  const double edge = net() ? Delay(box_.inter, chunk.bytes) + work : 0;
  Terms terms;
  const int levels = std::bit_width(static_cast<unsigned>(domains - 1));
  // A GPU's place in the chain differs by channel: its port fills and empties over half the chain.
  const double port = std::max(local != 0 ? nvlink + std::max(2.0, 0.8 * (ppn() - 1)) * hop : 0,
                               net() ? nic + 2 * up + std::max(1.0, 1.9 * (levels - 1)) * edge : 0);
  const double fill = TreeFill(chunk);
  const double credit = Credit(turns / chunks, chunks, work) - turns / chunks + back();
  terms.total = Together(fill + std::max(lane - first_way, credit), port);
  terms.transfer = std::min(terms.total, std::max({bytes, nvlink, nic}));
  return terms;
}

// From the first step to the end of the first chunk: up the chain of the deepest domain, up the
// tree, and down the same way. The channels that start at one GPU queue at its port once.
double Formula::TreeFill(const Chunk& chunk) const {
  const double step = Work(chunk.bytes, model::kStreams);
  const double stream = static_cast<double>(chunk.bytes) * box_.per_byte;
  const double intra = ppn() > 1 ? (ppn() - 1) * (Delay(box_.intra, chunk.bytes) + step) : 0;
  double fill = step + 2 * intra;
  if (net()) {
    const int levels = std::bit_width(static_cast<unsigned>(plan_.shape.domains - 1));
    const double edge = Delay(box_.inter, chunk.bytes) + step;
    fill += 2 * (levels * edge + (levels - 1) * stream);
    // Two children's messages meet at their parent's NIC: all channels' at the first level, spread
    // out from then on, up and down.
    if (plan_.shape.domains >= 4) {
      const double serial = Serial(box_.inter, chunk);
      fill +=
          (2 * CeilDiv(CeilDiv(plan_.channels, 2), std::max(1, plan_.shape.nics)) - 1) * serial +
          (2 * levels - 3) * std::max(0.0, serial - stream);
    }
  }
  const double together = NicChannels() - 1;
  const double beside = plan_.shape.domains < 4 ? CeilDiv(NicChannels(), 2) - 1 : 0;
  const double queue = net() ? beside * Serial(box_.inter, chunk) : 0;
  return fill + std::max(queue, ppn() > 1 ? together * Serial(box_.intra, chunk) : 0);
}

PortBytes Formula::Ports() const {
  const double ranks = plan_.shape.ranks;
  const double domains = plan_.shape.domains;
  const std::int64_t message = model::OnWire(plan_.protocol, pieces_.share);
  const double nvlink = static_cast<double>(box_.intra.Wire(message)) * plan_.channels;
  const double nic = net() ? static_cast<double>(box_.inter.Wire(message)) * plan_.channels : 0;
  PortBytes ports;
  if (plan_.algorithm == Algorithm::kPointToPoint) {
    ports.nvlink_out = ports.nvlink_in = net() ? 0 : static_cast<std::int64_t>(nvlink);
    ports.nic_out = ports.nic_in = static_cast<std::int64_t>(nic);
    return ports;
  }
  double intra = 0, inter = 0;  // copies of the share that a member sends on average
  if (plan_.algorithm == Algorithm::kTree) {
    intra = 2 * (ranks - domains) / ranks;
    inter = 2 * (domains - 1) / ranks;
  } else {
    // Rotating: R edges, each of which carries `copies`; a broadcast is a chain of R - 1.
    const bool rotating = model::IsRotating(plan_.collective);
    const double copies = rotating ? static_cast<double>(model::RingSteps(plan_) - 1) / ranks : 1;
    const double crossings = !net() ? 0 : rotating ? domains : ChainCrossings();
    const double edges = ranks - (rotating ? 0 : 1);
    intra = copies * (edges - crossings) / ranks;
    inter = copies * crossings / ranks;
  }
  ports.nvlink_out = ports.nvlink_in = static_cast<std::int64_t>(nvlink * intra);
  ports.nic_out = ports.nic_in = static_cast<std::int64_t>(nic * inter);
  return ports;
}

}  // namespace

Cost Planner::ClosedForm(const Plan& plan) const {
  Cost cost;
  if (plan.shape.ranks < 2) return cost;
  if (plan.collective == Collective::kAllToAll) return AllToAllCost(plan, cluster_->spec());
  const Formula formula(plan, cluster_->spec());
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(formula.setup());
    return cost;
  }
  const bool rotating = plan.algorithm == Algorithm::kRing && model::IsRotating(plan.collective);
  const Terms terms = plan.algorithm == Algorithm::kTree           ? formula.Tree()
                      : plan.algorithm == Algorithm::kPointToPoint ? formula.PointToPoint()
                      : rotating                                   ? formula.Ring()
                                                                   : formula.Chain();
  cost.transfer = RoundToPs(terms.transfer);
  cost.fixed = RoundToPs(formula.setup() + terms.total) - cost.transfer;
  cost.member = formula.Ports();
  return cost;
}

}  // namespace orrery::collective
