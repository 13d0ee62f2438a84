// Typed kernel descriptors: what a GPU kernel computes, never how long it takes.
//
// Units: elements for shapes, bytes for traffic. A descriptor holds all that a cost model may key
// on; two kernels with equal descriptors cost the same on one device.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace orrery::graph {

// kMxfp8: fp8 whose elements share a scale by blocks (OCP MX), beside kFp8's one scale a tensor.
enum class DType : std::uint8_t { kFp32, kTf32, kBf16, kFp16, kFp8, kFp4, kInt64, kMxfp8, kInt8 };
inline constexpr DType kLastDType = DType::kInt8;
// The last two: a backward pass whose gradients of inputs and of weights are computed apart (zero
// bubble).
enum class Pass : std::uint8_t { kForward, kBackward, kOptimizer, kBackwardInput, kBackwardWeight };
inline constexpr Pass kLastPass = Pass::kBackwardWeight;
constexpr bool IsBackward(Pass pass) {
  return pass == Pass::kBackward || pass == Pass::kBackwardInput || pass == Pass::kBackwardWeight;
}

constexpr std::int64_t SizeOf(DType type) {
  switch (type) {
    case DType::kFp32:
    case DType::kTf32:
      return 4;
    case DType::kBf16:
    case DType::kFp16:
      return 2;
    case DType::kFp8:
    case DType::kMxfp8:
    case DType::kFp4:
    case DType::kInt8:
      return 1;  // fp4 is packed in pairs: kernels count half
    case DType::kInt64:
      return 8;
  }
  return 0;
}
std::string_view Name(DType type);
std::string_view Name(Pass pass);

// C[m,n] (+)= A[m,k] · B[k,n], `batch` times. Layout letters are those of row-major A and B as
// torch sees them: a linear layer's forward y = x·Wᵀ is kNT, its data gradient kNN, its weight
// gradient kTN.
enum class GemmLayout : std::uint8_t { kNN, kNT, kTN };
// Who computes a batch: cuBLAS, in one launch; experts' products expert by expert, on a few streams
// (Transformer Engine's GroupedLinear); the Triton kernels of a state-space scan; a piece of a
// product on a stream of its own, where the next pieces fill its last wave (userbuffers).
enum class GemmKind : std::uint8_t { kPlain, kGrouped, kScan, kPiece };
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  DType dtype = DType::kBf16;
  GemmLayout layout = GemmLayout::kNT;
  bool accumulate = false;         // C is read and added to (fp32 main gradients)
  DType out_dtype = DType::kBf16;  // element type of C
  GemmKind kind = GemmKind::kPlain;
  friend bool operator==(const Gemm&, const Gemm&) = default;
};

// Fused attention over [batch, heads, seq, head_dim]; unfused attention is two batched Gemms around
// softmax kernels instead.
enum class AttentionKernel : std::uint8_t { kFlash2, kFlash3, kCudnn, kFlash1, kFlash4 };
struct Attention {
  std::int64_t batch = 0, heads = 0, kv_heads = 0;
  std::int64_t seq_q = 0, seq_kv = 0, head_dim = 0;
  DType dtype = DType::kBf16;
  bool causal = true;
  Pass pass = Pass::kForward;
  AttentionKernel kernel = AttentionKernel::kFlash2;
  std::int64_t v_head_dim = 0;  // of values and output; 0: head_dim
  std::int64_t window = 0;      // keys a query sees at most (sliding window); 0: all
  friend bool operator==(const Attention&, const Attention&) = default;
};

// A kernel bound by memory traffic: norms, activations, residuals, softmax, optimizer, casts,
// copies.
enum class MemoryOp : std::uint8_t {
  kLayerNorm,
  kRmsNorm,
  kGelu,
  kSwiglu,
  kBiasDropoutAdd,
  kRotary,
  kScaledMaskSoftmax,
  kDropout,
  kCrossEntropy,
  kEmbedding,
  kAdam,
  kGradNorm,
  kGradScale,
  kCast,
  kCopy,
  kAdd,
  kZero,
  kTranspose,
  kRouterTopk,
  kPermute,
  kUnpermute,
  kCausalConv,       // depthwise, over tokens
  kStateScan,        // of a state-space scan: states of chunks, sums
  kStateDecay,       // of a state-space scan: rows x cols decays, each an exponential and a product
  kDequantize,       // 4-bit weights: rows x cols values looked up and scaled
  kBlockwiseUpdate,  // an optimizer's, rows moments of cols elements in 8 bits
};
inline constexpr MemoryOp kLastMemoryOp = MemoryOp::kBlockwiseUpdate;
struct MemoryBound {
  MemoryOp op = MemoryOp::kCopy;
  std::int64_t rows = 0, cols = 0;  // as the framework sees the tensor
  std::int64_t bytes_read = 0, bytes_written = 0;
  DType dtype = DType::kBf16;
  Pass pass = Pass::kForward;
  friend bool operator==(const MemoryBound&, const MemoryBound&) = default;
};

// A kernel whose time a trace gives. REQUIRES: duration_ps >= 0.
struct Timed {
  std::int64_t duration_ps = 0;
  friend bool operator==(const Timed&, const Timed&) = default;
};

// A kernel of none of these kinds, known by what it moves and computes (its name is the
// operation's): index_put, sort, cat, a list of tensors at once.
struct Generic {
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t flops = 0;
  DType dtype = DType::kBf16;
  Pass pass = Pass::kForward;
  friend bool operator==(const Generic&, const Generic&) = default;
};

using Kernel = std::variant<Gemm, Attention, MemoryBound, Timed, Generic>;

std::string_view Name(GemmLayout layout);
std::string_view Name(GemmKind kind);
std::string_view Name(AttentionKernel kernel);
std::string_view Name(MemoryOp op);

std::uint64_t ContentHash(const Kernel& kernel);

// Multiply-adds counted as two; causal attention counts the full square here (callers halve).
double Flops(const Kernel& kernel);

}  // namespace orrery::graph
