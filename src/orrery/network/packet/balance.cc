// Load balancing: which of a flow's ways its next packet takes.
//
// Sources. Spray: NDP (Handley et al. SIGCOMM'17), a permutation of all ways, a new one each round.
// Flowlets: CONGA (Alizadeh et al. SIGCOMM'14): after a pause of flowlet_gap a new way. REPS
// (Bonato et al. 2024): the ways of unmarked acknowledgements are used again, once each; without
// one, a random way. PLB (Qureshi et al. SIGCOMM'22, Linux's tcp_plb): another way after 12 round
// trips with half of the packets marked, or 3 with nothing in flight. Adaptive: fabric.h.
#include <array>

#include "orrery/base/rng.h"
#include "orrery/network/packet/hosts.h"

namespace orrery::network::packet {
namespace {

constexpr std::size_t kKept = 8;  // entropies of REPS
constexpr std::uint32_t kBadRounds = 12, kBadRoundsIdle = 3;

constexpr std::array kBalancers = {
    BalanceInfo{"ecmp", "The connection's hash picks one path for all of its packets (RFC 2992)."},
    BalanceInfo{"spray",
                "Each packet takes the next path of a permutation, drawn anew each round (NDP, "
                "SIGCOMM'17)."},
    BalanceInfo{"adaptive",
                "Each switch sends each packet to the shortest queue among the connection's paths "
                "(Spectrum's and Tomahawk's adaptive routing, per packet)."},
    BalanceInfo{
        "flowlet",
        "After a gap of packet.flowlet_gap the connection takes another path (CONGA, SIGCOMM'14)."},
    BalanceInfo{"reps",
                "Paths whose packets came through unmarked are used again, once each; else a "
                "random one (REPS, 2024)."},
    BalanceInfo{"plb",
                "Takes another path after 12 round trips (3 if nothing is in flight) in which half "
                "of the packets were marked (PLB, SIGCOMM'22, as in Linux)."},
};

}  // namespace

std::span<const BalanceInfo> LoadBalancers() { return kBalancers; }

std::uint32_t Hosts::NextEntropy(Flow* flow, SimTime now) {
  const auto ways = static_cast<std::uint32_t>(paths_->ways(flow->flow));
  const auto random = [&](std::uint64_t counter) {
    return static_cast<std::uint32_t>(HashCombine(flow->flow, counter) % ways);
  };
  switch (settings_.balance) {
    case Balance::kEcmp:
      return 0;
    case Balance::kSpray: {
      // Ways are a power of two: an odd step passes all of them.
      const std::uint32_t i = flow->choices++;
      const std::uint64_t draw = HashCombine(flow->flow, i / ways);
      const auto start = static_cast<std::uint32_t>(draw);
      const auto step = static_cast<std::uint32_t>(draw >> 32) | 1u;
      return (start + (i % ways) * step) % ways;
    }
    case Balance::kAdaptive:
      return flow->choices++ % ways;
    case Balance::kFlowlet:
      if (now - flow->last_sent <= settings_.flowlet_gap) return flow->entropy;
      return random(++flow->choices);
    case Balance::kReps: {
      if (flow->good.empty()) return random(++flow->choices);
      const std::uint32_t entropy = flow->good.front();
      flow->good.Pop();
      return entropy;
    }
    case Balance::kPlb:
      return flow->entropy;
  }
  return 0;
}

// An acknowledgement or, for a trimmed packet, its opposite came back.
void Hosts::NoteEntropy(Flow* flow, const Packet& ack, SimTime now) {
  const bool bad = ack.kind == Kind::kNack || (ack.flags & kMarkEcho) != 0;
  if (settings_.balance == Balance::kReps) {
    if (bad) return;
    if (flow->good.size() == kKept) flow->good.Pop();
    flow->good.Push(ack.entropy);
    return;
  }
  if (settings_.balance != Balance::kPlb) return;
  ++flow->round_acks;
  flow->round_marks += bad ? 1 : 0;
  if (now - flow->round < flow->base_rtt) return;
  flow->bad_rounds = 2 * flow->round_marks >= flow->round_acks ? flow->bad_rounds + 1 : 0;
  flow->round = now;
  flow->round_acks = flow->round_marks = 0;
  const bool idle = flow->in_flight == 0;
  if (flow->bad_rounds < (idle ? kBadRoundsIdle : kBadRounds)) return;
  flow->bad_rounds = 0;
  const auto ways = static_cast<std::uint32_t>(paths_->ways(flow->flow));
  flow->entropy = static_cast<std::uint32_t>(HashCombine(flow->flow, ++flow->choices) % ways);
}

}  // namespace orrery::network::packet
