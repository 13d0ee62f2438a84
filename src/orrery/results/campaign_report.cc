#include "orrery/results/campaign_report.h"

#include <fmt/format.h>

#include <span>

#include "orrery/base/text.h"
#include "orrery/results/parts.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

using Json = nlohmann::ordered_json;

template <typename Of>
struct NamedField {
  const char* name;
  double Of::*member;
  bool known = true;  // false: 0 means that it is not known
  const char* meaning;
};

constexpr NamedField<campaign::Cost> kCostFields[] = {
    {"usd_per_gpu_hour", &campaign::Cost::usd_per_gpu_hour, false, "price of a GPU and hour"},
    {"gpu_hours_per_million_tokens", &campaign::Cost::gpu_hours_per_million_tokens, true,
     "GPU-hours"},
    {"usd_per_million_tokens", &campaign::Cost::usd_per_million_tokens, false, "USD"},
    {"tokens_per_usd", &campaign::Cost::tokens_per_usd, false, "tokens for a USD"},
    {"watts_per_gpu", &campaign::Cost::watts_per_gpu, false, "mean power of a GPU's board"},
    {"facility_kw", &campaign::Cost::facility_kw, false, "power of GPUs, servers and building"},
    {"kwh_per_million_tokens", &campaign::Cost::kwh_per_million_tokens, false,
     "energy of GPUs, servers and building"},
    {"kg_co2e_per_million_tokens", &campaign::Cost::kg_co2e_per_million_tokens, false,
     "kg of CO2 equivalent"},
};
constexpr NamedField<campaign::WholeRun> kRunFields[] = {
    {"tokens", &campaign::WholeRun::tokens, true, "of the whole training"},
    {"steps", &campaign::WholeRun::steps, true, "of the whole training"},
    {"days", &campaign::WholeRun::days, true, "of the whole training"},
    {"days_low", &campaign::WholeRun::days_low, true, "lower end of the days' interval"},
    {"days_high", &campaign::WholeRun::days_high, true, "upper end of the days' interval"},
    {"gpu_hours", &campaign::WholeRun::gpu_hours, true, "of the whole training"},
    {"usd", &campaign::WholeRun::usd, false, "of the whole training"},
    {"mwh", &campaign::WholeRun::mwh, false, "of the whole training"},
    {"t_co2e", &campaign::WholeRun::t_co2e, false, "tonnes of CO2 equivalent"},
};
constexpr NamedField<campaign::Goodput> kGoodputFields[] = {
    {"expected", &campaign::Goodput::expected, true, "share of the time that makes progress"},
    {"mean", &campaign::Goodput::mean, true, "of the drawn runs"},
    {"low", &campaign::Goodput::low, true, "of 5 % of the drawn runs at most"},
    {"high", &campaign::Goodput::high, true, "of 95 % of the drawn runs at most"},
    {"failures_per_day", &campaign::Goodput::failures_per_day, true, "interruptions of the run"},
    {"hours_between_failures", &campaign::Goodput::hours_between_failures, false, "mean"},
    {"checkpoint_bytes", &campaign::Goodput::checkpoint_bytes, true, "weights and optimizer state"},
    {"checkpoint_stall_s", &campaign::Goodput::stall_s, true, "training waits for a checkpoint"},
    {"checkpoint_lag_s", &campaign::Goodput::lag_s, true, "until a checkpoint can be used"},
    {"load_s", &campaign::Goodput::load_s, true, "to read a checkpoint"},
    {"down_s", &campaign::Goodput::down_s, true, "detection, restart and reading the checkpoint"},
    {"interval_s", &campaign::Goodput::interval_s, true, "of training between checkpoints"},
    {"best_interval_s", &campaign::Goodput::best_interval_s, false, "that loses least"},
    {"young_interval_s", &campaign::Goodput::young_interval_s, false, "by Young's formula"},
    {"daly_interval_s", &campaign::Goodput::daly_interval_s, false, "by Daly's formula"},
    {"checkpoint_share", &campaign::Goodput::checkpoint_share, true, "of the time: checkpoints"},
    {"lost_share", &campaign::Goodput::lost_share, true, "of the time: work done twice"},
    {"down_share", &campaign::Goodput::down_share, true, "of the time: detection and restart"},
    {"waiting_share", &campaign::Goodput::waiting_share, true, "of the time: no spare node"},
    {"slow_share", &campaign::Goodput::slow_share, true, "of the time: slow or missing nodes"},
    {"days", &campaign::Goodput::days, true, "length of the run, with failures"},
};

template <typename Of>
Json FieldsJson(const Of& of, std::span<const NamedField<Of>> fields) {
  Json json;
  for (const NamedField<Of>& field : fields) {
    const double value = of.*field.member;
    json[field.name] = field.known || value != 0 ? Json(value) : Json(nullptr);
  }
  return json;
}

template <typename Of>
Json FieldsSchema(std::span<const NamedField<Of>> fields) {
  Json properties;
  for (const NamedField<Of>& field : fields) {
    Json type = field.known ? Json("number") : Json::array({"number", "null"});
    properties[field.name] = {{"type", std::move(type)}, {"description", field.meaning}};
  }
  return {{"type", "object"}, {"properties", std::move(properties)}};
}

// Four figures, with commas where it has more.
std::string Figure(double value) {
  if (value >= 10'000) return HumanCount(static_cast<std::int64_t>(value + 0.5));
  return fmt::format("{:.4g}", value);
}

// Milliseconds to days.
std::string Duration(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds < 2 * kMinute) return HumanSeconds(seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.1f} min", seconds / kMinute);
  return fmt::format("{:.1f} h", seconds / kHour);
}

}  // namespace

Json CostJson(const campaign::Cost& cost) {
  Json json = FieldsJson<campaign::Cost>(cost, kCostFields);
  if (cost.run) json["run"] = FieldsJson<campaign::WholeRun>(*cost.run, kRunFields);
  return json;
}

Json GoodputJson(const campaign::Goodput& goodput) {
  return FieldsJson<campaign::Goodput>(goodput, kGoodputFields);
}

Json CostSchema() {
  Json schema = FieldsSchema<campaign::Cost>(kCostFields);
  schema["properties"]["run"] = FieldsSchema<campaign::WholeRun>(kRunFields);
  return schema;
}

Json GoodputSchema() { return FieldsSchema<campaign::Goodput>(kGoodputFields); }

std::string CostText(const campaign::Cost& cost) {
  TextTable table;
  const bool usd = cost.usd_per_gpu_hour > 0, power = cost.watts_per_gpu > 0;
  table.Row({"a million tokens",
             fmt::format("{} GPU-hours", Figure(cost.gpu_hours_per_million_tokens)),
             usd ? fmt::format("{} USD", Figure(cost.usd_per_million_tokens))
                 : "no price known: cost.price_per_gpu_hour",
             power ? fmt::format("{} kWh", Figure(cost.kwh_per_million_tokens))
                   : "no power known: cluster.device.power",
             power ? fmt::format("{} kg CO2e", Figure(cost.kg_co2e_per_million_tokens)) : ""});
  if (cost.run) {
    const campaign::WholeRun& run = *cost.run;
    table.Row({fmt::format("{:.4g} tokens", run.tokens),
               fmt::format("{} GPU-hours", Figure(run.gpu_hours)),
               usd ? fmt::format("{} USD", Figure(run.usd)) : "",
               power ? fmt::format("{} MWh", Figure(run.mwh)) : "",
               power ? fmt::format("{} t CO2e", Figure(run.t_co2e)) : ""});
  }
  std::string text = table.Render("  ");
  if (cost.run) {
    text += fmt::format("  {} steps in {:.1f} days, {:.1f} to {:.1f}\n", Figure(cost.run->steps),
                        cost.run->days, cost.run->days_low, cost.run->days_high);
  }
  if (usd) text += fmt::format("  {} tokens a USD\n", Figure(cost.tokens_per_usd));
  if (power) {
    text += fmt::format("  {:.0f} W a GPU on average, {} kW with servers and building\n",
                        cost.watts_per_gpu, Figure(cost.facility_kw));
  }
  return text;
}

std::string GoodputText(const campaign::Goodput& g) {
  std::string text = fmt::format("  goodput      {} of the time makes progress, {} to {} of runs\n",
                                 Percent(g.expected), Percent(g.low), Percent(g.high));
  if (g.failures_per_day == 0) return text + "  nothing fails\n";
  text += fmt::format("  failures     {} a day, {} between two\n", Figure(g.failures_per_day),
                      Duration(g.hours_between_failures * 3600));
  text += fmt::format("  checkpoint   {}, training waits {}, usable {} later; read in {}\n",
                      HumanBytes(static_cast<std::int64_t>(g.checkpoint_bytes)),
                      Duration(g.stall_s), Duration(g.lag_s), Duration(g.load_s));
  text += fmt::format("  every        {} of training (best: {}; Young {}, Daly {})\n",
                      Duration(g.interval_s), Duration(g.best_interval_s),
                      Duration(g.young_interval_s), Duration(g.daly_interval_s));
  TextTable table;
  const auto row = [&](const char* name, double share, const char* meaning) {
    if (share > 0) table.Row({name, Percent(share), meaning});
  };
  row("lost", g.lost_share, "work since the last usable checkpoint, done twice");
  row("down", g.down_share, "detection, restart, reading the checkpoint");
  row("checkpoints", g.checkpoint_share, "training waits for them");
  row("waiting", g.waiting_share, "for a node, with no spare left");
  row("slow", g.slow_share, "slow nodes, or replicas that are missing");
  table.AlignRight(1);
  return text + table.Render("  ");
}

}  // namespace orrery::results
