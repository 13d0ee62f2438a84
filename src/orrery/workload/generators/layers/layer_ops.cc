#include "orrery/workload/generators/layers/layer_ops.h"

#include "orrery/workload/generators/layers/lora.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/quantized.h"
#include "orrery/workload/generators/layers/torch_layers.h"
#include "orrery/workload/generators/layers/tp_overlap.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

using graph::Collective;
using graph::Comm;
using graph::Gemm;
using graph::GemmLayout;
using graph::GroupSlot;
using graph::MemoryBound;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

MemoryBound Elementwise(const Shape& s, MemoryOp op, std::int64_t rows, std::int64_t cols,
                        std::int64_t read_bytes, std::int64_t written_bytes, Pass pass) {
  const std::int64_t n = rows * cols;
  return {.op = op,
          .rows = rows,
          .cols = cols,
          .bytes_read = n * read_bytes,
          .bytes_written = n * written_bytes,
          .dtype = s.dtype,
          .pass = pass};
}

void OverStream(const Shape& s, BlockWriter* w, std::string_view name, MemoryOp op,
                std::int64_t read, std::int64_t written, Pass pass) {
  const std::int64_t e = s.element_bytes;
  w->Kernel(name, Elementwise(s, op, s.local_tokens(), s.hidden, read * e, written * e, pass));
}

namespace {

MemoryOp NormOp(const Shape& s) {
  return s.norm == Norm::kLayerNorm ? MemoryOp::kLayerNorm : MemoryOp::kRmsNorm;
}
std::string_view NormName(const Shape& s) {
  return s.norm == Norm::kLayerNorm ? "layer_norm" : "rms_norm";
}

Comm Async(Collective kind, std::int64_t bytes, graph::DType dtype, std::int16_t event) {
  return {.collective = kind,
          .group = GroupSlot::kTp,
          .stream = kTpStream,
          .blocking = false,
          .event = event,
          .dtype = dtype,
          .bytes = {.value = bytes}};
}

// Of an operand on its way through a collective.
graph::DType WireType(const Shape& s) { return IsLow(s) ? graph::DType::kFp8 : s.dtype; }

Gemm Forward(const Shape& s, std::int64_t in, std::int64_t out) {
  return {.m = s.tokens(),
          .n = out,
          .k = in,
          .dtype = LinearType(s),
          .layout = GemmLayout::kNT,
          .out_dtype = s.dtype};
}
Gemm DataGradient(const Shape& s, std::int64_t in, std::int64_t out) {
  return {.m = s.tokens(),
          .n = in,
          .k = out,
          .dtype = LinearType(s),
          .layout = GemmLayout::kNN,
          .out_dtype = s.dtype};
}
Gemm WeightGradient(const Shape& s, std::int64_t in, std::int64_t out) {
  return {.m = out, .n = in, .k = s.tokens(), .dtype = LinearType(s), .layout = GemmLayout::kTN};
}

// Autocast's copy of a weight, made where it is first used in a micro-batch. Frozen ones are loaded
// in 16 bits.
void CastWeight(const Shape& s, BlockWriter* w, std::int64_t in, std::int64_t out) {
  if (!s.autocasts() || s.frozen()) return;
  w->Kernel("weight.cast",
            Elementwise(s, MemoryOp::kCast, out, in, 4, s.element_bytes, Pass::kForward));
}

void WriteWeightGradient(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                         std::int64_t out) {
  WriteGemm(s, w, name, WeightGradient(s, in, out));
}

}  // namespace

void Enter(const Shape& s, BlockWriter* w, std::string_view module, graph::Pass pass) {
  w->Module(module);
  w->Host("module", pass == graph::Pass::kForward ? s.framework.host.module_forward
                                                  : s.framework.host.module_backward);
}

Gemm Batched(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
  return {.m = m,
          .n = n,
          .k = k,
          .batch = s.batch * s.heads,
          .dtype = s.dtype,
          .layout = layout,
          .out_dtype = s.dtype};
}

void WriteSoftmax(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t keys, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const auto kernel = [&](std::string_view name, MemoryOp op, std::int64_t read,
                          std::int64_t written) {
    w->Kernel(name, Elementwise(s, op, rows, keys, read, written, pass));
  };
  const std::int64_t inputs = pass == Pass::kForward ? 1 : 2;
  if (s.framework.fused_softmax) {
    return kernel("scaled_mask_softmax", MemoryOp::kScaledMaskSoftmax, inputs * e, e);
  }
  // torch: to fp32, scale, mask, softmax, back. The backward pass mirrors each.
  kernel("cast", MemoryOp::kCast, e, 4);
  kernel("scale", MemoryOp::kGradScale, 4, 4);
  kernel("mask", MemoryOp::kCopy, 5, 4);
  kernel("softmax", MemoryOp::kScaledMaskSoftmax, inputs * 4, 4);
  kernel("cast", MemoryOp::kCast, 4, e);
}

graph::Buffer Saved(BlockWriter* w, std::uint32_t id, std::string_view name, std::int64_t bytes) {
  return w->Named(id, name, bytes, graph::MemoryKind::kActivation, graph::Lifetime::kMicrobatch);
}

void Rotary(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const auto kernel = [&](std::string_view part, MemoryOp op, std::int64_t read,
                          std::int64_t written) {
    w->Kernel(part, Elementwise(s, op, s.tokens(), width, read, written, pass));
  };
  if (s.plain_torch()) return ComplexRotary(s, w, name, width, pass);
  if (!s.scaled_rotary) return kernel(name, MemoryOp::kRotary, e, e);
  const bool forward = pass == Pass::kForward;
  w->Host("rotary",
          forward ? 8 * s.framework.host.operator_forward : 8 * s.framework.host.operator_backward);
  kernel("rotate", MemoryOp::kCopy, e + e / 2, e + e / 2);  // a half negated, then both together
  kernel("cosine", MemoryOp::kGradScale, e, e);
  kernel("sine", MemoryOp::kGradScale, e, e);
  kernel(name, MemoryOp::kAdd, 2 * e, e);
  if (forward) kernel("concatenate", MemoryOp::kCopy, e, e);
}

void NormForward(const Shape& s, BlockWriter* w) {
  if (EagerNorms(s)) return EagerRmsNorm(s, w, s.local_tokens(), s.hidden, Pass::kForward);
  w->Kernel(NormName(s), Elementwise(s, NormOp(s), s.local_tokens(), s.hidden, s.element_bytes,
                                     s.element_bytes, Pass::kForward));
}

void NormBackward(const Shape& s, BlockWriter* w) {
  if (EagerNorms(s)) {
    EagerRmsNorm(s, w, s.local_tokens(), s.hidden, Pass::kBackward);
  } else {
    w->Kernel(NormName(s), Elementwise(s, NormOp(s), s.local_tokens(), s.hidden,
                                       2 * s.element_bytes, s.element_bytes, Pass::kBackward));
  }
  AccumulateGradient(s, w, "weight_gradient", s.hidden);
  if (s.norm == Norm::kLayerNorm) AccumulateGradient(s, w, "bias_gradient", s.hidden);
}

void AccumulateGradient(const Shape& s, BlockWriter* w, std::string_view name,
                        std::int64_t elements) {
  if (s.frozen()) return;
  if (s.separate_gradients()) return AddTensorGradient(s, w, name, elements);
  const std::int64_t e = s.element_bytes, g = s.gradient_bytes;
  const auto kernel = [&](MemoryOp op, std::int64_t read, std::int64_t written) {
    w->Kernel(name, Elementwise(s, op, 1, elements, read, written, Pass::kBackward));
  };
  if (!s.framework.converted_gradients) return kernel(MemoryOp::kAdd, e + g, g);
  kernel(MemoryOp::kCast, e, g);
  kernel(MemoryOp::kAdd, 2 * g, g);
}

void WriteGemm(const Shape& s, BlockWriter* w, std::string_view name, Gemm gemm) {
  const bool weights = gemm.layout == GemmLayout::kTN;
  if (weights && s.frozen()) return;
  gemm.accumulate = weights && s.gemm_adds();
  gemm.out_dtype = gemm.accumulate ? s.gradient_dtype : s.dtype;
  if (gemm.layout == GemmLayout::kNT) CastWeight(s, w, gemm.k, gemm.batch * gemm.n);
  if (!weights) return MultiplyByWeight(s, w, name, gemm);
  w->Kernel(name, gemm);
  if (s.gemm_adds()) return;
  AccumulateGradient(s, w, "weight_gradient", gemm.batch * gemm.m * gemm.n);
}

void BiasGradient(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t cols) {
  if (s.frozen()) return;
  MemoryBound sum = Elementwise(s, MemoryOp::kAdd, rows, cols, s.element_bytes, 0, Pass::kBackward);
  sum.bytes_written = cols * s.element_bytes;
  w->Kernel("bias_sum", sum);
  AccumulateGradient(s, w, "bias_gradient", cols);
}

void ResidualGradient(const Shape& s, BlockWriter* w) {
  w->Kernel("residual_gradient",
            Elementwise(s, MemoryOp::kAdd, s.local_tokens(), s.hidden, 2 * s.element_bytes,
                        s.element_bytes, Pass::kBackward));
}

void SquaredReluOperators(const Shape& s, BlockWriter* w, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const auto run = [&](std::string_view name, MemoryOp op, std::int64_t tensors_read) {
    w->Kernel(name, Elementwise(s, op, s.tokens(), s.ffn, tensors_read * e, e, pass));
  };
  if (pass == Pass::kForward) {
    if (s.mlp_bias) run("bias", MemoryOp::kAdd, 1);
    run("relu", MemoryOp::kGelu, 1);
    return run("pow", MemoryOp::kGelu, 1);
  }
  run("pow", MemoryOp::kCopy, 1);
  run("double", MemoryOp::kGradScale, 1);
  run("multiply", MemoryOp::kAdd, 2);
  run("threshold", MemoryOp::kGelu, 2);
}

void TpCollective(const Shape& s, BlockWriter* w, std::string_view name, Collective kind,
                  std::int64_t bytes, graph::DType dtype) {
  if (s.tp == 1) return;
  w->Host("communication", s.framework.host.communication);
  w->Comm(name, {.collective = kind,
                 .group = GroupSlot::kTp,
                 .stream = kTpStream,
                 .dtype = dtype,
                 .bytes = {.value = bytes}});
}

void ColumnForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                   std::int64_t out) {
  const std::int64_t bytes = LinearBytes(s, s.tokens() * in);
  const bool pipelines = Pipelines(s, name);  // into userbuffers
  const bool temporary = s.sequence_parallel && !pipelines && !s.keeps_gathered();
  const graph::Buffer gathered =
      w->Temporary("gathered", temporary ? bytes : 0, MemoryKind::kCommunication);
  w->Alloc(gathered);
  CastOperand(s, w, "cast", s.local_tokens(), in, Pass::kForward, true, true);
  if (pipelines) return GatherAndMultiply(s, w, name, bytes, WireType(s), Forward(s, in, out));
  if (s.sequence_parallel) {
    TpCollective(s, w, "all_gather", Collective::kAllGather, bytes, WireType(s));
  }
  CastWeight(s, w, in, out);
  MultiplyByWeight(s, w, name, Forward(s, in, out));
  AdapterForward(s, w, name, in, out, Split::kColumns);
  w->Free(gathered);
}

void ColumnBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                    std::int64_t out, bool fused_bias) {
  const std::int64_t bytes = s.tokens() * in * s.element_bytes;
  const std::int64_t saved = LinearBytes(s, s.tokens() * in);
  // Only gradients of weights need the layer's input again.
  const bool gathers =
      s.sequence_parallel && !s.keeps_gathered() && (!s.frozen() || Adapts(s, name));
  const bool in_userbuffers = Pipelines(s, name);
  const graph::Buffer gathered =
      w->Temporary("gathered", gathers && !in_userbuffers ? saved : 0, MemoryKind::kCommunication);
  const graph::Buffer gradient = w->Temporary("data_gradient", in_userbuffers ? 0 : bytes);
  w->Alloc(gathered);
  CastOperand(s, w, "cast", s.tokens(), out, Pass::kBackward);
  if (gathers) {
    if (!in_userbuffers) w->Host("communication", s.framework.host.communication);
    w->Comm("all_gather", Async(Collective::kAllGather, saved, WireType(s), kGatherEvent));
  }
  w->Alloc(gradient);
  MultiplyByWeight(s, w, name, DataGradient(s, in, out));
  if (gathers) w->Wait("all_gather", kGatherEvent);
  AdapterBackward(s, w, name, in, out, Split::kColumns);
  const graph::Buffer scattered = w->Temporary("scattered", s.sequence_parallel ? bytes / s.tp : 0);
  w->Alloc(scattered);
  // Autograd hands a plain linear layer's gradient on once it has that of the weight, too.
  const bool beside =
      s.tp > 1 && !s.plain_torch() && (s.sequence_parallel || s.framework.overlap_tp_all_reduce);
  const auto kind = s.sequence_parallel ? Collective::kReduceScatter : Collective::kAllReduce;
  const std::string_view reduction = s.sequence_parallel ? "reduce_scatter" : "all_reduce";
  if (beside) {
    if (!in_userbuffers) w->Host("communication", s.framework.host.communication);
    w->Comm(reduction, Async(kind, bytes, s.dtype, kDgradEvent));
  }
  WriteWeightGradient(s, w, name, in, out);
  if (fused_bias) AccumulateGradient(s, w, "bias_gradient", out);
  if (beside) {
    w->Wait(reduction, kDgradEvent);
  } else {
    TpCollective(s, w, reduction, kind, bytes, s.dtype);
  }
  w->Free(gathered);
  w->Free(gradient);
  w->Free(scattered);
}

void DenseForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                  std::int64_t out) {
  CastWeight(s, w, in, out);
  Gemm product = Forward(s, in, out);
  product.m = s.local_tokens();
  MultiplyByWeight(s, w, name, product);
}

void DenseBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                   std::int64_t out) {
  Gemm product = DataGradient(s, in, out);
  product.m = s.local_tokens();
  MultiplyByWeight(s, w, name, product);
  if (s.frozen()) return;
  product = WeightGradient(s, in, out);
  product.k = s.local_tokens();
  w->Kernel(name, product);
  if (!s.gemm_adds()) AccumulateGradient(s, w, "weight_gradient", in * out);
}

void RowForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                std::int64_t out) {
  CastOperand(s, w, "cast", s.tokens(), in, Pass::kForward);
  CastWeight(s, w, in, out);
  if (Pipelines(s, name)) return MultiplyAndReduce(s, w, name, Forward(s, in, out));
  MultiplyByWeight(s, w, name, Forward(s, in, out));
  TpCollective(s, w, s.sequence_parallel ? "reduce_scatter" : "all_reduce",
               s.sequence_parallel ? Collective::kReduceScatter : Collective::kAllReduce,
               s.tokens() * out * s.element_bytes, s.dtype);
  AdapterForward(s, w, name, in, out, Split::kRows);
}

void RowBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t in,
                 std::int64_t out) {
  const std::int64_t bytes = LinearBytes(s, s.tokens() * out);
  const bool pipelines = Pipelines(s, name);
  const bool both = s.tp > 1 && s.sequence_parallel && GathersBothDirections(s);
  const graph::Buffer gathered =
      w->Temporary("gathered", s.sequence_parallel && !pipelines ? (both ? 2 : 1) * bytes : 0);
  w->Alloc(gathered);
  CastOperand(s, w, "cast", s.local_tokens(), out, Pass::kBackward, false, true);
  if (pipelines) {
    if (both)
      w->Comm("all_gather", Async(Collective::kAllGather, bytes, WireType(s), kGatherEvent));
    GatherAndMultiply(s, w, name, bytes, WireType(s), DataGradient(s, in, out));
    if (both) w->Wait("all_gather", kGatherEvent);
  } else {
    if (s.sequence_parallel) {
      TpCollective(s, w, "all_gather", Collective::kAllGather, (both ? 2 : 1) * bytes, WireType(s));
    }
    MultiplyByWeight(s, w, name, DataGradient(s, in, out));
  }
  WriteWeightGradient(s, w, name, in, out);
  AdapterBackward(s, w, name, in, out, Split::kRows);
  w->Free(gathered);
}

}  // namespace orrery::workload
