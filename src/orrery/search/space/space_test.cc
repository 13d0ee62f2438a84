#include "orrery/search/space/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Values(std::string_view text) {
  Result<std::vector<std::string>> values = ParseValues(text);
  EXPECT_TRUE(values.ok()) << values.status().message();
  return values.ok() ? *std::move(values) : std::vector<std::string>{};
}

TEST(Values, ListsRangesAndBrackets) {
  EXPECT_THAT(Values("1,2, 4"), ElementsAre("1", "2", "4"));
  EXPECT_THAT(Values("1..4"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(Values("0..64:32"), ElementsAre("0", "32", "64"));
  EXPECT_THAT(Values("1..20:*4"), ElementsAre("1", "4", "16"));
  EXPECT_THAT(Values("[3,4],[4, 3]"), ElementsAre("[3,4]", "[4, 3]"));
  EXPECT_THAT(Values("[{rank: 0, speed: 0.9}],[]"), ElementsAre("[{rank: 0, speed: 0.9}]", "[]"));
  EXPECT_THAT(Values("../a.yaml,400Gb/s"), ElementsAre("../a.yaml", "400Gb/s"));
}

TEST(Values, WhatIsNoneIsRefusedByName) {
  EXPECT_THAT(ParseValues("1,,2").status().message(), HasSubstr("a value is empty"));
  EXPECT_THAT(ParseValues("8..1").status().message(), HasSubstr("'8..1' is no range"));
  EXPECT_THAT(ParseValues("0..8:*2").status().message(), HasSubstr("is no range"));
  EXPECT_THAT(ParseValues("[1,2").status().message(), HasSubstr("is not closed"));
  EXPECT_THAT(ParseValues("1,2,1").status().message(), HasSubstr("stands twice"));
  EXPECT_THAT(ParseVary("parallel.tp").status().message(), HasSubstr("write key.path=values"));
}

// 2 × 3 points, the last axis fastest: point 4 is (second, second).
TEST(Space, IsTheGridOfItsAxes) {
  Space space;
  ASSERT_TRUE(space.Add(*ParseVary("parallel.tp=4,8")).ok());
  const std::string zipped[] = {"nodes=1,2,4", "training.global_batch=8,16,32"};
  ASSERT_TRUE(space.Add(*Zip(zipped)).ok());
  EXPECT_EQ(space.size(), 6u);
  EXPECT_THAT(space.Keys(), ElementsAre("parallel.tp", "nodes", "training.global_batch"));
  EXPECT_THAT(space.Values(4), ElementsAre("8", "2", "16"));
  EXPECT_THAT(space.Assignments(4),
              ElementsAre("parallel.tp=8", "nodes=2", "training.global_batch=16"));
}

TEST(Space, AKeyVariesOnce) {
  Space space;
  ASSERT_TRUE(space.Add(*ParseVary("parallel.tp=4,8")).ok());
  EXPECT_THAT(space.Add(*ParseVary("parallel.tp=1")).message(), HasSubstr("varied twice"));
  EXPECT_THAT(space.Add(*ParseVary("parallel=auto")).message(), HasSubstr("holds it"));
  const std::string uneven[] = {"nodes=1,2", "training.global_batch=8"};
  EXPECT_THAT(Zip(uneven).status().message(), HasSubstr("need as many each"));
}

}  // namespace
}  // namespace orrery::search
