// The constants of the kernel models that no fit moves: value here; range, unit, meaning and source
// in Constants() (constants.cc), which 'orrery list constants' prints. Those that the fit may move
// stand in data/constants/constants.csv (constants/constants.h).
//
// All here are a-priori values from published measurements or microbenchmarks of the hardware.
// Facts of an architecture stand apart from constants of a model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "orrery/cluster/cluster.h"
#include "orrery/constants/constants.h"

namespace orrery::compute {

inline constexpr std::size_t kArchs = 4;
constexpr std::size_t Index(cluster::Arch arch) { return static_cast<std::size_t>(arch); }
using ByArch = std::array<double, kArchs>;  // Volta, Ampere, Hopper, Blackwell

// Facts. Dense 16-bit multiply-adds per clock and SM.
inline constexpr ByArch kMacsPerClock = {512, 1024, 2048, 4096};
// The SXM boards to which sustained rates belong: power limit, SMs, dense 16-bit peak.
inline constexpr ByArch kReferencePower_W = {300, 400, 700, 1000};
inline constexpr ByArch kReferenceSms = {80, 108, 132, 148};
inline constexpr ByArch kReferenceFp16_flops = {125e12, 312e12, 989.4e12, 2250e12};
// Volta and Ampere: twice the 16-bit peak, as of devices priced as theirs that have fp8 (Ada).
inline constexpr ByArch kReferenceFp8_flops = {250e12, 624e12, 1978.9e12, 4500e12};
inline constexpr double kL2BytesPerClock = 64;  // that an SM reads
inline constexpr double kExpPerClock = 16;      // per SM, by the special-function units
inline constexpr double kFp4PerFp8 = 2;

// GEMM.
inline constexpr double kGemmRate16Volta = 0.80;
inline constexpr double kGemmRateFp32 = 0.90;
inline constexpr double kMemoryLatency_s = 0.6e-6;
inline constexpr double kMisalignedRate = 0.5;
inline constexpr double kPartLineRate = 0.9;
inline constexpr double kMostOfPeak = 0.93;
inline constexpr double kMxfp8Rate = 0.95;
inline constexpr double kVboost = 1.05;  // attention, too
// Pieces of a product that run side by side (Transformer Engine's comm_gemm_overlap,
// NVTE_COMM_OVERLAP_MAX_STREAMS).
inline constexpr double kPieceStreams = 3;
inline constexpr std::int64_t kLeastSplitDepth = 512;  // shallower parts would be all prologue

// Attention, head size 128, long sequences, fraction of the dense peak. Of those whose forward rate
// the fit may move, backward keeps its ratio to it.
struct AttentionRate {
  double forward, backward;
};
inline constexpr std::array<AttentionRate, kArchs> kFlash2Rate = {
    {{0.40, 0.30}, {0.72, 0.60}, {0.38, 0.31}, {0.18, 0.15}}};
inline constexpr AttentionRate kFlash1OverFlash2 = {0.57, 0.52};
inline constexpr AttentionRate kFlash3Rate = {0.66, 0.55};
inline constexpr AttentionRate kFlash4Rate = {0.70, 0.60};  // on Blackwell
inline constexpr AttentionRate kCudnnHopperRate = {0.63, 0.53};
inline constexpr AttentionRate kCudnnBlackwellRate = {0.60, 0.45};
inline constexpr double kExpStall = 0.84;
inline constexpr double kCausalRate = 0.92;

// A state-space scan: clocks of an SM for a decay with its product, in mamba_ssm's Triton kernels.
// tilelang's benchmark/mamba2: mamba_ssm 2.2.6's chunk scan at 90 to 110 TFLOP/s on H800 (chunks of
// 256, heads of 64, states of 128): 0.45 to 0.55 at the clock behind its printed peak.
inline constexpr double kDecayClocks = 0.5;

// bitsandbytes 0.50: clocks of an SM for a 4-bit weight (kDequantizeBlockwise) and for a moment of
// an 8-bit optimizer (kOptimizerStatic8bit2StateBlockwise, which has two), neither of which moves
// with bytes: fp32 parameters take as long as bf16 ones. `tools/measure/quantized.py` on H200
// (data/measured/h200/quantized.csv) at the clock behind the data sheet's peak, 1.83 GHz:
// nf4_dequantize of 14336 x 4096 in 64.9 us, less a launch, adamw_8bit of 525,336,576 in 14.5 ms.
inline constexpr double kDequantizeClocks = 0.26;
inline constexpr double kBlockwiseUpdateClocks = 3.33;

// The L2.
inline constexpr double kL2Rate = 0.45;
inline constexpr double kL2Usable = 0.50;

// Launch and host, seconds on the reference host.
inline constexpr double kLaunchLatency_s = 4e-6;
inline constexpr double kHostGemmForward_s = 10e-6;
inline constexpr double kHostGemmBackward_s = 7e-6;
inline constexpr double kHostAttentionForward_s = 25e-6;
inline constexpr double kHostAttentionBackward_s = 20e-6;
inline constexpr double kHostForward_s = 8e-6;
inline constexpr double kHostBackward_s = 6e-6;
inline constexpr double kHostOptimizer_s = 8e-6;
inline constexpr double kHostTimed_s = 6e-6;
inline constexpr double kHostComm_s = 15e-6;
inline constexpr double kHostGraph_s = 10e-6;

// Spreads (relative standard deviation) of answers by who gave them.
inline constexpr double kSpreadGemm = 0.10;
inline constexpr double kSpreadAttention = 0.12;
inline constexpr double kSpreadMemory = 0.15;
inline constexpr double kSpreadFloor = 0.30;
inline constexpr double kSpreadScaled = 0.14;
inline constexpr double kSpreadInterpolated = 0.05;

enum class ConstantKind { kFact, kModel, kSpread };
struct Constant {
  std::string_view name;
  ConstantKind kind;
  double value, low, high;  // low, high: what measurements elsewhere would call reasonable
  std::string_view unit, meaning, source;
};
std::span<const Constant> Constants();

}  // namespace orrery::compute
