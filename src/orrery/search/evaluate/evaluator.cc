#include "orrery/search/evaluate/evaluator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "orrery/base/file.h"
#include "orrery/base/threads.h"
#include "orrery/formats/section.h"
#include "orrery/graph/forms/binary_form.h"

namespace orrery::search {
namespace {

Result<Template> MakeTemplate(std::string_view text, const std::string& name, std::string folder,
                              job::ReadOptions read, std::string measured_database) {
  Template made;
  ORRERY_ASSIGN_OR_RETURN(made.document, job::ParseJob(text, name));
  for (const std::string& assignment : read.set) {
    ORRERY_RETURN_IF_ERROR(formats::ApplySet(assignment, &made.document));
  }
  if (const formats::Node* jobs = made.document.root.Find("jobs")) {
    return InvalidInput(
        "{}: jobs: variants of several jobs at once are not built; give the file of one job",
        made.document.Where(*jobs));
  }
  read.set.clear();
  made.folder = std::move(folder);
  made.read = std::move(read);
  made.measured_database = std::move(measured_database);
  return made;
}

}  // namespace

Result<Template> ReadTemplate(const std::string& path, job::ReadOptions read,
                              std::string measured_database) {
  const formats::Limits limits;
  ORRERY_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(path, static_cast<std::int64_t>(limits.bytes)));
  return MakeTemplate(text, path, FolderOf(path), std::move(read), std::move(measured_database));
}

Result<Template> ReadTemplateText(std::string_view text, const std::string& name,
                                  job::ReadOptions read, std::string measured_database) {
  return MakeTemplate(text, name, "", std::move(read), std::move(measured_database));
}

Result<job::Job> Evaluator::Read(std::span<const std::string> assignments,
                                 bool configuration) const {
  job::ReadOptions read = template_->read;
  read.set.assign(assignments.begin(), assignments.end());
  read.save_configuration = configuration;
  Result<job::Job> job = job::ReadJobTree(template_->document, template_->folder, read);
  constexpr std::string_view kSet = "--set ";  // nobody wrote that: it is one of many values
  if (!job.ok() && job.status().message().starts_with(kSet)) {
    return Status(job.status().code(), job.status().message().substr(kSet.size()));
  }
  return job;
}

Result<job::Simulation> Evaluator::Prepare(const job::Job& job) {
  job::SimulateOptions options;
  options.measured_database = template_->measured_database;
  options.check = false;  // generated graphs are verified by the tests of the generators
  return job::Simulation::Prepare(job, options, &caches_);
}

Result<DeviceMemory> Evaluator::Memory(const job::Job& job, const job::Simulation& simulation) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // of graphs that are kept
  std::string graph = graph::ToBinary(*simulation.inputs().graph);
  const cluster::DeviceSpec& device = job.cluster.device;
  std::size_t bytes = graph.size();
  for (const Replayed& one : replayed_) {
    if (one.device_bytes == device.memory_bytes && one.arch == device.arch &&
        one.options.allocator == job.memory.allocator &&
        one.options.libraries == job.memory.libraries && one.graph == graph) {
      return one.memory;
    }
    bytes += one.graph.size();
  }
  ORRERY_ASSIGN_OR_RETURN(const std::vector<memory::Footprint> footprints,
                          simulation.ReplayMemory());
  DeviceMemory memory;
  for (const memory::Footprint& footprint : footprints) {
    memory.bytes = std::max(memory.bytes, footprint.total());
    if (footprint.oom && memory.fits) memory.oom_op = footprint.oom_op;
    memory.fits = memory.fits && !footprint.oom;
  }
  if (bytes > kMostBytes) replayed_.clear();
  replayed_.push_back({std::move(graph), device.memory_bytes, device.arch, job.memory, memory});
  return memory;
}

void ForEach(int threads, std::size_t count,
             const std::function<void(std::size_t thread, std::size_t i)>& work,
             const std::atomic<bool>* stop) {
  std::atomic<std::size_t> next{0};
  const auto loop = [&](std::size_t thread) {
    while (stop == nullptr || !stop->load(std::memory_order_relaxed)) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      work(thread, i);
    }
  };
  const std::size_t all = std::min(count, static_cast<std::size_t>(threads));
  const auto others = StartThreads(all == 0 ? 0 : all - 1, loop);
  loop(0);
}

int ThreadCount(int asked) {
  if (asked > 0) return asked;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace orrery::search
