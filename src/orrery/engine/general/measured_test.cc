// Communications that a trace has timed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/collective/collective.h"
#include "orrery/engine/engine.h"
#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::engine {
namespace {

// Two ranks: threads work 10 and 30 us, then all-reduce, then compute 5 us. The first is done with
// the all-reduce 4 us after the second has come, the second 7 us; a message then takes 2 us.
constexpr const char* kText = R"(orrery.graph/2
job "traced" ranks=2 once=1
block 0 "first" issue=free
  host ps=10000000 stream=2
  all-reduce group=dp stream=1 blocking=0 bytes=1048576 measured=4000000 after=0
  time ps=5000000 after=1
  send group=dp peer=member:1 stream=3 blocking=0 bytes=64 measured=2000000 after=2
block 1 "second" issue=free
  host ps=30000000 stream=2
  all-reduce group=dp stream=1 blocking=0 bytes=1048576 measured=7000000 after=0
  time ps=5000000 after=1
  receive group=dp peer=member:0 stream=3 blocking=0 bytes=64 after=2
program 0 "first"
  call block=0
program 1 "second"
  call block=1
rank program=0 job=0 logical=0 dp=0
rank program=1 job=0 logical=1 dp=0
group 0 dp 0..1
)";

struct Ends {
  SimTime first = 0, second = 0;
};
Ends RunOn(std::string_view network, bool measured) {
  const Result<graph::Graph> graph = graph::FromText(kText);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 1;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const compute::CostModel compute = *compute::CostModel::Create(spec.device, {});
  const collective::Planner planner(cluster, collective::Environment{});
  const cluster::Placement placement{{DeviceId(std::size_t{0}), DeviceId(std::size_t{1})}};
  const Inputs in{&*graph, &cluster, &placement, &compute, &planner, network};
  const Result<Record> run = Run(in, {.measured_communication = measured});
  EXPECT_TRUE(run.ok()) << run.status().message();
  return {run->classes[0].finish_time, run->classes[1].finish_time};
}

// All-reduce from 30 us on: done at 34 and 37; work until 39 and 42; the message of a receiver
// without a time takes its sender's 2.
TEST(MeasuredCommunication, TakesItsTimeOnceAllHaveComeOnEveryNetwork) {
  for (const char* network : {"analytic", "flow", "flow-chunks", "links"}) {
    const Ends ends = RunOn(network, true);
    EXPECT_EQ(ends.first, 44 * kMicrosecond) << network;
    EXPECT_EQ(ends.second, 44 * kMicrosecond) << network;
  }
}

TEST(MeasuredCommunication, IsPricedWhereThatIsAskedFor) {
  const Ends ends = RunOn("analytic", false);
  EXPECT_NE(ends.first, 44 * kMicrosecond);
  EXPECT_GT(ends.first, 40 * kMicrosecond);
}

TEST(MeasuredCommunication, StandsInTheText) {
  const Result<graph::Graph> graph = graph::FromText(kText);
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(graph::ToText(*graph), ::testing::HasSubstr("measured=7000000"));
  EXPECT_TRUE(graph::Verify(*graph, graph::VerifyLevel::kFull).ok());
}

}  // namespace
}  // namespace orrery::engine
