#include "orrery/results/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/results/breakdown_json.h"
#include "orrery/results/document.h"
#include "orrery/results/json.h"
#include "orrery/results/result.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

using Json = nlohmann::ordered_json;

Result<Json> ReadResult(std::string_view text, const std::string& name) {
  ORRERY_ASSIGN_OR_RETURN(Json json, ReadDocument(text, name, "simulate", kResultSchema));
  if (json.contains("jobs")) {
    return InvalidInput("{}: holds several jobs, whose steps are not one; compare runs of one job",
                        name);
  }
  return json;
}

engine::Breakdown PartsOf(const Json& row) { return BreakdownFrom(row, "_ps"); }

StepParts StepOf(const Json& json) {
  return {.step = json.at("step_time_ps"),
          .parts = PartsOf(json.at("breakdown").at("overall")),
          .compute_spread = json.at("provenance").at("spread")};
}

void LargestFirst(std::vector<Difference>* differences) {
  std::erase_if(*differences, [](const Difference& d) { return d.change() == 0; });
  std::stable_sort(differences->begin(), differences->end(),
                   [](const Difference& x, const Difference& y) {
                     return std::abs(x.change()) > std::abs(y.change());
                   });
}

// Of rows that tile a step; what the rows' steps are off their parts is a part, too.
std::vector<Difference> PartDifferences(const Json& a, std::int64_t step_a, const Json& b,
                                        std::int64_t step_b) {
  const engine::Breakdown x = PartsOf(a), y = PartsOf(b);
  std::vector<Difference> parts;
  std::int64_t left_a = step_a, left_b = step_b;
  for (std::size_t i = 0; i < x.size(); ++i) {
    parts.push_back({PartName(i), x[i], y[i]});
    left_a -= x[i];
    left_b -= y[i];
  }
  parts.push_back({"outside_the_breakdown", left_a, left_b});
  LargestFirst(&parts);
  return parts;
}

// The fullest program's total and what it holds at its peak.
std::vector<Difference> MemoryDifferences(const Json& a, const Json& b) {
  const auto fullest = [](const Json& rows) -> const Json* {
    const Json* most = nullptr;
    for (const Json& row : rows) {
      if (most == nullptr || row.at("total_bytes") > most->at("total_bytes")) most = &row;
    }
    return most;
  };
  const Json *x = fullest(a), *y = fullest(b);
  std::vector<Difference> memory;
  if (x == nullptr || y == nullptr) return memory;
  std::vector<Difference> parts;
  for (const auto& [name, bytes] : x->at("parts_at_peak").items()) {
    parts.push_back({name.substr(0, name.rfind("_bytes")), bytes, y->at("parts_at_peak").at(name)});
  }
  const auto cached = [](const Json& row) -> std::int64_t {
    return row.at("peak_reserved_bytes").get<std::int64_t>() -
           row.at("peak_allocated_bytes").get<std::int64_t>();
  };
  parts.push_back({"kept by the allocator", cached(*x), cached(*y)});
  parts.push_back({"context and libraries", x->at("context_bytes"), y->at("context_bytes")});
  LargestFirst(&parts);
  const Difference total{"total", x->at("total_bytes"), y->at("total_bytes")};
  if (total.change() != 0) memory.push_back(total);
  memory.insert(memory.end(), parts.begin(), parts.end());
  return memory;
}

std::string Shown(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void ConfigDifferences(const std::string& path, const Json* a, const Json* b,
                       std::vector<TextDifference>* out) {
  if (a != nullptr && b != nullptr && *a == *b) return;
  const bool map_a = a != nullptr && a->is_object(), map_b = b != nullptr && b->is_object();
  if ((map_a || a == nullptr) && (map_b || b == nullptr) && (map_a || map_b)) {
    std::vector<std::string> keys;
    for (const Json* side : {a, b}) {
      if (side == nullptr) continue;
      for (const auto& [key, value] : side->items()) {
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
      }
    }
    const auto at = [](const Json* side, const std::string& key) -> const Json* {
      return side != nullptr && side->contains(key) ? &side->at(key) : nullptr;
    };
    for (const std::string& key : keys) {
      ConfigDifferences(path.empty() ? key : fmt::format("{}.{}", path, key), at(a, key),
                        at(b, key), out);
    }
    return;
  }
  out->push_back({path, a != nullptr ? Shown(*a) : "", b != nullptr ? Shown(*b) : ""});
}

std::vector<std::string> OnlyIn(const Json& own, const Json& other) {
  std::vector<std::string> only;
  for (const Json& line : own) {
    if (std::find(other.begin(), other.end(), line) == other.end()) only.push_back(line);
  }
  return only;
}

bool AnyOom(const Json& memory) {
  return std::any_of(memory.begin(), memory.end(),
                     [](const Json& row) { return row.at("oom").get<bool>(); });
}

Comparison Filled(const Json& a, const Json& b) {
  Comparison c;
  c.step_a = a.at("step_time_ps");
  c.step_b = b.at("step_time_ps");
  c.interval_a = a.at("step_time_interval_s").get<std::vector<double>>();
  c.interval_b = b.at("step_time_interval_s").get<std::vector<double>>();
  c.width = DifferenceWidth(StepOf(a), StepOf(b));
  const Json &x = a.at("breakdown"), &y = b.at("breakdown");
  c.parts = PartDifferences(x.at("overall"), c.step_a, y.at("overall"), c.step_b);
  c.stages_a = static_cast<std::int64_t>(x.at("stages").size());
  c.stages_b = static_cast<std::int64_t>(y.at("stages").size());
  for (std::size_t s = 0; c.stages_a == c.stages_b && s < x.at("stages").size(); ++s) {
    const Json &one = x.at("stages")[s], &other = y.at("stages")[s];
    StageDifference stage{.stage = one.at("stage"),
                          .parts = PartDifferences(one, c.step_a, other, c.step_b)};
    if (!stage.parts.empty()) c.stages.push_back(std::move(stage));
  }
  c.memory = MemoryDifferences(a.at("memory"), b.at("memory"));
  c.oom_a = AnyOom(a.at("memory"));
  c.oom_b = AnyOom(b.at("memory"));
  ConfigDifferences("", &a.at("config"), &b.at("config"), &c.config);
  c.assumed_a = OnlyIn(a.at("assumed"), b.at("assumed"));
  c.assumed_b = OnlyIn(b.at("assumed"), a.at("assumed"));
  return c;
}

// As people write it: 50 GB/s for 50000000000B/s, a NIC's in Gb/s.
std::string Legible(const std::string& key, const std::string& value) {
  if (value.empty()) return "(left out)";
  if (!value.ends_with("B/s")) return Printable(value, 60);
  const Result<std::int64_t> rate = ParseInteger(value.substr(0, value.size() - 3));
  if (!rate.ok()) return Printable(value, 60);
  const bool bits = key.ends_with("nic_bandwidth");
  return fmt::format("{:.6g} {}", static_cast<double>(*rate) * (bits ? 8e-9 : 1e-9),
                     bits ? "Gb/s" : "GB/s");
}

std::string Signed(std::int64_t ps) {
  return fmt::format("{}{}", ps < 0 ? "-" : "+", HumanTime(std::abs(ps)));
}
std::string SignedBytes(std::int64_t bytes) {
  return fmt::format("{}{}", bytes < 0 ? "-" : "+", HumanBytes(std::abs(bytes)));
}
double Share(std::int64_t change, std::int64_t of) {
  return of == 0 ? 0 : static_cast<double>(change) / static_cast<double>(of) * 100;
}

std::string VerdictOf(const Comparison& c) {
  if (c.change() == 0) return "The step times are equal.";
  const std::string off = fmt::format("{:.1f} %", c.width * 100);
  if (!c.can_tell()) {
    return fmt::format(
        "That is within what the two predictions may be off against each other (±{}, 80 %): it "
        "cannot be told which is faster.",
        off);
  }
  return fmt::format(
      "{} is {}: the difference is larger than what the two predictions may be off against each "
      "other (±{}, 80 %).",
      Printable(c.name_b, 60), c.change() < 0 ? "faster" : "slower", off);
}

void AddDifferences(const std::vector<Difference>& differences, std::int64_t whole, bool bytes,
                    std::string* text) {
  TextTable table;
  for (const std::size_t column : {1, 2, 3, 4}) table.AlignRight(column);
  table.Row({"", "A", "B", "B - A", whole != 0 ? "of the step" : ""});
  for (const Difference& d : differences) {
    const auto shown = [&](std::int64_t v) {
      return bytes ? HumanBytes(v) : v < 0 ? Signed(v) : HumanTime(v);
    };
    table.Row({d.name, shown(d.a), shown(d.b), bytes ? SignedBytes(d.change()) : Signed(d.change()),
               whole != 0 ? fmt::format("{:+.1f} %", Share(d.change(), whole)) : ""});
  }
  *text += table.Render("  ");
}

void AddModules(const Comparison& c, std::string* text) {
  constexpr std::size_t kMostModules = 8;
  if (!c.no_modules.empty()) *text += fmt::format("\nModules are not compared: {}\n", c.no_modules);
  if (c.modules.empty()) return;
  *text += "\nBy module: its kernels alone on the GPU, mean over all ranks (the largest changes)\n";
  AddDifferences({c.modules.begin(), c.modules.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                             kMostModules, c.modules.size()))},
                 c.step_a, false, text);
}

Json DifferencesJson(const std::vector<Difference>& differences, std::string_view unit) {
  Json list = Json::array();
  for (const Difference& d : differences) {
    list.push_back({{"name", d.name},
                    {fmt::format("a_{}", unit), d.a},
                    {fmt::format("b_{}", unit), d.b},
                    {fmt::format("change_{}", unit), d.change()}});
  }
  return list;
}

}  // namespace

double DifferenceWidth(const StepParts& a, const StepParts& b) {
  const constants::Spreads spreads = constants::FittedSpreads();
  const auto seconds = [](const StepParts& side) {
    constants::StepShares s = SharesOf(side.parts, side.compute_spread, false);
    const auto step = static_cast<double>(side.step);
    for (double* part : {&s.kernels, &s.host, &s.communication, &s.waiting}) *part *= step;
    return s;
  };
  const constants::StepShares x = seconds(a), y = seconds(b);
  const double kernels = (x.kernels - y.kernels) * spreads.kernels;
  const double host = (x.host - y.host) * spreads.host;
  const double communication = (x.communication - y.communication) * spreads.communication;
  const double waiting = (x.waiting - y.waiting) * spreads.waiting;
  const double scale = std::sqrt(kernels * kernels + host * host + communication * communication +
                                 waiting * waiting) /
                       static_cast<double>(std::max<SimTime>({a.step, b.step, 1}));
  return std::exp(scale * std::log(5.0)) - 1;  // 80 % of a Laplace distribution (spreads.h)
}

bool Comparison::same() const {
  return change() == 0 && parts.empty() && stages.empty() && memory.empty() && config.empty() &&
         assumed_a.empty() && assumed_b.empty() && stages_a == stages_b;
}

bool Comparison::can_tell() const {
  return static_cast<double>(std::abs(change())) >
         width * static_cast<double>(std::max(step_a, step_b));
}

Result<Comparison> Compare(std::string_view a, const std::string& name_a, std::string_view b,
                           const std::string& name_b) {
  ORRERY_ASSIGN_OR_RETURN(const Json x, ReadResult(a, name_a));
  ORRERY_ASSIGN_OR_RETURN(const Json y, ReadResult(b, name_b));
  try {
    Comparison c = Filled(x, y);
    c.name_a = name_a;
    c.name_b = name_b;
    return c;
  } catch (const Json::exception& error) {
    return InvalidInput("{}, {}: not two whole results of this version: {}", name_a, name_b,
                        Printable(error.what(), 120));
  }
}

std::string ComparisonToJson(const Comparison& c) {
  Json stages = Json::array(), config = Json::array();
  for (const StageDifference& stage : c.stages) {
    stages.push_back({{"stage", stage.stage}, {"parts", DifferencesJson(stage.parts, "ps")}});
  }
  for (const TextDifference& d : c.config) {
    config.push_back({{"key", d.name},
                      {"a", d.a.empty() ? Json(nullptr) : Json(d.a)},
                      {"b", d.b.empty() ? Json(nullptr) : Json(d.b)}});
  }
  const Json json = {
      {"schema", kCompareSchema},
      {"a", c.name_a},
      {"b", c.name_b},
      {"same", c.same()},
      {"step_time", {{"a_ps", c.step_a}, {"b_ps", c.step_b}, {"change_ps", c.change()}}},
      {"interval_a_s", c.interval_a},
      {"interval_b_s", c.interval_b},
      {"may_be_off_by", c.width},
      {"can_tell", c.can_tell()},
      {"parts", DifferencesJson(c.parts, "ps")},
      {"stages", std::move(stages)},
      {"modules", DifferencesJson(c.modules, "ps")},
      {"memory", DifferencesJson(c.memory, "bytes")},
      {"out_of_memory", {{"a", c.oom_a}, {"b", c.oom_b}}},
      {"config", std::move(config)},
      {"assumed", {{"only_a", c.assumed_a}, {"only_b", c.assumed_b}}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ComparisonToText(const Comparison& c) {
  std::string text = fmt::format("A  {}\nB  {}\n\n", Printable(c.name_a), Printable(c.name_b));
  if (c.same()) return text + "Nothing differs.\n";
  const auto interval = [](const std::vector<double>& i) {
    return fmt::format("{} to {}", HumanSeconds(i.at(0)), HumanSeconds(i.at(1)));
  };
  text += fmt::format("Step time  A {} ({})  B {} ({}): {}, {:+.1f} %\n  {}\n", HumanTime(c.step_a),
                      interval(c.interval_a), HumanTime(c.step_b), interval(c.interval_b),
                      Signed(c.change()), Share(c.change(), c.step_a), VerdictOf(c));
  if (c.oom_a != c.oom_b) {
    text += fmt::format("  {} does not fit the GPU, the other does.\n", c.oom_a ? "A" : "B");
  }
  if (!c.parts.empty()) {
    text += "\nWhere it comes from (mean over all ranks; the parts sum to the difference)\n";
    AddDifferences(c.parts, c.step_a, false, &text);
  }
  if (c.stages_a != c.stages_b) {
    text += fmt::format("\nA has {} pipeline stages, B {}: stages are not compared.\n", c.stages_a,
                        c.stages_b);
  } else if (c.stages.size() > 1) {
    text += "\nBy pipeline stage, the three largest changes\n";
    for (const StageDifference& stage : c.stages) {
      text += fmt::format("  stage {:>2} ", stage.stage);
      for (std::size_t i = 0; i < std::min<std::size_t>(3, stage.parts.size()); ++i) {
        text += fmt::format(" {} {}", stage.parts[i].name, Signed(stage.parts[i].change()));
        if (i + 1 < std::min<std::size_t>(3, stage.parts.size())) text += ",";
      }
      text += "\n";
    }
  }
  AddModules(c, &text);
  if (!c.memory.empty()) {
    text += "\nMemory of the fullest GPU\n";
    AddDifferences(c.memory, 0, true, &text);
  }
  if (!c.config.empty()) text += "\nWhat the jobs say differently\n";
  for (const TextDifference& d : c.config) {
    text += fmt::format("  {}: {} -> {}\n", Printable(d.name, 60), Legible(d.name, d.a),
                        Legible(d.name, d.b));
  }
  if (!c.assumed_a.empty() || !c.assumed_b.empty()) text += "\nWhat was assumed by one alone\n";
  for (const std::string& line : c.assumed_a)
    text += fmt::format("  A  {}\n", Printable(line, 300));
  for (const std::string& line : c.assumed_b)
    text += fmt::format("  B  {}\n", Printable(line, 300));
  return text;
}

}  // namespace orrery::results
