#include "orrery/compute/gemm_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "orrery/compute/constants.h"

namespace orrery::compute {
namespace {

using graph::Gemm;
using graph::GemmLayout;

struct Tile {
  std::int64_t m, n;
};
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64},
                           {64, 256},  {128, 64},  {64, 128},  {64, 64}};

// fp4 is packed in pairs.
double ElementBytes(graph::DType type) {
  return type == graph::DType::kFp4 ? 0.5 : static_cast<double>(graph::SizeOf(type));
}

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// FLOP/s of the instructions that cuBLAS has for these rows.
double Rate(const Gemm& g, const DeviceRates& d) {
  const double rate = d.gemm_flops[static_cast<std::size_t>(g.dtype)];
  const std::int64_t e = graph::SizeOf(g.dtype);
  const std::int64_t row_a = (g.layout == GemmLayout::kTN ? g.m : g.k) * e;
  const std::int64_t row_b = (g.layout == GemmLayout::kNT ? g.k : g.n) * e;
  const std::int64_t row_c = g.n * graph::SizeOf(g.out_dtype);
  if (row_a % 16 == 0 && row_b % 16 == 0 && row_c % 16 == 0) {
    const bool lines = row_a % 128 == 0 && row_b % 128 == 0;
    return lines || g.batch > 1 ? rate : rate * kPartLineRate;
  }
  if (g.batch == 1) return rate * kMisalignedRate;
  return std::min(rate, d.gemm_flops[static_cast<std::size_t>(graph::DType::kFp32)]);
}

struct GemmSize {
  double flops_per_sm;  // of a 256x128 tile
  double stall;         // kOperandStall·e·F/64: divided by AI
  double reference;     // 1 / g of a 256x128 tile
  double l2_Bps_per_sm;
  double write_s, read_s;  // an element of C by one SM of all; read where it is added to
};

// Seconds for the busiest SM with `tile` and `splits`, without memory bound.
double ComputeTime(const Gemm& g, const DeviceRates& d, const GemmSize& s, Tile tile, double tiles,
                   std::int64_t splits) {
  const double tm = static_cast<double>(tile.m);
  const double tn = static_cast<double>(tile.n);
  const double area = tm * tn;
  const double depth = static_cast<double>(CeilDiv(g.k, splits));
  const double slowness = (1 + s.stall * (tm + tn) / area) / s.reference;
  const double main = 2 * area * depth / s.flops_per_sm * slowness;
  const double epilogue = area * (splits > 1 ? 4 / s.l2_Bps_per_sm : s.write_s + s.read_s);
  const double beside = g.kind == graph::GemmKind::kPiece ? kPieceStreams : 1;
  const double count = std::ceil(beside * tiles * static_cast<double>(splits) / d.sms) / beside;
  double time = d.arch >= cluster::Arch::kBlackwell ? count * main + epilogue + kMemoryLatency_s
                : d.arch == cluster::Arch::kHopper  ? count * (main + epilogue) + kMemoryLatency_s
                                                    : count * (main + epilogue + kMemoryLatency_s);
  if (splits > 1) {
    const double elements =
        static_cast<double>(g.batch) * static_cast<double>(g.m) * static_cast<double>(g.n);
    time += d.constants[constants::kKernelFloor] +
            elements * 4 * static_cast<double>(splits) / d.l2_Bps + elements * s.read_s / d.sms;
  }
  return time;
}

// Bytes from HBM when tiles run wave by wave in square super-tiles.
double Traffic(const Gemm& g, const DeviceRates& d, Tile tile, double tiles, double c_bytes) {
  const double e = ElementBytes(g.dtype);
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const double k = static_cast<double>(g.k), batch = static_cast<double>(g.batch);
  const double once = (m * k + k * n) * e;  // of one matrix of the batch
  const double c = m * n * c_bytes * batch;
  if (once <= d.l2_usable_bytes) return once * batch + c;
  const double covered = std::min(static_cast<double>(tile.m), m) *
                         std::min(static_cast<double>(tile.n), n);  // by one tile, padding aside
  const double area = std::min(d.sms * covered, m * n);
  const double rows = std::min(m, std::sqrt(area));
  const double cols = std::min(n, area / rows);
  const double waves = std::max(1.0, tiles / batch / d.sms);
  return std::max(once, waves * (rows + cols) * k * e) * batch + c;
}

}  // namespace

ModelTime GemmTime(const Gemm& g, const DeviceRates& d) {
  ModelTime best;
  best.fixed_s = d.constants[constants::kKernelFloor];
  if (g.m <= 0 || g.n <= 0 || g.k <= 0 || g.batch <= 0) return best;
  const std::size_t type = static_cast<std::size_t>(g.dtype);
  GemmSize s;
  s.flops_per_sm = Rate(g, d) / d.sms;
  s.stall = d.constants[constants::kOperandStall] * ElementBytes(g.dtype) * d.macs_per_clock[type] /
            kL2BytesPerClock;
  s.reference = 1 + s.stall * (256.0 + 128.0) / (256.0 * 128.0);
  s.l2_Bps_per_sm = kL2BytesPerClock * d.clock_Hz;
  const double c_bytes = static_cast<double>(graph::SizeOf(g.out_dtype));
  s.write_s = c_bytes / s.l2_Bps_per_sm;
  const double hbm_Bps_per_sm = d.hbm_Bps * d.constants[constants::kStreamRate] / d.sms;
  s.read_s = g.accumulate ? c_bytes / std::min(s.l2_Bps_per_sm, hbm_Bps_per_sm) : 0;
  Tile chosen = kTiles[0];
  double chosen_tiles = 1;
  best.compute_s = 1e30;
  for (const Tile tile : kTiles) {
    // In double, where absurd shapes do not wrap; exact below 2^53.
    const double tiles = static_cast<double>(CeilDiv(g.m, tile.m)) *
                         static_cast<double>(CeilDiv(g.n, tile.n)) * static_cast<double>(g.batch);
    const auto offer = [&](std::int64_t splits) {
      const double time = ComputeTime(g, d, s, tile, tiles, splits);
      if (time >= best.compute_s) return;
      best.compute_s = time;
      chosen = tile;
      chosen_tiles = tiles;
    };
    offer(1);
    const std::int64_t most = g.k / kLeastSplitDepth;
    if (most < 2 || tiles > d.sms * 2) continue;
    offer(2);
    const std::int64_t fit = std::min(most, static_cast<std::int64_t>(d.sms / tiles));
    if (fit > 2) offer(fit);
  }
  best.memory_s =
      StreamTime(d, Traffic(g, d, chosen, chosen_tiles, g.accumulate ? 2 * c_bytes : c_bytes),
                 d.constants[constants::kStreamRate]);
  if (g.kind == graph::GemmKind::kGrouped && g.batch > 1) {
    Gemm one = g;
    one.batch = 1;  // a plain product
    best.compute_s = GemmTime(one, d).compute_s * static_cast<double>(g.batch) /
                     d.constants[constants::kGroupedRate];
  }
  if (g.kind == graph::GemmKind::kScan) {
    best.compute_s /= d.constants[constants::kScanRate];
    best.memory_s /= d.constants[constants::kScanRate];
  }
  return best;
}

}  // namespace orrery::compute
