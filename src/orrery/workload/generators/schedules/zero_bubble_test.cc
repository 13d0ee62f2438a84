// Schedules of split backward passes: order, bubble by the papers' formulas, memory, programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/schedules/passes.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using Kind = PipelinePass::Kind;

// Times of a pass by kind; messages take none.
struct Costs {
  int forward = 1, data = 1, weight = 1;
  int of(Kind kind) const {
    return kind == Kind::kForward    ? forward
           : kind == Kind::kWeight   ? weight
           : kind == Kind::kBackward ? data + weight
                                     : data;
  }
};
bool IsBackward(Kind kind) { return kind == Kind::kData || kind == Kind::kBackward; }
struct Span {
  int first = 0, last = 0, busy = 0;
  int idle() const { return last - first - busy; }
};

// Runs the lists of all stages: a pass starts when the stage is free and its input is there; with
// `pairs` two in step begin and end as one.
enum class Fold { kNone, kV, kDual };
std::vector<Span> Play(const std::vector<std::vector<PipelinePass>>& stages, Fold fold,
                       const Costs& costs, bool pairs = false) {
  const int p = static_cast<int>(stages.size());
  const int parts = fold == Fold::kV ? 2 * p : p;
  const auto depth = [&](int stage, int chunk) {
    return chunk == 0 ? stage : (fold == Fold::kV ? 2 : 1) * p - 1 - stage;
  };
  std::map<std::tuple<bool, int, int>, int> ends;  // (backward, depth, micro-batch)
  std::vector<std::size_t> at(stages.size());
  std::vector<int> free(stages.size());
  std::vector<Span> spans(stages.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      while (at[s] < stages[s].size()) {
        const std::size_t count = pairs && stages[s][at[s]].in_step ? 2 : 1;
        const std::span unit(&stages[s][at[s]], count);
        int start = free[s], cost = 0;
        bool ready = true;
        for (const PipelinePass& pass : unit) {
          const int d = depth(static_cast<int>(s), pass.chunk);
          const int from = IsBackward(pass.kind) ? d + 1 : d - 1;
          cost += costs.of(pass.kind);
          if (pass.kind == Kind::kWeight || from < 0 || from >= parts) continue;
          const auto input = ends.find({IsBackward(pass.kind), from, pass.microbatch});
          ready = ready && input != ends.end();
          if (input != ends.end()) start = std::max(start, input->second);
        }
        if (!ready) break;
        free[s] = start + cost;
        for (const PipelinePass& pass : unit) {
          if (pass.kind == Kind::kWeight) continue;
          const int d = depth(static_cast<int>(s), pass.chunk);
          ends[{IsBackward(pass.kind), d, pass.microbatch}] = free[s];
        }
        if (at[s] == 0) spans[s].first = start;
        spans[s].last = free[s];
        spans[s].busy += cost;
        at[s] += count;
        moved = true;
      }
    }
  }
  for (std::size_t s = 0; s < stages.size(); ++s) EXPECT_EQ(at[s], stages[s].size()) << "stuck";
  return spans;
}

template <class Passes>
std::vector<std::vector<PipelinePass>> All(const Passes& passes, int p, int m) {
  std::vector<std::vector<PipelinePass>> stages;
  for (int s = 0; s < p; ++s) stages.push_back(passes(s, p, m));
  return stages;
}

// Most forwards whose data gradients (or weight gradients) are still to come.
int InFlight(const std::vector<PipelinePass>& passes, Kind release) {
  int now = 0, most = 0;
  for (const PipelinePass& pass : passes) {
    if (pass.kind == Kind::kForward) most = std::max(most, ++now);
    if (pass.kind == release) --now;
  }
  return most;
}

// Qi et al. 2023, table 1: (p − 1)·(TF + TB − TW); 1F1B has (p − 1)·(TF + TB + TW).
TEST(ZeroBubble, H1HasThePapersBubble) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {p, 2 * p, 3 * p + 1}) {
      for (const Costs costs : {Costs{1, 1, 1}, Costs{10, 11, 9}}) {
        const auto spans = Play(All(ZeroBubbleH1Passes, p, m), Fold::kNone, costs);
        int end = 0;
        for (const Span& s : spans) end = std::max(end, s.last);
        const int work = m * (costs.forward + costs.data + costs.weight);
        EXPECT_EQ(end - work, (p - 1) * (costs.forward + costs.data - costs.weight))
            << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

// Memory of 1F1B: stage s keeps p − s micro-batches for data gradients, p until weight gradients.
TEST(ZeroBubble, H1KeepsWhat1f1bKeeps) {
  for (int s = 0; s < 4; ++s) {
    const auto passes = ZeroBubbleH1Passes(s, 4, 12);
    EXPECT_EQ(InFlight(passes, Kind::kData), 4 - s);
    EXPECT_LE(InFlight(passes, Kind::kWeight), 4);
  }
}

// With equal times no stage is idle between its first and its last pass; 2p chunks are kept, p of
// the model's stages as in 1F1B.
TEST(ZeroBubble, VHasNoBubble) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
      const auto stages = All(ZeroBubbleVPasses, p, m);
      for (const Span& s : Play(stages, Fold::kV, {})) EXPECT_EQ(s.idle(), 0) << p << " of " << m;
      for (const auto& passes : stages) {
        EXPECT_EQ(passes.size(), static_cast<std::size_t>(6 * m));
        EXPECT_LE(InFlight(passes, Kind::kWeight), 2 * p);
      }
    }
  }
}

// Each of the p/2 − 1 hops to the middle and back costs a forward and a data gradient, less the
// weight gradient kept back for it (with F&B one unit: DeepSeek-V3, table 2).
TEST(DualPipe, BubbleIsTheWayToTheMiddle) {
  for (const int p : {2, 4, 8}) {
    for (const int m : {2 * p, 4 * p, 4 * p + 2}) {
      for (const Costs costs : {Costs{1, 1, 1}, Costs{10, 11, 9}}) {
        const auto spans = Play(All(DualPipePasses, p, m), Fold::kDual, costs);
        int end = 0;
        for (const Span& s : spans) end = std::max(end, s.last);
        const int work = m * (costs.forward + costs.data + costs.weight);
        EXPECT_EQ(end - work, (p / 2 - 1) * (costs.forward + costs.data - costs.weight))
            << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

// DeepSeek-V3, table 2: (p/2 − 1)·(TF&B + TB − 3·TW), here with TF&B = TF + TB, and data gradients
// as long as forwards (else a hop costs 2·TF + TD − TW, where the table has TF + 2·TD − TW).
TEST(DualPipe, PairsHaveThePapersBubble) {
  for (const int p : {2, 4, 8, 16}) {
    for (const int m : {2 * p, 4 * p, 4 * p + 2}) {
      for (const Costs costs : {Costs{1, 1, 1}, Costs{10, 10, 7}}) {
        const auto spans = Play(All(DualPipePasses, p, m), Fold::kDual, costs, true);
        int end = 0;
        for (const Span& s : spans) end = std::max(end, s.last);
        const int backward = costs.data + costs.weight;
        const int pair = costs.forward + backward;
        EXPECT_EQ(end - m * pair, (p / 2 - 1) * (pair + backward - 3 * costs.weight))
            << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

// Every stage runs every micro-batch once, half of them in either direction, and keeps p + 1.
TEST(DualPipe, RunsEachMicrobatchOnceAndKeepsFew) {
  for (int s = 0; s < 8; ++s) {
    const auto passes = DualPipePasses(s, 8, 20);
    std::map<std::pair<int, int>, int> forwards;
    int backwards = 0, datas = 0, weights = 0;
    for (const PipelinePass& pass : passes) {
      if (pass.kind == Kind::kForward) ++forwards[{pass.chunk, pass.microbatch}];
      backwards += pass.kind == Kind::kBackward;
      datas += pass.kind == Kind::kData;
      weights += pass.kind == Kind::kWeight;
      EXPECT_EQ(pass.chunk, pass.microbatch < 10 ? 0 : 1);
    }
    EXPECT_EQ(forwards.size(), 20u);
    EXPECT_EQ(datas, weights);
    EXPECT_EQ(backwards + datas, 20);
    int now = 0, most = 0;
    for (const PipelinePass& pass : passes) {
      if (pass.kind == Kind::kForward) most = std::max(most, ++now);
      if (IsBackward(pass.kind)) --now;
    }
    EXPECT_LE(most, 9);
  }
}

TEST(DualPipe, FoldedRunsToItsEnd) {
  for (const int p : {2, 3, 4}) {
    for (const int m : {2 * p, 5 * p}) {
      int end = 0;
      for (const Span& s : Play(All(DualPipeVPasses, p, m), Fold::kV, {})) {
        end = std::max(end, s.last);
      }
      EXPECT_EQ(end - 2 * m * 3, p - 1);
    }
  }
}

TEST(DualPipe, ProgramHoldsTheModelTwice) {
  Plan p{.parallel = {.pp = 4, .vpp = 2, .dp = 2}, .batch = {.global_batch = 16, .seq_len = 128}};
  p.parallel.schedule = Schedule::kDualPipe;
  const graph::Graph g = Make(SmallGpt(4), p);
  EXPECT_TRUE(graph::Verify(g).ok()) << graph::Verify(g).message();
  // Stages 0 and 3 hold embedding, head and two layers.
  for (const std::size_t stage : {0, 1, 2, 3}) {
    std::map<std::string, int> calls;
    for (const graph::Call& call : g.programs[stage].calls) {
      ++calls[g.name(g.blocks[call.block.index()].name)];
    }
    EXPECT_EQ(calls["embedding.forward"], stage == 0 || stage == 3 ? 4 : 0);
    EXPECT_EQ(calls["head.forward"], stage == 0 || stage == 3 ? 4 : 0);
    EXPECT_EQ(calls["layer.forward"], 8);
    EXPECT_EQ(calls["gradients.reduce_mirror"], 1);
  }
  p.parallel.pp = 3;
  EXPECT_FALSE(Validate(SmallGpt(4), p).ok());
}

Plan Zb(Schedule schedule, int pp, int microbatches) {
  return {.parallel = {.pp = pp, .vpp = schedule == Schedule::kZbV ? 2 : 1, .schedule = schedule},
          .batch = {.global_batch = microbatches, .seq_len = 128}};
}

TEST(ZeroBubble, ProgramOfH1) {
  const graph::Graph g = Make(SmallGpt(2), Zb(Schedule::kZbH1, 2, 3));
  const auto words = [&](std::size_t program) {
    std::vector<std::string> out;
    for (const graph::Call& call : g.programs[program].calls) {
      const std::string& name = g.name(g.blocks[call.block.index()].name);
      if (name == "layer.forward") out.push_back(fmt::format("F{}", call.microbatch));
      if (name == "layer.backward") out.push_back(fmt::format("D{}", call.microbatch));
      if (name == "weight.backward" && call.repeat == 1) {
        out.push_back(fmt::format("W{}", call.microbatch));
      }
      if (name == "send_forward") out.push_back("sf");
      if (name == "receive_forward") out.push_back("rf");
      if (name == "send_backward") out.push_back("sb");
      if (name == "receive_backward") out.push_back("rb");
    }
    return Join(out);
  };
  // Receives are posted one ahead. The last stage has two weight halves, head's and layer's.
  EXPECT_EQ(words(0), "rb F0 sf F1 sf rb D0 W0 F2 sf rb D1 W1 D2 W2");
  EXPECT_EQ(words(1), "rf rf F0 D0 sb rf F1 D1 sb W0 W0 F2 D2 sb W1 W1 W2 W2");
}

// The two halves are the whole: same kernels, and what B keeps W frees.
TEST(ZeroBubble, HalvesMakeTheWhole) {
  for (const int tp : {1, 2}) {
    Plan plan = Zb(Schedule::k1f1b, 2, 4);
    plan.parallel.tp = tp;
    plan.parallel.sequence_parallel = tp > 1;
    const graph::Graph whole = Make(SmallGpt(2), plan);
    plan.parallel.schedule = Schedule::kZbH1;
    const graph::Graph halves = Make(SmallGpt(2), plan);
    const graph::Block& backward = FindBlock(whole, "layer.backward");
    const graph::Block& data = FindBlock(halves, "layer.backward");
    const graph::Block& weight = FindBlock(halves, "weight.backward");
    const auto kernels = [](const graph::Block& b) {
      return std::count_if(b.ops.begin(), b.ops.end(),
                           [](const graph::Op& op) { return op.kind == graph::OpKind::kKernel; });
    };
    EXPECT_EQ(kernels(backward), kernels(data) + kernels(weight));
    EXPECT_EQ(kernels(weight), 4);
    // Weight gradients of a layer: 2·128·786,432 operations over tp.
    EXPECT_EQ(BlockFlops(weight), 2.0 * 128 * 786'432 / tp);
    EXPECT_EQ(SavedBytes(data) + SavedBytes(weight), SavedBytes(backward));
    const Status status = graph::Verify(halves, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// The last stage leaves the head's weight gradients of two micro-batches to the end, behind its
// last send and before the optimizer; nothing is done twice or lost.
TEST(DeferredHead, RunsBehindThePasses) {
  for (const Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bInterleaved}) {
    Plan plan = Zb(schedule, 2, 4);
    plan.parallel.vpp = schedule == Schedule::k1f1b ? 1 : 2;
    plan.parallel.dp = 2;
    plan.batch.global_batch = 8;
    const graph::Graph whole = Make(SmallGpt(4), plan);
    plan.framework.deferred_head = 2;
    const graph::Graph g = Make(SmallGpt(4), plan);
    const auto flops = [](const graph::Graph& of, std::size_t program) {
      double sum = 0;
      for (const graph::Call& call : of.programs[program].calls) {
        const graph::Block& block = of.blocks[call.block.index()];
        for (const graph::Op& op : block.ops) {
          if (op.kind != graph::OpKind::kKernel) continue;
          const auto* gemm = std::get_if<graph::Gemm>(&block.kernels[op.index]);
          if (gemm != nullptr) sum += 2.0 * gemm->m * gemm->n * gemm->k * call.repeat;
        }
      }
      return sum;
    };
    EXPECT_EQ(flops(g, 0), flops(whole, 0));
    EXPECT_EQ(flops(g, 1), flops(whole, 1));
    std::vector<std::string> late;
    for (const graph::Call& call : g.programs[1].calls) {
      const std::string& name = g.name(g.blocks[call.block.index()].name);
      if (name == "weight.backward") late.push_back(fmt::format("W{}", call.microbatch));
      if (name == "layer.backward" || name == "optimizer") late.push_back(name.substr(0, 1));
    }
    const std::string order = Join(late);
    EXPECT_TRUE(order.ends_with("l W0 W1 o")) << order;
    // Hidden 256, 128 tokens and half of the padded vocabulary: SmallGpt's output layer.
    EXPECT_EQ(BlockFlops(FindBlock(g, "weight.backward")),
              GemmFlops(FindBlock(whole, "head.forward")));
    EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
    plan.parallel.pp = plan.parallel.vpp = 1;
    plan.parallel.schedule = Schedule::k1f1b;
    EXPECT_TRUE(Validate(SmallGpt(4), plan)
                    .message()
                    .starts_with("framework_options.deferred_head: the output layer's weight"));
  }
}

// Chunk 1 of the first stage ends the model: embedding and loss on one rank, nothing tied across.
TEST(ZeroBubble, VShape) {
  Plan plan = Zb(Schedule::kZbV, 2, 4);
  plan.parallel.layers_per_stage = {1, 2, 3, 4};
  const graph::Graph g = Make(SmallGpt(10), plan);
  std::map<std::string, int> layers;
  for (std::size_t s = 0; s < 2; ++s) {
    for (const graph::Call& call : g.programs[s].calls) {
      const std::string& name = g.name(g.blocks[call.block.index()].name);
      if (call.microbatch != 0) continue;
      if (name == "layer.forward") layers[fmt::format("{}/{}", s, call.chunk)] = call.repeat;
      if (name == "head.forward") {
        EXPECT_EQ(s, 0u);
      }
    }
  }
  EXPECT_EQ(layers, (std::map<std::string, int>{{"0/0", 1}, {"1/0", 2}, {"1/1", 3}, {"0/1", 4}}));
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ZeroBubble, Rules) {
  EXPECT_TRUE(Validate(SmallGpt(8), Zb(Schedule::kZbV, 4, 7))
                  .message()
                  .starts_with("training.global_batch: 7 gives 7 micro-batches"));
  Plan plan = Zb(Schedule::kZbH1, 2, 4);
  plan.parallel.vpp = 2;
  EXPECT_TRUE(
      Validate(SmallGpt(8), plan).message().starts_with("parallel.vpp: the schedule zb-h1"));
  plan = Zb(Schedule::kZbH1, 1, 4);
  EXPECT_TRUE(Validate(SmallGpt(8), plan).message().starts_with("parallel.pp: the schedule zb-h1"));
}

}  // namespace
}  // namespace orrery::workload
