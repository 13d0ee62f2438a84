#include <fmt/format.h>

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
  row["log"] = p.log;
  row["quantity"] = Name(p.quantity);
  row["measured"] = Value(p.measured);
  row["predicted"] = Value(p.predicted);
  if (p.fingerprint != 0) row["fingerprint"] = fmt::format("{:016x}", p.fingerprint);
  row["error_pct"] = Value(p.error_pct());
  if (p.predicted) {
    row["interval"] = {*p.predicted / (1 + p.width), *p.predicted * (1 + p.width)};
  } else {
    row["interval"] = nullptr;
  }
  if (p.left_out) {
    row["left_out"] = {
        {"predicted", *p.left_out},
        {"error_pct", Value(p.left_out_error_pct())},
        {"interval", {*p.left_out / (1 + p.left_out_width), *p.left_out * (1 + p.left_out_width)}}};
  }
  if (p.predicted && p.quantity == Quantity::kStepTime) {
    row["shares"] = {{"kernels", p.shares.kernels},
                     {"host", p.shares.host},
                     {"communication", p.shares.communication},
                     {"waiting", p.shares.waiting},
                     {"experts", p.shares.experts ? 1 : 0}};
  } else if (p.predicted && p.quantity == Quantity::kCollectiveTime) {
    row["shares"] = {{"fixed", p.fixed_share}};
  } else if (p.predicted) {
    row["shares"] = {{"memory_tensors", 1},
                     {"memory_allocator", p.memory.allocator ? 1 : 0},
                     {"memory_outside", p.memory.outside ? 1 : 0}};
  }
  row["stratum"] = p.stratum;
  row["status"] = p.refused() ? "refused" : "ok";
  row["reason"] = p.refused() ? Json(p.reason) : Json(nullptr);
  row["assumed"] = p.assumed;
  return row;
}

Json MomentsJson(const ErrorMoments& m) {
  const auto value = [&](double pct) { return m.rows > 0 ? Json(pct) : Json(nullptr); };
  return {{"median_abs_error_pct", value(m.median_abs_pct)},
          {"mean_abs_error_pct", value(m.mean_abs_pct)},
          {"bias_pct", value(m.bias_pct)}};
}

Json SummaryJson(const std::vector<ErrorSummary>& groups) {
  Json list = Json::array();
  for (const ErrorSummary& g : groups) {
    Json entry;
    if (!g.source.empty()) entry["source"] = g.source;
    if (!g.stratum.empty()) entry["stratum"] = g.stratum;
    entry["quantity"] = g.quantity;
    entry["rows"] = g.rows;
    entry["predicted"] = g.predicted;
    entry["compared"] = g.errors.rows;
    entry["coverage"] = g.coverage();
    entry.update(MomentsJson(g.errors));
    if (g.left_out.rows > 0) entry["left_out"] = MomentsJson(g.left_out);
    entry["in_interval"] = g.errors.rows > 0 ? Json(g.in_interval) : Json(nullptr);
    entry["repeated_rows"] = g.repeated;
    entry["noise_floor_pct"] = g.repeated > 0 ? Json(g.noise_floor_pct) : Json(nullptr);
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
