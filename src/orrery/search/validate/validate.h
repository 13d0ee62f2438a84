// `orrery validate`: every row of a table of measured runs predicted, and how far off it was.
//
// In:  a table of training runs or of nccl-tests output (docs/validation.md).
// Out: a prediction a row and quantity, refused with a reason where the simulator has no model, and
//      error statistics per source and per stratum, with coverage.
//
// A prediction reads configuration columns only (configuration.h). Rows are independent: threads
// take them by machine, so that clusters and block prices are shared; results stand in row order
// and do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/csv.h"
#include "orrery/search/validate/statistics.h"

namespace orrery::search {

struct ValidateOptions {
  int threads = 0;                // 0: one per core
  std::string measured_database;  // of compute::Options
  // Called from any thread, one at a time, as rows are done.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

enum class Quantity : std::uint8_t { kStepTime, kPeakMemory, kCollectiveTime };
std::string_view Name(Quantity quantity);  // "step_time_s", "peak_mem_gib", "time_us"

struct Prediction {
  std::string id;      // the row's number, from 1, where the table has no id
  std::string source;  // what the summary groups by
  std::string label;   // the source as tables show it: short
  std::string stratum;
  Quantity quantity = Quantity::kStepTime;
  std::optional<double> measured, predicted;
  std::string reason;  // why refused: "column=value: …"
  std::vector<std::string> assumed;

  bool refused() const { return !predicted.has_value(); }
  std::optional<double> error_pct() const;  // signed: positive is too slow, too much
};

struct Report {
  std::string table;
  TableKind kind = TableKind::kTraining;
  bool measured_kernels = false;  // a table of measured kernels was at hand
  std::vector<Prediction> rows;
  std::vector<Summary> by_stratum, by_source, by_source_and_stratum;
  std::vector<std::string> warnings;
};

// The quantities of a training row: its step time, and its peak memory where one is given or a
// meter is named; both where no outcome is given at all.
Result<Report> ValidateTable(const CsvTable& table, const ValidateOptions& options);

}  // namespace orrery::search
