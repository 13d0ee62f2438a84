// Are the kernel models right? Expected numbers are derived by hand in the comments from a device
// with round numbers: 100 SMs at 1 GHz.
#include "orrery/compute/model.h"
#include "orrery/cluster/catalog.h"

#include <gtest/gtest.h>

#include <tuple>

#include "orrery/cluster/catalog.h"
#include "orrery/compute/attention_model.h"
#include "orrery/compute/constants.h"
#include "orrery/compute/gemm_model.h"
#include "orrery/compute/memory_bound_model.h"
#include "orrery/compute/test_devices.h"

namespace orrery::compute {
namespace {

const double kKernelFloor_s = constants::Set()[constants::kKernelFloor];
const double kScatterRate = constants::Set()[constants::kScatterRate];

using graph::Attention;
using graph::DType;
using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryBound;
using graph::MemoryOp;
using graph::Pass;

// Ampere: 1,024 multiply-adds per clock. 100 SMs · 1 GHz · 2,048 FLOP = 204.8 TFLOP/s.
cluster::DeviceSpec Round() {
  cluster::DeviceSpec d;
  d.name = "round";
  d.arch = cluster::Arch::kAmpere;
  d.sms = 100;
  d.fp16_flops = 204.8e12;
  d.tf32_flops = 102.4e12;
  d.fp32_flops = 12.8e12;
  d.memory_bandwidth_Bps = 1'000'000'000'000;
  d.l2_bytes = 40'000'000;
  return d;
}
DeviceRates Rates(const cluster::DeviceSpec& d) { return *DeviceRates::Make(d); }

TEST(DeviceRates, ClockFollowsFromThePrintedPeak) {
  const DeviceRates r = Rates(Round());
  EXPECT_DOUBLE_EQ(r.clock_Hz, 1e9);
  // 0.45 of 64 B · 1 GHz · 100 SMs.
  EXPECT_DOUBLE_EQ(r.l2_Bps, 2.88e12);
  EXPECT_DOUBLE_EQ(r.l2_usable_bytes, 20e6);
  // Ampere has no fp8: it runs at the 16-bit rate.
  EXPECT_EQ(r.peak(DType::kFp8), r.peak(DType::kFp16));
  EXPECT_EQ(r.peak(DType::kTf32), 102.4e12);
}

// Ampere's two 16-bit rates are constants of their own; the others' is one.
TEST(DeviceRates, Ampere16BitRates) {
  const auto rate = [](const cluster::DeviceSpec& device, graph::DType type) {
    return Rates(device).gemm_flops[static_cast<std::size_t>(type)];
  };
  cluster::DeviceSpec a100 = TestA100();
  EXPECT_EQ(rate(a100, graph::DType::kFp16), rate(a100, graph::DType::kBf16));
  const double prior = a100.constants[constants::kGemmRateFp16Ampere];
  a100.constants.set(constants::kGemmRateFp16Ampere, 1.05 * prior);
  EXPECT_NEAR(rate(a100, graph::DType::kFp16), 1.05 * rate(a100, graph::DType::kBf16), 1);
  EXPECT_EQ(rate(TestB200(), graph::DType::kFp16), rate(TestB200(), graph::DType::kBf16));
}

// A board of as many SMs and watts sustains as much, whatever clock its printed peak assumes; 1.44
// times the watts 1.2 times as much; never more than 0.93 of its own peak.
TEST(DeviceRates, PowerNotThePrintedClockSetsWhatTensorCoresSustain) {
  constexpr auto kBf16 = static_cast<std::size_t>(graph::DType::kBf16);
  cluster::DeviceSpec device = TestB200();
  device.power_w = 1000;
  const double reference = Rates(device).gemm_flops[kBf16];
  device.fp16_flops *= 1.1;
  EXPECT_NEAR(Rates(device).gemm_flops[kBf16], reference, 1e-9 * reference);
  device.power_w = 1440;
  EXPECT_NEAR(Rates(device).gemm_flops[kBf16], 1.2 * reference, 1e-9 * reference);
  device.power_w = 4000;
  EXPECT_NEAR(Rates(device).gemm_flops[kBf16], 0.93 * device.fp16_flops, 1e-9 * reference);
}

// A higher peak of one type leaves what the others sustain: not the board's clock is another.
TEST(DeviceRates, PeakOfOneTypeDoesNotSlowTheOthers) {
  for (const char* name : {"H100-SXM5-80GB", "B200-SXM-180GB", "L40S-48GB"}) {
    cluster::DeviceSpec device = *cluster::Catalog::BuiltIn().FindDevice(name);
    const auto sustained = [&] { return Rates(device).gemm_flops; };
    const auto before = sustained();
    device.fp16_flops *= 1.2;
    device.tf32_flops *= 0.9;
    const auto after = sustained();
    for (std::size_t type = 0; type < kDTypes; ++type) {
      EXPECT_NEAR(after[type] / before[type], 1, 1e-9) << name << " " << type;
    }
    device.fp8_flops *= 1.1;
    EXPECT_GE(sustained()[static_cast<int>(DType::kFp8)], after[static_cast<int>(DType::kFp8)]);
  }
}

// Scales by blocks cost 5 % of fp8's rate (B300: 7.16 ms for 6.81), not of the wider types'.
// Ampere multiplies in int8 at twice its rate in 16 bits and has no fp8 (A100: 624 TOP/s); from
// Hopper on both are alike, but for Blackwell Ultra, which has little int8.
TEST(DeviceRates, Int8) {
  const auto int8 = [](const char* name) {
    const DeviceRates r = Rates(*cluster::Catalog::BuiltIn().FindDevice(name));
    const auto rate = [&](graph::DType type) { return r.gemm_flops[static_cast<int>(type)]; };
    return std::pair(rate(graph::DType::kInt8) / rate(graph::DType::kFp8),
                     r.peak_flops[static_cast<int>(graph::DType::kInt8)]);
  };
  EXPECT_EQ(int8("A100-SXM4-80GB"), std::pair(2.0, 624e12));
  EXPECT_EQ(int8("H100-SXM5-80GB"), std::pair(1.0, 1978.9e12));
  EXPECT_EQ(int8("B300-SXM-270GB").second, 150e12);
}

TEST(DeviceRates, Mxfp8IsSlowerThanOneScaleATensor) {
  const DeviceRates b200 = Rates(TestB200());
  const auto rate = [&](graph::DType type) {
    return b200.gemm_flops[static_cast<std::size_t>(type)];
  };
  EXPECT_DOUBLE_EQ(rate(DType::kMxfp8), 0.95 * rate(DType::kFp8));
  EXPECT_GT(rate(DType::kMxfp8), rate(DType::kBf16));
  EXPECT_EQ(b200.peak(DType::kMxfp8), b200.peak(DType::kFp8));
}

// Of Hopper's tensor cores alone: CUDA cores and Blackwell keep their rates.
TEST(DeviceRates, PowerFromTheL2SpeedsUpTensorCores) {
  constexpr auto kFp8 = static_cast<std::size_t>(graph::DType::kFp8);
  constexpr auto kFp32 = static_cast<std::size_t>(graph::DType::kFp32);
  cluster::DeviceSpec device = TestH100();
  const DeviceRates plain = Rates(device);
  device.vboost = true;
  const DeviceRates boosted = Rates(device);
  EXPECT_NEAR(boosted.gemm_flops[kFp8], 1.05 * plain.gemm_flops[kFp8], 1e-9 * plain.hbm_Bps);
  EXPECT_EQ(boosted.gemm_flops[kFp32], plain.gemm_flops[kFp32]);
  const Attention attention{.batch = 1, .heads = 132, .seq_q = 8192, .seq_kv = 8192};
  EXPECT_NEAR(AttentionTime(attention, plain).compute_s,
              1.05 * AttentionTime(attention, boosted).compute_s, 1e-6);
  device = TestB200();
  device.vboost = true;
  EXPECT_EQ(Rates(device).gemm_flops[kFp8], Rates(TestB200()).gemm_flops[kFp8]);
}

// Blackwell's products and attention alone depend on the release of CUDA.
TEST(DeviceRates, Cuda12HadBlackwellsFirstLibraries) {
  constexpr auto kFp8 = static_cast<std::size_t>(graph::DType::kFp8);
  cluster::DeviceSpec device = TestB200();
  device.constants.set(constants::kLibraryRateBlackwell12, 0.9);
  const DeviceRates now = Rates(device);
  device.cuda = 12;
  const DeviceRates then = Rates(device);
  EXPECT_NEAR(then.gemm_flops[kFp8], 0.9 * now.gemm_flops[kFp8], 1e-9 * now.gemm_flops[kFp8]);
  const Attention attention{.batch = 1, .heads = 148, .seq_q = 8192, .seq_kv = 8192};
  EXPECT_NEAR(AttentionTime(attention, now).compute_s,
              0.9 * AttentionTime(attention, then).compute_s, 1e-6);
  cluster::DeviceSpec hopper = TestH100();
  hopper.constants = device.constants;
  hopper.cuda = 12;
  EXPECT_EQ(Rates(hopper).gemm_flops[kFp8], Rates(TestH100()).gemm_flops[kFp8]);
}

TEST(DeviceRates, MissingRateNamesDeviceAndField) {
  cluster::DeviceSpec d = Round();
  d.memory_bandwidth_Bps = 0;
  const auto r = DeviceRates::Make(d);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().message(),
            "device 'round': memory_bandwidth_Bps = 0 must be a positive number; give the "
            "data-sheet value");
}

// One tile of 256x128 per SM: m = 2,560, n = 1,280 is 10 · 10 tiles. k = 1,024:
//   main      2·256·128·1,024 / (0.85 · 2.048e12) = 38.5506 us at g = 1
//   epilogue  256·128·2 B / 64e9 B/s = 1.024 us
//   fill      0.6 us
TEST(GemmModel, OneWaveOfTiles) {
  const ModelTime t = GemmTime({.m = 2560, .n = 1280, .k = 1024}, Rates(Round()));
  EXPECT_NEAR(t.compute_s, 40.1746e-6, 1e-10);
  EXPECT_EQ(t.fixed_s, kKernelFloor_s);
  EXPECT_TRUE(t.compute_bound());
}

// A row of tiles more and the busiest SM does two tiles of 256x128: 80.35 us. Of 128x128 tiles
// there are 22 · 10 = 220, three an SM, each 19.2753 · (1 + 8/64)/(1 + 8/85.33) + 0.512 + 0.6
// = 20.937 us: the smaller tile wins with 62.81 us.
TEST(GemmModel, OneTileTooManyIsCutFiner) {
  const ModelTime t = GemmTime({.m = 2561, .n = 1280, .k = 1024}, Rates(Round()));
  EXPECT_GT(t.compute_s, 45e-6);
  EXPECT_LT(t.compute_s, 62.82e-6);
}

// Hopper pays the fill once however many tiles an SM does, Blackwell the epilogue, too.
TEST(GemmModel, PersistentKernelsHideFillAndEpilogue) {
  for (const auto& [arch, times, once] :
       {std::tuple{cluster::Arch::kHopper, 2.0, 0.6e-6},
        std::tuple{cluster::Arch::kBlackwell, 4.0, 1.024e-6 + 0.6e-6}}) {
    cluster::DeviceSpec device = Round();
    device.arch = arch;
    device.fp16_flops *= times;  // so that the clock stays
    const DeviceRates r = Rates(device);
    EXPECT_DOUBLE_EQ(r.clock_Hz, 1e9);
    const ModelTime one = GemmTime({.m = 2560, .n = 1280, .k = 4096}, r);
    const ModelTime ten = GemmTime({.m = 25600, .n = 1280, .k = 4096}, r);
    EXPECT_NEAR(ten.compute_s - once, 10 * (one.compute_s - once), 1e-10);
  }
}

// m = n = 128 and k = 65,536 is one tile of 128x128 alone, or 64 parts of k = 1,024 on 64 SMs.
TEST(GemmModel, DeepKIsSplit) {
  const DeviceRates r = Rates(Round());
  const ModelTime deep = GemmTime({.m = 128, .n = 128, .k = 65536}, r);
  const double alone = 2.0 * 128 * 128 * 65536 / (0.85 * 2.048e12);
  EXPECT_LT(deep.compute_s, alone / 10);
  EXPECT_GT(deep.compute_s, alone / 100);
}

TEST(GemmModel, ThinGemmIsBoundByItsWeights) {
  // 8 x 16,384 x 16,384: 537 MB of weights at 0.88 TB/s take 610 us; the products take 10.
  const ModelTime t = GemmTime({.m = 8, .n = 16384, .k = 16384}, Rates(Round()));
  EXPECT_FALSE(t.compute_bound());
  EXPECT_NEAR(t.total_s(), 612.5e-6, 3e-6);
}

TEST(GemmModel, AccumulationReadsC) {
  const DeviceRates r = Rates(Round());
  Gemm g{.m = 2560, .n = 1280, .k = 1024, .layout = GemmLayout::kTN, .out_dtype = DType::kFp32};
  const double plain = GemmTime(g, r).compute_s;
  g.accumulate = true;
  // Another 256·128·4 B at a hundredth of what HBM streams: every SM reads at once.
  const double share_Bps = r.hbm_Bps * r.constants[constants::kStreamRate] / 100;
  EXPECT_NEAR(GemmTime(g, r).compute_s - plain, 256 * 128 * 4 / share_Bps, 1e-10);
  // With more than a port's 64 GB/s for each SM the port is what holds it up.
  DeviceRates wide = r;
  wide.hbm_Bps *= 10;
  EXPECT_NEAR(GemmTime(g, wide).compute_s - plain, 2.048e-6, 1e-10);
}

TEST(GemmModel, RaggedRowsAreSlower) {
  const DeviceRates r = Rates(Round());
  // A vocabulary of 50,257 columns is no multiple of 8.
  const double ragged = GemmTime({.m = 4096, .n = 50257, .k = 4096}, r).total_s();
  const double padded = GemmTime({.m = 4096, .n = 50304, .k = 4096}, r).total_s();
  EXPECT_GT(ragged, 1.8 * padded);
  // Rows of k only: n does not matter for the operands of kNT, but C has rows of n.
  const double odd_m = GemmTime({.m = 4095, .n = 50304, .k = 4096}, r).total_s();
  EXPECT_LE(odd_m, padded);
}

TEST(GemmModel, BatchesOfRaggedRowsLeaveTheTensorCores) {
  const DeviceRates r = Rates(Round());
  const auto scores = [&](std::int64_t head_dim) {
    const Gemm g{.m = 2048, .n = 2048, .k = head_dim, .batch = 64, .layout = GemmLayout::kNT};
    return GemmTime(g, r).compute_s / static_cast<double>(head_dim);
  };
  EXPECT_GT(scores(150), 5 * scores(144));
  EXPECT_GT(scores(108), 5 * scores(112));
  EXPECT_NEAR(scores(150), scores(108), 0.15 * scores(108));  // both at the fp32 rate
}

TEST(GemmModel, NothingToDoIsAnEmptyKernel) {
  EXPECT_EQ(GemmTime({.m = 0, .n = 5, .k = 5}, Rates(Round())).total_s(), kKernelFloor_s);
}

TEST(GemmModel, BatchIsMoreTiles) {
  const DeviceRates r = Rates(Round());
  const double one = GemmTime({.m = 2560, .n = 1280, .k = 1024}, r).compute_s;
  const double four = GemmTime({.m = 2560, .n = 1280, .k = 1024, .batch = 4}, r).compute_s;
  EXPECT_NEAR(four, 4 * one, 1e-12);
}

// Several experts' products come one after the other at a part of the rate; one alone is plain.
TEST(GemmModel, ExpertsComeOneAfterTheOther) {
  const DeviceRates r = Rates(Round());
  const auto time = [&](std::int64_t experts, graph::GemmKind kind) {
    return GemmTime({.m = 2560, .n = 1400, .k = 1024, .batch = experts, .kind = kind}, r).compute_s;
  };
  const double one = time(1, graph::GemmKind::kPlain);
  EXPECT_EQ(time(1, graph::GemmKind::kGrouped), one);
  EXPECT_NEAR(time(4, graph::GemmKind::kGrouped), 4 * one / r.constants[constants::kGroupedRate],
              1e-12);
  // One product of all tiles fills its waves better.
  EXPECT_LT(time(4, graph::GemmKind::kPlain), 4 * one);
}

// A piece of few tiles leaves SMs idle, which three side by side fill: a third of the three each.
TEST(GemmModel, PiecesFillEachOthersLastWave) {
  const DeviceRates r = Rates(Round());
  const auto time = [&](std::int64_t m, graph::GemmKind kind) {
    return GemmTime({.m = m, .n = 1280, .k = 512, .kind = kind}, r).compute_s;
  };
  EXPECT_LT(time(512, graph::GemmKind::kPiece), time(512, graph::GemmKind::kPlain));
  EXPECT_NEAR(3 * time(512, graph::GemmKind::kPiece), time(3 * 512, graph::GemmKind::kPlain),
              0.2 * time(512, graph::GemmKind::kPlain));
  // Where waves are full there is nothing to fill.
  EXPECT_NEAR(time(25600, graph::GemmKind::kPiece) / time(25600, graph::GemmKind::kPlain), 1, 0.03);
}

// 100 heads of one block each: every SM has one item of one block pair. d = 128 and no mask:
//   4 · 128 · 128 · 128 / (0.72 · 2.048e12) = 5.689 us, + 0.6 us latency
// A window of w keys leaves s·w - w²/2 pairs of s²/2. In blocks of 128: 64 rows, of which the first
// 32 see 1 … 32 and the others 33: 32·33/2 + 32·33 = 1,584, of 64·65/2 = 2,080 without a window.
// Mistral 7B at 8,192 tokens cost the same with its window of 4,096 as without.
TEST(AttentionModel, AWindowLeavesItsPairs) {
  constexpr std::int64_t kHeads = 1000;  // enough for the mean to bound, not the longest row
  const auto compute = [](std::int64_t window) {
    return AttentionTime({.batch = 1,
                          .heads = kHeads,
                          .kv_heads = kHeads,
                          .seq_q = 8192,
                          .seq_kv = 8192,
                          .head_dim = 128,
                          .causal = true,
                          .window = window},
                         Rates(Round()))
        .compute_s;
  };
  EXPECT_NEAR(compute(4096) / compute(0), 1584.0 / 2080, 1e-4);
  EXPECT_NEAR(compute(8192 - 128) / compute(0), 1, 1e-3);
  // A short one: 8 of 64 blocks, 8·9/2 + 56·9 = 540.
  EXPECT_NEAR(compute(1024) / compute(0), 540.0 / 2080, 1e-4);
}

TEST(AttentionModel, OneBlockPerSm) {
  const Attention a{.batch = 1,
                    .heads = 100,
                    .kv_heads = 100,
                    .seq_q = 128,
                    .seq_kv = 128,
                    .head_dim = 128,
                    .causal = false};
  EXPECT_NEAR(AttentionTime(a, Rates(Round())).compute_s, 5.689e-6 + 0.6e-6, 1e-9);
}

// Ten blocks: the mask leaves 10·11/2 = 55 of 100 block pairs, at 0.92 of the rate.
TEST(AttentionModel, CausalVisitsHalfAndTheDiagonal) {
  Attention a{.batch = 100,
              .heads = 100,
              .kv_heads = 100,
              .seq_q = 1280,
              .seq_kv = 1280,
              .head_dim = 128,
              .causal = false};
  const DeviceRates r = Rates(Round());
  const double full = AttentionTime(a, r).compute_s - kMemoryLatency_s;
  a.causal = true;
  const double causal = AttentionTime(a, r).compute_s - kMemoryLatency_s;
  EXPECT_NEAR(causal / full, 0.55 / 0.92, 1e-9);
}

TEST(AttentionModel, LongestItemBoundsFewHeads) {
  // One head of 64 blocks: the mean is 64·65/2/100 = 20.8 pairs, the longest row 64.
  const Attention a{.batch = 1,
                    .heads = 1,
                    .kv_heads = 1,
                    .seq_q = 8192,
                    .seq_kv = 8192,
                    .head_dim = 128,
                    .causal = true};
  const double pair = 4.0 * 128 * 128 * 128 / (0.72 * 0.92 * 2.048e12);
  EXPECT_NEAR(AttentionTime(a, Rates(Round())).compute_s, 64 * pair + kMemoryLatency_s, 1e-12);
}

TEST(AttentionModel, SmallHeadsPayForTheirExponentials) {
  // x = 0.84/16 · 1,024/256 = 0.21; d = 64 at (1.21)/(1.42) = 0.852 of the rate of d = 128.
  Attention a{.batch = 64,
              .heads = 100,
              .kv_heads = 100,
              .seq_q = 2048,
              .seq_kv = 2048,
              .head_dim = 128,
              .causal = false};
  const DeviceRates r = Rates(Round());
  const double wide = AttentionTime(a, r).compute_s - kMemoryLatency_s;
  a.head_dim = 64;
  const double narrow = AttentionTime(a, r).compute_s - kMemoryLatency_s;
  EXPECT_NEAR(narrow / wide, 0.5 * 1.42 / 1.21, 1e-9);
  a.head_dim = 80;  // runs in the template for 96
  const double odd = AttentionTime(a, r).compute_s;
  a.head_dim = 96;
  EXPECT_DOUBLE_EQ(odd, AttentionTime(a, r).compute_s);
}

// x = 0.84 / 16 · 4096 / 256 = 0.84 clocks of exponentials beside a clock of products, backward 2/5
// of that: with twice as many a clock 1.84 / 1.42 and 1.336 / 1.168 times faster.
TEST(AttentionModel, TwiceTheExponentialsHelpForwardMost) {
  Attention a{
      .batch = 8, .heads = 64, .kv_heads = 64, .seq_q = 8192, .seq_kv = 8192, .head_dim = 128};
  a.kernel = graph::AttentionKernel::kCudnn;
  cluster::DeviceSpec ultra = TestB200();
  ultra.exp_per_clock = 32;
  const auto faster = [&] {
    return (AttentionTime(a, Rates(TestB200())).compute_s - kMemoryLatency_s) /
           (AttentionTime(a, Rates(ultra)).compute_s - kMemoryLatency_s);
  };
  EXPECT_NEAR(faster(), 1.84 / 1.42, 1e-6);
  a.pass = graph::Pass::kBackward;
  EXPECT_NEAR(faster(), 1.336 / 1.168, 1e-6);
}

// Products in 8 bits take half the time, the exponentials beside them theirs: x = 0.84/16 ·
// 4,096/256 = 0.84 of the 16-bit ones on Blackwell, half of it with Ultra's.
TEST(AttentionModel, EightBitsSpeedProductsOnly) {
  Attention a{
      .batch = 8, .heads = 64, .kv_heads = 64, .seq_q = 8192, .seq_kv = 8192, .head_dim = 128};
  a.kernel = graph::AttentionKernel::kCudnn;
  const auto faster = [&](const cluster::DeviceSpec& device) {
    const DeviceRates rates = Rates(device);
    a.dtype = DType::kBf16;
    const double wide = AttentionTime(a, rates).compute_s - kMemoryLatency_s;
    a.dtype = DType::kFp8;
    return wide / (AttentionTime(a, rates).compute_s - kMemoryLatency_s);
  };
  cluster::DeviceSpec ultra = TestB200();
  ultra.exp_per_clock = 32;
  EXPECT_NEAR(faster(TestB200()), 2 * 1.84 / 2.68, 1e-6);
  EXPECT_NEAR(faster(ultra), 2 * 1.42 / 1.84, 1e-6);
  a.pass = graph::Pass::kBackward;
  EXPECT_NEAR(faster(TestB200()), 2 * 1.336 / 1.672, 1e-6);
}

TEST(AttentionModel, Flash3OnlyOnHopper) {
  Attention a{
      .batch = 8, .heads = 32, .kv_heads = 32, .seq_q = 4096, .seq_kv = 4096, .head_dim = 128};
  a.kernel = graph::AttentionKernel::kFlash3;
  const double flash3 = AttentionTime(a, Rates(Round())).total_s();
  a.kernel = graph::AttentionKernel::kFlash2;
  EXPECT_EQ(AttentionTime(a, Rates(Round())).total_s(), flash3);
}

// tilelang's benchmark (benchmark/mamba2): 8 sequences of 32,768 tokens, 80 heads of 64, states of
// 128, chunks of 256, 687 GFLOP: mamba_ssm's chunk scan runs at 90 to 110 TFLOP/s on H800.
TEST(MemoryBoundModel, DecaysTakeWhatWasMeasured) {
  const MemoryBound scan{
      .op = MemoryOp::kStateDecay, .rows = 8 * 32768 * 80, .cols = (256 + 64) / 2};
  const DeviceRates h100 = Rates(TestH100());
  const double ideal_s =
      MemoryBoundTime(scan, h100).compute_s * h100.constants[constants::kScanRate];
  EXPECT_GT(687e9 / ideal_s, 90e12);
  EXPECT_LT(687e9 / ideal_s, 110e12);
  EXPECT_NEAR(MemoryBoundTime(scan, Rates(TestB200())).compute_s *
                  h100.constants[constants::kScanRate] / ideal_s,
              132.0 / 148 * h100.clock_Hz / Rates(TestB200()).clock_Hz, 1e-9);
}

// 880 MB at 0.88 TB/s: 1 ms and the floor.
TEST(MemoryBoundModel, LargeStreamsRunAtTheirShareOfHbm) {
  const MemoryBound k{
      .op = MemoryOp::kAdd, .bytes_read = 600'000'000, .bytes_written = 280'000'000};
  EXPECT_NEAR(MemoryBoundTime(k, Rates(Round())).total_s(), 1e-3 + kKernelFloor_s, 1e-12);
}

// 2.88 MB from L2 at 2.88 TB/s: 1 us. At 30 MB half is resident; at 40 MB nothing is.
TEST(MemoryBoundModel, SmallStreamsComeFromL2) {
  const DeviceRates r = Rates(Round());
  EXPECT_NEAR(MemoryBoundTime({.bytes_read = 2'880'000}, r).total_s(), 1e-6 + kKernelFloor_s,
              1e-12);
  EXPECT_NEAR(StreamTime(r, 30e6, 0.88), 15e6 / 2.88e12 + 15e6 / 0.88e12, 1e-12);
  EXPECT_NEAR(StreamTime(r, 40e6, 0.88), 40e6 / 0.88e12, 1e-12);
}

TEST(MemoryBoundModel, MoreBytesNeverTakeLess) {
  const DeviceRates r = Rates(Round());
  double last = 0;
  for (double bytes = 1e3; bytes < 1e9; bytes *= 1.05) {
    const double t = StreamTime(r, bytes, kScatterRate);
    EXPECT_GT(t, last) << bytes;
    last = t;
  }
}

TEST(HostModel, LayoutTellsForwardFromBackward) {
  EXPECT_EQ(HostIssue(Gemm{.layout = GemmLayout::kNT}), kHostGemmForward_s);
  EXPECT_EQ(HostIssue(Gemm{.layout = GemmLayout::kTN}), kHostGemmBackward_s);
  EXPECT_EQ(HostIssue(MemoryBound{.op = MemoryOp::kAdam, .pass = Pass::kOptimizer}),
            kHostOptimizer_s);
}

}  // namespace
}  // namespace orrery::compute
