// Two stacks: what the decoder's layers have besides, at which lengths, and what they keep.
#include "orrery/workload/generators/layers/encoder_decoder.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kDecoder = 128, kEncoder = 512;

// Two layers of an encoder, three of a decoder. 8 heads of 48 over a hidden size of 256.
Model Words() {
  Model m = SmallGpt(5);
  m.head_dim = 48;
  m.encoder_layers = 2;
  m.encoder_len = kEncoder;
  m.norm = Norm::kRmsNorm;
  m.attention_bias = m.mlp_bias = false;
  m.position = Position::kRelative;
  m.dropout = 0.1;
  m.vocab = 1024;
  return m;
}

Model Sound() {
  Model m = SmallGpt(5);
  m.encoder_layers = 2;
  m.encoder_len = kEncoder;
  m.frame_values = 80;
  m.vocab = 1024;
  return m;
}

Plan OneEncoder() {
  Plan p;
  p.batch.global_batch = p.batch.micro_batch = 4;
  p.batch.seq_len = kDecoder;
  return p;
}

// Over all calls of a pass.
template <typename F>
auto Sum(const graph::Graph& g, graph::Pass pass, F of) {
  decltype(of(g.blocks.front())) sum = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (block.pass == pass && call.microbatch >= 0) sum += call.repeat * of(block);
  }
  return sum;
}

// By hand. Attention 4·256·384; feed-forward 2·256·1,024; norms of 256. Encoder: both and two
// norms. Decoder: two attentions, the feed-forward, three norms. Besides the table, the encoder's
// norm and the last one.
TEST(EncoderDecoder, Parameters) {
  const std::int64_t attention = 4 * 256 * 384, feed = 2 * 256 * 1024;
  const std::int64_t encoder = attention + feed + 2 * 256;
  const std::int64_t decoder = 2 * attention + feed + 3 * 256;
  EXPECT_EQ(Words().parameters(), 2 * encoder + 3 * decoder + 1024 * 256 + 2 * 256);
}

// Convolutions of 3·80 and 3·256 by 256 with biases; positions of both stacks.
TEST(EncoderDecoder, FramesAndPositions) {
  Model words = Sound();
  words.frame_values = 0;
  words.position = Position::kNone;
  EXPECT_EQ(Sound().parameters() - words.parameters(),
            3 * 80 * 256 + 256 + 3 * 256 * 256 + 256 + (512 + kEncoder) * 256);
}

// Multiply-adds by hand: the encoder's layers at 512 tokens, which all see all; the decoder's at
// 128 under a mask, their queries and projections of cross attention at 128, keys and values at
// 512, scores and context of 128 by 512.
TEST(EncoderDecoder, FlopsOfTwoLengths) {
  const double attention = 4.0 * 256 * 384, feed = 2.0 * 256 * 1024;
  const double encoder = 512 * (attention + feed + 512 * 2 * 384);
  const double decoder = 128 * (attention + feed + 64 * 2 * 384) + 128 * (attention / 2) +
                         512 * (attention / 2) + 128.0 * 512 * 2 * 384;
  EXPECT_DOUBLE_EQ(Words().flops_per_sequence(kDecoder),
                   6 * (2 * encoder + 3 * decoder + 128.0 * 1024 * 256));
}

// Of the causal square a model counts half, FLOPs of kernels count all.
TEST(EncoderDecoder, ProductsAreTheModels) {
  const graph::Graph sound = Make(Sound(), OneEncoder());
  const double masked = 2.0 * 4 * 3 * kDecoder * (kDecoder / 2.0) * 2;  // a column of the heads
  EXPECT_NEAR((Sum(sound, graph::Pass::kForward, BlockFlops) - masked * 256) /
                  (4 * Sound().flops_per_sequence(kDecoder) / 3),
              1, 1e-9);
  const graph::Graph words = Make(Words(), OneEncoder());
  EXPECT_NEAR((Sum(words, graph::Pass::kForward, BlockFlops) - masked * 384) /
                  (4 * Words().flops_per_sequence(kDecoder) / 3),
              1, 1e-9);
}

TEST(EncoderDecoder, CrossAttentionIsOfBothLengths) {
  int crossed = 0;
  for (const graph::Block& block : Make(Sound(), OneEncoder()).blocks) {
    for (const graph::Kernel& kernel : block.kernels) {
      const auto* attention = std::get_if<graph::Attention>(&kernel);
      if (attention == nullptr || attention->seq_q == attention->seq_kv) continue;
      EXPECT_EQ(attention->seq_q, kDecoder);
      EXPECT_EQ(attention->seq_kv, kEncoder);
      EXPECT_FALSE(attention->causal);
      ++crossed;
    }
  }
  EXPECT_EQ(crossed, 4);  // of the decoder's first layer and of its others, forward and backward
}

TEST(EncoderDecoder, EveryPlanVerifiesAndGivesBackWhatItKept) {
  for (const Model& m : {Words(), Sound()}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const auto attention : {AttentionBackend::kFlash2, AttentionBackend::kUnfused}) {
        Plan p = OneEncoder();
        p.parallel.tp = 2;
        p.parallel.sequence_parallel = true;
        p.memory.recompute = recompute;
        p.framework.attention = attention;
        const graph::Graph g = Make(m, p);
        const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(Sum(g, graph::Pass::kForward, SavedBytes),
                  -Sum(g, graph::Pass::kBackward, SavedBytes));
      }
    }
  }
}

// A table of distances keeps the layers' own attention from fused kernels, not cross attention.
TEST(EncoderDecoder, RelativePositionsRunUnfused) {
  const Shape s = OfKind(MakeShape(Words(), OneEncoder()), kCrossLayer);
  EXPECT_FALSE(s.flash());
  EXPECT_EQ(s.cross_attention, OneEncoder().framework.attention);
  EXPECT_TRUE(OfKind(MakeShape(Sound(), OneEncoder()), kCrossLayer).flash());
}

// PyTorch's softmax casts to fp32, scales, masks and casts back.
TEST(EncoderDecoder, CrossAttentionHasTheFrameworksSoftmax) {
  Plan p = OneEncoder();
  p.framework.attention = AttentionBackend::kUnfused;
  const auto casts = [&](bool fused) {
    p.framework.fused_softmax = fused;
    int found = 0;
    for (const graph::Block& block : Make(Sound(), p).blocks) {
      for (const graph::Kernel& kernel : block.kernels) {
        const auto* k = std::get_if<graph::MemoryBound>(&kernel);
        if (k == nullptr || k->op != graph::MemoryOp::kCast || k->cols != kEncoder) continue;
        found += k->rows == 4 * Sound().heads * kDecoder;
      }
    }
    return found;
  };
  EXPECT_EQ(casts(true), 0);
  EXPECT_EQ(casts(false), 8);  // of the decoder's first layer and of its others, both passes
}

TEST(EncoderDecoder, WhatTheyAreNotBuiltForIsRefused) {
  Model m = Words();
  m.window = 64;
  m.position = Position::kRotary;
  EXPECT_TRUE(Validate(m).message().starts_with("model.encoder_layers: built for two stacks"));
  m = Words();
  m.encoder_layers = 5;
  EXPECT_TRUE(Validate(m).message().starts_with("model.encoder_layers: 5 is outside 1 … 4"));
  m = SmallGpt(2);
  m.encoder_len = 128;
  EXPECT_TRUE(Validate(m).message().starts_with("model.encoder_len: says what the encoder reads"));
  Plan p = OneEncoder();
  p.parallel.pp = 2;
  EXPECT_TRUE(Validate(Words(), p).message().starts_with("parallel.pp: small is an encoder and"));
}

// Adapters of rank 8 beside cross attention, too: queries 8·(256 + 384), keys and values, of the
// encoder's tokens, 8·(256 + 768), the projection 8·(384 + 256).
TEST(EncoderDecoder, Adapters) {
  Plan p = OneEncoder();
  p.lora.rank = 8;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    p.memory.recompute = recompute;
    for (const Model& model : {Words(), Sound()}) {
      const graph::Graph g = Make(model, p);
      const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
      EXPECT_TRUE(verified.ok()) << verified.message();
    }
  }
  p.memory.recompute = Recompute::kNone;
  const graph::Graph g = Make(Words(), p);
  // Attention's own are 8·(256 + 1,152) and 8·(384 + 256), the feed-forward's 2·8·(256 + 1,024).
  const std::int64_t own = 8 * (256 + 1152 + 384 + 256) + 16 * (256 + 1024);
  const std::int64_t cross_query = 8 * (256 + 384), cross_keys = 8 * (256 + 768);
  std::int64_t trained = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name) == "parameters") trained += b.bytes / 2;
  }
  EXPECT_EQ(trained, 5 * own + 3 * (2 * cross_query + cross_keys));
  const auto flops = [](const graph::Block& block) { return GemmFlops(block); };
  const double more = Sum(g, graph::Pass::kBackward, flops) - Sum(g, graph::Pass::kForward, flops);
  // Backward has no second product of the frozen weights, but two of each adapter; unfused
  // attention, of encoder and decoder alone, four products for two.
  const double e = kEncoder, d = kDecoder;
  const double adapters =
      2.0 * 4 *
      (2 * e * static_cast<double>(own) + 3 * d * static_cast<double>(own) +
       3 * d * 2 * static_cast<double>(cross_query) + 3 * e * static_cast<double>(cross_keys));
  const double attention = 2 * 2.0 * 4 * 384 * (2 * e * e + 3 * d * d);
  EXPECT_EQ(more, adapters + attention);
  // Conv1 and conv2 of a frozen encoder have no backward pass.
  const graph::Graph sound = Make(Sound(), p);
  for (const graph::Block& block : sound.blocks) {
    if (block.pass != graph::Pass::kBackward) continue;
    EXPECT_EQ(Operations(sound, block).find("conv"), std::string::npos);
  }
}

}  // namespace
}  // namespace orrery::workload
