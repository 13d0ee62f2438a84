// ZeRO-2 and ZeRO-3: bytes and memory by hand, order of gathers and reductions, refusals.
#include "orrery/workload/generators/sharding/sharded_units.h"

#include <gtest/gtest.h>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

// A layer of SmallGpt: matrices 786,432, biases 2,304, norms 1,024. Its root: tables of 1,024
// padded words and 512 positions, final norm 512.
constexpr std::int64_t kLayer = 789'760, kRoot = 256 * (1024 + 512) + 512;

Plan Sharded(Sharding sharding, std::int64_t microbatches) {
  return {.parallel = {.dp = 4},
          .batch = {.global_batch = 4 * microbatches, .micro_batch = 1, .seq_len = 256},
          .memory = {.sharding = sharding}};
}

TEST(Sharded, TrafficOfAStep) {
  // Three layers, two micro-batches, bf16 gathered, fp32 reduced. ZeRO-3 gathers layers twice, the
  // root once; ZeRO-2 all of them once.
  const std::int64_t once = 3 * kLayer + kRoot;
  graph::Graph g = Make(SmallGpt(3), Sharded(Sharding::kZero3, 2));
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * 2 * (once + 3 * kLayer));
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 4 * once);
  g = Make(SmallGpt(3), Sharded(Sharding::kZero2, 2));
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * 2 * once);
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 4 * once);
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.framework.grad_reduce_fp32 = false;
  g = Make(SmallGpt(3), plan);
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 2 * once);
  plan.precision.low = LowPrecision::kCurrent;  // layers gathered in a byte, the root in two
  plan.framework.low_precision_gather = true;
  g = Make(SmallGpt(3), plan);
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * (6 * kLayer + 2 * kRoot));
}

// Shards in host memory: a rank copies its part of every gather, and keeps none of it.
TEST(Sharded, ParametersInHostMemory) {
  for (const int layers : {1, 2, 3, 5}) {
    for (const bool prefetch : {true, false}) {
      Plan plan = Sharded(Sharding::kZero3, 2);
      plan.memory.offload_optimizer = plan.memory.offload_parameters = true;
      plan.framework.prefetch = prefetch;
      const graph::Graph g = Make(SmallGpt(layers), plan);
      const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
      ASSERT_TRUE(verified.ok()) << verified.message();
      std::int64_t copied = 0;
      for (const graph::Call& call : g.programs[0].calls) {
        for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
          if (comm.collective != Collective::kCopyToDevice) continue;
          copied += call.repeat * comm.bytes.value;
          EXPECT_EQ(comm.blocking, !prefetch || comm.bytes.value == 2 * kRoot / 4);
        }
      }
      EXPECT_EQ(copied, DpBytes(g, Collective::kAllGather) / 4) << layers;
      std::int64_t kept = 0;
      for (const graph::Buffer& b : g.blocks[g.programs[0].prologue[0].block.index()].buffers) {
        kept += b.bytes;
      }
      EXPECT_EQ(kept, 2 * kLayer / 4 * 2);  // two layers' shards of two bytes an element
    }
  }
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.memory.offload_optimizer = plan.memory.offload_parameters = true;
  const graph::Graph g = Make(SmallGpt(3), plan);
  std::string order = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_EQ(order.substr(0, order.find("layer_norm")), "?4 ?6 all_gather+4 shard.to_device+6 ");
}

// Bytes of one group's communications over one iteration.
std::int64_t GroupBytes(const graph::Graph& g, Collective kind, graph::GroupSlot slot) {
  std::int64_t sum = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      if (comm.collective == kind && comm.group == slot) sum += call.repeat * comm.bytes.value;
    }
  }
  return sum;
}

// Three layers, the first dense, then two with 8 experts of 256 -> 128 over ep 2 of 4 ranks. An
// expert has 2·256·128 weights, and their biases 128 + 256; four lie on a rank, two ranks share
// them. A router has 8·256.
TEST(Sharded, ExpertsAreUnitsOfTheirOwn) {
  Model model = SmallGpt(3);
  model.experts.count = 8;
  model.experts.top_k = 2;
  model.experts.ffn_hidden = 128;
  model.experts.first_dense = 1;
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.parallel.ep = 2;
  const graph::Graph g = Make(model, plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  constexpr std::int64_t kExperts = 4 * (2 * 256 * 128 + 128 + 256);
  constexpr std::int64_t kMlp = 2 * 256 * 1024 + 1024 + 256, kRouter = 8 * 256;
  constexpr std::int64_t kRest = kLayer - kMlp + kRouter;
  constexpr std::int64_t kDense = kLayer + 2 * kRest;
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * 2 * (2 * kDense + kRoot));
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 2 * 4 * (kDense + kRoot));
  const auto slot = graph::GroupSlot::kExpertDp;
  EXPECT_EQ(GroupBytes(g, Collective::kAllGather, slot), 2 * 2 * 2 * 2 * kExperts);
  EXPECT_EQ(GroupBytes(g, Collective::kReduceScatter, slot), 2 * 4 * 2 * kExperts);
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) bytes += b.bytes;
  EXPECT_EQ(bytes, 16 * ((kDense + kRoot) / 4 + 2 * kExperts / 2));
  // All of the data-parallel ranks' experts on one: nobody shares them.
  plan.parallel.ep = 4;
  const graph::Graph alone = Make(model, plan);
  EXPECT_EQ(GroupBytes(alone, Collective::kAllGather, slot), 0);
  bytes = 0;
  for (const graph::Buffer& b : FindBlock(alone, "static").buffers) bytes += b.bytes;
  EXPECT_EQ(bytes, 16 * ((kDense + kRoot) / 4 + 2 * kExperts / 2));
}

// Layers of a hybrid have units of their own sizes: what is gathered is what they hold.
TEST(Sharded, LayersOfDifferentKinds) {
  Model model = SmallGpt(4);
  model.window = 64;
  model.full_every = 2;
  model.pattern.clear();
  graph::Graph g = Make(model, Sharded(Sharding::kZero3, 1));
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * (8 * kLayer + kRoot));
  model = SmallGpt(4);
  model.pattern = "*-*-";
  g = Make(model, Sharded(Sharding::kZero3, 1));
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  // An attention layer and a feed-forward are a layer: their norms are two there, too.
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * (2 * 2 * kLayer + kRoot));
}

// fully_shard's reshard_after_forward: 2 of four ranks. Forward gathers over all and keeps half;
// backward gathers over pairs; the half is given back there.
TEST(Sharded, ReshardToAPart) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  plan.framework.flat_parameters = false;
  plan.memory.reshard = 2;
  const graph::Graph g = Make(SmallGpt(3), plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * (3 * kLayer + kRoot));
  EXPECT_EQ(GroupBytes(g, Collective::kAllGather, graph::GroupSlot::kShard), 2 * 3 * kLayer);
  for (std::size_t i = 0; i < g.groups.size(); ++i) {
    if (g.groups.slot(GroupId(i)) != graph::GroupSlot::kShard) continue;
    EXPECT_EQ(g.groups.members(GroupId(i)).size(), 2u);
  }
  plan.memory.reshard = kReshardAll;
  const graph::Graph all = Make(SmallGpt(3), plan);
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")) - SavedBytes(FindBlock(all, "layer.forward")),
            2 * kLayer / 2);
  EXPECT_EQ(SavedBytes(FindBlock(g, "layer.backward")), -SavedBytes(FindBlock(g, "layer.forward")));
  // The part is in the compute type: nothing is cast again.
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_TRUE(backward.starts_with("?4 copy_out all_gather+4 ")) << backward;
  EXPECT_NE(Operations(g, FindBlock(g, "layer.forward")).find(" reshard"), std::string::npos);
  // false is ZeRO-2, communication for communication.
  plan.memory.reshard = kKeepGathered;
  const graph::Graph kept = Make(SmallGpt(3), plan);
  plan.memory.sharding = Sharding::kZero2;
  plan.memory.reshard = kReshardAll;
  const graph::Graph zero2 = Make(SmallGpt(3), plan);
  ASSERT_EQ(kept.blocks.size(), zero2.blocks.size());
  for (std::size_t i = 0; i < kept.blocks.size(); ++i) {
    EXPECT_EQ(kept.blocks[i].content_hash, zero2.blocks[i].content_hash);
  }
}

// XLA gathers and reduces tensors where they lie; FSDP2 copies them out of and into its buffers. A
// reduction in another type has to be written anyway.
TEST(Sharded, UnitsWithoutCopies) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  plan.framework.flat_parameters = plan.framework.grad_reduce_fp32 = false;
  const auto kernels = [&](std::string_view block) {
    const graph::Graph g = Make(SmallGpt(3), plan);
    const std::string all = Operations(g, FindBlock(g, block));
    return std::pair(all.find("copy_out") != all.npos, all.find("copy_in") != all.npos);
  };
  EXPECT_EQ(kernels("layer.forward"), std::pair(true, false));
  EXPECT_EQ(kernels("layer.backward"), std::pair(true, true));
  plan.framework.copies_units = false;
  EXPECT_EQ(kernels("layer.forward"), std::pair(false, false));
  EXPECT_EQ(kernels("layer.backward"), std::pair(false, false));
  plan.framework.grad_reduce_fp32 = true;
  EXPECT_EQ(kernels("layer.backward"), std::pair(false, true));
}

// Megatron-FSDP gathers and reduces what parameters and gradients are stored in. Gradients that
// GEMMs do not write there are copied, 16-bit sums scaled by a kernel; shards of the model's type
// lie beside the fp32 ones and are made once a step.
TEST(Sharded, UnitsInTheirBuffers) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  plan.framework.unit_buffers = true;
  for (const bool fused : {false, true}) {
    for (const bool wide : {false, true}) {
      plan.framework.fused_weight_gradient = fused;
      plan.framework.grad_reduce_fp32 = wide;
      const graph::Graph g = Make(SmallGpt(3), plan);
      const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
      ASSERT_TRUE(verified.ok()) << verified.message();
      const auto has = [&](std::string_view block, std::string_view kernel) {
        return Operations(g, FindBlock(g, block)).find(kernel) != std::string::npos;
      };
      EXPECT_FALSE(has("layer.forward", "copy_out") || has("layer.forward", "shard.cast"));
      EXPECT_FALSE(has("layer.backward", "copy_out"));
      EXPECT_EQ(has("layer.backward", "copy_in"), !fused);
      EXPECT_EQ(has("layer.backward", "scale"), !wide);
      EXPECT_TRUE(has("optimizer", "copy_to_model"));
      std::int64_t bytes = 0;
      for (const graph::Buffer& b : FindBlock(g, "static").buffers) bytes += b.bytes;
      EXPECT_EQ(bytes, (wide ? 18 : 16) * (3 * kLayer + kRoot) / 4);
    }
  }
}

TEST(Sharded, ReshardIsADivisorOfFsdp2sRanks) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  plan.framework.flat_parameters = false;
  for (const int ranks : {1, 3, 4, 8}) {
    plan.memory.reshard = ranks;
    EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("framework_options.reshard"));
  }
  plan.memory.reshard = 2;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).ok());
  plan.framework.flat_parameters = true;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("framework_options.reshard"));
  plan.framework.flat_parameters = false;
  plan.memory.sharding = Sharding::kZero1;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("framework_options.reshard"));
}

// FSDP1's limiter: the host waits at the end of every layer. Without it what layers gather lingers.
TEST(Sharded, RateLimiter) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  const auto lingering = [](const graph::Block& block) {
    std::int64_t bytes = 0;
    for (const graph::Buffer& b : block.buffers) {
      if (b.lifetime == graph::Lifetime::kLingering) bytes += b.bytes;
    }
    return bytes;
  };
  for (const bool limited : {false, true}) {
    plan.framework.gather_limit = limited ? GatherLimit::kHost : GatherLimit::kNone;
    const graph::Graph g = Make(SmallGpt(3), plan);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    for (const std::string_view name : {"layer.forward", "layer.backward"}) {
      const graph::Block& block = FindBlock(g, name);
      EXPECT_EQ(Operations(g, block).ends_with(" pace"), limited) << name;
      // Allocated and freed: the table holds it twice.
      EXPECT_EQ(lingering(block), limited ? 0 : 2 * 2 * kLayer) << name;
    }
  }
  plan.framework.gather_limit = GatherLimit::kOrder;  // FSDP2 has neither
  const graph::Graph g = Make(SmallGpt(3), plan);
  EXPECT_EQ(Operations(g, FindBlock(g, "layer.forward")).find("pace"), std::string::npos);
  EXPECT_EQ(lingering(FindBlock(g, "layer.forward")), 0);
}

// What a layer keeps goes to the host and comes back, but not the parameters it keeps; gathers and
// reductions are those without.
TEST(Sharded, ActivationsInHostMemory) {
  for (const bool keeps : {false, true}) {
    Plan plan = Sharded(Sharding::kZero3, 2);
    plan.memory.reshard = keeps ? kKeepGathered : kReshardAll;
    const graph::Graph plain = Make(SmallGpt(4), plan);
    const std::int64_t gathered = keeps ? 2 * kLayer : 0;
    const std::int64_t kept = SavedBytes(FindBlock(plain, "layer.forward")) - gathered;
    plan.memory.offload_activations = true;
    const graph::Graph g = Make(SmallGpt(4), plan);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    const auto slot = graph::GroupSlot::kOffload;
    EXPECT_EQ(GroupBytes(g, Collective::kCopyToHost, slot), 2 * 4 * kept);
    EXPECT_EQ(GroupBytes(g, Collective::kCopyToDevice, slot), 2 * 4 * kept);
    EXPECT_EQ(SavedBytes(FindBlock(g, "layer.forward")), gathered);
    for (const Collective kind : {Collective::kAllGather, Collective::kReduceScatter}) {
      EXPECT_EQ(DpBytes(g, kind), DpBytes(plain, kind));
    }
  }
}

// DeepSpeed of 2021: three matrices of more than 100,000 elements, each cleared, waited for and
// gathered, with a view and a copy for each of 4 ranks.
TEST(Sharded, GathersIntoLists) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  plan.framework.list_gathers = true;
  EXPECT_EQ(Validate(SmallGpt(2), plan).message(),
            "framework_options.list_gathers: of zero3 with prefetch: false, without shard_group, "
            "parameters in host memory and adapters; change these or leave it out");
  plan.framework.prefetch = plan.framework.overlap_grad_reduce = false;
  plan.framework.host.view = 8'000;
  const graph::Graph g = Make(SmallGpt(2), plan);
  const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
  ASSERT_TRUE(verified.ok()) << verified.message();
  const graph::Block& layer = FindBlock(g, "layer.forward");
  const std::string one = "zero sync host all_gather! copy_out ";
  EXPECT_NE(Operations(g, layer).find(one + one + one), std::string::npos) << Operations(g, layer);
  EXPECT_NEAR(static_cast<double>(Bytes(layer, Collective::kAllGather)), 2 * kLayer, 6);
  std::int64_t host = 0;
  for (const std::int64_t ps : layer.host_ps) host += ps;
  EXPECT_EQ(host, 3 * 2 * 4 * 8'000'000);
  // All 12 tensors are reduced out of lists.
  host = 0;
  for (const std::int64_t ps : FindBlock(g, "layer.backward").host_ps) host += ps;
  EXPECT_EQ(host, (3 + 12) * 2 * 4 * 8'000'000);
}

// Between recomputation and backward pass the same releases what is not needed within 10^9
// elements. GPT-3 175B: all but fc2, since fc2's 6.04e8 lie twice between fc1 and its gradient. A
// hidden size of 10,240: fc1 stays, too.
TEST(Sharded, ListsGatherAgainAfterRecomputation) {
  Plan plan = Sharded(Sharding::kZero3, 1);
  plan.framework.list_gathers = true;
  plan.memory.recompute = Recompute::kFull;
  plan.framework.prefetch = plan.framework.overlap_grad_reduce = false;
  const auto again = [&](std::int64_t hidden) {
    Model m = SmallGpt(2);
    m.hidden = hidden;
    m.heads = m.kv_heads = static_cast<int>(hidden / 128);
    m.head_dim = 128;
    m.ffn_hidden = 4 * hidden;
    const graph::Graph g = Make(m, plan);
    return Bytes(FindBlock(g, "layer.backward"), Collective::kAllGather) -
           Bytes(FindBlock(g, "layer.forward"), Collective::kAllGather);
  };
  EXPECT_NEAR(static_cast<double>(again(12288)), 8.0 * 12288 * 12288 * 2, 16);
  EXPECT_NEAR(static_cast<double>(again(10240)), 4.0 * 10240 * 10240 * 2, 16);
  EXPECT_EQ(again(1024), 0);
}

TEST(Sharded, ShardsForEver) {
  const graph::Graph g = Make(SmallGpt(2), Sharded(Sharding::kZero3, 1));
  const std::int64_t shard = (2 * kLayer + kRoot) / 4;
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) bytes += b.bytes;
  EXPECT_EQ(bytes, 16 * shard);  // fp32 parameters, gradients, two moments
}

// ZeRO-2 leaves a layer's gathered parameters to its backward, ZeRO-3 does not.
TEST(Sharded, GatheredParametersLive) {
  const auto saved = [](Sharding sharding) {
    const graph::Graph g = Make(SmallGpt(2), Sharded(sharding, 1));
    return SavedBytes(FindBlock(g, "layer.forward"));
  };
  EXPECT_EQ(saved(Sharding::kZero2) - saved(Sharding::kZero3), 2 * kLayer);
}

TEST(Sharded, OneAheadAndReducedBeside) {
  const graph::Graph g = Make(SmallGpt(2), Sharded(Sharding::kZero3, 1));
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  EXPECT_TRUE(forward.starts_with("?4 shard.cast all_gather+4 layer_norm qkv")) << forward;
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_TRUE(backward.starts_with("?4 shard.cast all_gather+4 ")) << backward;
  EXPECT_TRUE(backward.ends_with("concatenate cast scale reduce_scatter+-1 shard.add")) << backward;
  EXPECT_EQ(backward.find("weight_gradient"), std::string::npos);  // nothing is accumulated
  std::vector<std::string> names;
  for (const graph::Call& call : g.programs[0].calls) {
    names.push_back(g.name(g.blocks[call.block.index()].name));
  }
  EXPECT_EQ(Join(names),
            "root.gather parameters.gather embedding.forward layer.forward layer.forward "
            "head.forward parameters.gather head.backward layer.backward layer.backward "
            "embedding.backward root.reduce gradients.wait optimizer loss.reduce");
}

TEST(Sharded, GraphsAreValid) {
  for (const Sharding sharding : {Sharding::kZero2, Sharding::kZero3}) {
    for (const bool prefetch : {false, true}) {
      for (const bool flat : {false, true}) {
        Plan plan = Sharded(sharding, 3);
        plan.framework.prefetch = prefetch;
        plan.framework.flat_parameters = flat;
        plan.parallel.tp = 2;
        plan.memory.recompute = flat ? Recompute::kFull : Recompute::kNone;
        plan.parallel.cp = prefetch ? 2 : 1;
        const graph::Graph g = Make(SmallGpt(3), plan);
        const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

// The largest sum of gradients that wait for their reduction, over a program's calls in order.
std::int64_t MostHeldGradients(const graph::Graph& g, const graph::Program& program) {
  std::int64_t held = 0, most = 0;
  for (const graph::Call& call : program.calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    for (const graph::Op& op : block.ops) {
      if (op.kind != graph::OpKind::kAlloc && op.kind != graph::OpKind::kFree) continue;
      const graph::Buffer& buffer = block.buffers[op.index];
      if (g.name(buffer.name) != "gradients") continue;
      held += op.kind == graph::OpKind::kAlloc ? buffer.bytes : -buffer.bytes;
      most = std::max(most, held);
    }
  }
  EXPECT_EQ(held, 0) << "gradients outlive the step";
  return most;
}

// Over two stages, four micro-batches each: every unit is gathered once and reduced once a step; a
// rank holds its stage's gathered parameters and 16 bytes of shards for ever, and its accumulated
// gradients from the first backward pass to their reduction behind the last.
TEST(Sharded, OverStagesOnceAStep) {
  Model model = SmallGpt(4);
  model.tied_embeddings = false;
  Plan plan = Sharded(Sharding::kZero3, 4);
  plan.parallel.pp = 2;
  plan.framework.flat_parameters = false;
  plan.memory.reshard = kKeepGathered;
  plan.framework.align_grad_reduce = plan.framework.align_param_gather = false;
  const graph::Graph g = Make(model, plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  constexpr std::int64_t kFirst = 2 * kLayer + 256 * (1024 + 512);  // stage 0: the tables
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * kFirst);
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 4 * kFirst);
  std::int64_t bytes = 0;
  for (const graph::Buffer& b : g.blocks[g.programs[0].prologue[0].block.index()].buffers) {
    bytes += b.bytes;
  }
  EXPECT_EQ(bytes, 2 * kFirst + 16 * kFirst / 4);
  EXPECT_EQ(MostHeldGradients(g, g.programs[0]), 4 * kFirst);
  // A layer's weight gradients are added by a kernel, not by the GEMM; reductions stand behind the
  // last pass.
  const std::string backward = Operations(g, FindBlock(g, "layer.backward"));
  EXPECT_NE(backward.find("weight_gradient"), std::string::npos) << backward;
  const std::string order = Pipeline(g, g.programs[0]);
  EXPECT_LT(order.rfind("B3"), order.find("R")) << order;
  EXPECT_EQ(order.find("R"), order.size() - 5) << order;  // two layers and the tables
}

// Two chunks a stage and as many micro-batches as stages: the first stage runs all forward passes,
// then the second chunk's backward passes, whose gradients are reduced and gone before the first
// chunk's appear. 2 layers and the tables there, 2 layers here: never their sum.
TEST(Sharded, ChunksHoldTheirGradientsOneAfterTheOther) {
  Model model = SmallGpt(8);
  model.tied_embeddings = false;
  Plan plan = Sharded(Sharding::kZero2, 2);
  plan.parallel.pp = plan.parallel.vpp = 2;
  plan.parallel.schedule = Schedule::k1f1bInterleaved;
  plan.framework.flat_parameters = false;
  plan.framework.align_grad_reduce = plan.framework.align_param_gather = false;
  ASSERT_TRUE(Validate(model, plan).ok()) << Validate(model, plan).message();
  const graph::Graph g = Make(model, plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(MostHeldGradients(g, g.programs[0]), 4 * (2 * kLayer + 256 * (1024 + 512)));
  // Where every stage reduces at the end of the step, both chunks' are held until then.
  plan.framework.overlap_grad_reduce = false;
  const graph::Graph late = Make(model, plan);
  EXPECT_EQ(MostHeldGradients(late, late.programs[0]), 4 * (4 * kLayer + 256 * (1024 + 512)));
}

// Bytes of buffers of this name that live at most, over a program's calls in order.
std::int64_t MostOf(const graph::Graph& g, std::string_view name) {
  std::int64_t held = 0, most = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    for (const graph::Op& op : block.ops) {
      if (op.kind != graph::OpKind::kAlloc && op.kind != graph::OpKind::kFree) continue;
      const graph::Buffer& buffer = block.buffers[op.index];
      if (g.name(buffer.name) != name) continue;
      held += (op.kind == graph::OpKind::kAlloc ? 1 : -1) * call.repeat * buffer.bytes;
      most = std::max(most, held);
    }
  }
  EXPECT_EQ(held, 0) << name << " outlives the step";
  return most;
}

// FSDP1's no_sync and FSDP2's set_requires_gradient_sync(False): one reduction a step. Unsharded
// gradients wait in bf16, FSDP2's in the type of the reduction; their fp32 shards come when they
// go. Three layers and the root, three micro-batches.
TEST(Sharded, DeferredReductions) {
  constexpr std::int64_t kOnce = 3 * kLayer + kRoot;
  for (const bool flat : {true, false}) {
    for (const bool full : {true, false}) {
      Plan plan = Sharded(full ? Sharding::kZero3 : Sharding::kZero2, 3);
      plan.framework.flat_parameters = flat;
      plan.framework.defer_grad_reduce = true;
      const graph::Graph g = Make(SmallGpt(3), plan);
      const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 4 * kOnce);
      // FSDP1 keeps what it does not reshard over the micro-batches that reduce nothing.
      const std::int64_t gathered = full ? 3 * (kOnce + 3 * kLayer) : flat ? kOnce : 3 * kOnce;
      EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * gathered) << flat << full;
      EXPECT_EQ(MostOf(g, "gradients.unsharded"), (flat ? 2 : 4) * kOnce);
      EXPECT_EQ(MostOf(g, "gradient_shards"), 4 * kOnce / 4);
      std::int64_t forever = 0;  // parameters and two moments
      for (const graph::Buffer& b : FindBlock(g, "static").buffers) forever += b.bytes;
      EXPECT_EQ(forever, 12 * kOnce / 4);
    }
  }
  // Of a step with one micro-batch nothing is deferred.
  Plan plan = Sharded(Sharding::kZero3, 1);
  const graph::Graph each = Make(SmallGpt(3), plan);
  plan.framework.defer_grad_reduce = true;
  const graph::Graph deferred = Make(SmallGpt(3), plan);
  ASSERT_EQ(each.blocks.size(), deferred.blocks.size());
  for (std::size_t i = 0; i < each.blocks.size(); ++i) {
    EXPECT_EQ(each.blocks[i].content_hash, deferred.blocks[i].content_hash);
  }
  plan = Sharded(Sharding::kZero3, 2);
  plan.framework.defer_grad_reduce = plan.framework.unit_buffers = true;
  EXPECT_TRUE(
      Validate(SmallGpt(3), plan).message().starts_with("framework_options.defer_grad_reduce"));
}

// Of adapters alone: those of a layer, whichever way they are wrapped.
TEST(Sharded, DeferredReductionsOfAdapters) {
  for (const bool flat : {true, false}) {
    Plan plan = Sharded(Sharding::kZero3, 2);
    plan.lora.rank = 8;
    plan.framework.flat_parameters = flat;
    if (flat) plan.framework.gather_limit = GatherLimit::kHost;
    const graph::Graph each = Make(SmallGpt(3), plan);
    plan.framework.defer_grad_reduce = true;
    const graph::Graph g = Make(SmallGpt(3), plan);
    const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << status.message();
    const std::int64_t reduced = DpBytes(g, Collective::kReduceScatter);
    EXPECT_EQ(2 * reduced, DpBytes(each, Collective::kReduceScatter));
    EXPECT_EQ(MostOf(g, "gradients.unsharded"), reduced / 4 * (flat ? 2 : 4));
  }
}

// Told to hold its units, one stage gathers them once a step, too, and reduces them in the last
// micro-batch's backward: the first reduction follows the head.
TEST(Sharded, HeldUnitsOnceAStep) {
  Model model = SmallGpt(3);
  model.tied_embeddings = false;
  Plan plan = Sharded(Sharding::kZero3, 4);
  plan.framework.flat_parameters = false;
  plan.framework.hold_units = true;
  EXPECT_TRUE(Validate(model, plan).message().starts_with("framework_options.hold_units"));
  plan.memory.reshard = kKeepGathered;
  const graph::Graph g = Make(model, plan);
  const Status status = graph::Verify(g, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  constexpr std::int64_t kAll = 3 * kLayer + 256 * (1024 + 512) + 1024 * 256 + 512;
  EXPECT_EQ(DpBytes(g, Collective::kAllGather), 2 * kAll);
  EXPECT_EQ(DpBytes(g, Collective::kReduceScatter), 4 * kAll);
  const std::string order = Pipeline(g, g.programs[0]);
  EXPECT_LT(order.find("R"), order.rfind("B3")) << order;
  plan.framework.flat_parameters = true;
  EXPECT_TRUE(Validate(model, plan).message().starts_with("framework_options.hold_units"));
}

// In the model's type: shards of parameters and gradients and two moments of 2 bytes in place of 4,
// nothing cast before a gather.
TEST(Sharded, StatesInTheModelsType) {
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.framework.flat_parameters = false;
  const auto states = [&](bool model_type) {
    plan.framework.model_type_states = model_type;
    const graph::Graph g = Make(SmallGpt(3), plan);
    std::int64_t bytes = 0;
    for (const graph::Buffer& b : g.blocks[g.programs[0].prologue[0].block.index()].buffers) {
      bytes += b.bytes;
    }
    const bool casts =
        Operations(g, FindBlock(g, "layer.forward")).find("shard.cast") != std::string::npos;
    EXPECT_EQ(casts, !model_type);
    return bytes;
  };
  const std::int64_t shard = (3 * kLayer + kRoot) / 4;
  EXPECT_EQ(states(false), 16 * shard);
  EXPECT_EQ(states(true), 8 * shard);
  plan.framework.flat_parameters = true;
  EXPECT_TRUE(Validate(SmallGpt(3), plan).message().starts_with("framework_options.model_type"));
}

TEST(Sharded, RefusesStagesAndLoneRanks) {
  Plan plan = Sharded(Sharding::kZero3, 2);
  plan.parallel.pp = 2;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.sharding: zero3"));
  plan.framework.flat_parameters = false;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("framework_options.reshard: true"));
  plan.memory.reshard = kKeepGathered;
  EXPECT_NE(Validate(SmallGpt(2), plan).message().find("tied table"), std::string::npos);
  plan.parallel.schedule = Schedule::kZbH1;
  Model untied = SmallGpt(2);
  untied.tied_embeddings = false;
  EXPECT_NE(Validate(untied, plan).message().find("split backward"), std::string::npos);
  plan.parallel.schedule = Schedule::k1f1b;
  EXPECT_TRUE(Validate(untied, plan).ok());
  plan.memory.reshard = kReshardAll;
  plan.parallel.pp = 1;
  plan.parallel.dp = 1;
  EXPECT_TRUE(Validate(SmallGpt(2), plan).message().starts_with("training.sharding: zero3"));
}

}  // namespace
}  // namespace orrery::workload
