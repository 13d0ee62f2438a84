#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "orrery/search/figure/figure.h"
#include "orrery/search/validate/report.h"

namespace orrery::search {

std::string ReportToSvg(const Report& report) {
  const std::string unit = report.kind == TableKind::kTraining ? "s, or GiB of memory" : "us";
  Figure figure{.title = "Predicted against measured",
                .x_label = "measured (" + unit + ")",
                .y_label = "predicted (" + unit + ")",
                .categories = {},
                .logarithmic = true,
                .series = {}};
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const ErrorSummary& stratum : report.by_stratum) {
    FigureSeries series{
        .name = fmt::format("{}, mean {:.1f} %", stratum.stratum, stratum.errors.mean_abs_pct),
        .points = {}};
    for (const Prediction& p : report.rows) {
      if (!p.error_pct() || p.stratum != stratum.stratum || Name(p.quantity) != stratum.quantity) {
        continue;
      }
      series.points.push_back({*p.measured, *p.predicted, ""});
      low = std::min({low, *p.measured, *p.predicted});
      high = std::max({high, *p.measured, *p.predicted});
    }
    if (!series.points.empty()) figure.series.push_back(std::move(series));
  }
  if (figure.series.empty()) {
    figure.title = "No row is both measured and predicted.";
    return ToSvg(figure);
  }
  figure.series.push_back(
      {.name = "as measured", .points = {{low, low, ""}, {high, high, ""}}, .line = true});
  return ToSvg(figure);
}

}  // namespace orrery::search
