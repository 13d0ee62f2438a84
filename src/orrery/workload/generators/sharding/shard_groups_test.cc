// Shard groups (HSDP, optimizer instances, InternEvo) and the order of ranks: members and bytes by
// hand, refusals.
#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using graph::GroupSlot;

// A layer and the root of SmallGpt (sharded_units_test.cc); all its parameters in one buffer,
// padded to a multiple of lcm(4, 128), tensors at multiples of 64.
constexpr std::int64_t kGroupLayer = 789'760, kGroupRoot = 256 * (1024 + 512) + 512;

std::int64_t SlotBytes(const graph::Graph& g, Collective kind, GroupSlot slot) {
  std::int64_t sum = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      if (comm.collective == kind && comm.group == slot) sum += call.repeat * comm.bytes.value;
    }
  }
  return sum;
}

std::vector<int> Members(const graph::Graph& g, std::size_t rank, GroupSlot slot) {
  const GroupId id = g.bindings[rank].groups[static_cast<std::size_t>(slot)];
  std::vector<int> members;
  if (!id.valid()) return members;
  for (const RankId r : g.groups.members(id)) members.push_back(static_cast<int>(r.index()));
  return members;
}

Plan Grouped(Sharding sharding) {
  return {.parallel = {.dp = 8},
          .batch = {.global_batch = 16, .micro_batch = 1, .seq_len = 256},
          .memory = {.sharding = sharding, .shard_group = 4}};
}

TEST(ShardGroups, NeighboursShardTheRestRepeats) {
  Plan plan = Grouped(Sharding::kZero1);
  plan.parallel.tp = 2;
  const graph::Graph g = Make(SmallGpt(2), plan);
  // Rank 11 is tp 1 of replica 5: the second replica of the second group.
  EXPECT_EQ(Members(g, 11, GroupSlot::kShard), (std::vector{9, 11, 13, 15}));
  EXPECT_EQ(Members(g, 11, GroupSlot::kReplica), (std::vector{3, 11}));
  EXPECT_EQ(Members(g, 11, GroupSlot::kDp), (std::vector{1, 3, 5, 7, 9, 11, 13, 15}));
  // The norm of the gradients is whole within a group: its replicas, both tensor-parallel ranks.
  EXPECT_EQ(Members(g, 11, GroupSlot::kModel), (std::vector{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
}

// Reduce-scatter of P gradients in the group, all-reduce of a group's P/4 between groups,
// all-gather of P parameters in the group.
TEST(ShardGroups, Zero1Traffic) {
  graph::Graph g = Make(SmallGpt(2), Grouped(Sharding::kZero1));
  const std::int64_t scattered = SlotBytes(g, Collective::kReduceScatter, GroupSlot::kShard);
  const std::int64_t all = scattered / 4;  // fp32
  EXPECT_GE(all, 2 * kGroupLayer + kGroupRoot);
  EXPECT_LE(all, 2 * kGroupLayer + kGroupRoot + 2 * 4 * 128 + 64 * 40);  // two buckets' padding
  EXPECT_EQ(SlotBytes(g, Collective::kAllReduce, GroupSlot::kReplica), scattered / 4);
  EXPECT_EQ(SlotBytes(g, Collective::kAllGather, GroupSlot::kShard), 2 * all);
  EXPECT_EQ(SlotBytes(g, Collective::kReduceScatter, GroupSlot::kDp), 0);
  // InternEvo: everybody's gradients are summed whole.
  Plan plan = Grouped(Sharding::kZero1);
  plan.framework.reduce_whole = true;
  g = Make(SmallGpt(2), plan);
  EXPECT_EQ(SlotBytes(g, Collective::kAllReduce, GroupSlot::kDp), scattered + 8);  // and the loss
  EXPECT_EQ(SlotBytes(g, Collective::kAllGather, GroupSlot::kShard), 2 * all);
  EXPECT_EQ(SlotBytes(g, Collective::kAllReduce, GroupSlot::kReplica), 0);
  // And its owners broadcast what they own, one after the other.
  plan.framework.broadcast_parameters = true;
  g = Make(SmallGpt(2), plan);
  EXPECT_EQ(SlotBytes(g, Collective::kAllGather, GroupSlot::kShard), 0);
  EXPECT_EQ(SlotBytes(g, Collective::kBroadcast, GroupSlot::kShard), 2 * all);
  EXPECT_EQ(FindBlock(g, "parameters.broadcast").comms.size(), 4u);
}

// HSDP, two micro-batches: ZeRO-3's traffic stays in the group, and each reduction's shard is
// summed between groups.
TEST(ShardGroups, Zero3Traffic) {
  const graph::Graph g = Make(SmallGpt(2), Grouped(Sharding::kZero3));
  const std::int64_t once = 2 * kGroupLayer + kGroupRoot;
  EXPECT_EQ(SlotBytes(g, Collective::kAllGather, GroupSlot::kShard),
            2 * 2 * (once + 2 * kGroupLayer));
  EXPECT_EQ(SlotBytes(g, Collective::kReduceScatter, GroupSlot::kShard), 2 * 4 * once);
  EXPECT_EQ(SlotBytes(g, Collective::kAllReduce, GroupSlot::kReplica), 2 * 4 * once / 4);
  EXPECT_EQ(SlotBytes(g, Collective::kAllGather, GroupSlot::kDp), 0);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) bytes += b.bytes;
  EXPECT_EQ(bytes, 16 * once / 4);  // shards over the group, not over all
}

// OLMo-core: copies are reduced over with the last micro-batch alone.
TEST(ShardGroups, CopiesAreReducedOverOnce) {
  Plan plan = Grouped(Sharding::kZero3);
  plan.framework.defer_all_reduce = true;
  const graph::Graph g = Make(SmallGpt(2), plan);
  const std::int64_t once = 2 * kGroupLayer + kGroupRoot;
  EXPECT_EQ(SlotBytes(g, Collective::kReduceScatter, GroupSlot::kShard), 2 * 4 * once);
  EXPECT_EQ(SlotBytes(g, Collective::kAllReduce, GroupSlot::kReplica), 4 * once / 4);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
}

TEST(ShardGroups, WholeGroupIsPlainSharding) {
  Plan plan = Grouped(Sharding::kZero1);
  plan.memory.shard_group = 8;
  const graph::Graph g = Make(SmallGpt(2), plan);
  EXPECT_GT(SlotBytes(g, Collective::kReduceScatter, GroupSlot::kDp), 0);
  EXPECT_TRUE(Members(g, 0, GroupSlot::kShard).empty());
}

TEST(ShardGroups, Refusals) {
  Plan plan = Grouped(Sharding::kZero1);
  plan.memory.shard_group = 3;
  EXPECT_EQ(Validate(SmallGpt(2), plan).message(),
            "parallel.shard_group: 3 is not a divisor above 1 of the 8 data-parallel ranks; every "
            "group holds all shards once: use 2 or 4");
  plan = Grouped(Sharding::kNone);
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("parallel.shard_group: 4 ranks "));
}

// tp 2, cp 2, pp 2, dp 2: rank = t + 2·c + 4·p + 8·d with the pipeline inside.
TEST(RankOrder, PipelineInsideDataParallel) {
  Plan plan{.parallel = {.tp = 2, .pp = 2, .dp = 2, .cp = 2, .rank_order = RankOrder::kPpDp},
            .batch = {.global_batch = 8, .seq_len = 256}};
  const graph::Graph g = Make(SmallGpt(2), plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  const auto stage = [&](std::size_t rank) { return g.bindings[rank].program.index(); };
  for (std::size_t r = 0; r < 16; ++r) {
    EXPECT_EQ(stage(r), r / 4 % 2) << r;
    EXPECT_EQ(g.bindings[r].logical_rank, r);
  }
  EXPECT_EQ(Members(g, 11, GroupSlot::kTp), (std::vector{10, 11}));
  EXPECT_EQ(Members(g, 11, GroupSlot::kCp), (std::vector{9, 11}));
  EXPECT_EQ(Members(g, 11, GroupSlot::kDp), (std::vector{1, 3, 9, 11}));
  EXPECT_EQ(g.bindings[11].peers[static_cast<std::size_t>(graph::PeerSlot::kNext)].index(), 15U);
  plan.parallel.rank_order = RankOrder::kDpPp;
  const graph::Graph usual = Make(SmallGpt(2), plan);
  EXPECT_EQ(Members(usual, 3, GroupSlot::kDp), (std::vector{1, 3, 5, 7}));
  EXPECT_EQ(usual.bindings[3].peers[static_cast<std::size_t>(graph::PeerSlot::kNext)].index(), 11U);
}

}  // namespace
}  // namespace orrery::workload
