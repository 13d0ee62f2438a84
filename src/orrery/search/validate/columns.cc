#include "orrery/search/validate/columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "orrery/base/schema.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/cluster/ratio.h"
#include "orrery/job/tables.h"
#include "orrery/search/validate/row_rules.h"

namespace orrery::search {
namespace {

using formats::CsvTable;
using formats::DataRow;
using formats::Section;
using formats::TextOf;

constexpr std::string_view kColumns[] = {
#include "orrery_data_columns.inc"
};

constexpr std::string_view kTables = "training|collectives";
constexpr std::string_view kUses = "configuration|outcome|about";
constexpr std::string_view kTypes = "text|integer|number|ratio|flag";
constexpr Option kColumnKeys[] = {
    {.name = "tables", .fallback = "training"},
    {.name = "required"},
    {.name = "use", .type = OptionType::kChoice, .fallback = "configuration", .choices = kUses},
    {.name = "type", .type = OptionType::kChoice, .fallback = "text", .choices = kTypes},
    {.name = "min", .type = OptionType::kNumber, .fallback = "0", .min = -9e18},
    {.name = "max", .type = OptionType::kNumber, .fallback = "9e18", .min = -9e18},
    {.name = "key"},
    {.name = "means"},
    {.name = "scale", .type = OptionType::kNumber, .fallback = "1", .min = 1e-18, .max = 1e18},
};
constexpr OptionTable kColumnTable{.path = "", .doc = "", .options = kColumnKeys};

bool Holds(std::string_view tables, TableKind kind) {
  return std::ranges::count(SplitBars(tables), NameOf(kind)) > 0;
}

template <class Enum>
Enum ChoiceOf(const Section& keys, std::string_view key, std::string_view choices) {
  const std::vector<std::string_view> names = SplitBars(choices);
  return static_cast<Enum>(std::ranges::find(names, keys.Text(key)) - names.begin());
}

Status CheckTables(const Section& keys, std::string_view key) {
  const std::string names = TextOf(keys, key);
  const std::vector<std::string_view> valid = SplitBars(kTables);
  for (const std::string_view name : SplitBars(names)) {
    if (std::ranges::count(valid, name) > 0) continue;
    return InvalidInput("{}", UnknownName("table", Printable(name, 40), valid)).In(keys.Where(key));
  }
  return {};
}

const Column* FindColumn(const Columns& columns, TableKind kind, std::string_view name);

// What another name stands for; else the column itself. Null where no table of this kind has it.
const Column* MeantBy(const Columns& columns, TableKind kind, const Column& column) {
  if (!column.means.empty()) return FindColumn(columns, kind, column.means);
  return Holds(column.tables, kind) ? &column : nullptr;
}

const Column* FindColumn(const Columns& columns, TableKind kind, std::string_view name) {
  const auto at = std::ranges::find(columns.all(), name, &Column::name);
  return at == columns.all().end() ? nullptr : MeantBy(columns, kind, *at);
}

std::vector<std::string> JobKeys() {
  std::vector<std::string> keys;
  for (const OptionTable* table : job::Tables()) {
    for (const Option& option : table->options) {
      keys.push_back(formats::FullName(*table, option.name));
    }
  }
  return keys;
}

// What a table of this kind may be headed by.
std::vector<std::string_view> NamesOf(const Columns& columns, TableKind kind) {
  std::vector<std::string_view> names;
  for (const Column& column : columns.all()) {
    if (MeantBy(columns, kind, column) != nullptr) names.push_back(column.name);
  }
  return names;
}

// The table under our names and in our units; what is no number stays, for the column to refuse.
Result<CsvTable> Renamed(const Columns& columns, TableKind kind, const CsvTable& given,
                         std::vector<std::string>* notes) {
  std::vector<std::string> header = given.header();
  std::vector<double> scales(header.size(), 1);
  for (std::size_t i = 0; i < header.size(); ++i) {
    const auto at = std::ranges::find(columns.all(), header[i], &Column::name);
    if (at == columns.all().end() || at->means.empty()) continue;
    const Column* const meant = MeantBy(columns, kind, *at);
    if (meant == nullptr) continue;
    if (std::ranges::count(header, meant->name) > 0) {
      return InvalidInput(
          "{}:1: column '{}' is another name of '{}', which stands there, too; "
          "leave one out",
          given.name(), at->name, meant->name);
    }
    notes->push_back(fmt::format("{}:1: column '{}' is read as {}{}", given.name(), at->name,
                                 meant->name,
                                 at->scale == 1 ? "" : fmt::format(", times {}", at->scale)));
    header[i] = meant->name;
    scales[i] = at->scale;
  }
  return given.With(std::move(header), [&](std::size_t column, std::string_view cell) {
    const auto value = scales[column] == 1 ? std::nullopt : ParseNumber(cell);
    return value ? fmt::format("{}", *value * scales[column]) : std::string(cell);
  });
}

std::vector<std::string_view> Required(const Columns& columns, TableKind kind) {
  std::vector<std::string_view> names;
  for (const Column& column : columns.all()) {
    if (Holds(column.required, kind)) names.push_back(column.name);
  }
  return names;
}

Status CheckRequired(const MeasuredTable& table, const Columns& columns) {
  const std::vector<std::string_view> known = NamesOf(columns, table.kind);
  std::vector<std::string_view> missing, others;  // columns that nothing reads
  for (const std::string_view name : Required(columns, table.kind)) {
    if (!table.csv.Find(name)) missing.push_back(name);
  }
  if (missing.empty()) return {};
  for (const std::string& name : table.csv.header()) {
    if (std::ranges::count(known, name) == 0) others.push_back(name);
  }
  std::vector<std::string> remedies;
  for (const std::string_view name : missing) {
    const std::vector<std::string> near = Nearest(name, others, 1);
    if (near.empty()) continue;
    remedies.push_back(fmt::format("rename '{}' to '{}'", Printable(near.front(), 40), name));
  }
  const bool one = missing.size() == 1;
  if (remedies.size() < missing.size()) {
    remedies.push_back(fmt::format("add {} to the header", !remedies.empty() ? "the others"
                                                           : one             ? "it"
                                                                             : "them"));
  }
  return InvalidInput("{}:1: missing column{}: {}; {}", table.csv.name(), one ? "" : "s",
                      fmt::join(missing, ", "), fmt::join(remedies, ", "));
}

// A column that is nearly named like one that is read was surely meant to be read.
void WarnOfMistyped(const Columns& columns, MeasuredTable* table) {
  const std::vector<std::string_view> known = NamesOf(columns, table->kind);
  const std::vector<std::string> keys = JobKeys();
  const std::vector<std::string_view> job(keys.begin(), keys.end());
  for (const std::string& name : table->csv.header()) {
    const bool key = name.find('.') != std::string::npos && table->kind == TableKind::kTraining;
    if (std::ranges::count(key ? job : known, name) > 0) continue;
    const auto near = Nearest(name, key ? job : known, 1);
    if (near.empty() || table->csv.Find(near.front())) continue;
    table->notes.push_back(fmt::format("{}:1: column '{}' is not read; did you mean '{}'?",
                                       table->csv.name(), Printable(name, 40), near.front()));
  }
}

Result<Column> ReadColumn(const formats::RowValues<Column>& table, const DataRow& row, bool own) {
  const std::vector<std::string_view> rules = RowRules::Keys();
  ORRERY_ASSIGN_OR_RETURN(const Section keys, table.Keys(row, kColumnTable, "", rules));
  ORRERY_RETURN_IF_ERROR(CheckTables(keys, "tables"));
  ORRERY_RETURN_IF_ERROR(CheckTables(keys, "required"));
  Column column{.name = row.name,
                .description = row.description,
                .tables = keys.Text("tables"),
                .required = TextOf(keys, "required"),
                .use = ChoiceOf<Column::Use>(keys, "use", kUses),
                .type = ChoiceOf<Column::Type>(keys, "type", kTypes),
                .min = keys.Real("min"),
                .max = keys.Real("max"),
                .ruled = std::ranges::any_of(
                    rules, [&](std::string_view key) { return row.keys.Find(key) != nullptr; }),
                .key = TextOf(keys, "key"),
                .own = own,
                .means = TextOf(keys, "means"),
                .scale = keys.Real("scale")};
  if (own && column.use != Column::Use::kAbout && column.means.empty() && column.key.empty() &&
      !column.ruled) {
    return InvalidInput(
        "{}:{}: the column '{}' would not be read; give it means, key or set, or use: about",
        table.document().sources[row.keys.source], row.line, Printable(row.name, 60));
  }
  if (column.key.empty()) return column;
  auto option = job::FindKey(column.key);
  if (!option.ok()) return std::move(option).TakeStatus().In(keys.Where("key"));
  column.switches = (*option)->type == OptionType::kBool;
  return column;
}

// Another name must be one of a column, and not of another name.
Status CheckMeant(const Column& column, const std::vector<Column>& all) {
  std::vector<std::string_view> names;
  for (const Column& other : all) {
    if (other.means.empty()) names.push_back(other.name);
  }
  if (column.means.empty() || std::ranges::count(names, column.means) > 0) return {};
  return InvalidInput("{}: {}", Printable(column.name, 40),
                      UnknownName("column", Printable(column.means, 40), names));
}

}  // namespace

std::string_view NameOf(TableKind kind) {
  return kind == TableKind::kTraining ? "training" : "collectives";
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> Column::Read(std::string_view cell) const {
  if (type == Type::kFlag && cell != "0" && cell != "1") return std::nullopt;
  std::optional<double> value = ParseNumber(cell);
  if (!value && type == Type::kRatio) value = cluster::ParseRatio(cell);
  const bool in_range = value && *value >= min && *value <= max;
  return in_range && (type != Type::kInteger || *value == std::floor(*value)) ? value
                                                                              : std::nullopt;
}

Status Column::Check(std::string_view cell) const {
  if (type == Type::kText || Read(cell)) return {};
  if (type == Type::kFlag) {
    return InvalidInput("{}={}: must be 0, 1 or blank", name, Printable(cell, 40));
  }
  return InvalidInput("{}={}: not a {}number from {} to {}; correct it or leave it blank", name,
                      Printable(cell, 40), type == Type::kInteger ? "whole " : "", min, max);
}

std::vector<std::string_view> Columns::Keys() { return OptionNames(kColumnKeys); }

const Columns& Columns::BuiltIn() {
  static const Columns columns = formats::Embedded<Columns>(kColumns, "data/columns.yaml");
  return columns;
}

Status Columns::Add(std::string_view text, const std::string& file) {
  const bool own = !rows_.values().empty();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file, [&](const auto& table, const DataRow& row) {
    return ReadColumn(table, row, own);
  }));
  for (const Column& column : all()) {
    ORRERY_RETURN_IF_ERROR(CheckMeant(column, all()).In(file));
  }
  return {};
}

Result<MeasuredTable> Columns::ReadAs(TableKind kind, const CsvTable& table) const {
  std::vector<std::string> notes;
  ORRERY_ASSIGN_OR_RETURN(CsvTable csv, Renamed(*this, kind, table, &notes));
  MeasuredTable out{.kind = kind, .csv = std::move(csv), .configuration = {}, .notes = {}};
  out.notes = std::move(notes);
  for (const Column& column : all()) {
    const bool here = column.means.empty() && Holds(column.tables, kind);
    if (!here || column.use != Column::Use::kConfiguration) continue;
    out.configuration.push_back({column, out.csv.Find(column.name)});
  }
  for (std::size_t i = 0; i < out.csv.columns(); ++i) {
    const std::string& name = out.csv.header()[i];
    const auto option = job::FindKey(name);
    if (name.find('.') == std::string::npos || !option.ok() || kind != TableKind::kTraining) {
      continue;
    }
    out.configuration.push_back(
        {{.name = name, .key = name, .switches = (*option)->type == OptionType::kBool, .own = true},
         i});
  }
  WarnOfMistyped(*this, &out);
  return out;
}

Result<MeasuredTable> Columns::Read(const CsvTable& table) const {
  if (const std::size_t at = table.header().front().find_first_of(";\t");
      table.columns() == 1 && at != std::string::npos) {
    return InvalidInput("{}:1: one column, with '{}' in its name; separate fields by commas",
                        table.name(), Printable(table.header().front().substr(at, 1)));
  }
  const auto names_one = [&](TableKind kind, std::string_view names) {
    return std::ranges::any_of(table.header(), [&](const std::string& name) {
      const Column* const column = FindColumn(*this, kind, name);
      return column != nullptr && std::ranges::count(SplitBars(names), column->name) > 0;
    });
  };
  const bool collectives = names_one(TableKind::kCollectives, "collective|size_bytes");
  const bool training = names_one(TableKind::kTraining, "hidden|tp|framework_family");
  if (collectives == training) {
    return InvalidInput(
        "{}:1: neither a table of training runs nor of collectives; training needs the columns {}; "
        "collectives need {}",
        table.name(), fmt::join(Required(*this, TableKind::kTraining), ", "),
        fmt::join(Required(*this, TableKind::kCollectives), ", "));
  }
  ORRERY_ASSIGN_OR_RETURN(MeasuredTable out,
                          ReadAs(training ? TableKind::kTraining : TableKind::kCollectives, table));
  ORRERY_RETURN_IF_ERROR(CheckRequired(out, *this));
  return out;
}

std::string ColumnTables() {
  const std::vector<Column>& all = Columns::BuiltIn().all();
  std::string text;
  for (const TableKind kind : {TableKind::kTraining, TableKind::kCollectives}) {
    text +=
        fmt::format("\n### Columns of a table of {}\n\n| column | what | key |\n|---|---|---|\n",
                    kind == TableKind::kTraining ? "training runs" : "collectives");
    for (const Column& column : all) {
      if (!column.means.empty() || !Holds(column.tables, kind)) continue;
      std::string also;
      for (const Column& other : all) {
        if (other.means != column.name) continue;
        also += fmt::format("{}`{}`", also.empty() ? "; also " : ", ", other.name);
      }
      text += fmt::format("| `{}`{} | {}{} | {} |\n", column.name,
                          Holds(column.required, kind) ? " (required)" : "", column.description,
                          also, column.key.empty() ? "" : fmt::format("`{}`", column.key));
    }
  }
  return text;
}

}  // namespace orrery::search
