#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model SmallHybrid(std::string pattern) {
  Model m = SmallGpt(static_cast<int>(pattern.size()));
  m.name = "small hybrid";
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSquaredRelu;
  m.position = Position::kNone;
  m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
  m.mamba = {.heads = 8, .head_dim = 64, .state = 32, .groups = 4, .chunk = 128};
  m.experts = {.count = 8, .top_k = 2, .ffn_hidden = 128, .shared_ffn_hidden = 256};
  m.pattern = std::move(pattern);
  return m;
}

Plan One() {
  Plan p;
  p.batch.global_batch = 1;
  p.batch.seq_len = 512;
  return p;
}

std::int64_t Elements(const Model& m, const Plan& p) {
  const Shape s = MakeShape(m, p);
  std::int64_t n = 0;
  const auto add = [&n](const std::vector<std::int64_t>& tensors) {
    for (const std::int64_t t : tensors) n += t;
  };
  for (std::int64_t l = 0; l < m.layers; ++l) {
    add(LayerParameters(OfKind(s, m.layer_kind(l))));
    if ((m.layer_kind(l) & kExpertLayer) != 0) add(ExpertParameters(s));
  }
  add(EmbeddingParameters(s));
  add(HeadParameters(s, true));
  return n;
}

TEST(Hybrid, ParametersArePublished) {
  const std::vector<std::pair<std::string, double>> published = {{"nemotron-h-8b", 8.10e9},
                                                                 {"nemotron-h-47b", 46.8e9},
                                                                 {"nemotron-h-56b", 56.3e9},
                                                                 {"nemotron-3-nano", 31.6e9},
                                                                 {"nemotron-3-super", 120.6e9}};
  for (const auto& [name, count] : published) {
    EXPECT_NEAR(static_cast<double>(FindModel(name)->parameters()) / count, 1, 0.001) << name;
  }
  // Nemotron 3's cards: 3.2 and 12.1 billion without the embedding, 3.6 and 12.7 with it.
  EXPECT_NEAR(static_cast<double>(FindModel("nemotron-3-nano")->active_parameters()), 3.6e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(FindModel("nemotron-3-super")->active_parameters()), 12.7e9,
              0.2e9);
}

// Two ranks share a sequence of 1,024: each exchanges its 512 tokens' z, x, B, C and dt (2·512 +
// 2·4·32 + 8 columns), then the scan's output and z (512 each), in 16 bits; backward the reverse.
// The scan's products are those of a rank with 512 tokens of its own, until there are more ranks
// than groups: then a group's B and C are copied, and its products computed once a rank.
TEST(Hybrid, ContextParallelScansDealOutHeads) {
  Model model = SmallHybrid("MM");
  Plan plan = One();
  const double alone = GemmFlops(FindBlock(Make(model, plan), "layer.forward"));
  plan.parallel.cp = 2;
  plan.batch.seq_len = 1024;
  graph::Graph g = Make(model, plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const std::string_view name : {"layer.forward", "layer.backward"}) {
    const graph::Block& block = FindBlock(g, name);
    EXPECT_EQ(Bytes(block, graph::Collective::kAllToAll),
              512 * 2 * (2 * 512 + 2 * 4 * 32 + 8 + 2 * 512));
  }
  EXPECT_DOUBLE_EQ(GemmFlops(FindBlock(g, "layer.forward")), alone);
  model.mamba.groups = 1;
  plan.parallel.cp = 1;
  plan.batch.seq_len = 512;
  const double one = GemmFlops(FindBlock(Make(model, plan), "layer.forward"));
  plan.parallel.cp = 2;
  plan.batch.seq_len = 1024;
  g = Make(model, plan);
  // C·Bᵀ of four chunks of 128: 2·128·128·32 operations each, once more.
  EXPECT_DOUBLE_EQ(GemmFlops(FindBlock(g, "layer.forward")) - one, 4.0 * 2 * 128 * 128 * 32);
  EXPECT_EQ(Bytes(FindBlock(g, "layer.forward"), graph::Collective::kAllToAll),
            512 * 2 * (2 * 512 + 2 * 2 * 32 + 8 + 2 * 512));
  model.mamba.groups = 4;
  plan.parallel.cp = 16;
  plan.batch.seq_len = 4096;
  EXPECT_TRUE(Validate(model, plan).message().starts_with("parallel.cp: 16 for the 8 heads"));
}

TEST(Hybrid, TensorsAddUpToTheModel) {
  Model m = SmallHybrid("ME*-M");
  m.vocab = 1024;
  EXPECT_EQ(Elements(m, One()), m.parameters());
  m.experts.latent = 64;
  EXPECT_EQ(Elements(m, One()), m.parameters());
}

// One Mamba layer of 512 tokens, hidden 256, inner 512, 4 groups of state 32, 8 heads, chunks of
// 128. Projections: 2·512·256·(2·512 + 2·4·32 + 8 + 512); C·Bᵀ of four chunks and groups.
TEST(Hybrid, GemmsOfAMambaLayer) {
  const graph::Graph with = Make(SmallHybrid("M"), One());
  const double projections = 2.0 * 512 * 256 * (2 * 512 + 2 * 4 * 32 + 8 + 512);
  const double products = 2.0 * 512 * 4 * 128 * 32;
  EXPECT_EQ(BlockFlops(FindBlock(with, "layer.forward")), projections + products);
  EXPECT_EQ(BlockFlops(FindBlock(with, "layer.backward")), 2 * projections + 3 * products);
}

struct ScanTraffic {
  std::int64_t decays = 0, read = 0, written = 0;
};
ScanTraffic TrafficOf(const graph::Graph& g, std::string_view of, std::string_view name) {
  const graph::Block& block = FindBlock(g, of);
  ScanTraffic t;
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel || g.name(op.name) != name) continue;
    const auto& k = std::get<graph::MemoryBound>(block.kernels[op.index]);
    if (k.op == graph::MemoryOp::kStateDecay) t.decays += k.rows * k.cols;
    t.read += k.bytes_read, t.written += k.bytes_written;
  }
  return t;
}

// The same layer: x and y 512·8·64 numbers in 16 bits, two fp32 sums a token and head, states
// 4·8·64·32, B or C 512·4·32 in 16 bits, C·Bᵀ 512·4·128 in fp32. Decays: of a chunk of 128 three
// tiles of 64 x 64, 96 a token and head; forward once, backward for x, C·Bᵀ and twice for the sums.
TEST(Hybrid, ScanMovesStatesAndEvaluatesDecays) {
  constexpr std::int64_t x = 512 * 8 * 64 * 2, sums = 512 * 8 * 2 * 4, states = 4 * 8 * 64 * 32;
  constexpr std::int64_t b = 512 * 4 * 32 * 2, products = 512 * 4 * 128 * 4, decays = 512 * 8 * 96;
  const graph::Graph g = Make(SmallHybrid("M"), One());
  const std::string_view forward = "layer.forward", backward = "layer.backward";
  const auto expect = [](const ScanTraffic& t, std::int64_t evaluated, std::int64_t read,
                         std::int64_t written) {
    EXPECT_EQ(t.decays, evaluated);
    EXPECT_EQ(t.read, read);
    EXPECT_EQ(t.written, written);
  };
  expect(TrafficOf(g, forward, "chunk_state"), 0, x + sums + b, states * 4);
  expect(TrafficOf(g, forward, "state_passing"), 0, states * 4, states * 2);
  expect(TrafficOf(g, forward, "chunk_scan"), decays, x + sums + states * 2 + b + products, x);
  expect(TrafficOf(g, backward, "state_passing"), 0, states * (4 + 8), states * (4 + 4));
  expect(TrafficOf(g, backward, "chunk_scan.input"), decays,
         2 * x + sums + states * 2 + b + products, x + sums / 2);
  expect(TrafficOf(g, backward, "chunk_scan.products"), decays, 2 * x + sums, products);
  expect(TrafficOf(g, backward, "chunk_scan.sums"), 2 * decays, 2 * x + sums + products, sums / 2);
}

// A micro-batch of two sequences is brought in order before the scan and back behind it.
TEST(Hybrid, SequencesOfAMicroBatchAreCopied) {
  Plan plan = One();
  const auto copies = [&](std::string_view block) {
    return TrafficOf(Make(SmallHybrid("M"), plan), block, "batch_first");
  };
  EXPECT_EQ(copies("layer.forward").read, 0);
  plan.batch.micro_batch = plan.batch.global_batch = 2;
  for (const std::string_view block : {"layer.forward", "layer.backward"}) {
    EXPECT_EQ(copies(block).read, 2 * 512 * 2 * (2 * 512 + 2 * 4 * 32 + 8 + 512));
    EXPECT_EQ(copies(block).written, copies(block).read);
  }
}

TEST(Hybrid, EveryKindOfLayerVerifies) {
  for (const std::string pattern : {"M", "*", "-", "E", "ME*-", "M-*-ME"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      Plan p = One();
      p.parallel.tp = 2;
      p.parallel.sequence_parallel = true;
      p.memory.recompute = recompute;
      Model m = SmallHybrid(pattern);
      m.experts.latent = 64;
      for (const LowPrecision low : {LowPrecision::kNone, LowPrecision::kMxfp8}) {
        p.precision.low = low;
        const graph::Graph g = Make(m, p);
        const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
        EXPECT_TRUE(status.ok()) << pattern << ": " << status.message();
      }
    }
  }
}

// Every other layer a mixer of linear attention: 8 heads of values 64 wide, keys 32, of the delta
// net in 4 heads; 512 tokens.
Model SmallLinear(Mixer kind) {
  Model m = SmallHybrid("");
  m.layers = 2;
  m.pattern.clear();
  m.full_every = 2;
  m.experts = {};
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.mamba.kind = kind;
  m.mamba.chunk = kind == Mixer::kLightning ? 128 : 64;
  if (kind == Mixer::kKimiDelta) m.mamba.groups = 8, m.mamba.gate_rank = 16;
  if (kind == Mixer::kLightning) m.mamba.groups = 8, m.mamba.conv = 0;
  m.attention_gate = kind == Mixer::kDeltaNet;
  return m;
}

TEST(LinearAttention, TensorsAddUpToTheModel) {
  for (const Mixer kind :
       {Mixer::kDeltaNet, Mixer::kLightning, Mixer::kKimiDelta, Mixer::kShortConv}) {
    Model m = SmallLinear(kind);
    m.vocab = 1024;
    EXPECT_EQ(Elements(m, One()), m.parameters());
  }
}

double ScanFlops(const graph::Block& block) {
  double flops = 0;
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kKernel) continue;
    const auto* gemm = std::get_if<graph::Gemm>(&block.kernels[op.index]);
    if (gemm == nullptr || gemm->kind != graph::GemmKind::kScan) continue;
    flops += 2.0 * static_cast<double>(gemm->batch * gemm->m * gemm->n * gemm->k);
  }
  return flops;
}

// By head and token, Q = 64, K = 32, V = 64. Delta net forward: KKt, QKt and the writes' keys Q·K
// each, writes' values and output Q·V each, the state read twice and written once K·V each.
// Lightning, Q = 128: QKt Q·K, output Q·V, state written and read.
TEST(LinearAttention, ProductsOfAScan) {
  const auto flops = [](Mixer kind, std::string_view name) {
    Model m = SmallLinear(kind);
    m.pattern = "mm";
    return ScanFlops(FindBlock(Make(m, One()), name));
  };
  constexpr double kHeadTokens = 2.0 * 512 * 8;
  EXPECT_EQ(flops(Mixer::kDeltaNet, "layer.forward"),
            kHeadTokens * (3 * 64 * 32 + 2 * 64 * 64 + 3 * 32 * 64));
  // Backward runs the writes and the state's way again (Q·K + Q·V + 2·K·V), then 7 products of Q·K,
  // 4 of Q·V, 6 of K·V and two of Q·Q.
  EXPECT_EQ(flops(Mixer::kDeltaNet, "layer.backward"),
            kHeadTokens * (8 * 64 * 32 + 5 * 64 * 64 + 8 * 32 * 64 + 2 * 64 * 64));
  EXPECT_EQ(flops(Mixer::kLightning, "layer.forward"),
            kHeadTokens * (128 * 32 + 128 * 64 + 2 * 32 * 64));
  EXPECT_EQ(flops(Mixer::kLightning, "layer.backward"),
            kHeadTokens * (3 * 128 * 32 + 2 * 128 * 64 + 5 * 32 * 64));
}

TEST(LinearAttention, EveryPlanVerifies) {
  for (const Mixer kind :
       {Mixer::kDeltaNet, Mixer::kLightning, Mixer::kKimiDelta, Mixer::kShortConv}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      Plan p = One();
      p.parallel.tp = 2;
      p.parallel.sequence_parallel = true;
      p.memory.recompute = recompute;
      for (const LowPrecision low : {LowPrecision::kNone, LowPrecision::kMxfp8}) {
        p.precision.low = low;
        const graph::Graph g = Make(SmallLinear(kind), p);
        const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

// By hand: hidden 256; Kimi's 8 heads of 64 with keys of 32 project keys, queries and values (1,024
// channels), strengths (8) and 16 values each for gate and decays, which become 512 and 256; the
// short convolution three times 512. Products of the scan as the delta net's.
TEST(LinearAttention, ProductsOfGates) {
  const auto flops = [](Mixer kind) {
    Model m = SmallLinear(kind);
    m.pattern = "mm";
    const graph::Graph g = Make(m, One());
    const graph::Block& block = FindBlock(g, "layer.forward");
    return (GemmFlops(block) - ScanFlops(block)) / (2.0 * 512);
  };
  const double rest = 512 * 256 + 3 * 256 * static_cast<double>(SmallLinear({}).ffn_hidden);
  EXPECT_EQ(flops(Mixer::kKimiDelta), rest + 256 * (1024 + 8 + 32) + 16 * (512 + 256));
  EXPECT_EQ(flops(Mixer::kShortConv), rest + 256 * 3 * 512);
}

// Decays of every channel of a key, in fp32, are kept besides.
TEST(LinearAttention, KimiKeepsDecays) {
  const auto saved = [](Mixer kind, std::int64_t rank) {
    Model m = SmallLinear(kind);
    m.attention_gate = false;
    m.mamba.groups = 8;
    m.mamba.gate_rank = rank;
    m.pattern = "mm";
    return SavedBytes(FindBlock(Make(m, One()), "layer.forward"));
  };
  // A token: decays of 8·32 before (2 bytes) and behind (4), one strength in place of two numbers.
  EXPECT_EQ(saved(Mixer::kKimiDelta, 0) - saved(Mixer::kDeltaNet, 0),
            512 * (8 * 32 * (2 + 4) - 8 * 2 - 8 * 4));
}

// Without its gate the same model has a narrower product and no kernel behind attention.
TEST(LinearAttention, AttentionHasAGate) {
  Model m = SmallLinear(Mixer::kDeltaNet);
  m.pattern = "DD";
  const double gated = GemmFlops(FindBlock(Make(m, One()), "layer.forward"));
  m.attention_gate = false;
  const double plain = GemmFlops(FindBlock(Make(m, One()), "layer.forward"));
  EXPECT_EQ(gated - plain, 2.0 * 512 * 256 * 256);
}

TEST(LinearAttention, RulesNameFieldAndRemedy) {
  Model m = SmallLinear(Mixer::kDeltaNet);
  EXPECT_TRUE(Validate(m).ok());
  m.mamba.groups = 3;
  EXPECT_EQ(Validate(m).message(), "model.mamba_groups: 3 heads of keys do not divide 8 of values");
  m.mamba.groups = 4;
  m.mamba.conv = 0;
  EXPECT_EQ(Validate(m).message(),
            "model.mamba_conv: 0 is outside 1 … 64; give the model's true size");
}

TEST(Hybrid, RulesNameFieldAndRemedy) {
  Model m = SmallHybrid("ME*-");
  EXPECT_TRUE(Validate(m).ok());
  m.pattern = "ME*";
  EXPECT_EQ(Validate(m).message(), "model.pattern: 3 letters for 4 layers; give one a layer");
  m.pattern = "ME*x";
  EXPECT_EQ(Validate(m).message(),
            "model.pattern: layers with a window (d, x), but model.window is 0");
  m.pattern = "ME*Q";
  EXPECT_EQ(Validate(m).message(),
            "model.pattern: letter 4 is 'Q'; valid: M (Mamba), * (attention), - (feed-forward), E "
            "(experts), D (attention and feed-forward), X (attention and experts), d and x (the "
            "same with a window), m (Mamba and feed-forward), e (Mamba and experts)");
  m.pattern = "ME*-";
  Plan p = One();
  p.parallel.tp = 8;
  EXPECT_EQ(Validate(m, p).message(),
            "parallel.tp: 8 does not divide the 8 heads and 4 groups of small hybrid's Mamba "
            "layers; use a divisor of both");
}

// The first Mamba of 512 channels with 16 states, dt by way of 16 values: x and z 2·512·256, the
// projection back 512·256, to dt, B and C 48·512, dt 16·512.
TEST(FirstMamba, Layer) {
  Model m = SmallHybrid("MM");
  m.experts = {};
  m.mamba = {.kind = Mixer::kMamba1,
             .heads = 512,
             .head_dim = 1,
             .state = 16,
             .groups = 1,
             .gate_rank = 16};
  const std::int64_t products = 3 * 512 * 256 + 48 * 512 + 16 * 512;
  const std::int64_t vectors = 512 * (4 + 1) + 512 + 512 * 16 + 512;
  EXPECT_EQ(Elements(m, One()), 2 * (products + vectors + 256) + 2 * 256 * 1024 + 256);
  const graph::Graph g = Make(m, One());
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  const graph::Block& forward = FindBlock(g, "layer.forward");
  EXPECT_NE(Operations(g, forward)
                .find("in_projection causal_convolution x_projection "
                      "dt_projection selective_scan out_projection"),
            std::string::npos)
      << Operations(g, forward);
  EXPECT_EQ(GemmFlops(forward), 2.0 * 512 * static_cast<double>(products));
  // Gradients of inputs and of weights; dt of its values once more.
  EXPECT_EQ(GemmFlops(FindBlock(g, "layer.backward")),
            2.0 * 512 * static_cast<double>(2 * products + 16 * 512));
  // An exponential for each state, token and channel.
  for (const graph::Kernel& kernel : forward.kernels) {
    const auto* scan = std::get_if<graph::MemoryBound>(&kernel);
    if (scan == nullptr || scan->op != graph::MemoryOp::kStateDecay) continue;
    EXPECT_EQ(scan->rows * scan->cols, 512 * 512 * 16);
  }
  Plan p = One();
  p.memory.recompute = Recompute::kFull;
  EXPECT_TRUE(graph::Verify(Make(m, p), graph::VerifyLevel::kFull).ok());
  p.parallel.cp = 2;
  EXPECT_TRUE(Validate(m, p).message().starts_with("parallel.cp: the mixer of small hybrid"));
}

}  // namespace
}  // namespace orrery::workload
