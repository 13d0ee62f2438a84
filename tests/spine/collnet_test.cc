// Jobs whose all-reduces the network's switches sum (CollNet), on every network that runs them.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

collective::Environment Environment(const std::string& algorithm) {
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"NCCL_COLLNET_ENABLE", "1"}, {"NCCL_ALGO", "Ring;AllReduce:" + algorithm}};
  return Scenario::Take(collective::ParseEnvironment(variables));
}

// Data parallelism of 16 over 4 hosts, 4 GPUs of each, sums over all: nobody waits for ever, and
// where nothing else is on the links the networks agree. The halves of a sum are connections of
// their own (collnet_test.cc of the collective stage): one wire for both was a deadlock.
TEST(CollNet, JobsRunOnEveryNetwork) {
  for (const std::string algorithm : {"CollNetDirect", "CollNetChain", "NVLS"}) {
    Scenario s("h100-ib-400g", 4, true, Environment(algorithm));
    const auto model = Scenario::Take(workload::FindModel("gpt2"));
    workload::Plan plan = Gpt3Plan(2, 1, 16, 32);
    plan.sharding = workload::Sharding::kNone;  // gradients are all-reduced
    plan.seq_len = 1024;
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
      EXPECT_NEAR(static_cast<double>(run->jobs[0].step_time), time, 0.05 * time)
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
