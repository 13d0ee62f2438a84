// A row of a training table → the job document that predicts it: its keys are what the cells say,
// what their words mean, and where a cell is blank what the release's scripts and the framework's
// published runs set. Everything else is left to the reader of job files.
//
// Scope: data/words.yaml. A row outside it is refused with one line that names column and value, as
// is one whose cells contradict each other or leave open what no run can do without. Nothing here
// knows what was measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/job/draft.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_tables.h"
#include "orrery/workload/model.h"

namespace orrery::search {

inline constexpr const char* kRow = "row";

struct RowDraft {
  job::Draft job{kRow};   // its errors begin with this
  workload::Model model;  // as the document has it, for rules that depend on it; the same below
  std::string preset;     // which the model begins with; empty: none
  cluster::Spec cluster;
  std::string meter;              // mem_kind of the framework's own log; empty: torch_allocated
  bool open_micro_batch = false;  // nothing says how a known batch is cut
};

// Fills `assumed` also when it fails. `micro_batch`: where nothing says it (row_job.h).
Result<RowDraft> MapTraining(const Configuration& row, std::vector<std::string>* assumed,
                             std::int64_t micro_batch = 1,
                             const RowTables& tables = BuiltInRowTables());

// What rules may read beside columns, keys of the job and names that other rules set.
std::vector<std::string_view> NamesForRules();

// From the configuration alone, for rows that are refused too. In this order: "moe" (arch);
// "fsdp/zero3" (an FSDP family, or sharding zero2 or zero3); "one node, small" (at most 8 GPUs); by
// GPU: "dense A100" (A100, A800), "dense Hopper+" (H100 and later), "dense, other GPUs".
std::string_view TrainingStratum(const Configuration& row);
// "memory torch_allocated", by meter.
std::string MemoryStratum(const Configuration& row);

}  // namespace orrery::search
