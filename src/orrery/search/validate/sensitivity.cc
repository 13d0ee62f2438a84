#include <cmath>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/constants/constants.h"
#include "orrery/search/validate/cases.h"
#include "orrery/search/validate/validate.h"

namespace orrery::search {
namespace {

constexpr double kStep = 0.5;  // of the a-priori spread

}  // namespace

Result<std::string> Sensitivities(const formats::CsvTable& table, const ValidateOptions& options) {
  Report report;
  std::vector<Case> cases;
  ORRERY_RETURN_IF_ERROR(MapCases(table, options, &report, &cases));
  // Memory depends on no constant: only times are predicted again.
  std::vector<Case> timed;
  for (Case& item : cases) {
    const Prediction& p = report.rows[item.first];
    if (p.quantity == Quantity::kPeakMemory || !p.reason.empty()) continue;
    timed.push_back(item);
    timed.back().count = 1;
  }
  const auto definitions = constants::Definitions();
  std::vector<constants::Set> sets = {options.constants};
  std::vector<double> moved(definitions.size());
  std::vector<Case> all = timed;
  std::vector<Prediction> rows(timed.size());
  for (std::size_t i = 0; i < timed.size(); ++i) all[i].first = i;
  // where[i * constants + c]: the prediction with constant c moved; 0 if out of scope.
  std::vector<std::size_t> where(timed.size() * definitions.size(), 0);
  for (std::size_t c = 0; c < definitions.size(); ++c) {
    const constants::Definition& d = definitions[c];
    const double at = options.constants.at(c), step = kStep * d.spread;
    const double to = at + step <= d.high ? at + step : at - step;
    moved[c] = (to - at) / d.spread;
    sets.push_back(options.constants);
    sets.back().set(c, to);
    for (std::size_t i = 0; i < timed.size(); ++i) {
      if (!timed[i].scope.Covers(d.scope)) continue;
      where[i * definitions.size() + c] = rows.size();
      all.push_back(timed[i]);
      all.back().first = rows.size();
      all.back().set = c + 1;
      rows.emplace_back();
    }
  }
  PredictCases(all, sets, options, &rows);
  std::string out = "id,log,stratum,quantity,measured,predicted";
  for (const constants::Definition& d : definitions) out += fmt::format(",{}", d.name);
  out += "\n";
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const Prediction& p = report.rows[timed[i].first];
    if (!rows[i].predicted || !p.measured) continue;
    const double base = *rows[i].predicted;
    out += fmt::format("{},{},{},{},{},{}", formats::CsvField(p.id), formats::CsvField(p.log),
                       formats::CsvField(p.stratum), Name(p.quantity), *p.measured, base);
    for (std::size_t c = 0; c < definitions.size(); ++c) {
      const std::size_t at = where[i * definitions.size() + c];
      const bool known = at > 0 && rows[at].predicted.has_value() && base > 0;
      out += fmt::format(",{:.6g}", known ? std::log(*rows[at].predicted / base) / moved[c] : 0.0);
    }
    out += "\n";
  }
  return out;
}

}  // namespace orrery::search
