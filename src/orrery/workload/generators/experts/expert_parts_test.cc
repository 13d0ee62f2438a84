// Layers with experts in step: order on the compute stream, and what is conserved.
#include "orrery/workload/generators/experts/expert_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "orrery/graph/verify/verify.h"
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
  p.parallel.dp = 8;
  p.parallel.ep = 4;
  p.batch.global_batch = 24;  // three micro-batches
  p.batch.seq_len = 512;
  p.experts.moe_comm_overlap = true;
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
            "F0 B0.1 F1.1 ? B0.2 ? F1.2 ? B0.3 ? F1.3 B1.1 F2.1 ? B1.2 ? F2.2 ? B1.3 ? F2.3 B2");
}

// The parts of a layer are the layer: operations, FLOPs and bytes, but for how exchanges are waited
// for.
TEST(ExpertParts, PartsAddUpToTheLayer) {
  for (const Dispatcher dispatcher : {Dispatcher::kAllGather, Dispatcher::kAllToAll,
                                      Dispatcher::kDeepEp, Dispatcher::kHybridEp}) {
    Plan p = Overlapped();
    p.experts.dispatcher = dispatcher;
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

// Delayed weight gradients run in blocks of their own ("W"): the experts' behind the launch of the
// dispatch's gradient, the others' behind the next pair's first exchange, or behind the last pair.
TEST(ExpertParts, DelayedWeightGradients) {
  Plan p = Overlapped();
  p.experts.moe_delayed_weights = true;
  const graph::Graph g = Make(SmallExperts(2), p);
  EXPECT_TRUE(graph::Verify(g).ok());
  std::string order;
  for (const graph::Call& call : g.programs[0].calls) {
    const std::string& name = g.name(g.blocks[call.block.index()].name);
    if (name == "weight.backward") order += "W ";
    if (name.starts_with("layer.forward.")) order += fmt::format("F{} ", name.substr(14));
    if (name.starts_with("layer.backward.")) order += fmt::format("B{} ", name.substr(15));
  }
  EXPECT_EQ(order,
            "B1 F1 B2 W F2 B3 F3 B1 W F1 B2 W F2 B3 F3 W "
            "B1 F1 B2 W F2 B3 F3 B1 W F1 B2 W F2 B3 F3 W ");
  const auto flops_of = [](const graph::Block& block) {  // of operations that are left
    double sum = 0;
    for (const graph::Op& op : block.ops) {
      if (op.kind == graph::OpKind::kKernel) sum += graph::Flops(block.kernels[op.index]);
    }
    return sum;
  };
  double flops = 0;
  for (int part = 1; part <= kExpertParts; ++part) {
    flops += flops_of(FindBlock(g, fmt::format("layer.backward.{}", part)));
  }
  std::set<std::uint32_t> seen;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (g.name(block.name) == "weight.backward" && seen.insert(call.block.value).second) {
      flops += flops_of(block);
    }
  }
  EXPECT_DOUBLE_EQ(flops, flops_of(FindBlock(g, "layer.backward")));
}

// Over stages: every layer of every micro-batch once each way, whatever runs in step.
TEST(ExpertParts, SchedulesRunEverythingOnce) {
  Plan p = Overlapped();
  p.parallel.pp = 4;
  p.parallel.vpp = 2;
  p.parallel.dp = 4;
  p.batch.global_batch = 32;
  for (const auto& [schedule, p2p] : {std::pair{Schedule::k1f1bInterleaved, false},
                                      {Schedule::k1f1bInterleaved, true},
                                      {Schedule::kDualPipe, false},
                                      {Schedule::kDualPipeV, false}}) {
    p.parallel.schedule = schedule;
    p.framework.overlap_p2p = p2p;
    const graph::Graph g = Make(SmallExperts(8), p);
    EXPECT_TRUE(graph::Verify(g).ok());
    for (const graph::Program& program : g.programs) {
      std::map<std::string, int> ran;
      int parts = 0;
      for (const graph::Call& call : program.calls) {
        parts += g.name(g.blocks[call.block.index()].name) == "layer.forward.2" ? 1 : 0;
        std::string name = g.name(g.blocks[call.block.index()].name);
        if (name.starts_with("layer.") && !name.ends_with(".2") && !name.ends_with(".3")) {
          ran[name.substr(0, 9)] += call.repeat;
        }
      }
      EXPECT_EQ(ran["layer.for"], 8 * 2);
      EXPECT_EQ(ran["layer.bac"], 8 * 2);
      EXPECT_GT(parts, 0);
    }
  }
}

TEST(ExpertParts, RefusedWhereMegatronRefuses) {
  Plan p = Overlapped();
  p.experts.shared_expert_overlap = true;
  EXPECT_THAT(Validate(SmallExperts(1), p).message(), testing::HasSubstr("moe_shared_overlap"));
  p.experts.shared_expert_overlap = p.experts.moe_comm_overlap = false;
  p.experts.moe_delayed_weights = true;
  EXPECT_THAT(Validate(SmallExperts(1), p).message(), testing::HasSubstr("moe_comm_overlap"));
  p = Overlapped();
  p.parallel.pp = 2;
  p.parallel.dp = 4;
  EXPECT_THAT(Validate(SmallExperts(2), p).message(), testing::HasSubstr("moe_comm_overlap"));
}

}  // namespace
}  // namespace orrery::workload
