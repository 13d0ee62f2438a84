#include "orrery/search/validate/validate.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/constants/constants.h"
#include "orrery/search/validate/cases.h"
#include "orrery/search/validate/row_tables.h"

namespace orrery::search {
namespace {

// Every row gets the constants that were fitted without its log.
void ChooseSets(const Report& report, std::vector<Case>* cases, std::vector<constants::Set>* sets) {
  std::map<std::string, std::size_t> of_log;
  for (Case& item : *cases) {
    const std::string& log = report.rows[item.first].log;
    const auto [at, fresh] = of_log.try_emplace(log, 0);
    constants::Set set;
    if (fresh && constants::Set::LeftOut(log, &set)) {
      at->second = sets->size();
      sets->push_back(set);
    }
    item.set = at->second;
  }
}

}  // namespace

std::string_view Name(Quantity quantity) {
  switch (quantity) {
    case Quantity::kStepTime:
      return "step_time_s";
    case Quantity::kPeakMemory:
      return "peak_mem_gib";
    case Quantity::kCollectiveTime:
      return "time_us";
  }
  return "?";
}

std::optional<double> Prediction::error_pct() const {
  if (!measured || !predicted) return std::nullopt;
  return (*predicted / *measured - 1) * 100;
}

std::optional<double> Prediction::left_out_error_pct() const {
  if (!measured || !left_out) return std::nullopt;
  return (*left_out / *measured - 1) * 100;
}

std::optional<bool> Prediction::in_interval() const {
  if (!measured || !predicted) return std::nullopt;
  const double at = left_out ? *left_out : *predicted;
  const double w = left_out ? left_out_width : width;
  return *measured >= at / (1 + w) && *measured <= at * (1 + w);
}

Result<Report> ValidateTable(const formats::CsvTable& table, const ValidateOptions& options) {
  Report report;
  report.table = table.name();
  report.measured_kernels = options.measured_kernels;
  std::vector<Case> cases;
  ORRERY_RETURN_IF_ERROR(MapCases(table, options, &report, &cases));
  std::vector<constants::Set> sets = {options.constants};
  const std::vector<Prediction> blank = report.rows;
  PredictCases(cases, sets, options, &report.rows);
  if (options.leave_out) {
    ChooseSets(report, &cases, &sets);
    std::vector<Prediction> rows = blank;
    PredictCases(cases, sets, options, &rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      report.rows[i].left_out = rows[i].predicted;
      report.rows[i].left_out_width = rows[i].width;
    }
  }
  report.by_stratum = Summarise(report.rows, GroupBy::kStratum);
  report.by_source = Summarise(report.rows, GroupBy::kSource);
  report.by_source_and_stratum = Summarise(report.rows, GroupBy::kBoth);
  return report;
}

Result<std::vector<RowDocument>> ExportJobs(const formats::CsvTable& table,
                                            const ValidateOptions& options) {
  Report report;
  std::vector<Case> cases;
  ORRERY_RETURN_IF_ERROR(MapCases(table, options, &report, &cases));
  if (report.kind != TableKind::kTraining) {
    return InvalidInput("{}: rows of collectives are no jobs; give a table of training runs",
                        table.name());
  }
  std::vector<RowDocument> out;
  for (const Case& item : cases) {
    const Prediction& p = report.rows[item.first];
    job::Draft draft = item.training->draft;
    if (options.tables != nullptr) {  // from wherever the file lies
      std::vector<std::string> folders;
      for (const std::string& folder : options.tables->data->folders) {
        folders.push_back(std::filesystem::absolute(folder).string());
      }
      draft.SetTexts("data", folders);
    }
    for (const std::string& said : item.training->said) draft.Assume(said);
    out.push_back({p.id, fmt::format("# Row {} of {}.\n{}", Printable(p.id, 80), table.name(),
                                     draft.Yaml())});
  }
  return out;
}

}  // namespace orrery::search
