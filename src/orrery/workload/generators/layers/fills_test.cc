// PyTorch's deterministic mode fills what it allocates.
#include "orrery/workload/generators/layers/fills.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Bytes that kernels named fill_empty write, and that the block's own buffers have.
struct Filled {
  std::int64_t written = 0, allocated = 0;
};
Filled CountFills(const graph::Graph& g, const graph::Block& block) {
  Filled sums;
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    const graph::Op& op = block.ops[i];
    if (op.kind == graph::OpKind::kAlloc) sums.allocated += block.buffers[op.index].bytes;
    if (op.kind != graph::OpKind::kKernel || g.name(op.name) != "fill_empty") continue;
    EXPECT_EQ(block.ops[i - 1].kind, graph::OpKind::kAlloc);
    sums.written += std::get<graph::MemoryBound>(block.kernels[op.index]).bytes_written;
  }
  return sums;
}

TEST(Fills, EveryAllocationIsWritten) {
  Plan plan{.batch = {.global_batch = 4, .micro_batch = 4, .seq_len = 256}};
  const graph::Graph plain = Make(SmallGpt(2), plan);
  plan.framework.deterministic = true;
  const graph::Graph filled = Make(SmallGpt(2), plan);
  EXPECT_TRUE(graph::Verify(filled, graph::VerifyLevel::kFull).ok());
  for (const std::string_view name : {"layer.forward", "layer.backward", "head.forward"}) {
    const Filled with = CountFills(filled, FindBlock(filled, name));
    EXPECT_GT(with.written, 0) << name;
    EXPECT_EQ(with.written, with.allocated) << name;
    EXPECT_EQ(CountFills(plain, FindBlock(plain, name)).written, 0) << name;
  }
  // Parameters and the optimizer's state were there before.
  EXPECT_EQ(CountFills(filled, FindBlock(filled, "static")).written, 0);
}

}  // namespace
}  // namespace orrery::workload
