// Context parallelism: bytes round the ring, work of a rank, groups and peers.
#include "orrery/workload/generators/layers/context_parallel.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

Plan Cp(int cp, CpExchange exchange) {
  return {.parallel = {.tp = 2, .dp = 2, .cp = cp, .cp_exchange = exchange},
          .batch = {.global_batch = 4, .micro_batch = 2, .seq_len = 256}};
}

// 2 sequences × 256 / 4 tokens, keys and values of 128 each (tp 2), 2 bytes.
constexpr std::int64_t kKeyValue = 128 * 2 * 128 * 2;

TEST(ContextParallel, RingBytes) {
  const graph::Graph g = Make(SmallGpt(1), Cp(4, CpExchange::kRing));
  const graph::Block& forward = FindBlock(g, "layer.forward");
  EXPECT_EQ(Bytes(forward, Collective::kSend), 3 * kKeyValue);
  EXPECT_EQ(Bytes(forward, Collective::kRecv), 3 * kKeyValue);
  // Keys and values again, their gradients all the way home.
  EXPECT_EQ(Bytes(FindBlock(g, "layer.backward"), Collective::kSend), (3 + 4) * kKeyValue);
}

TEST(ContextParallel, OtherFormsBytes) {
  graph::Graph g = Make(SmallGpt(1), Cp(4, CpExchange::kAllGather));
  EXPECT_EQ(FindBlock(g, "layer.forward").comms[0].bytes.value, 4 * kKeyValue);
  EXPECT_EQ(Bytes(FindBlock(g, "layer.backward"), Collective::kReduceScatter), 4 * kKeyValue);
  g = Make(SmallGpt(1), Cp(4, CpExchange::kAllToAll));
  // Queries, keys and values out, the output back: 128 tokens × 128 × 4 × 2 bytes.
  EXPECT_EQ(Bytes(FindBlock(g, "layer.forward"), Collective::kAllToAll), 2 * kKeyValue);
}

// Every form computes 1/cp of the causal half square.
TEST(ContextParallel, WorkOfARank) {
  for (const CpExchange exchange :
       {CpExchange::kRing, CpExchange::kAllGather, CpExchange::kAllToAll}) {
    const graph::Graph g = Make(SmallGpt(1), Cp(4, exchange));
    std::int64_t visited = 0;
    for (const graph::Kernel& kernel : FindBlock(g, "layer.forward").kernels) {
      if (const auto* a = std::get_if<graph::Attention>(&kernel)) {
        visited += a->batch * a->heads * a->seq_q * a->seq_kv / (a->causal ? 2 : 1);
      }
    }
    EXPECT_EQ(visited, 2 * 4 * 256 * 256 / 2 / 4);
  }
}

// Ranks: tp fastest, then cp, then dp. The gradient group spans cp and dp.
TEST(ContextParallel, GroupsAndPeers) {
  const graph::Graph g = Make(SmallGpt(1), Cp(4, CpExchange::kRing));
  ASSERT_EQ(g.bindings.size(), 16u);
  const graph::Binding& b = g.bindings[7];  // tp 1, cp 3, dp 0
  const auto members = [&](graph::GroupSlot slot) {
    std::vector<std::size_t> out;
    for (RankId r : g.groups.members(b.groups[static_cast<std::size_t>(slot)])) {
      out.push_back(r.index());
    }
    return out;
  };
  EXPECT_EQ(members(graph::GroupSlot::kCp), (std::vector<std::size_t>{1, 3, 5, 7}));
  EXPECT_EQ(members(graph::GroupSlot::kDp), (std::vector<std::size_t>{1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(b.peers[static_cast<std::size_t>(graph::PeerSlot::kCpNext)].index(), 1u);
  EXPECT_EQ(b.peers[static_cast<std::size_t>(graph::PeerSlot::kCpPrevious)].index(), 5u);
}

TEST(ContextParallel, GraphsAreValid) {
  for (const int cp : {2, 4}) {
    for (const CpExchange exchange :
         {CpExchange::kRing, CpExchange::kAllGather, CpExchange::kAllToAll}) {
      Plan plan = Cp(cp, exchange);
      plan.parallel.pp = 2;
      plan.parallel.sequence_parallel = true;
      const graph::Graph g = Make(SmallGpt(2), plan);
      const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(ContextParallel, Refusals) {
  Plan plan = Cp(4, CpExchange::kRing);
  plan.batch.seq_len = 252;
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("training.seq_len: 252"));
  plan = Cp(4, CpExchange::kRing);
  plan.framework.attention = AttentionBackend::kUnfused;
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("parallel.cp: 4"));
  plan = Cp(8, CpExchange::kAllToAll);
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("parallel.cp: 8"));
}

}  // namespace
}  // namespace orrery::workload
