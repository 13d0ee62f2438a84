// What-if: a job at every point of a space, as a table.
//
// A row is what `simulate --set …` would say of that variant: step time with its interval, rates,
// the parts of the step, memory. Memory: the allocator is replayed, unless `replay` is off or the
// bound of live memory (memory::QuickPeak) shows already that the variant cannot fit.
//
// Rows are a function of job and space alone: neither threads, shards nor an interruption change
// them. A journal (`--resume FILE`) keeps each row as soon as it is known.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/engine/engine.h"
#include "orrery/search/evaluate/evaluator.h"
#include "orrery/search/space/space.h"

namespace orrery::search {

inline constexpr std::string_view kSweepSchema = "orrery.sweep/1";

enum class RowStatus : std::uint8_t {
  kOk,
  kDoesNotFit,  // has a step time, and needs more memory than the GPU has
  kRefused,     // a rule of the job file refuses it
  kInfeasible,  // the job cannot run: a deadlock
};
std::string_view Name(RowStatus status);

struct SweepRow {
  std::uint64_t point = 0;
  std::vector<std::string> values;  // by Space::Keys
  RowStatus status = RowStatus::kRefused;
  std::string reason;  // empty where it is ok
  std::int64_t gpus = 0;
  SimTime step_time = 0;
  double interval_low_s = 0, interval_high_s = 0;
  double tokens_per_s = 0, model_tflops_per_gpu = 0, mfu = 0;
  std::int64_t memory_bytes = 0;  // of the fullest rank, as nvidia-smi shows it
  bool memory_bound = false;      // memory_bytes is a lower bound: nothing was replayed
  engine::Breakdown parts{};      // mean over ranks, sums to the step time
  double price_per_hour = 0;      // of a GPU, USD; 0: not known
  // Where the job asks for them; of a million tokens, failures included. 0: not known.
  double gpu_hours = 0, usd = 0, kwh = 0, kg_co2e = 0;
  double days = 0;     // of the whole training
  double goodput = 0;  // expected
};

struct Sweep {
  std::string source;             // the job file's name
  std::uint64_t hash = 0;         // of job and space
  std::vector<std::string> keys;  // of the space
  std::uint64_t points = 0;       // of the whole sweep, shards together
  int shard = 1, shards = 1;
  std::vector<SweepRow> rows;  // by point
  bool complete() const { return rows.size() == points; }
};

struct SweepOptions {
  int threads = 0;  // 0: one a core
  bool replay = true;
  int shard = 1, shards = 1;  // points p with p mod shards = shard - 1
  std::string journal;        // file of rows; those that it holds are not run again
  std::function<void(std::size_t done, std::size_t total)> progress;  // from one thread at a time
  const std::atomic<bool>* stop = nullptr;  // true: rows in hand are finished, others left out
};

Result<Sweep> RunSweep(const Template& job, const Space& space, const SweepOptions& options);
SweepRow EvaluateRow(Evaluator* evaluator, const Space& space, std::uint64_t point, bool replay);

// Shards of one sweep joined, whatever their order: all of it, each row once, or an error that says
// what is missing or doubled.
Result<Sweep> Merge(std::vector<Sweep> shards);

// "nodes=1x,2x,4x": so many times the job's nodes, data parallelism with them; the global batch
// grows with them (weak scaling), or stays (strong).
Result<Axis> ScaleAxis(const Template& job, std::string_view text, bool weak);

std::string SweepToJson(const Sweep& sweep);
Result<Sweep> SweepFromJson(std::string_view text, const std::string& name);
std::string SweepToCsv(const Sweep& sweep);
std::string SweepToText(const Sweep& sweep);
// Step time against the first key; a line for each combination of the others.
std::string SweepToSvg(const Sweep& sweep);

}  // namespace orrery::search
