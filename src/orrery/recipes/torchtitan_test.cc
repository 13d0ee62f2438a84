// torchtitan's TOML.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Imported> ImportToml(const std::string& text, std::int64_t gpus) {
  const std::string path = testing::TempDir() + "titan.toml";
  std::ofstream(path) << text;
  return Import({path}, {.cluster = "h100-ib-400g", .gpus = gpus});
}

std::string Error(const std::string& text, std::int64_t gpus = 64) {
  const Result<Imported> imported = ImportToml(text, gpus);
  return imported.ok() ? "ok" : imported.status().message();
}

const job::Workload& Job(const Result<Imported>& imported) {
  return imported->job.workloads.front();
}

TEST(Torchtitan, StagesChunksAndFloat8) {
  const std::string example =
      std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/torchtitan-llama3-405b.toml";
  const Result<Imported> imported = Import({example}, {.cluster = "h100-ib-400g", .gpus = 512});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const workload::Plan& plan = Job(imported).plan;
  EXPECT_NEAR(static_cast<double>(Job(imported).model.parameters()) / 1e9, 405.9, 0.1);
  EXPECT_EQ(plan.parallel.dp, 8);
  EXPECT_EQ(plan.parallel.vpp, 2);
  EXPECT_EQ(plan.batch.micro_batch, 1);     // local batches are cut into micro-batches of one
  EXPECT_EQ(plan.batch.global_batch, 256);  // its benchmark's Table 5
  // 126 layers and one each for the ends are 8 in each of 16 chunks.
  EXPECT_THAT(plan.parallel.layers_per_stage,
              ElementsAre(7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7));
  EXPECT_TRUE(plan.framework.tp_comm_overlap);
  EXPECT_TRUE(plan.framework.low_precision_gather);
  EXPECT_FALSE(plan.framework.fp8_output_layer);
}

TEST(Torchtitan, DegreesAndBatch) {
  const std::string model = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
  const std::string none = "[activation_checkpoint]\nmode = \"none\"\n";
  const Result<Imported> hybrid =
      ImportToml(model + none +
                     "[training]\nlocal_batch_size = 1\nseq_len = 8192\nmax_norm = "
                     "0.5\nglobal_batch_size = 256\n"
                     "[parallelism]\ndata_parallel_replicate_degree = 4\n"
                     "context_parallel_degree = 2\n",
                 64);
  ASSERT_TRUE(hybrid.ok()) << hybrid.status().message();
  EXPECT_EQ(Job(hybrid).plan.parallel.dp, 32);
  EXPECT_EQ(Job(hybrid).plan.memory.shard_group, 16);  // 8 shards of 2 context-parallel ranks
  EXPECT_EQ(Job(hybrid).plan.batch.global_batch, 256);
  // The layout of 2024: degrees among [training] and [experimental], a count of micro-batches.
  const Result<Imported> old =
      ImportToml(model + "norm_type = \"rmsnorm\"\n" + none +
                     "[training]\nbatch_size = 8\nseq_len = 8192\ntensor_parallel_degree = 8\n"
                     "compile = true\n[experimental]\npipeline_parallel_degree = 2\n"
                     "pipeline_parallel_microbatches = 4\n"
                     "pipeline_parallel_split_points = [\"layers.16\"]\n",
                 64);
  ASSERT_TRUE(old.ok()) << old.status().message();
  EXPECT_EQ(Job(old).plan.parallel.tp, 8);
  EXPECT_EQ(Job(old).plan.batch.micro_batch, 2);
  EXPECT_EQ(Job(old).plan.batch.global_batch, 32);
  EXPECT_THAT(Job(old).plan.parallel.layers_per_stage, ElementsAre());  // even
}

// Checkpoints of every second layer are its default.
TEST(Torchtitan, EveryNthLayerIsCheckpointed) {
  const std::string head =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n";
  const auto plan = [&](const std::string& more) {
    const Result<Imported> imported = ImportToml(head + more, 64);
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? Job(imported).plan : workload::Plan();
  };
  for (const auto& [more, layers] :
       {std::pair("", 2), std::pair("[activation_checkpoint]\nselective_ac_option = \"3\"\n", 3)}) {
    const workload::Plan p = plan(more);
    EXPECT_EQ(p.memory.recompute, workload::Recompute::kFull);
    EXPECT_EQ(p.memory.recompute_method, workload::RecomputeMethod::kEvery);
    EXPECT_EQ(p.memory.recompute_layers, layers);
    EXPECT_EQ(p.framework.recompute_keeps, workload::RecomputeKeeps::kLast);
  }
}

TEST(Torchtitan, WhatIsRefusedIsNamed) {
  const std::string head =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n";
  EXPECT_THAT(Error(head + "[activation_checkpoint]\nselective_ac_option = \"two\"\n"),
              HasSubstr("activation_checkpoint.selective_ac_option"));
  EXPECT_THAT(Error(head + "seqlen = 8\n"),
              HasSubstr("unknown argument 'training.seqlen'; did you mean 'training.seq_len'"));
  const std::string none = "[activation_checkpoint]\nmode = \"none\"\n";
  EXPECT_THAT(Error(head + none +
                    "[parallelism]\npipeline_parallel_degree = 2\n"
                    "pipeline_parallel_schedule = \"LoopedBFS\"\n"),
              HasSubstr("'LoopedBFS' is not modelled; modelled: 1F1B"));
  EXPECT_THAT(Error(head + none + "[parallelism]\ndata_parallel_shard_degree = 32\n"),
              HasSubstr("give --gpus 32"));
  EXPECT_THAT(Error("[model]\nname = \"llama3\"\nflavor = \"9B\"\n[training]\nsteps = 1\n" + none),
              HasSubstr("the shapes of the model 'llama3/9B'"));
  EXPECT_THAT(Error(head + "steps = [1\n"), HasSubstr("titan.toml:"));
}

}  // namespace
}  // namespace orrery::recipes
