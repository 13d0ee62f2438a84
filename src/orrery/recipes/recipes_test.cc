// Recipes of training frameworks: public launch scripts against what their documents say of them,
// the shell that reads them, and what each argument becomes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/import.h"
#include "orrery/recipes/shell.h"
#include "orrery/workload/options.h"

namespace orrery::recipes {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string ExampleFile(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/" + name;
}

Options On(const std::string& cluster, std::int64_t nodes = 0) {
  return {.cluster = cluster, .nodes = nodes};
}

Result<Imported> ImportScript(const std::string& text, const Options& options,
                              const std::string& name = "train.sh") {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return Import({path}, options);
}

// Table 1 of Narayanan et al. 2021: parameters (printed with one decimal), GPUs, batch.
TEST(Recipes, MegatronOf2021AsPrinted) {
  struct Printed {
    const char* size;
    double billions;
    std::size_t gpus;
    std::int64_t batch;
  };
  constexpr Printed kTable[] = {{"1.7B", 1.7, 32, 512},      {"3.6B", 3.6, 64, 512},
                                {"7.5B", 7.5, 128, 512},     {"18B", 18.4, 256, 1024},
                                {"39B", 39.1, 512, 1536},    {"76B", 76.1, 1024, 1792},
                                {"145B", 145.6, 1536, 2304}, {"310B", 310.1, 1920, 2160},
                                {"530B", 529.6, 2520, 2520}, {"1T", 1008.0, 3072, 3072}};
  for (const Printed& row : kTable) {
    Options options = On("a100-80g-ib-200g");
    options.variables["SIZE"] = row.size;
    options.read.set = {"framework=megatron@2021.04"};
    const Result<Imported> imported = Import({ExampleFile("narayanan-2021.sh")}, options);
    ASSERT_TRUE(imported.ok()) << row.size << ": " << imported.status().message();
    const job::Workload& w = imported->job.workloads.front();
    EXPECT_NEAR(static_cast<double>(w.model.parameters()) / 1e9, row.billions,
                0.05 + row.billions * 1e-4)
        << row.size;
    EXPECT_EQ(imported->job.ranks(), row.gpus) << row.size;
    EXPECT_EQ(w.plan.batch.global_batch, row.batch) << row.size;
    EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);
  }
}

// Parameters of the checkpoints' model cards, batch and GPUs of Megatron-LM's example scripts.
TEST(Recipes, MegatronsExamplesAsDocumented) {
  struct Documented {
    const char* file;
    std::int64_t nodes;
    double billions;  // Mixtral 46.7 (its paper), Llama 3 8.03, DeepSeek-V3 671, hybrid 8.66
    std::size_t gpus;
    std::int64_t batch;
  };
  constexpr Documented kTable[] = {{"mixtral-8x7b.sh", 8, 46.70, 64, 256},
                                   {"llama3-8b-fp8.sh", 0, 8.03, 8, 128},
                                   {"deepseek-v3.sh", 32, 671.0, 256, 2048},
                                   {"mamba2-hybrid-8b.sh", 1, 8.66, 8, 8}};
  for (const Documented& row : kTable) {
    const Result<Imported> imported =
        Import({ExampleFile(row.file)}, On("h100-ib-400g", row.nodes));
    ASSERT_TRUE(imported.ok()) << row.file << ": " << imported.status().message();
    const job::Workload& w = imported->job.workloads.front();
    EXPECT_NEAR(static_cast<double>(w.model.parameters()) / 1e9 / row.billions, 1, 1e-3)
        << row.file << " " << w.model.parameters();
    EXPECT_EQ(imported->job.ranks(), row.gpus) << row.file;
    EXPECT_EQ(w.plan.batch.global_batch, row.batch) << row.file;
  }
}

// The rows say what the code asks for, and name keys that a job has.
TEST(Recipes, TablesAreSound) {
  for (const Dialect& dialect : Dialects()) {
    int jobs = 0;
    for (const Row& row : dialect.table().rows()) {
      EXPECT_FALSE(row.source.empty()) << row.argument;
      if (row.effect == Effect::kInert || row.effect == Effect::kRefused ||
          row.effect == Effect::kAssumed) {
        EXPECT_FALSE(row.why.empty()) << row.argument;
      }
      if (row.effect == Effect::kJob || row.effect == Effect::kRule) ++jobs;
      if (row.effect != Effect::kJob && row.effect != Effect::kAssumed) continue;
      const std::size_t dot = row.key.find('.');
      ASSERT_NE(dot, std::string::npos) << row.argument << " " << row.key;
      const std::string section = row.key.substr(0, dot), key = row.key.substr(dot + 1);
      const OptionTable& table = section == "model"      ? workload::ModelOptions()
                                 : section == "parallel" ? workload::ParallelOptions()
                                 : section == "training" ? workload::TrainingOptions()
                                                         : workload::FrameworkOptions();
      EXPECT_EQ(table.path, section) << row.argument;
      EXPECT_NE(FindOption(table.options, key), nullptr) << row.argument << ": " << row.key;
    }
    EXPECT_GT(jobs, 0) << dialect.name;
  }
}

std::vector<std::string> Words(const std::string& text,
                               const std::map<std::string, std::string>& variables = {}) {
  const Result<Script> script = ReadScript(text, "x.sh", variables);
  if (!script.ok()) return {script.status().message()};
  std::vector<std::string> words;
  for (const Word& word : script->commands.back()) {
    words.push_back(word.text + (word.unknown.empty() ? "" : "?" + word.unknown));
  }
  return words;
}

TEST(Shell, VariablesArraysAndArithmetic) {
  EXPECT_THAT(Words("A=2\nB=$((A * (3 + $A)))\nrun --n=$B \"$A x\" '$A'"),
              ElementsAre("run", "--n=10", "2 x", "$A"));
  EXPECT_THAT(Words("A=(--x 1 # note\n  \"--y 2\")\nA+=(--z)\nrun ${A[@]}"),
              ElementsAre("run", "--x", "1", "--y", "2", "--z"));
  EXPECT_THAT(Words("A=(a 'b c')\nrun \"${A[@]}\""), ElementsAre("run", "a", "b c"));
  EXPECT_THAT(Words("run ${N:-8} ${M-9} ${N:+no} \\\n  --last"),
              ElementsAre("run", "8", "9", "--last"));
  EXPECT_THAT(Words("N=4\nrun $N", {{"N", "16"}}), ElementsAre("run", "16"));
  EXPECT_THAT(Words("X=\"--a 1\"\nX+=\" --b\"\nrun $X"), ElementsAre("run", "--a", "1", "--b"));
}

// Where a script lies follows from its path.
TEST(Shell, PathsOfTheScript) {
  const auto path = [](const std::string& text) {
    const Result<Script> script = ReadScript(text + "\nrun $D/ds.json", "jobs/run.sh", {});
    EXPECT_TRUE(script.ok());
    const Word& word = script->commands.back()[1];
    return word.unknown.empty() ? word.text : "?" + word.unknown;
  };
  for (const char* folder :
       {"$(dirname $0)", "$(dirname \"$0\")", "`dirname $0`", "$(cd \"$(dirname \"$0\")\"; pwd)",
        "$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" &> /dev/null && pwd)",
        "$(cd -- \"$(dirname -- \"$BASH_SOURCE\")\" >/dev/null 2>&1 && pwd -P)",
        "$(dirname $(readlink -f $0))", "$(dirname \"$(realpath \"$0\")\")", "${0%/*}",
        "$(cd `dirname $0`; pwd)", "$(pwd)/jobs", "$PWD/jobs"}) {
    EXPECT_THAT(path(std::string("D=") + folder), testing::AnyOf("jobs/ds.json", "./jobs/ds.json"))
        << folder;
  }
  EXPECT_EQ(path("D=$(cd $(dirname $0)/..; pwd)"), "./ds.json");
  EXPECT_EQ(path("cd $(dirname $0)/../conf\nD=$(pwd)"), "conf/ds.json");
  EXPECT_EQ(path("D=$(basename $0 .sh)"), "run/ds.json");
  EXPECT_EQ(path("D=$(dirname $X)"), "?X");
  EXPECT_EQ(path("D=$(git describe)"), "?a command's output");
  EXPECT_EQ(path("cd\nD=$(pwd)"), "?HOME");
}

TEST(Shell, WhatIsNotSetKeepsItsName) {
  EXPECT_THAT(Words("run --n $N"), ElementsAre("run", "--n", "$N?N"));
  EXPECT_THAT(Words("A=$((2 * N))\nrun $A"), ElementsAre("run", "$((2 * N))?N"));
  EXPECT_THAT(Words("A=$(nproc)\nrun --n=$A"),
              ElementsAre("run", "--n=$(nproc)?a command's output"));
  // Sums on words are known all the same.
  EXPECT_THAT(Words("N=4\nrun $(expr 32 / $N) `expr $N \\* 3` $(expr 8 / $M)"),
              ElementsAre("run", "8", "12", "$(expr 8 / $M)?M"));
}

TEST(Shell, Branches) {
  const std::string branch =
      "if [ \"$T\" = fp8 ] && [[ -n $T ]]; then\n  A=1\nelif [ $T == bf16 ]; then A=2\n"
      "else\n A=3\nfi\nrun $A";
  EXPECT_THAT(Words("T=fp8\n" + branch), ElementsAre("run", "1"));
  EXPECT_THAT(Words("T=bf16\n" + branch), ElementsAre("run", "2"));
  EXPECT_THAT(Words(branch), ElementsAre("run", "3"));
  EXPECT_THAT(Words("case $S in\n a|b) X=1;;\n *) X=2 ;;\nesac\nrun $X", {{"S", "b"}}),
              ElementsAre("run", "1"));
  EXPECT_THAT(Words("for x in 3 4; do\n  Y=$x\ndone\nrun $Y"), ElementsAre("run", "3"));
  const Result<Script> script = ReadScript("if grep -q x y; then\n A=1\nfi\nrun", "x.sh", {});
  ASSERT_TRUE(script.ok());
  EXPECT_THAT(script->notes, ElementsAre("line 1: this 'if' was not decided, and taken for false"));
}

TEST(Shell, TextsForOtherShells) {
  EXPECT_THAT(Words("C=\"cd x; python t.py --a 1\"\nsrun bash -c \"$C\""),
              ElementsAre("python", "t.py", "--a", "1"));
  EXPECT_THAT(Words("B=2\nsbatch <<EOF\nsrun t.py --b $B\nEOF\n"),
              ElementsAre("srun", "t.py", "--b", "2"));
}

TEST(Shell, HostileTextEnds) {
  EXPECT_THAT(Words("A=(1 2"), ElementsAre(HasSubstr("has no ')'")));
  EXPECT_THAT(Words("run \"abc"), ElementsAre(HasSubstr("has no end")));
  std::string doubling = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  EXPECT_THAT(Words(doubling + "run"), ElementsAre(HasSubstr("grow to more than 8 MiB")));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "if [ 1 = 1 ]; then\n";
  EXPECT_THAT(Words(deep + "run"), ElementsAre(HasSubstr("blocks in each other")));
  EXPECT_THAT(Words("A=" + std::string(200, '$') + "{B:-" + std::string(100, '(')),
              ElementsAre(HasSubstr("has no end")));
}

constexpr const char* kSmallModel =
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
    "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 2 --vocab-size 50257 --bf16 ";

TEST(Megatron, LayersOnStages) {
  const auto layers = [](const std::string& more) -> std::vector<int> {
    const Result<Imported> imported = ImportScript(kSmallModel + more, On("h100-ib-400g"));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.workloads.front().plan.parallel.layers_per_stage
                         : std::vector<int>();
  };
  EXPECT_THAT(layers("--pipeline-model-parallel-size 4"), ElementsAre());
  EXPECT_THAT(layers("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
                     "--decoder-last-pipeline-num-layers 4"),
              ElementsAre(2, 3, 3, 4));
  EXPECT_THAT(layers("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
                     "'Ett|(ttt|)*2,ttttL' --global-batch-size 64"),
              ElementsAre(2, 3, 3, 4));
  // Ends in chunks of their own.
  EXPECT_THAT(layers("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
                     "'E|(tttttt|)*2L' --global-batch-size 64"),
              ElementsAre(0, 6, 6, 0));
  const Result<Imported> further =
      ImportScript(std::string(kSmallModel) +
                       "--pipeline-model-parallel-size 2 --mtp-num-layers 1 "
                       "--pipeline-model-parallel-layout 'Etttttt|tttttt|m|L'",
                   On("h100-ib-400g"));
  ASSERT_FALSE(further.ok());
  EXPECT_THAT(further.status().message(), HasSubstr("before the loss's ('m')"));
  // 14 = 12 and embedding and loss, 7 a stage.
  EXPECT_THAT(layers("--num-layers 13 --pipeline-model-parallel-size 2 "
                     "--account-for-embedding-in-pipeline-split"),
              ElementsAre(6, 7));
}

TEST(Megatron, DefaultsAreItsOwn) {
  const Result<Imported> imported = ImportScript(kSmallModel, On("h100-ib-400g"));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.plan.parallel.dp, 16);
  EXPECT_EQ(w.plan.batch.global_batch, 32);  // a micro-batch a replica
  EXPECT_FALSE(w.plan.framework.overlap_grad_reduce);
  EXPECT_EQ(w.model.vocab, 50304);  // to a multiple of 128
  EXPECT_EQ(w.model.ffn_hidden, 3072);
  EXPECT_DOUBLE_EQ(w.model.dropout, 0.1);
}

// The job says what its user did, so that a sweep may vary it; replicas where hosts are not full.
TEST(Megatron, NodesAreSaidAndReplicasFollow) {
  const Result<Imported> nodes = ImportScript(kSmallModel, {.cluster = "h100-ib-400g", .nodes = 2});
  ASSERT_TRUE(nodes.ok()) << nodes.status().message();
  EXPECT_THAT(nodes->job_text, AllOf(HasSubstr("nodes: 2\n"), Not(HasSubstr("dp:"))));
  EXPECT_EQ(nodes->job.workloads.front().plan.parallel.dp, 16);
  job::ReadOptions vary;
  vary.set = {"nodes=1"};
  const Result<job::Job> fewer = job::ReadJobText(nodes->job_text, "job.yaml", "", vary);
  ASSERT_TRUE(fewer.ok()) << fewer.status().message();
  EXPECT_EQ(fewer->workloads.front().plan.parallel.dp, 8);
  const Result<Imported> gpus = ImportScript(kSmallModel, {.cluster = "h100-ib-400g", .gpus = 4});
  ASSERT_TRUE(gpus.ok()) << gpus.status().message();
  EXPECT_THAT(gpus->job_text, AllOf(HasSubstr("dp: 4\n"), Not(HasSubstr("nodes:"))));
}

TEST(Recipes, AConfigurationAloneIsNone) {
  const Result<Imported> imported = ImportFiles({{"config.json", "{\"model_type\": \"llama\"}"}},
                                                {.cluster = "h100-ib-400g", .gpus = 8});
  ASSERT_FALSE(imported.ok());
  EXPECT_THAT(
      imported.status().message(),
      HasSubstr("'config.json' is a model's configuration, which says nothing of its training"));
}

TEST(Megatron, YamlIsTheSame) {
  std::string yaml = "MODEL_ARGS:\n";
  for (const char* line :
       {"--num-layers: 12", "--hidden-size: 768", "--num-attention-heads: 12", "--seq-length: 1024",
        "--max-position-embeddings: 1024", "--micro-batch-size: 2", "--vocab-size: 50257",
        "--bf16: true", "--fp16: false"}) {
    yaml += fmt::format("  {}\n", line);
  }
  Options here = On("h100-ib-400g"), two = On("h100-ib-400g", 2);
  here.read.set = two.read.set = {"model.name=small"};
  const Result<Imported> script = ImportScript(kSmallModel, here);
  const Result<Imported> a = ImportScript(yaml, two, "model_config.yaml");
  const Result<Imported> b = ImportScript(
      "language_model:\n  num_layers: 12\n  hidden_size: 768\n  num_attention_heads: 12\n"
      "  max_position_embeddings: 1024\n  add_bias_linear: true\n"
      "model_parallel:\n  tensor_model_parallel_size: 1\nseq_length: 1024\n"
      "micro_batch_size: 2\nvocab_size: 50257\nbf16: true\nloss_scale: null\n",
      two, "megatron.yaml");
  ASSERT_TRUE(script.ok() && a.ok() && b.ok()) << a.status().message() << b.status().message();
  EXPECT_EQ(a->job.config_hash, script->job.config_hash);
  EXPECT_EQ(b->job.config_hash, script->job.config_hash);
  // Flags of the command line by their own names, as FlagScale writes them.
  const Result<Imported> flags =
      ImportScript(yaml.substr(yaml.find('\n') + 1) +
                       "  disable_bias_linear: true\n  no_bias_gelu_fusion: "
                       "false\n",
                   two, "flags.yaml");
  ASSERT_TRUE(flags.ok()) << flags.status().message();
  EXPECT_FALSE(flags->job.workloads.front().model.mlp_bias);
  EXPECT_TRUE(flags->job.workloads.front().plan.framework.fused_bias_activation);
}

TEST(Megatron, FullRecomputeOfSomeLayers) {
  const auto plan = [](const std::string& more) {
    const Result<Imported> imported = ImportScript(kSmallModel + more, On("h100-ib-400g"));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.workloads.front().plan : workload::Plan();
  };
  using workload::RecomputeMethod;
  workload::Plan p =
      plan("--recompute-granularity full --recompute-method block --recompute-num-layers 3");
  EXPECT_EQ(p.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(p.memory.recompute_method, RecomputeMethod::kBlock);
  EXPECT_EQ(p.memory.recompute_layers, 3);
  p = plan("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2");
  EXPECT_EQ(p.memory.recompute_method, RecomputeMethod::kUniform);
  EXPECT_EQ(p.memory.recompute_layers, 2);
  p = plan("--activations-checkpoint-method block --activations-checkpoint-num-layers 4");
  EXPECT_EQ(p.memory.recompute_method, RecomputeMethod::kBlock);
  EXPECT_EQ(p.memory.recompute_layers, 4);
  p = plan("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  EXPECT_FALSE(p.recomputes_in_parts());
}

TEST(Megatron, ActivationsInHostMemory) {
  const auto plan = [](const std::string& more) {
    const Result<Imported> imported = ImportScript(kSmallModel + more, On("h100-ib-400g"));
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.workloads.front().plan.memory : workload::MemorySaving{};
  };
  workload::MemorySaving m = plan("--cpu-offloading-num-layers 1");
  EXPECT_TRUE(m.offload_activations);
  EXPECT_EQ(m.offload_layers, 1);
  m = plan("--fine-grained-activation-offloading --offload-modules core_attn attn_proj");
  EXPECT_TRUE(m.offload_activations);
  EXPECT_EQ(workload::OffloadModulesText(m.offload_modules), "core_attn+attn_proj");
}

TEST(Megatron, WhatIsRefusedIsNamed) {
  const auto error = [](const std::string& more, const Options& options = On("h100-ib-400g")) {
    const Result<Imported> imported = ImportScript(kSmallModel + more, options);
    return imported.ok() ? "ok" : imported.status().message();
  };
  EXPECT_THAT(
      error("--hiden-size 8"),
      HasSubstr("train.sh:1: unknown argument '--hiden-size'; did you mean '--hidden-size'"));
  EXPECT_THAT(error("--fp32-residual-connection"),
              HasSubstr("--fp32-residual-connection: the residual stream in fp32 is not modelled; "
                        "--leave-out --fp32-residual-connection goes on without it"));
  EXPECT_THAT(error("--optimizer lion"),
              HasSubstr("--optimizer lion is not modelled; modelled: adam, sgd, muon, dist_muon"));
  EXPECT_THAT(error("--ffn-hidden-size $FFN"),
              HasSubstr("--ffn-hidden-size is $FFN, and FFN is not set; give --env FFN=VALUE"));
  EXPECT_THAT(error("--recompute-granularity full --recompute-method blok"),
              HasSubstr("layers are recomputed by the method uniform or block, not 'blok'"));
  EXPECT_THAT(error("", Options{}), HasSubstr("does not say which cluster it runs on"));
  Options options = On("h100-ib-400g");
  options.leave_out = {"--fp32-residual-connection", "--hiden-size"};
  const Result<Imported> left =
      ImportScript(std::string(kSmallModel) + "--fp32-residual-connection --hiden-size 8", options);
  ASSERT_TRUE(left.ok()) << left.status().message();
  EXPECT_THAT(left->job.assumed, testing::Contains(HasSubstr("--fp32-residual-connection of")));
}

}  // namespace
}  // namespace orrery::recipes
