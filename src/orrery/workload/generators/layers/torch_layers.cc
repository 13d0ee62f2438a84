#include "orrery/workload/generators/layers/torch_layers.h"

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::MemoryOp;
using graph::Pass;

namespace {

constexpr std::int64_t kFp32 = 4;

}  // namespace

void EagerRmsNorm(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t cols, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const auto run = [&](std::string_view name, MemoryOp op, std::int64_t read,
                       std::int64_t written) {
    w->Kernel(name, Elementwise(s, op, rows, cols, read, written, pass));
  };
  const bool casts = e != kFp32;
  if (pass == Pass::kForward) {
    if (casts) run("norm.cast", MemoryOp::kCast, e, kFp32);
    run("norm.square", MemoryOp::kGradScale, kFp32, kFp32);
    run("norm.mean", MemoryOp::kScaledMaskSoftmax, kFp32, 0);
    run("norm.scale", MemoryOp::kGradScale, kFp32, kFp32);
    if (casts) run("norm.cast", MemoryOp::kCast, kFp32, e);
    return run("norm.weight", MemoryOp::kGradScale, e, e);
  }
  run("norm.weight", MemoryOp::kGradScale, e, e);
  run("norm.weight_gradient", MemoryOp::kAdd, 2 * e, e);  // of every row, summed next
  run("norm.weight_sum", MemoryOp::kScaledMaskSoftmax, e, 0);
  if (casts) run("norm.cast", MemoryOp::kCast, e, kFp32);
  run("norm.scale", MemoryOp::kGradScale, kFp32, kFp32);
  run("norm.root_gradient", MemoryOp::kAdd, 2 * kFp32, kFp32);
  run("norm.root_sum", MemoryOp::kScaledMaskSoftmax, kFp32, 0);
  run("norm.mean", MemoryOp::kZero, 0, kFp32);  // a row's number over all its columns
  run("norm.square.copy", MemoryOp::kCopy, kFp32, kFp32);
  run("norm.square.double", MemoryOp::kGradScale, kFp32, kFp32);
  run("norm.square", MemoryOp::kAdd, 2 * kFp32, kFp32);
  run("norm.sum", MemoryOp::kAdd, 2 * kFp32, kFp32);
  if (casts) run("norm.cast", MemoryOp::kCast, kFp32, e);
}

std::int64_t EagerNormBytes(const Shape& s, std::int64_t elements) {
  return elements * (kFp32 + (s.frozen() ? 0 : s.element_bytes));
}

void EagerGate(const Shape& s, BlockWriter* w, std::int64_t rows, std::int64_t cols, Pass pass) {
  const std::int64_t e = s.element_bytes;
  const auto run = [&](std::string_view name, std::int64_t tensors_read) {
    w->Kernel(name, Elementwise(s, MemoryOp::kSwiglu, rows, cols, tensors_read * e, e, pass));
  };
  if (pass == Pass::kForward) {
    run("silu", 1);
    return run("gate", 2);
  }
  run("gate.up", 2);
  run("gate.silu", 2);
  run("silu", 2);
}

void ComplexRotary(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width,
                   Pass pass) {
  const auto run = [&](std::string_view part, MemoryOp op, std::int64_t read,
                       std::int64_t written) {
    w->Kernel(part, Elementwise(s, op, s.tokens(), width, read, written, pass));
  };
  run("rotary.cast", MemoryOp::kCast, s.element_bytes, kFp32);
  run(name, MemoryOp::kRotary, kFp32, kFp32);
  run("rotary.cast", MemoryOp::kCast, kFp32, s.element_bytes);
}

void RepeatHeads(const Shape& s, BlockWriter* w, Pass pass) {
  if (!s.repeats_heads()) return;
  const std::int64_t e = s.element_bytes;
  const bool forward = pass == Pass::kForward;
  for (const std::string_view name : {"repeat_k", "repeat_v"}) {
    graph::MemoryBound k = Elementwise(s, forward ? MemoryOp::kCopy : MemoryOp::kAdd, s.tokens(),
                                       s.query(), e, e, pass);
    (forward ? k.bytes_read : k.bytes_written) = s.tokens() * s.key_value() * e;
    w->Kernel(name, k);
  }
}

}  // namespace orrery::workload
