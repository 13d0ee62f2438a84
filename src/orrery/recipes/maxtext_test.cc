// MaxText's YAML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::HasSubstr;

Result<Imported> ImportYaml(const std::string& text, std::int64_t nodes) {
  const std::string path = testing::TempDir() + "maxtext.yml";
  std::ofstream(path) << text;
  return Import({path}, {.cluster = "h100-ib-400g", .nodes = nodes});
}

constexpr const char* kHead =
    "base_config: \"base.yml\"\nhardware: \"gpu\"\nmodel_name: \"llama2-70b\"\n"
    "per_device_batch_size: 2\nmax_target_length: 4096\n";

TEST(MaxText, MeshAndBatch) {
  // 8 shards in a host, 16 copies over hosts: the defaults of ici_fsdp and dcn_data.
  const Result<Imported> copies = ImportYaml(kHead, 16);
  ASSERT_TRUE(copies.ok()) << copies.status().message();
  EXPECT_EQ(copies->job.workloads.front().plan.parallel.dp, 128);
  EXPECT_EQ(copies->job.workloads.front().plan.memory.shard_group, 8);
  EXPECT_EQ(copies->job.workloads.front().plan.batch.global_batch, 256);
  // Shards over all, tensor parallelism within a host: 8 GPUs share 16 sequences.
  const Result<Imported> shards =
      ImportYaml(std::string(kHead) +
                     "ici_tensor_parallelism: 8\nici_fsdp_parallelism: 1\n"
                     "dcn_data_parallelism: 1\ndcn_fsdp_parallelism: -1\n",
                 16);
  ASSERT_TRUE(shards.ok()) << shards.status().message();
  EXPECT_EQ(shards->job.workloads.front().plan.parallel.tp, 8);
  EXPECT_EQ(shards->job.workloads.front().plan.parallel.dp, 16);
  EXPECT_EQ(shards->job.workloads.front().plan.batch.micro_batch, 16);
  EXPECT_EQ(shards->job.workloads.front().plan.batch.global_batch, 256);
  EXPECT_NEAR(static_cast<double>(shards->job.workloads.front().model.parameters()) / 1e9, 68.98,
              0.01);
}

TEST(MaxText, ExampleIsAJob) {
  const Result<Imported> imported =
      Import({std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/maxtext-llama2-70b.yml"},
             {.cluster = "h100-ib-400g", .nodes = 16});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const workload::Plan& plan = imported->job.workloads.front().plan;
  EXPECT_EQ(plan.parallel.dp, 128);
  EXPECT_EQ(plan.memory.sharding, workload::Sharding::kZero3);
  EXPECT_EQ(plan.framework.recompute_keeps, workload::RecomputeKeeps::kQkv);
}

TEST(MaxText, WhatIsRefusedIsNamed) {
  const auto error = [](const std::string& more, std::int64_t nodes = 16) {
    const Result<Imported> imported = ImportYaml(kHead + more, nodes);
    return imported.ok() ? "ok" : imported.status().message();
  };
  EXPECT_THAT(error("remat_policy: qkv_proj_offloaded\n"),
              HasSubstr("'qkv_proj_offloaded' is not modelled; full, save_qkv_proj"));
  EXPECT_THAT(error("ici_tensor_parallelism: 3\n"), HasSubstr("are no multiple of the 3"));
  const Result<Imported> experts = ImportYaml(
      "base_config: \"base.yml\"\nhardware: \"gpu\"\nmodel_name: \"mixtral-8x7b\"\n"
      "per_device_batch_size: 2\nmax_target_length: 4096\n",
      16);
  EXPECT_THAT(experts.status().message(),
              HasSubstr("set dcn_data_parallelism 1 and dcn_fsdp_parallelism -1"));
  EXPECT_THAT(error("use_dpo: true\n"), HasSubstr("another objective"));
  EXPECT_THAT(error("remat_polcy: full\n"), HasSubstr("did you mean 'remat_policy'"));
  EXPECT_THAT(error("", 0), HasSubstr("how many GPUs it runs on"));
  const Result<Imported> tpu =
      ImportYaml("base_config: base.yml\nmodel_name: llama2-7b\nper_device_batch_size: 1\n", 2);
  ASSERT_FALSE(tpu.ok());
  EXPECT_THAT(tpu.status().message(), HasSubstr("hardware: it is for 'tpu', base.yml's default; "
                                                "no TPU has kernel times here"));
}

}  // namespace
}  // namespace orrery::recipes
