// From a job to its result: graph, prices, run, memory, report data.
//
// Caches keep what does not depend on the plan — cluster, cost model, collective plans, priced
// blocks, built blocks — so that many runs on one cluster (search, validation) pay for them once. A
// result with warm caches equals one without to the last bit. One Caches per thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/engine/engine.h"
#include "orrery/graph/graph.h"
#include "orrery/job/job.h"
#include "orrery/job/shares.h"
#include "orrery/job/work_floor.h"
#include "orrery/memory/memory.h"
#include "orrery/results/result.h"
#include "orrery/results/step_path.h"

namespace orrery::job {

struct SimulateOptions {
  std::string measured_database;  // SQLite file of measured kernels; empty: none
  std::string timeline;           // file to write; empty: none
  std::string heat_map;           // SVG of the cluster's links by use; empty: none
  std::string timeline_ranks;     // "0,8,16-19"; empty: one rank per pipeline stage
  bool check = true;              // verify the graph before it runs
};

// What a search asks of a job: no replay of the allocator, no report.
struct Evaluation {
  results::JobResult job;        // without memory rows
  std::int64_t least_bytes = 0;  // of device memory that the fullest rank needs at least
  std::uint64_t fingerprint = 0;
  double compute_spread = 0;  // of the run's kernel times
  std::int64_t tokens_per_step = 0;
  std::vector<std::string> warnings;
  // Live memory and what lies outside the allocator exceed the GPU: no replay can make it fit.
  bool too_large() const { return least_bytes > job.device_bytes; }
};

class Caches {
 public:
  Caches();
  Caches(Caches&&) noexcept;
  Caches& operator=(Caches&&) noexcept;
  ~Caches();

 private:
  friend class Simulation;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A job made ready to run. Holds its graph and placement; prices stay in the caches.
class Simulation {
 public:
  // `caches` and `job` must outlive it.
  static Result<Simulation> Prepare(const Job& job, const SimulateOptions& options, Caches* caches);
  Simulation(Simulation&&) noexcept;
  ~Simulation();

  const graph::Graph& graph() const;
  // What the engine runs. REQUIRES: this, the job and the caches outlive it.
  engine::Inputs inputs() const;
  // Code::kInfeasible for a deadlock or a buffer above 4 TiB; a plan that does not fit the GPU is a
  // result that says so.
  Result<results::RunResult> Run();
  // The same step time as Run's, of a run of one job without files to write. Peak memory is bounded
  // from below (memory::QuickPeak). `bounded`: a plan that cannot fit is not run, its step time
  // stays 0.
  Result<Evaluation> Evaluate(bool bounded = false);
  // Of each job, without anything else that Run says.
  Result<std::vector<SimTime>> StepTimes() const;
  // The chain of operations that the last step of a run of one job took as long as.
  Result<results::StepPath> CriticalPath() const;
  // What the step takes at least.
  WorkFloor Floor() const;
  // What the step's time is made of, op by op, for each program.
  std::vector<Shares> OpShares() const;
  // The allocator replayed: a row for each program.
  Result<std::vector<memory::Footprint>> ReplayMemory() const;
  Result<memory::Footprint> ReplayMemory(ProgramId program) const;

 private:
  struct State;
  Result<engine::Record> RunEngine(engine::Sink* sink, int link_steps) const;
  static Status WriteHeatMap(const State& state, const engine::Record& record);
  explicit Simulation(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Prepare and Run.
Result<results::RunResult> Simulate(const Job& job, const SimulateOptions& options = {},
                                    Caches* caches = nullptr);

// "Orrery 0.1.0" without the name.
std::string_view Version();

// Most memory that this process has held so far.
std::int64_t PeakResidentBytes();

}  // namespace orrery::job
