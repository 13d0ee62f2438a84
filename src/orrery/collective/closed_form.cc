// The plan as a formula. docs/collectives.md derives it; names follow that page.
//
// Every lane is a max-plus recurrence: a step ends when the step before it and its message have
// come, plus its work. The longest path through such a pipeline is one of few shapes, priced here
// one by one:
//   lane   one member does all its steps one after the other;
//   chain  each step waits for its upstream's message: latency bound, once around the ring per R -
//   1; port   a port moves the messages of all channels one after the other; credit a slice leaves
//   only when the one `credits` before it has been consumed.
#include <algorithm>
#include <bit>

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

double CeilDiv(double a, double b) {
  return static_cast<double>((static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b) - 1) /
                             static_cast<std::int64_t>(b));
}

class Formula {
 public:
  Formula(const Plan& plan, const cluster::Spec& spec)
      : plan_(plan), box_(model::MakeWhiteBox(plan, spec)), pieces_(model::Cut(plan)) {}

  Terms Ring() const;
  Terms Chain() const;  // broadcast, send/recv
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
  int ppn() const { return plan_.shape.ranks_per_domain; }
  bool net() const { return plan_.shape.domains > 1; }
  // Channels that the busiest GPU sends over NVLink, and those of the busiest NIC.
  double NvlinkChannels() const;
  double NicChannels() const { return CeilDiv(plan_.channels, std::max(1, plan_.shape.nics)); }
  double TreePeriod(const Chunk& chunk) const;
  double TreePorts(const Chunk& chunk) const;
  double TreeFill(const Chunk& chunk) const;

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
  const double crossings = net() ? CeilDiv((rounds + (tail ? 1 : 0)) * sends, ppn()) : 0;
  const double all_sends = (rounds + (tail ? 1 : 0)) * sends;
  double lane = 0, chain = 0, nvlink = 0, nic = 0, bytes = 0, jump = 0;
  const auto add = [&](const Chunk& chunk, double times) {
    const double own = LaneWork(chunk);
    const double step = Work(chunk.slice, model::kStreams);
    const double crossed = crossings * (times * sends / all_sends);
    const double intra = Delay(box_.intra, chunk.slice);
    const double inter = net() ? Delay(box_.inter, chunk.slice) : 0;
    lane += times * steps * own;
    chain += times * (sends * step + own) + crossed * inter + (times * sends - crossed) * intra;
    nvlink += times * sends * NvlinkChannels() * Serial(box_.intra, chunk);
    nic += times * sends * NicChannels() * Serial(box_.inter, chunk);
    bytes += times * steps * Bytes(chunk);
    // One crossing on a path that otherwise stays on its lane.
    jump = std::max(jump, step + std::max(inter, intra) - own);
  };
  if (rounds > 0) add(pieces_.full, rounds);
  if (tail) add(pieces_.tail, 1);
  const Chunk& first = rounds > 0 ? pieces_.full : pieces_.tail;
  if (!net()) nic = 0;
  const double edge = Work(first.slice, model::kStreams);
  const double skew = (NvlinkChannels() > 0 ? NvlinkChannels() - 1 : 0) *
                      box_.intra.Serial(model::OnWire(plan_.protocol, first.slice));
  Terms terms;
  terms.total = std::max({lane + std::max(0.0, jump), chain + skew,
                          nvlink + 2 * edge + Delay(box_.intra, first.slice),
                          nic > 0 ? nic + 2 * edge + Delay(box_.inter, first.slice) : 0});
  terms.transfer = std::max({bytes, nvlink, nic});
  return terms;
}

Terms Formula::Chain() const {
  const auto rounds = static_cast<double>(pieces_.rounds);
  const double hops = plan_.algorithm == Algorithm::kPointToPoint ? 1 : plan_.shape.ranks - 1;
  const double crossings = net() ? plan_.shape.domains - 1 : 0;
  const Chunk& first = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const bool p2p = plan_.algorithm == Algorithm::kPointToPoint;
  const double nvlink_channels = ppn() > 1 ? plan_.channels : 0;
  const double nic_channels = net() ? (p2p ? plan_.channels : NicChannels()) : 0;
  const auto period = [&](const Chunk& chunk, double* transfer) {
    if (chunk.slices == 0) return 0.0;
    const double work = Work(chunk.slice, model::kStreams);
    const double slowest = net() ? Delay(box_.inter, chunk.slice) : Delay(box_.intra, chunk.slice);
    const double ports = std::max(nvlink_channels * Serial(box_.intra, chunk),
                                  nic_channels * Serial(box_.inter, chunk));
    *transfer = std::max(Bytes(chunk), ports);
    return std::max({LaneWork(chunk), ports, chunk.slices * (2 * work + slowest) / plan_.credits});
  };
  double full_transfer = 0, tail_transfer = 0;
  const double full = rounds > 0 ? period(pieces_.full, &full_transfer) : 0;
  const double tail = period(pieces_.tail, &tail_transfer);
  const double work = Work(first.slice, model::kStreams);
  const double inter = net() ? Delay(box_.inter, first.slice) : 0;
  const double intra = Delay(box_.intra, first.slice);
  const double queue =
      std::max(nvlink_channels > 0 ? (nvlink_channels - 1) * Serial(box_.intra, first) : 0,
               nic_channels > 0 ? (nic_channels - 1) * Serial(box_.inter, first) : 0);
  const double fill = work + crossings * inter + (hops - crossings) * intra + hops * work +
                      LaneWork(first) - work + queue;
  Terms terms;
  terms.total = fill + (rounds > 0 ? (rounds - 1) * full + tail : 0);
  terms.transfer = std::min(terms.total, rounds * full_transfer + tail_transfer);
  return terms;
}

// Units of work of the busiest lane per chunk, in streams; see lowering.cc for the same steps.
double Formula::TreePeriod(const Chunk& chunk) const {
  const int domains = plan_.shape.domains;
  const int local = ppn() > 1 ? 1 : 0;
  const int root = local + (net() ? 1 : 0);
  const int inner = local + (domains >= 4 ? 2 : domains == 3 ? 1 : 0);
  const int extra = std::max(2 * (root - 1), inner - 1);
  const double lane = Work(chunk.bytes, model::kStreams) +
                      static_cast<double>(chunk.bytes) * box_.per_byte * std::max(0, extra);
  const double slowest = net() ? Delay(box_.inter, chunk.bytes) : Delay(box_.intra, chunk.bytes);
  return std::max(lane, (2 * lane + slowest) / plan_.credits);
}

double Formula::TreePorts(const Chunk& chunk) const {
  const double channels = plan_.channels;
  double ends = 0;  // channels in which a GPU is head or tail of its chain
  if (plan_.shape.nics >= ppn() || !net())
    ends = 2 * (plan_.channels / ppn());
  else if (2 * plan_.shape.nics == ppn())
    ends = plan_.channels / plan_.shape.nics;
  const double nvlink = ppn() == 1 ? 0 : ppn() == 2 ? channels : 2 * channels - ends;
  double ports = nvlink * Serial(box_.intra, chunk);
  if (net()) {
    const int domains = plan_.shape.domains;
    const double inner = domains == 2 ? 1 : domains == 3 ? 2 : 3;
    const double nics = std::max(1, plan_.shape.nics);
    const double first = CeilDiv(CeilDiv(channels, 2), nics);  // channels of tree 1 at one NIC
    const double second = NicChannels() - first;
    ports = std::max(ports, (inner * first + std::max(0.0, second)) * Serial(box_.inter, chunk));
  }
  return ports;
}

// From the first step to the end of the first chunk: up the chain of the deepest domain, up the
// tree, and down the same way.
double Formula::TreeFill(const Chunk& chunk) const {
  const double step = Work(chunk.bytes, model::kStreams);
  const double stream = static_cast<double>(chunk.bytes) * box_.per_byte;
  const double intra = ppn() > 1 ? (ppn() - 1) * (Delay(box_.intra, chunk.bytes) + step) : 0;
  double fill = step + 2 * intra;
  if (net()) {
    const int levels = std::bit_width(static_cast<unsigned>(plan_.shape.domains - 1));
    const double edge = Delay(box_.inter, chunk.bytes) + step;
    fill += 2 * (levels * edge + (levels - 1) * stream);
  }
  const double queue = net() ? (NicChannels() - 1) * Serial(box_.inter, chunk) : 0;
  return fill + std::max(queue, ppn() > 1 ? (plan_.channels - 1) * Serial(box_.intra, chunk) : 0);
}

Terms Formula::Tree() const {
  const auto rounds = static_cast<double>(pieces_.rounds);
  const Chunk& first = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const auto period = [&](const Chunk& c) {
    return c.slices == 0 ? 0 : std::max(TreePeriod(c), TreePorts(c));
  };
  const auto busy = [&](const Chunk& c) {
    return c.slices == 0 ? 0 : std::max(TreePeriod(c) - c.slices * box_.sync, TreePorts(c));
  };
  Terms terms;
  terms.total = TreeFill(first);
  if (rounds > 0) terms.total += (rounds - 1) * period(pieces_.full) + period(pieces_.tail);
  terms.transfer = std::min(terms.total, rounds * busy(pieces_.full) + busy(pieces_.tail));
  return terms;
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
    const double crossings = net() ? domains - (rotating ? 0 : 1) : 0;
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
  const Formula formula(plan, cluster_->spec());
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(formula.setup());
    return cost;
  }
  const bool rotating = plan.algorithm == Algorithm::kRing && model::IsRotating(plan.collective);
  const Terms terms = plan.algorithm == Algorithm::kTree ? formula.Tree()
                      : rotating                         ? formula.Ring()
                                                         : formula.Chain();
  cost.transfer = RoundToPs(terms.transfer);
  cost.fixed = RoundToPs(formula.setup() + terms.total) - cost.transfer;
  cost.member = formula.Ports();
  return cost;
}

}  // namespace orrery::collective
