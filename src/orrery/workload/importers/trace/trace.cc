#include "orrery/workload/importers/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/workload/importers/trace/communicators.h"
#include "orrery/workload/importers/trace/lowering.h"
#include "orrery/workload/importers/trace/operators.h"

namespace orrery::workload {
namespace {

using formats::TraceDirectory;

// Warnings name the most frequent operators.
constexpr std::size_t kOperatorsNamed = 8;

void AddUnique(const std::string& text, std::vector<std::string>* list) {
  if (std::ranges::find(*list, text) == list->end()) list->push_back(text);
}

void SayWhatWasAssumed(const TraceDirectory& directory, const LoweringNotes& notes,
                       ImportedRanks* out) {
  for (const std::string& text : directory.assumed) AddUnique("traced: " + text, &out->assumed);
  for (const formats::TraceProgram& program : directory.programs) {
    for (const std::string& text : program.trace.assumed)
      AddUnique("traced: " + text, &out->assumed);
  }
  if (!notes.unknown_operators.empty()) {
    std::vector<std::pair<std::int64_t, std::string>> by_count;
    for (const auto& [name, count] : notes.unknown_operators) by_count.emplace_back(-count, name);
    std::ranges::sort(by_count);
    std::string text;
    std::int64_t all = 0;
    for (std::size_t i = 0; i < by_count.size(); ++i) {
      all -= by_count[i].first;
      if (i < kOperatorsNamed) {
        text += fmt::format("{}{} ({})", i > 0 ? ", " : "", Printable(by_count[i].second),
                            -by_count[i].first);
      }
    }
    out->warnings.push_back(fmt::format(
        "{} operators are not in data/tracing/operators.csv, and are priced by their bytes and "
        "FLOPs: {}{}",
        all, text, by_count.size() > kOperatorsNamed ? ", …" : ""));
  }
  const auto count = [&](std::int64_t n, const char* text) {
    if (n > 0) out->assumed.push_back(fmt::format("{} {}", n, text));
  };
  count(notes.host_operators, "operators on the host's tensors take the host what a view takes");
  count(notes.waits_before_step,
        "waits for communication or events of the step before are left out: that step is over");
  count(notes.uneven, "all-to-alls of uneven shares are even ones of the same bytes");
  if (notes.side_kernels > 0) {
    out->assumed.push_back(
        fmt::format("{} kernels on side streams run beside the compute stream's at full speed",
                    notes.side_kernels));
  }
  if (notes.kernels_measured > 0 && notes.kernels_measured < notes.kernels) {
    out->assumed.push_back(fmt::format("{} of {} operators of the trace were measured",
                                       notes.kernels_measured, notes.kernels));
  }
  out->assumed.emplace_back(
      "an operator of the trace is one kernel; launches, views, calls of modules and of "
      "collectives take the host what eager PyTorch's do");
}

}  // namespace

Result<ImportedRanks> ImportRankTraces(const TraceDirectory& directory, const std::string& name) {
  ImportedRanks out;
  ORRERY_ASSIGN_OR_RETURN(const Communicators communicators,
                          Communicators::Create(directory, &out.graph));
  out.assumed = communicators.assumed();
  LoweringNotes notes;
  double flops = 0;
  for (std::size_t p = 0; p < directory.programs.size(); ++p) {
    ORRERY_ASSIGN_OR_RETURN(const double of_rank,
                            LowerProgram(directory, p, communicators, &out.graph, &notes));
    flops += of_rank * static_cast<double>(communicators.ranks(p));
  }
  out.graph.jobs.push_back(
      {.name = name, .ranks = directory.world_size, .model_flops_per_step = flops});
  SayWhatWasAssumed(directory, notes, &out);
  out.measured = std::move(notes.measured);
  if (out.measured.empty()) return out;
  for (const formats::TraceProgram& program : directory.programs) {
    const std::string& gpu = program.trace.gpu;
    if (out.gpu.empty()) out.gpu = gpu;
    if (gpu.empty() || gpu != out.gpu) {
      return InvalidInput("{}: its operators have times ('ns') of {}: key 'gpu' of its first line",
                          Printable(program.file),
                          gpu.empty() ? "no GPU that it names" : "another GPU than other files'");
    }
  }
  return out;
}

void UseMeasured(const std::vector<MeasuredKernel>& measured, graph::Graph* graph) {
  for (const MeasuredKernel& m : measured) {
    graph->blocks[m.block].kernels[m.kernel] = graph::Timed{.duration_ps = m.duration_ps};
  }
  for (graph::Block& block : graph->blocks) block.Seal();
}

}  // namespace orrery::workload
