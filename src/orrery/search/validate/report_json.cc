#include <nlohmann/json.hpp>

#include "orrery/search/validate/report.h"

namespace orrery::search {
namespace {

using Json = nlohmann::ordered_json;

Json Value(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json RowJson(const Prediction& p) {
  Json row;
  row["id"] = p.id;
  row["source"] = p.source;
  row["quantity"] = Name(p.quantity);
  row["measured"] = Value(p.measured);
  row["predicted"] = Value(p.predicted);
  row["error_pct"] = Value(p.error_pct());
  row["stratum"] = p.stratum;
  row["status"] = p.refused() ? "refused" : "ok";
  row["reason"] = p.refused() ? Json(p.reason) : Json(nullptr);
  row["assumed"] = p.assumed;
  return row;
}

Json SummaryJson(const std::vector<Summary>& groups) {
  Json list = Json::array();
  for (const Summary& g : groups) {
    Json entry;
    if (!g.source.empty()) entry["source"] = g.source;
    if (!g.stratum.empty()) entry["stratum"] = g.stratum;
    entry["quantity"] = g.quantity;
    entry["rows"] = g.rows;
    entry["predicted"] = g.predicted;
    entry["compared"] = g.compared;
    entry["coverage"] = g.coverage();
    const bool any = g.compared > 0;
    entry["median_abs_error_pct"] = any ? Json(g.median_abs_pct) : Json(nullptr);
    entry["mean_abs_error_pct"] = any ? Json(g.mean_abs_pct) : Json(nullptr);
    entry["bias_pct"] = any ? Json(g.bias_pct) : Json(nullptr);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

std::string ReportToJson(const Report& report) {
  Json document;
  document["schema"] = "orrery.validation/1";
  document["table"] = report.table;
  document["kind"] = report.kind == TableKind::kTraining ? "training" : "collectives";
  document["measured_kernels"] = report.measured_kernels;
  document["summary"]["by_stratum"] = SummaryJson(report.by_stratum);
  document["summary"]["by_source"] = SummaryJson(report.by_source);
  document["summary"]["by_source_and_stratum"] = SummaryJson(report.by_source_and_stratum);
  document["warnings"] = report.warnings;
  Json rows = Json::array();
  for (const Prediction& p : report.rows) rows.push_back(RowJson(p));
  document["rows"] = std::move(rows);
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::search
