#include "orrery/workload/importers/simai/simai.h"

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

TEST(Simai, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) {
    return ImportSimai(text, "w.txt").status().message();
  };
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 2")), HasSubstr("w.txt:1: all_gpus is 0"));
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 3 all_gpus: 8")),
              HasSubstr("no multiple of TP 3"));
  EXPECT_THAT(error(Text("model_parallel_NPU_group: 2 pp: 2 ga: 3 all_gpus: 8")),
              HasSubstr("no lines repeat as often"));
  std::string wrong = Text("model_parallel_NPU_group: 2 ga: 2 all_gpus: 8");
  wrong.replace(wrong.find("ALLGATHER"), 9, "ALLGATHRE");
  EXPECT_THAT(error(wrong), HasSubstr("did you mean 'ALLGATHER'"));
}

}  // namespace
}  // namespace orrery::workload
