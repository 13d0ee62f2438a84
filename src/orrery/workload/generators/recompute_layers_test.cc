// Full recompute of some layers, and of several at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Plan Full(RecomputeMethod method, std::int64_t layers) {
  Plan p;
  p.batch.global_batch = 1;
  p.batch.seq_len = 512;
  p.memory.recompute = Recompute::kFull;
  p.memory.recompute_method = method;
  p.memory.recompute_layers = layers;
  return p;
}

double ProgramFlops(const graph::Graph& g, const graph::Program& program) {
  double sum = 0;
  for (const graph::Call& call : program.calls) {
    sum += BlockFlops(g.blocks[call.block.index()]) * call.repeat;
  }
  return sum;
}

// How many layers each program runs again for one micro-batch.
std::vector<double> RunsAgain(int layers, Plan plan) {
  const graph::Graph full = Make(SmallGpt(layers), plan);
  plan.memory.recompute = Recompute::kNone;
  const graph::Graph none = Make(SmallGpt(layers), plan);
  const double forward = BlockFlops(FindBlock(none, "layer.forward"));
  std::vector<double> counts;
  for (std::size_t i = 0; i < full.programs.size(); ++i) {
    const double more = ProgramFlops(full, full.programs[i]) - ProgramFlops(none, none.programs[i]);
    counts.push_back(more / forward / static_cast<double>(plan.microbatches()));
  }
  return counts;
}

using testing::ElementsAre;

TEST(RecomputeLayers, BlockIsOfEveryChunk) {
  EXPECT_THAT(RunsAgain(8, Full(RecomputeMethod::kBlock, 3)), ElementsAre(3));
  EXPECT_THAT(RunsAgain(8, Full(RecomputeMethod::kBlock, 9)), ElementsAre(8));
  Plan p = Full(RecomputeMethod::kBlock, 1);
  p.parallel.pp = p.parallel.vpp = p.batch.global_batch = 2;
  p.parallel.schedule = Schedule::k1f1bInterleaved;
  EXPECT_THAT(RunsAgain(8, p), ElementsAre(2, 2));  // one of either chunk of two
}

// torchtitan counts a rank's layers through its chunks.
TEST(RecomputeLayers, EveryIsOfTheStage) {
  EXPECT_THAT(RunsAgain(8, Full(RecomputeMethod::kEvery, 3)), ElementsAre(2));
  EXPECT_THAT(RunsAgain(8, Full(RecomputeMethod::kEvery, 1)), ElementsAre(8));
  Plan p = Full(RecomputeMethod::kEvery, 3);
  p.parallel.pp = p.parallel.vpp = p.batch.global_batch = 2;
  p.parallel.schedule = Schedule::k1f1bInterleaved;
  EXPECT_THAT(RunsAgain(8, p), ElementsAre(1, 1));  // the third of four, in the second chunk
  p = Full(RecomputeMethod::kEvery, 2);
  p.parallel.dp = p.batch.global_batch = 2;
  p.memory.sharding = Sharding::kZero3;
  EXPECT_THAT(RunsAgain(5, p), ElementsAre(2));
}

TEST(RecomputeLayers, UniformRunsAllLayersAgain) {
  for (const int n : {1, 2, 3, 5, 9}) {
    EXPECT_THAT(RunsAgain(5, Full(RecomputeMethod::kUniform, n)), ElementsAre(5)) << n;
  }
}

// "F0 F1 … R2 R3 B3 B2": forward passes, second runs, backward passes, by layer.
std::string Calls(const graph::Graph& g) {
  std::vector<std::string> words;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    const std::string& name = g.name(block.name);
    if (!name.starts_with("layer.")) continue;
    const char letter = name == "layer.forward" ? 'F' : name == "layer.recompute" ? 'R' : 'B';
    for (int i = 0; i < call.repeat; ++i) {
      words.push_back(fmt::format("{}{}", letter, call.first_layer + (letter == 'B' ? -i : i)));
    }
  }
  return Join(words);
}

TEST(RecomputeLayers, AGroupRunsAgainBeforeItsBackwardPasses) {
  EXPECT_EQ(Calls(Make(SmallGpt(5), Full(RecomputeMethod::kUniform, 2))),
            "F0 F1 F2 F3 F4 B4 R2 R3 B3 B2 R0 R1 B1 B0");  // a rest of one runs again in B4
  EXPECT_EQ(Calls(Make(SmallGpt(4), Full(RecomputeMethod::kUniform, 4))),
            "F0 F1 F2 F3 R0 R1 R2 R3 B3 B2 B1 B0");
}

// Bytes that lie between forward and backward: of two groups of three layers their outputs, of one
// by one every layer's.
TEST(RecomputeLayers, AGroupKeepsOneTensor) {
  const auto kept = [](const Plan& plan) {
    const graph::Graph g = Make(SmallGpt(6), plan);
    std::int64_t sum = 0;
    for (const graph::Call& call : g.programs[0].calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      if (g.name(block.name) == "layer.forward") sum += SavedBytes(block) * call.repeat;
    }
    return sum;
  };
  const std::int64_t output = 512 * 256 * 2;
  EXPECT_EQ(kept(Full(RecomputeMethod::kUniform, 1)), 6 * output);
  EXPECT_EQ(kept(Full(RecomputeMethod::kUniform, 3)), 2 * output);
  Plan none = Full(RecomputeMethod::kUniform, 1);
  none.memory.recompute = Recompute::kNone;
  const std::int64_t all = kept(none) / 6;
  EXPECT_EQ(kept(Full(RecomputeMethod::kBlock, 2)), 2 * output + 4 * all);
  EXPECT_EQ(kept(Full(RecomputeMethod::kEvery, 2)), 3 * output + 3 * all);
}

TEST(RecomputeLayers, EveryFormVerifies) {
  for (const RecomputeMethod method :
       {RecomputeMethod::kUniform, RecomputeMethod::kBlock, RecomputeMethod::kEvery}) {
    for (const int n : {1, 2, 3, 7}) {
      Plan p = Full(method, n);
      p.parallel.tp = p.parallel.pp = p.parallel.vpp = p.parallel.dp = 2;
      p.batch.global_batch = 8;
      p.parallel.schedule = Schedule::k1f1bInterleaved;
      p.memory.sharding = Sharding::kZero1;
      p.parallel.sequence_parallel = true;
      const Status status = graph::Verify(Make(SmallGpt(12), p), graph::VerifyLevel::kFull);
      EXPECT_TRUE(status.ok()) << n << ": " << status.message();
    }
  }
}

TEST(RecomputeLayers, WhatIsNotBuiltIsRefused) {
  const auto error = [](Plan plan) { return Validate(SmallGpt(8), plan).message(); };
  Plan p = Full(RecomputeMethod::kUniform, 2);
  EXPECT_EQ(error(p), "");
  p.parallel.schedule = Schedule::kZbH1;
  p.parallel.pp = p.batch.global_batch = 2;
  EXPECT_EQ(error(p),
            "training.recompute_layers: 2 layers at once (recompute_method: uniform) are built for "
            "the schedules gpipe, 1f1b and 1f1b-interleaved; use 1, or recompute_method: block");
  p.memory.recompute_method = RecomputeMethod::kBlock;
  EXPECT_EQ(error(p), "");
  p = Full(RecomputeMethod::kUniform, 2);
  p.parallel.dp = p.batch.global_batch = 2;
  p.memory.sharding = Sharding::kZero3;
  EXPECT_THAT(error(p), testing::HasSubstr("not built with sharding zero2 and zero3"));
}

}  // namespace
}  // namespace orrery::workload
