// Readers of traces: what other tools recorded, and what is made of it.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "orrery/astra/config.h"
#include "orrery/base/check.h"
#include "orrery/formats/chakra.h"
#include "orrery/formats/execution_trace.h"
#include "orrery/formats/goal.h"
#include "orrery/formats/gzip.h"
#include "orrery/formats/kineto.h"
#include "orrery/formats/memory_snapshot.h"
#include "orrery/formats/nccl_calls.h"
#include "orrery/formats/nsys.h"
#include "orrery/formats/rank_trace.h"
#include "orrery/formats/xml.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/results/compare/compare.h"
#include "orrery/workload/importers/astra_text/layers.h"
#include "orrery/workload/importers/astra_text/text_workload.h"
#include "orrery/workload/importers/chakra/chakra.h"
#include "orrery/workload/importers/goal/goal.h"
#include "orrery/workload/importers/msccl/msccl.h"
#include "orrery/workload/importers/nccl/nccl.h"
#include "orrery/workload/importers/pytorch/communications.h"
#include "orrery/workload/importers/pytorch/pytorch.h"
#include "orrery/workload/importers/simai/simai.h"
#include "orrery/workload/importers/trace/trace.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

constexpr std::int64_t kMostUnpacked = 1 << 20;

template <class Import>
void ExpectVerified(const Result<Import>& import) {
  ORRERY_CHECK(!import.ok() || graph::Verify(import->graph).ok(), "what was imported verifies");
}

void Goal(std::string_view bytes) {
  const Result<formats::GoalSchedule> schedule = formats::ParseGoal(bytes, "input");
  if (!schedule.ok()) return;
  const std::string binary = formats::GoalToBinary(*schedule);
  const Result<formats::GoalSchedule> again = formats::ParseGoal(binary, "again");
  ORRERY_CHECK(again.ok() && formats::GoalToBinary(*again) == binary, "binary round trip");
  const Result<graph::Graph> graph = workload::ImportGoal(*schedule, "input");
  ORRERY_CHECK(!graph.ok() || graph::Verify(*graph).ok(), "what was imported verifies");
}

void Chakra(std::string_view bytes) {
  const auto read = [&](std::size_t) {
    return formats::ParseChakra(std::string(bytes), "input", kMostUnpacked);
  };
  ExpectVerified(workload::ImportChakra(1, read, {}, "input"));
}

void Msccl(std::string_view bytes) {
  const Result<formats::XmlElement> algo = formats::ParseXml(bytes, "input");
  if (!algo.ok()) return;
  const Result<std::string> trace = workload::MscclToChakra(*algo, 0, 1 << 20);
  if (!trace.ok()) return;
  ORRERY_CHECK(formats::ParseChakra(*trace, "made", std::int64_t{1} << 30).ok(),
               "a trace that was written is read");
}

void Profile(std::string_view bytes) {
  Result<formats::ProfileTrace> profile = formats::ParseKineto(std::string(bytes), "input");
  if (!profile.ok()) return;
  std::vector<workload::PyTorchRank> ranks(1);
  ranks[0].path = "input";
  ranks[0].profile = *std::move(profile);
  ExpectVerified(workload::ImportPyTorch(std::move(ranks), {}, "input"));
}

void Nsys(std::string_view bytes) {
  if (!formats::IsSqlite(bytes)) return;
  Result<std::vector<formats::ProfileTrace>> profiles = formats::ReadNsys(
      AsFile(bytes), {.rows = 100'000, .steps = 10'000'000, .file_bytes = kMostUnpacked});
  if (!profiles.ok()) return;
  std::vector<workload::PyTorchRank> ranks;
  for (formats::ProfileTrace& profile : *profiles) {
    ranks.push_back({.path = "input", .profile = std::move(profile), .execution = {}});
  }
  ExpectVerified(workload::ImportPyTorch(std::move(ranks), {}, "input"));
}

void NcclCalls(std::string_view bytes) {
  formats::NcclCalls calls;
  if (!formats::ParseNcclCalls(bytes, "input", &calls).ok()) return;
  ExpectVerified(workload::ImportNccl(calls, "input"));
}

// One rank of a job of one.
void RankTrace(std::string_view bytes) {
  Result<formats::RankTrace> trace = formats::ParseRankTrace(bytes, "input");
  if (!trace.ok()) return;
  formats::TraceDirectory directory;
  directory.world_size = 1;
  directory.programs.push_back({.file = "input", .ranks = {0}, .trace = *std::move(trace)});
  ExpectVerified(workload::ImportRankTraces(directory, "input"));
}

void TextWorkload(std::string_view bytes) {
  const Result<std::string> trace = workload::ReadTextWorkload(bytes, "input", 1);
  if (!trace.ok()) return;
  ORRERY_CHECK(formats::ParseChakra(*trace, "made", std::int64_t{1} << 30).ok(),
               "a trace that was written is read");
}

// A result beside itself differs in nothing.
void Results(std::string_view bytes) {
  const auto comparison = results::Compare(bytes, "a", bytes, "b");
  ORRERY_CHECK(!comparison.ok() || comparison->same(), "a result is itself");
}

constexpr std::array<Target, 16> kTargets = {{
    {"goal-binary", Goal},
    {"chakra", Chakra},
    {"simai", [](std::string_view b) { ExpectVerified(workload::ImportSimai(b, "input")); }},
    {"msccl", Msccl},
    {"kineto", Profile},
    {"execution-trace",
     [](std::string_view b) { (void)formats::ParseExecutionTrace(std::string(b), "input"); }},
    {"memory-snapshot", [](std::string_view b) { (void)formats::ParseMemorySnapshot(b, "input"); }},
    {"nsys", Nsys},
    {"nccl-calls", NcclCalls},
    {"rank-trace", RankTrace},
    {"text-workload", TextWorkload},
    {"astra-system",
     [](std::string_view b) {
       std::vector<std::string> warnings;
       (void)astra::ReadSystem(AsFile(b), {}, &warnings);
     }},
    {"astra-network", [](std::string_view b) { (void)astra::ReadNetwork(AsFile(b)); }},
    {"astra-memory",
     [](std::string_view b) {
       std::vector<std::string> warnings;
       (void)astra::ReadMemory(AsFile(b), &warnings);
     }},
    {"gzip", [](std::string_view b) { (void)formats::Gunzip(b, kMostUnpacked, "input"); }},
    {"result", Results},
}};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace orrery::fuzz
