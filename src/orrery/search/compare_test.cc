// U5: differences of parts add up to the picosecond, signs turn, nothing differs from itself.
#include "orrery/results/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "orrery/base/rng.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/results/json.h"

namespace orrery::results {
namespace {

using ::testing::HasSubstr;

// A job drawn from a few values of several keys; empty where a rule refuses it.
std::string DrawnResult(CounterRng* rng, job::Caches* caches) {
  constexpr std::array<const char*, 3> kTp = {"1", "2", "4"}, kPp = {"1", "2", "4"},
                                       kMicro = {"1", "2", "4"},
                                       kRecompute = {"none", "selective", "full"},
                                       kSharding = {"none", "zero1", "zero1"},
                                       kModel = {"gpt2", "llama3.2-1b", "gpt2"};
  job::ReadOptions read;
  const auto set = [&](const char* key, const std::array<const char*, 3>& values) {
    read.set.push_back(fmt::format("{}={}", key, values[rng->Below(3)]));
  };
  set("model", kModel);
  set("parallel.tp", kTp);
  set("parallel.pp", kPp);
  set("training.micro_batch", kMicro);
  set("training.recompute", kRecompute);
  set("training.sharding", kSharding);
  const auto job = job::ReadJobText(
      "cluster: h100-ib-400g\nnodes: 2\ntraining: {global_batch: 64, seq_len: 1024}\n", "job.yaml",
      "", read);
  if (!job.ok()) return "";
  const auto result = job::Simulate(*job, {}, caches);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return ToJson(*result);
}

std::int64_t Sum(const std::vector<Difference>& parts) {
  std::int64_t sum = 0;
  for (const Difference& d : parts) sum += d.change();
  return sum;
}

void ExpectOpposite(const std::vector<Difference>& x, const std::vector<Difference>& y) {
  ASSERT_EQ(x.size(), y.size());
  for (const Difference& d : x) {
    const auto same = std::find_if(y.begin(), y.end(), [&](const Difference& other) {
      return other.name == d.name && other.change() == -d.change();
    });
    EXPECT_NE(same, y.end()) << d.name;
  }
}

TEST(Compare, PartsAddUpAndSignsTurn) {
  CounterRng rng(7);
  job::Caches caches;
  std::vector<std::string> texts;
  while (texts.size() < 40) {
    std::string text = DrawnResult(&rng, &caches);
    if (!text.empty()) texts.push_back(std::move(text));
  }
  for (int pair = 0; pair < 500; ++pair) {
    const std::string &a = texts[rng.Below(texts.size())], &b = texts[rng.Below(texts.size())];
    const auto there = Compare(a, "a", b, "b"), back = Compare(b, "b", a, "a");
    ASSERT_TRUE(there.ok() && back.ok()) << there.status().message();
    EXPECT_EQ(Sum(there->parts), there->change());
    for (const StageDifference& stage : there->stages) {
      EXPECT_EQ(Sum(stage.parts), there->change());
    }
    EXPECT_EQ(there->change(), -back->change());
    EXPECT_EQ(there->can_tell(), back->can_tell());
    ExpectOpposite(there->parts, back->parts);
    ExpectOpposite(there->memory, back->memory);
    if (!there->memory.empty() && there->memory.front().name == "total") {
      EXPECT_EQ(Sum(there->memory), 2 * there->memory.front().change());
    }
    EXPECT_EQ(there->assumed_a, back->assumed_b);
    EXPECT_TRUE(Compare(a, "a", a, "a")->same());
  }
}

TEST(Compare, WhatIsNoResultIsRefused) {
  EXPECT_THAT(Compare("{}", "a.json", "{}", "b.json").status().message(),
              HasSubstr("a.json: is no result"));
  EXPECT_THAT(
      Compare(R"({"schema": "orrery.result/1"})", "a", R"({"schema": "orrery.result/1"})", "b")
          .status()
          .message(),
      HasSubstr("not two whole results"));
  EXPECT_THAT(Compare(R"({"schema": 1})", "a.json", "{}", "b.json").status().message(),
              HasSubstr("a.json: is no result"));
  // Nested until recursion would leave the stack.
  const std::string deep = fmt::format(R"({{"schema": "orrery.result/1", "config": {}{}}})",
                                       std::string(300'000, '['), std::string(300'000, ']'));
  EXPECT_THAT(Compare(deep, "a.json", deep, "b.json").status().message(),
              HasSubstr("a.json: is nested more than"));
}

}  // namespace
}  // namespace orrery::results
