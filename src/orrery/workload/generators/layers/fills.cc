#include "orrery/workload/generators/layers/fills.h"

#include <utility>

namespace orrery::workload {

graph::Block WithFills(graph::Block block, Names* names) {
  const NameId name = names->Intern("fill_empty");
  std::vector<graph::Op> ops;
  ops.reserve(2 * block.ops.size());
  for (const graph::Op& op : block.ops) {
    ops.push_back(op);
    if (op.kind != graph::OpKind::kAlloc) continue;
    const graph::Buffer& buffer = block.buffers[op.index];
    if (buffer.lifetime == graph::Lifetime::kForever) continue;
    ops.push_back({.kind = graph::OpKind::kKernel,
                   .index = static_cast<std::uint32_t>(block.kernels.size()),
                   .name = name,
                   .module = op.module});
    block.kernels.emplace_back(graph::MemoryBound{.op = graph::MemoryOp::kZero,
                                                  .rows = 1,
                                                  .cols = buffer.bytes,
                                                  .bytes_read = 0,
                                                  .bytes_written = buffer.bytes,
                                                  .dtype = graph::DType::kFp8,
                                                  .pass = block.pass});
  }
  block.ops = std::move(ops);
  block.Seal();
  return block;
}

}  // namespace orrery::workload
