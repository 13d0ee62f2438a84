#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "orrery/base/text.h"
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

}  // namespace

std::string ExplanationToText(const Explanation& explanation) {
  std::string text;
  Add(explanation, 0, &text);
  return text;
}

std::string ExplanationToJson(const Explanation& explanation) { return Dump(ToJson(explanation)); }

std::string SummaryToText(const Summary& summary) {
  std::string text = "What the step is made of\n\n" + ExplanationToText(summary.step);
  text += "\nWhich resource to buy next (each a tenth better, run again)\n";
  results::TextTable table;
  table.AlignRight(1);
  for (const Purchase& p : summary.purchases) {
    table.Row({p.key, fmt::format("{:+.2f} %", p.change * 100),
               std::abs(p.change) < 5e-5 ? "changes nothing" : "of the step time"});
  }
  text += table.Render("  ");
  text += "\nWhat would narrow the interval (shares of its variance)\n";
  results::TextTable narrow;
  narrow.AlignRight(1);
  for (const Narrowing& n : summary.narrowing) {
    narrow.Row({n.what, fmt::format("{:.0f} %", n.share * 100), n.remedy});
  }
  return text + narrow.Render("  ");
}

std::string SummaryToJson(const Summary& summary) {
  Json purchases = Json::array(), narrowing = Json::array();
  for (const Purchase& p : summary.purchases) {
    purchases.push_back({{"key", p.key}, {"value", p.value}, {"step_time_change", p.change}});
  }
  for (const Narrowing& n : summary.narrowing) {
    narrowing.push_back({{"what", n.what}, {"share", n.share}, {"remedy", n.remedy}});
  }
  return Dump({{"step", ToJson(summary.step)},
               {"purchases", std::move(purchases)},
               {"narrowing", std::move(narrowing)}});
}

}  // namespace orrery::search
