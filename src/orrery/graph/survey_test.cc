#include "orrery/graph/survey.h"

#include <gtest/gtest.h>

#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/general_samples.h"

namespace orrery::graph {
namespace {

// Three ranks: a block that a host issues, and one that nobody does.
constexpr std::string_view kText = R"(orrery.graph/2
job "three" ranks=3
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
  all-reduce group=#0 stream=5 bytes=8*#1
program 0 "both" events=1
  column 0 10 20 30
  column 1 1 2 4
  call block=0 repeat=2
  call block=1
rank program=0 job=0 logical=0 model=0
rank program=0 job=0 logical=1 model=0 row=1
rank program=0 job=0 logical=2 model=0 row=2
group 0 model 2 0 1
group 1 dp 0..2
more 1
)";

TEST(Survey, CountsWhatRanksDo) {
  const Result<Graph> graph = FromText(kText);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const Survey survey = SurveyOf(*graph);
  // Three ranks: twice 4 lasting operations of block 0, six of block 1.
  EXPECT_EQ(survey.operations, 3 * (2 * 4 + 6));
  EXPECT_EQ(survey.kinds.at("known time"), 3 * (2 * 2 + 3));
  EXPECT_EQ(survey.kinds.at("timed"), 3 * 2);
  EXPECT_EQ(survey.kinds.at("record"), 3 * 2);
  const auto all_reduce = survey.traffic.at({GroupSlot::kDp, Collective::kAllReduce});
  EXPECT_EQ(all_reduce.count, 3);
  EXPECT_EQ(all_reduce.bytes, 8 * (1 + 2 + 4));
  EXPECT_EQ(survey.traffic.at({GroupSlot::kModel, Collective::kSend}).bytes, 300);
  // One place on in the order 2, 0, 1.
  const std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> messages = {
      {{2, 0}, 100}, {{0, 1}, 100}, {{1, 2}, 100}};
  EXPECT_EQ(survey.messages, messages);
  EXPECT_EQ(survey.column_numbers, 6u);
  EXPECT_NE(survey.why_not_straight, "");
}

// Bytes sent are bytes received, whatever the peers.
TEST(Survey, MessagesHaveTwoEnds) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Survey survey = SurveyOf(GeneralGraph(seed, AnyGeneralShape(seed)));
    std::int64_t sent = 0, received = 0, messages = 0;
    for (const auto& [key, traffic] : survey.traffic) {
      if (key.second == Collective::kSend) sent += traffic.bytes;
      if (key.second == Collective::kRecv) received += traffic.bytes;
    }
    for (const auto& [pair, bytes] : survey.messages) {
      messages += bytes;
      EXPECT_NE(pair.first, pair.second) << "seed " << seed;
    }
    EXPECT_EQ(sent, received) << "seed " << seed;
    EXPECT_EQ(sent, messages) << "seed " << seed;
  }
}

// Sizes whose sums leave 64 bits ended in aborts of the networks.
TEST(Survey, NoSizeIsBeyondTheClock) {
  const auto read = [](std::string_view before, std::string_view after) {
    std::string text(kText);
    text.replace(text.find(before), before.size(), after);
    return FromText(text).status().message();
  };
  EXPECT_EQ(read("bytes=8*#1", "bytes=8*#1"), "");
  EXPECT_NE(read("tag=9 stream=none bytes=100", "tag=9 stream=none bytes=9000000000000000000")
                .find("9000000000000000000 bytes, more than 2^52"),
            std::string::npos);
  EXPECT_NE(read("bytes=8*#1", "bytes=4503599627370496*#1")
                .find("column 1, row 1: 2 times 4503599627370496 is no size or time"),
            std::string::npos);
}

}  // namespace
}  // namespace orrery::graph
