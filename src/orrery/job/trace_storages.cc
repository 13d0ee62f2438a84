#include "orrery/job/trace_storages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "orrery/base/text.h"
#include "orrery/memory/library_memory.h"

namespace orrery::job {
namespace {

using formats::RankTrace;
using formats::TraceEvent;
using formats::TraceStorage;
using memory::StorageEvent;
using memory::StorageRole;
using EventKind = TraceEvent::Kind;

StorageRole RoleOf(TraceStorage what) {
  switch (what) {
    case TraceStorage::kParameter:
      return StorageRole::kParameter;
    case TraceStorage::kGradient:
      return StorageRole::kGradient;
    case TraceStorage::kOptimizer:
      return StorageRole::kOptimizer;
    case TraceStorage::kBuffer:
      return StorageRole::kBuffer;
    case TraceStorage::kLibrary:
    case TraceStorage::kOther:
      break;
  }
  return StorageRole::kOther;
}

class StoragesReader {
 public:
  explicit StoragesReader(const RankTrace& trace) : trace_(trace) {
    for (const TraceEvent& e : trace.step) {
      if (e.kind == EventKind::kResident) role_.try_emplace(e.number, RoleOf(e.what));
    }
  }

  ProgramStorages Read() {
    for (const TraceEvent& e : trace_.setup) Add(e);
    out_.measured = out_.events.size();
    if (!trace_.step.empty()) out_.step_line = trace_.step.front().line;
    for (const TraceEvent& e : trace_.step) {
      if (e.kind == EventKind::kOp || e.kind == EventKind::kComm) {
        out_.work.emplace_back(e.line, TextOf(e));
      } else {
        Add(e);
      }
    }
    return std::move(out_);
  }

 private:
  void Add(const TraceEvent& e) {
    const bool fresh = e.kind == EventKind::kAlloc || e.kind == EventKind::kResident;
    if (fresh) {
      // What lives when the step begins was allocated before, or was not seen until now.
      if (!e.on_device || !known_.insert(e.number).second) return;
      if (e.what == TraceStorage::kLibrary) out_.library_bytes += e.bytes;
      const auto role = role_.find(e.number);
      Event(StorageEvent::Kind::kAlloc, e).role =
          role == role_.end() ? StorageRole::kOther : role->second;
      return;
    }
    const bool storage =
        e.kind == EventKind::kFree || e.kind == EventKind::kResize || e.kind == EventKind::kUse;
    if (!storage || !known_.contains(e.number)) return;
    if (e.kind == EventKind::kFree) known_.erase(e.number);
    Event(e.kind == EventKind::kFree     ? StorageEvent::Kind::kFree
          : e.kind == EventKind::kResize ? StorageEvent::Kind::kResize
                                         : StorageEvent::Kind::kUse,
          e);
  }
  StorageEvent& Event(StorageEvent::Kind kind, const TraceEvent& e) {
    return out_.events.emplace_back(StorageEvent{.kind = kind,
                                                 .stream = static_cast<std::uint16_t>(e.stream),
                                                 .place = e.line,
                                                 .storage = e.number,
                                                 .bytes = e.bytes});
  }
  std::uint32_t TextOf(const TraceEvent& e) {
    const std::string& name = e.kind == EventKind::kOp
                                  ? trace_.signatures[static_cast<std::size_t>(e.number)].name
                                  : trace_.comms[static_cast<std::size_t>(e.comm)].op;
    const std::string module =
        e.module >= 0 ? trace_.modules[static_cast<std::size_t>(e.module)] : "";
    std::string text = module.empty() ? name : fmt::format("{} of {}", name, module);
    const auto [at, fresh] =
        text_.try_emplace(std::move(text), static_cast<std::uint32_t>(out_.texts.size()));
    if (fresh) out_.texts.push_back(at->first);
    return at->second;
  }

  const RankTrace& trace_;
  ProgramStorages out_;
  std::map<std::int64_t, StorageRole> role_;
  std::set<std::int64_t> known_;
  std::map<std::string, std::uint32_t> text_;
};

// What ran: an operator's storages stand in the lines before it.
std::string WorkAt(const ProgramStorages& storages, std::uint32_t line) {
  if (line < storages.step_line) return "before the step";
  const auto found = std::ranges::lower_bound(storages.work, line, {},
                                              &std::pair<std::uint32_t, std::uint32_t>::first);
  if (found == storages.work.end()) return "the end of the step";
  return storages.texts[found->second];
}

}  // namespace

std::vector<ProgramStorages> StoragesOf(const formats::TraceDirectory& directory) {
  std::vector<ProgramStorages> out;
  for (std::size_t p = 0; p < directory.programs.size(); ++p) {
    if (directory.programs[p].trace.device != "cuda") continue;
    ProgramStorages& of = out.emplace_back(StoragesReader(directory.programs[p].trace).Read());
    of.program = ProgramId(p);
    of.rank = directory.programs[p].rank;
  }
  return out;
}

Result<std::vector<results::TraceMemory>> ReplayTraceMemory(
    const std::vector<ProgramStorages>& programs, const graph::Graph& graph,
    const cluster::DeviceSpec& device, const memory::AllocatorSettings& allocator) {
  std::vector<results::TraceMemory> out;
  const memory::Libraries libraries;
  for (const ProgramStorages& of : programs) {
    results::TraceMemory m;
    m.rank = of.rank;
    m.ranks = static_cast<std::uint32_t>(
        std::ranges::count(graph.bindings, of.program, &graph::Binding::program));
    m.context_bytes = memory::ContextBytes(graph, graph.programs[of.program.index()],
                                           &graph.bindings[of.rank], libraries, device);
    memory::ReplayOptions options;
    options.settings = allocator;
    options.device_bytes = device.memory_bytes;
    options.capacity = std::max<std::int64_t>(device.memory_bytes - m.context_bytes, 0);
    if (of.library_bytes == 0) {
      options.workspaces = memory::TorchWorkspaces(libraries, device.arch);
    }
    Result<memory::StorageReplay> replay = memory::ReplayStorages(of.events, of.measured, options);
    if (!replay.ok()) {
      return std::move(replay).TakeStatus().In(fmt::format("trace of rank {}", of.rank));
    }
    m.replay = *std::move(replay);
    m.replay.workspaces += of.library_bytes;
    m.peak_at = WorkAt(of, m.replay.peak_place);
    if (m.replay.oom) m.oom_at = WorkAt(of, m.replay.oom_place);
    out.push_back(std::move(m));
  }
  return out;
}

}  // namespace orrery::job
