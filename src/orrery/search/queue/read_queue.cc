#include "orrery/search/queue/read_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/section.h"

namespace orrery::search {
namespace {

using formats::Document;
using formats::Node;
using formats::Section;
using formats::Source;

constexpr Option kEntry[] = {
    {.name = "name", .type = OptionType::kText, .doc = "What the answer calls it; required."},
    {.name = "arrival",
     .type = OptionType::kTime,
     .unit = "s",
     .fallback = "0s",
     .max = 3e6,
     .doc = "When it joins the queue."},
    {.name = "hosts",
     .type = OptionType::kInteger,
     .min = 1,
     .max = 1048576,
     .doc = "Whole hosts that it needs; a training job says it by its ranks."},
    {.name = "run_time",
     .type = OptionType::kTime,
     .unit = "s",
     .min = 1e-6,
     .max = 3e6,
     .doc = "How long it runs on hosts of as few racks as hold it."},
    {.name = "across_racks",
     .type = OptionType::kNumber,
     .fallback = "1",
     .min = 1,
     .max = 100,
     .doc = "run_time times this where its hosts are of more racks."},
    {.name = "file",
     .type = OptionType::kText,
     .doc = "Job file of a training job, in place of run_time; or the job itself under 'job'."},
    {.name = "steps",
     .type = OptionType::kInteger,
     .min = 1,
     .max = 1e9,
     .doc = "Training steps that it runs."},
    {.name = "count",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 10000,
     .doc = "So many equal jobs, one after the other."},
    {.name = "every",
     .type = OptionType::kTime,
     .unit = "s",
     .fallback = "0s",
     .max = 3e6,
     .doc = "Time between the arrivals of count jobs."},
};
constexpr OptionTable kEntryTable{
    .path = "jobs", .doc = "Jobs of a queue (docs/queue.md).", .options = kEntry};

class Reader {
 public:
  Reader(Document document, std::string folder, std::string network)
      : document_(std::move(document)), folder_(std::move(folder)), network_(std::move(network)) {}

  Result<QueueFile> Run() {
    const Source source{&document_, folder_};
    ORRERY_RETURN_IF_ERROR(CheckTop(source));
    ORRERY_RETURN_IF_ERROR(BuildRacks(source));
    const Node* list = document_.root.Find("jobs");
    if (list == nullptr || list->kind != Node::Kind::kList || list->items.empty()) {
      return InvalidInput("{}: a queue needs jobs, a list of entries (docs/queue.md)",
                          source.name());
    }
    for (const Node& item : list->items) ORRERY_RETURN_IF_ERROR(Add(source, item));
    // By arrival; those of one instant as they stand in the file.
    std::vector<std::size_t> order(jobs_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](std::size_t j) { return jobs_[j].arrival_s; });
    for (const std::size_t j : order) {
      file_.jobs.push_back(jobs_[j]);
      file_.source.push_back(sources_[j]);
    }
    return std::move(file_);
  }

 private:
  static Status CheckTop(const Source& source) {
    constexpr std::array<std::string_view, 4> kKeys = {"cluster", "nodes", "network", "jobs"};
    for (const formats::Field& field : source.document->root.fields) {
      if (std::ranges::find(kKeys, field.key) != kKeys.end()) continue;
      return InvalidInput("{}: {}", source.document->Where(field),
                          UnknownName("key of a queue", Printable(field.key), kKeys));
    }
    return {};
  }

  Status BuildRacks(const Source& source) {
    ORRERY_ASSIGN_OR_RETURN(cluster::Spec spec, job::ReadClusterTree(document_, folder_));
    const Node* nodes = document_.root.Find("nodes");
    if (nodes == nullptr) {
      return InvalidInput("{}: a queue needs nodes, the cluster's hosts", source.name());
    }
    static constexpr Option kNodes{
        .name = "nodes", .type = OptionType::kInteger, .min = 1, .max = 1048576};
    Result<OptionValue> number = ParseOption(kNodes, nodes->text);
    if (!number.ok()) return std::move(number).TakeStatus().In(source.Where(*nodes) + ": nodes");
    spec.nodes = static_cast<int>(std::get<std::int64_t>(*number));
    Result<cluster::Cluster> cluster = cluster::Cluster::Build(spec);
    if (!cluster.ok()) return std::move(cluster).TakeStatus().In(source.name());
    JobTimes& times = file_.times;
    times.gpus_per_host = static_cast<std::size_t>(spec.gpus_per_node);
    times.rack = job::RacksOf(*cluster);
    times.rack_sizes = RackSizes(times.rack);
    file_.cluster =
        fmt::format("{}, {} host{} of {} GPU{}", spec.name, spec.nodes, spec.nodes == 1 ? "" : "s",
                    spec.gpus_per_node, spec.gpus_per_node == 1 ? "" : "s");
    return {};
  }

  Status Add(const Source& source, const Node& item) {
    constexpr std::array<std::string_view, 1> kOthers = {"job"};
    for (const char* key : {"placement", "pattern", "trace", "start", "iterations", "background"}) {
      if (item.Find(key) == nullptr) continue;
      return InvalidInput(
          "{}: {} is a key of jobs that run beside each other, for 'orrery simulate' "
          "(docs/tenants.md); jobs of a queue have arrival, hosts and run_time, or file and steps",
          source.Where(*item.Find(key)), key);
    }
    ORRERY_ASSIGN_OR_RETURN(const Section entry,
                            Section::Read(document_, item, kEntryTable, kOthers));
    const std::string where = source.Where(item);
    if (!entry.Has("name")) return InvalidInput("{}: jobs: an entry needs a name", where);
    const std::string name = entry.Text("name");
    if (!names_.insert(name).second) {
      return InvalidInput("{}: another job has this name; give each its own", entry.Where("name"));
    }
    const bool trains = entry.Has("file") || item.Find("job") != nullptr;
    if (trains == entry.Has("run_time") || trains != entry.Has("steps") ||
        trains == entry.Has("hosts")) {
      return InvalidInput(
          "{}: job '{}' needs hosts and run_time, or a training job (file or job) and its steps",
          where, Printable(name));
    }
    if (trains && entry.Has("across_racks")) {
      return InvalidInput("{}: what a training job takes across racks is simulated; leave it out",
                          entry.Where("across_racks"));
    }
    JobTimes::Source from;
    std::size_t hosts = 0;
    if (trains) {
      ORRERY_ASSIGN_OR_RETURN(from.training, ReadTraining(item));
      hosts = (from.training->ranks() + file_.times.gpus_per_host - 1) / file_.times.gpus_per_host;
      for (const std::string& line : from.training->assumed) {
        if (line.find("parallel.dp: ") != line.npos) file_.assumed.push_back(line);
      }
      from.steps = static_cast<double>(entry.Integer("steps"));
    } else {
      hosts = static_cast<std::size_t>(entry.Integer("hosts"));
      from.run_time_s = ToSeconds(entry.Integer("run_time"));
      from.across_racks = entry.Real("across_racks");
    }
    if (hosts > file_.times.rack.size()) {
      return InvalidInput("{}: job '{}' needs {} hosts, and the cluster has {}; raise nodes", where,
                          Printable(name), hosts, file_.times.rack.size());
    }
    const auto count = static_cast<std::size_t>(entry.Integer("count"));
    if (jobs_.size() + count > kMostQueuedJobs) {
      return InvalidInput("{}: a queue takes at most {} jobs", where,
                          HumanCount(static_cast<std::int64_t>(kMostQueuedJobs)));
    }
    for (std::size_t i = 0; i < count; ++i) {
      jobs_.push_back({count > 1 ? fmt::format("{}-{}", name, i + 1) : name,
                       ToSeconds(entry.Integer("arrival")) +
                           static_cast<double>(i) * ToSeconds(entry.Integer("every")),
                       hosts});
      sources_.push_back(file_.times.sources.size());
    }
    file_.times.sources.push_back(std::move(from));
    return {};
  }

  // A job file of the queue's cluster with this entry alone.
  Result<std::optional<job::Job>> ReadTraining(const Node& item) const {
    Document document = document_;
    Node entry = item;
    std::erase_if(entry.fields, [](const formats::Field& f) {
      return f.key != "name" && f.key != "file" && f.key != "job";
    });
    document.root.Find("jobs")->items = {std::move(entry)};
    job::ReadOptions options;
    if (!network_.empty()) options.network = network_;
    options.save_configuration = false;
    ORRERY_ASSIGN_OR_RETURN(job::Job job, job::ReadJobTree(document, folder_, options));
    return std::optional<job::Job>(std::move(job));
  }

  const Document document_;
  const std::string folder_, network_;
  std::vector<QueuedJob> jobs_;
  std::set<std::string> names_;
  std::vector<std::size_t> sources_;
  QueueFile file_;
};

}  // namespace

Result<double> JobTimes::On(std::size_t source, std::span<const std::size_t> hosts) {
  Source& from = sources[source];
  std::map<std::size_t, std::size_t> count;  // hosts by rack, in the order of the hosts
  for (const std::size_t host : hosts) ++count[rack[host]];
  if (!from.training) {
    const bool fewest = count.size() == FewestRacks(rack_sizes, hosts.size());
    return from.run_time_s * (fewest ? 1 : from.across_racks);
  }
  std::vector<std::size_t> pattern;
  for (const auto& [r, n] : count) pattern.push_back(n);
  const auto [it, fresh] = steps_.try_emplace({source, std::move(pattern)}, 0);
  if (fresh) {
    job::PlacementRequest& placement = from.training->workloads.front().placement;
    placement.policy = job::PlacementPolicy::kExplicit;
    placement.devices.clear();
    for (std::size_t r = 0; r < from.training->ranks(); ++r) {
      placement.devices.emplace_back(hosts[r / gpus_per_host] * gpus_per_host + r % gpus_per_host);
    }
    ORRERY_ASSIGN_OR_RETURN(const job::Simulation simulation,
                            job::Simulation::Prepare(*from.training, {}, &caches_));
    ORRERY_ASSIGN_OR_RETURN(const std::vector<SimTime> steps, simulation.StepTimes());
    it->second = ToSeconds(steps.front());
  }
  return from.steps * it->second;
}

Result<QueueFile> ReadQueue(const std::string& path, const std::string& network) {
  ORRERY_ASSIGN_OR_RETURN(Document document, formats::ReadDocument(path));
  return Reader(std::move(document), FolderOf(path), network).Run();
}

Result<QueueFile> ReadQueueText(std::string_view text, const std::string& name,
                                const std::string& folder, const std::string& network) {
  ORRERY_ASSIGN_OR_RETURN(Document document, formats::ParseYaml(text, name));
  return Reader(std::move(document), folder, network).Run();
}

}  // namespace orrery::search
