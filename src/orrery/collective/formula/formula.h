// The plan as a formula: one of these per price. docs/collectives.md derives it; the names are that
// page's.
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
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "orrery/collective/collective.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {

struct Terms {
  double total = 0;     // without set-up
  double transfer = 0;  // of it, busy time of the bottleneck
};

inline double CeilDiv(double a, double b) {
  return static_cast<double>((static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b) - 1) /
                             static_cast<std::int64_t>(b));
}

inline double Whole(double a) { return static_cast<double>(static_cast<std::int64_t>(a)); }

// Two bounds of nearly the same size hinder each other: messages that find the port taken come late
// to lanes that have no slack. The 16-norm adds 4 % where they are equal and nothing where one is
// far below.
inline double Together(double a, double b) {
  const double larger = std::max(a, b);
  if (larger == 0) return 0;
  double power = std::min(a, b) / larger;
  for (int i = 0; i < 4; ++i) power *= power;
  double root = 1 + power;
  for (int i = 0; i < 4; ++i) root = std::sqrt(root);
  return larger * root;
}

// Lanes and a port of nearly the same time, as Together: of rings that send in every step 6 % more
// where they are equal. Fitted to the ideal executor.
inline double InLine(double lane, double port) {
  const double larger = std::max(lane, port);
  if (larger == 0) return 0;
  const double ratio = std::min(lane, port) / larger;
  const double fourth = ratio * ratio * ratio * ratio;
  return larger * (1 + 0.06 * fourth * fourth * fourth);
}

// Trees in one domain: channels begin at its GPUs in turn, a chain's head sends nothing up and its
// tail, the GPU before the head, nothing down. Of all GPUs the fewest such ends at one.
constexpr int FewestEnds(int channels, int gpus) {
  return 2 * (channels / gpus) + (channels % gpus == gpus - 1 ? 1 : 0);
}

class Formula {
 public:
  Formula(const Plan& plan, const cluster::Spec& spec)
      : Formula(plan, model::MakeWhiteBox(plan, spec)) {}
  Formula(const Plan& plan, const model::WhiteBox& box)
      : plan_(plan), box_(box), pieces_(model::Cut(plan)) {}

  Terms Ring() const;
  Terms Chain() const;
  Terms PointToPoint() const;
  Terms Tree() const;
  Terms Nvls() const;
  Terms Pat() const;
  Terms CollNet() const;
  double PaceOfCollNet() const;  // a full round among many
  // Trees and NVLS: how long the busiest port works while a lane works for 1.
  double PortsOverLanes() const {
    return model::IsNvls(plan_) ? PortsOfNvlsOverLanes() : PortsOfTreeOverLanes();
  }
  // Trees: a full round among many: the slowest of lanes, ports and credits.
  double PaceOfTree() const;
  // Whether what goes up gets so far ahead that what is left to come down in the end is too little
  // for the busiest port: it then goes at the lanes' pace.
  bool TreeGetsAhead() const;
  double setup() const { return box_.setup; }
  PortBytes Ports() const;

 private:
  double Work(std::int64_t data, double streams) const {
    return box_.sync + static_cast<double>(data) * box_.per_byte * streams;
  }
  double LaneWork(const model::Chunk& chunk) const {
    return chunk.slices * box_.sync +
           static_cast<double>(chunk.bytes) * box_.per_byte * model::kStreams;
  }
  double Bytes(const model::Chunk& chunk) const {
    return static_cast<double>(chunk.bytes) * box_.per_byte * model::kStreams;
  }
  double Delay(const model::Edge& edge, std::int64_t data) const {
    return edge.Delay(model::OnWire(plan_.protocol, data));
  }
  double Serial(const model::Edge& edge, const model::Chunk& chunk) const {
    if (chunk.slices == 0) return 0;
    return (chunk.slices - 1) * edge.Serial(model::OnWire(plan_.protocol, chunk.slice)) +
           edge.Serial(model::OnWire(plan_.protocol, chunk.last()));
  }
  // All members begin at once: the last of a port's channels starts this much behind the first, and
  // its second slice behind all the first ones.
  double Skew(const model::Chunk& chunk) const {
    const double nvlink = NvlinkChannels() > 0 ? Skew(chunk, box_.intra, NvlinkChannels()) : 0;
    return net() ? std::max(nvlink, Skew(chunk, box_.inter, NicChannels())) : nvlink;
  }
  double Skew(const model::Chunk& chunk, const model::Edge& e, double channels) const {
    const double serial = e.Serial(model::OnWire(plan_.protocol, chunk.slice));
    const double second = e.Serial(model::OnWire(plan_.protocol, chunk.last()));
    return (channels - 1) * serial +
           (chunk.slices - 1) * std::max(0.0, serial + (channels - 1) * second -
                                                  Work(chunk.last(), model::kStreams));
  }
  // A broadcast's root inside its domain sends round the ring and back into the domain.
  double ChainCrossings() const {
    if (!net()) return 0;
    const bool straight = ppn() == 1 || plan_.channels == 1;
    return plan_.shape.domains - (straight ? 1 : 0);
  }
  // A credit's way back.
  double back() const { return net() ? box_.inter.latency : box_.intra.latency; }
  // `slices` through one connection, each of which takes `turn` to give its credit back; those that
  // do not fill a window come `step` apart.
  double Credit(double turn, double slices, double step) const {
    const auto last = static_cast<std::int64_t>(slices) - 1;
    if (last < plan_.credits) return turn - back();
    return static_cast<double>(last / plan_.credits + 1) * turn - back() +
           static_cast<double>(last % plan_.credits) * step;
  }
  double Sends() const {
    return static_cast<double>(model::RingSteps(plan_)) - 1;
  }  // a round of a ring
  int ppn() const { return plan_.shape.ranks_per_domain; }
  bool net() const { return plan_.shape.domains > 1; }
  // Channels that the busiest GPU sends over NVLink, and those of the busiest NIC.
  double NvlinkChannels() const;
  double NicChannels() const { return CeilDiv(plan_.channels, std::max(1, plan_.shape.nics)); }
  double TreeFill(const model::Chunk& chunk) const;
  double PortsOfTreeOverLanes() const;
  double PortsOfNvlsOverLanes() const;
  struct NvlsRound;
  struct Between;
  struct CollNetRound;
  CollNetRound CollNetRoundOf(const model::Chunk& chunk) const;
  Between TreesOfHeads() const;
  NvlsRound RoundOf(const model::Chunk& chunk) const;
  struct TreePorts;
  struct TreeSums;
  TreePorts PortsOfTree() const;
  TreeSums SumsOfTree() const;
  double TreePort(const model::Chunk& chunk, const TreeSums& sums) const;
  Terms RingApart() const;
  struct Walk;
  Walk WalkOf(const model::Chunk& chunk, double rounds) const;
  double Longest(const Walk& walk, double skew, double offset) const;
  double Longest(const Walk& full, const Walk& tail, double skew) const;
  double Wrap(const model::Chunk& chunk) const;
  double Wraps(double crossings) const;
  struct Port;
  bool InPhase(const model::Chunk& chunk, const Port& port) const;
  double First(const model::Chunk& chunk, const Port& port) const;
  double Passed(const model::Chunk& chunk, const Port& port) const;
  double Dry(const model::Chunk& chunk, const Port& port, double more, bool first) const;
  double Dries(const model::Chunk& chunk, double rounds, const Port& port) const;
  double Circle(const model::Chunk& chunk, const Port& port) const;
  double Late(const model::Chunk& chunk, double rounds, const Port& port) const;
  double AtPort(const model::Chunk& chunk, double rounds, const Port& port) const;
  double WalkAndCredits(const Walk& full, const Walk& tail, double step) const;
  template <class Way>
  Terms Stream(double nvlink_channels, double nic_channels, double together, double hops,
               Way way_of, double saved) const;

  const Plan& plan_;
  model::WhiteBox box_;
  model::Pieces pieces_;
  double receives_ = 1;  // rings: of a step's bytes, what the last one, which sends none, takes
};

// Trees and NVLS: the first rounds as they were played (playback.h), less what the terms above
// make of them. PAT, gather and scatter: all of their time (pat.h, rooted.h). Plan::phases.
SimTime PhasesOf(const Plan& plan, const cluster::Spec& spec);

}  // namespace orrery::collective
