// Layers with experts in step: order on the compute stream, and what is conserved.
#include "orrery/workload/generators/expert_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model SmallExperts(int layers) {
  Model m = SmallGpt(layers);
  m.experts = {.count = 16, .top_k = 2, .ffn_hidden = 128};
  m.norm = Norm::kRmsNorm;
  m.tied_embeddings = false;
  return m;
}

Plan Overlapped() {
  Plan p;
  p.dp = 8;
  p.ep = 4;
  p.global_batch = 24;  // three micro-batches
  p.seq_len = 512;
  p.moe_comm_overlap = true;
  return p;
}

// Layers of a program in order: "F1.2" part 2 of micro-batch 1's forward, "B0" a whole backward
// layer, "?" a wait for an exchange.
std::string Layers(const graph::Graph& graph, const graph::Program& program) {
  std::vector<std::string> words;
  for (const graph::Call& call : program.calls) {
    const std::string& name = graph.name(graph.blocks[call.block.index()].name);
    if (name == "pipeline.wait") words.push_back("?");
    for (const auto& [prefix, letter] :
         {std::pair{std::string_view("layer.forward"), 'F'}, {"layer.backward", 'B'}}) {
      if (!name.starts_with(prefix)) continue;
      for (int i = 0; i < call.repeat; ++i) {
        words.push_back(fmt::format("{}{}{}", letter, call.microbatch, name.substr(prefix.size())));
      }
    }
  }
  return Join(words);
}

// Three micro-batches of one layer: the first forward and the last backward alone.
TEST(ExpertParts, ForwardAndBackwardInStep) {
  const graph::Graph g = Make(SmallExperts(1), Overlapped());
  EXPECT_EQ(Layers(g, g.programs[0]),
            "F0 "
            "B0.1 F1.1 ? B0.2 ? F1.2 ? B0.3 ? F1.3 "
            "B1.1 F2.1 ? B1.2 ? F2.2 ? B1.3 ? F2.3 "
            "B2");
}

// The parts of a layer are the layer: operations, FLOPs and bytes, but for how exchanges are waited
// for.
TEST(ExpertParts, PartsAddUpToTheLayer) {
  for (const Dispatcher dispatcher : {Dispatcher::kAllGather, Dispatcher::kAllToAll,
                                      Dispatcher::kDeepEp, Dispatcher::kHybridEp}) {
    Plan p = Overlapped();
    p.dispatcher = dispatcher;
    const graph::Graph g = Make(SmallExperts(2), p);
    EXPECT_TRUE(graph::Verify(g).ok());
    for (const std::string pass : {"layer.forward", "layer.backward"}) {
      const graph::Block& whole = FindBlock(g, pass);
      std::size_t ops = 0;
      std::int64_t saved = 0;
      int exchanges = 0;
      for (int part = 1; part <= kExpertParts; ++part) {
        const graph::Block& block = FindBlock(g, fmt::format("{}.{}", pass, part));
        ops += block.ops.size();
        saved += SavedBytes(block);
        for (const graph::Op& op : block.ops) {
          exchanges += op.kind == graph::OpKind::kComm && !block.comms[op.index].blocking &&
                               block.comms[op.index].event == graph::kCallEvent
                           ? 1
                           : 0;
        }
      }
      EXPECT_EQ(ops, whole.ops.size()) << pass;
      EXPECT_EQ(saved, SavedBytes(whole)) << pass;
      EXPECT_EQ(exchanges, 2) << pass;
    }
  }
}

// Interleaved: every layer of every micro-batch once each way, whatever runs in step.
TEST(ExpertParts, InterleavedScheduleRunsEverythingOnce) {
  Plan p = Overlapped();
  p.pp = 4;
  p.vpp = 2;
  p.dp = 4;
  p.global_batch = 32;
  p.schedule = Schedule::k1f1bInterleaved;
  for (const bool p2p : {false, true}) {
    p.overlap_p2p = p2p;
    const graph::Graph g = Make(SmallExperts(8), p);
    EXPECT_TRUE(graph::Verify(g).ok());
    for (const graph::Program& program : g.programs) {
      std::map<std::string, int> ran;
      for (const graph::Call& call : program.calls) {
        std::string name = g.name(g.blocks[call.block.index()].name);
        if (name.starts_with("layer.") && !name.ends_with(".2") && !name.ends_with(".3")) {
          ran[name.substr(0, 9)] += call.repeat;
        }
      }
      EXPECT_EQ(ran["layer.for"], 8 * 2);
      EXPECT_EQ(ran["layer.bac"], 8 * 2);
    }
  }
}

TEST(ExpertParts, RefusedWhereMegatronRefuses) {
  Plan p = Overlapped();
  p.shared_expert_overlap = true;
  EXPECT_THAT(Validate(SmallExperts(1), p).message(), testing::HasSubstr("moe_shared_overlap"));
  p = Overlapped();
  p.pp = 2;
  p.dp = 4;
  EXPECT_THAT(Validate(SmallExperts(2), p).message(), testing::HasSubstr("moe_comm_overlap"));
}

}  // namespace
}  // namespace orrery::workload
