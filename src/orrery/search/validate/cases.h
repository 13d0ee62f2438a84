// The rows of a table, mapped once and predicted as often as somebody asks, with any constants.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orrery/constants/set.h"
#include "orrery/search/validate/collectives.h"
#include "orrery/search/validate/row_job.h"
#include "orrery/search/validate/runner.h"
#include "orrery/search/validate/validate.h"

namespace orrery::search {

// One row, mapped; its predictions stand at [first, first + count) of the report.
struct Case {
  std::size_t first = 0, count = 0;
  std::optional<RowJob> training;
  std::optional<CollectiveCase> collective;
  Meter meter = Meter::kAllocated;
  MeterRank rank = MeterRank::kMax;
  std::string machine;     // job::MachineText: rows of one machine run one after the other
  constants::Scope scope;  // what its constants may depend on
  std::size_t set = 0;     // which of the constants it is predicted with
};

// Fills report->kind and warnings; appends the rows' predictions, still blank or refused, to
// report->rows and a case for each row that can be run.
Status MapCases(const formats::CsvTable& table, const ValidateOptions& options, Report* report,
                std::vector<Case>* cases);

// Fills what `cases` point at, with constants[case.set].
void PredictCases(const std::vector<Case>& cases, std::span<const constants::Set> constants,
                  const ValidateOptions& options, std::vector<Prediction>* rows);

}  // namespace orrery::search
