#include "orrery/search/sweep/sweep_json.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "orrery/base/text.h"
#include "orrery/results/breakdown_json.h"
#include "orrery/results/document.h"
#include "orrery/results/result.h"

namespace orrery::search {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t FromHex(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

RowStatus StatusNamed(const std::string& name) {
  for (const RowStatus status :
       {RowStatus::kOk, RowStatus::kDoesNotFit, RowStatus::kRefused, RowStatus::kInfeasible}) {
    if (Name(status) == name) return status;
  }
  throw std::out_of_range("unknown status");
}

}  // namespace

std::span<const OptionalColumn> OptionalColumns() {
  static constexpr OptionalColumn kColumns[] = {
      {"price_per_hour", &SweepRow::price_per_hour},
      {"gpu_hours_per_million_tokens", &SweepRow::gpu_hours},
      {"usd_per_million_tokens", &SweepRow::usd},
      {"kwh_per_million_tokens", &SweepRow::kwh},
      {"kg_co2e_per_million_tokens", &SweepRow::kg_co2e},
      {"days", &SweepRow::days},
      {"goodput", &SweepRow::goodput}};
  return kColumns;
}

std::string HexOf(std::uint64_t value) { return fmt::format("{:016x}", value); }

Json RowToJson(const SweepRow& row, const std::vector<std::string>& keys) {
  Json values = Json::object();
  for (std::size_t k = 0; k < keys.size(); ++k) values[keys[k]] = row.values[k];
  Json json = {{"point", row.point},
               {"values", std::move(values)},
               {"status", Name(row.status)},
               {"reason", row.reason.empty() ? Json(nullptr) : Json(row.reason)}};
  if (row.status == RowStatus::kRefused || row.status == RowStatus::kInfeasible) return json;
  json["gpus"] = row.gpus;
  json["step_time_s"] = static_cast<double>(row.step_time) / 1e12;
  json["step_time_ps"] = row.step_time;
  json["step_time_interval_s"] = {row.interval_low_s, row.interval_high_s};
  json["tokens_per_s"] = row.tokens_per_s;
  json["model_tflops_per_gpu"] = row.model_tflops_per_gpu;
  json["mfu"] = row.mfu > 0 ? Json(row.mfu) : Json(nullptr);
  json["memory_bytes"] = row.memory_bytes;
  json["memory_is_bound"] = row.memory_bound;
  for (const OptionalColumn& column : OptionalColumns()) {
    if (row.*column.member > 0) json[column.name] = row.*column.member;
  }
  Json parts;
  for (std::size_t i = 0; i < row.parts.size(); ++i) parts[results::PartName(i)] = row.parts[i];
  json["parts_ps"] = std::move(parts);
  return json;
}

SweepRow RowFromJson(const Json& json, const std::vector<std::string>& keys) {
  SweepRow row;
  row.point = json.at("point");
  for (const std::string& key : keys) row.values.push_back(json.at("values").at(key));
  row.status = StatusNamed(json.at("status"));
  if (!json.at("reason").is_null()) row.reason = json.at("reason");
  if (row.status == RowStatus::kRefused || row.status == RowStatus::kInfeasible) return row;
  row.gpus = json.at("gpus");
  row.step_time = json.at("step_time_ps");
  row.interval_low_s = json.at("step_time_interval_s").at(0);
  row.interval_high_s = json.at("step_time_interval_s").at(1);
  row.tokens_per_s = json.at("tokens_per_s");
  row.model_tflops_per_gpu = json.at("model_tflops_per_gpu");
  if (!json.at("mfu").is_null()) row.mfu = json.at("mfu");
  row.memory_bytes = json.at("memory_bytes");
  row.memory_bound = json.at("memory_is_bound");
  for (const OptionalColumn& column : OptionalColumns()) {
    row.*column.member = json.value(column.name, 0.0);
  }
  row.parts = results::BreakdownFrom(json.at("parts_ps"), "");
  return row;
}

std::string SweepToJson(const Sweep& sweep) {
  Json rows = Json::array();
  for (const SweepRow& row : sweep.rows) rows.push_back(RowToJson(row, sweep.keys));
  Json json = {
      {"schema", kSweepSchema}, {"job", sweep.source},          {"sweep_hash", HexOf(sweep.hash)},
      {"keys", sweep.keys},     {"points", sweep.points},       {"shard", sweep.shard},
      {"shards", sweep.shards}, {"complete", sweep.complete()}, {"rows", std::move(rows)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Sweep> SweepFromJson(std::string_view text, const std::string& name) {
  ORRERY_ASSIGN_OR_RETURN(const Json json,
                          results::ReadDocument(text, name, "sweep", kSweepSchema));
  try {
    Sweep sweep;
    sweep.source = json.at("job");
    sweep.hash = FromHex(json.at("sweep_hash"));
    sweep.keys = json.at("keys").get<std::vector<std::string>>();
    if (sweep.keys.empty()) throw std::out_of_range("no key");
    sweep.points = json.at("points");
    sweep.shard = json.at("shard");
    sweep.shards = json.at("shards");
    for (const Json& row : json.at("rows")) sweep.rows.push_back(RowFromJson(row, sweep.keys));
    return sweep;
  } catch (const std::exception& error) {
    return InvalidInput("{}: is no whole result of a sweep: {}", name,
                        Printable(error.what(), 120));
  }
}

}  // namespace orrery::search
