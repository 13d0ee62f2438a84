// A loss in chunks: the same arithmetic as the whole one, none of its logits.
#include "orrery/workload/generators/layers/chunked_loss.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

std::int64_t LargestBuffer(const graph::Block& block) {
  std::int64_t most = 0;
  for (const graph::Buffer& b : block.buffers) most = std::max(most, b.bytes);
  return most;
}

// 1,024 tokens, 256 wide, a vocabulary four times as wide: four chunks of 256 tokens.
TEST(ChunkedLoss, SameArithmeticNoLogits) {
  Plan plan{.batch = {.global_batch = 4, .micro_batch = 4, .seq_len = 256}};
  const Model model = SmallGpt(2);
  const graph::Graph whole = Make(model, plan);
  plan.framework.chunked_loss = true;
  const graph::Graph chunked = Make(model, plan);
  EXPECT_TRUE(graph::Verify(chunked, graph::VerifyLevel::kFull).ok());
  const graph::Block& forward = FindBlock(chunked, "head.forward");
  EXPECT_EQ(
      GemmFlops(FindBlock(whole, "head.forward")) + GemmFlops(FindBlock(whole, "head.backward")),
      GemmFlops(forward));
  EXPECT_EQ(GemmFlops(FindBlock(chunked, "head.backward")), 0);
  const std::int64_t vocab = PaddedVocab(model.vocab, 1);
  const std::int64_t logits = 1024 * vocab * 4;  // fp32
  EXPECT_GE(LargestBuffer(FindBlock(whole, "head.forward")), logits);
  EXPECT_EQ(LargestBuffer(forward), vocab * model.hidden * 2);  // the weight's gradient
}

TEST(ChunkedLoss, ChunksAreAPowerOfTwo) {
  Shape s;
  s.batch = 1, s.seq = 8192, s.hidden = 4096, s.vocab = 128256;
  EXPECT_EQ(LossChunk(s), 256);  // 32 times as wide: 8192 / 32
  s.seq = 6000;
  EXPECT_EQ(LossChunk(s), 256);  // 187.5, rounded up
  s.seq = 100, s.vocab = 4096;
  EXPECT_EQ(LossChunk(s), 100);  // one chunk holds all
}

TEST(ChunkedLoss, NeedsTheWholeVocabulary) {
  const Model model = SmallGpt(2);
  Plan plan{.parallel = {.tp = 2}, .batch = {.seq_len = 128}, .framework = {.chunked_loss = true}};
  const Status status = Validate(model, plan);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("chunked_loss: the whole vocabulary"), std::string::npos);
}

}  // namespace
}  // namespace orrery::workload
