#include "orrery/workload/generators/experts/torch_experts.h"

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::MemoryOp;
using graph::Pass;

namespace {

constexpr std::int64_t kFp32 = 4;

// Kernels over rows of the experts' width.
struct Rows {
  const Shape& s;
  BlockWriter* w;
  std::int64_t rows;
  Pass pass;
  void operator()(std::string_view name, MemoryOp op, std::int64_t read,
                  std::int64_t written) const {
    w->Kernel(name, Elementwise(s, op, rows, s.experts.width, read, written, pass));
  }
};

// Eager rows times their scores: in fp32, and back. Backward the same of their gradients, and the
// scores' own, sums of products.
void Weigh(const Shape& s, BlockWriter* w, std::int64_t rows, Pass pass) {
  if (s.framework.torch_layers != TorchLayers::kEager) return;
  const std::int64_t e = s.element_bytes;
  const Rows run{s, w, rows, pass};
  run("scores.cast", MemoryOp::kCast, e, kFp32);
  run("scores.scale", MemoryOp::kGradScale, kFp32, kFp32);
  if (pass == Pass::kBackward) {
    run("scores.gradient", MemoryOp::kAdd, 2 * kFp32, kFp32);
    run("scores.sum", MemoryOp::kScaledMaskSoftmax, kFp32, 0);
  }
  run("scores.cast", MemoryOp::kCast, kFp32, e);
}

}  // namespace

void TorchPermute(const Shape& s, BlockWriter* w, std::int64_t sent, bool to_experts, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const bool forward = pass == Pass::kForward;
  const Rows run{s, w, sent, pass};
  if (to_experts == forward) {  // gathered
    run("permute", MemoryOp::kPermute, e, e);
    if (forward) Weigh(s, w, sent, pass);
    return;
  }
  if (!forward) Weigh(s, w, sent, pass);
  w->Kernel(forward ? "scatter.copy" : "scatter.zero",
            Elementwise(s, forward ? MemoryOp::kCopy : MemoryOp::kZero, s.local_tokens(),
                        s.experts.width, forward ? e : 0, e, pass));
  run("unpermute", MemoryOp::kUnpermute, 2 * e, e);
}

void TorchSort(const Shape& s, BlockWriter* w, std::int64_t rows, bool to_experts, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const bool forward = pass == Pass::kForward;
  const Rows run{s, w, rows, pass};
  if (to_experts && forward) run("pad", MemoryOp::kCopy, e, e);
  if (to_experts && !forward) {
    run("sum_of_gate_and_up", MemoryOp::kAdd, 2 * e, e);
    run("sort_by_expert.zero", MemoryOp::kZero, 0, e);
    return run("sort_by_expert", MemoryOp::kPermute, 2 * e, e);
  }
  run("sort_by_expert", MemoryOp::kPermute, e, e);
}

}  // namespace orrery::workload
