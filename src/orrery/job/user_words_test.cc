// What outside users wrote, and what became of it: models by their names on the hub, frameworks by
// other words, accumulation under FSDP, devices that no run was measured on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/job/test_support.h"

namespace orrery::job {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kSharded = R"(
model: meta-llama/Meta-Llama-3-8B
cluster: a100-80g-ib-200g
nodes: 1
framework: fsdp1
training: {global_batch: 8, seq_len: 4096, sharding: zero3, recompute: full}
framework_options: {grad_reduce_fp32: false, defer_grad_reduce: true}
)";

ReadOptions With(std::vector<std::string> set) { return {.set = std::move(set)}; }

// As `import` knows it: owner, case and -Instruct do not count; nothing else is guessed.
TEST(UserWords, NamesOfTheHub) {
  EXPECT_EQ(Read(kSharded).workloads.front().model.parameters(), 8'030'261'248);
  EXPECT_EQ(
      Read(kSharded, With({"model=Qwen/Qwen2.5-7B-Instruct"})).workloads.front().model.parameters(),
      7'615'616'512);
  EXPECT_THAT(Error(kSharded, With({"model=meta-llama/Meta-Llama-3-9B"})),
              HasSubstr("no model of the hub whose shapes are known; known names near it: "
                        "meta-llama-3-8b"));
  EXPECT_THAT(Error(kSharded, With({"model=./none/config.json"})), HasSubstr("No such file"));
}

// Gradients of 8.03 billion parameters in bf16 wait for the last of four micro-batches, 15.0 GiB
// beside activations. With one micro-batch memory peaks in the optimizer, where there are none.
TEST(UserWords, AccumulationHoldsUnshardedGradients) {
  const auto peak = [](std::vector<std::string> set) {
    const results::RunResult result = Predict(Read(kSharded, With(std::move(set))));
    return static_cast<double>(result.jobs.front().fullest()->total()) / (1 << 30);
  };
  const double once = peak({}), held = peak({"training.global_batch=32"});
  EXPECT_GT(held, 15.0 + 2 * 3.74 + 3.74);  // and shards of parameters and moments
  EXPECT_GT(held - once, 8);
  EXPECT_LT(held - once, 15.1);
  EXPECT_NEAR(
      peak({"training.global_batch=32", "framework_options.defer_grad_reduce=false"}) - once, 0,
      0.6);
  // 70 billion parameters' are 131 GiB: more than the GPU has.
  const Job large =
      Read(kSharded, With({"model=llama3-70b", "nodes=8", "training.global_batch=256"}));
  const results::RunResult result = Predict(large);
  EXPECT_TRUE(result.jobs.front().out_of_memory());
  EXPECT_THAT(result.jobs.front().memory_remedy, HasSubstr("defer_grad_reduce: false"));
}

// A parameter takes 250 ps on the 48 cores of a whole host, which eight ranks share: 2 ns each; on
// one core 12 ns, on two 6. All of it is host work.
TEST(UserWords, ThreadsOfAnOffloadedOptimizer) {
  const auto step = [](const std::string& threads) {
    return ToSeconds(
        Predict(Read(kSharded,
                     With({"framework=deepspeed", "training.offload=optimizer",
                           "training.sharding=zero2", "training.offload_threads=" + threads})))
            .jobs.front()
            .step_time);
  };
  const double host = step("null");
  EXPECT_NEAR((step("1") - host) / (step("2") - host), 10.0 / 4, 0.02);
  EXPECT_NEAR(step("48"), host, 1e-6);
}

TEST(UserWords, FrameworksByOtherWords) {
  EXPECT_THAT(Error(kSmall, With({"framework=PyTorch"})),
              HasSubstr("unknown framework 'PyTorch'; which of it: fsdp2, fsdp1, ddp"));
  EXPECT_THAT(Error(kSmall, With({"framework=huggingface"})), HasSubstr("deepspeed"));
}

TEST(UserWords, DevicesWithoutMeasuredRuns) {
  EXPECT_THAT(Error(kSmall, With({"cluster.device=RTX-6090"})), HasSubstr("cluster.device"));
  EXPECT_THAT(Error(kSmall, With({"cluster.device=T4-16GB"})),
              HasSubstr("does not compute in bf16"));
  const Job known = Read(kSharded), other = Read(kSharded, With({"cluster.device=Trainium2-96GB"}));
  EXPECT_THAT(other.assumed, Contains(HasSubstr("priced as on Volta")));
  EXPECT_THAT(known.assumed, Not(Contains(HasSubstr("priced as on"))));
  const auto width = [](const Job& job) {
    const results::JobResult result = Predict(job).jobs.front();
    return result.interval_high_s / ToSeconds(result.step_time);
  };
  EXPECT_LT(width(known), 1.25);
  EXPECT_GT(width(other), 1.4);
}

TEST(UserWords, NumbersOfLayers) {
  EXPECT_THAT(
      Read(kSmall, With({"training.recompute=full", "training.recompute_layers=40"})).assumed,
      Contains(HasSubstr("recompute_layers: 40 is more than the 12 layers that gpt2 has")));
  EXPECT_THAT(Error(kSmall, With({"parallel.vpp=5", "parallel.layers_per_stage=counted"})),
              HasSubstr("counted cannot share out the 12 layers"));
}

}  // namespace
}  // namespace orrery::job
