#include "orrery/results/step_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::results {
namespace {

// Two ranks, a second each of some work; rank 1 needs what rank 0 sends.
//
//   rank 0   forward 0..10   send 10..14      backward 14..30
//   rank 1   idle            receive 0..14 (waits until 10)   forward 15..27, update 27..40
class TwoRanks : public ::testing::Test {
 protected:
  TwoRanks() {
    graph_.bindings.resize(2);
    Add(0, "forward", 0, 10);
    Add(0, "send", 10, 14, 1);
    Add(0, "backward", 14, 30);
    Add(1, "receive", 0, 14, 1, 10);
    Add(1, "forward", 15, 27);
    Add(1, "update", 27, 40);
  }
  void Add(int rank, std::string_view name, SimTime start, SimTime end, std::uint32_t stream = 0,
           SimTime waited = 0, std::int32_t iteration = 1) {
    engine::Sink::Interval i;
    i.rank = RankId(static_cast<std::uint32_t>(rank));
    i.stream = stream;
    i.start = start;
    i.end = end;
    i.waited = waited;
    i.name = graph_.Intern(name);
    i.iteration = iteration;
    added_.push_back(i);
  }
  StepPath Path(SimTime from, SimTime to, std::vector<RankId> ranks) {
    StepPathSink sink(graph_, ranks);
    for (const engine::Sink::Interval& i : added_) {
      if (sink.wants(i.rank)) sink.Add(i);
    }
    return sink.Path(from, to);
  }
  static SimTime Of(const StepPath& path, std::string_view what) {
    for (const StepPath::Part& part : path.parts) {
      if (part.what == what) return part.time;
    }
    return 0;
  }
  static SimTime Sum(const StepPath& path) {
    SimTime sum = 0;
    for (const StepPath::Part& part : path.parts) sum += part.time;
    return sum;
  }

  graph::Graph graph_;
  std::vector<engine::Sink::Interval> added_;
};

constexpr const char* kGap = "host, launches and waiting for equal ranks";

TEST_F(TwoRanks, TheChainCrossesToTheRankThatWasWaitedFor) {
  const StepPath path = Path(0, 40, {RankId(0), RankId(1)});
  EXPECT_EQ(Sum(path), 40);
  EXPECT_EQ(Of(path, "update"), 13);
  EXPECT_EQ(Of(path, "forward"), 12 + 10);  // of both ranks
  EXPECT_EQ(Of(path, kGap), 1);
  EXPECT_EQ(Of(path, "receive"), 4);
  EXPECT_EQ(Of(path, "backward"), 0);
  EXPECT_EQ(path.crossings, 1);
  EXPECT_EQ(path.ranks, 2u);
}

TEST_F(TwoRanks, ARankThatIsNotFollowedShowsAsWaiting) {
  const StepPath path = Path(0, 40, {RankId(1)});
  EXPECT_EQ(Sum(path), 40);
  EXPECT_EQ(Of(path, "receive"), 4);
  EXPECT_EQ(Of(path, "receive, waiting"), 10);
  EXPECT_EQ(path.crossings, 0);
}

TEST_F(TwoRanks, OnlyTheStepCounts) {
  // Of the iteration before, which is not kept; the step begins in the middle of a forward.
  Add(0, "forward", 40, 50, 0, 0, 2);
  Add(0, "late", 50, 60, 0, 0, 2);
  const StepPath path = Path(43, 62, {RankId(0), RankId(1)});
  EXPECT_EQ(Sum(path), 19);
  EXPECT_EQ(Of(path, "forward"), 7);
  EXPECT_EQ(Of(path, "late"), 10);
  EXPECT_EQ(Of(path, kGap), 2);
  EXPECT_EQ(Of(path, "update"), 0);
  EXPECT_EQ(Sum(Path(5, 5, {RankId(0)})), 0);
}

}  // namespace
}  // namespace orrery::results
