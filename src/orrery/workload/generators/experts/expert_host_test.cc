// Host work of a layer's experts, counted by hand.
#include "orrery/workload/generators/experts/expert_host.h"

#include <gtest/gtest.h>

#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model HostedExperts() {
  Model m = SmallGpt(1);
  m.experts = {.count = 16, .top_k = 2, .ffn_hidden = 128};
  m.norm = Norm::kRmsNorm;
  m.tied_embeddings = false;
  return m;
}

// 4 experts on each of 4 ranks.
Plan WithHost() {
  Plan p;
  p.parallel.dp = 8;
  p.parallel.ep = 4;
  p.batch.global_batch = 8;
  p.batch.seq_len = 512;
  p.framework.host.operator_forward = 8'000;
  p.framework.host.operator_backward = 6'000;
  p.framework.host.grouped_expert = 5'000;
  return p;
}

std::int64_t HostNs(const graph::Graph& g, std::string_view block) {
  std::int64_t ps = 0;
  const graph::Block& b = FindBlock(g, block);
  for (const graph::Op& op : b.ops) {
    if (op.kind == graph::OpKind::kHost) ps += b.host_ps[op.index];
  }
  return ps / 1000;
}

// Forward, operators: router 40, counts 18, permutation and its reverse 12 each, two exchanges of
// 4, sorting twice 6, activation 6: 108 at 8 us. Two grouped GEMMs over 4 experts at 5 us.
// Backward: 24 + 2·5 + 2·3 + 2·4 + 5 = 53 at 6 us; four grouped GEMMs. The bias behind fc2: three
// operators an expert forward; backward a conversion, two products, their sums, and a cut.
constexpr std::int64_t kBiasForward = 4 * 3 * 8'000, kBiasBackward = 4 * 6 * 6'000;
TEST(ExpertHost, OperatorsAndGroupedCalls) {
  const graph::Graph g = Make(HostedExperts(), WithHost());
  EXPECT_EQ(HostNs(g, "layer.forward"), 108 * 8'000 + 2 * 4 * 5'000 + kBiasForward);
  EXPECT_EQ(HostNs(g, "layer.backward"), 53 * 6'000 + 4 * 4 * 5'000 + kBiasBackward);
}

// Bytes an element behind fc2 in bf16: the scaled bias 4 written; the sum 2 and 4 read, 4 written;
// pieces together 4 and 4; converted 4 and 2.
TEST(ExpertHost, OutputBiasesAreAddedInFp32) {
  const auto moved = [](bool biases) {
    Model m = HostedExperts();
    m.mlp_bias = biases;
    const graph::Graph g = Make(m, WithHost());
    std::int64_t sum = 0;
    for (const graph::Kernel& kernel : FindBlock(g, "layer.forward").kernels) {
      const auto* k = std::get_if<graph::MemoryBound>(&kernel);
      if (k != nullptr) sum += k->bytes_read + k->bytes_written;
    }
    return sum;
  };
  const std::int64_t rows = 512 * 2;
  EXPECT_EQ(moved(true) - moved(false), 28 * rows * HostedExperts().hidden);
}

// Fused: router 14 and 8; permutation 4 and 2, sorting 3 and 2.
TEST(ExpertHost, FusedKernelsLeaveFewerOperators) {
  Plan p = WithHost();
  p.framework.moe_fused_router = p.framework.moe_fused_permute = true;
  const graph::Graph g = Make(HostedExperts(), p);
  EXPECT_EQ(HostNs(g, "layer.forward"),
            (14 + 18 + 8 + 8 + 6 + 6) * 8'000 + 2 * 4 * 5'000 + kBiasForward);
  EXPECT_EQ(HostNs(g, "layer.backward"),
            (8 + 4 + 6 + 4 + 5) * 6'000 + 4 * 4 * 5'000 + kBiasBackward);
}

// With graphs of layers attention, router and counts cost the host one call; experts run eagerly.
TEST(ExpertHost, GraphsOfLayersEndBeforeTheDispatch) {
  Plan p = WithHost();
  p.framework.cuda_graphs = CudaGraphs::kLayers;
  p.framework.host.module_forward = 50'000;
  p.framework.host.graph = 30'000;
  const graph::Graph g = Make(HostedExperts(), p);
  // Modules of the eager part: dispatch, fc1, activation, fc2, combine.
  EXPECT_EQ(HostNs(g, "layer.forward"),
            30'000 + 5 * 50'000 + (108 - 40 - 18) * 8'000 + 2 * 4 * 5'000 + kBiasForward);
  EXPECT_EQ(FindBlock(g, "layer.forward").launch, graph::Launch::kEach);
}

// Of a layer, only what the scope names is captured: the modules of attention (norm, qkv, core,
// projection, residual) stay eager when the router alone is.
TEST(ExpertHost, GraphScope) {
  Plan p = WithHost();
  p.framework.cuda_graphs = CudaGraphs::kLayers;
  p.framework.host.module_forward = 50'000;
  p.framework.host.graph = 30'000;
  const auto host = [&](std::string_view scope) {
    p.framework.graph_scope = *ParseGraphScope(scope);
    return HostNs(Make(HostedExperts(), p), "layer.forward");
  };
  const std::int64_t all = host("attn+moe_router+moe_preprocess");
  EXPECT_EQ(host("attn+moe_router") - all, 18 * 8'000);
  EXPECT_EQ(host("moe_router+moe_preprocess") - all, 5 * 50'000);
  Plan eager = p;
  eager.framework.cuda_graphs = CudaGraphs::kNone;
  EXPECT_EQ(host("mamba"), HostNs(Make(HostedExperts(), eager), "layer.forward"));
  // Padded to its capacity all of the layer is one graph.
  p.experts.pad_to_capacity = true;
  p.framework.graph_scope = kGraphAll;
  const graph::Graph g = Make(HostedExperts(), p);
  EXPECT_EQ(HostNs(g, "layer.forward"), 30'000);
  EXPECT_EQ(FindBlock(g, "layer.forward").launch, graph::Launch::kGraph);
  EXPECT_EQ(ParseGraphScope("attn+moe_ruter").status().message(),
            "unknown part of a layer 'moe_ruter'; did you mean 'moe_router'? valid: attn, mlp, "
            "moe_router, moe_preprocess, mamba");
}

// HybridEP needs no number from the device where one graph is the whole iteration.
TEST(ExpertHost, HybridEpWaitsForTheDeviceUnlessTheIterationIsAGraph) {
  Plan p = WithHost();
  p.experts.dispatcher = Dispatcher::kHybridEp;
  const auto waits = [&] {
    const graph::Graph g = Make(HostedExperts(), p);
    return Operations(g, FindBlock(g, "layer.forward")).find("sync") != std::string::npos;
  };
  EXPECT_TRUE(waits());
  p.framework.cuda_graphs = CudaGraphs::kLayers;
  EXPECT_TRUE(waits());
  p.framework.cuda_graphs = CudaGraphs::kIteration;
  EXPECT_FALSE(waits());
}

}  // namespace
}  // namespace orrery::workload
