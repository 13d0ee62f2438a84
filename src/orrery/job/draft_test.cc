#include "orrery/job/draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace orrery::job {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Draft SmallDraft() {
  Draft draft("train.sh (imported)");
  draft.Set("training.micro_batch", 1);
  draft.Set("model", "llama3-8b");
  draft.Set("framework", "megatron@2024.09");
  draft.Set("cluster", "h100-ib-400g");
  draft.Set("training.global_batch", 8);
  draft.Set("training.seq_len", 4096);
  draft.Set("parallel.dp", 8);
  draft.Set("training.precision", "bf16");
  return draft;
}

TEST(Draft, IsWrittenAsPeopleWriteJobFiles) {
  Draft draft = SmallDraft();
  draft.Set("parallel.layers_per_stage", std::vector<int>{3, 4});
  draft.SetText("model.name", "7");
  draft.Set("cluster.device.vboost", true);
  draft.Assume("a \"guess\"\nof two lines");
  draft.Set("training.bf16_modules", "mtp");
  draft.Drop("training.bf16_modules");
  draft.Drop("memory.allocator");  // is not there
  EXPECT_EQ(draft.Yaml(),
            "model:\n  preset: llama3-8b\n  name: \"7\"\n"
            "cluster:\n  preset: h100-ib-400g\n  device:\n    vboost: true\n"
            "framework: megatron@2024.09\n"
            "parallel:\n  dp: 8\n  layers_per_stage: [3, 4]\n"
            "training:\n  micro_batch: 1\n  global_batch: 8\n  seq_len: 4096\n  precision: bf16\n"
            "assume:\n  - \"a \\\"guess\\\" of two lines\"\n");
  EXPECT_EQ(draft.Whole("parallel.dp", 1), 8);
  EXPECT_EQ(draft.Text("model"), "llama3-8b");
  EXPECT_FALSE(draft.Has("training.bf16_modules"));
}

// A value with a line break cannot smuggle a key in.
TEST(Draft, WhatYamlCannotReadIsAText) {
  Draft draft;
  draft.Set("training.optimizer", "adam\nframework: ddp");
  draft.Set("training.recompute", "full: {");
  EXPECT_EQ(draft.Yaml(),
            "training:\n  optimizer: \"adam framework: ddp\"\n  recompute: \"full: {\"\n");
}

TEST(Draft, IsTheJobThatItsTextSays) {
  const Draft draft = SmallDraft();
  const auto job = draft.Read({});
  ASSERT_TRUE(job.ok()) << job.status().message();
  const auto again = ReadJobText(draft.Yaml(), "again.yaml", "", {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(job->config_hash, again->config_hash);
}

TEST(Draft, ErrorsNameWhatSaidTheKey) {
  Draft draft = SmallDraft();
  draft.Set("parallel.tp", 0);
  draft.SaidBy("parallel.tp", "train.sh:12: --tensor-model-parallel-size");
  EXPECT_THAT(draft.Read({}).status().message(),
              StartsWith("train.sh:12: --tensor-model-parallel-size: parallel.tp: "));
  draft.Set("parallel.tp", 0);  // by somebody else
  EXPECT_THAT(draft.Read({}).status().message(), StartsWith("train.sh (imported): parallel.tp: "));
}

TEST(Draft, SectionsMove) {
  Draft draft = SmallDraft();
  draft.Set("model.hidden", -1);
  draft.SaidBy("model.hidden", "train.sh:3: --hidden-size");
  const Draft model = draft.Only("model");
  draft.Replace("model", Draft());
  EXPECT_THAT(draft.Yaml(), testing::Not(HasSubstr("model:")));
  draft.Replace("model", model);
  EXPECT_THAT(draft.Read({}).status().message(), StartsWith("train.sh:3: --hidden-size: "));
}

}  // namespace
}  // namespace orrery::job
