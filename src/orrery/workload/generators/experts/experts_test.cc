// What a layer with experts computes, sends and keeps, derived by hand; and properties of its
// plans.
#include "orrery/workload/generators/experts/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/base/rng.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/layers/layer.h"
#include "orrery/workload/plan_experts.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

Model FourExperts(int layers) {
  Model m = SmallGpt(layers);
  m.name = "small experts";
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  m.experts = {.count = 16, .top_k = 2, .ffn_hidden = 128};
  return m;
}

Plan Even() {
  Plan p;
  p.parallel.dp = 8;
  p.parallel.ep = 4;
  p.batch.global_batch = 8;
  p.batch.seq_len = 512;
  return p;
}

// 512 tokens, 2 experts each: 1,024 rows on each rank, 256 a local expert of 4. Grouped GEMMs: 2 ·
// 1024 · 256 · (2·128 + 128) = 201,326,592; router: 2 · 512 · 16 · 256 = 4,194,304. Backward twice
// that.
TEST(Experts, FlopsOfALayer) {
  const Model with = FourExperts(1);
  Model without = with;
  without.experts = {};
  const Plan plan = Even();
  Plan dense = plan;
  dense.parallel.ep = 1;
  const auto flops = [](const Model& m, const Plan& p, std::string_view block) {
    return BlockFlops(FindBlock(Make(m, p), block));
  };
  const double feed_forward = 2.0 * 512 * 256 * 3 * 1024;  // of the dense layer
  const double forward =
      flops(with, plan, "layer.forward") - flops(without, dense, "layer.forward") + feed_forward;
  EXPECT_EQ(forward, 201'326'592 + 4'194'304);
  const double backward = flops(with, plan, "layer.backward") -
                          flops(without, dense, "layer.backward") + 2 * feed_forward;
  EXPECT_EQ(backward, 2 * forward);
}

// Dispatch and combine: 1,024 copies · 256 · 2 bytes each way, and 4 bytes of weight for each copy
// on the way there. The same in backward.
TEST(Experts, AllToAllBytes) {
  const graph::Graph g = Make(FourExperts(1), Even());
  const std::int64_t tokens = 1024 * 256 * 2;
  EXPECT_EQ(Bytes(FindBlock(g, "layer.forward"), Collective::kAllToAll), 2 * tokens + 4 * 1024);
  EXPECT_EQ(Bytes(FindBlock(g, "layer.backward"), Collective::kAllToAll), 2 * tokens + 4 * 1024);
  // Counts: 4 ranks · 16 experts · 8 bytes.
  EXPECT_EQ(Bytes(FindBlock(g, "layer.forward"), Collective::kAllGather), 4 * 16 * 8);
}

// DeepEP sends a token once to a rank: of 4 ranks, 2 different experts of 16 meet 4 · (1 - 12/16 ·
// 11/15) = 1.8 of them, instead of 2 copies.
TEST(Experts, DeepEpSendsATokenOnceToARank) {
  Plan p = Even();
  p.experts.dispatcher = Dispatcher::kDeepEp;
  EXPECT_EQ(Bytes(FindBlock(Make(FourExperts(1), p), "layer.forward"), Collective::kAllToAll),
            2 * (512 * 1800 / 1000) * 256 * 2);
}

// Over NICs it sends a token once to an NVLink domain: two of two ranks each, 2 different experts
// of 16 meet 2 · (1 - 8/16 · 7/15) = 1.533 of them. Half of that crosses NICs; the half that stays
// takes a third of its time there.
TEST(Experts, DeepEpSendsATokenOnceToADomain) {
  Plan p = Even();
  p.experts.dispatcher = Dispatcher::kDeepEp;
  p.parallel.nvlink_ranks = 2;
  EXPECT_EQ(Bytes(FindBlock(Make(FourExperts(1), p), "layer.forward"), Collective::kAllToAll),
            2 * (512 * 1533 / 1000 * 4 / 3) * 256 * 2);
  p.parallel.nvlink_ranks = 72;  // all in one
  EXPECT_EQ(Bytes(FindBlock(Make(FourExperts(1), p), "layer.forward"), Collective::kAllToAll),
            2 * (512 * 1800 / 1000) * 256 * 2);
}

// All-gather: 4 · 512 tokens of 512 bytes, and 5 bytes of weight and choice for each of 16 experts;
// back by a reduce-scatter of as much.
TEST(Experts, AllGatherBytes) {
  Plan p = Even();
  p.experts.dispatcher = Dispatcher::kAllGather;
  const graph::Graph g = Make(FourExperts(1), p);
  const graph::Block& forward = FindBlock(g, "layer.forward");
  EXPECT_EQ(Bytes(forward, Collective::kAllGather), 4 * 512 * 512 + 4 * 512 * 16 * 5);
  EXPECT_EQ(Bytes(forward, Collective::kReduceScatter), 4 * 512 * 512);
  EXPECT_EQ(Bytes(forward, Collective::kAllToAll), 0);
}

TEST(Experts, OrderOfOperations) {
  const graph::Graph g = Make(FourExperts(1), Even());
  EXPECT_THAT(Operations(g, FindBlock(g, "layer.forward")),
              testing::EndsWith("rms_norm router top_k auxiliary_loss all_gather.counts! sync "
                                "permute weights! dispatch! sort_by_expert grouped_fc1 swiglu "
                                "grouped_fc2 sort_by_expert combine! unpermute bias_dropout_add"));
  Model m = FourExperts(1);
  m.experts.shared_ffn_hidden = 128;
  Plan p = Even();
  p.experts.shared_expert_overlap = true;
  const graph::Graph o = Make(m, p);
  EXPECT_THAT(Operations(o, FindBlock(o, "layer.forward")),
              testing::EndsWith("permute weights! dispatch+5 shared_fc1 swiglu ?5 sort_by_expert "
                                "grouped_fc1 swiglu grouped_fc2 sort_by_expert combine+5 "
                                "shared_fc2 ?5 unpermute add_shared bias_dropout_add"));
}

// Bytes that memory-bound kernels of a layer move, both passes.
std::int64_t Moved(const Model& m, const Plan& p) {
  const graph::Graph g = Make(m, p);
  std::int64_t sum = 0;
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
      const auto* k = std::get_if<graph::MemoryBound>(&kernel);
      if (k != nullptr) sum += k->bytes_read + k->bytes_written;
    }
  }
  return sum;
}

// HybridEP's tokens arrive once a rank (1.8 of 512, as DeepEP's) and are copied to 1,024 rows by
// its own kernel, back to as many behind the experts; so in backward.
TEST(Experts, HybridEpPermutesWhatArrived) {
  Plan p = Even();
  p.experts.dispatcher = Dispatcher::kHybridEp;
  const graph::Graph g = Make(FourExperts(1), p);
  EXPECT_THAT(Operations(g, FindBlock(g, "layer.forward")),
              testing::EndsWith("all_gather.routing_map! scan_routing_map sync dispatch! permute "
                                "grouped_fc1 swiglu grouped_fc2 unpermute combine! "
                                "bias_dropout_add"));
  Plan deep = p;
  deep.experts.dispatcher = Dispatcher::kDeepEp;  // copies as many, in PyTorch
  const std::int64_t arrived = 512 * 1800 / 1000;
  // Beside that the maps of 4 · 512 tokens are read twice, and backward writes what arrived with
  // the gradients of 16 probabilities.
  EXPECT_EQ(Moved(FourExperts(1), deep) - Moved(FourExperts(1), p),
            -2 * 4 * 512 * 16 - arrived * 16 * 4);
}

// torchtitan's rows are gathered, copied below a row of zeros, gathered again in order of the four
// local experts, and written back; those that came back are added to a copy of what the shared
// experts gave. Bytes an element of 1,024 rows of 256 in bf16: gathers and moves 4, sums into what
// is there 6. Backward both gathers become sums.
TEST(Experts, PlainTorchMovesRowsByOperators) {
  Model m = FourExperts(1);
  Plan p = Even();
  p.framework.flat_parameters = false;
  p.framework.torch_layers = TorchLayers::kCompiled;
  const graph::Graph g = Make(m, p);
  EXPECT_THAT(
      Operations(g, FindBlock(g, "layer.forward")),
      testing::EndsWith("top_k all_gather.counts! sync permute dispatch! pad sort_by_expert "
                        "grouped_fc1 swiglu grouped_fc2 sort_by_expert combine! "
                        "scatter.copy unpermute bias_dropout_add"));
  const auto moved = [&](std::string_view block) {
    std::int64_t sum = 0;
    for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
      const auto* k = std::get_if<graph::MemoryBound>(&kernel);
      if (k == nullptr ||
          (k->op != graph::MemoryOp::kPermute && k->op != graph::MemoryOp::kUnpermute)) {
        continue;
      }
      sum += k->bytes_read + k->bytes_written;
    }
    return sum;
  };
  constexpr std::int64_t kRows = 1024 * 256;
  EXPECT_EQ(moved("layer.forward"), kRows * (4 + 4 + 4 + 6));
  EXPECT_EQ(moved("layer.backward"), kRows * (4 + 4 + 6 + 6));
  // Eager: scores in fp32 (6 + 8 + 6), and the gate's two operators in place of one.
  Plan eager = p;
  eager.framework.torch_layers = TorchLayers::kEager;
  const std::string forward =
      Operations(Make(m, eager), FindBlock(Make(m, eager), "layer.forward"));
  EXPECT_NE(forward.find("permute scores.cast scores.scale scores.cast dispatch!"),
            std::string::npos)
      << forward;
  EXPECT_NE(forward.find("grouped_fc1 silu gate grouped_fc2"), std::string::npos) << forward;
}

// Two experts of 16 dealt out in turn, four on a rank: a token's are neighbours and share a rank,
// so that every token goes to one. By choice it would go to 1.8, 1,024 copies by all-to-all in
// either case. Three a token meet 1.5 ranks: tokens 0, 3, 4 and so on one, the others two.
TEST(Experts, DealtOutInTurnATokensExpertsAreNeighbours) {
  const auto dispatched = [](const Model& m, Dispatcher dispatcher, Routing routing) {
    Plan p = Even();
    p.experts.dispatcher = dispatcher;
    p.experts.routing = routing;
    const graph::Graph g = Make(m, p);
    std::int64_t most = 0;  // tokens, not their weights
    for (const graph::Comm& comm : FindBlock(g, "layer.forward").comms) {
      if (comm.collective == Collective::kAllToAll) most = std::max(most, comm.bytes.value);
    }
    return most;
  };
  const Model two = FourExperts(1);
  constexpr std::int64_t kToken = 256 * 2;
  EXPECT_EQ(dispatched(two, Dispatcher::kDeepEp, Routing::kRoundRobin), 512 * kToken);
  EXPECT_EQ(dispatched(two, Dispatcher::kDeepEp, Routing::kBalanced), 512 * 1800 / 1000 * kToken);
  EXPECT_EQ(dispatched(two, Dispatcher::kAllToAll, Routing::kRoundRobin), 1024 * kToken);
  Model three = two;
  three.experts.top_k = 3;
  EXPECT_EQ(dispatched(three, Dispatcher::kDeepEp, Routing::kRoundRobin), 512 * 3 / 2 * kToken);
}

// A byte an expert of all 4 · 512 tokens is gathered, and a token of 256 · 2 bytes takes its fp32
// probabilities for all 16 experts along; results come back without. Two domains have 8 each.
TEST(Experts, HybridEpSendsProbabilitiesBesideTokens) {
  Plan p = Even();
  p.experts.dispatcher = Dispatcher::kHybridEp;
  const std::int64_t arrived = 512 * 1800 / 1000, token = 256 * 2;
  const graph::Graph g = Make(FourExperts(1), p);
  const graph::Block& forward = FindBlock(g, "layer.forward");
  EXPECT_EQ(Bytes(forward, Collective::kAllGather), 4 * 512 * 16);
  EXPECT_EQ(Bytes(forward, Collective::kAllToAll), arrived * (2 * token + 16 * 4));
  const graph::Block& backward = FindBlock(g, "layer.backward");
  EXPECT_EQ(Bytes(backward, Collective::kAllGather), 0);
  EXPECT_EQ(Bytes(backward, Collective::kAllToAll), arrived * (2 * token + 16 * 4));
  p.parallel.nvlink_ranks = 2;
  const graph::Graph two = Make(FourExperts(1), p);
  const std::int64_t sent = Bytes(FindBlock(two, "layer.forward"), Collective::kAllToAll);
  EXPECT_EQ(sent % (2 * token + 8 * 4), 0);
}

// PyTorch's operators read and write fp32 tensors of all 512 · 16 scores: 28 and 29 bytes a score
// to choose, 33 and 21 for the auxiliary loss, 52 and 36 backward; fused 9, 5 and 13.
TEST(Experts, OperatorsOfTheRouterReadAllScores) {
  const Plan plain = Even();
  Plan fused = plain;
  fused.framework.moe_fused_router = true;
  EXPECT_EQ(Moved(FourExperts(1), plain) - Moved(FourExperts(1), fused),
            512 * 16 * ((57 + 54 + 88) - (9 + 5 + 13)));
}

// Each expert's rows are padded before the first GEMM and cut behind the second, in backward too:
// four copies of 1,024 rows, read and written. HybridEP pads in its permutation.
TEST(Experts, LowPrecisionPadsByCopies) {
  Plan p = Even();
  p.precision.low = LowPrecision::kCurrent;
  Plan pads = p;
  pads.framework.moe_separate_padding = true;
  EXPECT_EQ(Moved(FourExperts(1), pads) - Moved(FourExperts(1), p), 4 * 2 * 1024 * 256 * 2);
  p.experts.dispatcher = pads.experts.dispatcher = Dispatcher::kHybridEp;
  EXPECT_EQ(Moved(FourExperts(1), pads), Moved(FourExperts(1), p));
}

// GEMMs that apply SwiGLU leave its kernels out, 3 and 5 elements a value, and the casts of what it
// made: 2 bytes read, 33/32 written twice, forward 128 wide, backward 256.
TEST(Experts, FusedMlpLeavesActivationAndCastsToTheGemms) {
  Plan p = Even();
  p.precision.low = LowPrecision::kMxfp8;
  Plan fused = p;
  fused.framework.moe_fused_mlp = true;
  const std::int64_t rows = 1024, cast = 2 * 32 + 2 * 33;  // of 32 elements
  EXPECT_EQ(Moved(FourExperts(1), p) - Moved(FourExperts(1), fused),
            rows * 128 * (3 + 5) * 2 + rows * (128 + 256) * cast / 32);
}

// GPT-OSS: both halves of fc1's output clamped, 2 and 2 bytes, and put together; backward reads the
// input as well. Rotated queries and keys by operators: 24 bytes an element forward instead of 4,
// 20 backward.
TEST(Experts, ClampAndScaledRotaryAreOperators) {
  Model m = FourExperts(1);
  const std::int64_t plain = Moved(m, Even());
  m.clamped_activation = true;
  EXPECT_EQ(Moved(m, Even()) - plain, 1024 * 256 * ((2 + 2 + 2 + 2) + (4 + 2 + 2 + 2)));
  m.clamped_activation = false;
  m.scaled_rotary = true;
  const std::int64_t elements = 512 * 2 * 256;  // queries and keys of all heads
  EXPECT_EQ(Moved(m, Even()) - plain, elements * (24 - 4 + 20 - 4));
}

// Zipf over 16 experts, 4 on a rank: (1 + 1/2 + 1/3 + 1/4) / H(16) · 4 = 2.465 times the mean.
TEST(Experts, UnevenRoutingLoadsTheBusiestRank) {
  Plan p = Even();
  EXPECT_EQ(BusiestLoad(FourExperts(1), p), 1);
  p.experts.routing = Routing::kZipf;
  EXPECT_NEAR(BusiestLoad(FourExperts(1), p), 2.465, 0.001);
  p.experts.moe_imbalance = 1.5;
  EXPECT_EQ(LoadOf(MakeShape(FourExperts(1), p)).received, (1024 * 3697 + 999) / 1000);
}

// Parameters of one rank: attention 4·256² and norms, router 16·256, 4 of 16 experts of 3·256·128;
// embedding and output 1,024·256 each (padded vocabulary), last norm.
TEST(Experts, StaticMemoryCountsLocalExperts) {
  const graph::Graph g = Make(FourExperts(2), Even());
  const std::int64_t layer = 4 * 256 * 256 + 2 * 256 + 16 * 256 + 4 * 3 * 256 * 128;
  const std::int64_t elements = 2 * layer + 2 * 1024 * 256 + 256;
  EXPECT_EQ(FindBlock(g, "static").buffers[0].bytes, 2 * elements);
}

// Gradients: experts over 8 / 4 = 2 replicas, the rest over 8.
TEST(Experts, GradientsAreReducedOverTheirOwnReplicas) {
  const graph::Graph g = Make(FourExperts(2), Even());
  std::int64_t dense = 0, experts = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      if (comm.group == graph::GroupSlot::kDp && comm.bytes.value > 8) dense += comm.bytes.value;
      if (comm.group == graph::GroupSlot::kExpertDp) experts += comm.bytes.value;
    }
  }
  EXPECT_EQ(experts, 4 * 2 * 4 * 3 * 256 * 128);
  EXPECT_EQ(dense, 4 * (2 * (4 * 256 * 256 + 2 * 256 + 16 * 256) + 2 * 1024 * 256 + 256));
  const auto slot = static_cast<std::size_t>(graph::GroupSlot::kExpertDp);
  EXPECT_EQ(g.groups.members(g.bindings[1].groups[slot])[1].index(), 5u);
}

TEST(Experts, RulesNameFieldValueAndRemedy) {
  const auto error = [](const Model& m, const Plan& p) { return Validate(m, p).message(); };
  Plan p = Even();
  p.parallel.ep = 3;
  EXPECT_EQ(error(FourExperts(1), p),
            "parallel.ep: 3 does not divide the 16 experts of small experts; every rank keeps the "
            "same number of experts: use a divisor of 16");
  p.parallel.ep = 16;
  EXPECT_EQ(error(FourExperts(1), p),
            "parallel.ep: a stage's 8 ranks are no multiple of etp 1 · ep 16 = 16; change ep, etp "
            "or dp");
  p.parallel.ep = 4;
  p.parallel.tp = 2;
  EXPECT_THAT(error(FourExperts(1), p),
              testing::HasSubstr("experts under tensor parallelism (tp 2) need it"));
  p = Even();
  EXPECT_EQ(error(SmallGpt(1), p), "parallel.ep: 4 for small, which has no experts; use 1");
  p.framework.moe_fused_mlp = true;
  EXPECT_EQ(error(FourExperts(1), p),
            "framework_options.moe_fused_mlp: only for precision mxfp8; leave it out");
  p.framework.moe_fused_mlp = false;
  p.experts.pad_to_capacity = true;
  p.experts.dispatcher = Dispatcher::kHybridEp;
  EXPECT_THAT(error(FourExperts(1), p),
              testing::HasSubstr("moe_pad_to_capacity: built for the alltoall dispatcher"));
}

// The kinds of layers: three dense ones in front, every other one with experts, windows.
TEST(Experts, LayerKinds) {
  const Model v3 = *FindModel("deepseek-v3");
  EXPECT_EQ(v3.layer_kind(2), kDenseLayer);
  EXPECT_EQ(v3.layer_kind(3), kExpertLayer);
  EXPECT_EQ(v3.expert_layers(), 58);
  const Model maverick = *FindModel("llama4-maverick");
  EXPECT_EQ(maverick.layer_kind(0), kDenseLayer);
  EXPECT_EQ(maverick.layer_kind(1), kExpertLayer);
  const Model oss = *FindModel("gpt-oss-20b");
  EXPECT_EQ(oss.layer_kind(0), kExpertLayer | kWindowLayer);
  EXPECT_EQ(oss.layer_kind(1), kExpertLayer);
}

// Every plan is refused with a reason or passes Verify at its full level: events, groups, memory
// that returns to where it was.
TEST(Experts, RandomPlansVerify) {
  CounterRng rng(7);
  int built = 0;
  for (int round = 0; round < 400; ++round) {
    const auto pick = [&](std::initializer_list<int> v) {
      return *(v.begin() + static_cast<std::ptrdiff_t>(rng.Below(v.size())));
    };
    Model m = FourExperts(pick({2, 4, 6}));
    m.experts.shared_ffn_hidden = pick({0, 128});
    m.experts.first_dense = pick({0, 1});
    m.experts.every = pick({1, 2});
    m.qk_norm = rng.Below(2) == 0;
    if (rng.Below(3) == 0) {
      m.latent = {
          .q_rank = pick({0, 64}), .kv_rank = 32, .nope_dim = 32, .rope_dim = 16, .v_dim = 32};
      m.head_dim = 48;
    }
    if (rng.Below(3) == 0) m.window = 64, m.full_every = pick({0, 2});
    Plan p;
    p.parallel.tp = pick({1, 2});
    p.parallel.pp = pick({1, 2});
    p.parallel.vpp = pick({1, 1, 2});
    p.parallel.dp = pick({1, 2, 4});
    p.parallel.ep = pick({1, 2, 4, 8});
    p.parallel.etp = pick({0, 1, 2});
    p.parallel.sequence_parallel = true;
    p.batch.global_batch = p.parallel.dp * pick({2, 4});
    p.batch.seq_len = 128;
    p.memory.recompute = static_cast<Recompute>(rng.Below(3));
    p.memory.sharding = static_cast<Sharding>(rng.Below(2));
    p.parallel.schedule = p.parallel.vpp > 1 ? Schedule::k1f1bInterleaved : Schedule::k1f1b;
    p.experts.dispatcher = static_cast<Dispatcher>(rng.Below(4));
    p.experts.shared_expert_overlap = rng.Below(2) == 0;
    p.framework.overlap_grad_reduce = rng.Below(2) == 0;
    p.experts.moe_imbalance = 1 + static_cast<double>(rng.Below(3));
    if (!Validate(m, p).ok()) continue;
    const graph::Graph g = Make(m, p);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    ASSERT_TRUE(status.ok()) << status.message() << " round " << round;
    ++built;
  }
  EXPECT_GT(built, 100);
}

}  // namespace
}  // namespace orrery::workload
