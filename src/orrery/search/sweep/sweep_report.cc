#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "orrery/base/text.h"
#include "orrery/formats/csv.h"
#include "orrery/results/result.h"
#include "orrery/results/table.h"
#include "orrery/search/figure/figure.h"
#include "orrery/search/sweep/sweep.h"
#include "orrery/search/sweep/sweep_json.h"

namespace orrery::search {
namespace {

constexpr std::size_t kMostShown = 100;  // rows of the table for a terminal

bool Ran(const SweepRow& row) {
  return row.status == RowStatus::kOk || row.status == RowStatus::kDoesNotFit;
}

// "tp" for "parallel.tp" unless another key ends so too.
std::vector<std::string> ShortNames(const std::vector<std::string>& keys) {
  const auto last = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const std::string& key : keys) {
    const auto same = std::count_if(keys.begin(), keys.end(), [&](const std::string& other) {
      return last(other) == last(key);
    });
    names.push_back(same > 1 ? key : last(key));
  }
  return names;
}

double Share(const SweepRow& row, bool exposed) {
  SimTime total = 0, part = 0;
  for (std::size_t i = 0; i < row.parts.size(); ++i) {
    total += row.parts[i];
    const bool counts = exposed ? i >= static_cast<std::size_t>(engine::Part::kExposed)
                                : i == static_cast<std::size_t>(engine::Part::kBubble) ||
                                      i == static_cast<std::size_t>(engine::Part::kWaiting) ||
                                      i == static_cast<std::size_t>(engine::Part::kNoise);
    if (counts) part += row.parts[i];
  }
  return total > 0 ? static_cast<double>(part) / static_cast<double>(total) : 0;
}

std::optional<std::size_t> Best(const Sweep& sweep) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    if (row.status != RowStatus::kOk) continue;
    if (!best || row.tokens_per_s > sweep.rows[*best].tokens_per_s) best = i;
  }
  return best;
}

// The columns of cost and goodput that any row has.
std::vector<OptionalColumn> ColumnsOf(const Sweep& sweep) {
  std::vector<OptionalColumn> columns;
  for (const OptionalColumn& column : OptionalColumns()) {
    if (column.member == &SweepRow::price_per_hour) continue;
    if (std::ranges::any_of(sweep.rows,
                            [&](const SweepRow& row) { return row.*column.member > 0; }))
      columns.push_back(column);
  }
  return columns;
}

std::string Heading(const OptionalColumn& column) {
  std::string name = column.name;
  std::ranges::replace(name, '_', ' ');
  constexpr std::string_view kPer = " per million tokens";
  if (name.ends_with(kPer)) name = name.substr(0, name.size() - kPer.size()) + "/M tokens";
  return name;
}

std::string Note(const Sweep& sweep, const SweepRow& row, bool best) {
  switch (row.status) {
    case RowStatus::kOk:
      return best ? "most tokens/s" : "";
    case RowStatus::kDoesNotFit:
      return "does not fit";
    case RowStatus::kRefused:
    case RowStatus::kInfeasible:
      break;
  }
  // The file's name stands above the table.
  const bool named = row.reason.starts_with(sweep.source + ": ");
  std::string reason = row.reason.substr(named ? sweep.source.size() + 2 : 0);
  // "training.global_batch=128: training.global_batch: …" names its key twice.
  const std::size_t first = reason.find(": "), equals = reason.find('=');
  if (first != reason.npos && equals < first &&
      reason.compare(first + 2, equals + 1, reason.substr(0, equals) + ":") == 0) {
    reason.erase(0, first + 2);
  }
  return Printable(reason, 200);
}

std::optional<double> Number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};
  return value;
}

// Keys whose value follows from the first one's (--zip, --scale): they part no lines of the plot.
std::vector<bool> Followers(const Sweep& sweep) {
  std::vector<bool> follows(sweep.keys.size(), true);
  for (std::size_t k = 1; k < follows.size(); ++k) {
    std::map<std::string, std::string> value;
    for (const SweepRow& row : sweep.rows) {
      const auto [known, fresh] = value.emplace(row.values.front(), row.values[k]);
      if (!fresh && known->second != row.values[k]) follows[k] = false;
    }
    if (value.size() < 2) follows[k] = false;
  }
  return follows;
}

}  // namespace

std::string SweepToCsv(const Sweep& sweep) {
  std::string csv;
  for (const std::string& key : sweep.keys) csv += fmt::format("{},", formats::CsvField(key));
  csv +=
      "status,gpus,step_time_s,step_time_low_s,step_time_high_s,tokens_per_s,"
      "model_tflops_per_gpu,mfu,memory_bytes,memory_is_bound";
  for (std::size_t i = 0; i < engine::kParts; ++i)
    csv += fmt::format(",{}_s", results::PartName(i));
  const std::vector<OptionalColumn> columns = ColumnsOf(sweep);
  for (const OptionalColumn& column : columns) csv += fmt::format(",{}", column.name);
  csv += ",reason\n";
  for (const SweepRow& row : sweep.rows) {
    for (const std::string& value : row.values) csv += fmt::format("{},", formats::CsvField(value));
    csv += Name(row.status);
    if (Ran(row)) {
      csv += fmt::format(",{},{},{},{},{},{},{},{},{}", row.gpus, ToSeconds(row.step_time),
                         row.interval_low_s, row.interval_high_s, row.tokens_per_s,
                         row.model_tflops_per_gpu, row.mfu > 0 ? fmt::format("{}", row.mfu) : "",
                         row.memory_bytes, row.memory_bound);
      for (const SimTime part : row.parts) csv += fmt::format(",{}", ToSeconds(part));
      for (const OptionalColumn& column : columns) csv += fmt::format(",{}", row.*column.member);
    } else {
      csv += std::string(9 + engine::kParts + columns.size(), ',');
    }
    csv += fmt::format(",{}\n", formats::CsvField(row.reason));
  }
  return csv;
}

std::string SweepToText(const Sweep& sweep) {
  results::TextTable table;
  std::vector<std::string> head = ShortNames(sweep.keys);
  const std::size_t keys = head.size();
  for (const char* name :
       {"step time", "80 % interval", "tokens/s", "MFU", "exposed", "idle", "memory"}) {
    head.emplace_back(name);
  }
  const std::vector<OptionalColumn> columns = ColumnsOf(sweep);
  for (const OptionalColumn& column : columns) head.emplace_back(Heading(column));
  head.emplace_back("");
  for (std::size_t c = 0; c + 1 < head.size(); ++c) table.AlignRight(c);
  table.Row(std::move(head));
  const std::optional<std::size_t> best = Best(sweep);
  for (std::size_t i = 0; i < std::min(sweep.rows.size(), kMostShown); ++i) {
    const SweepRow& row = sweep.rows[i];
    std::vector<std::string> cells;
    for (const std::string& value : row.values) cells.push_back(Printable(value, 40));
    if (Ran(row)) {
      cells.push_back(HumanTime(row.step_time));
      cells.push_back(fmt::format("{} to {}", HumanSeconds(row.interval_low_s),
                                  HumanSeconds(row.interval_high_s)));
      cells.push_back(HumanCount(std::llround(row.tokens_per_s)));
      cells.push_back(row.mfu > 0 ? fmt::format("{:.1f} %", row.mfu * 100) : "");
      cells.push_back(fmt::format("{:.1f} %", Share(row, true) * 100));
      cells.push_back(fmt::format("{:.1f} %", Share(row, false) * 100));
      cells.push_back(
          fmt::format("{}{}", row.memory_bound ? "≥ " : "", HumanBytes(row.memory_bytes)));
      for (const OptionalColumn& column : columns) {
        cells.push_back(fmt::format("{:.4g}", row.*column.member));
      }
    } else {
      cells.resize(keys + 7 + columns.size());
    }
    cells.push_back(Note(sweep, row, best && *best == i));
    table.Row(std::move(cells));
  }
  std::string text = fmt::format(
      "{}: {} of {} runs{}\n\n", Printable(sweep.source),
      HumanCount(static_cast<std::int64_t>(sweep.rows.size())),
      HumanCount(static_cast<std::int64_t>(sweep.points)),
      sweep.shards > 1 ? fmt::format(", shard {} of {}", sweep.shard, sweep.shards) : "");
  text += table.Render("  ");
  if (sweep.rows.size() > kMostShown) {
    text += fmt::format("  … and {} more; --csv FILE or --json FILE has all\n",
                        HumanCount(static_cast<std::int64_t>(sweep.rows.size() - kMostShown)));
  }
  text +=
      "\nexposed: communication not overlapped with compute; idle: pipeline bubble and waiting for "
      "other ranks\n";
  return text;
}

std::string SweepToSvg(const Sweep& sweep) {
  Figure figure{.title = sweep.source,
                .x_label = {},
                .y_label = "tokens per second (1,000)",
                .categories = {},
                .series = {}};
  if (!sweep.keys.empty()) figure.x_label = sweep.keys.front();
  std::map<std::string, double> places;  // of a first value that is no number
  bool numbers = true;
  for (const SweepRow& row : sweep.rows) {
    const std::string& x = row.values.front();
    double ignored = 0;
    const auto [end, error] = std::from_chars(x.data(), x.data() + x.size(), ignored);
    numbers = numbers && error == std::errc() && end == x.data() + x.size();
    if (places.emplace(x, static_cast<double>(places.size())).second)
      figure.categories.push_back(x);
  }
  if (numbers) figure.categories.clear();
  const std::vector<bool> follows = Followers(sweep);
  std::map<std::string, std::size_t> lines;
  const std::vector<std::string> names = ShortNames(sweep.keys);
  for (const SweepRow& row : sweep.rows) {
    if (!Ran(row)) continue;
    std::string name;
    for (std::size_t k = 1; k < row.values.size(); ++k) {
      if (follows[k]) continue;
      name += fmt::format("{}{} {}", name.empty() ? "" : ", ", names[k], row.values[k]);
    }
    if (row.status == RowStatus::kDoesNotFit) name = "does not fit the GPU";
    const auto [line, fresh] = lines.emplace(name, figure.series.size());
    if (fresh) {
      const bool fits = row.status == RowStatus::kOk;
      figure.series.push_back({.name = name, .points = {}, .line = fits, .faint = !fits});
    }
    const std::string& x = row.values.front();
    figure.series[line->second].points.push_back(
        {numbers ? Number(x).value_or(0) : places[x], row.tokens_per_s / 1000, ""});
  }
  return ToSvg(figure);
}

}  // namespace orrery::search
