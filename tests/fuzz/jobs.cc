// Readers that stand on everything: job files, tables of measured runs, traffic.
#include <array>
#include <string>

#include "orrery/base/check.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/csv.h"
#include "orrery/job/data.h"
#include "orrery/job/job.h"
#include "orrery/recipes/import.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/queue/read_queue.h"
#include "orrery/traffic/flows.h"
#include "orrery/traffic/sweep.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

// A job that is read says so in a configuration that is the same job.
void Job(std::string_view bytes) {
  const Result<job::Job> job = job::ReadJobText(bytes, "input.yaml", "/nowhere", {});
  if (!job.ok()) return;
  const Result<job::Job> again = job::ReadJobText(job->config_json, "again.json", "/nowhere", {});
  ORRERY_CHECK(again.ok() && again->config_hash == job->config_hash, "configuration round trip");
}

// A recipe whose file has that ending. A job that comes out is a job file as well.
void Recipe(std::string_view bytes, const std::string& name, const std::string& dialect) {
  const bool own = dialect == "maxtext" || dialect == "llm-foundry" || dialect == "nemo" ||
                   dialect == "megatron" || dialect == "olmo" || dialect == "nanogpt" ||
                   dialect == "internevo";  // they say shapes
  recipes::Options options{
      .dialect = dialect, .cluster = "h100-ib-400g", .model = own ? "" : "llama3-8b", .gpus = 16};
  if (dialect == "deepspeed") options.read.set = {"training.seq_len=2048"};
  const Result<recipes::Imported> imported =
      recipes::ImportFiles({{name, std::string(bytes)}}, options);
  if (!imported.ok()) return;
  const Result<job::Job> again = job::ReadJobText(imported->job_text, "again.yaml", "/nowhere", {});
  ORRERY_CHECK(again.ok() && again->config_hash == imported->job.config_hash,
               "an imported job's text is the job");
}

const cluster::Cluster& SmallCluster() {
  static const Result<cluster::Cluster> cluster = [] {
    Result<cluster::Spec> spec = cluster::FindPreset("h100-ib-400g");
    ORRERY_CHECK(spec.ok(), "the preset is there");
    spec->nodes = 4;
    return cluster::Cluster::Build(*spec);
  }();
  return *cluster;
}

constexpr std::array<Target, 34> kTargets = {{
    {"job", Job},
    {"recipe-deepspeed", [](std::string_view b) { Recipe(b, "ds.json", "deepspeed"); }},
    {"recipe-accelerate", [](std::string_view b) { Recipe(b, "fsdp.yaml", "accelerate"); }},
    {"recipe-trainer", [](std::string_view b) { Recipe(b, "args.json", "trainer"); }},
    {"recipe-script", [](std::string_view b) { Recipe(b, "train.sh", "trainer"); }},
    {"recipe-llama-factory", [](std::string_view b) { Recipe(b, "sft.yaml", "llama-factory"); }},
    {"recipe-torchtitan", [](std::string_view b) { Recipe(b, "job.toml", "torchtitan"); }},
    {"recipe-maxtext", [](std::string_view b) { Recipe(b, "gpu.yml", "maxtext"); }},
    {"recipe-llm-foundry", [](std::string_view b) { Recipe(b, "mpt.yaml", "llm-foundry"); }},
    {"recipe-gpt-neox", [](std::string_view b) { Recipe(b, "20B.yml", "gpt-neox"); }},
    {"recipe-torchtune", [](std::string_view b) { Recipe(b, "8B_full.yaml", "torchtune"); }},
    {"recipe-primus", [](std::string_view b) { Recipe(b, "exp.yaml", "primus"); }},
    {"recipe-nanotron", [](std::string_view b) { Recipe(b, "llama.yaml", "nanotron"); }},
    {"recipe-axolotl", [](std::string_view b) { Recipe(b, "fft.yml", "axolotl"); }},
    {"recipe-ms-swift", [](std::string_view b) { Recipe(b, "sft.sh", "ms-swift"); }},
    {"recipe-ms-swift-megatron",
     [](std::string_view b) { Recipe(b, "sft.sh", "ms-swift-megatron"); }},
    {"recipe-nemo", [](std::string_view b) { Recipe(b, "gpt.yaml", "nemo"); }},
    {"recipe-megatron", [](std::string_view b) { Recipe(b, "train.sh", "megatron"); }},
    {"recipe-litgpt", [](std::string_view b) { Recipe(b, "full.yaml", "litgpt"); }},
    {"recipe-olmo", [](std::string_view b) { Recipe(b, "OLMo-7B.yaml", "olmo"); }},
    {"recipe-automodel", [](std::string_view b) { Recipe(b, "peft.yaml", "automodel"); }},
    {"recipe-verl", [](std::string_view b) { Recipe(b, "ppo.yaml", "verl"); }},
    {"recipe-nanogpt", [](std::string_view b) { Recipe(b, "train_gpt2.py", "nanogpt"); }},
    {"recipe-internevo", [](std::string_view b) { Recipe(b, "7B_sft.py", "internevo"); }},
    {"recipe-nemo-rl", [](std::string_view b) { Recipe(b, "grpo.yaml", "nemo-rl"); }},
    {"recipe-mindspeed", [](std::string_view b) { Recipe(b, "pretrain.sh", "mindspeed"); }},
    {"recipe-xtuner", [](std::string_view b) { Recipe(b, "sft.py", "xtuner"); }},
    {"recipe-torchtitan-python",
     [](std::string_view b) { Recipe(b, "llama3/config_registry.py", "torchtitan"); }},
    {"csv", [](std::string_view b) { (void)formats::CsvTable::Parse(b, "input"); }},
    {"nccl-table", [](std::string_view b) { (void)search::NcclLogToCsv(b, "input", {}); }},
    {"connection-matrix",
     [](std::string_view b) { (void)traffic::ParseConnectionMatrix(b, "input", SmallCluster()); }},
    {"flow-sizes", [](std::string_view b) { (void)traffic::SizeDistribution::Parse(b, "input"); }},
    {"queue",
     [](std::string_view b) { (void)search::ReadQueueText(b, "queue.yaml", "/nowhere", ""); }},
    {"shares", [](std::string_view b) { (void)traffic::ParseShares(b, "input", 8); }},
}};

}  // namespace

// The tables are read before the first input, whose time that would be.
std::span<const Target> Targets() {
  (void)job::BuiltInData();
  return kTargets;
}

}  // namespace orrery::fuzz
