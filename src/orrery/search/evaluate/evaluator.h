// One way from a variant of a job file to its step time, for sweep, plan and Python.
//
// A variant is read as `simulate --set` reads it, so that framework defaults and rules are those of
// the job file that it would be. Kept between variants, one Evaluator a thread: clusters, planned
// collectives, prices and built blocks (job::Caches). Nothing is shared between threads, and a
// variant's answer does not depend on what was evaluated before it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/tree.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/memory/memory.h"

namespace orrery::search {

// The job file that variants are made of, `--set` applied.
struct Template {
  formats::Document document;
  std::string folder;  // from which relative files are looked up
  job::ReadOptions read;
  std::string measured_database;

  const std::string& name() const { return document.sources.front(); }
};
// One job of one file; `jobs` is refused. The file's values are not looked at.
Result<Template> ReadTemplate(const std::string& path, job::ReadOptions read,
                              std::string measured_database);
Result<Template> ReadTemplateText(std::string_view text, const std::string& name,
                                  job::ReadOptions read, std::string measured_database);

// Device memory of a variant, the allocator replayed: of the fullest program.
struct DeviceMemory {
  std::int64_t bytes = 0;  // as nvidia-smi would show
  bool fits = true;
  std::string oom_op;  // where the fullest that does not fit first fails
};

class Evaluator {
 public:
  explicit Evaluator(const Template& job) : template_(&job) {}

  // The variant that `assignments` ("key.path=value") make. `configuration`: config_json is filled.
  Result<job::Job> Read(std::span<const std::string> assignments, bool configuration) const;
  Result<job::Simulation> Prepare(const job::Job& job);
  // What memory needs depends on the graph, the device's memory and the allocator, not on the
  // network, so that variants of one graph share a replay (some 50 ms); telling graphs apart takes
  // their binary form (about 1 ms).
  Result<DeviceMemory> Memory(const job::Job& job, const job::Simulation& simulation);
  job::Caches* caches() { return &caches_; }

 private:
  struct Replayed {
    std::string graph;  // its binary form
    std::int64_t device_bytes = 0;
    cluster::Arch arch = cluster::Arch::kHopper;
    memory::Options options;
    DeviceMemory memory;
  };
  const Template* template_;
  job::Caches caches_;
  std::vector<Replayed> replayed_;  // the newest last
};

// Calls work(thread, i) for i from 0 to count - 1, on `threads` threads, each taking the next i
// that nobody has; stops taking when *stop becomes true. Returns when all are done.
void ForEach(int threads, std::size_t count,
             const std::function<void(std::size_t thread, std::size_t i)>& work,
             const std::atomic<bool>* stop = nullptr);
// As many as there are cores, or what the user asked for.
int ThreadCount(int asked);

}  // namespace orrery::search
