#include "orrery/job/importers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/chakra.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/gzip.h"
#include "orrery/formats/rank_trace.h"
#include "orrery/graph/forms/binary_form.h"
#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/job/import_nccl.h"
#include "orrery/job/import_pytorch.h"
#include "orrery/job/import_storage.h"
#include "orrery/results/timeline.h"
#include "orrery/workload/importers/astra_text/layers.h"
#include "orrery/workload/importers/astra_text/text_workload.h"
#include "orrery/workload/importers/chakra/chakra.h"
#include "orrery/workload/importers/chakra/files.h"
#include "orrery/workload/importers/goal/goal.h"
#include "orrery/workload/importers/mpi/mpi.h"
#include "orrery/workload/importers/mpi/trace.h"
#include "orrery/workload/importers/simai/simai.h"
#include "orrery/workload/importers/storage/settings.h"
#include "orrery/workload/importers/trace/trace.h"
#include "orrery/workload/schedules/patterns.h"

namespace orrery::job {

using formats::Section;

namespace {

constexpr std::size_t kStart = 4096;
// Of a mapped GOAL file, ranks that are read before their bytes leave memory.
constexpr std::uint32_t kRanksMapped = 64;

constexpr Option kGoal[] = {
    {.name = "rank",
     .type = OptionType::kText,
     .fallback = "gpu",
     .doc = "What a rank of a GOAL schedule is on a cluster: gpu, or node (a host's first GPU)."},
};
constexpr OptionTable kGoalTable{
    .path = "goal", .doc = "How a GOAL schedule is laid on a cluster.", .options = kGoal};

constexpr Option kChakra[] = {
    {.name = "comm_groups",
     .type = OptionType::kText,
     .doc = "ASTRA-sim's file of communicator groups, JSON: {\"1\": [0, 1], …}. Left out: "
            "PREFIX.groups.json beside the trace, where there is one."},
    {.name = "data_parallel",
     .type = OptionType::kText,
     .doc =
         "Communicators that replicas of a model make, by their ids: 1,5-8. trace.replicas joins "
         "them, and reports call them dp."},
};
constexpr OptionTable kChakraTable{
    .path = "chakra", .doc = "What a Chakra trace leaves to other files.", .options = kChakra};

constexpr Option kStorages[] = {
    {.name = "allocator",
     .type = OptionType::kText,
     .doc = "Settings of PyTorch's allocator, as PYTORCH_CUDA_ALLOC_CONF has them."},
};
constexpr OptionTable kStoragesTable{
    .path = "memory", .doc = "GPU memory of a trace of orrery-trace.", .options = kStorages};

Status OneFile(const TraceFiles& files, std::string_view what) {
  if (files.paths.size() == 1) return {};
  return InvalidInput("'{}': a {} is one file", Printable(files.paths[1]), what);
}

bool IsGoal(const TraceFiles& files) {
  return formats::SniffGoal(files.start) != formats::GoalForm::kNone ||
         (files.paths.front().ends_with(".goal") && !files.start.empty());
}
// Takes in a schedule, and of a text where its operations stand.
void AddGoal(formats::GoalSchedule schedule, workload::GoalImporter* importer,
             ImportedTrace* trace) {
  importer->Add(schedule, static_cast<std::uint32_t>(schedule.ranks()));
  if (schedule.lines.empty()) return;
  trace->place = [first = std::move(schedule.first_op), lines = std::move(schedule.lines)](
                     std::uint32_t rank, std::uint32_t op) {
    return fmt::format("line {}", lines[first[rank] + op]);
  };
}
Result<ImportedTrace> ReadGoal(const TraceFiles& files, const ImportOptions&) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "GOAL schedule"));
  const std::string& path = files.paths.front();
  ImportedTrace trace;
  workload::GoalImporter importer;
  const bool binary = formats::SniffGoal(files.start) == formats::GoalForm::kBinary;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    ORRERY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    if (binary) {
      ORRERY_RETURN_IF_ERROR(formats::ParseGoalParts(
          file.bytes(), path, [&](const formats::GoalSchedule& part, std::uint32_t ranks) {
            importer.Add(part, ranks);
            if (part.first_rank % kRanksMapped == kRanksMapped - 1) file.Forget();
            return Status();
          }));
    } else {  // what is no schedule is found out before it is all in memory
      ORRERY_ASSIGN_OR_RETURN(formats::GoalSchedule schedule,
                              formats::ParseGoal(file.bytes(), path));
      AddGoal(std::move(schedule), &importer, &trace);
    }
  } else {
    ORRERY_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kLargestTrace));
    ORRERY_ASSIGN_OR_RETURN(formats::GoalSchedule schedule, formats::ParseGoal(bytes, path));
    AddGoal(std::move(schedule), &importer, &trace);
  }
  trace.graph = importer.Take(path);
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(path))));
  return trace;
}

// Of jobs that train.
bool HasNoise(const graph::Graph& graph) {
  return std::ranges::any_of(graph.jobs, [](const graph::JobInfo& j) { return j.noise > 0; });
}

bool IsGraphText(const TraceFiles& files) {  // of any version: the reader says which it takes
  return files.start.starts_with(graph::kTextVersion.substr(0, graph::kTextVersion.find('/') + 1));
}
Result<ImportedTrace> ReadGraphText(const TraceFiles& files, const ImportOptions&) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "graph"));
  const std::string& path = files.paths.front();
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestTrace));
  Result<graph::Graph> graph = graph::FromText(text);
  if (!graph.ok()) return std::move(graph).TakeStatus().In(Printable(path));
  ImportedTrace trace;
  trace.graph = *std::move(graph);
  trace.training = HasNoise(trace.graph);
  return trace;
}

bool IsGraphBinary(const TraceFiles& files) { return files.start.starts_with(graph::kBinaryMagic); }
Result<ImportedTrace> ReadGraphBinary(const TraceFiles& files, const ImportOptions&) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "graph"));
  ORRERY_ASSIGN_OR_RETURN(graph::MappedGraph mapped, graph::MapBinary(files.paths.front()));
  ImportedTrace trace;
  trace.file = std::move(mapped.file);
  trace.graph = std::move(mapped.graph);
  trace.training = HasNoise(trace.graph);
  return trace;
}

// What is wrong with a trace, with its name where a file of it is not named already.
Status Naming(const std::string& trace, Status status) {
  if (status.message().find(Printable(trace)) != std::string::npos) return status;
  return std::move(status).In(fmt::format("'{}'", Printable(trace)));
}

bool HoldsChakra(const std::string& path) {
  std::string start(kStart, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  if (formats::IsGzip(start)) return path.ends_with(".et") || path.ends_with(".et.gz");
  return formats::SniffChakra(start);
}
// A prefix is no file, a folder has no content of its own: the first rank's file says what it is.
bool IsChakra(const TraceFiles& files) {
  if (!files.start.empty()) return HoldsChakra(files.paths.front());
  std::error_code error;
  if (std::filesystem::is_other(files.paths.front(), error)) return false;  // a pipe is read once
  const auto found = workload::ChakraFiles(files.paths);
  return found.ok() && HoldsChakra(found->front());
}
Result<ImportedTrace> ReadChakra(const TraceFiles& files, const ImportOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, workload::ChakraFiles(files.paths));
  workload::ChakraGroups groups;
  std::string listed = workload::ChakraGroupsFile(ranks.front());
  if (options.options->Has("comm_groups")) listed = options.options->Text("comm_groups");
  if (!listed.empty()) {
    ORRERY_ASSIGN_OR_RETURN(groups, workload::ReadCommGroups(listed, ranks.size()));
  }
  std::set<std::int64_t> data_parallel;
  if (options.options->Has("data_parallel")) {
    Result<std::vector<RankId>> ids =
        results::ParseRanks(options.options->Text("data_parallel"), 1'000'000'000);
    if (!ids.ok()) return std::move(ids).TakeStatus().In("chakra.data_parallel");
    for (const RankId id : *ids) data_parallel.insert(id.value);
  }
  const auto read = [&ranks](std::size_t rank) -> Result<formats::ChakraTrace> {
    ORRERY_ASSIGN_OR_RETURN(std::string bytes, ReadFile(ranks[rank], kLargestTrace));
    return formats::ParseChakra(std::move(bytes), ranks[rank], kLargestTrace);
  };
  const std::string& name = files.paths.front();
  Result<workload::ChakraImport> import =
      workload::ImportChakra(ranks.size(), read, groups, name, data_parallel);
  if (!import.ok()) return Naming(name, std::move(import).TakeStatus());
  ImportedTrace trace;
  trace.graph = std::move(import->graph);
  trace.warnings = std::move(import->warnings);
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(name))));
  return trace;
}

bool IsRankTraces(const TraceFiles& files) {
  std::error_code error;
  return std::filesystem::is_regular_file(
      std::filesystem::path(files.paths.front()) / formats::kTraceIndex, error);
}
Result<ImportedTrace> ReadRankTraces(const TraceFiles& files, const ImportOptions&) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "trace of orrery-trace"));
  const std::string& folder = files.paths.front();
  ORRERY_ASSIGN_OR_RETURN(const formats::TraceDirectory directory,
                          formats::ReadTraceDirectory(folder, kLargestTrace));
  Result<workload::ImportedRanks> import = workload::ImportRankTraces(directory, folder);
  if (!import.ok()) return Naming(folder, std::move(import).TakeStatus());
  ImportedTrace trace;
  trace.graph = std::move(import->graph);
  trace.assumed = std::move(import->assumed);
  trace.warnings = std::move(import->warnings);
  trace.storages = StoragesOf(directory);
  trace.timed = std::move(import->measured);
  trace.gpu = std::move(import->gpu);
  trace.training = true;
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph, graph::VerifyLevel::kRead)
                             .In(fmt::format("'{}'", Printable(folder))));
  return trace;
}

constexpr Option kTextKeys[] = {
    {.name = "ranks",
     .type = OptionType::kInteger,
     .min = 1,
     .max = 1 << 20,
     .doc = "How many ranks run an ASTRA-sim text workload; required."},
    {.name = "passes",
     .type = OptionType::kInteger,
     .fallback = "1",
     .min = 1,
     .max = 1000,
     .doc = "Its forward and backward passes."},
};
constexpr OptionTable kTextTable{
    .path = "text", .doc = "What an ASTRA-sim text workload does not say.", .options = kTextKeys};

bool IsTextWorkload(const TraceFiles& files) {
  return workload::SniffLayerText(files.start) == workload::LayerTextKind::kAstra;
}
Result<ImportedTrace> ReadText(const TraceFiles& files, const ImportOptions& options) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "text workload"));
  const std::string& path = files.paths.front();
  if (!options.options->Has("ranks")) {
    return InvalidInput(
        "'{}': a text workload does not say how many ranks run it: --set text.ranks=N",
        Printable(path));
  }
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestTrace));
  ORRERY_ASSIGN_OR_RETURN(
      const std::string bytes,
      workload::ReadTextWorkload(text, path, static_cast<int>(options.options->Integer("passes"))));
  const auto read = [&](std::size_t) { return formats::ParseChakra(bytes, path, kLargestTrace); };
  ORRERY_ASSIGN_OR_RETURN(
      workload::ChakraImport import,
      workload::ImportChakra(static_cast<std::size_t>(options.options->Integer("ranks")), read, {},
                             path));
  ImportedTrace trace;
  trace.graph = std::move(import.graph);
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(path))));
  return trace;
}

constexpr Option kSimai[] = {
    {.name = "vpp",
     .type = OptionType::kInteger,
     .fallback = "0",
     .min = 0,
     .max = 1000,
     .doc = "Chunks of layers a stage, in place of the file's vpp; 1: no interleaving; 0: the "
            "file's."},
    {.name = "gpus",
     .type = OptionType::kInteger,
     .fallback = "0",
     .min = 0,
     .max = 1 << 20,
     .doc = "GPUs in place of the file's all_gpus: more or fewer replicas of what it says; 0: the "
            "file's."},
    {.name = "busbw",
     .type = OptionType::kText,
     .doc = "SimAI's table of bus bandwidths (busbw.yaml): communication takes what it says, and "
            "no cluster is needed."},
    {.name = "tp_overlap",
     .type = OptionType::kNumber,
     .max = 1,
     .doc = "With simai.busbw: the share of TP communication that is hidden; the rest is waited "
            "for."},
    {.name = "dp_overlap",
     .type = OptionType::kNumber,
     .max = 1,
     .doc = "Likewise, of DP; left out, the schedule says what weight gradients' communication "
            "hides."},
    {.name = "ep_overlap",
     .type = OptionType::kNumber,
     .max = 1,
     .doc = "Likewise, of EP and DP_EP."},
    {.name = "pp_overlap",
     .type = OptionType::kNumber,
     .max = 1,
     .doc = "Likewise, of messages between stages; SimAI hides them all unless told."},
};
constexpr OptionTable kSimaiTable{
    .path = "simai", .doc = "What of a SimAI workload is run otherwise.", .options = kSimai};

bool IsSimai(const TraceFiles& files) {
  return workload::SniffLayerText(files.start) == workload::LayerTextKind::kSimai;
}
Result<ImportedTrace> ReadSimai(const TraceFiles& files, const ImportOptions& options) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "SimAI workload"));
  const std::string& path = files.paths.front();
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestTrace));
  const Section& keys = *options.options;
  workload::SimaiOptions how{
      .vpp = keys.Integer("vpp"), .gpus = keys.Integer("gpus"), .tp = options.tp, .pp = options.pp};
  std::optional<workload::BusBandwidths> bandwidths;
  if (keys.Has("busbw")) {
    const std::string table = keys.Text("busbw");
    ORRERY_ASSIGN_OR_RETURN(const std::string lines, ReadFile(table, 1 << 20));
    ORRERY_ASSIGN_OR_RETURN(bandwidths, workload::BusBandwidths::Parse(lines, table));
    how.bandwidths = &*bandwidths;
  }
  const std::pair<const char*, std::optional<double>*> shares[] = {{"tp_overlap", &how.overlap.tp},
                                                                   {"dp_overlap", &how.overlap.dp},
                                                                   {"ep_overlap", &how.overlap.ep},
                                                                   {"pp_overlap", &how.overlap.pp}};
  for (const auto& [key, share] : shares) {
    if (!keys.Has(key)) continue;
    if (!bandwidths) {
      return InvalidInput("{}: needs simai.busbw: on a cluster the schedule says what is hidden",
                          keys.Where(key));
    }
    *share = keys.Real(key);
  }
  ORRERY_ASSIGN_OR_RETURN(workload::SimaiImport import, workload::ImportSimai(text, path, how));
  ImportedTrace trace;
  trace.graph = std::move(import.graph);
  trace.assumed = std::move(import.assumed);
  trace.warnings = std::move(import.warnings);
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(path))));
  return trace;
}

bool IsPattern(const TraceFiles& files) { return StartsWithKey(files.start, "pattern"); }
// A file of keys below `pattern`, which --set may change; a pattern's name is no file, and all of
// its keys are set.
Result<ImportedTrace> ReadPattern(const TraceFiles& files, const ImportOptions& options) {
  ORRERY_RETURN_IF_ERROR(OneFile(files, "pattern"));
  const OptionTable& table = workload::PatternOptions();
  Section section(table);
  if (!files.start.empty()) {
    const std::string& path = files.paths.front();
    constexpr std::int64_t kLargestPattern = 1 << 20;
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestPattern));
    ORRERY_ASSIGN_OR_RETURN(section, workload::ParsePattern(text, path));
  }
  for (const Option& option : table.options) {
    const formats::Setting* const set = options.options->Find(option.name);
    if (set != nullptr) section.Set(option.name, set->value, set->where);
  }
  ImportedTrace trace;
  ORRERY_ASSIGN_OR_RETURN(trace.graph, workload::MakePattern(section));
  ORRERY_RETURN_IF_ERROR(graph::Verify(trace.graph).In(files.paths.front()));
  return trace;
}

// A folder is one where its first rank's file is.
bool IsMpi(const TraceFiles& files) {
  if (!files.start.empty()) return workload::IsMpiTrace(files.start);
  std::error_code error;
  if (!std::filesystem::is_directory(files.paths.front(), error)) return false;
  const auto found = workload::MpiFiles({files.paths.front()});
  return found.ok() && !found->empty() && workload::IsMpiTrace(OpenTrace({found->front()}).start);
}
Result<ImportedTrace> ReadMpi(const TraceFiles& files, const ImportOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, workload::MpiFiles(files.paths));
  if (ranks.empty()) return InvalidInput("'{}': no file", Printable(files.paths.front()));
  const auto text = [&](std::size_t rank, const auto& use) -> Status {
    ORRERY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(ranks[rank]));
    return use(file.bytes());
  };
  ORRERY_ASSIGN_OR_RETURN(workload::MpiImport import,
                          workload::ImportMpi(ranks, text, *options.options, files.paths.front()));
  ImportedTrace trace;
  trace.graph = std::move(import.graph);
  trace.assumed = std::move(import.assumed);
  trace.warnings = std::move(import.warnings);
  ORRERY_RETURN_IF_ERROR(
      graph::Verify(trace.graph).In(fmt::format("'{}'", Printable(files.paths.front()))));
  return trace;
}

const std::array<Importer, 14> kImporters = {{
    {"graph", "graph", "Orrery graph, text form", "analytic", nullptr, IsGraphText, ReadGraphText},
    {"graph-binary", "graph", "Orrery graph, binary form", "analytic", nullptr, IsGraphBinary,
     ReadGraphBinary},
    {"orrery-trace", "orrery-trace", "What orrery-trace wrote, a folder", "analytic",
     &kStoragesTable, IsRankTraces, ReadRankTraces},
    {"goal", "GOAL", "GOAL schedule", "loggops", &kGoalTable, IsGoal, ReadGoal},
    {"pattern", "pattern", "Communication pattern by name (docs/formats/pattern.md)", "loggops",
     &workload::PatternOptions(), IsPattern, ReadPattern, true},
    {"mpi", "MPI", "Trace of an MPI program (liballprof, DUMPI), a text file a rank", "loggops",
     &workload::MpiOptions(), IsMpi, ReadMpi},
    {"spc", "SPC", "Storage trace (SPC, as the UMass repository's), served by Direct Drive",
     "loggops", &workload::StorageOptions(), IsSpcTrace, ReadSpcTrace},
    {"storage", "storage", "Storage load by its keys (docs/formats/storage.md)", "loggops",
     &workload::StorageOptions(), IsStorageFile, ReadStorageFile, true},
    {"astra-text", "ASTRA-sim text", "ASTRA-sim text workload", "analytic", &kTextTable,
     IsTextWorkload, ReadText},
    {"simai", "SimAI", "SimAI workload", "analytic", &kSimaiTable, IsSimai, ReadSimai, false, true},
    {"chakra", "Chakra", "Chakra execution trace", "analytic", &kChakraTable, IsChakra, ReadChakra},
    {"pytorch", "PyTorch", "PyTorch profile (Kineto), with execution traces or without", "analytic",
     &kPyTorchOptions, IsPyTorch, ReadPyTorch},
    {"nsys", "nsys", "Nsight Systems report (SQLite), with NCCL's logs or without", "analytic",
     &kNsysOptions, IsNsys, ReadNsysReports},
    {"nccl", "NCCL calls", "NCCL's log of calls, or its inspector's records", "analytic", nullptr,
     IsNccl, ReadNccl},
}};

}  // namespace

std::span<const Importer> Importers() { return kImporters; }

bool StartsWithKey(std::string_view text, std::string_view key) {
  while (text.starts_with('#') || text.starts_with('\n')) {
    if (text.find('\n') == text.npos) return false;
    text.remove_prefix(text.find('\n') + 1);
  }
  return text.starts_with(key) && text.substr(key.size()).starts_with(':');
}

Result<const Importer*> FindImporter(const TraceFiles& files, const std::string& format) {
  std::vector<std::string_view> names;
  std::error_code error;
  if (format.empty() && std::filesystem::is_other(files.paths.front(), error)) {
    return static_cast<const Importer*>(nullptr);  // a pipe is read once, by whoever takes it
  }
  const std::string& first = files.paths.front();
  if (files.start.empty() && std::filesystem::is_regular_file(first, error) &&
      std::filesystem::file_size(first, error) > 0 && std::ifstream(first).is_open()) {
    return ResourceError("cannot read '{}': its disk gives nothing", Printable(first));
  }
  for (const Importer& importer : kImporters) {
    names.push_back(importer.name);
    if (format.empty() ? importer.sniff(files) : importer.name == format) return &importer;
  }
  if (format.empty()) return static_cast<const Importer*>(nullptr);
  names.push_back("astra-sim");
  return InvalidInput("--format: {}", UnknownName("format", Printable(format), names));
}

Status CheckNoTrace(const TraceFiles& files) {
  const std::string& path = files.paths.front();
  std::error_code error;
  const auto is_file = [&error](const std::filesystem::path& one) {
    return std::filesystem::exists(one, error) && !std::filesystem::is_directory(one, error);
  };
  // Of '-', and of what stands below a file, the reader's own error says more.
  if (path == "-" || is_file(path) || is_file(std::filesystem::path(path).parent_path())) return {};
  const Result<std::vector<std::string>> found = workload::ChakraFiles(files.paths);
  if (!found.ok()) return found.status();
  return InvalidInput(
      "'{}': no Chakra trace{}", Printable(found->front()),
      std::filesystem::file_size(found->front(), error) == 0 ? ": it is empty" : "");
}

const OptionTable& KeysOf(const Importer& importer) {
  static constexpr OptionTable kNone;
  return importer.options != nullptr ? *importer.options : kNone;
}

Result<bool> RanksAreHosts(const Section& keys) {
  if (FindOption(keys.table().options, "rank") == nullptr) return false;
  const std::string rank = keys.Text("rank");
  if (rank == "gpu" || rank == "node") return rank == "node";
  return InvalidInput("{}: '{}' is none of gpu, node", keys.Where("rank"), Printable(rank));
}

Result<Section> ReadImporterKeys(const Importer& importer, const std::vector<std::string>& set) {
  const OptionTable& table = KeysOf(importer);
  formats::Document document;
  for (const std::string& assignment : set) {
    const std::string section = assignment.substr(0, assignment.find_first_of(".="));
    const std::string_view valid[] = {table.path};
    if (section != table.path || importer.options == nullptr) {
      return InvalidInput("--set {}: {}", Printable(assignment),
                          UnknownName("section", Printable(section), valid));
    }
    ORRERY_RETURN_IF_ERROR(ApplySet(assignment, &document));
  }
  if (document.root.fields.empty()) return Section(table);
  return Section::Read(document, document.root.fields.front().value, table);
}

TraceFiles OpenTrace(std::vector<std::string> paths) {
  TraceFiles files{std::move(paths), {}};
  std::error_code error;
  const std::filesystem::path first(files.paths.front());
  if (!std::filesystem::is_regular_file(first, error)) return files;  // a pipe is read once
  files.start.resize(kStart);
  std::ifstream file(first, std::ios::binary);
  file.read(files.start.data(), static_cast<std::streamsize>(files.start.size()));
  files.start.resize(static_cast<std::size_t>(file.gcount()));
  return files;
}

}  // namespace orrery::job
