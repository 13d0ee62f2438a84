// What a run says: step time, breakdown, memory, network, and where every number came from.
//
// Built from the engine's record, the memory replays and a few facts about each job; knows nothing
// of how those came about. Every part of a breakdown is measured from its own intervals by the
// engine; together they tile the step. A row is the mean over its ranks, rounded to whole
// picoseconds so that the parts still sum to the row's total.
//
// The 80 % interval is step time / (1 + w) to step time · (1 + w), with the width w of the step's
// shares (constants::StepWidth). Errors are taken as one draw for all kernels of a run, not
// averaged away.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/campaign/cost.h"
#include "orrery/campaign/goodput.h"
#include "orrery/constants/spreads.h"
#include "orrery/engine/engine.h"
#include "orrery/graph/graph.h"
#include "orrery/memory/memory.h"
#include "orrery/results/packets.h"
#include "orrery/results/sharing.h"

namespace orrery::results {

// Facts about a job that neither the graph nor the record holds.
struct JobFacts {
  std::string description;  // "Llama-3.1-405B, TP8 PP16 DP128, …": one line for the report
  double peak_flops = 0;    // of one GPU, dense, in `peak_type`; for MFU
  std::string_view peak_type = "bf16";  // as published MFUs take it: fp8 jobs' too
  std::int64_t device_bytes = 0;        // memory of one GPU
  bool experts = false;                 // the model has experts: a wider interval
};

// What a step is made of, for its interval (constants/spreads.h).
constants::StepShares SharesOf(const engine::Breakdown& parts, double compute_spread, bool experts);

struct BreakdownRow {
  std::int32_t stage = -1;  // -1: all stages
  std::uint32_t ranks = 0;
  SimTime total = 0;
  engine::Breakdown parts{};  // sum to total
};

struct MemoryRow {
  std::string program;
  std::int32_t stage = 0;
  std::uint32_t ranks = 0;
  memory::Footprint footprint;
  std::int64_t total() const { return footprint.total(); }
};

// Whether a job runs. kClose: it fits, and what it takes is above 94 % of the GPU, where a
// prediction of memory decides nothing: the next release of a library may tip it over.
enum class Verdict : std::uint8_t { kFits, kClose, kOutOfMemory };
std::string_view Name(Verdict verdict);

struct JobResult {
  std::string name;
  std::string description;
  std::uint32_t ranks = 0;
  SimTime step_time = 0;
  bool settled = true;
  double interval_low_s = 0, interval_high_s = 0;
  double tokens_per_s = 0;
  double model_tflops_per_gpu = 0;
  double mfu = 0;             // 0 when the GPU's peak is not known
  std::string_view mfu_peak;  // the precision of that peak
  std::int64_t device_bytes = 0;
  BreakdownRow overall;
  std::vector<BreakdownRow> stages;
  std::vector<MemoryRow> memory;
  std::string memory_remedy;  // what would make it fit; empty when it does
  std::string advice;         // one change that was simulated and is faster; empty: none was found
  std::optional<campaign::Cost> cost;        // where the job asks for it
  std::optional<campaign::Goodput> goodput;  // the same

  bool out_of_memory() const;
  const MemoryRow* fullest() const;  // the program that takes most; null without memory rows
  // 80 % of measurements of the fullest GPU lie between: what `nvidia-smi` would show.
  std::int64_t memory_low_bytes() const;
  std::int64_t memory_high_bytes() const;
  Verdict verdict() const;
};

struct Simulation {
  double wall_s = 0;
  std::int64_t peak_rss_bytes = 0;
  std::uint64_t events = 0;
  std::uint64_t events_repeated = 0;  // of them: repeat others and were not run
  std::uint32_t ranks = 0, ranks_simulated = 0;
  int iterations = 0, threads_used = 1;
  bool folded = false;
  std::string not_folded_because;
  std::string version;
  std::uint64_t config_hash = 0;
  std::uint64_t seed = 0;
  std::uint64_t fingerprint = 0;
};

// What the record knows of it.
void FillSimulation(const engine::Record& record, Simulation* simulation);

// What one link carried over the whole run.
struct WorstLink {
  LinkId link;
  std::string name;  // "leaf0/spine1"
  std::int64_t bytes = 0;
  double busy_share = 0;   // as the back end counts busy time
  double utilisation = 0;  // bytes over what the link could have carried
};

// What links carried in steps of equal width from time 0 on; the last one may be cut by the end of
// the run.
struct UseOverTime {
  struct Row {
    std::string name;                 // of a class of links, or of a link
    std::vector<std::int64_t> bytes;  // by step
    std::vector<double> utilisation;  // bytes over what the class or link could have carried
  };
  SimTime step = 0;
  std::vector<Row> classes;
  std::vector<Row> links;  // the worst ones, worst first
  bool empty() const { return classes.empty(); }
};

struct RunResult {
  std::string cluster;  // "h100-ib-400g, 2,048 nodes × 8 GPUs"
  SimTime finish_time = 0;
  std::vector<JobResult> jobs;     // those that train
  std::optional<Sharing> sharing;  // of several jobs
  std::string network;
  std::vector<engine::LinkClassUse> links;
  std::vector<WorstLink> worst_links;  // most used first; none where the network sees ports only
  UseOverTime over_time;               // empty unless asked for
  std::optional<PacketUse> packets;    // where the network sees packets
  std::array<double, compute::kProvenances> provenance{};
  double compute_spread = 0;
  Simulation simulation;
  std::vector<std::string> assumed;   // what was filled in, or stands for something else
  std::vector<std::string> ignored;   // what the user's files say and nothing reads or heeds
  std::vector<std::string> defaults;  // what frameworks' defaults are, a line of `assumed` each
  std::vector<std::string> switches;  // of those, what a newcomer would not guess
  std::vector<std::string> warnings;
  std::string config_json;  // the resolved job file, one JSON object

  bool out_of_memory() const;
};

struct Inputs {
  const graph::Graph* graph = nullptr;
  const engine::Record* record = nullptr;
  std::span<const JobFacts> jobs;                 // by JobId
  std::span<const memory::Footprint> footprints;  // any order, one for each program bound
};

// Step times, breakdowns, memory and rates; the caller adds cluster, simulation, assumed and
// config.
RunResult Assemble(const Inputs& inputs);

// The `count` most used links of a run, ties by bytes, then by number; idle ones are left out.
std::vector<WorstLink> WorstLinks(const engine::Record& record, const cluster::Cluster& cluster,
                                  std::size_t count = 20);

// The record's log of link use by class of link, and of the `worst` links; empty where none was
// kept.
UseOverTime OverTime(const engine::Record& record, const cluster::Cluster& cluster,
                     std::span<const WorstLink> worst);

// What the mean rank's GPU is busy with, for its power; `tensor_share`: of kernel time, in matrix
// products and attention.
campaign::StepTimes StepTimesOf(const JobResult& job, double tokens_per_step, double tensor_share,
                                double power_limit_w);

// Names of a breakdown's parts as JSON and report show them: "compute", "exposed_tp", …
std::string PartName(std::size_t part);

}  // namespace orrery::results
