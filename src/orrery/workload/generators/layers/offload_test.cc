// Activations and the optimizer in host memory; CUDA graphs.
#include "orrery/workload/generators/layers/offload.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

Plan Base() { return {.parallel = {.pp = 2}, .batch = {.global_batch = 4, .seq_len = 128}}; }

std::int64_t CopiedBytes(const graph::Graph& g, const graph::Program& program, Collective kind) {
  std::int64_t sum = 0;
  for (const graph::Call& call : program.calls) {
    sum += call.repeat * Bytes(g.blocks[call.block.index()], kind);
  }
  return sum;
}

// What a layer keeps goes out once and comes back once a micro-batch; nothing stays on the device.
TEST(Offload, EveryByteGoesOutAndComesBack) {
  const graph::Graph plain = Make(SmallGpt(6), Base());
  const std::int64_t kept = SavedBytes(FindBlock(plain, "layer.forward"));
  Plan plan = Base();
  plan.memory.offload_activations = true;
  const graph::Graph g = Make(SmallGpt(6), plan);
  for (const graph::Program& program : g.programs) {
    EXPECT_EQ(CopiedBytes(g, program, Collective::kCopyToHost), 4 * 3 * kept);
    EXPECT_EQ(CopiedBytes(g, program, Collective::kCopyToDevice), 4 * 3 * kept);
  }
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")), 0);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Offload, CopiesStandBesideTheNextLayer) {
  Plan plan = Base();
  plan.memory.offload_activations = true;
  const graph::Graph g = Make(SmallGpt(6), plan);
  // Of the first backward pass: the last layer's copy is started; two layers wait for theirs and
  // start the next one's; the first layer waits.
  std::vector<std::string> backward;
  for (const graph::Call& call : g.programs[1].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    const std::string& name = g.name(block.name);
    if (name != "layer.backward" && name != "offload.reload") continue;
    const std::string ops = Operations(g, block);
    backward.push_back(fmt::format("{}{}x{}", ops.starts_with("?") ? "wait " : "",
                                   ops.find("to_device") != std::string::npos ? "copy " : "",
                                   call.repeat));
    if (backward.size() == 3) break;
  }
  EXPECT_EQ(Join(backward), "copy x1 wait copy x2 wait x1");
}

// "+0" the copy of layer 0 begins, "-0" it is over (forward: the memory is free; backward: the
// layer is there), "0" the layer.
std::string Copies(const graph::Graph& g, std::string_view layer, std::string_view begin,
                   std::string_view end) {
  std::string out;
  for (const graph::Call& call : g.programs[0].calls) {
    const std::string& name = g.name(g.blocks[call.block.index()].name);
    const char* sign = name == begin ? "+" : name == end ? "-" : "";
    if (call.microbatch != 0 || (name != layer && *sign == 0)) continue;
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", sign, call.first_layer);
  }
  return out;
}

// Two of five layers, as Transformer Engine's default: layer i has left when layer 5 - 2 + i
// begins, and its copy back begins before layer 5 - 1 - 2 + i. So three layers' activations lie on
// the GPU.
TEST(Offload, OfTheFirstLayersAlone) {
  Plan plan = Base();
  plan.parallel.pp = 1;
  plan.memory.offload_activations = true;
  plan.memory.offload_layers = 2;
  const graph::Graph g = Make(SmallGpt(5), plan);
  EXPECT_EQ(Copies(g, "layer.forward", "offload.begin", "offload.end"), "0 +0 1 +1 2 -0 3 -1 4");
  EXPECT_EQ(Copies(g, "layer.backward", "reload.begin", "reload.end"), "4 +1 3 +0 2 -1 1 -0 0");
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  const std::int64_t kept = SavedBytes(FindBlock(g, "layer.forward"));
  EXPECT_EQ(CopiedBytes(g, g.programs[0], Collective::kCopyToHost), 4 * 2 * kept);
  EXPECT_EQ(CopiedBytes(g, g.programs[0], Collective::kCopyToDevice), 4 * 2 * kept);
  plan.memory.offload_layers = 5;
  EXPECT_TRUE(Validate(SmallGpt(5), plan).message().starts_with("training.offload_layers: 5 of 5"));
  plan.memory.offload_layers = 2;
  plan.parallel.pp = 2;
  EXPECT_TRUE(Validate(SmallGpt(6), plan).message().starts_with("training.offload_layers: some"));
}

// Tokens 128, hidden 256, 2 bytes: attention's input to its projection is 65,536 bytes, queries,
// keys and values three times as much.
TEST(Offload, OfModulesAlone) {
  Plan plan = Base();
  plan.memory.offload_activations = true;
  const auto copied = [&](std::uint8_t modules) {
    plan.memory.offload_modules = modules;
    const graph::Graph g = Make(SmallGpt(6), plan);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    return CopiedBytes(g, g.programs[0], Collective::kCopyToHost) / (4 * 3);
  };
  EXPECT_EQ(copied(kOffloadProjection), 65'536);
  EXPECT_EQ(copied(kOffloadCore), 3 * 65'536);
  EXPECT_EQ(copied(kOffloadCore | kOffloadProjection), 4 * 65'536);
  EXPECT_EQ(copied(kOffloadAttnNorm), 65'536);
  plan.memory.offload_modules = kOffloadMoeAct;
  EXPECT_TRUE(Validate(SmallGpt(6), plan).message().starts_with("training.offload_modules: small"));
}

TEST(Offload, TheCpuUpdates) {
  Plan plan = Base();
  plan.parallel.pp = 1;
  plan.memory.offload_optimizer = true;
  plan.parallel.ranks_per_host = 4;
  const graph::Graph g = Make(SmallGpt(2), plan);
  const std::int64_t n = 2 * 789'760 + 256 * (1024 + 512) + 512;
  const graph::Block& optimizer = FindBlock(g, "optimizer");
  EXPECT_EQ(Bytes(optimizer, Collective::kCopyToHost), 4 * n);
  EXPECT_EQ(Bytes(optimizer, Collective::kCopyToDevice), 2 * n);
  ASSERT_EQ(optimizer.host_ps.size(), 1u);
  EXPECT_EQ(optimizer.host_ps[0], n * 250 * 4 / 1000 * 1000);  // 250 ps each, a fourth of the CPU
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) bytes += b.bytes;
  EXPECT_EQ(bytes, (2 + 4) * n);  // parameters and gradients
}

TEST(CudaGraphs, LayersOrTheIteration) {
  Plan plan = Base();
  plan.framework.host = {.module_forward = 40'000, .communication = 25'000, .graph = 30'000};
  plan.framework.cuda_graphs = CudaGraphs::kLayers;
  graph::Graph g = Make(SmallGpt(4), plan);
  EXPECT_EQ(FindBlock(g, "layer.forward").launch, graph::Launch::kGraph);
  EXPECT_EQ(FindBlock(g, "layer.forward").host_ps, (std::vector<std::int64_t>{30'000'000}));
  EXPECT_EQ(FindBlock(g, "head.forward").launch, graph::Launch::kEach);
  plan.framework.cuda_graphs = CudaGraphs::kIteration;
  g = Make(SmallGpt(4), plan);
  EXPECT_EQ(FindBlock(g, "zero_gradients").launch, graph::Launch::kGraph);
  EXPECT_EQ(FindBlock(g, "layer.forward").launch, graph::Launch::kInGraph);
  EXPECT_TRUE(FindBlock(g, "layer.forward").host_ps.empty());
  EXPECT_EQ(FindBlock(g, "optimizer").launch, graph::Launch::kEach);  // the host reads the norm
  plan.memory.sharding = Sharding::kZero3;
  plan.parallel.pp = 1;
  plan.parallel.dp = 2;
  EXPECT_TRUE(Validate(SmallGpt(4), plan).message().starts_with("framework_options.cuda_graphs"));
}

}  // namespace
}  // namespace orrery::workload
