// Tensors beside those of Megatron's formula: what a framework's loss, layers and step keep, by
// hand, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::OpKind;

// The most that a block holds above `start`.
std::int64_t PeakBytes(const graph::Block& block, std::int64_t start = 0) {
  std::int64_t now = start, most = start;
  for (const graph::Op& op : block.ops) {
    if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
    const std::int64_t bytes = block.buffers[op.index].bytes;
    now += op.kind == OpKind::kAlloc ? bytes : -bytes;
    most = std::max(most, now);
  }
  return most;
}

// Bytes of the buffer of this name; 0: there is none.
std::int64_t BufferBytes(const graph::Graph& g, const graph::Block& block, std::string_view name) {
  for (const graph::Buffer& b : block.buffers) {
    if (b.name.valid() && g.name(b.name) == name) return b.bytes;
  }
  return 0;
}

Model SmallLlama(int layers) {
  Model m = SmallGpt(layers);
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  return m;
}

// 512 tokens, a vocabulary padded to 1,024: fp32 logits are 2,097,152 bytes. From forward come the
// 16-bit logits that the caller holds and the log-softmax; backward adds two gradients of 32 bits.
TEST(TorchLoss, ThreeTensorsOfFp32LogitsAndOneOf16) {
  Plan plan{.batch = {.seq_len = 512}};
  const Model m = SmallGpt(1);
  const std::int64_t vocab = PaddedVocab(m.vocab, 1), logits = 512 * vocab * 4;
  const graph::Graph own = Make(m, plan);
  plan.framework.torch_loss = true;
  const graph::Graph torch = Make(m, plan);
  EXPECT_TRUE(graph::Verify(torch, graph::VerifyLevel::kFull).ok());
  const auto saved = [](const graph::Graph& g) { return SavedBytes(FindBlock(g, "head.forward")); };
  EXPECT_EQ(saved(torch) - saved(own), logits / 2);
  EXPECT_EQ(SavedBytes(FindBlock(torch, "head.backward")), -saved(torch));
  const auto peak = [&](const graph::Graph& g) {
    return PeakBytes(FindBlock(g, "head.backward"), saved(g));
  };
  // Megatron's: softmax and 16-bit gradient. PyTorch's 16-bit gradient comes later.
  EXPECT_EQ(peak(torch) - saved(own), logits / 2 + 2 * logits);
  EXPECT_LT(peak(own) - saved(own), logits);
  plan.framework.drops_logits = true;  // the log-softmax alone comes from forward
  const graph::Graph dropped = Make(m, plan);
  EXPECT_TRUE(graph::Verify(dropped, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(saved(dropped), saved(own));
  EXPECT_EQ(peak(dropped) - saved(own), 2 * logits);
  plan.framework.chunked_loss = true;  // never has all logits
  EXPECT_LT(saved(Make(m, plan)), logits);
}

// 512 tokens, 1,024 logits each in 16 bits: every metric reads them and writes log-probabilities of
// their type, reads those and writes them in fp32, 2 + 2 + 2 + 4 bytes a logit. The logits outlive
// the loss. Two sums and two counts are gathered over four ranks.
TEST(LossMetrics, ReadTheLogitsAgain) {
  Plan plan{.parallel = {.dp = 4}, .batch = {.global_batch = 4, .seq_len = 512}};
  plan.framework.online_cross_entropy = true;
  plan.framework.host.view = 8'000;
  const Model m = SmallGpt(1);
  const std::int64_t logits = 512 * PaddedVocab(m.vocab, 1);
  const graph::Graph without = Make(m, plan);
  plan.framework.loss_metrics = true;
  const graph::Graph with = Make(m, plan);
  EXPECT_TRUE(graph::Verify(with, graph::VerifyLevel::kFull).ok());
  const auto traffic = [](const graph::Graph& g) {
    std::int64_t sum = 0;
    for (const graph::Kernel& k : FindBlock(g, "head.backward").kernels) {
      const auto* pass = std::get_if<graph::MemoryBound>(&k);
      if (pass != nullptr && pass->cols > 1) sum += pass->bytes_read + pass->bytes_written;
    }
    return sum;
  };
  EXPECT_EQ(traffic(with) - traffic(without), 2 * 10 * logits);
  const auto saved = [](const graph::Graph& g) { return SavedBytes(FindBlock(g, "head.forward")); };
  EXPECT_EQ(saved(with) - saved(without), 2 * logits);
  EXPECT_EQ(SavedBytes(FindBlock(with, "head.backward")), -saved(with));
  const std::string gather = "sync host metrics.all_gather! ";
  EXPECT_EQ(Operations(without, FindBlock(without, "loss.reduce")), "all_reduce!");
  EXPECT_EQ(Operations(with, FindBlock(with, "loss.reduce")),
            "all_reduce! " + gather + gather + gather + gather + "sync");
  for (const std::int64_t ps : FindBlock(with, "loss.reduce").host_ps) {
    EXPECT_EQ(ps, 3 * 4 * 8'000'000);  // a clear, a view and a copy a rank
  }
}

TEST(LossMetrics, NeedAllLogitsOfAToken) {
  const Plan split{
      .parallel = {.tp = 2}, .batch = {.seq_len = 128}, .framework = {.loss_metrics = true}};
  EXPECT_NE(Validate(SmallGpt(1), split).message().find("loss_metrics: the metrics read all"),
            std::string::npos);
  const Plan chunks{.batch = {.seq_len = 128},
                    .framework = {.chunked_loss = true, .loss_metrics = true}};
  EXPECT_NE(Validate(SmallGpt(1), chunks).message().find("which chunked_loss never has"),
            std::string::npos);
}

// The kernels of a gated layer that its backward pass runs again, and that what is kept is given
// back.
TEST(RecomputeKeeps, WhatRunsAgain) {
  const std::string attention = "flash_attention ", projection = "projection bias_dropout_add ";
  const std::string qkv = "qkv ", rotary = "rotary_q rotary_k ", mlp = "rms_norm fc1 swiglu ";
  const struct {
    RecomputeKeeps keeps;
    std::string again;
  } kCases[] = {
      {RecomputeKeeps::kNothing,
       qkv + rotary + attention + projection + mlp + "fc2 bias_dropout_add "},
      {RecomputeKeeps::kLast, qkv + rotary + attention + projection + mlp},
      {RecomputeKeeps::kQkv, rotary + attention + projection + mlp},
      {RecomputeKeeps::kQkvOut, rotary + attention + mlp},
      {RecomputeKeeps::kProducts, rotary + attention + "rms_norm swiglu "},
      {RecomputeKeeps::kEveryOther, qkv + rotary + projection + mlp},
  };
  for (const auto& c : kCases) {
    Plan plan{.batch = {.seq_len = 512}};
    plan.memory.recompute =
        c.keeps == RecomputeKeeps::kEveryOther ? Recompute::kSelective : Recompute::kFull;
    plan.framework.recompute_keeps = c.keeps;
    const graph::Graph g = Make(SmallLlama(1), plan);
    EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
    const graph::Block& backward = FindBlock(g, "layer.backward");
    EXPECT_TRUE(Operations(g, backward).starts_with("rms_norm " + c.again + "fc2 fc2 "))
        << Operations(g, backward);
    EXPECT_EQ(SavedBytes(backward), -SavedBytes(FindBlock(g, "layer.forward")));
  }
}

// 512 tokens of 256 values, 4 heads, ffn of so many in 2 bytes: what stays besides a layer's
// output.
TEST(RecomputeKeeps, BytesAndHalfAnFc1) {
  const Model m = SmallLlama(1);
  const auto saved = [&](RecomputeKeeps keeps, LowPrecision low = LowPrecision::kNone) {
    Plan plan{.batch = {.seq_len = 512}};
    plan.memory.recompute = Recompute::kFull;
    plan.framework.recompute_keeps = keeps;
    plan.precision.low = low;
    return SavedBytes(FindBlock(Make(m, plan), "layer.forward"));
  };
  const std::int64_t nothing = saved(RecomputeKeeps::kNothing), qkv = 512 * 3 * m.hidden * 2;
  const std::int64_t core = 512 * m.hidden * 2 + 512 * m.heads * 4;  // and its statistics
  const std::int64_t fc1 = 512 * 2 * m.ffn_hidden * 2;
  EXPECT_EQ(saved(RecomputeKeeps::kLast), nothing);
  EXPECT_EQ(saved(RecomputeKeeps::kQkv) - nothing, qkv);
  EXPECT_EQ(saved(RecomputeKeeps::kQkvOut) - nothing, qkv + 512 * m.hidden * 2);
  EXPECT_EQ(saved(RecomputeKeeps::kProducts) - nothing, qkv + 512 * m.hidden * 2 + fc1);
  EXPECT_EQ(saved(RecomputeKeeps::kEveryOther) - nothing, qkv + core + fc1 / 2);
  EXPECT_EQ(saved(RecomputeKeeps::kEveryOther, LowPrecision::kCurrent) - nothing,
            qkv + core + fc1 / 2);
}

// Keys alone, and one half of fc1.
TEST(RecomputeKeeps, EveryOtherProductByItsShape) {
  Plan plan{.batch = {.seq_len = 512}};
  plan.memory.recompute = Recompute::kSelective;
  plan.framework.recompute_keeps = RecomputeKeeps::kEveryOther;
  const Model m = SmallLlama(1);
  const graph::Graph g = Make(m, plan);
  std::vector<std::int64_t> columns;
  for (const graph::Kernel& kernel : FindBlock(g, "layer.backward").kernels) {
    const graph::Gemm* gemm = std::get_if<graph::Gemm>(&kernel);
    if (gemm != nullptr && gemm->layout == graph::GemmLayout::kNT) columns.push_back(gemm->n);
  }
  EXPECT_EQ(columns, (std::vector<std::int64_t>{m.hidden, m.hidden, m.ffn_hidden}));
}

// 512 tokens, 2 experts each, on one rank: 1,024 rows of 128 values in 2 bytes.
TEST(Experts, UnfusedActivationIsKeptBesideTheWeightedOne) {
  Model m = SmallLlama(1);
  m.experts = {.count = 16, .top_k = 2, .ffn_hidden = 128};
  Plan plan{.batch = {.seq_len = 512}};
  const auto unweighted = [&](const char* block) {
    const graph::Graph g = Make(m, plan);
    EXPECT_EQ(SavedBytes(FindBlock(g, "layer.backward")),
              -SavedBytes(FindBlock(g, "layer.forward")));
    return BufferBytes(g, FindBlock(g, block), "experts.activation.unweighted");
  };
  EXPECT_EQ(unweighted("layer.forward"), 0);
  m.activation = Activation::kGelu;
  EXPECT_EQ(unweighted("layer.forward"), 1024 * 128 * 2);
  m.activation = Activation::kSquaredRelu;  // weighted in one kernel
  EXPECT_EQ(unweighted("layer.forward"), 0);
}

// Rotated queries and keys, 2 · 512 · 256 values, are those that were projected; the gradient of
// the gate's two inputs, 512 · 2 · 1,024 values, lies where they did.
TEST(InPlaceKernels, NoRotatedCopyAndNoGradientOfTheGate) {
  Plan plan{.batch = {.seq_len = 512}};
  const Model m = SmallLlama(1);
  const graph::Graph copies = Make(m, plan);
  plan.framework.in_place_kernels = true;
  const graph::Graph in_place = Make(m, plan);
  EXPECT_TRUE(graph::Verify(in_place, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(SavedBytes(FindBlock(copies, "layer.forward")) -
                SavedBytes(FindBlock(in_place, "layer.forward")),
            2 * 512 * 256 * 2);
  EXPECT_EQ(BufferBytes(copies, FindBlock(copies, "layer.backward"), "fc1.gradient"),
            512 * 2 * 1024 * 2);
  EXPECT_EQ(BufferBytes(in_place, FindBlock(in_place, "layer.backward"), "fc1.gradient"), 0);
}

// A rank's n parameters: 2 bytes of flat gradient beside the 4 of their cast, then 4 and 8 of
// AdamW's two results.
TEST(FlatStep, CopiesOfGradientsAndResultsOfAdam) {
  Plan plan{.batch = {.seq_len = 128}, .framework = {.grad_reduce_fp32 = false}};
  const Model m = SmallGpt(2);
  const graph::Graph fused = Make(m, plan);
  plan.framework.flat_step = true;
  const graph::Graph flat = Make(m, plan);
  const std::int64_t n = BufferBytes(fused, FindBlock(fused, "optimizer"), "main_gradients") / 4;
  EXPECT_GT(n, m.parameters() - 1);
  EXPECT_EQ(PeakBytes(FindBlock(fused, "optimizer")), 4 * n);
  EXPECT_EQ(PeakBytes(FindBlock(flat, "optimizer")), 12 * n);
  EXPECT_EQ(BufferBytes(flat, FindBlock(flat, "optimizer"), "flat_gradients"), 2 * n);
}

// foreach's kernels leave the root of all second moments; a loop over tensors that of one.
TEST(UnfusedAdam, ForeachKeepsOneResultOfAllTensors) {
  const Model m = SmallGpt(2);
  Plan plan = Ddp(2);
  plan.framework.fused_adam = false;
  const graph::Graph g = Make(m, plan);
  const graph::Block& step = FindBlock(g, "optimizer");
  EXPECT_EQ(PeakBytes(step), BufferBytes(g, step, "exp_avg_sq.sqrt"));
  EXPECT_GT(PeakBytes(step), 4 * m.parameters() - 1);
  plan.framework.adam_loop = true;
  EXPECT_EQ(PeakBytes(FindBlock(Make(m, plan), "optimizer")), 0);
}

TEST(ContiguousGradients, ABufferOfTheirOwnUnderZero3) {
  Plan plan{.parallel = {.dp = 4},
            .batch = {.global_batch = 4, .seq_len = 128},
            .memory = {.sharding = Sharding::kZero3}};
  plan.framework.grad_reduce_fp32 = false;
  plan.framework.bucket_elements = 1'000'000;
  const auto buffer = [&] {
    const graph::Graph g = Make(SmallGpt(2), plan);
    return BufferBytes(g, FindBlock(g, "static"), "gradient_buckets");
  };
  EXPECT_EQ(buffer(), 0);
  plan.framework.contiguous_gradients = true;
  EXPECT_EQ(buffer(), 2'000'000);
}

// The output is made before the temporaries of its layer are given back: an allocator cannot put it
// where they lay. In a recomputed layer it lives on until the layer's backward is over.
TEST(LayerOutput, MadeWhileTemporariesLive) {
  Plan plan{.batch = {.seq_len = 512}};
  const Model m = SmallGpt(1);
  const auto live_after_output = [](const graph::Graph& g, std::string_view block_name) {
    const graph::Block& block = FindBlock(g, block_name);
    std::map<std::uint32_t, std::string> live;
    for (const graph::Op& op : block.ops) {
      if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
      const graph::Buffer& b = block.buffers[op.index];
      const std::string name = b.name.valid() ? g.name(b.name) : "";
      if (op.kind == OpKind::kFree) live.erase(b.id);
      if (op.kind == OpKind::kAlloc && name == "output") return live;
      if (op.kind == OpKind::kAlloc) live[b.id] = name;
    }
    return std::map<std::uint32_t, std::string>();
  };
  const auto holds = [](const std::map<std::uint32_t, std::string>& live, std::string_view name) {
    return std::any_of(live.begin(), live.end(), [&](const auto& b) { return b.second == name; });
  };
  EXPECT_TRUE(holds(live_after_output(Make(m, plan), "layer.forward"), "projected"));
  plan.memory.recompute = Recompute::kFull;
  const graph::Graph g = Make(m, plan);
  EXPECT_TRUE(holds(live_after_output(g, "layer.backward"), "gradient"));
  // One boundary tensor a layer and micro-batch stays, whatever happens inside.
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")), 512 * 256 * 2);
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.backward")), -512 * 256 * 2);
}

// A rank's half of the gradients in fp32 beside 16-bit ones, or none.
TEST(MainGradients, ReadAsTheyAre) {
  Plan plan{.parallel = {.dp = 2}, .batch = {.global_batch = 2, .seq_len = 128}};
  plan.memory.sharding = Sharding::kZero1;
  plan.framework.grad_reduce_fp32 = false;
  const graph::Graph copied = Make(SmallGpt(1), plan);
  EXPECT_GT(BufferBytes(copied, FindBlock(copied, "optimizer"), "main_gradients"), 0);
  plan.framework.bf16_main_gradients = true;
  const graph::Graph read = Make(SmallGpt(1), plan);
  EXPECT_EQ(BufferBytes(read, FindBlock(read, "optimizer"), "main_gradients"), 0);
  EXPECT_LT(FindBlock(read, "optimizer").kernels.size(),
            FindBlock(copied, "optimizer").kernels.size());
}

}  // namespace
}  // namespace orrery::workload
