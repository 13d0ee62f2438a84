// Graphs that files may hold and our generators do not write: each of these once hung, crashed or
// filled the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "orrery/collective/collective.h"
#include "orrery/engine/engine.h"
#include "orrery/engine/general/critical_path.h"
#include "orrery/graph/forms/text_form.h"

namespace orrery::engine {
namespace {

Result<Record> RunText(std::string_view text, std::string_view network,
                       std::int64_t nvlink_Bps = 0) {
  const Result<graph::Graph> graph = graph::FromText(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  cluster::Spec spec = *cluster::FindPreset("h100-ib-400g");
  spec.nodes = 1;
  if (nvlink_Bps > 0) spec.nvlink_Bps = nvlink_Bps;
  const cluster::Cluster cluster = *cluster::Cluster::Build(spec);
  const compute::CostModel compute = *compute::CostModel::Create(spec.device, {});
  const collective::Planner planner(cluster, collective::Environment{});
  cluster::Placement placement;
  for (std::size_t r = 0; r < graph->bindings.size(); ++r) placement.device.emplace_back(r);
  const Inputs in{&*graph, &cluster, &placement, &compute, &planner, network};
  return Run(in, {});
}

constexpr std::string_view kFourRanks = R"(rank program=0 job=0 logical=0 model=0
rank program=0 job=0 logical=1 model=0
rank program=0 job=0 logical=2 model=0
rank program=0 job=0 logical=3 model=0
group 0 model 0..3
)";

// Two of one communicator at once: both wait for the same connections, which remembered one.
TEST(OddGraphs, CollectivesOfOneCommunicatorOverlap) {
  const std::string text = std::string(R"(orrery.graph/2
job "x" ranks=4 once=1
block 0 issue=free
  all-reduce group=model stream=none bytes=100000000
  all-reduce group=model stream=none bytes=100000000
  all-reduce group=model stream=none bytes=10000000
program 0 "p"
  call block=0
)") + std::string(kFourRanks);
  for (const char* network : {"analytic", "flow", "flow-chunks", "links"}) {
    const Result<Record> run = RunText(text, network);
    EXPECT_TRUE(run.ok()) << network << ": " << run.status().message();
  }
}

// Two messages of one group call to one neighbour, with one tag: the fast machine knows one.
TEST(OddGraphs, AGroupCallSaysOneThingTwice) {
  constexpr std::string_view kText = R"(orrery.graph/2
job "x" ranks=2
block 0 "s"
  send group=pp peer=next stream=2 batch=1 bytes=100000
  send group=pp peer=next stream=2 batch=1 bytes=100000
block 1 "r"
  receive group=pp peer=previous stream=2 batch=1 bytes=100000
  receive group=pp peer=previous stream=2 batch=1 bytes=100000
program 0 "a"
  call block=0
program 1 "b"
  call block=1
rank program=0 job=0 logical=0 pp=0 next=1
rank program=1 job=0 logical=1 pp=0 previous=0
group 0 pp 0 1
)";
  for (const char* network : {"analytic", "flow", "links"}) {
    const Result<Record> run = RunText(kText, network);
    ASSERT_TRUE(run.ok()) << network << ": " << run.status().message();
    EXPECT_EQ(run->not_straight_because,
              "block 0: a group call has two messages of one tag with one neighbour");
    EXPECT_EQ(run->messages.sent, 2u * static_cast<unsigned>(run->iterations)) << network;
  }
}

// Ranks in another order than their numbers in the job: rank 0, number 3, sends to number 0.
TEST(OddGraphs, NumbersInAJobNeedNotAscend) {
  constexpr std::string_view kText = R"(orrery.graph/2
job "x" ranks=4 once=1
block 0 "s" issue=free
  send group=model peer=column:0 tag=1 stream=none bytes=100
block 1 "r" issue=free
  receive group=model peer=any tag=1 stream=none bytes=100
program 0 "s"
  column 0 0
  call block=0
program 1 "r"
  call block=1
program 2 "n"
rank program=0 job=0 logical=3
rank program=2 job=0 logical=2
rank program=2 job=0 logical=1
rank program=1 job=0 logical=0
)";
  const Result<Record> run = RunText(kText, "analytic");
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->messages.sent, 1u);
}

// 200 bytes of text took 48 GB.
TEST(OddGraphs, LargeNumbersTakeNoMemory) {
  constexpr std::string_view kText = R"(orrery.graph/2
job "x" ranks=1 once=1
block 0 issue=free
  time ps=1000 stream=2000000000
  record event=1900000000 stream=2000000000
  wait event=1900000000 stream=1
  time ps=500 stream=1
program 0 "p" events=2000000000
  call block=0
rank program=0 job=0
)";
  const Result<graph::Graph> graph = graph::FromText(kText);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(general::FindCriticalPath(*graph, 2).known, 1500);
}

// 2^52 bytes at 1 GB/s are 52 days: an abort on one network, "never become ready" on another.
TEST(OddGraphs, WhatTakesTooLongIsRefused) {
  const std::string text = std::string(R"(orrery.graph/2
job "x" ranks=4 once=1
block 0 issue=free
  all-reduce group=model stream=none bytes=4503599627370496
program 0 "p"
  call block=0
)") + std::string(kFourRanks);
  for (const char* network : {"analytic", "flow", "links"}) {
    const Result<Record> run = RunText(text, network, 1'000'000'000);
    EXPECT_FALSE(run.ok()) << network;
    EXPECT_EQ(run.status().code(), Code::kInvalidInput);
    EXPECT_THAT(run.status().message(), ::testing::HasSubstr("where 100000 s (28 h) are the most"));
  }
}

}  // namespace
}  // namespace orrery::engine
