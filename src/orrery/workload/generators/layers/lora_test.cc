// Adapters: parameters, kernels and bytes by hand.
#include "orrery/workload/generators/layers/lora.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// Rank 8 beside SmallGpt's layers (256 wide, qkv 768, feed-forward 1,024), A then B:
// qkv 8·256 + 768·8, projection 8·256 + 256·8, fc1 8·256 + 1,024·8, fc2 8·1,024 + 256·8.
constexpr std::int64_t kAdapters = 8'192 + 4'096 + 10'240 + 10'240;
// Matrices of a layer: 256·(768 + 256 + 1,024 + 1,024).
constexpr std::int64_t kMatrices = 786'432;

Plan Tuned(int rank) {
  return {
      .parallel = {.dp = 2}, .batch = {.global_batch = 2, .seq_len = 128}, .lora = {.rank = rank}};
}

TEST(Lora, ArithmeticOfALayer) {
  const graph::Graph g = Make(SmallGpt(2), Tuned(8));
  const double tokens = 128;
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")), 2 * tokens * (kMatrices + kAdapters));
  // Data gradients of all, weight gradients of the adapters only.
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.backward")), 2 * tokens * (kMatrices + 2 * kAdapters));
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
}

TEST(Lora, KernelsBesideALinearLayer) {
  const graph::Graph g = Make(SmallGpt(2), Tuned(8));
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_NE(forward.find("qkv lora_a lora_b lora_scale lora_add flash_attention"),
            std::string::npos)
      << forward;
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_NE(backward.find("fc1 lora_scale lora_b lora_b lora_a lora_a lora_add layer_norm"),
            std::string::npos)
      << backward;
  EXPECT_EQ(backward.find("gradient bias"), std::string::npos);
  EXPECT_EQ(backward.find("bias_sum"), std::string::npos);
}

// Three As and Bs beside queries, keys and values (256 wide each), two beside a gated fc1's halves.
TEST(Lora, OneForEachModule) {
  Model model = SmallGpt(2);
  model.activation = Activation::kSwiglu;
  Plan plan = Tuned(8);
  plan.framework.separate_adapters = true;
  const graph::Graph g = Make(model, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  constexpr std::int64_t kSeparate = 4 * 8 * (256 + 256) + 2 * 8 * (256 + 1024) + 8 * (1024 + 256);
  std::int64_t trained = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name) == "parameters") trained += b.bytes / 2;
  }
  EXPECT_EQ(trained, 2 * kSeparate);
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")),
            2 * 128.0 * (kMatrices + 256 * 1024 + kSeparate));
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  const std::string one = "lora_a lora_b lora_scale lora_add ";
  EXPECT_NE(forward.find("qkv " + one + one + one + "flash_attention"), std::string::npos)
      << forward;
}

TEST(Lora, OnlyAdaptersAreReducedAndKept) {
  Plan plan = Tuned(8);
  const graph::Graph g = Make(SmallGpt(2), plan);
  std::int64_t reduced = 0, frozen = 0, trained = 0;
  for (const graph::Block& b : g.blocks) {
    if (g.name(b.name) == "gradients.reduce") reduced += Bytes(b, graph::Collective::kAllReduce);
    for (const graph::Buffer& buffer : b.buffers) {
      if (buffer.lifetime != graph::Lifetime::kForever) continue;
      (g.name(b.name) == "frozen" ? frozen : trained) += buffer.bytes;
    }
  }
  EXPECT_EQ(reduced, 4 * 2 * kAdapters);
  EXPECT_EQ(trained, (2 + 4 + 12) * 2 * kAdapters);
  // Two layers and the root of sharded_units_test.cc in bf16.
  EXPECT_EQ(frozen, 2 * (2 * 789'760 + 256 * (1024 + 512) + 512));
}

// FSDP2 over four ranks, three layers, two micro-batches: layers with their adapters are gathered
// twice a micro-batch in bf16, the root once; adapters alone are reduced, in fp32.
TEST(Lora, ShardedByUnits) {
  constexpr std::int64_t kLayer = 789'760, kRoot = 256 * (1024 + 512) + 512;
  Plan plan = {.parallel = {.dp = 4},
               .batch = {.global_batch = 8, .seq_len = 256},
               .memory = {.sharding = Sharding::kZero3}};
  plan.lora.rank = 8;
  plan.framework.flat_parameters = false;
  graph::Graph g = Make(SmallGpt(3), plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  EXPECT_EQ(DpBytes(g, graph::Collective::kAllGather),
            2 * 2 * (kRoot + 2 * 3 * (kLayer + kAdapters)));
  EXPECT_EQ(DpBytes(g, graph::Collective::kReduceScatter), 2 * 4 * 3 * kAdapters);
  // 16 bytes of each adapter's shard, 2 of each frozen one.
  std::int64_t kept = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) kept += b.bytes;
  EXPECT_EQ(kept, 16 * 3 * kAdapters / 4 + 2 * (3 * kLayer + kRoot) / 4);
  // Only adapters are cast before a gather; the optimizer waits for the last layer's reduction.
  EXPECT_EQ(Operations(g, FindBlock(g, "root.gather")), "all_gather!");
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_EQ(backward.find("bias_sum"), std::string::npos) << backward;
  // FSDP1: each of the eight As and Bs is gathered and reduced by itself, the last of them ends it.
  plan.framework.flat_parameters = true;
  plan.framework.gather_limit = GatherLimit::kHost;
  g = Make(SmallGpt(3), plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(DpBytes(g, graph::Collective::kAllGather),
            2 * 2 * (kRoot + 2 * 3 * (kLayer + kAdapters)));
  EXPECT_EQ(DpBytes(g, graph::Collective::kReduceScatter), 2 * 4 * 3 * kAdapters);
  int gathers = 0, reductions = 0, recorded = 0;
  for (const graph::Comm& comm : FindBlock(g, "layer.backward").comms) {
    gathers += comm.collective == graph::Collective::kAllGather ? 1 : 0;
    reductions += comm.collective == graph::Collective::kReduceScatter ? 1 : 0;
    recorded += comm.event != graph::kNoEvent ? 1 : 0;
  }
  EXPECT_EQ(gathers, 9);
  EXPECT_EQ(reductions, 8);
  EXPECT_EQ(recorded, 1);
  plan.framework.flat_parameters = false;
  // ZeRO-2 keeps what it gathered.
  plan.memory.sharding = Sharding::kZero2;
  g = Make(SmallGpt(3), plan);
  EXPECT_EQ(DpBytes(g, graph::Collective::kAllGather), 2 * 2 * (kRoot + 3 * (kLayer + kAdapters)));
  EXPECT_EQ(DpBytes(g, graph::Collective::kReduceScatter), 2 * 4 * 3 * kAdapters);
}

// DeepSpeed's ZeRO-2 knows the optimizer's parameters alone: three layers' adapters, in 16 bits,
// are reduced with each of two micro-batches and gathered once; frozen weights stay whole.
TEST(Lora, DeepSpeedZero2) {
  Plan plan = {.parallel = {.dp = 4},
               .batch = {.global_batch = 8, .seq_len = 256},
               .memory = {.sharding = Sharding::kZero2}};
  plan.lora.rank = 8;
  plan.framework.reducer = Reducer::kDeepSpeed;
  plan.framework.grad_reduce_fp32 = false;
  plan.framework.overlap_param_gather = false;
  plan.framework.bucket_elements = 500'000;
  const graph::Graph g = Make(SmallGpt(3), plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  std::int64_t reduced = 0, kept = 0;
  for (const graph::Call& call : g.programs.front().calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      const bool some = comm.collective == graph::Collective::kAllReduce && comm.bytes.value > 1024;
      reduced += some ? comm.bytes.value : 0;
    }
  }
  EXPECT_EQ(reduced, 2 * 2 * 3 * kAdapters);
  EXPECT_EQ(DpBytes(g, graph::Collective::kAllGather), 2 * 3 * kAdapters);
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name) == "gradients") kept = b.bytes;
  }
  EXPECT_EQ(kept, 2 * 3 * kAdapters / 4);
}

// DistributedDataParallel, as PEFT runs it: frozen weights in 16 bits, adapters in fp32, cast where
// they are used; only their gradients are reduced.
TEST(Lora, Replicated) {
  Plan plan = Ddp(2, 2);
  plan.precision.type = Precision::kBf16;
  plan.lora.rank = 8;
  const graph::Graph g = Make(SmallGpt(2), plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  std::int64_t reduced = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (g.name(block.name) != "gradients.reduce") continue;
    reduced += call.repeat * Bytes(block, graph::Collective::kAllReduce);
  }
  EXPECT_EQ(reduced, 4 * 2 * kAdapters);
  std::int64_t cast = 0;
  const graph::Block& forward = FindBlock(g, "layer.forward");
  for (const graph::Op& op : forward.ops) {
    if (op.kind != graph::OpKind::kKernel || g.name(op.name) != "weight.cast") continue;
    cast += std::get<graph::MemoryBound>(forward.kernels[op.index]).cols;
  }
  EXPECT_EQ(cast, kAdapters);
  std::int64_t frozen = 0;
  for (const graph::Buffer& b : FindBlock(g, "frozen").buffers) frozen += b.bytes;
  EXPECT_EQ(frozen, 2 * (2 * 789'760 + 256 * (1024 + 512) + 512));
}

// Eight experts of 256 × 128, four on a rank, are frozen: adapters of attention alone (qkv 8·256 +
// 768·8, projection 8·256 + 256·8) have weight gradients.
TEST(Lora, BesideFrozenExperts) {
  Model model = SmallGpt(2);
  model.experts.count = 8;
  model.experts.top_k = 2;
  model.experts.ffn_hidden = 128;
  Plan plan = {.parallel = {.dp = 4},
               .batch = {.global_batch = 4, .seq_len = 128},
               .memory = {.sharding = Sharding::kZero1}};
  plan.parallel.ep = 2;
  plan.lora.rank = 8;
  EXPECT_TRUE(Validate(model, plan).message().starts_with("training.lora_targets: fc1 and fc2 of"));
  plan.lora.targets = kLoraQkv | kLoraProjection;
  constexpr std::int64_t kAttention = 8'192 + 4'096;
  constexpr std::int64_t kExperts = 4 * (2 * 256 * 128 + 128 + 256);
  constexpr std::int64_t kRest = 789'760 - (2 * 256 * 1024 + 1024 + 256) + 8 * 256;
  constexpr std::int64_t kRoot = 256 * (1024 + 512) + 512;
  const graph::Graph g = Make(model, plan);
  Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.backward")) - GemmFlops(FindBlock(g, "layer.forward")),
            2 * 128.0 * kAttention);
  std::int64_t frozen = 0;
  for (const graph::Buffer& b : FindBlock(g, "frozen").buffers) frozen += b.bytes;
  EXPECT_EQ(frozen, 2 * (2 * (kRest + kExperts) + kRoot));
  std::int64_t reduced = 0;
  for (const graph::Block& b : g.blocks) {
    if (g.name(b.name) == "gradients.reduce")
      reduced += Bytes(b, graph::Collective::kReduceScatter);
  }
  EXPECT_EQ(reduced, 4 * 2 * kAttention);
  // What attention's adapters keep is given back with the rest of a layer that runs again.
  plan.memory.recompute = Recompute::kFull;
  EXPECT_TRUE(graph::Verify(Make(model, plan), graph::VerifyLevel::kFull).ok());
  plan.memory.recompute = Recompute::kNone;
  // FSDP2: experts are gathered, not reduced.
  plan.memory.sharding = Sharding::kZero3;
  plan.framework.flat_parameters = false;
  const graph::Graph sharded = Make(model, plan);
  verified = graph::Verify(sharded, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  std::int64_t kept = 0;
  for (const graph::Buffer& b : FindBlock(sharded, "static").buffers) kept += b.bytes;
  EXPECT_EQ(kept, 16 * 2 * kAttention / 4 + 2 * ((2 * kRest + kRoot) / 4 + 2 * kExperts / 2));
  for (const graph::Block& b : sharded.blocks) {
    for (const graph::Comm& comm : b.comms) {
      const bool experts = comm.group == graph::GroupSlot::kExpertDp;
      EXPECT_FALSE(experts && comm.collective == graph::Collective::kReduceScatter);
    }
  }
}

TEST(Lora, ShardedRefusals) {
  const auto refusal = [](auto change) {
    Plan plan = {.parallel = {.dp = 4},
                 .batch = {.global_batch = 8, .seq_len = 256},
                 .memory = {.sharding = Sharding::kZero3}};
    plan.lora.rank = 8;
    plan.framework.flat_parameters = false;
    change(&plan);
    Model model = SmallGpt(4);
    model.tied_embeddings = false;
    return Validate(model, plan).message();
  };
  EXPECT_EQ(refusal([](Plan*) {}), "");
  EXPECT_NE(refusal([](Plan* p) {
              p->framework.flat_parameters = true;
            }).find("training.lora_rank: adapters under ZeRO-2 and -3 are built"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan* p) {
              p->parallel.pp = 2;
              p->parallel.dp = 2;
              p->memory.reshard = kKeepGathered;
            }).find("parallel.pp: 2 under training.lora_rank"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan* p) {
              p->precision.low = LowPrecision::kCurrent;
            }).find("training.precision: frozen shards"),
            std::string::npos);
}

// x·Aᵀ of four targets: 4·128·8 elements more than the model keeps.
TEST(Lora, KeepsTheInnerProducts) {
  const auto saved = [](int rank) {
    const graph::Graph g = Make(SmallGpt(2), Tuned(rank));
    return SavedBytes(FindBlock(g, "layer.forward"));
  };
  EXPECT_EQ(saved(8) - saved(0), 2 * 4 * 128 * 8);
}

TEST(Lora, TargetsAndTensorParallelism) {
  Plan plan = Tuned(8);
  plan.lora.targets = kLoraQkv;
  const graph::Graph g = Make(SmallGpt(2), plan);
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")), 2 * 128.0 * (kMatrices + 8'192));
  // Over 2 ranks of a column-split layer: A and the inner product are split, B's columns too.
  plan.parallel.tp = 2;
  plan.parallel.sequence_parallel = true;
  const graph::Graph two = Make(SmallGpt(2), plan);
  EXPECT_EQ(GemmFlops(FindBlock(two, "layer.forward")), 128.0 * (kMatrices + 8'192));
  EXPECT_TRUE(graph::Verify(two, graph::VerifyLevel::kFull).ok());
  plan.lora.targets = kLoraAll;
  EXPECT_TRUE(graph::Verify(Make(SmallGpt(2), plan), graph::VerifyLevel::kFull).ok());
}

TEST(Lora, Refusals) {
  Plan plan = Tuned(9);
  plan.parallel.tp = 2;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.lora_rank: 9 is not"));
}

// Four sequences of 128 in one of 512: attention works on a fourth of the square.
TEST(Packing, SequencesDoNotSeeEachOther) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 512}};
  const auto attention = [&] {
    const graph::Graph g = Make(SmallGpt(1), plan);
    double sum = 0;
    for (const graph::Kernel& k : FindBlock(g, "layer.forward").kernels) {
      if (std::holds_alternative<graph::Attention>(k)) sum += graph::Flops(k);
    }
    return sum;
  };
  const double whole = attention();
  plan.batch.packed_len = 128;
  EXPECT_EQ(attention(), whole / 4);
  plan.batch.packed_len = 100;
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("training.packed_len: 100 does"));
}

// Latent attention of 4 heads of 32 + 16 and values of 32, queries over rank 64, keys and values
// over 32: A and B of rank 8 beside q_down (256 → 64), q_up (64 → 192), kv_down (256 → 48), kv_up
// (32 → 256) and the projection (128 → 256).
constexpr std::int64_t kLatentDown = 8 * (256 + 64) + 8 * (256 + 48);
constexpr std::int64_t kLatentAdapters =
    kLatentDown + 8 * (64 + 192) + 8 * (32 + 256) + 8 * (128 + 256);

Model Latent256() {
  Model m = SmallGpt(2);
  m.latent = {.q_rank = 64, .kv_rank = 32, .nope_dim = 32, .rope_dim = 16, .v_dim = 32};
  m.heads = m.kv_heads = 4;
  m.head_dim = 48;
  m.position = Position::kRotary;
  m.attention_bias = false;
  return m;
}

TEST(Lora, LatentAttention) {
  Plan plan = Tuned(8);
  plan.lora.targets = kLoraQkv | kLoraProjection;
  const graph::Graph g = Make(Latent256(), plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  plan.lora.rank = 0;
  const graph::Graph whole = Make(Latent256(), plan);
  const double forward = GemmFlops(FindBlock(whole, "layer.forward"));
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.forward")) - forward, 2.0 * 128 * kLatentAdapters);
  // A frozen layer has half of a backward pass; the adapters twice their forward.
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.backward")), forward + 4.0 * 128 * kLatentAdapters);
  const std::string names = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_NE(names.find("q_down lora_a lora_b lora_scale lora_add"), std::string::npos) << names;
  std::int64_t reduced = 0;
  for (const graph::Block& b : g.blocks) {
    if (g.name(b.name) == "gradients.reduce") reduced += Bytes(b, graph::Collective::kAllReduce);
  }
  EXPECT_EQ(reduced, 4 * 2 * kLatentAdapters);
}

// Over two tensor-parallel ranks the adapters of the up-projections are split (A by rank, B by
// columns), those of the down-projections whole: without a collective of their own, their gradients
// of half of the tokens each summed at the end.
TEST(Lora, LatentAttentionOverTensorParallelRanks) {
  Plan plan = Tuned(8);
  plan.parallel.tp = 2;
  plan.parallel.sequence_parallel = true;
  plan.lora.targets = kLoraQkv;
  const graph::Graph g = Make(Latent256(), plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  const std::string names = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_NE(names.find("q_down lora_a lora_b"), std::string::npos) << names;
  EXPECT_NE(names.find("q_up lora_a all_gather! lora_b"), std::string::npos) << names;
  std::int64_t summed = 0;
  for (const graph::Block& b : g.blocks) {
    if (g.name(b.name) != "gradients.reduce_tp") continue;
    summed += Bytes(b, graph::Collective::kAllReduce);
  }
  EXPECT_EQ(summed, 4 * 2 * kLatentDown);
}

// A hybrid of a Mamba layer (8 heads of 32, 2 groups of 16 states: 256 → 584 and 256 → 256), a
// feed-forward and an attention layer: each has the adapters of its own linear layers.
TEST(Lora, MambaLayers) {
  Model m = SmallGpt(3);
  m.pattern = "M-*";
  m.mamba = {.heads = 8, .head_dim = 32, .state = 16, .groups = 2};
  m.tied_embeddings = false;
  Plan plan = Tuned(8);
  const graph::Graph g = Make(m, plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  constexpr std::int64_t kMixer = 8 * (256 + 584) + 8 * (256 + 256);
  std::int64_t reduced = 0;
  for (const graph::Block& b : g.blocks) {
    if (g.name(b.name) == "gradients.reduce") reduced += Bytes(b, graph::Collective::kAllReduce);
  }
  EXPECT_EQ(reduced, 4 * (kMixer + kAdapters));
  plan.lora.targets = kLoraFc1 | kLoraFc2;
  plan.parallel.pp = 3;
  plan.parallel.dp = 1;
  EXPECT_TRUE(Validate(m, plan).message().starts_with(
      "parallel.layers_per_stage: a chunk without layers of training.lora_targets"));
}

}  // namespace
}  // namespace orrery::workload
