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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/constants/set.h"
#include "orrery/constants/spreads.h"
#include "orrery/formats/csv.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/statistics.h"

namespace orrery::search {

struct RowTables;  // row_tables.h

struct ValidateOptions {
  int threads = 0;                // 0: one per core
  std::string measured_database;  // of compute::Options
  bool measured_kernels = false;  // kernels priced by it where it reaches
  constants::Set constants = constants::Set::Fitted();
  // Predict each row also with the constants that were fitted without its source.
  bool leave_out = false;
  std::optional<std::string> network;       // of training runs; empty: analytic
  std::shared_ptr<const RowTables> tables;  // null: what is built in
  // Called from any thread, one at a time, as rows are done.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

enum class Quantity : std::uint8_t { kStepTime, kPeakMemory, kCollectiveTime };
std::string_view Name(Quantity quantity);  // "step_time_s", "peak_mem_gib", "time_us"

struct Prediction {
  std::string id;      // the row's number, from 1, where the table has no id
  std::string source;  // what the summary groups by
  std::string log;     // sources of one log are left out together
  std::string label;   // the source as tables show it: short
  std::string stratum;
  Quantity quantity = Quantity::kStepTime;
  std::optional<double> measured, predicted;
  // 80 % of measurements lie between predicted / (1 + width) and predicted · (1 + width).
  double width = 0;
  constants::StepShares shares;  // of a step
  constants::MemoryShares memory;
  double fixed_share = 0;         // of a collective: latencies and set-up
  std::uint64_t fingerprint = 0;  // of a step: what `orrery simulate` prints of the row's job
  // The same with constants that were fitted without the row's log; only with leave_out.
  std::optional<double> left_out;
  double left_out_width = 0;
  std::string duplicate_group;  // rows that share one differ in outcome only; empty: none known
  std::string reason;           // why refused: "column=value: …"
  std::vector<std::string> assumed;

  bool refused() const { return !predicted.has_value(); }
  // Refused since a column that the run cannot be set up without is blank.
  bool unstated() const { return refused() && reason.find(" is blank: ") != std::string::npos; }
  std::optional<double> error_pct() const;  // signed: positive is too slow, too much
  std::optional<double> left_out_error_pct() const;
  // Whether `measured` lies in the interval, left out where that was asked for.
  std::optional<bool> in_interval() const;
};

struct Report {
  std::string table;
  TableKind kind = TableKind::kTraining;
  bool measured_kernels = false;  // a table of measured kernels was at hand
  std::vector<Prediction> rows;
  std::vector<ErrorSummary> by_stratum, by_source, by_source_and_stratum;
  std::vector<std::string> warnings;
};

// The quantities of a training row: its step time, and its peak memory where one is given or a
// meter is named; both where no outcome is given at all.
Result<Report> ValidateTable(const formats::CsvTable& table, const ValidateOptions& options);

// A row's job (row_job.h) as YAML, for `orrery simulate`.
struct RowDocument {
  std::string id;  // of the row
  std::string yaml;
};
// Of every training row that is not refused, in row order.
Result<std::vector<RowDocument>> ExportJobs(const formats::CsvTable& table,
                                            const ValidateOptions& options);

// As CSV, a line for every predicted step or collective: id, source, stratum, quantity, measured,
// predicted, and for every constant d ln(predicted) by one a-priori spread of it, as a one-sided
// difference of half a spread inside its range; 0 where the row cannot depend on it. A table costs
// as many runs as its rows have constants in scope.
Result<std::string> Sensitivities(const formats::CsvTable& table, const ValidateOptions& options);

}  // namespace orrery::search
