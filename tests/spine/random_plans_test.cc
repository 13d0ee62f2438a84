// What must hold for any plan: 500 drawn plans, each printed with the seed that makes it again.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "orrery/base/rng.h"
#include "orrery/workload/routing.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

using engine::Options;
using engine::Record;

struct Drawn {
  workload::Model model;
  workload::Plan plan;
  int nodes = 1;
};

Drawn Draw(std::uint64_t seed) {
  CounterRng rng(seed);
  const auto pick = [&](std::initializer_list<int> from) {
    return *(from.begin() + rng.Below(from.size()));
  };
  Drawn d;
  d.model = Gpt3();
  d.model.hidden = 512L * pick({1, 2, 4});
  d.model.heads = d.model.kv_heads = 16;
  d.model.head_dim = d.model.hidden / 16;
  d.model.ffn_hidden = 4 * d.model.hidden;
  d.model.vocab = 32000;
  if (rng.Below(2) == 0) {
    d.model.norm = workload::Norm::kRmsNorm;
    d.model.activation = workload::Activation::kSwiglu;
    d.model.position = workload::Position::kRotary;
    d.model.tied_embeddings = false;
    d.model.kv_heads = 8;
  }
  workload::Plan& p = d.plan;
  p = Gpt3Plan(pick({1, 2, 4, 8}), pick({1, 2, 4}), pick({1, 2, 4}), 0);
  if (p.pp > 1 && rng.Below(2) == 0) {
    p.vpp = 2;
    p.schedule = workload::Schedule::k1f1bInterleaved;
  } else if (rng.Below(4) == 0) {
    p.schedule = workload::Schedule::kGpipe;
  }
  d.model.layers = static_cast<std::int64_t>(p.pp) * p.vpp * pick({1, 2});
  const std::int64_t chunks = std::int64_t{p.pp} * p.vpp;
  if (chunks > 2 && rng.Below(6) == 0) d.model.layers = chunks - 2;  // ends without a layer
  p.seq_len = 512;
  d.model.max_position = 512;
  p.micro_batch = pick({1, 2});
  p.global_batch = p.micro_batch * p.dp * p.pp * pick({1, 2, 3});
  p.sequence_parallel = p.tp > 1 && rng.Below(2) == 0;
  p.recompute = static_cast<workload::Recompute>(rng.Below(3));
  p.sharding =
      p.dp > 1 && rng.Below(2) == 0 ? workload::Sharding::kZero1 : workload::Sharding::kNone;
  p.overlap_grad_reduce = rng.Below(2) == 0;
  p.overlap_param_gather = p.overlap_grad_reduce && rng.Below(2) == 0;
  p.overlap_p2p = rng.Below(2) == 0;
  p.bucket_elements = pick({1'000'000, 40'000'000});
  switch (rng.Below(8)) {
    case 0:
      p.cp = pick({2, 4});
      p.cp_exchange =
          pick({0, 1}) == 0 ? workload::CpExchange::kRing : workload::CpExchange::kAllGather;
      break;
    case 1:
      p.sharding = pick({0, 1}) == 0 ? workload::Sharding::kZero2 : workload::Sharding::kZero3;
      p.pp = p.vpp = 1;
      p.schedule = workload::Schedule::k1f1b;
      p.prefetch = rng.Below(4) != 0;
      p.flat_parameters = rng.Below(2) == 0;
      break;
    case 2:
      p.low_precision = static_cast<workload::LowPrecision>(1 + rng.Below(5));
      p.low_precision_gather = rng.Below(2) == 0;
      break;
    case 3:
      p.host = {.module_forward = 40'000, .module_backward = 25'000, .communication = 25'000};
      break;
    case 4:
      d.model.experts = {.count = 8, .top_k = 2, .ffn_hidden = d.model.hidden};
      d.model.experts.first_dense = pick({0, 1});
      d.model.experts.every = pick({1, 2});
      p.ep = pick({1, 2, 4, 8});
      p.etp = pick({0, 1});
      p.dispatcher = static_cast<workload::Dispatcher>(rng.Below(4));
      if (rng.Below(2) == 0) {
        p.routing =
            pick({0, 1}) == 0 ? workload::Routing::kDirichlet : workload::Routing::kDrawnZipf;
        p.routing_seed = seed;
      }
      break;
    case 5:
      d.model.experts = {.count = 8, .top_k = 2, .ffn_hidden = d.model.hidden};
      d.model.mamba = {.heads = 16, .head_dim = 64, .state = 64, .groups = 8};
      for (std::int64_t l = 0; l < d.model.layers; ++l) d.model.pattern += "M*-E"[rng.Below(4)];
      p.ep = pick({1, 2});
      break;
    default:
      break;
  }
  p.rank_order = rng.Below(3) == 0 ? workload::RankOrder::kPpDp : workload::RankOrder::kDpPp;
  if (p.sharding != workload::Sharding::kNone && p.replicas() % 4 == 0 && rng.Below(2) == 0 &&
      d.model.experts.count == 0) {
    p.shard_group = 2;
    p.reduce_whole = rng.Below(2) == 0;
  }
  if (p.pp > 1 && p.vpp == 1 && rng.Below(3) == 0) p.schedule = workload::Schedule::kZbH1;
  if (p.vpp == 2 && rng.Below(3) == 0) {
    constexpr std::array kFolded = {workload::Schedule::kZbV, workload::Schedule::kDualPipe,
                                    workload::Schedule::kDualPipeV};
    p.schedule = kFolded[rng.Below(3)];
  }
  const bool whole_units = p.sharding < workload::Sharding::kZero2;
  switch (rng.Below(8)) {
    case 0:
      p.offload_activations = whole_units;
      break;
    case 1:
      p.offload_optimizer = true;
      p.offload_parameters = p.sharding == workload::Sharding::kZero3 && rng.Below(2) == 0;
      p.ranks_per_host = 8;
      break;
    case 2:
      if (whole_units && d.model.experts.count == 0) p.lora_rank = 16;
      break;
    case 3:
      if (whole_units) p.cuda_graphs = static_cast<workload::CudaGraphs>(1 + rng.Below(2));
      break;
    case 4:
      if (p.sharding == workload::Sharding::kNone && d.model.experts.count == 0) {
        p.optimizer = static_cast<workload::Optimizer>(1 + rng.Below(2));
      }
      break;
    default:
      break;
  }
  p.tp_comm_overlap = p.sequence_parallel && p.lora_rank == 0 && rng.Below(2) == 0;
  d.nodes = (p.ranks() + 7) / 8;
  return d;
}

::testing::Message Describe(std::uint64_t seed, const Drawn& d) {
  return ::testing::Message()
         << "seed " << seed << ": "
         << workload::Schedules()[static_cast<std::size_t>(d.plan.schedule)].name
         << (d.plan.offload_activations ? ", activations offloaded" : "")
         << (d.plan.offload_optimizer ? ", optimizer offloaded" : "")
         << (d.plan.offload_parameters ? ", parameters offloaded" : "")
         << (d.plan.lora_rank > 0 ? ", LoRA" : "")
         << (d.plan.cuda_graphs != workload::CudaGraphs::kNone ? ", CUDA graphs" : "")
         << (d.plan.tp_comm_overlap ? ", tensor-parallel pieces" : "")
         << (workload::DrawsRouting(d.plan) ? ", drawn routing" : "")
         << (d.plan.hybrid() ? ", shard groups" : "")
         << (d.plan.sharding >= workload::Sharding::kZero2 ? ", ZeRO-2 or -3" : "")
         << ", optimizer " << static_cast<int>(d.plan.optimizer);
}

// A permutation of the devices that keeps NVLink domains together: ranks renamed.
void Rename(Scenario* s, std::uint64_t seed) {
  auto& device = s->placement().device;
  const std::size_t nodes = (device.size() + 7) / 8;
  std::vector<std::size_t> order(nodes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  CounterRng rng(seed);
  for (std::size_t i = nodes; i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  for (DeviceId& d : device) d = DeviceId(order[d.index() / 8] * 8 + d.index() % 8);
}

TEST(RandomPlans, FoldedRenamedAndRepeatedAgree) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    Scenario s("h100-ib-400g", d.nodes);
    const Status added = s.Add(d.model, d.plan, "job");
    ASSERT_TRUE(added.ok() || added.code() == Code::kInvalidInput) << added.message();
    if (!added.ok()) continue;
    s.PlacePacked();
    ++ran;
    const auto folded = s.Run({});
    ASSERT_TRUE(folded.ok()) << folded.status().message();
    Options full;
    full.fold = false;
    full.iterations = folded->iterations;
    const auto unfolded = s.Run(full);
    ASSERT_TRUE(unfolded.ok()) << unfolded.status().message();
    ASSERT_EQ(folded->fingerprint, unfolded->fingerprint);
    ASSERT_EQ(folded->jobs[0].step_time, unfolded->jobs[0].step_time);
    for (const auto& c : folded->classes) {
      // The parts tile the step, none negative, but for what a class change rounds away and, where
      // no barrier ends the step and it has not settled, for what a rank's own last period differs
      // from the job's by: that counts as waiting.
      const SimTime step = folded->jobs[0].step_time;
      const SimTime slack = 1000 + (folded->jobs[0].settled ? step / 5000 : step / 100);
      SimTime sum = 0;
      for (SimTime part : c.breakdown) {
        sum += part;
        ASSERT_GE(part, -slack);
      }
      ASSERT_EQ(sum, folded->jobs[0].step_time);
    }
    // Within one leaf: elsewhere another node is another distance.
    if (d.plan.ranks() % 8 == 0 && d.nodes <= s.cluster().spec().nodes_per_leaf) {
      Rename(&s, seed);
      const auto renamed = s.Run({});
      ASSERT_TRUE(renamed.ok());
      ASSERT_EQ(renamed->fingerprint, folded->fingerprint);
    }
  }
  EXPECT_GT(ran, 350);  // the rest breaks a rule of the schedule and was refused
}

// The general machine knows one rule, the fast one many: of a straight program both find the same
// end of every iteration, to the picosecond.
TEST(RandomPlans, BothMachinesAgree) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    if (d.plan.ranks() > 32) continue;  // every kernel is an event there
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    ++ran;
    Options o;
    o.fold = false;
    o.iterations = 2;
    const auto fast = s.Run(o);
    ASSERT_TRUE(fast.ok()) << fast.status().message();
    o.general = true;
    const auto general = s.Run(o);
    ASSERT_TRUE(general.ok()) << general.status().message();
    EXPECT_EQ(fast->jobs[0].iteration_end, general->jobs[0].iteration_end);
  }
  EXPECT_GT(ran, 60);
}

// Message by message. What two lanes want of one link at one instant is settled by each machine's
// own order, so that ends may differ by a little.
TEST(RandomPlans, BothMachinesAgreeOverLinks) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Drawn d = Draw(seed);
    if (d.nodes > 2 || d.model.experts.count > 0) continue;  // `links` has no all-to-all
    d.plan.seq_len = 128;
    d.plan.global_batch = d.plan.micro_batch * d.plan.dp * d.plan.pp;
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    Options o;
    o.fold = false;
    o.iterations = 2;
    const auto fast = s.Run(o, "links");
    ASSERT_TRUE(fast.ok()) << fast.status().message();
    o.general = true;
    const auto general = s.Run(o, "links");
    ASSERT_TRUE(general.ok()) << general.status().message();
    ++ran;
    EXPECT_NEAR(static_cast<double>(general->jobs[0].step_time) /
                    static_cast<double>(fast->jobs[0].step_time),
                1, 1e-4)
        << fast->jobs[0].step_time << " " << general->jobs[0].step_time;
  }
  EXPECT_GT(ran, 10);
}

TEST(RandomPlans, PartitionsOfLinksAgree) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Drawn d = Draw(seed);
    if (d.nodes < 2 || d.model.experts.count > 0) continue;  // `links` has no all-to-all
    d.plan.seq_len = 128;  // messages stay few: this is about order, not size
    d.plan.global_batch = d.plan.micro_batch * d.plan.dp * d.plan.pp;
    Scenario s("h100-ib-400g", d.nodes);
    if (!s.Add(d.model, d.plan, "job").ok()) continue;
    s.PlacePacked();
    std::uint64_t fingerprint = 0;
    for (int threads : {1, 2, 3}) {
      Options o;
      o.threads = threads;
      o.iterations = 2;
      const auto r = s.Run(o, "links");
      ASSERT_TRUE(r.ok()) << r.status().message();
      if (threads == 1) fingerprint = r->fingerprint;
      ASSERT_EQ(r->fingerprint, fingerprint) << threads << " threads";
    }
  }
}

// Of the plans that spine_bench evaluates: what folding saves changes nothing.
TEST(SearchPlans, TwentyEqualEveryRankSimulated) {
  std::vector<std::unique_ptr<Scenario>> clusters;
  for (std::string_view preset : {"h100-ib-400g", "h100-roce-400g"}) {
    clusters.push_back(std::make_unique<Scenario>(preset, 128));
  }
  const workload::Model model = Gpt3();
  int compared = 0;
  for (std::uint64_t seed = 1000; compared < 20; ++seed) {
    ASSERT_LT(seed, 1100u) << "plans are refused";
    CounterRng rng(seed);
    Scenario& s = *clusters[rng.Below(clusters.size())];
    s.Clear();
    if (!s.Add(model, SearchPlan(&rng), "job").ok()) continue;
    s.PlacePacked();
    Options options;
    options.iterations = 2;
    const auto folded = s.Run(options);
    options.fold = false;
    const auto all = s.Run(options);
    ASSERT_TRUE(folded.ok() && all.ok()) << seed;
    EXPECT_EQ(folded->jobs[0].step_time, all->jobs[0].step_time) << seed;
    EXPECT_EQ(folded->fingerprint, all->fingerprint) << seed;
    EXPECT_LT(folded->events, all->events) << seed;
    ++compared;
  }
}

}  // namespace
}  // namespace orrery::testing
