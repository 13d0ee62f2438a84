// Linear layers in 8 and 4 bits: which GEMMs, which casts, which bytes.
#include "orrery/workload/generators/layers/precision.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;
using graph::DType;

Plan Low(LowPrecision recipe, int tp = 1) {
  return {.parallel = {.tp = tp, .sequence_parallel = tp > 1},
          .batch = {.global_batch = 2, .micro_batch = 2, .seq_len = 256},
          .precision = {.low = recipe}};
}

std::string CastsIn(const graph::Block& block, const graph::Graph& g) {
  std::string out;
  for (const graph::Op& op : block.ops) {
    const std::string name = op.name.valid() ? g.name(op.name) : "";
    if (op.kind == graph::OpKind::kKernel && (name == "cast" || name == "maximum")) {
      out += name.front();
    }
  }
  return out;
}

TEST(Precision, LinearLayersOnly) {
  for (const auto& [recipe, type] : {std::pair{LowPrecision::kDelayed, DType::kFp8},
                                     std::pair{LowPrecision::kNvfp4, DType::kFp4}}) {
    const graph::Graph g = Make(SmallGpt(1), Low(recipe));
    for (const auto& [block, low, plain] :
         {std::tuple{"layer.forward", 4, 0}, std::tuple{"layer.backward", 8, 0},
          std::tuple{"head.forward", 0, 1}, std::tuple{"head.backward", 0, 2}}) {
      int in_low = 0, in_plain = 0;
      for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
        const auto* gemm = std::get_if<graph::Gemm>(&kernel);
        if (gemm == nullptr) continue;
        (gemm->dtype == type ? in_low : in_plain) += 1;
      }
      EXPECT_EQ(in_low, low) << block;
      EXPECT_EQ(in_plain, plain) << block;
    }
  }
}

// Forward: four operands, two of them written by a norm. Backward: four incoming gradients.
TEST(Precision, CastsByRecipe) {
  const auto casts = [](LowPrecision recipe, std::string_view block) {
    const graph::Graph g = Make(SmallGpt(1), Low(recipe));
    return CastsIn(FindBlock(g, block), g);
  };
  EXPECT_EQ(casts(LowPrecision::kNone, "layer.forward"), "");
  EXPECT_EQ(casts(LowPrecision::kDelayed, "layer.forward"), "cc");
  EXPECT_EQ(casts(LowPrecision::kDelayed, "layer.backward"), "cccc");
  EXPECT_EQ(casts(LowPrecision::kCurrent, "layer.forward"), "mcmcmcmc");
  EXPECT_EQ(casts(LowPrecision::kBlockwise, "layer.forward"), "cccc");
  EXPECT_EQ(casts(LowPrecision::kMxfp8, "layer.backward"), "cccc");
  EXPECT_EQ(casts(LowPrecision::kNvfp4, "layer.backward"), "mccmccmccmcc");
}

// Operands whose parts lie on tensor-parallel ranks share a maximum: the inputs of qkv and fc1, the
// incoming gradients of projection and fc2. Scales that need no pass over the operand have none.
TEST(Precision, SplitOperandsShareTheirMaximum) {
  const auto bytes = [](LowPrecision recipe, int tp, std::string_view block) {
    const graph::Graph g = Make(SmallGpt(1), Low(recipe, tp));
    const graph::Block& b = FindBlock(g, block);
    std::vector<std::int64_t> sizes;
    for (const graph::Op& op : b.ops) {
      if (op.kind != graph::OpKind::kComm || g.name(op.name) != "all_reduce.maximum") continue;
      sizes.push_back(b.comms[op.index].bytes.value);
    }
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(bytes(LowPrecision::kCurrent, 2, block), (Sizes{4, 4}));
    EXPECT_EQ(bytes(LowPrecision::kNvfp4, 2, block), (Sizes{8, 8}));
    EXPECT_EQ(bytes(LowPrecision::kCurrent, 1, block), Sizes{});
    EXPECT_EQ(bytes(LowPrecision::kDelayed, 2, block), Sizes{});
    EXPECT_EQ(bytes(LowPrecision::kMxfp8, 2, block), Sizes{});
  }
}

// 1,024 elements: fp8 a byte each; one scale byte per 32 (mxfp8), fp32 per 128 (blockwise); fp4
// half a byte and one scale byte per 16.
TEST(Precision, BytesOfAnOperand) {
  const auto bytes = [](LowPrecision recipe) {
    return LinearBytes(MakeShape(SmallGpt(1), Low(recipe)), 1024);
  };
  EXPECT_EQ(bytes(LowPrecision::kNone), 2048);
  EXPECT_EQ(bytes(LowPrecision::kDelayed), 1024);
  EXPECT_EQ(bytes(LowPrecision::kBlockwise), 1024 + 32);
  EXPECT_EQ(bytes(LowPrecision::kMxfp8), 1024 + 32);
  EXPECT_EQ(bytes(LowPrecision::kNvfp4), 512 + 64);
}

// Under sequence parallelism operands are gathered as cast; what is scattered stays bf16.
TEST(Precision, GathersWhatWasCast) {
  const graph::Graph plain = Make(SmallGpt(1), Low(LowPrecision::kNone, 4));
  const graph::Graph low = Make(SmallGpt(1), Low(LowPrecision::kDelayed, 4));
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(2 * Bytes(FindBlock(low, block), Collective::kAllGather),
              Bytes(FindBlock(plain, block), Collective::kAllGather));
    EXPECT_EQ(Bytes(FindBlock(low, block), Collective::kReduceScatter),
              Bytes(FindBlock(plain, block), Collective::kReduceScatter));
  }
}

// An input of qkv and fc1 (2·h) and a gradient of projection and fc2 (2·h) are gathered as cast,
// the gradient twice where each direction has its scales.
TEST(Precision, BlockScalesGatherGradientsInBothDirections) {
  const graph::Graph delayed = Make(SmallGpt(1), Low(LowPrecision::kDelayed, 4));
  const graph::Graph mx = Make(SmallGpt(1), Low(LowPrecision::kMxfp8, 4));
  const auto gathered = [](const graph::Graph& g, std::string_view block) {
    return Bytes(FindBlock(g, block), Collective::kAllGather);
  };
  EXPECT_EQ(gathered(mx, "layer.forward") * 32, gathered(delayed, "layer.forward") * 33);
  EXPECT_EQ(gathered(mx, "layer.backward") * 32, gathered(delayed, "layer.backward") * 33 * 6 / 4);
}

TEST(Precision, WeightsAreCastOncePerStep) {
  Plan plan = Low(LowPrecision::kMxfp8);
  plan.batch.global_batch = 8;
  const graph::Graph g = Make(SmallGpt(2), plan);
  int calls = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    calls += g.name(g.blocks[call.block.index()].name) == "weights.cast" ? 1 : 0;
  }
  EXPECT_EQ(calls, 1);
  const auto& cast = std::get<graph::MemoryBound>(FindBlock(g, "weights.cast").kernels[0]);
  EXPECT_EQ(cast.bytes_read, 2 * 786'432 * 2);  // two layers' matrices, bf16
  EXPECT_EQ(cast.bytes_written, 2 * 2 * 786'432 * 33 / 32);
}

TEST(Precision, GraphsAreValidAndRefusals) {
  for (int recipe = 1; recipe <= 5; ++recipe) {
    Plan plan = Low(static_cast<LowPrecision>(recipe), 2);
    plan.parallel.pp = 2;
    plan.memory.recompute = Recompute::kFull;
    plan.framework.host = {.module_forward = 1000,
                           .module_backward = 1000,
                           .low_precision = 1000,
                           .rng_fork = 1000,
                           .checkpoint = 1000,
                           .communication = 1000,
                           .unit = 1000};
    const graph::Graph g = Make(SmallGpt(2), plan);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    plan.precision.type = Precision::kFp16;
    EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.precision"));
  }
}

std::int64_t WeightsCast(const graph::Graph& g) {
  for (const graph::Kernel& kernel : FindBlock(g, "weights.cast").kernels) {
    const auto& cast = std::get<graph::MemoryBound>(kernel);
    if (cast.op == graph::MemoryOp::kCast) return cast.cols;
  }
  return 0;
}

// GEMMs of a layer's forward pass by their operands: in the plan's low precision, in bf16.
std::pair<int, int> GemmsByType(const graph::Block& block) {
  std::pair<int, int> out;
  for (const graph::Kernel& kernel : block.kernels) {
    const auto* gemm = std::get_if<graph::Gemm>(&kernel);
    if (gemm != nullptr) ++(gemm->dtype == DType::kBf16 ? out.second : out.first);
  }
  return out;
}

TEST(Precision, FirstAndLastLayersInBf16) {
  const Model model = SmallGpt(4);
  Plan plan = Low(LowPrecision::kMxfp8);
  const std::int64_t all = WeightsCast(Make(model, plan));
  plan.precision.bf16_first_layers = 1;
  plan.precision.bf16_last_layers = 2;
  EXPECT_EQ(KindOf(model, plan, 0), kBf16Layer);
  EXPECT_EQ(KindOf(model, plan, 1), kDenseLayer);
  EXPECT_EQ(KindOf(model, plan, 3), kBf16Layer);
  const graph::Graph g = Make(model, plan);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(WeightsCast(g) * 4, all);
  int low = 0, plain = 0;
  for (const graph::Call& call : g.programs.front().calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (g.name(block.name) != "layer.forward") continue;
    const auto [in_low, in_bf16] = GemmsByType(block);
    low += in_low * call.repeat, plain += in_bf16 * call.repeat;
  }
  EXPECT_EQ(low, 4);
  EXPECT_EQ(plain, 12);
}

TEST(Precision, ModulesInBf16) {
  Plan plan = Low(LowPrecision::kMxfp8);
  const std::int64_t all = WeightsCast(Make(SmallGpt(1), plan));
  plan.precision.bf16_modules = kBf16Attention;
  const graph::Graph g = Make(SmallGpt(1), plan);
  EXPECT_EQ(GemmsByType(FindBlock(g, "layer.forward")), (std::pair{2, 2}));
  EXPECT_EQ(GemmsByType(FindBlock(g, "layer.backward")), (std::pair{4, 4}));
  EXPECT_EQ(CastsIn(FindBlock(g, "layer.forward"), g), "cc");
  const Model m = SmallGpt(1);  // attention's 4 h² of 12
  EXPECT_EQ(all - WeightsCast(g), 4 * m.hidden * m.hidden);
}

// Experts or all but the experts; what is not cast is multiplied in bf16.
TEST(Precision, ExpertsAndFeedForwardsInBf16) {
  Model model = SmallGpt(1);
  model.experts = {.count = 4, .top_k = 2, .ffn_hidden = 256, .shared_ffn_hidden = 256};
  Plan plan = Low(LowPrecision::kMxfp8);
  plan.experts.dispatcher = Dispatcher::kAllToAll;
  const auto gemms = [&](std::uint8_t modules) {
    plan.precision.bf16_modules = modules;
    return GemmsByType(FindBlock(Make(model, plan), "layer.forward"));
  };
  const auto weights = [&](std::uint8_t modules) {
    plan.precision.bf16_modules = modules;
    return WeightsCast(Make(model, plan));
  };
  EXPECT_EQ(gemms(0), (std::pair{6, 1}));  // the router stays in bf16
  EXPECT_EQ(gemms(kBf16Experts), (std::pair{4, 3}));
  EXPECT_EQ(gemms(kBf16Attention | kBf16Mlp), (std::pair{2, 5}));
  EXPECT_EQ(weights(0) - weights(kBf16Experts), 4 * 2 * model.hidden * 256);
  EXPECT_EQ(weights(kBf16Attention | kBf16Mlp), 4 * 2 * model.hidden * 256);
  EXPECT_EQ(weights(kBf16Experts), 4 * model.hidden * model.hidden + 2 * model.hidden * 256);
}

TEST(Precision, AttentionAndOutputLayerIn8Bits) {
  Plan plan = Low(LowPrecision::kMxfp8);
  plan.framework.attention = AttentionBackend::kCudnn;
  const Model model = SmallGpt(1);
  const auto type_of_attention = [](const graph::Block& block) {
    for (const graph::Kernel& kernel : block.kernels) {
      if (const auto* a = std::get_if<graph::Attention>(&kernel)) return a->dtype;
    }
    return DType::kFp32;
  };
  const graph::Graph without = Make(model, plan);
  plan.framework.fp8_attention = plan.framework.fp8_output_layer = true;
  const graph::Graph with = Make(model, plan);
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(type_of_attention(FindBlock(without, block)), DType::kBf16);
    EXPECT_EQ(type_of_attention(FindBlock(with, block)), DType::kFp8);
    // Queries, keys and values are cast, or the gradient of the output.
    EXPECT_EQ(FindBlock(with, block).kernels.size(), FindBlock(without, block).kernels.size() + 1);
  }
  // An all-to-all deals out what is cast, and what the kernel gives in 16 bits.
  Plan dealt = plan;
  dealt.parallel.cp = 2;
  dealt.parallel.cp_exchange = CpExchange::kAllToAll;
  const Shape s = MakeShape(model, dealt);
  const graph::Graph over = Make(model, dealt);
  EXPECT_EQ(Bytes(FindBlock(over, "layer.forward"), Collective::kAllToAll),
            s.tokens() * (s.qkv() + 2 * s.query()));
  EXPECT_EQ(Bytes(FindBlock(over, "layer.backward"), Collective::kAllToAll),
            s.tokens() * (s.query() + 2 * s.qkv()));
  EXPECT_EQ(GemmsByType(FindBlock(without, "head.forward")), (std::pair{0, 1}));
  EXPECT_EQ(GemmsByType(FindBlock(with, "head.forward")), (std::pair{1, 0}));
  EXPECT_EQ(GemmsByType(FindBlock(with, "head.backward")), (std::pair{2, 0}));
  EXPECT_EQ(WeightsCast(with) - WeightsCast(without), MakeShape(model, plan).vocab * model.hidden);
}

TEST(Precision, MixturesThatMakeNoSenseAreRefused) {
  const auto says = [](const Plan& plan, std::string_view text) {
    const std::string message = Validate(SmallGpt(2), plan).message();
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  Plan plan = Low(LowPrecision::kNone);
  plan.precision.bf16_last_layers = 1;
  says(plan, "training.bf16_last_layers: without precision fp8, mxfp8 or nvfp4");
  plan = Low(LowPrecision::kMxfp8);
  plan.precision.bf16_first_layers = plan.precision.bf16_last_layers = 2;
  says(plan, "2 layers in bf16 at the start and 2 at the end");
  plan = Low(LowPrecision::kMxfp8);
  plan.precision.bf16_modules = kBf16Mtp;
  says(plan, "training.bf16_modules");
  plan = Low(LowPrecision::kBlockwise);
  plan.framework.fp8_attention = true;
  says(plan, "framework_options.fp8_attention");
  plan = Low(LowPrecision::kNvfp4);
  plan.framework.attention = AttentionBackend::kCudnn;
  plan.framework.fp8_attention = true;
  plan.parallel.cp = 2;
  plan.parallel.cp_exchange = CpExchange::kAllGather;
  says(plan, "use framework_options.cp_exchange: ring or all-to-all");
  plan = Low(LowPrecision::kMxfp8);
  plan.framework.fp8_attention = true;
  plan.framework.attention = AttentionBackend::kFlash2;
  says(plan, "use attention: cudnn");
  plan = Low(LowPrecision::kNone);
  plan.framework.fp8_output_layer = true;
  says(plan, "framework_options.fp8_output_layer");
}

// Host work of a layer: 10 modules each way, two collectives' Python each way (tp), the random
// state.
TEST(HostWorkOfALayer, CountsItsPieces) {
  Plan plan = Low(LowPrecision::kNone, 2);
  plan.parallel.sequence_parallel = false;
  plan.framework.host = {
      .module_forward = 7, .module_backward = 5, .rng_fork = 3, .communication = 11};
  const graph::Graph g = Make(SmallGpt(1), plan);
  const auto host = [&](std::string_view block) {
    std::int64_t sum = 0;
    for (const std::int64_t ps : FindBlock(g, block).host_ps) sum += ps;
    return sum / 1000;
  };
  EXPECT_EQ(host("layer.forward"), 10 * 7 + 3 + 2 * 11);
  EXPECT_EQ(host("layer.backward"), 10 * 5 + 2 * 11);
}

// A quiet loop takes three of a loop's twelve milliseconds a priori, with a graph of the iteration,
// too.
TEST(HostWorkOfALoop, IsLessWhereNothingIsLogged) {
  Plan plan = Low(LowPrecision::kNone);
  const constants::Set known;
  for (const CudaGraphs graphs : {CudaGraphs::kNone, CudaGraphs::kIteration}) {
    plan.framework.cuda_graphs = graphs;
    plan.framework.quiet_loop = false;
    EXPECT_EQ(HostOf(HostEra::kCore, plan, known).step, 12'000'000);
    plan.framework.quiet_loop = true;
    EXPECT_EQ(HostOf(HostEra::kCore, plan, known).step, 3'000'000);
    EXPECT_EQ(HostOf(HostEra::kFsdp, plan, known).step, 0);
  }
}

}  // namespace
}  // namespace orrery::workload
