// Rows of a table of training runs, cell by cell, and what they map to.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "orrery/search/validate/row_job.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {

using Cells = std::map<std::string, std::string>;

inline const Cells kGpt175 = {{"framework_family", "megatron"},
                              {"framework_version", "r0.8.0"},
                              {"arch", "dense"},
                              {"model", "GPT-177B"},
                              {"layers", "96"},
                              {"hidden", "12288"},
                              {"heads", "96"},
                              {"ffn_hidden", "49152"},
                              {"vocab", "131072"},
                              {"seq_len", "4096"},
                              {"gpu", "H100-SXM5"},
                              {"gpu_mem_gb", "80"},
                              {"gpus", "2304"},
                              {"gpus_per_node", "8"},
                              {"fabric", "ib"},
                              {"nic_gbps_per_gpu", "400"},
                              {"network", "8x400 Gb/s NDR IB per node"},
                              {"tp", "8"},
                              {"pp", "6"},
                              {"dp", "48"},
                              {"sharding", "zero1"},
                              {"seq_parallel", "1"},
                              {"micro_batch", "1"},
                              {"global_batch", "1152"},
                              {"compute_dtype", "bf16"},
                              {"dp_overlap", "1"}};

struct Mapped {
  std::string error;
  struct {
    workload::Model model;
    workload::Plan plan;
    memory::Libraries libraries;
    cluster::Spec cluster;
    workload::HostEra host;
  } run;
  std::string document;
  std::vector<std::string> assumed;
  std::string stratum;
};

inline Cells With(Cells cells, const Cells& changes) {
  for (const auto& [column, value] : changes) cells[column] = value;
  return cells;
}

inline Mapped Map(const Cells& row_cells, const Cells& changes = {},
                  const RowTables& tables = BuiltInRowTables()) {
  const Cells cells = With(row_cells, changes);
  std::string header, row;
  for (const auto& [column, value] : cells) {
    header += fmt::format("{}{}", header.empty() ? "" : ",", column);
    row += fmt::format("{}\"{}\"", row.empty() ? "" : ",", value);
  }
  const auto table = formats::CsvTable::Parse(header + "\n" + row + "\n", "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  const auto measured = tables.columns.ReadAs(TableKind::kTraining, *table);
  EXPECT_TRUE(measured.ok()) << measured.status().message();
  const Configuration configuration(*measured, 0);
  Mapped out;
  Runner runner("");
  auto row_job = MapRow(configuration, tables, {}, &runner, &out.assumed);
  out.stratum = std::string(TrainingStratum(configuration));
  if (row_job.ok()) {
    const job::Workload& workload = row_job->job.workloads.front();
    out.run = {workload.model, workload.plan, workload.libraries, row_job->job.cluster,
               workload.host};
    out.document = row_job->document;
  } else {
    out.error = row_job.status().message();
  }
  return out;
}

// Of a row that maps.
inline workload::Plan PlanOf(const Cells& cells, const Cells& changes) {
  const Mapped mapped = Map(cells, changes);
  EXPECT_EQ(mapped.error, "");
  return mapped.run.plan;
}

}  // namespace orrery::search
