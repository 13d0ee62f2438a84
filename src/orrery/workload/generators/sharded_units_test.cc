// ZeRO-2 and ZeRO-3: bytes and memory by hand, order of gathers and reductions, refusals.
#include "orrery/workload/generators/sharded_units.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

// A layer of SmallGpt: matrices 786,432, biases 2,304, norms 1,024. Its root: tables of 1,024
// padded words and 512 positions, final norm 512.
constexpr std::int64_t kLayer = 789'760, kRoot = 256 * (1024 + 512) + 512;

Plan Sharded(Sharding sharding, std::int64_t microbatches) {
  return {.dp = 4,
          .global_batch = 4 * microbatches,
          .micro_batch = 1,
          .seq_len = 256,
          .sharding = sharding};
}

// Bytes of the data-parallel group's communications over one iteration.
std::int64_t DpBytes(const graph::Graph& g, Collective kind) {
  std::int64_t sum = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      const bool counts = comm.collective == kind && comm.group == graph::GroupSlot::kDp;
      if (counts) sum += call.repeat * comm.bytes.value;
    }
  }
  return sum;
}

TEST(Sharded, TrafficOfAStep) {
  // Three layers, two micro-batches, bf16 gathered, fp32 reduced. ZeRO-3 gathers layers twice, the
  // root once; ZeRO-2 all of them once.
  const std::int64_t once = 3 * kLayer + kRoot;
  graph::Graph g = Make(SmallGpt(3), Sharded(Sharding::kZero3, 2));
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * 2 * (once + 3 * kLayer));
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 4 * once);
  g = Make(SmallGpt(3), Sharded(Sharding::kZero2, 2));
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * 2 * once);
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 4 * once);
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.grad_reduce_fp32 = false;
  g = Make(SmallGpt(3), plan);
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 2 * once);
  plan.low_precision = LowPrecision::kCurrent;  // layers gathered in a byte, the root in two
  plan.low_precision_gather = true;
  g = Make(SmallGpt(3), plan);
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * (6 * kLayer + 2 * kRoot));
}

// Shards in host memory: a rank copies its part of every gather, and keeps none of it.
TEST(Sharded, ParametersInHostMemory) {
  for (const int layers : {1, 2, 3, 5}) {
    for (const bool prefetch : {true, false}) {
      Plan plan = Sharded(Sharding::kZero3, 2);
      plan.offload_optimizer = plan.offload_parameters = true;
      plan.prefetch = prefetch;
      const graph::Graph g = Make(SmallGpt(layers), plan);
      const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
      ASSERT_TRUE(verified.ok()) << verified.message();
      std::int64_t copied = 0;
      for (const graph::Call& call : g.programs[0].calls) {
        for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
          if (comm.collective != Collective::kCopyToDevice) continue;
          copied += call.repeat * comm.bytes.value;
          EXPECT_EQ(comm.blocking, !prefetch || comm.bytes.value == 2 * kRoot / 4);
        }
      }
      EXPECT_EQ(copied, DpBytes(g, Collective::kAllGather) / 4) << layers;
      std::int64_t kept = 0;
      for (const graph::Buffer& b : g.blocks[g.programs[0].prologue[0].block.index()].buffers) {
        kept += b.bytes;
      }
      EXPECT_EQ(kept, 2 * kLayer / 4 * 2);  // two layers' shards of two bytes an element
    }
  }
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.offload_optimizer = plan.offload_parameters = true;
  const graph::Graph g = Make(SmallGpt(3), plan);
  std::string order = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_EQ(order.substr(0, order.find("layer_norm")), "?4 ?6 all_gather+4 shard.to_device+6 ");
}

TEST(Sharded, ShardsForEver) {
  const graph::Graph g = Make(SmallGpt(2), Sharded(Sharding::kZero3, 1));
  const std::int64_t shard = (2 * kLayer + kRoot) / 4;
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) bytes += b.bytes;
  EXPECT_EQ(bytes, 16 * shard);  // fp32 parameters, gradients, two moments
}

// ZeRO-2 leaves a layer's gathered parameters to its backward, ZeRO-3 does not.
TEST(Sharded, GatheredParametersLive) {
  const auto saved = [](Sharding sharding) {
    const graph::Graph g = Make(SmallGpt(2), Sharded(sharding, 1));
    return SavedBytes(FindBlock(g, "layer.forward"));
  };
  EXPECT_EQ(saved(Sharding::kZero2) - saved(Sharding::kZero3), 2 * kLayer);
}

TEST(Sharded, OneAheadAndReducedBeside) {
  const graph::Graph g = Make(SmallGpt(2), Sharded(Sharding::kZero3, 1));
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_TRUE(forward.starts_with("?4 shard.cast all_gather+4 layer_norm qkv")) << forward;
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_TRUE(backward.starts_with("?4 shard.cast all_gather+4 ")) << backward;
  EXPECT_TRUE(backward.ends_with("concatenate scale reduce_scatter+-1 shard.add")) << backward;
  EXPECT_EQ(backward.find("weight_gradient"), std::string::npos);  // nothing is accumulated
  std::vector<std::string> names;
  for (const graph::Call& call : g.programs[0].calls) {
    names.push_back(g.name(g.blocks[call.block.index()].name));
  }
  EXPECT_EQ(Join(names),
            "root.gather parameters.gather embedding.forward layer.forward layer.forward "
            "head.forward parameters.gather head.backward layer.backward layer.backward "
            "embedding.backward root.reduce gradients.wait optimizer loss.reduce");
}

TEST(Sharded, GraphsAreValid) {
  for (const Sharding sharding : {Sharding::kZero2, Sharding::kZero3}) {
    for (const bool prefetch : {false, true}) {
      for (const bool flat : {false, true}) {
        Plan plan = Sharded(sharding, 3);
        plan.prefetch = prefetch;
        plan.flat_parameters = flat;
        plan.tp = 2;
        plan.recompute = flat ? Recompute::kFull : Recompute::kNone;
        plan.cp = prefetch ? 2 : 1;
        const graph::Graph g = Make(SmallGpt(3), plan);
        const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

TEST(Sharded, RefusesStagesAndLoneRanks) {
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.pp = 2;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.sharding: zero3"));
  plan.pp = 1;
  plan.dp = 1;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.sharding: zero3"));
}

}  // namespace
}  // namespace orrery::workload
