#include "orrery/base/text.h"
#include "orrery/job/plan_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/mapping.h"
#include "orrery/workload/options.h"

namespace orrery::search {
namespace {

constexpr std::string_view kGraphsKey = "framework_options.cuda_graphs";
constexpr std::string_view kTpOverlapKey = "framework_options.tp_comm_overlap";

// The column dp_overlap: reduction, and what is gathered.
void SayOverlap(const Mapping& m, bool on) {
  m.job().Set("framework_options.overlap_grad_reduce", on);
  if (m.job().Text("training.sharding") == "zero1" && !m.defaults().tensor_buckets) {
    m.job().Set("framework_options.overlap_param_gather", on);
  }
  if (m.gathers_units()) m.job().Set("framework_options.prefetch", on);
}

// Of a blank dp_overlap only what is not as the framework has it.
void AssumeOverlap(const Mapping& m) {
  if (m.job().Has("framework_options.overlap_grad_reduce")) return;  // the release's scripts
  if (!m.recipe().says_switches || !m.defaults().dp_overlap) return;
  if (m.dp() > 1) m.Assume("dp_overlap=0 (blank: {}'s records say where it is on)", m.rule.label);
  SayOverlap(m, false);
}

// How far graphs reach stands in config_extra.
void MapGraphs(const Mapping& m, std::optional<bool> stated) {
  const std::string released(m.job().Text(kGraphsKey));
  m.job().Drop(kGraphsKey);
  if (!stated.value_or(!released.empty() && released != "none")) return;
  if (m.gathers_units()) {
    m.job().Set("framework_options.host_work", false);
    m.Assume("cuda_graphs=1: no host work beside the launch of kernels, one by one");
    return;
  }
  const bool whole = m.release.own.Bool("whole_graphs") || (!stated && released == "iteration");
  m.job().Set(kGraphsKey, whole ? "iteration" : "layers");
  const std::uint8_t scope = whole ? std::uint8_t{workload::kGraphAll} : GraphScope(m.row);
  if (scope != workload::kGraphAll) {
    m.job().Set("framework_options.cuda_graph_scope", workload::GraphScopeText(scope));
  }
  m.Assume("cuda_graphs=1: {}",
           whole ? "the iteration is one graph"
                 : "a graph a layer and pass of " + workload::GraphScopeText(scope));
}

}  // namespace

void MapAttention(const Mapping& m) {
  constexpr std::string_view kKey = "framework_options.attention";
  const std::string_view cell = m.row.text("attention_kernel");
  const Option& words = *FindOption(workload::FrameworkOptions().options, "attention");
  if (cell.empty()) return;
  if (cell == "cudnn" && m.out->cluster.device.arch < cluster::Arch::kHopper) {
    m.Assume("cuDNN's fused attention priced as flash 2");
    m.job().Set(kKey, "flash2");
  } else if (IsOneOf(cell, words.choices)) {
    m.job().Set(kKey, cell);
  } else {
    m.Assume("attention_kernel={} is not known here: taken as blank", Printable(cell, 40));
  }
}

Status MapOverlap(const Mapping& m) {
  const auto overlap = m.row.Flag("dp_overlap");
  const auto sequence = m.row.Flag("seq_parallel");
  auto tp_overlap = m.row.Flag("tp_comm_overlap");
  const auto graphs = m.row.Flag("cuda_graphs");
  const bool released = m.job().Text(kTpOverlapKey) == "true";
  m.job().Drop(kTpOverlapKey);
  if (!tp_overlap && released) tp_overlap = true;
  if (overlap) {
    SayOverlap(m, *overlap);
  } else {
    AssumeOverlap(m);
  }
  // Overlap of tensor-parallel communication needs it, and so do experts.
  bool split = sequence.value_or(m.recipe().sequence_parallel || tp_overlap.value_or(false));
  if (!sequence && m.tp() > 1)
    m.Assume("seq_parallel={:d} (blank: {}'s default)", split, m.rule.label);
  if (!split && m.tp() > 1 && HasExperts(m.row)) {
    split = true;
    m.Assume("seq_parallel=1: experts under tensor parallelism need it");
  }
  if (m.tp() > 1 && split) m.job().Set("parallel.sequence_parallel", true);
  if (tp_overlap && m.tp() > 1) {  // Transformer Engine's
    const bool there = m.job().Text("framework_options.transformer_engine") != "false";
    m.job().Set(kTpOverlapKey, *tp_overlap && split && there);
  }
  MapGraphs(m, graphs);
  if (HasToken(m.row, "sharp")) m.Assume("config_extra=sharp is not modelled: rings and trees");
  return {};
}

void MapLibraries(const Mapping& m) {
  if (!m.recipe().allocator.empty()) {
    m.Fill("allocator", "memory.allocator", m.recipe().allocator);
  }
  m.out->meter = m.recipe().meter;
}

}  // namespace orrery::search
