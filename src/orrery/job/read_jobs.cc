// `jobs` of a job file: several jobs on one cluster.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/job/job.h"
#include "orrery/job/reader.h"
#include "orrery/job/tables.h"
#include "orrery/network/network.h"

namespace orrery::job {
namespace {

using formats::Document;
using formats::Node;

constexpr std::size_t kMaxJobs = 1000;
constexpr std::int64_t kLargestPlacement = 64 << 20;

// An entry as it is read: what trains is in `workload`.
struct Entry {
  Tenant tenant;
  std::optional<Workload> workload;
  std::vector<std::string> assumed, ignored, warnings;
};

class EntryReader {
 public:
  EntryReader(const Source& outer, const Job& job) : outer_(outer), job_(job) {}

  Result<Entry> Read(const Node& item) {
    std::vector<std::string_view> others = GraphKeys();
    others.push_back("job");
    for (const char* key : {"run_time", "steps", "arrival", "across_racks", "count", "every"}) {
      const Node* found = item.Find(key);
      if (found == nullptr) continue;
      return InvalidInput("{}: {} is a key of a queue of jobs: run 'orrery queue' (docs/queue.md)",
                          outer_.Where(*found), key);
    }
    ORRERY_ASSIGN_OR_RETURN(const Section section,
                            Section::Read(*outer_.document, item, JobEntryOptions(), others));
    const Node* inline_job = item.Find("job");
    const std::string where = outer_.Where(item);
    if (!section.Has("name")) return InvalidInput("{}: jobs: an entry needs a name", where);
    Entry entry;
    entry.tenant.name = section.Text("name");
    if (!names_.insert(entry.tenant.name).second) {
      return InvalidInput("{}: another job has this name; give each its own",
                          section.Where("name"));
    }
    const int sources =
        (section.Has("file") ? 1 : 0) + (inline_job != nullptr ? 1 : 0) + (HasGraph(item) ? 1 : 0);
    if (sources != 1) {
      return InvalidInput("{}: jobs: an entry needs one of file, job, trace and pattern", where);
    }
    ORRERY_RETURN_IF_ERROR(ReadTurn(section, &entry.tenant.turn));
    entry.tenant.placement.whole_nodes = section.Text("rank") == "node";
    if (HasGraph(item)) {
      ORRERY_RETURN_IF_ERROR(ReadGraphOf(outer_, item, job_.cluster.device, &entry.tenant,
                                         &entry.assumed, &entry.warnings));
    } else if (entry.tenant.placement.whole_nodes) {
      return InvalidInput("{}: training has a rank a GPU; leave it out", section.Where("rank"));
    } else {
      ORRERY_ASSIGN_OR_RETURN(entry.workload, section.Has("file")
                                                  ? ReadFile(section, &entry)
                                                  : ReadOne(outer_, *inline_job, &entry));
      entry.workload->name = entry.tenant.name;
    }
    ORRERY_RETURN_IF_ERROR(ReadPlacement(section, &entry.tenant.placement));
    return entry;
  }

 private:
  Result<std::optional<Workload>> ReadFile(const Section& section, Entry* entry) {
    const std::string path = outer_.Path(section.Text("file"));
    Result<Document> document = formats::ReadDocument(path);
    if (!document.ok()) return std::move(document).TakeStatus().In(section.Where("file"));
    return ReadOne(Source{&*document, FolderOf(path)}, document->root, entry);
  }

  Result<std::optional<Workload>> ReadOne(const Source& source, const Node& root, Entry* entry) {
    ORRERY_RETURN_IF_ERROR(CheckTopKeys(source, root));
    std::vector<std::string> ignored;
    for (const std::string_view key : {"cluster", "network", "kernels", "nccl", "perturb",
                                       "simulation", "memory", "cost", "goodput"}) {
      if (root.Find(key) != nullptr) ignored.emplace_back(key);
    }
    const Node* parallel = root.Find("parallel");
    if (root.Find("nodes") != nullptr && parallel != nullptr && parallel->Find("dp") != nullptr) {
      ignored.emplace_back("nodes");
    }
    for (const char* key : {"jobs", "interference"}) {
      const Node* inner = root.Find(key);
      if (inner == nullptr) continue;
      return InvalidInput("{}: a job inside `jobs` cannot hold {} again", source.Where(*inner),
                          key);
    }
    ORRERY_RETURN_IF_ERROR(ReadAssume(source, root.Find("assume"), &entry->assumed));
    if (!ignored.empty()) {
      entry->assumed.push_back(fmt::format("not used of its own file, the outer file's hold: {}",
                                           fmt::join(ignored, ", ")));
      entry->ignored.push_back(entry->assumed.back());
    }
    ORRERY_ASSIGN_OR_RETURN(const std::optional<std::size_t> gpus, OwnGpus(source, root));
    ORRERY_ASSIGN_OR_RETURN(Workload workload, ReadWorkload(source, root, job_.cluster.device, gpus,
                                                            job_.known(), &entry->assumed));
    const auto ranks = static_cast<std::size_t>(workload.plan.ranks());
    if (gpus && ranks > *gpus) {
      return InvalidInput(
          "{}: nodes: its {} GPUs are fewer than the plan's {} ranks; raise nodes, or leave it out",
          source.Where(*root.Find("nodes")), *gpus, ranks);
    }
    return std::optional<Workload>(std::move(workload));
  }

  // The GPUs of a job's own `nodes`, as a run of its file alone has them: its own cluster's hosts,
  // or the outer one's. They decide a dp that is not given; where it runs is the outer file's.
  Result<std::optional<std::size_t>> OwnGpus(const Source& source, const Node& root) const {
    const Node* nodes = root.Find("nodes");
    if (nodes == nullptr) return std::optional<std::size_t>();
    Result<OptionValue> number =
        ParseOption(*FindOption(TopOptions().options, "nodes"), nodes->text);
    if (!number.ok()) return std::move(number).TakeStatus().In(source.Where(*nodes) + ": nodes");
    int each = job_.cluster.gpus_per_node;
    if (const Node* cluster = root.Find("cluster")) {
      std::vector<std::string> ignored;
      ORRERY_ASSIGN_OR_RETURN(const cluster::Spec own,
                              cluster::Read(source, cluster, job_.known().clusters, &ignored));
      each = own.gpus_per_node;
    }
    return std::optional(static_cast<std::size_t>(std::get<std::int64_t>(*number)) *
                         static_cast<std::size_t>(each));
  }

  static Status ReadTurn(const Section& section, Turn* turn) {
    turn->start = section.Integer("start");
    if (section.Has("iterations")) {
      turn->iterations = static_cast<int>(section.Integer("iterations"));
    }
    turn->background = section.Bool("background");
    turn->priority = static_cast<int>(section.Integer("priority"));
    if (turn->background && turn->iterations) {
      return InvalidInput("{}: a job in the background repeats until the others end; leave it out",
                          section.Where("iterations"));
    }
    return {};
  }

  Status ReadPlacement(const Section& section, PlacementRequest* placement) const {
    const std::string kind = section.Text("placement");
    if (kind == "random") placement->policy = PlacementPolicy::kRandom;
    if (kind == "striped") placement->policy = PlacementPolicy::kStriped;
    const char* list = nullptr;
    for (const char* key : {"devices", "hosts", "placement_file"}) {
      if (!section.Has(key)) continue;
      if (list != nullptr) {
        return InvalidInput("{}: {} lists the GPUs already; keep one of the two",
                            section.Where(key), list);
      }
      list = key;
    }
    if ((kind == "explicit") != (list != nullptr)) {
      return InvalidInput(
          "{}: devices, hosts and placement_file go with placement: explicit, and only with it",
          section.Where(list != nullptr ? list : "placement"));
    }
    if (list == nullptr) return {};
    placement->policy = PlacementPolicy::kExplicit;
    if (list == std::string_view("devices")) {
      for (const std::int64_t d : Numbers(section, "devices")) {
        placement->devices.emplace_back(static_cast<std::size_t>(d));
      }
      return {};
    }
    if (list == std::string_view("placement_file")) return ReadPlacementFile(section, placement);
    const auto each = static_cast<std::size_t>(job_.cluster.gpus_per_node);
    for (const std::int64_t host : Numbers(section, "hosts")) {
      for (std::size_t i = 0; i < (placement->whole_nodes ? 1 : each); ++i) {
        placement->devices.emplace_back(static_cast<std::size_t>(host) * each + i);
      }
    }
    return {};
  }
  static std::vector<std::int64_t> Numbers(const Section& section, std::string_view key) {
    const OptionValue value = section.Value(key);
    return std::get<std::vector<std::int64_t>>(value);
  }

  Status ReadPlacementFile(const Section& section, PlacementRequest* placement) const {
    const std::string path = outer_.Path(section.Text("placement_file"));
    Result<std::string> read = orrery::ReadFile(path, kLargestPlacement);
    if (!read.ok()) return std::move(read).TakeStatus().In(section.Where("placement_file"));
    std::string_view text = *read;
    for (int line = 1; !text.empty(); ++line) {
      std::string_view row = TakeLine(&text);
      row = Trimmed(row.substr(0, row.find('#')));
      if (row.empty()) continue;
      const Result<std::int64_t> number = ParseInteger(row);
      if (!number.ok() || *number < 0 || *number >= (1 << 23)) {
        return InvalidInput("{}:{}: '{}' is no GPU's number", Printable(path), line,
                            Printable(row, 40));
      }
      placement->devices.emplace_back(static_cast<std::size_t>(*number));
    }
    return {};
  }

  const Source& outer_;
  const Job& job_;
  std::set<std::string> names_;
};

// What only runs with each other: any source but training, a begin or an end of its own.
bool IsPlain(const Entry& entry) { return entry.workload.has_value() && entry.tenant.turn.plain(); }

}  // namespace

Status ReadJobs(const Source& source, const Node& root, const Node& list,
                const ReadOptions& options, Job* job) {
  if (list.kind != Node::Kind::kList || list.items.empty() || list.items.size() > kMaxJobs) {
    return InvalidInput("{}: jobs takes a list of 1 to {} entries", source.Where(list), kMaxJobs);
  }
  for (const std::string_view key :
       {"model", "framework", "parallel", "training", "framework_options", "schedule"}) {
    if (const Node* stray = root.Find(key)) {
      return InvalidInput("{}: {} stands beside jobs; it belongs into the jobs' own files",
                          source.Where(*stray), key);
    }
  }
  EntryReader reader(source, *job);
  std::vector<Entry> entries;
  for (const Node& item : list.items) {
    ORRERY_ASSIGN_OR_RETURN(Entry entry, reader.Read(item));
    if (!IsPlain(entry) && !options.tenants) {
      return InvalidInput(
          "{}: job '{}' {}: such files run with 'orrery simulate'; here all jobs train, from start "
          "to end",
          source.Where(item), Printable(entry.tenant.name),
          entry.workload ? "has its own begin, end or class" : "does not train");
    }
    entries.push_back(std::move(entry));
  }
  // By name: the order in the file changes nothing.
  std::ranges::sort(entries, {}, [](const Entry& entry) { return entry.tenant.name; });
  const bool plain = std::ranges::all_of(entries, IsPlain);
  for (Entry& entry : entries) {
    for (const std::string& line : entry.assumed) {
      job->assumed.push_back(fmt::format("job {}: {}", entry.tenant.name, line));
    }
    for (const std::vector<std::string>* lines : {&entry.ignored, &entry.warnings}) {
      for (const std::string& line : *lines) {
        job->ignored.push_back(fmt::format("job {}: {}", entry.tenant.name, line));
      }
    }
    if (entry.workload) {
      entry.workload->placement = entry.tenant.placement;
      entry.tenant.workload = job->workloads.size();
      entry.tenant.ranks = static_cast<std::size_t>(entry.workload->plan.ranks());
      job->workloads.push_back(*std::move(entry.workload));
    }
    if (!plain) job->tenants.push_back(std::move(entry.tenant));
  }
  return {};
}

Status CheckJobs(const Source& source, const Node& root, Job* job) {
  job->interference.alone = !job->tenants.empty();
  if (const Node* node = root.Find(InterferenceOptions().path)) {
    if (root.Find("jobs") == nullptr) {
      return InvalidInput("{}: interference is between several jobs; this file has one",
                          source.Where(*node));
    }
    ORRERY_ASSIGN_OR_RETURN(const Section section,
                            Section::Read(*source.document, *node, InterferenceOptions()));
    job->interference.alone = section.Bool("alone");
    job->interference.most_pairs = static_cast<int>(section.Integer("most_pairs"));
  }
  if (job->tenants.empty()) return {};
  for (const char* key : {"cost", "goodput"}) {
    if (const Node* node = root.Find(key)) {
      return InvalidInput("{}: {} is of training alone, and not all of these jobs train",
                          source.Where(*node), key);
    }
  }
  if (job->engine.jitter > 0) {
    return InvalidInput("perturb.jitter: jobs of several kinds run without it; leave it out");
  }
  if (std::ranges::all_of(job->tenants, [](const Tenant& t) { return t.turn.background; })) {
    return InvalidInput("{}: all jobs are in the background: none would ever end",
                        source.Where(*root.Find("jobs")));
  }
  for (const Tenant& tenant : job->tenants) {
    if (tenant.turn.priority == 0 || job->network == "packet") continue;
    return InvalidInput(
        "job {}: priority: the network '{}' has no classes of messages; take network packet",
        Printable(tenant.name), job->network);
  }
  return {};
}

}  // namespace orrery::job
