#include "orrery/collective/formula/moye.h"

#include <algorithm>
#include <array>
#include <bit>

#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using graph::Collective;

constexpr std::int64_t kMiB = 1 << 20;
constexpr double kPsPerUs = 1e6;
// The cluster that Table 5 was profiled on: 4 servers of 8 H800.
constexpr int kTableGpus = 8, kTableLevels = 2;

// Moye, Table 5. Tensor sizes read as MiB, as nccl-tests has them; chunk sizes are printed in 10³
// bytes.
constexpr std::array kTable = {MoyeProfile{4 * kMiB, 18'000, 57.43, 54.3, 50.14},
                               MoyeProfile{8 * kMiB, 36'000, 64.36, 72.32, 65.86},
                               MoyeProfile{16 * kMiB, 72'000, 73.62, 106.73, 102.46},
                               MoyeProfile{32 * kMiB, 72'000, 74.61, 112.9, 219.89},
                               MoyeProfile{64 * kMiB, 72'000, 77.46, 111.25, 463.43},
                               MoyeProfile{128 * kMiB, 144'000, 75.55, 174.2, 841.71},
                               MoyeProfile{256 * kMiB, 288'000, 99.23, 278.98, 1657.72}};

// The columns of one chunk size as one: their mean (three were printed for 72,000 bytes).
struct Point {
  double chunk = 0, beta = 0, gamma = 0, delta = 0;
};
constexpr std::size_t kPoints = 5;
constexpr std::array<Point, kPoints> Points() {
  std::array<Point, kPoints> points{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < kTable.size();) {
    Point p;
    double columns = 0;
    for (const std::int64_t chunk = kTable[i].chunk_bytes;
         i < kTable.size() && kTable[i].chunk_bytes == chunk; ++i) {
      const MoyeProfile& row = kTable[i];
      p.chunk = static_cast<double>(chunk);
      p.beta += row.intra_us * kPsPerUs / (2 * (kTableGpus - 1));
      p.gamma += row.inter_us * kPsPerUs / (2 * kTableLevels);
      p.delta += row.reduce_us * kPsPerUs / static_cast<double>(row.tensor_bytes);
      columns += 1;
    }
    points[n++] = {p.chunk, p.beta / columns, p.gamma / columns, p.delta / columns};
  }
  return points;
}
constexpr std::array<Point, kPoints> kByChunk = Points();

int Levels(int domains) { return std::bit_width(static_cast<unsigned>(domains)) - 1; }

bool HasReduction(Collective collective) { return collective != Collective::kAllGather; }

}  // namespace

std::span<const MoyeProfile> MoyeTable() { return kTable; }

Status MoyeHas(const Plan& plan) {
  const auto missing = [&](std::string_view what, std::string_view remedy) {
    return InvalidInput(
        "collective.model moye: {} for {} of {} bytes over {} ranks; {}, or set "
        "collective.otherwise to orrery",
        what, graph::Name(plan.collective), plan.bytes, plan.shape.ranks, remedy);
  };
  if (!model::IsRotating(plan.collective)) {
    return missing("the paper has no equation", "it has all-reduce, all-gather, reduce-scatter");
  }
  if (plan.algorithm != Algorithm::kRing && plan.algorithm != Algorithm::kTree) {
    return missing(
        fmt::format("the paper has no equation for {}, which NCCL takes", Name(plan.algorithm)),
        "set nccl.NCCL_ALGO to Ring,Tree");
  }
  if (plan.protocol != Protocol::kLL128) {
    return missing(
        fmt::format("the paper prints no parameters for {}, which NCCL takes", Name(plan.protocol)),
        "set nccl.NCCL_PROTO to LL128");
  }
  if (!plan.shape.uniform) {
    return missing("the paper's K = N / M is no whole number", "place the ranks evenly");
  }
  return {};
}

MoyeParameters MoyeParametersOf(const Plan& plan) {
  const model::Pieces pieces = model::Cut(plan);
  MoyeParameters p;
  if (plan.algorithm == Algorithm::kTree) {
    p.chunk_bytes = std::min(plan.nccl_chunk_bytes, (pieces.share + 15) / 16 * 16);
    p.rounds = (pieces.share + p.chunk_bytes - 1) / p.chunk_bytes;
  } else {
    p.chunk_bytes = pieces.rounds > 0 ? pieces.full.bytes : pieces.tail.bytes;
    p.rounds = pieces.rounds + (pieces.tail.slices > 0 ? 1 : 0);
  }
  const auto chunk = static_cast<double>(p.chunk_bytes);
  p.beyond = chunk < kByChunk.front().chunk || chunk > kByChunk.back().chunk;
  std::size_t i = 1;
  while (i + 1 < kPoints && kByChunk[i].chunk < chunk) ++i;
  const Point& a = kByChunk[i - 1];
  const Point& b = kByChunk[i];
  const double at = (chunk - a.chunk) / (b.chunk - a.chunk);
  p.beta = a.beta + at * (b.beta - a.beta);
  p.gamma = a.gamma + at * (b.gamma - a.gamma);
  // A reduction has a rate, not a latency: beyond the table it stays the nearest column's.
  p.delta = a.delta + std::clamp(at, 0.0, 1.0) * (b.delta - a.delta);
  if (plan.shape.domains == 1) p.gamma = p.beta;
  return p;
}

Cost MoyeCost(const Plan& plan, SimTime setup, const PortBytes& member, const cluster::Spec& spec) {
  const MoyeParameters p = MoyeParametersOf(plan);
  const double rounds = static_cast<double>(p.rounds);
  const double others = plan.shape.ranks - 1;
  const double local = plan.shape.ranks_per_domain - 1;
  double time = HasReduction(plan.collective) ? p.delta * static_cast<double>(plan.bytes) : 0;
  if (plan.algorithm == Algorithm::kTree) {
    time += p.gamma * std::max(0.0, rounds - 1) + 2 * p.beta * local +
            2 * p.gamma * Levels(plan.shape.domains);
  } else if (plan.collective == Collective::kAllGather) {
    time += p.gamma * rounds * others;
  } else {
    const double phases = plan.collective == Collective::kAllReduce ? 2 : 1;
    time += rounds * (p.beta * others + p.gamma * phases * others);
  }
  Cost cost;
  cost.member = member;
  const int sharers = std::max(1, plan.shape.ranks_per_domain / std::max(1, plan.shape.nics));
  const SimTime ports = std::max(
      TransferTime(std::max(member.nvlink_out, member.nvlink_in), spec.nvlink_reached_Bps()),
      TransferTime(std::max(member.nic_out, member.nic_in) * sharers, spec.nic_reached_Bps()));
  const SimTime total = setup + RoundToPs(time);
  cost.transfer = std::min(ports, total);
  cost.fixed = total - cost.transfer;
  return cost;
}

namespace {

using enum OptionType;
constexpr Option kCollective[] = {
    {.name = "model",
     .type = kChoice,
     .fallback = "orrery",
     .choices = "orrery|moye",
     .doc =
         "Whose formula prices collectives; moye: equations 2 to 5 of the paper with its Table 5 "
         "(docs/moye.md), for network analytic."},
    {.name = "otherwise",
     .type = kChoice,
     .fallback = "refuse",
     .choices = "refuse|orrery",
     .doc = "For moye, what the paper has no equation or no parameters for: refused, or priced by "
            "Orrery's formula with a warning in the result."},
    {.name = "setup",
     .type = kTime,
     .unit = "us",
     .fallback = "0us",
     .max = 1e9,
     .doc = "For moye: α, connection set-up, of every collective; the paper prints none for H800 "
            "(A100: 352.5us)."},
};
constexpr OptionTable kCollectiveTable = {"collective", "Whose formula prices collectives.",
                                          kCollective};

}  // namespace

const OptionTable& CollectiveOptions() { return kCollectiveTable; }

}  // namespace orrery::collective
