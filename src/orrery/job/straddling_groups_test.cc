#include "orrery/job/straddling_groups.h"

#include <gmock/gmock.h>

#include "orrery/job/test_support.h"

namespace orrery::job {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kRacks = R"(
model: {preset: qwen3-30b-a3b, layers: 2}
cluster: gb200-nvl72-ib-400g
nodes: 36
framework: megatron
parallel: {ep: 16}
training: {global_batch: 144, seq_len: 1024, sharding: zero1}
)";

std::vector<std::string> Warnings(std::string_view text, std::vector<std::string> set = {}) {
  ReadOptions options;
  options.set = std::move(set);
  return Predict(Read(text, options)).warnings;
}

// 144 GPUs of two racks of 72: of nine groups of 16 the fifth has GPUs 64 to 79.
TEST(StraddlingGroups, ExpertsOverTwoRacks) {
  EXPECT_THAT(
      Warnings(kRacks),
      Contains(AllOf(HasSubstr("1 of 9 expert-parallel groups of 16 ranks (parallel.ep) lies in "
                               "several NVLink domains of 72 GPUs"),
                     HasSubstr("--set cluster.gpus_per_nvlink_domain=64 takes 16 hosts of each "
                               "rack"))));
  const auto whole = Not(Contains(HasSubstr("expert-parallel groups")));
  EXPECT_THAT(Warnings(kRacks, {"cluster.gpus_per_nvlink_domain=64", "nodes=32",
                                "training.global_batch=128"}),
              whole);
  EXPECT_THAT(Warnings(kRacks, {"parallel.ep=8"}), whole);
}

// Hosts of 8: tensor-parallel groups of 16 lie in two, expert-parallel ones of 16 do by design.
TEST(StraddlingGroups, TensorParallelOverHosts) {
  constexpr std::string_view kHosts = R"(
model: {preset: qwen3-30b-a3b, layers: 2}
cluster: h100-ib-400g
nodes: 2
framework: megatron
parallel: {ep: 16}
training: {global_batch: 16, seq_len: 1024, sharding: zero1}
)";
  EXPECT_THAT(Warnings(kHosts), Not(Contains(HasSubstr("groups of"))));
  constexpr std::string_view kDense = R"(
model: gpt2
cluster: h100-ib-400g
nodes: 3
framework: megatron
parallel: {tp: 12, dp: 2}
training: {global_batch: 16, seq_len: 1024}
)";
  EXPECT_THAT(Warnings(kDense),
              Contains(AllOf(HasSubstr("2 of 2 tensor-parallel groups of 12 ranks (parallel.tp) "
                                       "lie in several hosts of 8 GPUs"),
                             HasSubstr("parallel.tp of at most 8 stays inside"))));
  EXPECT_THAT(Warnings(kDense, {"parallel.tp=4", "parallel.dp=6", "training.global_batch=18"}),
              Not(Contains(HasSubstr("groups of"))));
}

}  // namespace
}  // namespace orrery::job
