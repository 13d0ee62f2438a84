#include "orrery/workload/host_work.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/check.h"
#include "orrery/base/units.h"
#include "orrery/constants/constants.h"
#include "orrery/formats/data_cells.h"

namespace orrery::workload {
namespace {

// data/host_work.csv: pieces in ns, on the CPU whose cpu_relative_speed is 1. Those whose traces
// differ most (step, batch, core, ring_step, grouped_expert) are constants of their own, which a
// fit moves (data/constants/constants.csv). host_python and host_python.core scale all that are one
// interpreter's.
constexpr std::string_view kHostLines[] = {
#include "orrery_data_host_work.inc"
};

struct HostPiece {
  std::string_view name;
  std::int64_t& (*of)(HostWork& host);
};
constexpr std::array<HostPiece, 18> kHostPieces = {{
    {"module_forward", [](HostWork& h) -> std::int64_t& { return h.module_forward; }},
    {"module_backward", [](HostWork& h) -> std::int64_t& { return h.module_backward; }},
    {"low_precision", [](HostWork& h) -> std::int64_t& { return h.low_precision; }},
    {"rng_fork", [](HostWork& h) -> std::int64_t& { return h.rng_fork; }},
    {"checkpoint", [](HostWork& h) -> std::int64_t& { return h.checkpoint; }},
    {"communication", [](HostWork& h) -> std::int64_t& { return h.communication; }},
    {"unit", [](HostWork& h) -> std::int64_t& { return h.unit; }},
    {"graph", [](HostWork& h) -> std::int64_t& { return h.graph; }},
    {"operator_forward", [](HostWork& h) -> std::int64_t& { return h.operator_forward; }},
    {"operator_backward", [](HostWork& h) -> std::int64_t& { return h.operator_backward; }},
    {"view", [](HostWork& h) -> std::int64_t& { return h.view; }},
    {"quiet_step", [](HostWork& h) -> std::int64_t& { return h.step; }},
    {"call_module", [](HostWork& h) -> std::int64_t& { return h.calls.module; }},
    {"call_operator_forward",
     [](HostWork& h) -> std::int64_t& { return h.calls.operator_forward; }},
    {"call_operator_backward",
     [](HostWork& h) -> std::int64_t& { return h.calls.operator_backward; }},
    {"call_view_forward", [](HostWork& h) -> std::int64_t& { return h.calls.view_forward; }},
    {"call_view_backward", [](HostWork& h) -> std::int64_t& { return h.calls.view_backward; }},
    {"call_function", [](HostWork& h) -> std::int64_t& { return h.calls.function; }},
}};

// The columns of the table.
enum class HostColumn : std::uint8_t { k2021, kCore, kPlainModules, kTransformers };
constexpr std::size_t kHostColumns = 4;

struct HostTimes {
  std::array<HostWork, kHostColumns> of;             // `step` is a quiet loop's
  std::array<bool, kHostPieces.size()> scaled = {};  // by host_python
};

HostTimes ReadHostWork() {
  HostTimes table;
  std::size_t read = 0;
  for (const std::vector<std::string>& cell : formats::DataRows(kHostLines, 4 + kHostColumns)) {
    const auto piece = std::ranges::find(kHostPieces, cell[0], &HostPiece::name);
    ORRERY_CHECK(piece != kHostPieces.end(), "data/host_work.csv has an unknown piece");
    for (std::size_t column = 0; column < kHostColumns; ++column) {
      const auto ns = ParseInteger(cell[1 + column]);
      ORRERY_CHECK(ns.ok(), "data/host_work.csv holds a time that is no number");
      piece->of(table.of[column]) = *ns;
    }
    table.scaled[static_cast<std::size_t>(piece - kHostPieces.begin())] =
        cell[1 + kHostColumns] == "true";
    ++read;
  }
  ORRERY_CHECK(read == kHostPieces.size(), "data/host_work.csv lacks a piece");
  return table;
}

const HostTimes& HostTable() {
  static const HostTimes table = ReadHostWork();
  return table;
}

HostWork Times(HostWork host, double factor) {
  const auto scale = [&](std::int64_t* ns) {
    *ns = static_cast<std::int64_t>(static_cast<double>(*ns) * factor + 0.5);
  };
  for (std::size_t i = 0; i < kHostPieces.size(); ++i) {
    if (HostTable().scaled[i]) scale(&kHostPieces[i].of(host));
  }
  for (std::int64_t* ns : {&host.grouped_expert, &host.core, &host.ring_step, &host.batch}) {
    scale(ns);
  }
  return host;
}

// Adds the pieces that are constants of their own.
void AddConstants(HostEra era, const constants::Set& known, HostWork* host) {
  const auto ns = [&](constants::Id id) {
    return static_cast<std::int64_t>(known[id] * 1e9 + 0.5);
  };
  if (era == HostEra::kCore || era == HostEra::kFsdp) {
    host->grouped_expert = ns(constants::kHostGroupedExpert);
  }
  if (era == HostEra::kCore || era == HostEra::k2021) host->batch = ns(constants::kHostBatch);
  if (era != HostEra::kCore) return;
  host->core = ns(constants::kHostAttentionCore);
  host->ring_step = ns(constants::kHostRingStepCore);
  host->step = ns(constants::kHostStepCore);
}

}  // namespace

HostWork HostOf(HostEra era, const Plan& plan, const constants::Set& known) {
  const double python =
      known[era == HostEra::kCore ? constants::kHostPythonCore : constants::kHostPython];
  const bool counted = era == HostEra::kFsdp && plan.counts_calls();
  HostWork host;
  std::int64_t quiet_step = 0;
  if (era != HostEra::kNone) {
    const HostColumn column = era == HostEra::k2021   ? HostColumn::k2021
                              : era == HostEra::kCore ? HostColumn::kCore
                              : counted               ? HostColumn::kTransformers
                                                      : HostColumn::kPlainModules;
    host = HostTable().of[static_cast<std::size_t>(column)];
    quiet_step = std::exchange(host.step, 0);
  }
  if (!counted) AddConstants(era, known, &host);
  if (plan.framework.quiet_loop) host.step = std::min(host.step, quiet_step);
  host = Times(host, python);
  if (plan.framework.cuda_graphs == CudaGraphs::kIteration)
    return {.graph = host.graph, .step = host.step};
  return host;
}

}  // namespace orrery::workload
