#include "orrery/workload/generators/layers/split_backward.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Gemm;
using graph::Op;
using graph::OpKind;

namespace {

// The GEMM of an operation, if it adds into the gradient buffer.
const Gemm* WeightGradient(const graph::Block& block, const Op& op) {
  if (op.kind != OpKind::kKernel) return nullptr;
  const Gemm* gemm = std::get_if<Gemm>(&block.kernels[op.index]);
  return gemm != nullptr && gemm->accumulate ? gemm : nullptr;
}

// Whether an operand of a linear layer lies split over the tensor-parallel ranks.
bool Splits(const Shape& s, const Gemm& gemm) {
  return s.sequence_parallel && gemm.k == s.tokens() && (gemm.m == s.hidden || gemm.n == s.hidden);
}

graph::Buffer Operands(const Shape& s, const graph::Block& block, OperandGather gather,
                       Names* names) {
  std::int64_t bytes = 0;
  for (const Op& op : block.ops) {
    const Gemm* g = WeightGradient(block, op);
    if (g == nullptr) continue;
    std::int64_t sides = g->m + g->n;
    if (gather == OperandGather::kInWeights && Splits(s, *g)) sides -= s.hidden - s.hidden / s.tp;
    const std::int64_t elements = sides * g->k * g->batch;
    // What the product read: operands as they were cast, where it ran in low precision.
    const bool low = IsLow(s) && g->dtype == LinearType(s);
    bytes += low ? LinearBytes(s, elements) : elements * s.element_bytes;
  }
  return {.id = 91,  // beside those of layers, ends and copies
          .kind = graph::MemoryKind::kActivation,
          .lifetime = graph::Lifetime::kMicrobatch,
          .bytes = bytes,
          .name = names->Intern("weight_gradient.operands")};
}

}  // namespace

graph::Block DataHalf(const Shape& s, const graph::Block& backward, Names* names,
                      OperandGather gather) {
  graph::Block half = backward;
  std::erase_if(half.ops, [&](const Op& op) {
    if (WeightGradient(backward, op) != nullptr) return true;
    if (gather == OperandGather::kInData) return false;
    // The saved input is gathered for weight gradients only.
    if (op.kind == OpKind::kWait) return op.event == kGatherEvent;
    return op.kind == OpKind::kComm && backward.comms[op.index].event == kGatherEvent;
  });
  const graph::Buffer operands = Operands(s, backward, gather, names);
  if (operands.bytes > 0) {
    Op keep;
    keep.kind = OpKind::kAlloc;
    keep.index = static_cast<std::uint32_t>(half.buffers.size());
    keep.name = operands.name;
    half.ops.push_back(keep);
    half.buffers.push_back(operands);
  }
  half.Seal();
  return half;
}

graph::Block WeightHalf(const Shape& s, const graph::Block& backward, Names* names,
                        OperandGather gather) {
  BlockWriter w(names, "weight.backward", graph::Pass::kBackward);
  for (const Op& op : backward.ops) {
    const Gemm* gemm = WeightGradient(backward, op);
    if (gemm == nullptr) continue;
    if (gather == OperandGather::kInWeights && Splits(s, *gemm)) {
      // The output layer's may be in the plan's precision.
      const bool low = IsLow(s) && gemm->dtype == LinearType(s);
      const std::int64_t gathered = s.tokens() * s.hidden;
      TpCollective(s, &w, "all_gather", graph::Collective::kAllGather,
                   low ? LinearBytes(s, gathered) : gathered * s.element_bytes,
                   low ? graph::DType::kFp8 : s.dtype);
    }
    w.Kernel(names->all()[op.name.index()], *gemm);
  }
  const graph::Buffer operands = Operands(s, backward, gather, names);
  if (operands.bytes > 0) w.Free(operands);
  return w.Finish();
}

}  // namespace orrery::workload
