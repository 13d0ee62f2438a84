// What a change of the machine may do to a step, on drawn plans that settle: more of a resource
// never makes it slower, a slow rank never makes it faster, and routers lose no token.
//
// NCCL is held to one algorithm and protocol. It chooses by its own expectation: with NVLink twice
// as fast it takes NVLS for an all-reduce of 1 MiB on eight H100, slower than the ring it took
// before (55 us for 34), and steps of milliseconds follow (up to 34 % in such plans). List
// scheduling has anomalies, too: a communication that begins earlier may meet kernels that it
// slows. Of 1,512 runs eight are more than a part in a hundred slower, all with arithmetic twice as
// fast, the worst 14 % (activations offloaded). The test holds that they stay rare.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "tests/spine/drawn_plan.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

constexpr std::uint64_t kPlans = 300;
constexpr double kAnomaly = 0.01;
constexpr double kWorstAnomaly = 0.15;

struct Machine {
  std::string_view name;
  void (*change)(cluster::Spec* spec);
};
constexpr Machine kBetter[] = {
    {"NICs twice as fast",
     [](cluster::Spec* s) {
       s->nic_Bps *= 2;
       s->pcie_Bps *= 2;
     }},
    {"NVLink twice as fast", [](cluster::Spec* s) { s->nvlink_Bps *= 2; }},
    {"half of the fabric's latency", [](cluster::Spec* s) { s->nic_latency /= 2; }},
    {"half of NVLink's latency", [](cluster::Spec* s) { s->nvlink_latency /= 2; }},
    {"memory twice as fast", [](cluster::Spec* s) { s->device.memory_bandwidth_Bps *= 2; }},
    {"arithmetic twice as fast",
     [](cluster::Spec* s) {
       s->device.fp16_flops *= 2;
       s->device.fp32_flops *= 2;
     }},
    {"a host twice as fast", [](cluster::Spec* s) { s->cpu_relative_speed *= 2; }},
};

cluster::Spec Base(int nodes) {
  cluster::Spec spec = Scenario::Take(cluster::FindPreset("h100-ib-400g"));
  spec.nodes = nodes;
  return spec;
}

collective::Environment OneWay() {
  const std::vector<std::pair<std::string, std::string>> variables = {{"NCCL_ALGO", "Ring"},
                                                                      {"NCCL_PROTO", "Simple"}};
  return Scenario::Take(collective::ParseEnvironment(variables));
}

// Of a step; 0 where it does not settle.
SimTime StepOn(const cluster::Spec& spec, const Drawn& d, const engine::Options& options) {
  Scenario s(spec, OneWay());
  EXPECT_TRUE(s.Add(d.model, d.plan, "job").ok());
  s.PlacePacked();
  const auto run = s.Run(options);
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() && run->jobs[0].settled ? run->jobs[0].step_time : 0;
}

void ForDrawnPlans(const std::function<void(std::uint64_t, const Drawn&)>& check) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= kPlans; ++seed) {
    const Drawn d = Draw(seed);
    SCOPED_TRACE(Describe(seed, d));
    {
      Scenario s(Base(d.nodes));
      if (!s.Add(d.model, d.plan, "job").ok()) continue;
    }
    if (StepOn(Base(d.nodes), d, {}) == 0) continue;
    ++ran;
    check(seed, d);
  }
  EXPECT_GT(ran, 200);
}

TEST(Laws, ABetterMachineIsNoSlower) {
  int runs = 0, slower = 0;
  ForDrawnPlans([&](std::uint64_t, const Drawn& d) {
    const auto base = static_cast<double>(StepOn(Base(d.nodes), d, {}));
    for (const Machine& better : kBetter) {
      cluster::Spec spec = Base(d.nodes);
      better.change(&spec);
      const auto step = static_cast<double>(StepOn(spec, d, {}));
      if (step == 0) continue;
      ++runs;
      if (step > base * (1 + kAnomaly)) ++slower;
      EXPECT_LE(step, base * (1 + kWorstAnomaly)) << better.name;
    }
  });
  EXPECT_LE(slower * 100, runs) << slower << " of " << runs;
}

TEST(Laws, AStragglerIsNoHelpAndAFastRankNoHarm) {
  ForDrawnPlans([](std::uint64_t seed, const Drawn& d) {
    CounterRng rng(seed);
    const RankId rank(rng.Below(static_cast<std::uint64_t>(d.plan.ranks())));
    const auto base = static_cast<double>(StepOn(Base(d.nodes), d, {}));
    engine::Options slow, fast;
    slow.ranks = {{.rank = rank, .speed = 0.8}};
    fast.ranks = {{.rank = rank, .speed = 1.25}};
    if (const SimTime step = StepOn(Base(d.nodes), d, slow); step > 0) {
      EXPECT_GE(static_cast<double>(step), base * (1 - kAnomaly)) << "rank " << rank.value;
    }
    if (const SimTime step = StepOn(Base(d.nodes), d, fast); step > 0) {
      EXPECT_LE(static_cast<double>(step), base * (1 + kAnomaly)) << "rank " << rank.value;
    }
  });
}

// Every copy of a token that is not dropped arrives at one rank, whatever the router.
TEST(Laws, TokensAreConserved) {
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 2000 && ran < 100; ++seed) {
    Drawn d = Draw(seed);
    if (d.model.experts.count == 0 || d.plan.parallel.ep == 1) continue;
    SCOPED_TRACE(Describe(seed, d));
    d.plan.experts.routing_seed = seed;
    for (const auto routing : {workload::Routing::kDirichlet, workload::Routing::kDrawnZipf}) {
      d.plan.experts.routing = routing;
      if (!workload::CheckRouting(d.model, d.plan).ok()) continue;
      ++ran;
      for (int layer = 0; layer < static_cast<int>(d.model.layers); ++layer) {
        const workload::LayerLoad load = workload::LoadOfLayer(d.model, d.plan, layer);
        ASSERT_EQ(load.received.size(), static_cast<std::size_t>(d.plan.parallel.ep));
        const std::int64_t sum =
            std::accumulate(load.received.begin(), load.received.end(), std::int64_t{0});
        EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(d.plan.parallel.ep * load.sent),
                    static_cast<double>(d.plan.parallel.ep));  // thousandths, each rounded
        EXPECT_EQ(load.busiest, *std::ranges::max_element(load.received));
      }
    }
  }
  EXPECT_GE(ran, 100);
}

// Kernels are as long as the mean rank's, however many replicas there are: what the slowest of them
// costs is waiting.
TEST(Laws, WaitingForTheSlowestIsNoCompute) {
  const auto parts = [](int dp, double noise) {
    Scenario s("h100-ib-400g", dp);
    const Status added = s.Add(SmallGpt(), Gpt3Plan(2, 4, dp, 8L * dp), "job");
    EXPECT_TRUE(added.ok()) << added.message();
    s.PlacePacked();
    engine::Options o;
    o.rank_noise = noise;
    const auto run = s.Run(o);
    EXPECT_TRUE(run.ok()) << run.status().message();
    std::map<std::int32_t, engine::Breakdown> by_stage;
    for (const auto& c : run->classes) {
      by_stage.try_emplace(s.graph().programs[c.program.index()].stage, c.breakdown);
    }
    return by_stage;
  };
  const auto at = [](const engine::Breakdown& b, engine::Part part) {
    return static_cast<double>(b[static_cast<std::size_t>(part)]);
  };
  double before = 0;
  for (const int dp : {1, 4, 16}) {
    const auto none = parts(dp, 0), noisy = parts(dp, 0.03);
    double noise = 0;
    for (const auto& [stage, b] : none) {
      const double compute = at(b, engine::Part::kCompute);
      EXPECT_NEAR(at(noisy.at(stage), engine::Part::kCompute), compute, 1e-6 * compute) << stage;
      EXPECT_EQ(at(b, engine::Part::kNoise), 0);
      noise += at(noisy.at(stage), engine::Part::kNoise);
    }
    EXPECT_GT(noise, before) << dp;
    before = noise;
  }
}

}  // namespace
}  // namespace orrery::testing
