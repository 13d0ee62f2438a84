#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "orrery/base/text.h"
#include "orrery/results/campaign_report.h"
#include "orrery/results/result.h"
#include "orrery/results/table.h"
#include "orrery/search/figure/figure.h"
#include "orrery/search/plan/plan.h"

namespace orrery::search {
namespace {

using Json = nlohmann::ordered_json;

std::string Number(std::uint64_t n) { return HumanCount(static_cast<std::int64_t>(n)); }

std::string Short(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// A key that goes with another one and has no value there: how many layers, where none runs again.
bool IsUnset(const std::string& value) { return value == "null"; }

// What a plan gains and costs against the job as it was given.
std::string Against(const PlanRow& row, const PlanRow& given) {
  const auto step = [](const PlanRow& r) {
    return static_cast<double>(r.result.step_time) /
           static_cast<double>(std::max<std::int64_t>(r.tokens_per_step, 1));
  };
  const double faster = step(given) / step(row) - 1;
  const std::int64_t memory = row.memory_bytes - given.memory_bytes;
  return fmt::format("{:+.1f} % tokens/s, {}{} memory", faster * 100, memory >= 0 ? "+" : "-",
                     HumanBytes(std::abs(memory)));
}

// A column for what the rows' cost and goodput say, where the search asked for them.
struct CampaignColumn {
  std::string heading;
  std::function<double(const PlanRow&)> value;
};
std::vector<CampaignColumn> CampaignColumns(const PlanResult& result) {
  std::vector<CampaignColumn> columns;
  const results::JobResult& first = result.rows.front().result;
  if (first.cost) {
    const bool usd = first.cost->usd_per_gpu_hour > 0;
    columns.push_back({usd ? "USD/M tokens" : "GPU-h/M tokens", [usd](const PlanRow& row) {
                         return usd ? row.result.cost->usd_per_million_tokens
                                    : row.result.cost->gpu_hours_per_million_tokens;
                       }});
    if (first.cost->kwh_per_million_tokens > 0) {
      columns.push_back({"kWh/M tokens", [](const PlanRow& row) {
                           return row.result.cost->kwh_per_million_tokens;
                         }});
    }
    if (first.cost->run) {
      columns.push_back({"days", [](const PlanRow& row) { return row.result.cost->run->days; }});
    }
  }
  if (first.goodput) {
    columns.push_back({"goodput", [](const PlanRow& row) { return row.result.goodput->expected; }});
  }
  return columns;
}

void AddRows(const PlanResult& result, std::string* text) {
  results::TextTable table;
  std::vector<std::string> head = {""};
  for (const std::string& key : result.keys) head.push_back(Short(key));
  for (const char* name : {"step time", "80 % interval", "tokens/s", "MFU", "memory"}) {
    head.emplace_back(name);
  }
  const std::vector<CampaignColumn> columns = CampaignColumns(result);
  for (const CampaignColumn& column : columns) head.push_back(column.heading);
  const bool against = result.given && result.given->result.step_time > 0;
  head.emplace_back(against ? "against 'given'" : "");
  for (std::size_t c = 1; c + 1 < head.size(); ++c) table.AlignRight(c);
  table.Row(std::move(head));
  const auto add = [&](std::string name, const std::vector<std::string>& values, const PlanRow& row,
                       std::string note) {
    std::vector<std::string> cells = {std::move(name)};
    for (const std::string& value : values) {
      cells.push_back(IsUnset(value) ? "-" : Printable(value, 40));
    }
    cells.push_back(HumanTime(row.result.step_time));
    cells.push_back(fmt::format("{} to {}", HumanSeconds(row.result.interval_low_s),
                                HumanSeconds(row.result.interval_high_s)));
    cells.push_back(HumanCount(std::llround(row.result.tokens_per_s)));
    cells.push_back(row.result.mfu > 0 ? fmt::format("{:.1f} %", row.result.mfu * 100) : "");
    cells.push_back(HumanBytes(row.memory_bytes));
    const bool asked = row.result.cost.has_value() || row.result.goodput.has_value();
    for (const CampaignColumn& column : columns) {
      cells.push_back(asked ? fmt::format("{:.4g}", column.value(row)) : "");
    }
    cells.push_back(std::move(note));
    table.Row(std::move(cells));
  };
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    const PlanRow& row = result.rows[i];
    std::string note = row.tie ? "ties with the first" : "";
    if (row.searched_step > 0) {
      note +=
          fmt::format("{}{} in the search", note.empty() ? "" : "; ", HumanTime(row.searched_step));
    }
    if (against) {
      note += fmt::format("{}{}", note.empty() ? "" : "; ", Against(row, *result.given));
    }
    add(fmt::format("{}", i + 1), row.values, row, std::move(note));
  }
  if (against) {
    add("given", std::vector<std::string>(result.keys.size()), *result.given,
        result.given->fits ? "" : "does not fit");
  }
  *text += table.Render("  ");
  if (result.given && result.given->result.step_time == 0) {
    *text += fmt::format("  The job as given does not fit: it needs at least {}.\n",
                         HumanBytes(result.given->least_bytes));
  }
}

std::string Turn(const PlanTurn& turn, const PlanResult& result) {
  std::string values;
  for (std::size_t k = 0; k < result.keys.size(); ++k) {
    const std::string& value = result.rows[turn.row].values[k];
    if (IsUnset(value)) continue;
    values += fmt::format("{}{} {}", values.empty() ? "" : ", ", Short(result.keys[k]), value);
  }
  return fmt::format("  With {} {} by {:.0f} % plan {} would come first ({}).\n", turn.key,
                     turn.factor < 1 ? "down" : "up", std::abs(turn.factor - 1) * 100, turn.row + 1,
                     values);
}

void AddSearch(const PlanResult& result, std::string* text) {
  const PlanCounts& c = result.counts;
  *text += fmt::format("\nThe search\n  {} plan{} in the space", Number(c.points),
                       c.points == 1 ? "" : "s");
  if (c.not_sampled > 0)
    *text += fmt::format(", {} of them not in the sample", Number(c.not_sampled));
  *text += "\n";
  const auto line = [&](std::uint64_t n, std::string_view what) {
    if (n > 0) *text += fmt::format("  {:>12}  {}\n", Number(n), what);
  };
  line(c.impossible, "with degrees that do not go together");
  line(c.equal, "the same as another plan");
  line(c.refused, "refused by a rule of the job file, framework or model");
  line(c.too_large, "too large for the GPU's memory");
  line(c.pruned, "excluded by a lower bound of their step time: not better than what was found");
  line(c.left, "not reached when the search ended");
  line(c.evaluated, "simulated");
  if (c.replay_full > 0) {
    *text += fmt::format("  {:>12}  of these do not fit once the allocator is replayed\n",
                         Number(c.replay_full));
  }
  if (!result.reranked.empty()) {
    *text += fmt::format(
        "  The {} best were run again on network {}, whose order this is; what is proven is so on "
        "the network of the search.\n",
        result.finalists, result.reranked);
  }
  if (result.proven) {
    *text += fmt::format("  Proven: no other plan of this space is better{}.\n",
                         result.rows.size() > 1 && result.objectives.size() == 1
                             ? fmt::format(" than these {}", result.rows.size())
                             : "");
  } else if (result.below_bound > 0) {
    *text +=
        fmt::format("  Not proven: {} plans came out faster than their bound; please report it.\n",
                    Number(result.below_bound));
  } else if (result.interrupted) {
    *text += fmt::format(
        "  Interrupted: not proven. What was left could be better by {:.1f} % at most.\n",
        result.left_better * 100);
  } else {
    *text += fmt::format(
        "  Not proven: {}could be better by {:.1f} % at most.\n",
        c.not_sampled > 0 ? "beside what was not sampled, what was left " : "what was left ",
        result.left_better * 100);
  }
}

Json RowJson(const PlanRow& row, const PlanResult& result) {
  Json values = Json::object();
  for (std::size_t k = 0; k < row.values.size(); ++k) values[result.keys[k]] = row.values[k];
  Json scores = Json::object();
  for (std::size_t i = 0; i < row.scores.size(); ++i) {
    scores[std::string(Info(result.objectives[i]).name)] = row.scores[i];
  }
  Json json = {{"values", std::move(values)},
               {"gpus", row.gpus},
               {"step_time_s", static_cast<double>(row.result.step_time) / 1e12},
               {"step_time_ps", row.result.step_time},
               {"step_time_interval_s", {row.result.interval_low_s, row.result.interval_high_s}},
               {"tokens_per_s", row.result.tokens_per_s},
               {"memory_bytes", row.memory_bytes},
               {"fits", row.fits},
               {"ties_with_best", row.tie},
               {"scores", std::move(scores)}};
  if (row.result.mfu > 0) json["mfu"] = row.result.mfu;
  Json parts;
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    parts[results::PartName(i)] = row.result.overall.parts[i];
  }
  json["parts_ps"] = std::move(parts);
  if (row.searched_step > 0) json["searched_step_time_ps"] = row.searched_step;
  if (row.result.cost) json["cost"] = results::CostJson(*row.result.cost);
  if (row.result.goodput) json["goodput"] = results::GoodputJson(*row.result.goodput);
  return json;
}

}  // namespace

std::string PlanToText(const PlanResult& result) {
  std::string text = fmt::format("{}: ", Printable(result.source));
  if (result.by_default) {
    text += "leaves nothing open, so degrees, micro-batch and recompute are varied\n\n";
  } else {
    text +=
        fmt::format("{} key{} open\n\n", result.keys.size(), result.keys.size() == 1 ? "" : "s");
  }
  if (result.objectives.size() > 1) {
    std::string names;
    for (const Objective o : result.objectives) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", Info(o).name);
    }
    text += fmt::format("The front of {}: no plan is better in all of them\n", names);
  } else {
    text += fmt::format("The best plans ({})\n", Info(result.objectives.front()).description);
  }
  AddRows(result, &text);
  if (!result.turns.empty() || !result.steady.empty()) text += "\nIf the cluster were different\n";
  for (const PlanTurn& turn : result.turns) text += Turn(turn, result);
  for (const std::string& key : result.steady) {
    text += fmt::format("  With {} halved or doubled plan 1 stays first of these.\n", key);
  }
  AddSearch(result, &text);
  return text;
}

std::string PlanToJson(const PlanResult& result) {
  const PlanCounts& c = result.counts;
  Json objectives = Json::array(), rows = Json::array(), turns = Json::array(),
       why = Json::object();
  for (const Objective o : result.objectives) objectives.push_back(Info(o).name);
  for (const PlanRow& row : result.rows) rows.push_back(RowJson(row, result));
  for (const PlanTurn& turn : result.turns) {
    turns.push_back({{"key", turn.key},
                     {"factor", turn.factor},
                     {"value", turn.value},
                     {"first_then", turn.row}});
  }
  for (const auto& [rule, times] : c.why) why[rule] = times;
  Json json = {{"schema", kPlanSchema},
               {"job", result.source},
               {"objectives", std::move(objectives)},
               {"keys", result.keys},
               {"opened_by_default", result.by_default},
               {"proven", result.proven},
               {"interrupted", result.interrupted},
               {"left_could_be_better_by", result.left_better},
               {"plans", std::move(rows)},
               {"turns", std::move(turns)},
               {"steady", result.steady},
               {"search",
                {{"points", c.points},
                 {"not_sampled", c.not_sampled},
                 {"impossible", c.impossible},
                 {"equal", c.equal},
                 {"refused", c.refused},
                 {"too_large", c.too_large},
                 {"pruned", c.pruned},
                 {"left", c.left},
                 {"evaluated", c.evaluated},
                 {"replayed", c.replayed},
                 {"replayed_and_full", c.replay_full},
                 {"families", c.families},
                 {"why", std::move(why)}}}};
  if (!result.reranked.empty()) json["reranked_on"] = result.reranked;
  if (result.given) json["given"] = RowJson(*result.given, result);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string PlanToSvg(const PlanResult& result) {
  constexpr double kGib = 1 << 30;
  Figure figure{.title = fmt::format("{}: tokens per second against memory", result.source),
                .x_label = "memory of the fullest GPU (GiB)",
                .y_label = "tokens per second (1,000)",
                .categories = {},
                .series = {}};
  const auto at = [&](const PlanRow& row, std::string label) {
    const std::int64_t bytes = row.memory_bytes > 0 ? row.memory_bytes : row.least_bytes;
    return FigurePoint{static_cast<double>(bytes) / kGib, row.result.tokens_per_s / 1000,
                       std::move(label)};
  };
  FigureSeries others{.name = "others (memory: at least)", .points = {}, .faint = true};
  for (const PlanRow& row : result.seen) others.points.push_back(at(row, ""));
  if (!others.points.empty()) figure.series.push_back(std::move(others));
  const bool front = result.objectives.size() > 1;
  FigureSeries best{.name = front ? "front" : "best", .points = {}, .line = front};
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    best.points.push_back(at(result.rows[i], fmt::format("{}", i + 1)));
  }
  if (front) std::ranges::stable_sort(best.points, {}, &FigurePoint::x);
  figure.series.push_back(std::move(best));
  if (result.given && result.given->result.step_time > 0) {
    figure.series.push_back({.name = "as given", .points = {at(*result.given, "")}});
  }
  return ToSvg(figure);
}

}  // namespace orrery::search
