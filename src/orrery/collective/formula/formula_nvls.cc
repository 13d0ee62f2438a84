// NVLS and NVLSTree (formula.h, nvls.h).
#include <algorithm>
#include <bit>

#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/formula/formula.h"

namespace orrery::collective {

using model::Chunk;

// One round of a piece.
struct Formula::NvlsRound {
  double scattered = 0;  // one part of one head
  double gathered = 0;
  double scatter = 0, gather = 0;  // the lanes that scatter and gather, of all heads
  double load = 0;                 // a head's
  double serial = 0;               // one part over NVLink
  double out = 0, in = 0;          // busy time of a GPU's ports
};

Formula::NvlsRound Formula::RoundOf(const Chunk& chunk) const {
  NvlsRound round;
  if (chunk.slices == 0) return round;
  const bool scatters = nvls::Scatters(plan_.collective);
  const bool gathers = nvls::Gathers(plan_.collective);
  const auto copy = [&](nvls::Lane lane) {
    const std::int64_t moved = nvls::OfWarp(plan_, lane, chunk.bytes);
    return static_cast<double>(moved) * box_.per_byte * nvls::kCopyStreams;
  };
  round.scattered = scatters ? copy(nvls::kScatter) : 0;
  round.gathered = gathers ? copy(nvls::kGather) : 0;
  round.scatter = scatters ? box_.sync + plan_.heads * round.scattered : 0;
  round.gather = gathers ? box_.sync + plan_.heads * round.gathered : 0;
  round.load = box_.sync + copy(nvls::kReduce);
  round.serial = box_.intra.Serial(model::OnSwitch(box_, chunk.bytes));
  const double heads = plan_.heads;
  round.out = plan_.channels * round.serial * (scatters ? heads : 0);
  round.in = plan_.channels * round.serial * ((gathers ? heads : 0) + (scatters ? 1 : 0));
  return round;
}

// NVLSTree: what lies between the heads' loads and their stores.
struct Formula::Between {
  double fill = 0;   // of the first chunk, up and down
  double skew = 0;   // of channels behind a NIC
  double nic = 0;    // busy time of a head's NIC, one way
  double drain = 0;  // from there to the last store
};

Formula::Between Formula::TreesOfHeads() const {
  Between trees;
  if (!net()) return trees;
  const int domains = plan_.shape.domains;
  const int levels = std::bit_width(static_cast<unsigned>(domains - 1));
  const double children = domains >= 4 ? 2 : 1;
  const Chunk& first = pieces_.rounds > 0 ? pieces_.full : pieces_.tail;
  const auto stream = [&](nvls::Lane lane) {
    return static_cast<double>(nvls::OfWarp(plan_, lane, first.bytes)) * box_.per_byte;
  };
  const double add = stream(nvls::kReduce), pass = stream(nvls::kBroadcast);
  const double load = box_.sync + nvls::kCopyStreams * pass;
  const double edge = Delay(box_.inter, first.bytes);
  trees.fill = levels * (2 * edge + load) + (levels - 1 + children - 1) * (add + pass);
  // Inner in one tree of the pair, a leaf of the other: half the channels each.
  const double channels = plan_.channels * std::max(1.0, CeilDiv(plan_.heads, plan_.shape.nics));
  // Channels begin together at a NIC; where two children meet, twice as many.
  trees.skew = (0.5 * children * channels - 1) * Serial(box_.inter, first);
  const double messages = domains == 2 ? channels : channels * (2 + children) / 2;
  const auto busy = [&](const Chunk& chunk) {
    return chunk.slices == 0 ? 0 : messages * Serial(box_.inter, chunk);
  };
  trees.nic = static_cast<double>(pieces_.rounds) * busy(pieces_.full) + busy(pieces_.tail);
  trees.drain = std::max(1.0, 1.9 * (levels - 1)) * (edge + load);
  return trees;
}

double Formula::PortsOfNvlsOverLanes() const {
  const NvlsRound round = RoundOf(pieces_.rounds > 0 ? pieces_.full : pieces_.tail);
  const double chunks = static_cast<double>(pieces_.rounds) + (pieces_.tail.slices > 0 ? 1 : 0);
  return std::max({round.out, round.in, TreesOfHeads().nic / chunks}) /
         std::max(round.scatter, round.gather);
}

Terms Formula::Nvls() const {
  const bool scatters = nvls::Scatters(plan_.collective);
  const bool gathers = nvls::Gathers(plan_.collective);
  const NvlsRound full = RoundOf(pieces_.full), tail = RoundOf(pieces_.tail);
  const auto rounds = static_cast<double>(pieces_.rounds);
  const NvlsRound& first = rounds > 0 ? full : tail;
  const NvlsRound& last = pieces_.tail.slices > 0 ? tail : full;
  const double gap = box_.intra.post + box_.intra.latency;
  const double scatter = rounds * full.scatter + tail.scatter;
  const double gather = rounds * full.gather + tail.gather;
  const double out = rounds * full.out + tail.out, in = rounds * full.in + tail.in;
  // A round's parts are at its head when all lanes have scattered, or all messages have left.
  const double burst = plan_.channels * plan_.heads;
  const double enter = box_.sync + first.scattered;
  // The first channel's are there this much before the last one's; its stores begin.
  const double behind = gathers ? plan_.channels - 1 : 0;
  double first_up = 0, last_up = 0;
  if (scatters) {
    first_up =
        gap + std::max(first.scatter + first.serial, enter + (burst - behind) * first.serial);
    last_up = gap + std::max(scatter + last.serial, enter + out - behind * last.serial);
  } else {
    last_up = (rounds - (pieces_.tail.slices > 0 ? 0 : 1)) * full.load;
  }
  const Between trees = TreesOfHeads();
  double total = last_up + last.load + trees.fill;
  if (gathers) {
    // All heads store at once, channel by channel; the last channel begins to gather when the
    // others' parts are through.
    const double begin = first_up + first.load + trees.fill + gap;
    if (scatters) {
      // What comes out of the trees one after the other does not meet at the port again.
      const double others = burst - plan_.heads + 1;
      const double first_wait = std::max(others * first.serial, trees.skew + first.serial);
      total += gap + std::max(others * last.serial, trees.skew + last.serial) + last.gather;
      const double loads = plan_.channels * first.serial;
      total = std::max({total, begin + first_wait + gather,
                        begin + in - loads - (plan_.heads - 1) * last.serial + last.gather});
    } else {
      total += gap + std::max(last.serial + last.gather, burst * last.serial + last.gathered);
      total = std::max({total, begin + first.serial + gather, begin + in + last.gathered});
    }
  }
  if (trees.nic > 0) {
    total = std::max(
        total, first_up + first.load + trees.nic + trees.drain + gap + last.serial + last.gather);
  }
  Terms terms;
  terms.total = total + static_cast<double>(plan_.phases);
  terms.transfer = std::min(
      terms.total,
      std::max({std::max(scatter, gather) - box_.sync * (rounds + 1), out, in, trees.nic}));
  return terms;
}

}  // namespace orrery::collective
