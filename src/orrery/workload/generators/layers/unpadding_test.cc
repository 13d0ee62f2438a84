// What stands around the kernel of attention where flash-attn's padding helpers do.
#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

std::int64_t Syncs(const graph::Graph& g, std::string_view block) {
  const auto& ops = FindBlock(g, block).ops;
  return std::count_if(ops.begin(), ops.end(),
                       [](const graph::Op& op) { return op.kind == graph::OpKind::kHostSync; });
}

// 512 tokens of 256 values in 2 bytes: forward gathers three of them, clears one and writes its
// rows; backward gathers one, clears three and writes theirs. The host reads two numbers of each
// of three masks. The kernel's own output is kept beside the padded one.
TEST(Unpadding, MovesAndReads) {
  const Model m = SmallGpt(1);
  Plan plan{.batch = {.seq_len = 512}};
  const graph::Graph without = Make(m, plan);
  plan.framework.unpads_attention = true;
  const graph::Graph with = Make(m, plan);
  EXPECT_TRUE(graph::Verify(with, graph::VerifyLevel::kFull).ok());
  const std::int64_t state = 512 * m.hidden * 2;
  const auto more = [&](std::string_view block) {
    return Traffic(with, block) - Traffic(without, block);
  };
  EXPECT_EQ(more("layer.forward"), 3 * 2 * state + 3 * state);
  EXPECT_EQ(more("layer.backward"), 2 * state + 3 * 3 * state);
  EXPECT_EQ(Syncs(with, "layer.forward"), 6);
  EXPECT_EQ(Syncs(with, "layer.backward"), 0);
  EXPECT_EQ(SavedBytes(FindBlock(with, "layer.forward")) -
                SavedBytes(FindBlock(without, "layer.forward")),
            state);
}

TEST(Unpadding, FusedAttentionOnly) {
  Plan plan{.batch = {.seq_len = 512}};
  plan.framework.unpads_attention = true;
  plan.framework.attention = AttentionBackend::kUnfused;
  EXPECT_EQ(Syncs(Make(SmallGpt(1), plan), "layer.forward"), 0);
}

}  // namespace
}  // namespace orrery::workload
