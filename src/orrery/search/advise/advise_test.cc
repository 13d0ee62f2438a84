#include "orrery/search/advise/advise.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "orrery/base/text.h"
#include "orrery/job/simulate.h"

namespace orrery::search {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kBubbly = R"(
model: gpt2
cluster: h100-ib-400g
nodes: 1
parallel: {tp: 1, pp: 4, dp: 2}
training: {global_batch: 16, seq_len: 1024, recompute: full}
)";

results::RunResult Simulated(std::string_view text, const std::vector<std::string>& set) {
  Result<job::Job> job = job::ReadJobText(text, "job.yaml", "", {.set = set});
  EXPECT_TRUE(job.ok()) << job.status().message();
  Result<results::RunResult> result = job::Simulate(*job);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return *std::move(result);
}

std::string Advice(std::string_view text, const std::vector<std::string>& set = {}) {
  const Result<Template> base = ReadTemplateText(text, "job.yaml", {.set = set}, "");
  EXPECT_TRUE(base.ok()) << base.status().message();
  const results::RunResult result = Simulated(text, set);
  const Result<std::string> advice = Advise(*base, result.jobs.front(), result.simulation.events);
  EXPECT_TRUE(advice.ok()) << advice.status().message();
  return *advice;
}

// What is said, typed as it is said, gives the time that is said.
TEST(Advise, WhatIsSaidIsTrue) {
  const std::string advice = Advice(kBubbly);
  ASSERT_TRUE(advice.starts_with("--set ")) << advice;
  std::vector<std::string> set;
  for (std::size_t at = 0; (at = advice.find("--set ", at)) != std::string::npos;) {
    at += 6;
    set.push_back(advice.substr(at, advice.find(' ', at) - at));
  }
  const results::RunResult changed = Simulated(kBubbly, set);
  EXPECT_THAT(advice, HasSubstr(" gives " + HumanTime(changed.jobs.front().step_time) + " ("));
  EXPECT_THAT(advice, HasSubstr(HumanBytes(changed.jobs.front().fullest()->total())));
  EXPECT_LT(changed.jobs.front().step_time, Simulated(kBubbly, {}).jobs.front().step_time);
}

// A change that would fill the GPU is not advised, and nothing is for a job that does not fit.
TEST(Advise, LeavesRoom) {
  const std::int64_t bytes = Simulated(kBubbly, {}).jobs.front().fullest()->total();
  const std::string tight = fmt::format("cluster.device.memory={}B", bytes + (32 << 20));
  const std::string advice = Advice(kBubbly, {tight});
  if (advice.starts_with("--set ")) {
    std::vector<std::string> set = {tight};
    for (std::size_t at = 0; (at = advice.find("--set ", at)) != std::string::npos;) {
      at += 6;
      set.push_back(advice.substr(at, advice.find(' ', at) - at));
    }
    EXPECT_LE(Simulated(kBubbly, set).jobs.front().fullest()->total(), bytes) << advice;
  }
  EXPECT_EQ(Advice(kBubbly, {"cluster.device.memory=1GiB"}), "");
}

// On Hopper PyTorch takes flash attention 2 for long sequences, too; cuDNN's kernels are advised,
// which make this step 1.76 times faster.
TEST(Advise, FasterAttentionOnHopper) {
  constexpr std::string_view kLong = R"(
model: llama3-8b
cluster: h100-ib-400g
nodes: 4
framework: fsdp2
parallel: {dp: 1, cp: 32}
training: {global_batch: 1, seq_len: 1048576, recompute: full, sharding: zero3}
)";
  EXPECT_THAT(Advice(kLong), ::testing::StartsWith("--set framework_options.attention=cudnn"));
  const auto step = [&](const char* kernels) {
    const std::string set = fmt::format("framework_options.attention={}", kernels);
    return static_cast<double>(Simulated(kLong, {set}).jobs.front().step_time);
  };
  EXPECT_NEAR(step("flash2") / step("cudnn"), 1.76, 0.02);
  EXPECT_THAT(Advice(kLong, {"cluster=a100-80g-ib-200g"}), ::testing::Not(HasSubstr("attention")));
}

// A job whose run is long is not run again.
TEST(Advise, TriesNothingAfterALongRun) {
  const Result<Template> base = ReadTemplateText(kBubbly, "job.yaml", {}, "");
  const results::RunResult result = Simulated(kBubbly, {});
  EXPECT_EQ(*Advise(*base, result.jobs.front(), kMostEvents + 1), "");
}

}  // namespace
}  // namespace orrery::search
