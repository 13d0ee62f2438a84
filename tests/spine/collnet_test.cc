// Jobs whose gradients the network's switches sum (CollNet), on every network that runs them.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

collective::Environment Environment(const std::string& algorithm, const std::string& version) {
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"NCCL_COLLNET_ENABLE", "1"}, {"NCCL_ALGO", algorithm}, {"NCCL_VERSION", version}};
  return Scenario::Take(collective::ParseEnvironment(variables));
}

// Data parallelism of 16 over 4 hosts, 4 GPUs of each, sums over all, or scatters sums and gathers
// parameters: nobody waits for ever, and where nothing else is on the links the networks agree. The
// halves of a sum are connections of their own (collnet_test.cc of the collective stage): one wire
// for both was a deadlock.
TEST(CollNet, JobsRunOnEveryNetwork) {
  using workload::Sharding;
  constexpr auto kWhole = Sharding::kNone, kSharded = Sharding::kZero1;
  const std::pair<std::string, Sharding> cases[] = {
      {"Ring;AllReduce:CollNetDirect", kWhole},
      {"Ring;AllReduce:CollNetChain", kWhole},
      {"Ring;AllReduce:NVLS", kWhole},
      {"Ring;AllGather:CollNetDirect;ReduceScatter:CollNetDirect", kSharded},
      {"Ring;AllGather:NVLS;ReduceScatter:NVLS", kSharded}};
  for (const auto& [algorithm, sharding] : cases) {
    // NVLS gathers over several domains from 2.27 on. From 2.24 on groups inside a domain, here
    // those of tensor parallelism, would need another algorithm named.
    const std::string version = sharding == kWhole ? "2.22.3" : "2.27.7";
    Scenario s("h100-ib-400g", 4, true, Environment(algorithm, version));
    const auto model = Scenario::Take(workload::FindModel("gpt2"));
    workload::Plan plan = Gpt3Plan(sharding == kWhole ? 2 : 1, 1, 16, 32);
    plan.memory.sharding = sharding;
    plan.batch.seq_len = 1024;
    ASSERT_TRUE(s.Add(model, plan, "job").ok());
    s.PlacePacked();
    engine::Options options;
    options.iterations = 2;
    const auto analytic = s.Run(options, "analytic");
    ASSERT_TRUE(analytic.ok()) << analytic.status().message();
    const auto time = static_cast<double>(analytic->jobs[0].step_time);
    for (const char* network : {"flow", "flow-chunks", "links"}) {
      const auto run = s.Run(options, network);
      ASSERT_TRUE(run.ok()) << algorithm << ", " << network << ": " << run.status().message();
      // Chunks that a domain sends ahead of its turn share its NIC, and come late together.
      const bool shared = sharding != kWhole && std::string(network) == "flow-chunks";
      EXPECT_NEAR(static_cast<double>(run->jobs[0].step_time), time, (shared ? 0.12 : 0.05) * time)
          << algorithm << ", " << network;
    }
    options.threads = 2;
    const auto threads = s.Run(options, "links");
    ASSERT_FALSE(threads.ok());
    EXPECT_NE(threads.status().message().find("(--threads 1)"), std::string::npos);
  }
}

}  // namespace
}  // namespace orrery::testing
