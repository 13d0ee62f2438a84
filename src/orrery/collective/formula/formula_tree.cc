// Trees (formula.h).
#include "orrery/collective/formula/formula.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace orrery::collective {
namespace {

// Of a NIC's time half is one way's. Fitted to the ideal executor: a little less counts as half.
constexpr double kOneWay = 1.9;

}  // namespace

using model::Chunk;

// Messages per chunk through the busiest ports.
struct Formula::TreePorts {
  double nvlink = 0;  // of a GPU, both ways: half of them each way
  double nic = 0;     // both ways
  double nic_one_way = 0;
};

Formula::TreePorts Formula::PortsOfTree() const {
  const int domains = plan_.shape.domains;
  const double channels = plan_.channels;
  const int children = domains >= 4 ? 2 : domains >= 2 ? 1 : 0;
  TreePorts ports;
  // NVLink messages per chunk of the busiest GPU, both ways: two a channel but one where it is head
  // or tail of the chain. One way: half of it.
  double ends = 0;
  if (plan_.shape.nics >= ppn())
    ends = FewestEnds(plan_.channels, ppn());
  else if (2 * plan_.shape.nics == ppn())
    ends = plan_.channels / plan_.shape.nics;
  ports.nvlink = ppn() == 1 ? 0 : ppn() == 2 ? channels : 2 * channels - ends;
  // NIC messages per chunk: tree 1 and tree 2 of the channels at one NIC.
  const double nics = std::max(1, plan_.shape.nics);
  const double first = net() ? CeilDiv(CeilDiv(channels, 2), nics) : 0;
  const double second = net() ? std::max(0.0, NicChannels() - first) : 0;
  const double inner = domains == 2 ? 1 : 1 + children;
  ports.nic = inner * first + second;
  ports.nic_one_way = std::max(children * first, domains == 2 ? second : first + second);
  return ports;
}

// All chunks together.
struct Formula::TreeSums {
  double lane = 0;                        // the slowest of lanes and one way of the NIC
  double nvlink = 0, nic = 0, bytes = 0;  // busy times
  double turns = 0, chunks = 0;
  double first = 0;  // of `lane`, the first chunk
};

// See lowering.cc for the same steps: a lane's work per chunk, in streams.
Formula::TreeSums Formula::SumsOfTree() const {
  const int domains = plan_.shape.domains;
  const int local = ppn() > 1 ? 1 : 0;
  const int root = local + (net() ? 1 : 0);
  // Of a head that is not the root, through NICs.
  const int children = domains >= 4 ? 2 : domains == 3 ? 1 : 0;
  const int more = std::max(0, local + children - 1);
  const TreePorts ports = PortsOfTree();
  TreeSums sums;
  const auto add = [&](const Chunk& chunk, double times) {
    const double stream = static_cast<double>(chunk.bytes) * box_.per_byte;
    const double turning = Work(chunk.bytes, model::kStreams) + 2 * (root - 1) * stream;
    const double head =
        net() ? box_.sync + model::TreeHeadShare(plan_) * (model::kStreams + more) * stream : 0;
    const double work = std::max(turning, head);
    const double slowest = net() ? Delay(box_.inter, chunk.bytes) : Delay(box_.intra, chunk.bytes);
    const double nic_serial = net() ? Serial(box_.inter, chunk) : 0;
    const double step = std::max(work, ports.nic_one_way * nic_serial);
    sums.turns += times * (2 * work + slowest + back());
    sums.chunks += times;
    if (sums.first == 0) sums.first = step;
    sums.lane += times * step;
    sums.nvlink += times * ports.nvlink * Serial(box_.intra, chunk);
    sums.nic += times * ports.nic * nic_serial;
    sums.bytes += times * (work - box_.sync);
  };
  if (pieces_.rounds > 0) add(pieces_.full, static_cast<double>(pieces_.rounds));
  if (pieces_.tail.slices > 0) add(pieces_.tail, 1);
  return sums;
}

double Formula::PaceOfTree() const {
  const TreeSums all = SumsOfTree();
  const double credit = all.turns / plan_.credits;
  return std::max({all.lane, all.nvlink, all.nic, credit}) / all.chunks;
}

bool Formula::TreeGetsAhead() const {
  const TreeSums sums = SumsOfTree();
  if (sums.nvlink > sums.nic) return sums.nvlink > sums.lane;
  // Where the second tree is shifted the busiest NICs stand at different depths.
  const bool mirrored = plan_.shape.domains % 2 == 0;
  return sums.nic > sums.lane && (!mirrored || sums.nic < kOneWay * sums.lane);
}

double Formula::PortsOfTreeOverLanes() const {
  const TreeSums sums = SumsOfTree();
  return std::max(sums.nvlink, sums.nic) / sums.lane;
}

// From the first message at the busiest port to the end.
double Formula::TreePort(const Chunk& chunk, const TreeSums& sums) const {
  const double work = Work(chunk.bytes, model::kStreams);
  const double hop = ppn() > 1 ? Delay(box_.intra, chunk.bytes) + work : 0;
  if (net()) {
    const int levels = std::bit_width(static_cast<unsigned>(plan_.shape.domains - 1));
    const double edge = Delay(box_.inter, chunk.bytes) + work;
    const double nic = sums.nic + 2 * (ppn() - 1) * hop + std::max(1.0, 1.9 * (levels - 1)) * edge;
    return std::max(nic, ppn() > 1 ? sums.nvlink + std::max(2.0, 0.8 * (ppn() - 1)) * hop : 0);
  }
  if (ppn() == 2) {
    // Nothing is passed on: the port works from the first message's work to the last one's. And
    // what comes down stands behind the next chunk that goes up.
    const double ends = 2 * work + box_.intra.post + box_.intra.latency;
    const double behind =
        pieces_.rounds > 1 ? sums.lane + plan_.channels * Serial(box_.intra, chunk) : 0;
    return ends + std::max(sums.nvlink, behind);
  }
  // What goes up does not wait for what comes down, but for a window a hop: where lanes could feed
  // more than half a port they get ahead, and the rest comes down later at the lanes' pace.
  const double up = 0.5 * PortsOfTree().nvlink * Serial(box_.intra, chunk);
  double ahead = 0;
  if (up < work && work < 2 * up) {
    ahead = (work - up) * std::min(sums.chunks * (2 - work / up),
                                   static_cast<double>(plan_.credits) * (ppn() - 1));
  }
  // A GPU's place in the chain differs by channel: its port fills and empties over half the chain.
  return sums.nvlink + ahead + std::max(2.0, 0.8 * (ppn() - 1)) * hop;
}

Terms Formula::Tree() const {
  const TreeSums sums = SumsOfTree();
  const Chunk& chunk = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const double work = Work(chunk.bytes, model::kStreams);
  const double turn = sums.turns / sums.chunks;
  const double credit =
      Credit(turn, sums.chunks, std::max(work, turn / plan_.credits)) - turn + back();
  const double alone = TreeFill(chunk) + std::max(sums.lane - sums.first, credit);
  const double port = TreePort(chunk, sums);
  const bool pair = !net() && ppn() == 2;
  Terms terms;
  terms.total = pair ? std::max(alone, port) : Together(alone, port);
  terms.total += static_cast<double>(plan_.phases);
  terms.transfer = std::min(terms.total, std::max({sums.bytes, sums.nvlink, sums.nic}));
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
    const double share = model::TreeHeadShare(plan_);
    const double edge = Delay(box_.inter, chunk.bytes) + Work(chunk.bytes, share * model::kStreams);
    int pairs = 0;  // heads of two children, on the longest way
    for (int half = 1; 2 * half + 1 < plan_.shape.domains; half *= 2) ++pairs;
    fill += 2 * (levels * edge + pairs * share * stream);
    // Two children's messages meet at their parent's NIC: all channels' at the first level, spread
    // out from then on, up and down.
    if (plan_.shape.domains >= 4) {
      const double serial = Serial(box_.inter, chunk);
      fill +=
          (2 * CeilDiv(CeilDiv(plan_.channels, 2), std::max(1, plan_.shape.nics)) - 1) * serial +
          (2 * pairs - 1) * std::max(0.0, serial - stream);
    }
  }
  const double together = NicChannels() - 1;
  const double beside = plan_.shape.domains < 4 ? CeilDiv(NicChannels(), 2) - 1 : 0;
  const double queue = net() ? beside * Serial(box_.inter, chunk) : 0;
  return fill + std::max(queue, ppn() > 1 ? together * Serial(box_.intra, chunk) : 0);
}

}  // namespace orrery::collective
