#include "orrery/workload/generators/layers/unpadding.h"

#include <array>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::MemoryOp;
using graph::Pass;

namespace {

void Rows(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t cols, Pass pass) {
  w->Kernel(name, Elementwise(s, MemoryOp::kPermute, s.tokens(), cols, s.element_bytes,
                              s.element_bytes, pass));
}
void IntoCleared(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t cols,
                 Pass pass) {
  w->Kernel("zero", Elementwise(s, MemoryOp::kZero, s.tokens(), cols, 0, s.element_bytes, pass));
  Rows(s, w, name, cols, pass);
}

// A kernel over the mask, a byte a token, or over what is counted of it.
void Count(const Shape& s, BlockWriter* w, std::string_view name) {
  w->Kernel(name, Elementwise(s, MemoryOp::kCopy, s.tokens(), 1, 1, 8, Pass::kForward));
}

std::array<std::pair<std::string_view, std::int64_t>, 3> Parts(const Shape& s) {
  const std::int64_t keys = s.kv_heads * s.head_dim, values = s.kv_heads * s.v_head_dim();
  return {{{"unpad.q", s.query()}, {"unpad.k", keys}, {"unpad.v", values}}};
}

}  // namespace

void BeforeAttention(const Shape& s, BlockWriter* w, Pass pass) {
  if (!s.framework.unpads_attention) return;
  if (pass == Pass::kBackward) return Rows(s, w, "pad", s.context(), pass);
  for (const auto& [name, cols] : Parts(s)) {
    Count(s, w, "mask.sum");
    Count(s, w, "mask.indices");
    w->HostSync("indices");
    Count(s, w, "mask.longest");
    w->HostSync("longest");
    Count(s, w, "mask.cumulate");
    Count(s, w, "mask.pad");
    w->Host(name, 6 * s.framework.host.operator_forward);
    Rows(s, w, name, cols, pass);
  }
}

void BehindAttention(const Shape& s, BlockWriter* w, Pass pass) {
  if (!s.framework.unpads_attention) return;
  if (pass == Pass::kForward) return IntoCleared(s, w, "pad", s.context(), pass);
  for (const auto& [name, cols] : Parts(s)) IntoCleared(s, w, name, cols, pass);
}

}  // namespace orrery::workload
