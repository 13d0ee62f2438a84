// Optimizers: state and arithmetic by hand.
#include "orrery/workload/generators/sharding/optimizer.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

// One layer of SmallGpt: matrices 786,432, biases 2,304, norms 1,024; the root: tables of 1,024
// words and 512 positions, final norm.
constexpr std::int64_t kMatrices = 786'432;
constexpr std::int64_t kOther = 2'304 + 1'024 + 256 * (1024 + 512) + 512;
constexpr std::int64_t kAll = kMatrices + kOther;

graph::Graph With(Optimizer optimizer) {
  return Make(SmallGpt(1), {.batch = {.global_batch = 1, .seq_len = 128}, .optimizer = optimizer});
}
std::int64_t State(const graph::Graph& g) {
  std::int64_t sum = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (b.kind == graph::MemoryKind::kOptimizer) sum += b.bytes;
  }
  return sum;
}

TEST(Optimizers, State) {
  EXPECT_EQ(State(With(Optimizer::kAdam)), 12 * kAll);
  EXPECT_EQ(State(With(Optimizer::kMuon)), 8 * kAll + 4 * kOther);
  // Rows and columns: qkv 768 + 256, projection 2·256, fc1 and fc2 1,024 + 256 each, tables
  // 1,024 + 256 and 512 + 256; vectors whole (fc1's bias is no larger than four rows).
  const std::int64_t factors = 1024 + 512 + 2 * 1280 + 1280 + 768 + 2'304 + 1'024 + 512;
  EXPECT_EQ(State(With(Optimizer::kAdafactor)), 4 * kAll + 4 * factors);
}

// Five iterations of 2m²n + 2m³ + 2m²n for 768 × 256, 256 × 256 and twice 1,024 × 256.
TEST(Optimizers, NewtonSchulz) {
  const graph::Graph g = With(Optimizer::kMuon);
  const graph::Block& block = FindBlock(g, "optimizer.muon");
  double gemms = 0;
  for (const graph::Kernel& k : block.kernels) {
    if (std::holds_alternative<graph::Gemm>(k)) gemms += graph::Flops(k);
  }
  const double m = 256;
  EXPECT_EQ(gemms, 5 * (4 * m * m * (768 + 256 + 2 * 1024) + 4 * 2 * m * m * m));
  EXPECT_EQ(block.kernels.size(), 4u * (3 + 5 * 3 + 2));
}

TEST(Optimizers, AdamTensorByTensor) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128},
            .framework = {.fused_adam = false, .adam_loop = true}};
  const graph::Graph g = Make(SmallGpt(2), plan);
  // A layer has 12 tensors (two norms, four weights with biases), the root 2 tables and a norm
  // of 2.
  const auto adam = [&](const graph::Graph& graph) {
    std::size_t kernels = 0;
    std::int64_t updated = 0;
    const graph::Block& block = FindBlock(graph, "optimizer");
    for (const graph::Op& op : block.ops) {
      if (op.kind != graph::OpKind::kKernel) continue;
      const auto* k = std::get_if<graph::MemoryBound>(&block.kernels[op.index]);
      if (k == nullptr || k->op != graph::MemoryOp::kAdam) continue;
      ++kernels;
      if (graph.name(op.name) == "update") updated += k->cols;
    }
    return std::pair(kernels, updated);
  };
  const std::int64_t n = 2 * (kMatrices + 2'304 + 1'024) + 256 * (1024 + 512) + 512;
  EXPECT_EQ(adam(g), std::pair(std::size_t{8 * (2 * 12 + 4)}, n));
  plan.framework.adam_loop = false;
  EXPECT_EQ(adam(Make(SmallGpt(2), plan)), std::pair(std::size_t{5}, n));
}

// Two moments as Adam. Norms of parameters and directions are read (4 + 4); the direction reads
// parameter, gradient and moments and writes all but the parameter (16 + 12); the update reads
// parameter and direction and writes the parameter (8 + 4).
TEST(Optimizers, Lamb) {
  const graph::Graph g = With(Optimizer::kLamb);
  EXPECT_EQ(State(g), 12 * kAll);
  const graph::Block& block = FindBlock(g, "optimizer");
  std::int64_t read = 0, written = 0;
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel) continue;
    const std::string_view name = g.name(op.name);
    if (name != "parameter.norm" && name != "direction" && name != "direction.norm" &&
        name != "update") {
      continue;
    }
    const auto& k = std::get<graph::MemoryBound>(block.kernels[op.index]);
    read += k.bytes_read;
    written += k.bytes_written;
  }
  EXPECT_EQ(read, (4 + 16 + 4 + 8) * kAll);
  EXPECT_EQ(written, (12 + 4) * kAll);
}

// Two bytes a moment: Adam reads parameter and gradient in fp32 and both moments.
TEST(Optimizers, MomentsInBf16) {
  const graph::Graph g = Make(SmallGpt(1), {.batch = {.global_batch = 1, .seq_len = 128},
                                            .optimizer_states = OptimizerStates::kBf16});
  EXPECT_EQ(State(g), (4 + 2 + 2) * kAll);
  const graph::Block& block = FindBlock(g, "optimizer");
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel || g.name(op.name) != "adam") continue;
    const auto& k = std::get<graph::MemoryBound>(block.kernels[op.index]);
    EXPECT_EQ(k.bytes_read, (4 + 4 + 2 + 2) * kAll);
    EXPECT_EQ(k.bytes_written, (4 + 2 + 2) * kAll);
    return;
  }
  FAIL() << "no kernel of Adam";
}

// Moments by blocks: a byte each and 4 bytes per 256; half a byte and 4 per 128. The fp32 parameter
// stays.
TEST(Optimizers, StatesByBlocks) {
  const auto with = [](Optimizer optimizer, OptimizerStates states) {
    return Make(SmallGpt(1), {.batch = {.global_batch = 1, .seq_len = 128},
                              .optimizer = optimizer,
                              .optimizer_states = states});
  };
  EXPECT_EQ(State(with(Optimizer::kAdam, OptimizerStates::k8bit)), (4 + 2) * kAll + 2 * kAll / 64);
  EXPECT_EQ(State(with(Optimizer::kAdam, OptimizerStates::kFp8)), (4 + 2) * kAll + 2 * kAll / 64);
  EXPECT_EQ(State(with(Optimizer::kAdam, OptimizerStates::k4bit)), (4 + 1) * kAll + 2 * kAll / 32);
  EXPECT_EQ(State(with(Optimizer::kLion, OptimizerStates::k8bit)), (4 + 1) * kAll + kAll / 64);
  EXPECT_EQ(State(with(Optimizer::kLion, OptimizerStates::kFull)), (4 + 4) * kAll);
  // One kernel a tensor (12 of the layer, two tables, a norm of two) reads parameter, gradient and
  // states and writes all but the gradient.
  const graph::Graph g = with(Optimizer::kAdam, OptimizerStates::k8bit);
  std::int64_t read = 0, written = 0, kernels = 0;
  const graph::Block& block = FindBlock(g, "optimizer");
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel || g.name(op.name) != "update.blockwise") continue;
    const auto& k = std::get<graph::MemoryBound>(block.kernels[op.index]);
    ++kernels;
    read += k.bytes_read;
    written += k.bytes_written;
  }
  EXPECT_EQ(kernels, 12 + 4);
  EXPECT_NEAR(static_cast<double>(read), (8 + 2 + 1 / 32.0) * kAll, 16 * 8);
  EXPECT_NEAR(static_cast<double>(written), (4 + 2 + 1 / 32.0) * kAll, 16 * 8);
}

// The Trainer keeps an embedding's moments in fp32: 1,024 words of 256.
TEST(Optimizers, FullStatesOfTheEmbedding) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128},
            .optimizer_states = OptimizerStates::k8bit};
  const std::int64_t without = State(Make(SmallGpt(1), plan));
  plan.framework.fp32_embedding_states = true;
  constexpr std::int64_t kTable = 256 * 1024;
  EXPECT_EQ(State(Make(SmallGpt(1), plan)) - without, 2 * (4 * kTable - kTable - kTable / 64));
}

TEST(Optimizers, SgdWithoutMomentum) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128}, .optimizer = Optimizer::kSgd};
  EXPECT_EQ(State(Make(SmallGpt(1), plan)), 8 * kAll);
  plan.momentum = false;
  EXPECT_EQ(State(Make(SmallGpt(1), plan)), 4 * kAll);
}

// A model loaded in bf16 without sharding: parameters, gradients and moments of 2 bytes each.
TEST(Optimizers, StatesInTheModelsType) {
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128}};
  plan.framework.model_type_states = true;
  const graph::Graph g = Make(SmallGpt(1), plan);
  std::int64_t kept = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) kept += b.bytes;
  EXPECT_EQ(kept, (2 + 2 + 4) * kAll);
  const std::string step = Operations(g, FindBlock(g, "optimizer"));
  EXPECT_EQ(step, "l2_norm sync clip adam");
  // Updated in the backward pass only the largest tensor's gradient lives: one of 1,024 × 256.
  plan.framework.clip_gradients = false;
  plan.framework.optimizer_in_backward = true;
  const graph::Graph within = Make(SmallGpt(1), plan);
  kept = 0;
  for (const graph::Buffer& b : FindBlock(within, "static").buffers) kept += b.bytes;
  EXPECT_EQ(kept, (2 + 4) * kAll + 2 * 256 * 1024);
  plan.batch.global_batch = 2;
  EXPECT_TRUE(
      Validate(SmallGpt(1), plan)
          .message()
          .starts_with("framework_options.optimizer_in_backward: gradients are given back"));
}

TEST(Optimizers, Refusals) {
  Plan plan{.parallel = {.dp = 2},
            .batch = {.global_batch = 2, .seq_len = 128},
            .memory = {.sharding = Sharding::kZero3}};
  plan.optimizer = Optimizer::kMuon;
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("training.optimizer: muon needs"));
  plan.memory.sharding = Sharding::kNone;
  plan.optimizer = Optimizer::kAdafactor;
  plan.memory.offload_optimizer = true;
  EXPECT_TRUE(Validate(SmallGpt(1), plan).message().starts_with("training.offload: the CPU"));
}

// Three layers over eight ranks: twelve matrices, two on the busiest, a layer's largest (fc1 and
// fc2 of 256 × 1,024). Gradients are all-reduced, everybody's parameters gathered after; a rank has
// an eighth of 8 bytes of state a matrix element, and of 12 elsewhere.
TEST(Optimizers, MuonByWholeMatrices) {
  Plan plan{.parallel = {.dp = 8},
            .batch = {.global_batch = 8, .seq_len = 128},
            .memory = {.sharding = Sharding::kZero1}};
  plan.optimizer = Optimizer::kMuon;
  const graph::Graph g = Make(SmallGpt(3), plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  const graph::Block& muon = FindBlock(g, "optimizer.muon");
  const double m = 256, n = 1024;
  EXPECT_DOUBLE_EQ(GemmFlops(muon), 2 * 5 * (4 * m * m * n + 2 * m * m * m));
  std::int64_t reduced = 0, gathered = 0, calls = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    reduced += Bytes(block, graph::Collective::kReduceScatter);
    gathered += Bytes(block, graph::Collective::kAllGather);
    calls += g.name(block.name) == "optimizer.muon" ? call.repeat : 0;
  }
  EXPECT_EQ(reduced, 0);
  EXPECT_EQ(calls, 1);
  std::int64_t momentum = 0, elements = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name) == "momentum") momentum = b.bytes;
    if (g.name(b.name) == "parameters") elements = b.bytes / 2;
  }
  EXPECT_EQ(gathered, 2 * elements);
  EXPECT_EQ(momentum, 4 * elements / 8);
  plan.memory.sharding = Sharding::kZero3;
  EXPECT_TRUE(Validate(SmallGpt(3), plan).message().starts_with("training.optimizer: muon"));
}

// Five iterations of 4m²n + 2m³ for a matrix of m × n, m ≤ n.
double NewtonSchulz(double m, double n) { return 5 * (4 * m * m * n + 2 * m * m * m); }

double MuonFlops(const graph::Graph& g) {
  double sum = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (g.name(block.name) == "optimizer.muon") sum += call.repeat * GemmFlops(block);
  }
  return sum;
}

// Two layers of qkv 768 × 256, projection 256 × 256, a router of 8 × 256 and, on a rank, four of
// eight experts of 256 × 128 and back. Dealt out over four ranks the first six make two, the
// largest; over the two ranks that hold the same experts their sixteen make eight.
TEST(Optimizers, MuonOfExperts) {
  Model model = SmallGpt(2);
  model.experts.count = 8;
  model.experts.top_k = 2;
  model.experts.ffn_hidden = 128;
  Plan plan{.parallel = {.dp = 4}, .batch = {.global_batch = 4, .seq_len = 128}};
  plan.parallel.ep = 2;
  plan.optimizer = Optimizer::kMuon;
  const double large = NewtonSchulz(256, 768) + NewtonSchulz(256, 256);
  const double experts = 8 * NewtonSchulz(128, 256);
  graph::Graph g = Make(model, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_DOUBLE_EQ(MuonFlops(g), 2 * (large + NewtonSchulz(8, 256) + experts));
  plan.memory.sharding = Sharding::kZero1;
  g = Make(model, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_DOUBLE_EQ(MuonFlops(g), large + experts);
}

// Latent attention: queries over rank 96 to 8 heads of 48, keys and values over 64 (and 16 of
// rotary) to 8 · (32 + 32), values of 8 · 32 back.
TEST(Optimizers, MuonOfLatentAttention) {
  Model model = SmallGpt(1);
  model.latent = {.q_rank = 96, .kv_rank = 64, .nope_dim = 32, .rope_dim = 16, .v_dim = 32};
  model.head_dim = 48;
  model.position = Position::kRotary;
  Plan plan{.batch = {.global_batch = 1, .seq_len = 128}};
  plan.optimizer = Optimizer::kMuon;
  EXPECT_DOUBLE_EQ(MuonFlops(Make(model, plan)), NewtonSchulz(96, 256) + NewtonSchulz(96, 384) +
                                                     NewtonSchulz(80, 256) + NewtonSchulz(64, 512) +
                                                     NewtonSchulz(256, 256) +
                                                     2 * NewtonSchulz(256, 1024));
}

std::int64_t SecondMoment(const graph::Graph& g) {
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name).starts_with("exp_avg_sq")) bytes += b.bytes;
  }
  return bytes;
}

// Tensors sharded by rows over four ranks. Of a layer's matrices (rows × columns) 768 × 256,
// 256 × 256, 1,024 × 256, 256 × 1,024 a rank has a quarter of the rows' means and all columns', of
// 3,328 elements in vectors a quarter; of the root's tables of 1,024 and 512 rows and the norm of
// 512 likewise. The columns' means, one mean of the rows' and every tensor's norm are summed.
TEST(Optimizers, AdafactorOfTensorsShardedByRows) {
  Plan plan{.parallel = {.dp = 4},
            .batch = {.global_batch = 4, .seq_len = 128},
            .memory = {.sharding = Sharding::kZero3}};
  plan.optimizer = Optimizer::kAdafactor;
  plan.framework.flat_parameters = false;
  const graph::Graph g = Make(SmallGpt(3), plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  const std::int64_t layer = 192 + 256 + 64 + 256 + 256 + 256 + 64 + 1024 + 3328 / 4;
  const std::int64_t root = 256 + 256 + 128 + 256 + 512 / 4;
  EXPECT_EQ(SecondMoment(g), 4 * (3 * layer + root));
  std::int64_t summed = 0, sums = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (g.name(block.name) != "optimizer.adafactor") continue;
    summed += call.repeat * Bytes(block, graph::Collective::kAllReduce);
    sums += call.repeat * static_cast<std::int64_t>(block.comms.size());
  }
  EXPECT_EQ(sums, 3 * (4 * 3 + 8) + 2 * 3 + 2);
  EXPECT_EQ(summed, 4 * (3 * (3 * 256 + 1024 + 2 * 4 + 8) + 2 * 256 + 2 * 2 + 2));
}

// A piece of a flat tensor has no rows: its second moment is whole.
TEST(Optimizers, AdafactorOfFlatShards) {
  Plan plan{.parallel = {.dp = 4},
            .batch = {.global_batch = 4, .seq_len = 128},
            .memory = {.sharding = Sharding::kZero3}};
  plan.optimizer = Optimizer::kAdafactor;
  const std::int64_t shard = (3 * (kMatrices + 2'304 + 1'024) + 256 * (1024 + 512) + 512) / 4;
  EXPECT_EQ(SecondMoment(Make(SmallGpt(3), plan)), 4 * shard);
  plan.memory.sharding = Sharding::kZero1;
  const graph::Graph g = Make(SmallGpt(3), plan);
  EXPECT_NEAR(static_cast<double>(SecondMoment(g)), 4.0 * shard, 4096);  // parameters are aligned
  std::int64_t kernels = 0;
  for (const graph::Kernel& k : FindBlock(g, "optimizer").kernels) {
    const auto* memory = std::get_if<graph::MemoryBound>(&k);
    kernels += memory != nullptr && memory->op == graph::MemoryOp::kAdam ? 1 : 0;
  }
  EXPECT_EQ(kernels, 6);
  plan.framework.broadcast_parameters = true;
  EXPECT_TRUE(Validate(SmallGpt(3), plan).message().starts_with("training.optimizer: adafactor"));
  plan.framework.broadcast_parameters = false;
  plan.memory.sharding = Sharding::kZero3;
  plan.framework.flat_parameters = false;
  plan.parallel.pp = 2;
  plan.parallel.dp = 2;
  plan.memory.reshard = kKeepGathered;
  Model untied = SmallGpt(4);
  untied.tied_embeddings = false;
  EXPECT_TRUE(Validate(untied, plan).message().starts_with("training.optimizer: adafactor"));
}

}  // namespace
}  // namespace orrery::workload
