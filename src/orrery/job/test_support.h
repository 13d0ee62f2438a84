// What tests of jobs share: a small job on one node, read and simulated.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "orrery/job/job.h"
#include "orrery/job/simulate.h"

namespace orrery::job {

inline constexpr std::string_view kSmall = R"(
model: gpt2
cluster: h100-ib-400g
nodes: 1
parallel: {tp: 2, pp: 2, dp: 2}
training: {global_batch: 16, seq_len: 1024}
)";

inline Job Read(std::string_view text, const ReadOptions& options = {}) {
  Result<Job> job = ReadJobText(text, "job.yaml", "", options);
  EXPECT_TRUE(job.ok()) << job.status().message();
  return job.ok() ? *std::move(job) : Job{};
}

inline std::string Error(std::string_view text, const ReadOptions& options = {}) {
  return ReadJobText(text, "job.yaml", "", options).status().message();
}

inline results::RunResult Predict(const Job& job, Caches* caches = nullptr) {
  Result<results::RunResult> result = Simulate(job, {}, caches);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *std::move(result) : results::RunResult{};
}

}  // namespace orrery::job
