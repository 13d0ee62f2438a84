#include "orrery/workload/generators/layers/stored_inputs.h"

namespace orrery::workload {
namespace {

void Convert(const Shape& s, BlockWriter* w, std::string_view name, const graph::Buffer& from,
             const graph::Buffer& to, graph::Pass pass) {
  const graph::Buffer& wide = pass == graph::Pass::kForward ? from : to;
  w->Kernel(name, graph::MemoryBound{.op = graph::MemoryOp::kCast,
                                     .rows = 1,
                                     .cols = wide.bytes / s.element_bytes,
                                     .bytes_read = from.bytes,
                                     .bytes_written = to.bytes,
                                     .dtype = s.dtype,
                                     .pass = pass});
}

}  // namespace

std::int64_t ActivationInputBytes(const Shape& s, std::int64_t elements) {
  return s.framework.fp8_activation_input ? elements : elements * s.element_bytes;
}

std::int64_t ContextBytes(const Shape& s, std::int64_t elements) {
  return s.framework.packed_context ? elements * 3 / 2 : elements * s.element_bytes;
}

void StoreNarrow(const Shape& s, BlockWriter* w, const graph::Buffer& wide,
                 const graph::Buffer& kept) {
  if (wide.bytes == 0) return;
  w->Alloc(kept);
  Convert(s, w, "store", wide, kept, graph::Pass::kForward);
  w->Free(wide);
}

void Widen(const Shape& s, BlockWriter* w, const graph::Buffer& wide, const graph::Buffer& kept) {
  if (wide.bytes == 0) return;
  w->Alloc(wide);
  Convert(s, w, "restore", kept, wide, graph::Pass::kBackward);
}

}  // namespace orrery::workload
