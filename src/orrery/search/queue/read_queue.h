// A queue file (docs/queue.md): a cluster, and jobs with an arrival and a size.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/job/job.h"
#include "orrery/job/simulate.h"
#include "orrery/search/queue/queue.h"

namespace orrery::search {

// How long a job takes: a time that is said, or steps of a training job that is simulated on the
// hosts it got, alone. Hosts that are spread over racks in the same way take the same time: the
// first ones are simulated.
class JobTimes {
 public:
  struct Source {
    double run_time_s = 0;
    double across_racks = 1;  // times run_time_s on more racks than the fewest
    double steps = 0;
    std::optional<job::Job> training;
  };
  Result<double> On(std::size_t source, std::span<const std::size_t> hosts);
  std::size_t simulated() const { return steps_.size(); }

  std::vector<Source> sources;
  std::vector<std::size_t> rack;        // of each host
  std::vector<std::size_t> rack_sizes;  // RackSizes
  std::size_t gpus_per_host = 1;

 private:
  job::Caches caches_;
  std::map<std::pair<std::size_t, std::vector<std::size_t>>, double> steps_;  // by hosts a rack
};

struct QueueFile {
  std::string cluster;              // "h100-ib-400g, 16 nodes × 8 GPUs"
  std::vector<QueuedJob> jobs;      // by arrival
  std::vector<std::size_t> source;  // of each job, in `times`
  JobTimes times;
  std::vector<std::string> assumed;  // of the training jobs' sizes
};

// `network` is the file's own unless it is empty.
Result<QueueFile> ReadQueue(const std::string& path, const std::string& network);
// The same of a file's text; `name` stands for it in errors, its relative paths start at `folder`.
Result<QueueFile> ReadQueueText(std::string_view text, const std::string& name,
                                const std::string& folder, const std::string& network);

struct QueueRow {
  std::string order, placement;
  QueueRun run;
};
std::string QueueText(const QueueFile& file, std::span<const QueueRow> rows);
std::string QueueJson(const QueueFile& file, std::span<const QueueRow> rows);

}  // namespace orrery::search
