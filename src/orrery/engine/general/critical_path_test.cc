#include "orrery/engine/general/critical_path.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/general_samples.h"

namespace orrery::engine::general {
namespace {

CriticalPath PathOf(std::string_view text) {
  const Result<graph::Graph> graph = graph::FromText(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? FindCriticalPath(*graph, 100) : CriticalPath{};
}

// Rank 0 works 10 ps and sends; rank 1 works 20 ps on what it received and sends back; rank 0 works
// 5 ps on that. Beside it rank 1 works 18 ps, alone.
TEST(CriticalPath, FollowsMessages) {
  const CriticalPath path = PathOf(R"(orrery.graph/2
job "two" ranks=2 once=1
block 0 issue=free
  time ps=10 stream=none
  send group=model peer=member:1 tag=1 stream=none bytes=8 after=0
  receive group=model peer=member:1 tag=2 stream=none bytes=8
  time ps=5 stream=none after=2
block 1 issue=free
  receive group=model peer=member:0 tag=1 stream=none bytes=8
  time ps=20 stream=none after=0
  send group=model peer=member:0 tag=2 stream=none bytes=8 after=1
  time ps=18 stream=none
program 0 "first"
  call block=0
program 1 "second"
  call block=1
rank program=0 job=0 logical=0 model=0
rank program=1 job=0 logical=1 model=0
group 0 model 0 1
)");
  EXPECT_EQ(path.outcome, CriticalPath::Outcome::kFound);
  EXPECT_EQ(path.known, 35);
  EXPECT_EQ(path.operations, 5);
  EXPECT_EQ(path.ranks, 2u);
  EXPECT_EQ(path.crossings, 2);
  EXPECT_EQ(path.last, 0u);
  EXPECT_EQ(path.kinds.at("known time").operations, 3);
  EXPECT_EQ(path.kinds.at("known time").known, 35);
}

// All members of a collective go on from its last one.
TEST(CriticalPath, FollowsCollectives) {
  const CriticalPath path = PathOf(R"(orrery.graph/2
job "three" ranks=3
block 0
  time ps=1*#0
  all-reduce group=dp bytes=64
  time ps=1*#1
program 0 "only"
  column 0 10 90 30
  column 1 7 5 6
  call block=0
rank program=0 job=0 logical=0 dp=0
rank program=0 job=0 logical=1 dp=0 row=1
rank program=0 job=0 logical=2 dp=0 row=2
group 0 dp 0..2
)");
  EXPECT_EQ(path.known, 97);
  EXPECT_EQ(path.operations, 3);
  EXPECT_EQ(path.last, 0u);
  EXPECT_EQ(path.crossings, 1);
  EXPECT_EQ(path.kinds.at("all-reduce").operations, 1);
}

// Block 0 is issued: 0 (10 ps on stream 0) and 1 (30 ps on stream 1) run beside each other; 2 waits
// for what 1 recorded; 3 runs on stream 0 behind it (5 ps); the host waits for stream 0, and works
// for 7 ps: 30 + 5 + 7 = 42 ps a call, in three operations.
// Block 1 is free: 0 waits for 2, which waits for 3: column 0's number and 4 + 4 ps.
TEST(CriticalPath, OfARankAlone) {
  constexpr std::string_view kText = R"(orrery.graph/2
job "two" ranks=2
block 0
  time ps=10
  time ps=30 stream=1
  record event=0 stream=1
  wait event=0
  timed ps=5
  host-sync
  host ps=7
block 1 issue=free
  time ps=1*#0 stream=none after=2
  send group=model peer=offset:1 tag=9 stream=none bytes=100
  time ps=4 stream=none after=3
  time ps=4 stream=none
  receive group=model peer=any tag=9 stream=none bytes=100
program 0 "both" events=1
  column 0 10 90
  call block=0 repeat=2
  call block=1
rank program=0 job=0 logical=0 model=0
rank program=0 job=0 logical=1 model=0 row=1
group 0 model 0 1
)";
  const Result<graph::Graph> graph = graph::FromText(kText);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const CriticalPath first = FindChain(*graph, RankId(0));
  EXPECT_EQ(first.known, 2 * 42);
  EXPECT_EQ(first.operations, 2 * 3);
  const CriticalPath second = FindChain(*graph, RankId(1));
  EXPECT_EQ(second.known, 4 + 4 + 90);
  EXPECT_EQ(second.last, 1u);
}

// What all ranks do together takes no less than what one of them does by itself.
TEST(CriticalPath, IsNoShorterThanARanksOwn) {
  int found = 0, longer = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const graph::Graph graph = graph::GeneralGraph(seed, graph::AnyGeneralShape(seed));
    const CriticalPath path = FindCriticalPath(graph, 1);
    if (path.outcome != CriticalPath::Outcome::kFound) continue;  // by an unlucky wildcard
    ++found;
    SimTime most = 0;
    for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
      most = std::max(most, FindChain(graph, RankId(r)).known);
    }
    ASSERT_GE(path.known, most) << seed;
    longer += path.known > most ? 1 : 0;
  }
  EXPECT_GT(found, 190);
  EXPECT_GT(longer, 20);
}

TEST(CriticalPath, SaysWhatItDoesNotFind) {
  constexpr std::string_view kText = R"(orrery.graph/2
job "two" ranks=2 once=1
block 0 issue=free
  receive group=model peer=offset:1 stream=none bytes=8
  send group=model peer=offset:1 stream=none bytes=8 after=0
program 0 "both"
  call block=0
rank program=0 job=0 logical=0 model=0
rank program=0 job=0 logical=1 model=0
group 0 model 0 1
)";
  EXPECT_EQ(PathOf(kText).outcome, CriticalPath::Outcome::kStuck);
  const Result<graph::Graph> graph = graph::FromText(kText);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(FindCriticalPath(*graph, CriticalPath::kMostOperations + 1).outcome,
            CriticalPath::Outcome::kTooLong);
}

}  // namespace
}  // namespace orrery::engine::general
