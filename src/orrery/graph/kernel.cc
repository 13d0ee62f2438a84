#include "orrery/graph/kernel.h"

#include <algorithm>

#include "orrery/base/hash.h"

namespace orrery::graph {

std::string_view Name(DType type) {
  switch (type) {
    case DType::kFp32:
      return "fp32";
    case DType::kTf32:
      return "tf32";
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kFp8:
      return "fp8";
    case DType::kMxfp8:
      return "mxfp8";
    case DType::kFp4:
      return "fp4";
    case DType::kInt64:
      return "int64";
    case DType::kInt8:
      return "int8";
  }
  return "?";
}

std::string_view Name(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kBackward:
      return "backward";
    case Pass::kOptimizer:
      return "optimizer";
    case Pass::kBackwardInput:
      return "backward_input";
    case Pass::kBackwardWeight:
      return "backward_weight";
  }
  return "?";
}

std::string_view Name(GemmKind kind) {
  switch (kind) {
    case GemmKind::kPlain:
      return "plain";
    case GemmKind::kGrouped:
      return "grouped";
    case GemmKind::kPiece:
      return "piece";
    case GemmKind::kScan:
      return "scan";
  }
  return "?";
}

std::string_view Name(GemmLayout layout) {
  switch (layout) {
    case GemmLayout::kNN:
      return "nn";
    case GemmLayout::kNT:
      return "nt";
    case GemmLayout::kTN:
      return "tn";
  }
  return "?";
}

std::string_view Name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kFlash2:
      return "flash2";
    case AttentionKernel::kFlash3:
      return "flash3";
    case AttentionKernel::kCudnn:
      return "cudnn";
    case AttentionKernel::kFlash1:
      return "flash1";
    case AttentionKernel::kFlash4:
      return "flash4";
  }
  return "?";
}

std::string_view Name(MemoryOp op) {
  switch (op) {
    case MemoryOp::kLayerNorm:
      return "layer_norm";
    case MemoryOp::kRmsNorm:
      return "rms_norm";
    case MemoryOp::kGelu:
      return "gelu";
    case MemoryOp::kSwiglu:
      return "swiglu";
    case MemoryOp::kBiasDropoutAdd:
      return "bias_dropout_add";
    case MemoryOp::kRotary:
      return "rotary";
    case MemoryOp::kScaledMaskSoftmax:
      return "scaled_mask_softmax";
    case MemoryOp::kDropout:
      return "dropout";
    case MemoryOp::kCrossEntropy:
      return "cross_entropy";
    case MemoryOp::kEmbedding:
      return "embedding";
    case MemoryOp::kAdam:
      return "adam";
    case MemoryOp::kGradNorm:
      return "grad_norm";
    case MemoryOp::kGradScale:
      return "grad_scale";
    case MemoryOp::kCast:
      return "cast";
    case MemoryOp::kCopy:
      return "copy";
    case MemoryOp::kAdd:
      return "add";
    case MemoryOp::kZero:
      return "zero";
    case MemoryOp::kTranspose:
      return "transpose";
    case MemoryOp::kRouterTopk:
      return "router_topk";
    case MemoryOp::kPermute:
      return "permute";
    case MemoryOp::kUnpermute:
      return "unpermute";
    case MemoryOp::kCausalConv:
      return "causal_conv";
    case MemoryOp::kStateScan:
      return "state_scan";
    case MemoryOp::kStateDecay:
      return "state_decay";
    case MemoryOp::kDequantize:
      return "dequantize";
    case MemoryOp::kBlockwiseUpdate:
      return "blockwise_update";
  }
  return "?";
}

namespace {

struct HashVisitor {
  Hasher hash;
  void operator()(const Gemm& g) {
    hash.Add(1).Add(g.m).Add(g.n).Add(g.k).Add(g.batch).Add(g.dtype).Add(g.layout);
    hash.Add(g.accumulate).Add(g.out_dtype);
    if (g.kind != GemmKind::kPlain) hash.Add(g.kind);
  }
  void operator()(const Attention& a) {
    hash.Add(2).Add(a.batch).Add(a.heads).Add(a.kv_heads).Add(a.seq_q).Add(a.seq_kv);
    hash.Add(a.head_dim).Add(a.dtype).Add(a.causal).Add(a.pass).Add(a.kernel);
    if (a.v_head_dim != 0 || a.window != 0) hash.Add(a.v_head_dim).Add(a.window);
  }
  void operator()(const MemoryBound& m) {
    hash.Add(3).Add(m.op).Add(m.rows).Add(m.cols).Add(m.bytes_read).Add(m.bytes_written);
    hash.Add(m.dtype).Add(m.pass);
  }
  void operator()(const Timed& t) { hash.Add(4).Add(t.duration_ps); }
  void operator()(const Generic& g) {
    hash.Add(5).Add(g.bytes_read).Add(g.bytes_written).Add(g.flops).Add(g.dtype).Add(g.pass);
  }
};

// Queries times keys. A window w leaves q·w − w²/2 pairs of a causal square, counted twice as the
// square itself is; the first queries' windows reach before the first key only as far as no earlier
// keys stand there (kv − q of them).
double Pairs(const Attention& a) {
  const auto q = static_cast<double>(a.seq_q), kv = static_cast<double>(a.seq_kv);
  if (a.window <= 0 || a.window >= a.seq_kv) return q * kv;
  const auto w = static_cast<double>(a.window);
  if (!a.causal) return q * w;
  const double cut = std::max(0.0, w - std::max(0.0, kv - q));
  return 2 * q * w - cut * cut;
}

struct FlopsVisitor {
  double operator()(const Gemm& g) const {
    return 2.0 * static_cast<double>(g.batch) * static_cast<double>(g.m) *
           static_cast<double>(g.n) * static_cast<double>(g.k);
  }
  // Two matrix products forward, one over the keys' width and one over the values'; five backward
  // (scores again, and four gradients), three of them over the keys' width.
  double operator()(const Attention& a) const {
    const double scores =
        2.0 * static_cast<double>(a.batch) * static_cast<double>(a.heads) * Pairs(a);
    const double qk = static_cast<double>(a.head_dim);
    const double v = static_cast<double>(a.v_head_dim > 0 ? a.v_head_dim : a.head_dim);
    return scores * (a.pass == Pass::kForward ? qk + v : 3.0 * qk + 2.0 * v);
  }
  double operator()(const MemoryBound&) const { return 0; }
  double operator()(const Timed&) const { return 0; }
  double operator()(const Generic& g) const { return static_cast<double>(g.flops); }
};

}  // namespace

std::uint64_t ContentHash(const Kernel& kernel) {
  HashVisitor visitor;
  std::visit(visitor, kernel);
  return visitor.hash.value();
}

double Flops(const Kernel& kernel) { return std::visit(FlopsVisitor{}, kernel); }

}  // namespace orrery::graph
