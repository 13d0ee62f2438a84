// One layer: its operations in Megatron's order, its FLOPs, bytes and saved tensors by formula.
#include "orrery/workload/generators/layers/layer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "orrery/workload/generators/layers/embedding_and_head.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

Plan One(int tp, bool sp) {
  return {.parallel = {.tp = tp, .sequence_parallel = sp},
          .batch = {.global_batch = 2, .micro_batch = 2, .seq_len = 256}};
}

TEST(Layer, ForwardOrder) {
  graph::Graph g = Make(SmallGpt(1), One(1, false));
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.forward")),
            "layer_norm qkv flash_attention projection bias_dropout_add "
            "layer_norm fc1 gelu fc2 bias_dropout_add");
  g = Make(SmallGpt(1), One(4, false));
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.forward")),
            "layer_norm qkv flash_attention projection all_reduce! bias_dropout_add "
            "layer_norm fc1 gelu fc2 all_reduce! bias_dropout_add");
  g = Make(SmallGpt(1), One(4, true));
  EXPECT_EQ(
      Operations(g, FindBlock(g, "layer.forward")),
      "layer_norm all_gather! qkv flash_attention projection reduce_scatter! bias_dropout_add "
      "layer_norm all_gather! fc1 gelu fc2 reduce_scatter! bias_dropout_add");
}

TEST(Layer, LlamaForwardOrder) {
  Model m = *FindModel("llama3-8b");
  m.layers = 1;
  const graph::Graph g = Make(m, One(4, true));
  EXPECT_EQ(
      Operations(g, FindBlock(g, "layer.forward")),
      "rms_norm all_gather! qkv rotary_q rotary_k flash_attention projection reduce_scatter! "
      "bias_dropout_add rms_norm all_gather! fc1 swiglu fc2 reduce_scatter! bias_dropout_add");
}

// Four norms a layer (Gemma 2, GLM-4): each part's output is normalised before it is added.
TEST(Layer, NormsBehindTheParts) {
  Model m = *FindModel("llama3-8b");
  m.layers = 1;
  m.post_norms = true;
  graph::Graph g = Make(m, One(1, false));
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.forward")),
            "rms_norm qkv rotary_q rotary_k flash_attention projection rms_norm bias_dropout_add "
            "rms_norm fc1 swiglu fc2 rms_norm bias_dropout_add");
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.backward")),
            "rms_norm weight_gradient fc2 fc2 swiglu fc1 fc1 "
            "rms_norm weight_gradient residual_gradient "
            "rms_norm weight_gradient projection projection flash_attention rotary_q rotary_k "
            "concatenate qkv qkv rms_norm weight_gradient residual_gradient");
  // Recomputed whole, the last product runs again, for its norm needs it.
  Plan plan = One(1, false);
  plan.memory.recompute = Recompute::kFull;
  plan.framework.recompute_keeps = RecomputeKeeps::kQkv;
  g = Make(m, plan);
  EXPECT_TRUE(Operations(g, FindBlock(g, "layer.backward"))
                  .starts_with("rms_norm rotary_q rotary_k flash_attention projection rms_norm "
                               "bias_dropout_add rms_norm fc1 swiglu fc2 rms_norm"))
      << Operations(g, FindBlock(g, "layer.backward"));
}

// Data gradient, then its reduction started, then the weight gradient beside it.
TEST(Layer, BackwardOverlapsTheReductionWithTheWeightGradient) {
  Model m = *FindModel("llama3-8b");
  m.layers = 1;
  graph::Graph g = Make(m, One(4, false));
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.backward")),
            "fc2 fc2 swiglu fc1 all_reduce+1 fc1 ?1 "
            "rms_norm weight_gradient residual_gradient "
            "projection projection flash_attention rotary_q rotary_k concatenate "
            "qkv all_reduce+1 qkv ?1 rms_norm weight_gradient residual_gradient");
  g = Make(m, One(4, true));
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.backward")),
            "all_gather! fc2 fc2 swiglu all_gather+0 fc1 ?0 reduce_scatter+1 fc1 ?1 "
            "rms_norm weight_gradient residual_gradient "
            "all_gather! projection projection flash_attention rotary_q rotary_k concatenate "
            "all_gather+0 qkv ?0 reduce_scatter+1 qkv ?1 rms_norm weight_gradient "
            "residual_gradient");
}

// Before September 2021 Megatron reduced after both products, and waited.
TEST(Layer, BackwardReducesAfterTheWeightGradient) {
  Model m = *FindModel("llama3-8b");
  m.layers = 1;
  Plan p = One(4, false);
  p.framework.overlap_tp_all_reduce = false;
  graph::Graph g = Make(m, p);
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.backward")),
            "fc2 fc2 swiglu fc1 fc1 all_reduce! "
            "rms_norm weight_gradient residual_gradient "
            "projection projection flash_attention rotary_q rotary_k concatenate "
            "qkv qkv all_reduce! rms_norm weight_gradient residual_gradient");
  p.parallel.sequence_parallel = true;  // which has nothing of the kind
  g = Make(m, p);
  const std::string blocking = Operations(g, FindBlock(g, "layer.backward"));
  p.framework.overlap_tp_all_reduce = true;
  g = Make(m, p);
  EXPECT_EQ(blocking, Operations(g, FindBlock(g, "layer.backward")));
}

TEST(Layer, UnfusedAttentionAndDropout) {
  Model m = SmallGpt(1);
  m.dropout = 0.1;
  Plan p = One(1, false);
  p.framework.attention = AttentionBackend::kUnfused;
  p.memory.recompute = Recompute::kSelective;
  const graph::Graph g = Make(m, p);
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.forward")),
            "layer_norm qkv scores scaled_mask_softmax attention_dropout context transpose "
            "projection bias_dropout_add layer_norm fc1 gelu fc2 bias_dropout_add");
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.backward")),
            "bias_dropout_add bias_sum bias_gradient fc2 fc2 gelu bias_sum bias_gradient fc1 fc1 "
            "layer_norm weight_gradient bias_gradient residual_gradient "
            "bias_dropout_add bias_sum bias_gradient projection projection "
            "scores scaled_mask_softmax attention_dropout context transpose "  // again
            "transpose context.probabilities context.values attention_dropout scaled_mask_softmax "
            "scores.query scores.key concatenate qkv qkv bias_gradient "
            "layer_norm weight_gradient bias_gradient residual_gradient");
}

// 24·b·s·h²·(1 + s/6h) forward, attention counted over the full square (the causal half is the cost
// model's affair); backward twice that when unfused, and 10·b·s²·h of attention with flash, which
// computes the scores again.
TEST(Layer, FlopsFollowNarayanan) {
  Model m = *FindModel("gpt3-175b");
  m.layers = 1;
  const double b = 2, s = 2048, h = 12288;
  for (const int tp : {1, 8}) {
    Plan p = One(tp, tp > 1);
    p.batch.seq_len = 2048;
    const double forward = 24 * b * s * h * h * (1 + s / (6 * h)) / tp;
    graph::Graph g = Make(m, p);
    EXPECT_NEAR(BlockFlops(FindBlock(g, "layer.forward")) / forward, 1, 1e-12);
    const double flash = (48 * b * s * h * h + 10 * b * s * s * h) / tp;
    EXPECT_NEAR(BlockFlops(FindBlock(g, "layer.backward")) / flash, 1, 1e-12);
    p.framework.attention = AttentionBackend::kUnfused;
    g = Make(m, p);
    EXPECT_NEAR(BlockFlops(FindBlock(g, "layer.forward")) / forward, 1, 1e-12);
    EXPECT_NEAR(BlockFlops(FindBlock(g, "layer.backward")) / (2 * forward), 1, 1e-12);
    p.memory.recompute = Recompute::kFull;
    g = Make(m, p);
    EXPECT_NEAR(BlockFlops(FindBlock(g, "layer.backward")) / (3 * forward), 1, 1e-12);
  }
}

// Llama: q and o are h·h, k and v h·(h/8) each, three matrices of h·f; times 2·b·s; attention
// 4·b·s²·h.
TEST(Layer, FlopsOfGroupedQueriesAndSwiglu) {
  Model m = *FindModel("llama3-70b");
  m.layers = 1;
  Plan p = One(1, false);
  const double b = 2, s = 256, h = 8192, f = 28672;
  const double weights = 2 * h * h + 2 * h * h / 8 + 3 * h * f;
  const graph::Graph g = Make(m, p);
  EXPECT_NEAR(BlockFlops(FindBlock(g, "layer.forward")), 2 * b * s * weights + 4 * b * s * s * h,
              1);
}

// Korthikanti et al. 2022, section 4.2.2: without SP four all-reduces of 2·s·b·h bytes a layer,
// with SP four all-gathers and four reduce-scatters (all-reduce = both), plus Megatron's two extra
// all-gathers of saved inputs in backward.
TEST(Layer, TensorParallelBytes) {
  const Model m = SmallGpt(1);
  const std::int64_t full = 2 * 256 * 2 * m.hidden;
  graph::Graph g = Make(m, One(4, false));
  EXPECT_EQ(Bytes(FindBlock(g, "layer.forward"), Collective::kAllReduce), 2 * full);
  EXPECT_EQ(Bytes(FindBlock(g, "layer.backward"), Collective::kAllReduce), 2 * full);
  g = Make(m, One(4, true));
  const graph::Block& forward = FindBlock(g, "layer.forward");
  const graph::Block& backward = FindBlock(g, "layer.backward");
  EXPECT_EQ(Bytes(forward, Collective::kAllGather), 2 * full);
  EXPECT_EQ(Bytes(forward, Collective::kReduceScatter), 2 * full);
  EXPECT_EQ(Bytes(backward, Collective::kAllGather), 4 * full);
  EXPECT_EQ(Bytes(backward, Collective::kReduceScatter), 2 * full);
  Plan p = One(4, true);
  p.memory.recompute = Recompute::kFull;  // forward's communication again
  g = Make(m, p);
  EXPECT_EQ(Bytes(FindBlock(g, "layer.backward"), Collective::kAllGather), 6 * full);
  EXPECT_EQ(Bytes(FindBlock(g, "layer.backward"), Collective::kReduceScatter), 4 * full);
}

// Korthikanti et al. 2022, table 2: 34·s·b·h + 5·a·s²·b without tensor parallelism;
// s·b·h·(10 + 24/t) + 5·a·s²·b/t with; (34·s·b·h + 5·a·s²·b)/t with SP; 34·s·b·h/t selective;
// 2·s·b·h/t full. On top, theirs leaves out: statistics of two norms, 16·s·b (/t with SP).
TEST(Layer, SavedTensorsFollowKorthikanti) {
  Model m = SmallGpt(1);
  m.dropout = 0.1;
  const std::int64_t s = 256, b = 2, h = m.hidden, a = m.heads, sbh = s * b * h;
  const auto saved = [&](int tp, bool sp, Recompute recompute) {
    Plan p = One(tp, sp);
    p.framework.attention = AttentionBackend::kUnfused;
    p.memory.recompute = recompute;
    const graph::Graph g = Make(m, p);
    const std::int64_t bytes = SavedBytes(FindBlock(g, "layer.forward"));
    EXPECT_EQ(SavedBytes(FindBlock(g, "layer.backward")), -bytes);
    return bytes;
  };
  const std::int64_t square = 5 * a * s * s * b, norms = 16 * s * b;
  EXPECT_EQ(saved(1, false, Recompute::kNone), 34 * sbh + square + norms);
  EXPECT_EQ(saved(4, false, Recompute::kNone), 10 * sbh + 24 * sbh / 4 + square / 4 + norms);
  EXPECT_EQ(saved(4, true, Recompute::kNone), (34 * sbh + square + norms) / 4);
  EXPECT_EQ(saved(4, true, Recompute::kSelective), (34 * sbh + norms) / 4);
  EXPECT_EQ(saved(4, true, Recompute::kFull), 2 * sbh / 4);
}

// Flash keeps its row statistics (4·a·s·b) in place of the square; no dropout, no masks.
TEST(Layer, FlashSavesStatisticsInstead) {
  const Model m = SmallGpt(1);
  const std::int64_t s = 256, b = 2, h = m.hidden, a = m.heads;
  const graph::Graph g = Make(m, One(1, false));
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")), 32 * s * b * h + 4 * a * s * b + 16 * s * b);
}

// One key and value head serves several query heads: repeated by copies, their gradients summed.
TEST(Layer, UnfusedGroupedQueriesRepeatTheirHeads) {
  Model m = SmallGpt(1);
  m.kv_heads = 2;
  Plan p = One(1, false);
  p.framework.attention = AttentionBackend::kUnfused;
  p.framework.fused_softmax = p.framework.fused_bias_activation = false;
  const graph::Graph g = Make(m, p);
  EXPECT_EQ(
      Operations(g, FindBlock(g, "layer.forward")),
      "layer_norm qkv repeat_k repeat_v scores cast scale mask softmax cast context transpose "
      "projection bias_dropout_add layer_norm fc1 bias gelu fc2 bias_dropout_add");
}

// Two heads of one sequence a rank: no multiple of four, so Megatron's fused kernel does not run.
TEST(Layer, TheFusedSoftmaxNeedsFourHeads) {
  const Model m = SmallGpt(1);
  Plan p = One(m.heads / 2, false);
  p.framework.attention = AttentionBackend::kUnfused;
  for (const std::int64_t sequences : {1, 2}) {
    p.batch.micro_batch = sequences;
    p.batch.global_batch = sequences * p.parallel.dp;
    const graph::Graph g = Make(m, p);
    const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
    const bool fused = forward.find("scores scaled_mask_softmax ") != std::string::npos;
    const bool torch = forward.find("scores cast scale mask softmax cast ") != std::string::npos;
    EXPECT_EQ(fused, sequences == 2) << forward;
    EXPECT_EQ(torch, sequences == 1) << forward;
  }
}

// Bytes by hand, 2 each: relu and pow read and write a tensor each; backward pow copies (2
// tensors), doubles (2), multiplies by the gradient (3), and relu masks (3). Compiled: 2 and 3.
TEST(Layer, SquaredReluByOperators) {
  Model m = SmallGpt(1);
  m.activation = Activation::kSquaredRelu;
  m.mlp_bias = false;
  Plan p = One(1, false);
  const auto bytes = [&](std::string_view block) {
    const graph::Graph g = Make(m, p);
    std::int64_t sum = 0;
    for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
      const auto* k = std::get_if<graph::MemoryBound>(&kernel);
      if (k != nullptr) sum += k->bytes_read + k->bytes_written;
    }
    return sum;
  };
  const std::int64_t forward = bytes("layer.forward"), backward = bytes("layer.backward");
  p.framework.fused_bias_activation = false;
  const std::int64_t tensor = p.batch.seq_len * p.batch.micro_batch * m.ffn_hidden * 2;
  EXPECT_EQ(bytes("layer.forward") - forward, (4 - 2) * tensor);
  EXPECT_EQ(bytes("layer.backward") - backward, (10 - 3) * tensor);
}

// fp32 trains without main parameters and keeps fp32 everywhere.
TEST(Layer, Fp32GemmsAccumulateInFp32) {
  Plan p = One(1, false);
  p.precision.type = Precision::kFp32;
  p.framework.attention = AttentionBackend::kUnfused;
  const graph::Graph g = Make(SmallGpt(1), p);
  int weight_gradients = 0;
  for (const graph::Kernel& kernel : FindBlock(g, "layer.backward").kernels) {
    const graph::Gemm* gemm = std::get_if<graph::Gemm>(&kernel);
    if (gemm == nullptr) continue;
    EXPECT_EQ(gemm->dtype, graph::DType::kFp32);
    weight_gradients += gemm->accumulate ? 1 : 0;
  }
  EXPECT_EQ(weight_gradients, 4);
}

// Bytes by hand: 12 h² parameters of four matrices, 2 bytes written by GEMMs, then read and added
// to 4; converted first, 2 read and 4 written besides, and 4 instead of 2 read by the sum.
TEST(Layer, WeightGradientsThatAKernelAdds) {
  const auto bytes = [](bool converted) {
    Plan p = One(1, false);
    p.framework.fused_weight_gradient = false;
    p.framework.converted_gradients = converted;
    const graph::Graph g = Make(SmallGpt(1), p);
    std::int64_t sum = 0;
    for (const graph::Kernel& kernel : FindBlock(g, "layer.backward").kernels) {
      if (const auto* gemm = std::get_if<graph::Gemm>(&kernel)) {
        EXPECT_FALSE(gemm->accumulate);
        EXPECT_EQ(gemm->out_dtype, graph::DType::kBf16);
      } else if (const auto* k = std::get_if<graph::MemoryBound>(&kernel)) {
        const std::int64_t h = SmallGpt(1).hidden;
        if (k->rows == 1 && k->cols >= h * h) sum += k->bytes_read + k->bytes_written;
      }
    }
    return sum;
  };
  const std::int64_t h = SmallGpt(1).hidden;
  EXPECT_EQ(bytes(false), 12 * h * h * 10);
  EXPECT_EQ(bytes(true), 12 * h * h * 18);
}

TEST(Embedding, OnlyLearnedPositionsAreLookedUp) {
  graph::Graph g = Make(SmallGpt(1), One(4, true));
  EXPECT_EQ(Operations(g, FindBlock(g, "embedding.forward")),
            "vocab_mask embedding zero_masked all_reduce! embedding add transpose split");
  Model m = *FindModel("llama3-8b");
  m.layers = 1;
  for (const Position position : {Position::kRotary, Position::kNone}) {
    m.position = position;
    g = Make(m, One(4, true));
    EXPECT_EQ(Operations(g, FindBlock(g, "embedding.forward")),
              "vocab_mask embedding zero_masked transpose reduce_scatter!");
  }
}

// A micro-batch is fetched where the model begins and, on other stages, where it ends. Until 2023
// Megatron read sizes back in between.
TEST(Ends, TheHostFetchesEachMicrobatch) {
  Plan p = One(1, false);
  p.framework.host.batch = 1001;
  const auto host = [&](std::string_view name) {
    const graph::Graph g = Make(SmallGpt(2), p);
    const graph::Block& block = FindBlock(g, name);
    const std::int64_t ps =
        std::accumulate(block.host_ps.begin(), block.host_ps.end(), std::int64_t{0});
    return std::pair(ps, Operations(g, block).starts_with("host sync host "));
  };
  EXPECT_EQ(host("embedding.forward"), std::pair(std::int64_t{1'001'000}, false));
  EXPECT_EQ(host("head.forward"), std::pair(std::int64_t{0}, false));
  p.parallel.pp = 2;
  p.framework.batch_sync = true;
  EXPECT_EQ(host("embedding.forward"), std::pair(std::int64_t{1'001'000}, true));
  EXPECT_EQ(host("head.forward"), std::pair(std::int64_t{1'001'000}, true));
}

// Chunks between the model's ends go through the modules around their layers.
TEST(Ends, ChunksInBetweenAreEntered) {
  Plan p = One(1, false);
  p.parallel.pp = 2;
  p.parallel.vpp = 2;
  p.parallel.schedule = Schedule::k1f1bInterleaved;
  p.batch.global_batch = 2 * p.batch.micro_batch;
  p.framework.host.module_forward = 1001;
  const graph::Graph g = Make(SmallGpt(4), p);
  EXPECT_EQ(FindBlock(g, "chunk.enter").host_ps, (std::vector<std::int64_t>{4 * 1'001'000}));
  int entered = 0;  // the second chunk of the first stage and the first of the second
  for (const graph::Program& program : g.programs) {
    for (const graph::Call& call : program.calls) {
      entered += g.name(g.blocks[call.block.index()].name) == "chunk.enter" ? 1 : 0;
    }
  }
  EXPECT_EQ(entered, 2 * 2);
}

// Core attention takes a random state of its own where ranks hold different heads of equal tokens.
TEST(Layer, RandomStatesWithoutSequenceParallelism) {
  const auto host = [](bool sequence_parallel) {
    Plan p = One(4, sequence_parallel);
    p.framework.host.rng_fork = 1001;
    const graph::Graph g = Make(SmallGpt(1), p);
    const graph::Block& block = FindBlock(g, "layer.forward");
    return std::accumulate(block.host_ps.begin(), block.host_ps.end(), std::int64_t{0});
  };
  EXPECT_EQ(host(false), 1'001'000);
  EXPECT_EQ(host(true), 0);
}

TEST(Head, CrossEntropyHasThreeAllReduces) {
  const graph::Graph g = Make(SmallGpt(1), One(4, true));
  const graph::Block& head = FindBlock(g, "head.forward");
  EXPECT_EQ(Operations(g, head),
            "layer_norm all_gather! logits cast maximum all_reduce.maximum! subtract predicted "
            "exponential sum all_reduce.predicted! all_reduce.sum! loss normalise mean");
  EXPECT_EQ(Bytes(head, Collective::kAllReduce), 3 * 2 * 256 * 4);
  // 1,000 words padded to 1,024 over 4 ranks.
  EXPECT_EQ(std::get<graph::Gemm>(head.kernels[1]).n, 1024 / 4);
}

// Bytes a logit and pass. Operators: cast 6, maximum 4, subtraction 8, exponential 8, sum 4,
// normalisation 8, its gradient 8, cast 6. Compiled: 6, 8, 8, 6. Online: 2, 4 and 4.
TEST(Head, LossesByBytesOverLogits) {
  Plan p = One(4, true);
  const std::int64_t logits = std::int64_t{2} * 256 * 1024 / 4;
  const auto bytes = [&] {
    const graph::Graph g = Make(SmallGpt(1), p);
    std::int64_t sum = 0;
    for (const std::string_view block : {"head.forward", "head.backward"}) {
      for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
        const auto* k = std::get_if<graph::MemoryBound>(&kernel);
        if (k == nullptr || k->rows * k->cols != logits) continue;
        sum += k->bytes_read + k->bytes_written;
      }
    }
    return sum / logits;
  };
  EXPECT_EQ(bytes(), 52);
  p.framework.fused_cross_entropy = true;
  EXPECT_EQ(bytes(), 28);
  p.framework.fused_cross_entropy = false;
  p.framework.online_cross_entropy = true;
  EXPECT_EQ(bytes(), 10);
  const graph::Graph g = Make(SmallGpt(1), p);
  EXPECT_EQ(Operations(g, FindBlock(g, "head.forward")),
            "layer_norm all_gather! logits online_softmax all_gather.softmax! cross_entropy mean");
  // Of each token its maximum, its sum and the label's logit, from 4 ranks.
  const graph::Graph eager = Make(SmallGpt(1), One(4, true));
  EXPECT_EQ(Bytes(FindBlock(g, "head.forward"), Collective::kAllGather) -
                Bytes(FindBlock(eager, "head.forward"), Collective::kAllGather),
            2 * 256 * 3 * 4 * 4);
}

}  // namespace
}  // namespace orrery::workload
