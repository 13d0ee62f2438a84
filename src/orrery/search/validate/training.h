// A row of a training table → the run that predicts it.
//
// Scope: dense decoder transformers under tensor, sequence, pipeline (interleaved too) and data
// parallelism, context parallelism, ZeRO-1 to -3 or none, in 16 or 32 bits, linear layers also in
// fp8, mxfp8 and nvfp4. Everything else is refused with one line that names column and value. A
// blank cell means the framework's default (frameworks.h), stated in `assumed`. Nothing here knows
// what was measured.
#pragma once

#include <string>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/job/frameworks.h"
#include "orrery/memory/memory.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/row_tables.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

struct TrainingCase {
  workload::Model model;
  workload::Plan plan;
  cluster::Spec cluster;
  const job::Framework* framework = nullptr;
  memory::Libraries libraries;
  std::string allocator;   // PYTORCH_CUDA_ALLOC_CONF
  std::string_view meter;  // mem_kind of the framework's own log; empty: torch_allocated
  workload::HostEra host = workload::HostEra::kNone;
  bool open_micro_batch = false;  // nothing says how a known batch is cut
};

// Fills `assumed` also when it fails. `micro_batch`: where nothing says it (row_job.h).
Result<TrainingCase> MapTraining(const Configuration& row, std::vector<std::string>* assumed,
                                 std::int64_t micro_batch = 1,
                                 const RowTables& tables = BuiltInRowTables());

// From the configuration alone, for rows that are refused too. In this order: "moe" (arch);
// "fsdp/zero3" (an FSDP family, or sharding zero2 or zero3); "one node, small" (at most 8 GPUs); by
// GPU: "dense A100" (A100, A800), "dense Hopper+" (H100 and later), "dense, other GPUs".
std::string_view TrainingStratum(const Configuration& row);
// "memory torch_allocated", by meter.
std::string MemoryStratum(const Configuration& row);

}  // namespace orrery::search
