#include "orrery/compute/constants.h"

namespace orrery::compute {
namespace {

constexpr ConstantKind kFact = ConstantKind::kFact;
constexpr ConstantKind kModel = ConstantKind::kModel;
constexpr ConstantKind kSpread = ConstantKind::kSpread;

// clang-format off
constexpr Constant kConstants[] = {
    {"kMacsPerClock[volta]", kFact, kMacsPerClock[0], 512, 512, "1/clock/SM", "dense 16-bit multiply-adds", "NVIDIA V100 architecture white paper"},
    {"kMacsPerClock[ampere]", kFact, kMacsPerClock[1], 1024, 1024, "1/clock/SM", "dense 16-bit multiply-adds", "NVIDIA A100 architecture white paper"},
    {"kMacsPerClock[hopper]", kFact, kMacsPerClock[2], 2048, 2048, "1/clock/SM", "dense 16-bit multiply-adds", "NVIDIA H100 architecture white paper"},
    {"kMacsPerClock[blackwell]", kFact, kMacsPerClock[3], 4096, 4096, "1/clock/SM", "dense 16-bit multiply-adds", "B200 data sheet: 2.25 PFLOP/s over 148 SMs at 1.85 GHz"},
    {"kReferencePower[volta]", kFact, kReferencePower_W[0], 300, 300, "W", "limit of the SXM board, to which a GEMM's sustained rate belongs", "NVIDIA V100 data sheet"},
    {"kReferencePower[ampere]", kFact, kReferencePower_W[1], 400, 400, "W", "the same", "NVIDIA A100 data sheet"},
    {"kReferencePower[hopper]", kFact, kReferencePower_W[2], 700, 700, "W", "the same", "NVIDIA H100 data sheet"},
    {"kReferencePower[blackwell]", kFact, kReferencePower_W[3], 1000, 1000, "W", "the same", "NVIDIA HGX B200 data sheet"},
    {"kReferenceSms[volta]", kFact, kReferenceSms[0], 80, 80, "", "SMs of that board", "NVIDIA V100 data sheet"},
    {"kReferenceSms[ampere]", kFact, kReferenceSms[1], 108, 108, "", "the same", "NVIDIA A100 data sheet"},
    {"kReferenceSms[hopper]", kFact, kReferenceSms[2], 132, 132, "", "the same", "NVIDIA H100 data sheet"},
    {"kReferenceSms[blackwell]", kFact, kReferenceSms[3], 148, 148, "", "the same", "NVIDIA HGX B200 data sheet"},
    {"kReferenceFp16_flops[volta]", kFact, kReferenceFp16_flops[0], 125e12, 125e12, "FLOP/s", "dense 16-bit peak of that board", "NVIDIA V100 data sheet"},
    {"kReferenceFp16_flops[ampere]", kFact, kReferenceFp16_flops[1], 312e12, 312e12, "FLOP/s", "the same", "NVIDIA A100 data sheet"},
    {"kReferenceFp16_flops[hopper]", kFact, kReferenceFp16_flops[2], 989.4e12, 989.4e12, "FLOP/s", "the same", "NVIDIA H100 data sheet"},
    {"kReferenceFp16_flops[blackwell]", kFact, kReferenceFp16_flops[3], 2250e12, 2250e12, "FLOP/s", "the same", "NVIDIA HGX B200 data sheet"},
    {"kReferenceFp8_flops[volta]", kFact, kReferenceFp8_flops[0], 250e12, 250e12, "FLOP/s", "twice its 16-bit peak; of devices that are priced as this architecture's and have fp8", "NVIDIA V100 data sheet"},
    {"kReferenceFp8_flops[ampere]", kFact, kReferenceFp8_flops[1], 624e12, 624e12, "FLOP/s", "the same, and its peak in int8", "NVIDIA A100 data sheet"},
    {"kReferenceFp8_flops[hopper]", kFact, kReferenceFp8_flops[2], 1978.9e12, 1978.9e12, "FLOP/s", "dense 8-bit peak of that board", "NVIDIA H100 data sheet"},
    {"kReferenceFp8_flops[blackwell]", kFact, kReferenceFp8_flops[3], 4500e12, 4500e12, "FLOP/s", "the same", "NVIDIA HGX B200 data sheet"},
    {"kL2BytesPerClock", kFact, kL2BytesPerClock, 64, 64, "B/clock/SM", "L2 read port of an SM", "NVIDIA A100 white paper: 5,120 B/clock in all; same port since Volta"},
    {"kExpPerClock", kFact, kExpPerClock, 16, 16, "1/clock/SM", "exponentials of the special-function units, unless the device says more", "CUDA programming guide, arithmetic throughput table"},
    {"kFp4PerFp8", kFact, kFp4PerFp8, 2, 2, "", "fp4 multiply-adds per fp8 multiply-add", "NVIDIA B200 and GB200 data sheets"},

    {"kGemmRate16Volta", kModel, kGemmRate16Volta, 0.72, 0.86, "of peak", "16-bit rate a large GEMM sustains", "cuBLAS on V100: 90 to 107 of 125 TFLOP/s"},
    {"kGemmRateFp32", kModel, kGemmRateFp32, 0.80, 0.95, "of peak", "fp32 rate a large GEMM sustains on CUDA cores", "cuBLAS SGEMM on V100 and A100: 14 of 15.7, 18 of 19.5 TFLOP/s"},
    {"kMemoryLatency_s", kModel, kMemoryLatency_s, 0.4e-6, 0.9e-6, "s", "load to first use from HBM", "microbenchmarks: A100 about 470 ns, H100 about 600 ns"},
    {"kMostOfPeak", kModel, kMostOfPeak, 0.85, 1, "of peak", "rate that no GEMM exceeds, whatever the power", "cuBLAS at low power density: up to 0.93 of peak on A100 and H100"},
    {"kVboost", kModel, kVboost, 1.02, 1.08, "", "rate of Hopper's tensor cores with power steered from the L2 to the SMs (vboost), relative to without", "NVIDIA's blog on MLPerf Training v4.0, from memory, the post could not be read again: 4 % of GPT-3's step on 512 H100, of which products and attention are some four fifths"},
    {"kMxfp8Rate", kModel, kMxfp8Rate, 0.90, 1, "", "rate of a GEMM with scales by blocks (mxfp8), relative to one scale a tensor", "Transformer Engine, docs/examples/gemm_profiling, B300: a layer's products in 7.16 ms, in fp8 with one scale 6.81"},
    {"kMisalignedRate", kModel, kMisalignedRate, 0.30, 0.80, "", "GEMM rate when a row is no multiple of 16 bytes", "NVIDIA deep learning performance guide, alignment figure"},
    {"kPartLineRate", kModel, kPartLineRate, 0.75, 1, "", "GEMM rate when a row of an operand is no multiple of a line of 128 bytes", "NVIDIA deep learning performance guide: from A100 on best at multiples of 128 bytes; the value is an estimate, made with BLOOM's tuning in sight"},
    {"kPieceStreams", kModel, kPieceStreams, 1, 4, "", "pieces of a GEMM, cut for communication beside it, that run side by side", "Transformer Engine's comm_gemm_overlap, NVTE_COMM_OVERLAP_MAX_STREAMS: 3"},
    {"kLeastSplitDepth", kModel, kLeastSplitDepth, 128, 2048, "", "least depth of a part of a GEMM that is split along k; shallower parts would be all prologue", "estimate"},

    {"kFlash2Rate[volta].forward", kModel, kFlash2Rate[0].forward, 0.25, 0.50, "of peak", "memory-efficient attention where flash2 does not exist", "xFormers/CUTLASS attention on V100"},
    {"kFlash2Rate[volta].backward", kModel, kFlash2Rate[0].backward, 0.20, 0.40, "of peak", "the same, backward", "xFormers/CUTLASS attention on V100"},
    {"kFlash2Rate[ampere].backward", kModel, kFlash2Rate[1].backward, 0.50, 0.63, "of peak", "flash2 backward", "FlashAttention-2 paper, A100, d = 128: up to 196 TFLOP/s"},
    {"kFlash2Rate[hopper].backward", kModel, kFlash2Rate[2].backward, 0.26, 0.34, "of peak", "flash2 backward", "FlashAttention-2 paper, H100: up to 335 TFLOP/s"},
    {"kFlash2Rate[blackwell].forward", kModel, kFlash2Rate[3].forward, 0.12, 0.25, "of peak", "flash2 forward, on the older matrix instructions", "flash2 keeps about its H100 rate"},
    {"kFlash2Rate[blackwell].backward", kModel, kFlash2Rate[3].backward, 0.10, 0.20, "of peak", "flash2 backward, on the older matrix instructions", "flash2 keeps about its H100 rate"},
    {"kFlash1OverFlash2.backward", kModel, kFlash1OverFlash2.backward, 0.33, 0.60, "of flash2", "flash1 backward", "FlashAttention-2 paper, section 1: flash1 reaches 25 to 35 % of A100's peak, flash2 up to 63 %"},
    {"kFlash3Rate.backward", kModel, kFlash3Rate.backward, 0.48, 0.58, "of peak", "flash3 backward on Hopper", "FlashAttention-3 paper, H100, d = 128: up to 560 TFLOP/s"},
    {"kFlash4Rate.forward", kModel, kFlash4Rate.forward, 0.60, 0.75, "of peak", "flash4 forward on Blackwell", "FlashAttention-4 paper (arXiv 2603.05451), B200, d = 128: up to 1,613 TFLOP/s; Dao-AILab/flash-attention #2280: 1,535 at 8k"},
    {"kFlash4Rate.backward", kModel, kFlash4Rate.backward, 0.50, 0.64, "of peak", "flash4 backward on Blackwell", "Dao-AILab/flash-attention #2280, B200, d = 128, 8k: 1,360 TFLOP/s"},
    {"kCudnnHopperRate.backward", kModel, kCudnnHopperRate.backward, 0.45, 0.58, "of peak", "cuDNN fused attention backward", "FlashAttention-3 paper, cuDNN curves; cuDNN 9 notes"},
    {"kCudnnBlackwellRate.backward", kModel, kCudnnBlackwellRate.backward, 0.35, 0.55, "of peak", "cuDNN fused attention backward", "cuDNN on B200: 850 to 1,200 TFLOP/s"},
    {"kExpStall", kModel, kExpStall, 0.40, 1.00, "", "part of the exponentials not hidden behind products", "FlashAttention-2/-3 papers: d = 64 reaches 0.84 (A100), 0.77 (H100) of d = 128"},
    {"kCausalRate", kModel, kCausalRate, 0.85, 0.98, "", "rate with a causal mask relative to without, same visited blocks", "FlashAttention-2/-3 papers at 16k"},

    {"kDecayClocks", kModel, kDecayClocks, 0.45, 0.55, "clocks of an SM", "a decay of a state-space scan with its product, in mamba_ssm's Triton kernels", "tilelang's benchmark/mamba2: mamba_ssm 2.2.6's chunk scan at 90 to 110 TFLOP/s on H800"},
    {"kDequantizeClocks", kModel, kDequantizeClocks, 0.25, 0.30, "clocks of an SM", "a 4-bit weight looked up and scaled (bitsandbytes 0.50, kDequantizeBlockwise)", "data/measured/h200/quantized.csv, nf4_dequantize: of 234,881,024 to 16,777,216 weights, launches included"},
    {"kBlockwiseUpdateClocks", kModel, kBlockwiseUpdateClocks, 3.3, 3.6, "clocks of an SM", "a moment of an 8-bit optimizer (bitsandbytes 0.50, kOptimizerStatic8bit2StateBlockwise)", "data/measured/h200/quantized.csv, adamw_8bit of 58,720,256 parameters and more"},

    {"kL2Rate", kModel, kL2Rate, 0.30, 0.65, "of L2 ports", "achieved L2 bandwidth of a streaming kernel", "microbenchmarks: A100 about 4, H100 about 5.5 TB/s"},
    {"kL2Usable", kModel, kL2Usable, 0.30, 0.80, "of L2", "part of the L2 that keeps a kernel's operands for the next one", "two partitions; A100 and H100 cache-residency tests"},

    {"kLaunchLatency_s", kModel, kLaunchLatency_s, 2.5e-6, 6e-6, "s", "host call to start on an idle device", "CUDA launch-latency benchmarks over PCIe 4 and 5"},
    {"kHostGemmForward_s", kModel, kHostGemmForward_s, 6e-6, 16e-6, "s", "host time of a linear layer's launch, Python and autograd included", "PyTorch profiler traces, eager"},
    {"kHostGemmBackward_s", kModel, kHostGemmBackward_s, 4e-6, 12e-6, "s", "host time of a gradient GEMM from the autograd thread", "PyTorch profiler traces, eager"},
    {"kHostAttentionForward_s", kModel, kHostAttentionForward_s, 12e-6, 40e-6, "s", "host time of a fused attention call", "PyTorch profiler traces, flash-attn binding"},
    {"kHostAttentionBackward_s", kModel, kHostAttentionBackward_s, 10e-6, 35e-6, "s", "host time of a fused attention gradient", "PyTorch profiler traces, flash-attn binding"},
    {"kHostForward_s", kModel, kHostForward_s, 4e-6, 12e-6, "s", "host time of any other operator, forward", "PyTorch profiler traces, eager"},
    {"kHostBackward_s", kModel, kHostBackward_s, 3e-6, 10e-6, "s", "host time of any other operator, backward", "PyTorch profiler traces, eager"},
    {"kHostOptimizer_s", kModel, kHostOptimizer_s, 4e-6, 15e-6, "s", "host time of one multi-tensor launch", "PyTorch profiler traces, fused Adam"},
    {"kHostTimed_s", kModel, kHostTimed_s, 3e-6, 10e-6, "s", "host time of a traced kernel whose operator is unknown", "mean of the above"},
    {"kHostGraph_s", kModel, kHostGraph_s, 5e-6, 30e-6, "s", "host time to launch a CUDA graph of some hundred kernels", "NVIDIA, Constant Time Launch for Straight-Line CUDA Graphs (2024), and PyTorch's replay"},
    {"kHostComm_s", kModel, kHostComm_s, 8e-6, 30e-6, "s", "host time to enqueue one communication through c10d", "PyTorch profiler traces, ProcessGroupNCCL"},

    {"kSpreadGemm", kSpread, kSpreadGemm, 0.05, 0.20, "relative", "modelled GEMM", "a priori"},
    {"kSpreadAttention", kSpread, kSpreadAttention, 0.06, 0.25, "relative", "modelled attention", "a priori"},
    {"kSpreadMemory", kSpread, kSpreadMemory, 0.08, 0.30, "relative", "modelled memory-bound kernel", "a priori"},
    {"kSpreadFloor", kSpread, kSpreadFloor, 0.15, 0.50, "relative", "the fixed part of any modelled kernel", "a priori"},
    {"kSpreadScaled", kSpread, kSpreadScaled, 0.05, 0.25, "relative", "scaled from another device", "SimAI paper: CP-Model 13 to 15 %"},
    {"kSpreadInterpolated", kSpread, kSpreadInterpolated, 0.02, 0.10, "relative", "interpolated between measured shapes", "a priori"},
};
// clang-format on

}  // namespace

std::span<const Constant> Constants() { return kConstants; }

}  // namespace orrery::compute
