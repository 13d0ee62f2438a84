// What surrounds the pipeline: parameters per stage, buckets, reductions, optimizer, memory.
#include "orrery/workload/generators/sharding/reduce_and_update.h"

#include <gtest/gtest.h>

#include "orrery/workload/generators/sharding/buckets.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

std::int64_t StaticBytes(const graph::Graph& g, const graph::Program& p, graph::MemoryKind kind) {
  std::int64_t sum = 0;
  for (const graph::Call& call : p.prologue) {
    for (const graph::Buffer& b : g.blocks[call.block.index()].buffers) {
      if (b.kind == kind) sum += b.bytes;
    }
  }
  return sum;
}

std::int64_t ParametersOfAllStages(const graph::Graph& g) {
  std::int64_t sum = 0;
  for (const graph::Program& p : g.programs)
    sum += StaticBytes(g, p, graph::MemoryKind::kParameter);
  return sum / 2;
}

// Names of the blocks outside the pipeline, in order.
std::string Surroundings(const graph::Graph& g, const graph::Program& program) {
  std::vector<std::string> words;
  for (const graph::Call& call : program.calls) {
    const std::string& name = g.name(g.blocks[call.block.index()].name);
    if (name.starts_with("layer.") || name.starts_with("pipeline.") ||
        name.starts_with("embedding.") || name.starts_with("head.")) {
      if (words.empty() || words.back() != "…") words.push_back("…");
    } else {
      words.push_back(name);
    }
  }
  return Join(words);
}

TEST(Parameters, StagesAddUpToTheModel) {
  for (const ModelPreset& preset : ModelPresets()) {
    const Model m = *FindModel(preset.name);
    for (const int pp : {1, 2}) {
      Plan plan{.parallel = {.pp = pp}, .batch = {.seq_len = m.net != nullptr ? 1 : 128}};
      const auto layers = static_cast<int>(m.layers);
      if (layers % pp != 0) plan.parallel.layers_per_stage = {layers / 2 + 1, layers / 2};
      const graph::Graph g = Make(m, plan);
      const std::int64_t rows = m.net != nullptr ? 0 : PaddedVocab(m.vocab, 1) - m.vocab;
      const std::int64_t padding = rows * m.hidden;
      const std::int64_t biases = m.encoder ? rows : 0;
      const bool one = (m.tied_embeddings && pp == 1) || m.patch_values > 0;
      const std::int64_t tables = one ? 1 : 2;
      // A tied table is held twice once the ends lie on different stages.
      const std::int64_t copy = m.tied_embeddings && pp > 1 ? m.vocab * m.hidden : 0;
      EXPECT_EQ(ParametersOfAllStages(g), m.parameters() + copy + tables * padding + biases)
          << preset.name;
    }
  }
}

// Each tensor-parallel rank holds 1/tp of the matrices and all of the norms.
TEST(Parameters, TensorParallelRanksAddUp) {
  const Model m = *FindModel("llama3.1-405b");
  const graph::Graph g =
      Make(m, {.parallel = {.tp = 8, .pp = 16}, .batch = {.global_batch = 16, .seq_len = 8192}});
  const std::int64_t norms = (2 * m.layers + 1) * m.hidden;
  const std::int64_t padding = 2 * (PaddedVocab(m.vocab, 8) - m.vocab) * m.hidden;
  EXPECT_EQ(8 * ParametersOfAllStages(g) - 7 * norms, m.parameters() + padding);
}

// bf16: 2 bytes of parameter, 4 of gradient, 12 of optimizer (fp32 parameter and two moments),
// the last over dp under ZeRO-1.
TEST(Memory, EighteenBytesAParameter) {
  Plan p{.parallel = {.dp = 4}, .batch = {.global_batch = 4, .seq_len = 128}};
  for (const Sharding sharding : {Sharding::kNone, Sharding::kZero1}) {
    p.memory.sharding = sharding;
    const graph::Graph g = Make(SmallGpt(2), p);
    const graph::Program& program = g.programs[0];
    const std::int64_t n = StaticBytes(g, program, graph::MemoryKind::kParameter) / 2;
    EXPECT_EQ(StaticBytes(g, program, graph::MemoryKind::kGradient), 4 * n);
    EXPECT_EQ(StaticBytes(g, program, graph::MemoryKind::kOptimizer),
              12 * n / (sharding == Sharding::kZero1 ? 4 : 1));
  }
  p.precision.type = Precision::kFp32;
  p.framework.attention = AttentionBackend::kUnfused;
  p.memory.sharding = Sharding::kNone;
  const graph::Graph g = Make(SmallGpt(2), p);
  const std::int64_t n = StaticBytes(g, g.programs[0], graph::MemoryKind::kParameter) / 4;
  EXPECT_EQ(StaticBytes(g, g.programs[0], graph::MemoryKind::kOptimizer), 8 * n);
}

// A layer is 789,760 elements (12·256² + 13·256); with a limit of 500,000 the last layer's fc2 and
// fc1 (262,144 + 256 + 262,144 + 1,024 = 525,568) close the first bucket.
TEST(Buckets, CloseAtTheLimit) {
  const Shape s = MakeShape(SmallGpt(2), {.batch = {.seq_len = 128}});
  const ChunkParts parts{.layers = 2, .embedding = true};
  const auto buckets = MakeBuckets(s, parts, {.limit = 500'000});
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].elements, 525'568);
  EXPECT_EQ(buckets[0].unit, 2);
  // The rest of layer 2 (264,192) and layer 1's fc2 with its bias (262,400).
  EXPECT_EQ(buckets[1].elements, 526'592);
  EXPECT_EQ(buckets[1].unit, 1);
  // Layer 1's fc1 (263,168), norm (512), qkv (197,376), projection (65,792).
  EXPECT_EQ(buckets[2].elements, 526'848);
  EXPECT_EQ(buckets[2].unit, 1);
  EXPECT_EQ(buckets[3].elements, 512 + 512 * 256 + 1024 * 256);  // norm, positions, words
  EXPECT_EQ(buckets[3].unit, 0);
}

TEST(Buckets, NoLimitIsOneBucket) {
  const Shape s = MakeShape(SmallGpt(2), {.batch = {.seq_len = 128}});
  const auto buckets = MakeBuckets(s, {.layers = 2}, {});
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].elements, 2 * 789'760);
}

// Under ZeRO-1 the tied table is alone in its bucket and each bucket is a multiple of lcm(dp, 128).
TEST(Buckets, DistributedPadsAndSeparatesTheTiedTable) {
  const Shape s = MakeShape(SmallGpt(2), {.batch = {.seq_len = 128}});
  const auto buckets =
      MakeBuckets(s, {.layers = 2, .embedding = true}, {.dp = 3, .distributed = true});
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[1].elements, (1024 * 256 + 383) / 384 * 384);
  EXPECT_EQ(buckets[0].elements, (2 * 789'760 + 512 * 256 + 383) / 384 * 384);
}

TEST(Step, OrderWithEverything) {
  Plan p{.parallel = {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
         .batch = {.global_batch = 4, .seq_len = 128}};
  p.memory.sharding = Sharding::kZero1;
  graph::Graph g = Make(SmallGpt(4), p);
  // Two buckets on the first stage, the tied table and all else: its embedding needs both.
  EXPECT_EQ(
      Surroundings(g, g.programs[0]),
      "zero_gradients parameters.gather parameters.gather parameters.wait … gradients.reduce "
      "gradients.reduce gradients.wait gradients.reduce_tp gradients.reduce_embedding optimizer");
  EXPECT_EQ(
      Surroundings(g, g.programs[1]),
      "zero_gradients parameters.gather … parameters.wait parameters.gather … parameters.wait "
      "… gradients.reduce gradients.reduce gradients.wait gradients.reduce_tp "
      "gradients.reduce_embedding optimizer loss.reduce");
  p.framework.overlap_grad_reduce = p.framework.overlap_param_gather = false;
  g = Make(SmallGpt(4), p);
  EXPECT_EQ(Surroundings(g, g.programs[0]),
            "zero_gradients … gradients.reduce gradients.reduce gradients.reduce_tp "
            "gradients.reduce_embedding optimizer parameters.gather parameters.gather");
  p.memory.sharding = Sharding::kNone;
  p.parallel.sequence_parallel = false;
  p.parallel.dp = 1;
  g = Make(*FindModel("llama3-8b"), p);
  EXPECT_EQ(Surroundings(g, g.programs[0]), "zero_gradients … optimizer");
}

TEST(Step, OptimizerReadsTheNormOnTheHost) {
  Plan p{.parallel = {.tp = 2, .dp = 2}, .batch = {.global_batch = 2, .seq_len = 128}};
  graph::Graph g = Make(SmallGpt(2), p);
  EXPECT_EQ(Operations(g, FindBlock(g, "optimizer")),
            "l2_norm all_reduce.norm! sync clip adam copy_to_model");
  p.precision.type = Precision::kFp16;
  p.framework.grad_reduce_fp32 = false;
  g = Make(SmallGpt(2), p);
  EXPECT_EQ(Operations(g, FindBlock(g, "optimizer")),
            "cast unscale all_reduce.found_inf! sync l2_norm all_reduce.norm! sync clip adam "
            "copy_to_model");
}

// Reduced bytes: 4 a parameter in fp32; gathered: 2.
TEST(Step, DataParallelBytes) {
  Plan p{.parallel = {.dp = 4}, .batch = {.global_batch = 4, .seq_len = 128}};
  p.memory.sharding = Sharding::kZero1;
  const Model m = SmallGpt(2);
  const auto total = [](const graph::Graph& g, graph::Collective collective) {
    std::int64_t bytes = 0;
    for (const graph::Call& call : g.programs[0].calls) {
      bytes += Bytes(g.blocks[call.block.index()], collective);
    }
    return bytes;
  };
  const graph::Graph g = Make(m, p);
  const std::int64_t n = StaticBytes(g, g.programs[0], graph::MemoryKind::kParameter) / 2;
  EXPECT_EQ(total(g, graph::Collective::kReduceScatter), 4 * n);
  EXPECT_EQ(total(g, graph::Collective::kAllGather), 2 * n);
  p.framework.reduce_whole = true;  // DeepSpeed's BF16_Optimizer
  const graph::Graph whole = Make(m, p);
  EXPECT_EQ(total(whole, graph::Collective::kReduceScatter), 0);
  EXPECT_EQ(total(whole, graph::Collective::kAllGather), 2 * n);
  EXPECT_EQ(total(whole, graph::Collective::kAllReduce) - total(g, graph::Collective::kAllReduce),
            4 * n);
}

// Every parameter gather is waited for before the units that need it, one ahead of use.
TEST(Step, ParameterGathersRunOneBucketAhead) {
  Plan p{.parallel = {.dp = 2}, .batch = {.global_batch = 4, .seq_len = 128}};
  p.memory.sharding = Sharding::kZero1;
  p.framework.bucket_elements = 1;  // the rule's floor, 2,000,000
  const graph::Graph g = Make(SmallGpt(6), p);
  std::vector<std::string> words;
  for (const graph::Call& call : g.programs[0].calls) {
    const std::string& name = g.name(g.blocks[call.block.index()].name);
    if (call.microbatch > 0) break;
    if (name == "parameters.gather") words.push_back("G");
    if (name == "parameters.wait") words.push_back("?");
    if (name == "layer.forward") {
      words.push_back(fmt::format("F{}-{}", call.first_layer, call.first_layer + call.repeat - 1));
    }
    if (name == "embedding.forward") words.push_back("E");
  }
  // From the last: 2,105,088 elements in layers 5, 4 and part of 3; 2,106,112 in the rest of 3, 2,
  // 1 and part of 0; the rest of 0 and the positions; the tied table alone. The embedding needs the
  // last two, layer 0 the second, layer 3 the first.
  EXPECT_EQ(Join(words), "G G ? G E ? G F0-2 ? F3-5");
}

}  // namespace
}  // namespace orrery::workload
