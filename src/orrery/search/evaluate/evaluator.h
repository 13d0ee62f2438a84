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
#include "orrery/formats/tree.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"

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

class Evaluator {
 public:
  explicit Evaluator(const Template& job) : template_(&job) {}

  // The variant that `assignments` ("key.path=value") make. `configuration`: config_json is filled.
  Result<job::Job> Read(std::span<const std::string> assignments, bool configuration) const;
  Result<job::Simulation> Prepare(const job::Job& job);
  job::Caches* caches() { return &caches_; }

 private:
  const Template* template_;
  job::Caches caches_;
};

// Calls work(thread, i) for i from 0 to count - 1, on `threads` threads, each taking the next i
// that nobody has; stops taking when *stop becomes true. Returns when all are done.
void ForEach(int threads, std::size_t count,
             const std::function<void(std::size_t thread, std::size_t i)>& work,
             const std::atomic<bool>* stop = nullptr);
// As many as there are cores, or what the user asked for.
int ThreadCount(int asked);

}  // namespace orrery::search
