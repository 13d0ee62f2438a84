#include "orrery/workload/generators/layers/prepared_base.h"

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::MemoryOp;
using graph::Pass;

Shape InProductType(const Shape& s) {
  Shape product = s;
  product.element_bytes = s.product_bytes();
  return product;
}

void ToProduct(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
               std::int64_t cols, Pass pass) {
  if (!s.framework.prepared_base) return;
  w->Kernel(name,
            Elementwise(s, MemoryOp::kCast, rows, cols, s.element_bytes, s.product_bytes(), pass));
}

void FromProduct(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
                 std::int64_t cols, Pass pass) {
  if (!s.framework.prepared_base) return;
  w->Kernel(name,
            Elementwise(s, MemoryOp::kCast, rows, cols, s.product_bytes(), s.element_bytes, pass));
}

graph::Buffer CastOutputWeight(const Shape& s, BlockWriter* w) {
  constexpr std::uint32_t kId = 60;  // behind those of embedding_and_head.cc
  return Saved(w, kId, "output_layer.weight",
               s.framework.prepared_base ? s.vocab * s.hidden * s.product_bytes() : 0);
}

}  // namespace orrery::workload
