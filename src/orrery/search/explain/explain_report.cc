#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/results/table.h"
#include "orrery/search/explain/explain.h"

namespace orrery::search {
namespace {

using Json = nlohmann::ordered_json;

void Add(const Explanation& e, int depth, std::string* text) {
  const std::string indent(static_cast<std::size_t>(depth) * 2, ' ');
  *text += fmt::format("{}{} = {}\n{}  {}\n", indent, e.field, e.value, indent, e.meaning);
  for (const End& end : e.ends) {
    *text +=
        fmt::format("{}  - {} {}: {}\n{}    from: {}\n", indent, end.kind, Printable(end.name, 80),
                    Printable(end.text, 220), indent, Printable(end.source, 200));
  }
  for (const Explanation& part : e.parts) Add(part, depth + 1, text);
}

Json ToJson(const Explanation& e) {
  Json parts = Json::array(), ends = Json::array();
  for (const Explanation& part : e.parts) parts.push_back(ToJson(part));
  for (const End& end : e.ends) {
    ends.push_back(
        {{"kind", end.kind}, {"name", end.name}, {"text", end.text}, {"source", end.source}});
  }
  return {{"field", e.field},
          {"value", e.value},
          {"meaning", e.meaning},
          {"made_of", std::move(parts)},
          {"ends", std::move(ends)}};
}

std::string Dump(Json json) {
  json["schema"] = kExplainSchema;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Time(const Explanation& e) { return HumanTime(static_cast<SimTime>(e.number)); }

// The parts of the step, largest first: kernels and communications with their operations, waiting
// with its meaning.
std::string PartsOf(const Explanation& step) {
  constexpr std::size_t kMostNamed = 3;
  constexpr double kLeastShare = 0.001;
  std::vector<const Explanation*> parts;
  for (const Explanation& row : step.parts) {
    for (const Explanation& part : row.parts) parts.push_back(&part);
  }
  std::ranges::stable_sort(parts, [](auto* a, auto* b) { return a->number > b->number; });
  results::TextTable table;
  table.AlignRight(1);
  table.AlignRight(2);
  for (const Explanation* part : parts) {
    const double share = part->number / step.number;
    if (share < kLeastShare) break;
    std::string_view name = part->field;
    name.remove_prefix(name.rfind('.') + 1);
    name.remove_suffix(name.ends_with("_ps") ? 3 : 0);
    const std::string_view kind = name.starts_with("exposed_")               ? "collective"
                                  : name == "compute" || name == "optimizer" ? "kernel"
                                                                             : "";
    std::string operations;
    std::size_t count = 0;
    for (const End& end : part->ends) {
      if (end.kind != kind || count == kMostNamed) continue;
      if (operations.find(end.name + ' ') != std::string::npos) continue;  // blocking, and not
      operations +=
          (count++ == 0 ? "" : "; ") + fmt::format("{} {}", Printable(end.name, 60), end.brief);
    }
    table.Row({std::string(name), Time(*part), fmt::format("{:.1f} %", share * 100),
               operations.empty() ? part->meaning : operations});
  }
  return table.Render("  ");
}

std::string ConstantsOf(const Explanation& step) {
  constexpr std::size_t kMostConstants = 6;
  results::TextTable table;
  table.AlignRight(1);
  std::size_t count = 0;
  for (const End& end : step.ends) {
    if (end.kind != "constant" || end.brief.empty() || count == kMostConstants) continue;
    ++count;
    table.Row({end.name, end.brief, Printable(end.text.substr(0, end.text.find(',')), 40),
               Printable(end.source.substr(0, end.source.find(" (data/")), 90)});
  }
  return table.Render("  ");
}

std::string WhereOf(const results::StepPath& path) {
  if (path.followed == 1) return "on the rank followed (one stage)";
  return fmt::format("through {} of {} ranks (one a stage), changing rank {} time{}", path.ranks,
                     path.followed, HumanCount(path.crossings), path.crossings == 1 ? "" : "s");
}

std::string PathOf(const results::StepPath& path) {
  constexpr std::size_t kMostParts = 8;
  SimTime whole = 0;
  for (const results::StepPath::Part& part : path.parts) whole += part.time;
  const auto share = [&](SimTime time) {
    return fmt::format("{:.1f} %", 100 * ToSeconds(time) / ToSeconds(std::max<SimTime>(whole, 1)));
  };
  results::TextTable table;
  for (const std::size_t column : {1, 2, 3}) table.AlignRight(column);
  SimTime rest = 0;
  std::int64_t others = 0;
  for (std::size_t i = 0; i < path.parts.size(); ++i) {
    const results::StepPath::Part& part = path.parts[i];
    if (i < kMostParts) {
      table.Row({Printable(part.what, 60), HumanCount(part.count), HumanTime(part.time),
                 share(part.time)});
    } else {
      rest += part.time;
      others += part.count;
    }
  }
  if (others > 0) table.Row({"others", HumanCount(others), HumanTime(rest), share(rest)});
  return table.Render("  ");
}

std::string PurchasesOf(const std::vector<Purchase>& purchases) {
  constexpr double kNothing = 5e-5;
  results::TextTable table;
  table.AlignRight(1);
  std::string nothing;
  for (const Purchase& p : purchases) {
    if (std::abs(p.change) < kNothing) {
      nothing += (nothing.empty() ? "" : ", ") + p.key;
    } else {
      table.Row({p.key, fmt::format("{:+.2f} %", p.change * 100), "of the step time"});
    }
  }
  return table.Render("  ") +
         (nothing.empty() ? "" : fmt::format("  Without effect: {}\n", nothing));
}

std::string NarrowingOf(const std::vector<Narrowing>& narrowing) {
  results::TextTable table;
  table.AlignRight(1);
  for (const Narrowing& n : narrowing) {
    table.Row({n.what, fmt::format("{:.0f} %", n.share * 100), n.remedy});
  }
  return table.Render("  ");
}

}  // namespace

std::string ExplanationToText(const Explanation& explanation) {
  std::string text;
  Add(explanation, 0, &text);
  return text;
}

std::string ExplanationToJson(const Explanation& explanation) { return Dump(ToJson(explanation)); }

std::string SummaryToText(const Summary& summary) {
  return fmt::format(
      "A step of {}, where it goes, and in what\n{}"
      "  More of a part: orrery explain RESULT breakdown.overall.PART_s, as exposed_tp_s; "
      "all of it: --json\n\n"
      "The critical path, {}\n{}\n"
      "Constants (data/constants/constants.csv) that move the step most, each by its spread\n{}\n"
      "Which resource to buy next (each a tenth better, run again)\n{}\n"
      "What would narrow the interval (shares of its variance)\n{}",
      Time(summary.step), PartsOf(summary.step), WhereOf(summary.path), PathOf(summary.path),
      ConstantsOf(summary.step), PurchasesOf(summary.purchases), NarrowingOf(summary.narrowing));
}

std::string SummaryToJson(const Summary& summary) {
  Json purchases = Json::array(), narrowing = Json::array();
  for (const Purchase& p : summary.purchases) {
    purchases.push_back({{"key", p.key}, {"value", p.value}, {"step_time_change", p.change}});
  }
  for (const Narrowing& n : summary.narrowing) {
    narrowing.push_back({{"what", n.what}, {"share", n.share}, {"remedy", n.remedy}});
  }
  Json parts = Json::array();
  for (const results::StepPath::Part& part : summary.path.parts) {
    parts.push_back({{"what", part.what}, {"count", part.count}, {"time_ps", part.time}});
  }
  Json path = {{"ranks", summary.path.ranks},
               {"ranks_followed", summary.path.followed},
               {"crossings", summary.path.crossings},
               {"parts", std::move(parts)}};
  return Dump({{"step", ToJson(summary.step)},
               {"critical_path", std::move(path)},
               {"purchases", std::move(purchases)},
               {"narrowing", std::move(narrowing)}});
}

}  // namespace orrery::search
