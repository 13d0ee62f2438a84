// What a user's files add to the reading of rows, nothing compiled; and the words that rows use.
#include "orrery/search/validate/row_tables.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/search/validate/collectives.h"
#include "orrery/search/validate/training.h"
#include "orrery/search/validate/validate.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr std::string_view kHeader =
    "model,framework_family,framework,gpu,gpu_mem_gb,gpus,layers,hidden,heads,seq_len,tp,pp,"
    "micro_batch,global_batch,compute_dtype,attention_kernel,sharding,recompute,oversubscription";

class RowTablesOfOnesOwn : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/row_tables";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFile(folder_ + "/" + name, text).ok());
  }
  Prediction Predict(const std::string& row, bool own) {
    ValidateOptions options;
    options.threads = 1;
    if (own) {
      auto tables = ReadRowTables(std::vector<std::string>{folder_});
      EXPECT_TRUE(tables.ok()) << tables.status().message();
      if (tables.ok()) options.tables = *tables;
    }
    const auto table = formats::CsvTable::Parse(std::string(kHeader) + "\n" + row + "\n", "t.csv");
    EXPECT_TRUE(table.ok());
    const auto report = ValidateTable(*table, options);
    EXPECT_TRUE(report.ok());
    return report->rows.front();
  }

  std::string folder_;
};

// A GPU, a cluster, a framework's version, a model's family and a word, by files alone.
TEST_F(RowTablesOfOnesOwn, AddWhatARowNames) {
  Write("devices.yaml", "X1-100GB: {like: H100-SXM5-80GB, memory: 100GiB, source: s}\n");
  Write("clusters.yaml",
        "x1-ib: {like: [_h100, _ib], device: X1-100GB, nic_bandwidth: 400Gb/s, source: s}\n");
  Write("frameworks.yaml",
        "fork@1: {like: megatron@2026.08, defaults: {attention: flash2}, source: s}\n");
  Write("framework_names.yaml",
        "f: {row: fork@1, label: the fork, family: other, framework: Fork, source: s}\n");
  Write("model_names.yaml",
        "o: {names: ours, label: Ours, vocab: 1000, norm: rmsnorm, activation: gelu, source: s}\n");
  Write("words.yaml",
        "w: {column: attention_kernel, words: ourkernel, means: flash2, source: s}\n");
  const std::string row =
      "Ours-1B,other,Fork v1,X1,100,8,4,2048,16,2048,1,1,1,8,bf16,our-kernel,none,none,";
  const Prediction own = Predict(row, true);
  EXPECT_TRUE(own.predicted.has_value()) << own.reason;
  EXPECT_THAT(own.assumed, Contains("attention_kernel=our-kernel: flash2"));
  EXPECT_THAT(own.assumed, Contains("vocab=1000 (blank: Ours's tokenizer)"));
  EXPECT_THAT(own.assumed, Contains(HasSubstr("framework: fork@1")));
  EXPECT_THAT(Predict(row, false).reason, HasSubstr("this framework is not modelled"));
}

TEST_F(RowTablesOfOnesOwn, SayWhatIsWrong) {
  const auto error = [&](const std::string& name, const std::string& text) {
    Write(name, text);
    const auto tables = ReadRowTables(std::vector<std::string>{folder_});
    std::filesystem::remove(folder_ + "/" + name);
    return tables.ok() ? std::string() : tables.status().message();
  };
  EXPECT_THAT(error("words.yaml", "w: {column: atention_kernel, words: a, means: b, source: s}\n"),
              HasSubstr("did you mean 'attention_kernel'?"));
  EXPECT_THAT(error("words.yaml", "w: {column: task, words: a, source: s}\n"),
              HasSubstr("words.yaml:1: the word 'w' lacks means"));
  EXPECT_THAT(error("framework_names.yaml", "f: {row: megatron@2020, label: f, source: s}\n"),
              HasSubstr("'f' lacks family"));
  EXPECT_THAT(error("model_names.yaml", "m: {names: ours, source: s}\n"),
              HasSubstr("'m' lacks model, or label and vocab"));
  EXPECT_THAT(error("hosts.yaml", "h: {names: x, nccl: {NCCL_ALG: Ring}, source: s}\n"),
              HasSubstr("NCCL_ALGO"));
  EXPECT_THAT(error("hosts.yaml", "h: {cpu: amd, source: s}\n"),
              HasSubstr("the host 'h' lacks names"));
  EXPECT_THAT(error("fabrics.yaml", "f: {names: x, fabric: ibb, source: s}\n"),
              HasSubstr("infiniband"));
}

// A host's processor, variables and note; a word for a fabric; a task; by files alone.
TEST_F(RowTablesOfOnesOwn, AddHostsFabricsTasksAndAdapters) {
  Write("hosts.yaml",
        "h: {names: our-host, cpu: amd, nccl: {NCCL_ALGO: Ring}, note: rings alone, source: s}\n");
  Write("fabrics.yaml", "f: {names: ourweave, fabric: tcp, note: woven, source: s}\n");
  Write("words.yaml", "t: {column: task, accepts: dpo, otherwise: not here, source: s}\n");
  Write("release_recipes.yaml",
        "l: {frameworks: nemo@, about: adapters, tasks: lora, lora_rank: 48, source: s}\n");
  auto own = ReadRowTables(std::vector<std::string>{folder_});
  ASSERT_TRUE(own.ok()) << own.status().message();
  const auto collectives = formats::CsvTable::Parse(
      "system,gpu,nodes,gpus_per_node,network,collective,size_bytes\n"
      "Our-Host 3,H100,2,8,OurWeave 8x400Gb/s,all_reduce,1048576\n",
      "t.csv");
  ASSERT_TRUE(collectives.ok());
  const auto measured = Columns::BuiltIn().Read(*collectives);
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  const Configuration row(*measured, 0);
  std::vector<std::string> assumed;
  const auto mapped = MapCollective(row, &assumed, **own);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_EQ(mapped->cluster.fabric, cluster::Fabric::kTcp);
  EXPECT_TRUE(mapped->cluster.cpu_is_amd);
  EXPECT_THAT(assumed, IsSupersetOf({"rings alone", "woven"}));
  EXPECT_FALSE(mapped->environment.algorithm_allowed[0][0]);  // trees
  std::vector<std::string> ignored;
  EXPECT_FALSE(MapCollective(row, &ignored)->cluster.cpu_is_amd);

  const auto training = [&](const std::string& task, const RowTables& tables) {
    const auto table = formats::CsvTable::Parse(
        "model,framework_family,gpu,gpus,layers,hidden,heads,seq_len,tp,pp,global_batch,"
        "compute_dtype,task\n"
        "GPT,nemo,H100,8,4,2048,16,2048,1,1,8,bf16," +
            task + "\n",
        "t.csv");
    EXPECT_TRUE(table.ok());
    std::vector<std::string> said;
    const auto rows = Columns::BuiltIn().Read(*table);
    return MapTraining(Configuration(*rows, 0), &said, 1, tables);
  };
  EXPECT_TRUE(training("dpo", **own).ok());
  EXPECT_EQ(training("dpo", BuiltInRowTables()).status().message(),
            "task=dpo: this task is not modelled");
  EXPECT_EQ(training("lora", **own)->job.Text("training.lora_rank"), "48");
  EXPECT_EQ(training("lora", BuiltInRowTables())->job.Text("training.lora_rank"), "32");
}

// A word that is not ours does not cost a prediction; `assumed` says how it was read.
TEST_F(RowTablesOfOnesOwn, WordsOfOthers) {
  const auto predict = [&](const std::string& cells) {
    return Predict("GPT,fsdp2,torchtitan," + cells, false);
  };
  const Prediction said =
      predict("NVIDIA L40S,48,8,4,2048,16,2048,1,1,1,8,bfloat16,sdpa,FULL_SHARD,true,non-blocking");
  EXPECT_TRUE(said.predicted.has_value()) << said.reason;
  for (const char* note : {"compute_dtype=bfloat16: bf16", "sharding=FULL_SHARD: zero3",
                           "recompute=true: full", "oversubscription=non-blocking: 1",
                           "attention sdpa: flash2 with torchtitan@2025.04 on this GPU"}) {
    EXPECT_THAT(said.assumed, Contains(note));
  }
  const Prediction unknown =
      predict("H100,80,16,4,2048,16,2048,1,1,1,16,bf16,ringmagic,zero3,none,2:1");
  EXPECT_TRUE(unknown.predicted.has_value()) << unknown.reason;
  EXPECT_THAT(unknown.assumed,
              Contains("attention_kernel=ringmagic is not known here: taken as blank"));
  EXPECT_THAT(predict("H100,80,16,4,2048,16,2048,1,1,1,16,bf16,te,zero3,none,0:1").reason,
              HasSubstr("oversubscription=0:1"));
  for (const auto& [word, means] : {std::pair{"Flash-Attn 2.5", "flash2"},
                                    {"cuDNN", "cudnn"},
                                    {"xFormers", "flash1"},
                                    {"Splash", "flash"}}) {
    EXPECT_THAT(
        predict(fmt::format("H100,80,16,4,2048,16,2048,1,1,1,16,bf16,{},zero3,none,1:1", word))
            .assumed,
        Contains(fmt::format("attention_kernel={}: {}", word, means)));
  }
}

// A framework's own name in the column of its family.
TEST_F(RowTablesOfOnesOwn, FamiliesByTheirOwnName) {
  for (const char* family : {"megascale", "hai-llm", "levanter", "olmo-core", "llama-factory",
                             "internevo", "composer", "colossalai", "alpa", "maxtext"}) {
    const Prediction row = Predict(
        fmt::format("GPT,{},,H100,80,16,4,2048,16,2048,1,1,1,16,bf16,,,none,1:1", family), false);
    EXPECT_TRUE(row.predicted.has_value()) << family << ": " << row.reason;
  }
}

}  // namespace
}  // namespace orrery::search
