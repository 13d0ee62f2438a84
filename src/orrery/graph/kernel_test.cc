#include "orrery/graph/kernel.h"

#include <gtest/gtest.h>

namespace orrery::graph {
namespace {

// Eight queries and keys, a window of three: 1, 2, then six times 3 = 21 keys are seen one by one;
// s·w − w²/2 = 19.5 is that without the diagonal's halves. Each counts twice, twice over a head of
// one, for two products.
TEST(Flops, AWindowLeavesItsPairs) {
  Attention a{.batch = 1, .heads = 1, .kv_heads = 1, .seq_q = 8, .seq_kv = 8, .head_dim = 1};
  a.window = 3;
  EXPECT_DOUBLE_EQ(Flops(a), 2 * 2 * 2 * 19.5);
  a.window = 8;  // all of them: the square
  EXPECT_DOUBLE_EQ(Flops(a), 2 * 2 * 64);
  a.window = 0;
  EXPECT_DOUBLE_EQ(Flops(a), 2 * 2 * 64);
  // The last two queries of eight keys: each has three keys before it, nothing is cut.
  a.seq_q = 2;
  a.window = 3;
  EXPECT_DOUBLE_EQ(Flops(a), 2 * 2 * 2 * 6);
  a.causal = false;
  EXPECT_DOUBLE_EQ(Flops(a), 2 * 2 * 6);
}

}  // namespace
}  // namespace orrery::graph
