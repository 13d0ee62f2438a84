#include "orrery/workload/importers/simai/simai.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/base/time.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::workload {
namespace {

using ::testing::HasSubstr;

// Two micro-batches of one layer, a gather of gradients before and a loss behind them.
std::string Text(const std::string& keys) {
  return "HYBRID_TRANSFORMER_FWD_IN_BCKWD " + keys +
         "\n4\n"
         "grad_gather -1 1 NONE 0 1 NONE 0 1 ALLGATHER 4096 100\n"
         "mlp_layer -1 1000 ALLREDUCE 8192 2000 ALLREDUCE 8192 500 NONE 0 100\n"
         "mlp_layer -1 1000 ALLREDUCE 8192 2000 ALLREDUCE 8192 500 NONE 0 100\n"
         "cross_entropy1 -1 7 ALLREDUCE 64 0 NONE 0 0 NONE 0 100\n";
}

TEST(Simai, StagesRunOneForwardOneBackward) {
  const auto import = ImportSimai(
      Text("model_parallel_NPU_group: 2 ep: 1 pp: 2 vpp: 1 ga: 2 all_gpus: 8 checkpoints: 0 "
           "checkpoint_initiates: 0 pp_comm 4096"),
      "w.txt");
  ASSERT_TRUE(import.ok()) << import.status().message();
  const graph::Graph& graph = import->graph;
  ASSERT_TRUE(graph::Verify(graph).ok()) << graph::Verify(graph).message();
  ASSERT_EQ(graph.bindings.size(), 8u);
  ASSERT_EQ(graph.programs.size(), 2u);
  // Rank 5 is of the second stage: TP {4, 5}, DP {5, 7}, and rank 1 is before it.
  const graph::Binding& b = graph.bindings[5];
  EXPECT_EQ(graph.groups.members(graph.group(b, graph::GroupSlot::kDp))[1], RankId(std::size_t{7}));
  EXPECT_EQ(b.peers[static_cast<std::size_t>(graph::PeerSlot::kPrevious)], RankId(std::size_t{1}));
  // Of the first stage: both forwards, the loss, and only then a backward (one stage is behind it).
  const graph::Block& first = graph.blocks[0];
  std::vector<std::string> names;
  for (const graph::Op& op : first.ops) names.push_back(graph.name(op.name));
  const std::vector<std::string> expected = {
      "grad_gather", "mlp_layer", "mlp_layer",      "send",           "mlp_layer",
      "mlp_layer",   "send",      "cross_entropy1", "cross_entropy1", "receive",
      "mlp_layer",   "mlp_layer", "mlp_layer",      "receive",        "mlp_layer",
      "mlp_layer",   "mlp_layer", "grad_gather",    "grad_gather",    "grad_gather"};
  EXPECT_EQ(names, expected);
  EXPECT_THAT(import->assumed, testing::Contains(HasSubstr("2 micro-batches of 1 lines")));
}

// Two stages of two chunks each, two micro-batches: Megatron's order, and messages that go round.
TEST(Simai, StagesHoldSeveralChunks) {
  const std::string embedding = "embedding -1 5 NONE 0 0 NONE 0 0 NONE 0 100\n";
  const std::string layer = "mlp_layer -1 1000 NONE 0 2000 NONE 0 500 NONE 0 100\n";
  const std::string text =
      "HYBRID_TRANSFORMER_FWD_IN_BCKWD pp: 2 vpp: 2 ga: 2 all_gpus: 2 pp_comm 64\n6\n" + embedding +
      layer + layer + embedding + layer + layer;
  const auto import = ImportSimai(text, "w.txt");
  ASSERT_TRUE(import.ok()) << import.status().message();
  const graph::Graph& graph = import->graph;
  ASSERT_TRUE(graph::Verify(graph).ok()) << graph::Verify(graph).message();
  EXPECT_THAT(import->assumed, testing::Contains(HasSubstr("interleaved, 2 chunks")));
  EXPECT_TRUE(import->warnings.empty());
  // The last stage: two micro-batches' first chunks, sent back to the first stage; then one second
  // chunk forward, one backward.
  const graph::Block& last = graph.blocks[graph.programs[1].calls[0].block.index()];
  std::vector<std::string> order;
  for (const graph::Op& op : last.ops) {
    if (op.kind != graph::OpKind::kComm) {
      order.emplace_back("work");
      continue;
    }
    const graph::Comm& c = last.comms[op.index];
    order.push_back(std::string(c.collective == graph::Collective::kSend ? "to " : "from ") +
                    (c.peer.slot() == graph::PeerSlot::kNext ? "next " : "previous ") +
                    std::to_string(c.tag));
  }
  const std::vector<std::string> expected = {
      "from previous 0",
      "work",
      "work",
      "to next 2",  // micro-batch 0, chunk 0: embedding, layer
      "from previous 4",
      "work",
      "work",
      "to next 6",  // micro-batch 1
      "from previous 2",
      "work",  // micro-batch 0, chunk 1
      "work",
      "work",
      "to previous 3",  // back
      "from previous 6",
      "work",
      "work",
      "work",
      "to previous 7",
      "from next 1",
      "work",
      "work",
      "to previous 1",  // chunk 0
      "from next 5",
      "work",
      "work",
      "to previous 5"};
  EXPECT_EQ(order, expected);
  EXPECT_EQ(graph.bindings[1].peers[static_cast<std::size_t>(graph::PeerSlot::kNext)],
            RankId(std::size_t{0}));

  const auto three = ImportSimai(text, "w.txt", {.vpp = 3});
  ASSERT_TRUE(three.ok());
  EXPECT_THAT(three->warnings, testing::Contains(HasSubstr("no 3 equal chunks")));
  const auto odd = ImportSimai(text, "w.txt", {.gpus = 8});
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->graph.bindings.size(), 8u);
  EXPECT_THAT(odd->assumed, testing::Contains(HasSubstr("8 GPUs in place of the file's 2")));
}

constexpr std::string_view kTable =
    "test\nTP:\n  allreduce,: 250   # GB/s\n  allgather,: null\nDP:\nallgather,: 100\nEP:\n"
    "reducescatter,: 45\nPP:\nbusbw: 47.5";

// 2^30 bytes at 250 · 2^30 byte/s: 4 ms, over 8 members times 2 · 7/8; a gather over 4 times 3/4;
// DP_EP's are EP's; a message as it is.
TEST(SimaiBusbw, TimesByTheFormula) {
  const auto table = BusBandwidths::Parse(kTable, "busbw.yaml");
  ASSERT_TRUE(table.ok()) << table.status().message();
  using graph::Collective;
  using graph::GroupSlot;
  constexpr std::int64_t kGiB = 1 << 30;
  EXPECT_EQ(*table->Time(GroupSlot::kTp, Collective::kAllReduce, kGiB, 8), 7 * kMillisecond);
  EXPECT_EQ(*table->Time(GroupSlot::kDp, Collective::kAllGather, kGiB, 4), 7500 * kMicrosecond);
  EXPECT_EQ(*table->Time(GroupSlot::kExpertDp, Collective::kReduceScatter, 90 * kGiB, 2), kSecond);
  EXPECT_EQ(*table->Time(GroupSlot::kPp, Collective::kSend, 95 * kGiB, 2), 2 * kSecond);
  EXPECT_THAT(table->Time(GroupSlot::kTp, Collective::kAllGather, 1, 2).status().message(),
              HasSubstr("busbw.yaml: TP has no allgather, and the workload needs one"));
}

TEST(SimaiBusbw, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) {
    return BusBandwidths::Parse(text, "b.yaml").status().message();
  };
  EXPECT_THAT(error("test\nTP:\nallreduce,: 25x"), HasSubstr("b.yaml:3: TP: allreduce: '25x'"));
  EXPECT_THAT(error("TP:\nallreduce: -1"), HasSubstr("no bandwidth"));
  EXPECT_THAT(error("TP:\nallredcue: 1"), HasSubstr("did you mean 'allreduce'"));
  EXPECT_THAT(error("PP:\nallreduce: 1"), HasSubstr("unknown key 'allreduce'"));
  EXPECT_THAT(error("XP:\n"), HasSubstr("unknown section 'XP'"));
  EXPECT_THAT(error("TP:\nallreduce"), HasSubstr("b.yaml:2: 'allreduce'"));
  EXPECT_THAT(error("some text"), HasSubstr("no table of SimAI's"));
}

// With a table every communication has its time; of a group with an overlap ratio what is left of
// it, and weight gradients' communication is waited for.
TEST(Simai, CommunicationTakesTheTablesTime) {
  const auto table = BusBandwidths::Parse(kTable, "busbw.yaml");
  ASSERT_TRUE(table.ok());
  const std::string text =
      Text("model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 2 all_gpus: 8 pp_comm 4096");
  const auto gather = [&](const SimaiOptions& options) {
    const auto import = ImportSimai(text, "w.txt", options);
    EXPECT_TRUE(import.ok()) << import.status().message();
    const graph::Block& block = import->graph.blocks[0];
    const graph::Op& last = block.ops.back();
    EXPECT_EQ(import->graph.name(last.name), "grad_gather");
    EXPECT_EQ(last.kind, graph::OpKind::kComm);
    return block.comms[last.index].measured.value;
  };
  // 4,096 bytes, three of four, at 100 GB/s: 28.61 ns; half of it.
  EXPECT_EQ(gather({}), -1);
  EXPECT_EQ(gather({.bandwidths = &*table}), 28610);
  EXPECT_EQ(gather({.bandwidths = &*table, .overlap = {.dp = 0.5}}), 14305);
}

// A workload of 12 layers over `pp` stages and `tp` shards; two micro-batches, gradients that go
// with the weights, an embedding on every stage.
std::string Sized(std::int64_t tp, std::int64_t pp) {
  const std::int64_t layers = 12 / pp;
  const auto ns = [tp](std::int64_t whole) { return std::to_string(whole / tp); };
  std::string text = fmt::format(
      "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {} ep: 1 pp: {} vpp: 1 ga: 2 "
      "all_gpus: 48 pp_comm: 4096\n{}\n",
      tp, pp, 2 + 2 * (1 + 2 * layers));
  text += fmt::format("gather -1 {} NONE 0 {} NONE 0 {} ALLGATHER {} 100\n", ns(12), ns(12), ns(12),
                      layers * 48000 / tp);
  for (int m = 0; m < 2; ++m) {
    text += "embedding -1 " + ns(2400) + " ALLREDUCE 8192 0 NONE 0 0 NONE 0 100\n";
    for (int l = 0; l < layers; ++l) {
      text += "attention -1 " + ns(1200) + " ALLREDUCE 8192 " + ns(2400) + " ALLREDUCE 8192 " +
              ns(600) + " NONE 0 100\n";
      text += "mlp -1 " + ns(3600) + " ALLREDUCE 8192 " + ns(4800) + " ALLREDUCE 8192 " + ns(1200) +
              " NONE 0 100\n";
    }
  }
  return text + "loss -1 " + ns(120) + " ALLREDUCE 64 0 NONE 0 0 NONE 0 100\n";
}
std::vector<std::uint64_t> Hashes(const SimaiImport& import) {
  std::vector<std::uint64_t> hashes;
  for (const graph::Block& block : import.graph.blocks) hashes.push_back(block.content_hash);
  return hashes;
}

// At other sizes a workload runs what it would say had it been written at them.
TEST(Simai, RunsAtOtherSizes) {
  for (const auto& [tp, pp] : {std::pair{2, 6}, {2, 1}, {4, 3}, {1, 3}, {4, 2}, {1, 12}, {2, 2}}) {
    const auto moved = ImportSimai(Sized(2, 3), "w.txt", {.tp = tp, .pp = pp});
    ASSERT_TRUE(moved.ok()) << moved.status().message();
    const auto written = ImportSimai(Sized(tp, pp), "w.txt");
    ASSERT_TRUE(written.ok()) << written.status().message();
    EXPECT_EQ(Hashes(*moved), Hashes(*written)) << tp << ", " << pp;
    EXPECT_EQ(moved->graph.programs.size(), written->graph.programs.size());
    const auto members = [](const SimaiImport& import, graph::GroupSlot slot) {
      return import.graph.groups.members(import.graph.group(import.graph.bindings[5], slot)).size();
    };
    EXPECT_EQ(members(*moved, graph::GroupSlot::kTp), static_cast<std::size_t>(tp));
    EXPECT_EQ(members(*moved, graph::GroupSlot::kDp), static_cast<std::size_t>(48 / tp / pp));
    EXPECT_THAT(moved->assumed, testing::Contains(HasSubstr("in place of")));
  }
  const auto error = [](const std::string& text, const SimaiOptions& options) {
    return ImportSimai(text, "w.txt", options).status().message();
  };
  EXPECT_THAT(error(Sized(2, 3), {.pp = 8}),
              HasSubstr("w.txt: trace.pp: 12 layers, 4 in each of 3 stages, are no multiple of 8"));
  std::string experts = Sized(2, 3);
  experts.replace(experts.find("ALLREDUCE"), 9, "ALLTOALL_EP");
  EXPECT_THAT(error(experts, {.tp = 4}), HasSubstr("trace.tp: layer 'embedding' has ALLTOALL_EP"));
  std::string many = Sized(2, 3);
  many.replace(many.find("pp: 3"), 5, "pp: 1048576");
  EXPECT_THAT(error(many, {.pp = 1}),
              HasSubstr("4194304 layers on each of 1 stages are more than 10000000 lines"));
}

TEST(Simai, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) {
    return ImportSimai(text, "w.txt").status().message();
  };
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 2")), HasSubstr("w.txt:1: all_gpus is 0"));
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 3 all_gpus: 8")),
              HasSubstr("no multiple of TP 3"));
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 2 pp: 2 ga: 3 all_gpus: 8")),
              HasSubstr("no lines repeat as often"));
  // Products of these overflowed.
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 4000000000000000000 all_gpus: 8")),
              HasSubstr("w.txt:1: model_parallel_NPU_group is 4000000000000000000, and at most "
                        "1048576 is expected"));
  EXPECT_THAT(error(Text("pp: 4000000000000000000 all_gpus: 8")), HasSubstr("w.txt:1: pp is 4"));
  EXPECT_THAT(error(Text("pp: 2 ga: 2 all_gpus: 8 pp_comm 4000000000000000000")),
              HasSubstr("w.txt:1: pp_comm is 4000000000000000000"));
  std::string wrong = Text("model_parallel_NPU_group: 2 ga: 2 all_gpus: 8");
  wrong.replace(wrong.find("ALLGATHER"), 9, "ALLGATHRE");
  EXPECT_THAT(error(wrong), HasSubstr("did you mean 'ALLGATHER'"));
}

}  // namespace
}  // namespace orrery::workload
