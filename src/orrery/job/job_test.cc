#include "orrery/job/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orrery/base/suggest.h"
#include "orrery/constants/constants.h"
#include "orrery/formats/section.h"
#include "orrery/job/tables.h"
#include "orrery/job/test_support.h"
#include "orrery/job/trace.h"
#include "orrery/results/json.h"
#include "orrery/results/report.h"

namespace orrery::job {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Job, ReadsAndSaysWhatItAssumed) {
  const Job job = Read(kSmall);
  EXPECT_EQ(job.ranks(), 8u);
  EXPECT_EQ(job.workloads.front().plan.parallel.tp, 2);
  EXPECT_THAT(job.assumed, Contains(HasSubstr("megatron@2026.08 (no version was given)")));
  EXPECT_THAT(job.assumed, Contains("training.recompute: none"));
  EXPECT_THAT(job.assumed, Contains("nccl: version 2.22.3"));
}

// Learned positions that nobody states end where sequences do.
TEST(Job, PositionsAsLongAsSequences) {
  constexpr std::string_view kInline = R"(
model: {layers: 2, hidden: 1024, heads: 16, vocab: 32000}
cluster: h100-ib-400g
nodes: 1
parallel: {dp: 8}
training: {global_batch: 16, seq_len: 1024}
)";
  const Job job = Read(kInline);
  EXPECT_EQ(job.workloads.front().model.max_position, 1024);
  EXPECT_THAT(job.assumed, Contains("model: max_position 1024, as training.seq_len"));
  const Job rotary = Read(kInline, {.set = {"model.position=rotary"}});
  EXPECT_THAT(rotary.assumed, Not(Contains(HasSubstr("max_position"))));
}

TEST(Job, ExpertsKeysNeedExperts) {
  EXPECT_THAT(Error(kSmall, {.set = {"training.moe_comm_overlap=true"}}),
              HasSubstr("training.moe_comm_overlap: gpt2 has no experts; leave it out"));
}

TEST(Job, DualPipeHidesExchangesOfTokens) {
  constexpr std::string_view kDual = R"(
model: mixtral-8x7b
cluster: h100-ib-400g
nodes: 1
parallel: {pp: 2, vpp: 2, dp: 4, ep: 4}
training: {global_batch: 32, seq_len: 1024}
schedule: dualpipe
)";
  const Job job = Read(kDual);
  EXPECT_TRUE(job.workloads.front().plan.experts.moe_comm_overlap);
  EXPECT_THAT(job.assumed, Contains(HasSubstr("training.moe_comm_overlap: true")));
  for (const std::string_view other :
       {"training.moe_comm_overlap=false", "schedule=1f1b-interleaved",
        "training.moe_shared_overlap=true"}) {
    EXPECT_FALSE(
        Read(kDual, {.set = {std::string(other)}}).workloads.front().plan.experts.moe_comm_overlap)
        << other;
  }
}

TEST(Job, AllocatorSettings) {
  const Job job = Read(std::string(kSmall) +
                       "memory: {allocator: 'expandable_segments:True', timeline: true}\n");
  EXPECT_TRUE(job.memory.allocator.expandable_segments);
  const Job again = Read(job.config_json);
  EXPECT_EQ(again.config_json, job.config_json);
  const results::RunResult result = Predict(job);
  for (const results::MemoryRow& row : result.jobs.front().memory) {
    EXPECT_EQ(row.footprint.peak_reserved % (2 << 20), 0);
    EXPECT_FALSE(row.footprint.timeline.empty());
  }
  EXPECT_THAT(Error(std::string(kSmall) + "memory: {allocator: 'max_split_size_mb:1'}\n"),
              HasSubstr("memory.allocator: max_split_size_mb:1: a whole number of MiB from 20"));
}

// The first change that makes a plan fit is named; nothing is named when it fits.
TEST(Job, RemedyForAJobThatDoesNotFit) {
  EXPECT_EQ(Predict(Read(kSmall)).jobs.front().memory_remedy, "");
  const std::int64_t needed = [] {
    std::int64_t most = 0;
    const results::RunResult result = Predict(Read(kSmall));
    for (const results::MemoryRow& row : result.jobs.front().memory) {
      most = std::max(most, row.total());
    }
    return most;
  }();
  const auto at = [](std::int64_t bytes) {
    return Predict(Read(kSmall, {.set = {fmt::format("cluster.device.memory={}B", bytes)}}))
        .jobs.front();
  };
  EXPECT_FALSE(at(needed).out_of_memory());
  const results::JobResult tight = at(needed - (64 << 20));
  EXPECT_TRUE(tight.out_of_memory());
  EXPECT_THAT(tight.memory_remedy, HasSubstr("it fits with "));
  EXPECT_THAT(at(1 << 30).memory_remedy, HasSubstr("use more pipeline or tensor parallelism"));
}

// Megatron's zero1 takes no adafactor: it was recommended and then refused.
TEST(Job, RemedyIsAJobThatIsNotRefused) {
  constexpr std::string_view kLarge = R"(
model: llama2-70b
cluster: h100-ib-400g
nodes: 4
parallel: {tp: 8, pp: 1, dp: 4}
training: {global_batch: 64, seq_len: 4096, optimizer: adafactor, recompute: full}
)";
  const results::JobResult result = Predict(Read(kLarge)).jobs.front();
  ASSERT_TRUE(result.out_of_memory());
  EXPECT_THAT(result.memory_remedy, HasSubstr("with parallel.sequence_parallel: true it still"));
  EXPECT_THAT(result.memory_remedy, Not(HasSubstr("zero1")));
  EXPECT_THAT(result.memory_remedy, HasSubstr("zero2 or zero3"));
  EXPECT_THAT(Error(kLarge, {.set = {"training.sharding=zero1"}}), HasSubstr("takes no adafactor"));
}

// What follows from training.recompute is not written beside it: a resolved job takes another.
TEST(Job, RecomputeOfAResolvedConfigurationCanBeChanged) {
  const std::string selective = Read(kSmall, {.set = {"training.recompute=selective"}}).config_json;
  EXPECT_EQ(Read(selective, {.set = {"training.recompute=full"}}).config_json,
            Read(kSmall, {.set = {"training.recompute=full"}}).config_json);
  std::vector<std::string> fsdp = {"framework=fsdp2", "training.sharding=zero3",
                                   "training.recompute=full", "parallel.pp=1", "parallel.dp=4"};
  const std::string kept = Read(kSmall, {.set = fsdp}).config_json;
  EXPECT_EQ(
      Read(kept, {.set = {"training.recompute=none"}}).workloads.front().plan.memory.recompute,
      workload::Recompute::kNone);
  // Said otherwise than the framework has it, it stays.
  fsdp.emplace_back("framework_options.recompute_keeps=nothing");
  const Job said = Read(Read(kSmall, {.set = fsdp}).config_json);
  EXPECT_EQ(said.workloads.front().plan.framework.recompute_keeps,
            workload::RecomputeKeeps::kNothing);
}

// What the job says recomputed layers keep, they keep in the remedy, too.
TEST(Job, RemedyKeepsWhatTheJobSays) {
  const std::vector<std::string> said = {"framework_options.recompute_keeps=every_other",
                                         "training.micro_batch=1", "training.sharding=zero1"};
  const auto at = [&](std::string_view recompute, std::int64_t bytes) {
    std::vector<std::string> set = said;
    set.push_back(fmt::format("training.recompute={}", recompute));
    set.push_back(fmt::format("cluster.device.memory={}B", bytes));
    return Predict(Read(kSmall, {.set = set})).jobs.front();
  };
  std::int64_t full = 0;
  for (const results::MemoryRow& row : at("full", std::int64_t{80} << 30).memory) {
    full = std::max(full, row.total());
  }
  ASSERT_TRUE(at("full", full - (32 << 20)).out_of_memory());
  const results::JobResult tight = at("selective", full - (32 << 20));
  ASSERT_TRUE(tight.out_of_memory());
  EXPECT_THAT(tight.memory_remedy, Not(HasSubstr("it fits with training.recompute: full")));
}

TEST(Job, ResolvedConfigurationReadsBackTheSame) {
  const std::string text = std::string(kSmall) +
                           "perturb: {jitter: 1%, ranks: [{rank: 3, speed: 0.9, delay: 5us}]}\n"
                           "nccl: {NCCL_ALGO: Ring}\nsimulation: {iterations: 3, seed: 7}\n";
  const Job first = Read(text);
  const Job second = Read(first.config_json);
  EXPECT_EQ(first.config_json, second.config_json);
  EXPECT_EQ(first.config_hash, second.config_hash);
  EXPECT_EQ(Predict(first).simulation.fingerprint, Predict(second).simulation.fingerprint);
  EXPECT_NE(first.config_hash, Read(text, {.set = {"simulation.seed=8"}}).config_hash);
}

TEST(Job, DpAndNodesFollowFromEachOther) {
  const std::string head =
      "model: gpt2\ncluster: h100-ib-400g\ntraining: {global_batch: 16, seq_len: 1024}\n";
  EXPECT_EQ(Read(head + "nodes: 2\nparallel: {tp: 2}\n").workloads.front().plan.parallel.dp, 8);
  EXPECT_EQ(Read(head + "parallel: {tp: 2, dp: 8}\n").cluster.nodes, 2);
  const Job idle = Read(head + "nodes: 2\nparallel: {tp: 2, dp: 4}\n");
  EXPECT_THAT(idle.assumed, Contains("8 of the cluster's 16 GPUs stay idle"));
}

TEST(Job, SetWinsAndReachesIntoPresets) {
  const Job job = Read(kSmall, {.set = {"cluster.nic_bandwidth=200Gb/s", "model.layers=6",
                                        "parallel.layers_per_stage=[2, 4]"}});
  EXPECT_EQ(job.cluster.nic_Bps, 25'000'000'000);
  EXPECT_EQ(job.workloads.front().model.layers, 6);
  EXPECT_EQ(job.workloads.front().plan.parallel.layers_per_stage, (std::vector<int>{2, 4}));
}

TEST(Job, LayersAreSharedOutByARule) {
  const auto layers = [](const char* rule, int pp) {
    const Job job = Read(kSmall, {.set = {"nodes=3", fmt::format("parallel.pp={}", pp),
                                          fmt::format("parallel.layers_per_stage={}", rule)}});
    const workload::Plan& plan = job.workloads.front().plan;
    EXPECT_THAT(job.assumed, Contains(testing::HasSubstr(fmt::format("{} gives [", rule))));
    return plan.parallel.layers_per_stage;
  };
  EXPECT_EQ(layers("spread", 5), (std::vector<int>{3, 3, 2, 2, 2}));  // gpt2 has 12
  EXPECT_EQ(layers("filled", 5), (std::vector<int>{3, 3, 3, 3, 0}));
  EXPECT_EQ(layers("counted", 4), (std::vector<int>{3, 4, 3, 2}));
  EXPECT_TRUE(
      Read(kSmall, {.set = {"nodes=3", "parallel.pp=4", "parallel.layers_per_stage=spread"}})
          .workloads.front()
          .plan.parallel.layers_per_stage.empty());
}

TEST(Job, TheCommandLineWins) {
  const Job job =
      Read(std::string(kSmall) + "network: analytic\n", {.network = "links", .seed = 9});
  EXPECT_EQ(job.network, "links");
  EXPECT_EQ(job.engine.seed, 9u);
}

TEST(Job, FrameworkVersionsDiffer) {
  const Job now = Read(kSmall);
  const Job then = Read(std::string(kSmall) + "framework: megatron@2022.05\n");
  EXPECT_TRUE(now.workloads.front().plan.framework.overlap_grad_reduce);
  EXPECT_FALSE(then.workloads.front().plan.framework.overlap_grad_reduce);
  const Job set = Read(std::string(kSmall) +
                       "framework: megatron@2022.05\nframework_options: {attention: flash2}\n");
  EXPECT_EQ(set.workloads.front().plan.framework.attention, workload::AttentionBackend::kFlash2);
  const Job late = Read(std::string(kSmall) + "framework_options: {deferred_head: 4}\n");
  EXPECT_EQ(late.workloads.front().plan.framework.deferred_head, 4);
  EXPECT_EQ(Read(late.config_json).config_hash, late.config_hash);
}

// There is one loss: the user's takes the place of the framework's, two of them are refused.
TEST(Job, OneLoss) {
  const std::string bridge = std::string(kSmall) + "framework: megatron-bridge\n";
  EXPECT_TRUE(Read(bridge).workloads.front().plan.framework.online_cross_entropy);
  const Job job = Read(bridge + "framework_options: {fused_cross_entropy: true}\n");
  const workload::Plan& plan = job.workloads.front().plan;
  EXPECT_TRUE(plan.framework.fused_cross_entropy);
  EXPECT_FALSE(plan.framework.online_cross_entropy);
  EXPECT_EQ(Read(job.config_json).config_hash, job.config_hash);
  EXPECT_EQ(Error(bridge + "framework_options: {torch_loss: true, chunked_loss: true}\n"),
            "job.yaml:8:33: framework_options.torch_loss: chunked_loss is another way to the same "
            "loss; leave one of them out");
}

// FSDP2's layers are plain PyTorch, eager; the configuration says so whatever was chosen.
TEST(Job, LayersInPlainPyTorch) {
  using workload::TorchLayers;
  const std::string fsdp2 = std::string(kSmall) + "framework: fsdp2\n";
  for (const auto& [text, layers] :
       {std::pair{"", TorchLayers::kEager},
        {"framework_options: {torch_layers: compiled}\n", TorchLayers::kCompiled},
        {"framework_options: {torch_layers: fused}\n", TorchLayers::kFused}}) {
    const Job job = Read(fsdp2 + text);
    EXPECT_EQ(job.workloads.front().plan.framework.torch_layers, layers);
    const Job again = Read(job.config_json);
    EXPECT_EQ(again.workloads.front().plan.framework.torch_layers, layers) << text;
    EXPECT_EQ(again.config_hash, job.config_hash) << text;
  }
}

TEST(Job, GraphScopeNeedsGraphsOfLayers) {
  const std::string text = std::string(kSmall) + "framework_options: ";
  const Job job = Read(text + "{cuda_graphs: layers, cuda_graph_scope: attn}\n");
  EXPECT_EQ(job.workloads.front().plan.framework.graph_scope, workload::kGraphAttention);
  EXPECT_EQ(Read(job.config_json).config_hash, job.config_hash);
  EXPECT_EQ(Error(text + "{cuda_graph_scope: attn}\n"),
            "job.yaml:7:39: framework_options.cuda_graph_scope: there are no graphs of layers; set "
            "cuda_graphs: layers or leave it out");
}

TEST(Job, SeveralJobsShareACluster) {
  const std::string text =
      "cluster: h100-ib-400g\nnodes: 2\njobs:\n"
      "- {name: a, job: {model: gpt2, parallel: {tp: 2, dp: 4}, training: {global_batch: 16, "
      "seq_len: 1024}}}\n"
      "- {name: b, placement: random, job: {model: gpt2-medium, parallel: {dp: 8}, training: "
      "{global_batch: 16, seq_len: 512}}}\n";
  const Job job = Read(text);
  ASSERT_EQ(job.workloads.size(), 2u);
  EXPECT_EQ(Read(job.config_json).config_hash, job.config_hash);
  const results::RunResult result = Predict(job);
  ASSERT_EQ(result.jobs.size(), 2u);
  EXPECT_EQ(result.jobs[1].name, "b");
  const auto json = nlohmann::json::parse(results::ToJson(result));
  EXPECT_EQ(json["jobs"].size(), 2u);
  EXPECT_FALSE(json.contains("step_time_s"));
}

// A job's own nodes size it as alone: 2 hosts of 8 GPUs at TP 2 are DP 8.
TEST(Job, AJobAmongOthersKeepsItsNodes) {
  std::string text =
      "cluster: h100-ib-400g\nnodes: 4\njobs:\n- {name: a, job: {model: gpt2, nodes: 2, parallel: "
      "{tp: 2}, training: {global_batch: 16, seq_len: 1024}}}\n";
  const Job job = Read(text);
  EXPECT_EQ(job.workloads.front().plan.parallel.dp, 8);
  EXPECT_THAT(job.assumed, Contains("job a: parallel.dp: 8, follows from 16 GPUs"));
  text.insert(text.find("tp: 2") + 5, ", dp: 16");
  EXPECT_THAT(Error(text), HasSubstr("nodes: its 16 GPUs are fewer than the plan's 32 ranks"));
}

TEST(Job, RefusesWithPlaceAndRemedy) {
  EXPECT_THAT(Error(std::string(kSmall) + "nodez: 2\n"),
              HasSubstr("job.yaml:7:1: unknown key 'nodez'; did you mean 'nodes'?"));
  EXPECT_THAT(Error(std::string(kSmall) + "perturb: {ranks: [{rank: 8}]}\n"),
              HasSubstr("there is no rank 8; the run has ranks 0 to 7"));
}

// Keys that another key must give a meaning: they did nothing, without a word.
TEST(Job, RefusesKeysThatDoNothing) {
  const auto says = [](const char* set, const char* with, std::string_view model = "gpt2") {
    std::vector<std::string> sets = {fmt::format("model={}", model), set};
    const std::string alone = Error(kSmall, {.set = sets});
    EXPECT_THAT(alone, HasSubstr("does nothing without")) << set;
    EXPECT_THAT(alone, HasSubstr("leave it out")) << set;
    sets.emplace_back(with);
    EXPECT_THAT(Error(kSmall, {.set = sets}), Not(HasSubstr("does nothing"))) << set;
  };
  says("training.recompute_modules=core_attn", "training.recompute=selective");
  says("training.lora_targets=qkv", "training.lora_rank=16");
  says("training.data_workers=4", "training.sample_read=1ms");
  says("training.data_workers=4", "training.data_storage=object_store");
  says("training.offload_layers=2", "training.offload=activations");
  says("training.offload_modules=core_attn", "training.offload=all");
  says("framework_options.cp_exchange=ring", "parallel.cp=2");
  says("framework_options.fp8_recipe=current", "training.precision=fp8");
  says("training.moe_alpha=2", "training.moe_routing=dirichlet", "mixtral-8x7b");
  says("training.moe_zipf=2", "training.moe_routing=drawn-zipf", "mixtral-8x7b");
  says("training.moe_seed=2", "training.moe_routing=dirichlet", "mixtral-8x7b");
}

// Rates go by power only where the reference board of that power is the GPU's own kind.
TEST(Simulate, AmdsSuccessorsAreNoSlower) {
  const auto step = [](const char* cluster) {
    const Job job =
        Read(kSmall, {.set = {fmt::format("cluster={}", cluster), "model=llama3-8b", "nodes=1",
                              "parallel.tp=8", "parallel.dp=1", "parallel.pp=1",
                              "training.seq_len=8192", "training.global_batch=8"}});
    return Predict(job).jobs.front().step_time;
  };
  const SimTime mi325x = step("mi325x-ib-400g");
  EXPECT_LE(mi325x, step("mi300x-ib-400g"));
  EXPECT_LE(step("mi355x-ib-400g"), mi325x);
}

// What nobody states of a Grace and of an object store are constants; the resolved job keeps them
// open.
TEST(Job, ConstantsOfHostsAndStores) {
  constants::Set set = constants::Set::Fitted();
  set.set(constants::kCpuSpeedGrace, 0.5);
  set.set(constants::kSampleReadObjectStore, 0.125);
  const auto read = [&](std::vector<std::string> sets) {
    ReadOptions options{.constants = set};
    sets.insert(sets.begin(),
                {"cluster=gb200-nvl72-ib-400g", "nodes=2", "training.data_storage=object_store"});
    options.set = std::move(sets);
    return Read(kSmall, options);
  };
  const Job open = read({});
  EXPECT_EQ(open.cluster.cpu_relative_speed, 0.5);
  EXPECT_EQ(open.workloads.front().plan.batch.sample_read, 125 * kMillisecond);
  EXPECT_THAT(open.config_json, Not(HasSubstr("cpu_relative_speed")));
  EXPECT_THAT(open.config_json, HasSubstr("object_store"));
  const Job stated = read({"cluster.cpu_relative_speed=0.8", "training.sample_read=20ms"});
  EXPECT_EQ(stated.cluster.cpu_relative_speed, 0.8);
  EXPECT_EQ(stated.workloads.front().plan.batch.sample_read, 20 * kMillisecond);
}

TEST(Simulate, WarmCachesChangeNothing) {
  Caches caches;
  const Job job = Read(kSmall);
  const Job other = Read(kSmall, {.set = {"training.micro_batch=2"}});
  const results::RunResult cold = Predict(job);
  Predict(other, &caches);
  const results::RunResult warm = Predict(job, &caches);
  EXPECT_EQ(cold.jobs.front().step_time, warm.jobs.front().step_time);
  EXPECT_EQ(cold.simulation.fingerprint, warm.simulation.fingerprint);
  // Another cluster under the same caches.
  const Job slow = Read(kSmall, {.set = {"cluster.nvlink_bandwidth=100GB/s"}});
  EXPECT_GT(Predict(slow, &caches).jobs.front().step_time, warm.jobs.front().step_time);
  EXPECT_EQ(Predict(job, &caches).simulation.fingerprint, cold.simulation.fingerprint);
}

TEST(Simulate, FoldedIsUnfolded) {
  const results::RunResult folded = Predict(Read(kSmall));
  const results::RunResult all = Predict(Read(kSmall, {.fold = false}));
  EXPECT_TRUE(folded.simulation.folded);
  EXPECT_FALSE(all.simulation.folded);
  EXPECT_EQ(folded.jobs.front().step_time, all.jobs.front().step_time);
  EXPECT_EQ(folded.simulation.fingerprint, all.simulation.fingerprint);
  EXPECT_EQ(folded.simulation.config_hash, all.simulation.config_hash);
}

TEST(Simulate, PartsTileTheStep) {
  for (const char* extra :
       {"", "perturb: {jitter: 2%}\n", "perturb: {ranks: [{rank: 5, speed: 0.7}]}\n"}) {
    const results::RunResult result = Predict(Read(std::string(kSmall) + extra));
    const results::JobResult& job = result.jobs.front();
    std::vector<results::BreakdownRow> rows = job.stages;
    rows.push_back(job.overall);
    for (const results::BreakdownRow& row : rows) {
      SimTime sum = 0;
      for (const SimTime part : row.parts) sum += part;
      EXPECT_EQ(sum, row.total);
      EXPECT_EQ(row.total, job.step_time) << "stage " << row.stage << " " << extra;
    }
    EXPECT_LE(job.interval_low_s, ToSeconds(job.step_time));
    EXPECT_GE(job.interval_high_s, ToSeconds(job.step_time));
  }
}

TEST(Simulate, OutOfMemoryIsAResult) {
  const results::RunResult result =
      Predict(Read("model: gpt3-175b\ncluster: h100-ib-400g\nparallel: {tp: 8}\n"
                   "training: {global_batch: 1, seq_len: 2048}\n"));
  EXPECT_TRUE(result.out_of_memory());
  const std::string report = results::Report(result, {});
  EXPECT_THAT(report, HasSubstr("DOES NOT FIT"));
  // No figure stands as if it ran.
  EXPECT_THAT(report, HasSubstr("step time    would be "));
  EXPECT_THAT(report, HasSubstr("throughput   would be "));
  EXPECT_THAT(report, HasSubstr("model speed  would be "));
}

// Above 94 % of the GPU a prediction of memory decides nothing.
TEST(Simulate, AFullGpuIsClose) {
  const auto at = [](double share) {
    const results::RunResult plain = Predict(Read(kSmall));
    const auto bytes = static_cast<std::int64_t>(
        static_cast<double>(plain.jobs.front().fullest()->total()) / share);
    return Predict(Read(kSmall, {.set = {fmt::format("cluster.device.memory={}B", bytes)}}));
  };
  EXPECT_EQ(at(0.93).jobs.front().verdict(), results::Verdict::kFits);
  EXPECT_EQ(at(0.95).jobs.front().verdict(), results::Verdict::kClose);
  EXPECT_THAT(results::Report(at(0.95), {}), HasSubstr("verdict      close: fits"));
  const results::JobResult job = at(0.95).jobs.front();
  EXPECT_LT(job.memory_low_bytes(), job.fullest()->total());
  EXPECT_GT(job.memory_high_bytes(), job.device_bytes);
}

// The first screen leaves out what --full has; nothing assumed is said twice.
TEST(Simulate, TheFirstScreenIsShort) {
  const results::RunResult result =
      Predict(Read(kSmall, {.set = {"parallel.pp=4", "parallel.tp=1"}}));
  const std::string first = results::Report(result, {});
  const std::string full = results::Report(result, {.full = true});
  EXPECT_LT(std::count(first.begin(), first.end(), '\n'), 50);
  for (const char* part : {"Network (back end", "The simulation", "memory at its peak"}) {
    EXPECT_THAT(first, Not(HasSubstr(part)));
    EXPECT_THAT(full, HasSubstr(part));
  }
  EXPECT_THAT(first, HasSubstr("bound by     "));
  EXPECT_THAT(first, HasSubstr("(busiest)"));
  EXPECT_THAT(first, Not(HasSubstr("whose defaults are")));
  EXPECT_THAT(full, HasSubstr("whose defaults are"));
}

// A key that cannot change the answer says so.
TEST(Simulate, KeysWithoutEffectAreNamed) {
  const auto ignored = [](std::vector<std::string> set) {
    const results::RunResult result = Predict(Read(kSmall, {.set = std::move(set)}));
    return fmt::format("{}", fmt::join(result.ignored, "\n"));
  };
  EXPECT_EQ(ignored({}), "");
  const std::string limit = "limited by PCIe 5 x16: 100.0 GB/s a NIC";
  EXPECT_THAT(ignored({"cluster.nic_bandwidth=800Gb/s"}), HasSubstr(limit));
  EXPECT_EQ(ignored({"cluster.nic_bandwidth=200Gb/s"}), "");
  EXPECT_THAT(ignored({"cluster.device.price_per_hour=2"}), HasSubstr("price_per_hour: without"));
  EXPECT_THAT(ignored({"nccl.NCCL_TREE_THRESHOLD=1"}),
              HasSubstr("nccl.NCCL_TREE_THRESHOLD: without effect"));
  EXPECT_THAT(ignored({"cluster=a100-pcie-80g-ib-200g", "cluster.nvlink_bandwidth=100GB/s"}),
              HasSubstr("over the PCIe tree"));
  // And it is true: twice the rate above the limit changes next to nothing.
  const auto step = [](const char* rate) {
    return Predict(Read(kSmall, {.set = {"nodes=2", "parallel.dp=4",
                                         fmt::format("cluster.nic_bandwidth={}", rate)}}))
        .jobs.front()
        .step_time;
  };
  const auto share = [&](const char* slow, const char* fast) {
    return static_cast<double>(step(slow)) / static_cast<double>(step(fast)) - 1;
  };
  EXPECT_LT(share("800Gb/s", "1600Gb/s"), 1e-5);
  EXPECT_GT(share("100Gb/s", "200Gb/s"), 1e-3);
}

// The heading names the GPUs that ran, not all that the cluster has.
TEST(Simulate, TheHeadingNamesTheGpusThatRan) {
  const Job all = Read(kSmall);
  const std::string whole = Predict(all).cluster;
  EXPECT_THAT(whole, Not(HasSubstr(" of ")));
  const std::string part =
      Predict(Read(kSmall, {.set = {fmt::format("nodes={}", all.cluster.nodes + 1)}})).cluster;
  EXPECT_THAT(part, HasSubstr(fmt::format("{} of {} ", all.ranks(), 8 * (all.cluster.nodes + 1))));
}

// What a remedy says, typed as it says it, fits, under whatever optimizer the job has.
TEST(Job, RemedyFitsWithTheOptimizerThatIsStated) {
  for (const char* optimizer : {"adam", "sgd", "muon"}) {
    std::vector<std::string> set = {fmt::format("training.optimizer={}", optimizer),
                                    "training.sharding=none", "training.micro_batch=1"};
    const results::JobResult roomy = Predict(Read(kSmall, {.set = set})).jobs.front();
    set.push_back(fmt::format("cluster.device.memory={}B", roomy.fullest()->total() - (48 << 20)));
    const results::JobResult tight = Predict(Read(kSmall, {.set = set})).jobs.front();
    ASSERT_TRUE(tight.out_of_memory()) << optimizer;
    const std::string& said = tight.memory_remedy;
    EXPECT_THAT(said, HasSubstr(fmt::format("optimizer {}", optimizer)));
    const std::string rest = said.substr(said.find(" with ") + 6);  // "key: value: 1.9 GiB of …"
    std::string assignment = rest.substr(0, rest.find(": ", rest.find(": ") + 2));
    ASSERT_NE(assignment.find(": "), std::string::npos) << said;
    assignment.replace(assignment.find(": "), 2, "=");
    assignment = assignment.substr(0, assignment.find(" ("));
    set.push_back(assignment);
    EXPECT_FALSE(Predict(Read(kSmall, {.set = set})).out_of_memory()) << said << "\n" << assignment;
  }
}

TEST(Simulate, NamesFromUsersDoNothing) {
  const results::RunResult result =
      Predict(Read(kSmall, {.set = {"model.name=\"a\\e[31m\\u202Eb\""}}));
  const std::string report = results::Report(result, {});
  EXPECT_THAT(report, Not(HasSubstr("\x1b")));
  EXPECT_THAT(report, HasSubstr("a\\x1b[31m\\u202eb"));
  EXPECT_TRUE(nlohmann::json::accept(results::ToJson(result)));
}

TEST(Simulate, ReportFitsATerminal) {
  const std::string report = results::Report(Predict(Read(kSmall)), {});
  std::size_t from = 0;
  while (from < report.size()) {
    const std::size_t end = report.find('\n', from);
    EXPECT_LE(end - from, 120u) << report.substr(from, end - from);  // bytes; at most 100 columns
    from = end + 1;
  }
}

TEST(Tables, OtherFrameworksWordsNameChoices) {
  std::size_t words = 0;
  for (const OptionTable* table : Tables()) {
    for (const Option& option : table->options) {
      const std::vector<std::string_view> choices = Choices(option);
      for (const Word& word : Words(option)) {
        EXPECT_THAT(choices, Contains(word.choice)) << option.name << ": " << word.word;
        EXPECT_THAT(choices, Not(Contains(word.word))) << option.name;
        ++words;
      }
    }
  }
  EXPECT_GT(words, 20u);
}

// Every single-edit typo of every key: the right key is named first in at least 95 % of them.
TEST(Tables, TyposFindTheirKey) {
  std::size_t typos = 0, found = 0;
  const auto check = [&](const std::string& typo, std::string_view key,
                         const std::vector<std::string_view>& names) {
    if (typo.size() < 2) return;
    for (const std::string_view name : names) {
      if (typo == name) return;
    }
    ++typos;
    const std::vector<std::string> near = Nearest(typo, names, 1);
    if (!near.empty() && near.front() == key) ++found;
  };
  for (const OptionTable* table : Tables()) {
    const std::vector<std::string_view> names = OptionNames(table->options);
    for (const std::string_view key : names) {
      if (key.size() < 4) continue;  // tp, pp, dp, … are one edit from each other
      for (std::size_t i = 0; i < key.size(); ++i) {
        const std::string text(key);
        check(text.substr(0, i) + text.substr(i + 1), key, names);
        check(text.substr(0, i) + "x" + text.substr(i), key, names);
        check(text.substr(0, i) + "q" + text.substr(i + 1), key, names);
        if (i + 1 < key.size()) {
          std::string swapped = text;
          std::swap(swapped[i], swapped[i + 1]);
          check(swapped, key, names);
        }
      }
    }
  }
  EXPECT_GE(typos, 1000u);
  EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(typos)) << found << "/" << typos;
}

TEST(Tables, EveryKeyIsSound) {
  for (const OptionTable* table : Tables()) {
    for (const Option& option : table->options) {
      const std::string name = formats::FullName(*table, option.name);
      EXPECT_FALSE(option.doc.empty()) << name;
      if (!option.fallback.empty()) {
        EXPECT_TRUE(ParseOption(option, option.fallback).ok()) << name;
      }
      if (DimensionOf(option.type) != Dimension::kNone &&
          DimensionOf(option.type) != Dimension::kFraction) {
        EXPECT_GT(ScaleOf(DimensionOf(option.type), option.unit), 0) << name;
      }
    }
  }
  EXPECT_TRUE(nlohmann::json::accept(JobSchema()));
}

// Alike ranks never wait for each other: what is left of the gradients' reduction after the
// backward pass is communication, although all but the first bucket stand behind another.
TEST(Simulate, OwnCommunicationIsNotWaiting) {
  ReadOptions options;
  options.set = {"parallel.tp=1", "parallel.pp=1", "parallel.dp=8", "training.sharding=zero1"};
  const results::RunResult result = Predict(Read(kSmall, options));
  EXPECT_EQ(result.simulation.ranks_simulated, 1);
  const auto overall = nlohmann::json::parse(results::ToJson(result))["breakdown"]["overall"];
  EXPECT_EQ(overall["waiting_ps"], 0);
  EXPECT_GT(overall["exposed_dp_ps"], 0);
}

// Moye's equations price a job's collectives; what they lack is refused by name, or priced by
// Orrery's formula and told.
TEST(Simulate, MoyePricesWhatItHasEquationsFor) {
  ReadOptions options;
  options.set = {"nodes=4", "parallel={dp: 32}", "training.global_batch=32", "model.layers=4",
                 "collective.model=moye"};
  Caches caches;
  const Result<results::RunResult> refused = Simulate(Read(kSmall, options), {}, &caches);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("collective.model moye: the paper"));
  options.set.insert(options.set.end(), {"collective.otherwise=orrery",
                                         "nccl.NCCL_ALGO=Tree;AllGather:Ring;ReduceScatter:Ring",
                                         "nccl.NCCL_PROTO=LL128"});
  const Job job = Read(kSmall, options);
  EXPECT_THAT(job.assumed, Contains(HasSubstr("Moye's equations 2 to 5")));
  const results::RunResult moye = Predict(job);
  EXPECT_EQ(Read(job.config_json).config_json, job.config_json);
  options.set[4] = "collective.model=orrery";
  options.set[5] = "simulation.seed=1";
  EXPECT_NE(Predict(Read(kSmall, options)).jobs.front().step_time, moye.jobs.front().step_time);
  options.set = {"collective.model=orrery", "collective.setup=5us"};
  EXPECT_THAT(Error(kSmall, options), HasSubstr("only collective.model moye has it"));
  options.set = {"collective.model=moye"};
  options.network = "links";
  EXPECT_THAT(Error(kSmall, options), HasSubstr("take network analytic"));
}

Result<results::TraceResult> SimulateGoal(const std::string& path, const TraceOptions& options) {
  const TraceFiles files = OpenTrace({path});
  const Result<const Importer*> goal = FindImporter(files, "");
  return SimulateTrace(**goal, files, options);
}

// 6 steps of o + L + o + (2^20 - 1) G = 5,500 + 6 · 1,048,575 ns.
TEST(Goal, RunsAScheduleAndSavesItsParameters) {
  const std::string path = ORRERY_SOURCE_DIR "/tests/cli/inputs/ring4.goal";
  const auto result = SimulateGoal(path, {.set = {"loggops.S=1MiB"}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  const auto json = nlohmann::json::parse(results::ToJson(*result));
  EXPECT_EQ(json["finish_time_ps"], 6ll * 6'296'950'000);
  EXPECT_EQ(json["goal"]["ranks"].size(), 4u);
  EXPECT_EQ(json["goal"]["programs"], 1);  // a ring's ranks differ in nothing but their neighbours
  EXPECT_EQ(json["config"]["loggops"]["S"], "1048576B");
  EXPECT_THAT(results::Report(*result), HasSubstr("finish       37,781,700 ns"));
  const auto other = SimulateGoal(path, {.set = {"loggops.L=2500.001"}});
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->record.finish_time, 6ll * 6'296'950'001);
  EXPECT_NE(other->simulation.fingerprint, result->simulation.fingerprint);
}

// The same schedule over a cluster's network: its own latencies and rates, o and O on the
// processor. A message of 4,194,304 bytes takes at least its bytes over the NIC's 50 GB/s.
TEST(Goal, RunsOnEveryNetwork) {
  const std::string path = ORRERY_SOURCE_DIR "/tests/cli/inputs/ring4.goal";
  const auto alone = SimulateGoal(path, {.network = "flow"});
  EXPECT_THAT(alone.status().message(), HasSubstr("--cluster"));
  for (const char* network : {"analytic", "flow", "links", "loggops"}) {
    TraceOptions options{.network = network,
                         .cluster = "h100-ib-400g",
                         .set = {"goal.rank=node", "loggops.endpoints=staged"}};
    const auto result = SimulateGoal(path, options);
    ASSERT_TRUE(result.ok()) << network << ": " << result.status().message();
    // Six messages of 1 MiB one after the other, 20.97 us each at 50 GB/s and more than that with
    // latencies and processors.
    EXPECT_GT(result->record.finish_time, 6 * 20'970 * kNanosecond) << network;
    EXPECT_LT(result->record.finish_time, 6 * 45'000 * kNanosecond) << network;
    for (const engine::RankClass& rank : result->record.classes) {
      EXPECT_EQ(std::accumulate(rank.breakdown.begin(), rank.breakdown.end(), SimTime{0}),
                result->record.finish_time);
    }
  }
}

// Rank 0 sends 100 MB and again 100 MB, rank 1 works 10 ms on the first. In order on one connection
// of 50 GB/s: 2 ms, then 10 ms of work while the second comes. Shared, the first came with the
// second: 4 + 10.
TEST(Goal, MessagesOfAPairGoInOrder) {
  const std::string path = ORRERY_SOURCE_DIR "/tests/cli/inputs/two_sends.goal";
  for (const char* network : {"analytic", "flow", "flow-chunks", "links", "packet"}) {
    const auto result = SimulateGoal(
        path, {.network = network,
               .cluster = "h100-ib-400g",
               .set = {"goal.rank=node", "loggops.endpoints=staged", "loggops.S=1GB"}});
    ASSERT_TRUE(result.ok()) << network << ": " << result.status().message();
    EXPECT_NEAR(ToSeconds(result->record.finish_time), 12.3e-3, 0.3e-3) << network;
  }
}

}  // namespace
}  // namespace orrery::job
