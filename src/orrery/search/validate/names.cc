#include "orrery/search/validate/names.h"

#include <algorithm>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/workload/options.h"

namespace orrery::search {
namespace {

using formats::DataRow;
using formats::Section;
using formats::TextOf;

constexpr std::string_view kWords[] = {
#include "orrery_data_words.inc"
};
constexpr std::string_view kModelNames[] = {
#include "orrery_data_model_names.inc"
};
constexpr std::string_view kFrameworkNames[] = {
#include "orrery_data_framework_names.inc"
};

constexpr Option kWordKeys[] = {{.name = "column"},
                                {.name = "words"},
                                {.name = "means"},
                                {.name = "accepts"},
                                {.name = "otherwise"}};
constexpr OptionTable kWordTable{.path = "", .doc = "", .options = kWordKeys};
// Keys of a row beside a model's.
constexpr Option kModelKeys[] = {{.name = "names"},
                                 {.name = "model"},
                                 {.name = "label"},
                                 {.name = "note"},
                                 {.name = "drops", .type = OptionType::kBool, .fallback = "false"}};
constexpr OptionTable kModelTable{.path = "", .doc = "", .options = kModelKeys};
constexpr Option kFrameworkKeys[] = {
    {.name = "row"}, {.name = "label"}, {.name = "says"}, {.name = "month"}};
constexpr OptionTable kFrameworkTable{.path = "", .doc = "", .options = kFrameworkKeys};

// Of "date|version", each a place where the month of a release stands, the first that has one; a
// month is itself.
int MonthOf(const Configuration& row, const std::string& places) {
  constexpr std::string_view kContainer = "container ";
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  const std::size_t container = version.find(kContainer);
  for (const std::string_view place : SplitBars(places)) {
    std::string_view text = place;
    if (place == "date") text = date.starts_with("20") ? date.substr(2) : "";
    if (place == "version") text = version;
    if (place == "vversion") text = version.starts_with("v") ? version.substr(1) : "";
    if (place == "container") {
      text =
          container == std::string_view::npos ? "" : version.substr(container + kContainer.size());
      if (text.size() < 3 || text[2] != '.') text = "";
    }
    if (const int month = Month(text); month > 0) return month;
  }
  return 0;
}

// The tables that have a column of configuration.
Result<std::string> TablesOf(const std::string& name, const std::string& where) {
  std::vector<std::string_view> names;
  for (const Column& column : Columns::BuiltIn().all()) {
    if (column.use != Column::Use::kConfiguration || !column.means.empty()) continue;
    if (column.name == name) return column.tables;
    names.push_back(column.name);
  }
  return InvalidInput("{}", UnknownName("column", Printable(name, 40), names)).In(where);
}

}  // namespace

const Words& Words::BuiltIn() {
  static const Words words = formats::Embedded<Words>(kWords, "data/words.yaml");
  return words;
}

Status Words::Add(std::string_view text, const std::string& file) {
  return rows_.Add(text, file, [](const auto& table, const DataRow& row) -> Result<Word> {
    const bool scope = row.keys.Find("accepts") != nullptr;
    ORRERY_ASSIGN_OR_RETURN(
        const Section keys,
        table.Keys(row, kWordTable, scope ? "column|otherwise" : "column|words|means"));
    Word word{TextOf(keys, "column"),  TextOf(keys, "words"),     TextOf(keys, "means"),
              TextOf(keys, "accepts"), TextOf(keys, "otherwise"), {}};
    ORRERY_ASSIGN_OR_RETURN(word.tables, TablesOf(word.column, keys.Where("column")));
    return word;
  });
}

std::string_view Words::Meaning(std::string_view column, std::string_view cell) const {
  std::string plain = Lower(cell);
  std::erase_if(plain, [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'); });
  if (plain.empty()) return cell;
  for (const Word& word : rows_.values()) {
    if (!word.words.empty() && word.column == column && IsOneOf(plain, word.words)) {
      return word.means;
    }
  }
  return cell;
}

Status Words::CheckScope(const Configuration& row) const {
  for (const Word& word : rows_.values()) {
    if (word.accepts.empty() || !IsOneOf(NameOf(row.kind()), word.tables)) continue;
    const std::string_view cell = row.text(word.column);
    if (cell.empty()) continue;
    const bool accepted = std::ranges::any_of(rows_.values(), [&](const Word& other) {
      return other.column == word.column && IsOneOf(cell, other.accepts);
    });
    if (accepted) continue;
    return InvalidInput("{}={}: {}", word.column, Printable(cell, 40), word.otherwise);
  }
  return {};
}

const ModelNames& ModelNames::BuiltIn() {
  static const ModelNames names =
      formats::Embedded<ModelNames>(kModelNames, "data/model_names.yaml");
  return names;
}

Status ModelNames::Add(std::string_view text, const std::string& file) {
  const auto own = OptionNames(kModelKeys), models = OptionNames(workload::ModelOptions().options);
  return rows_.Add(text, file, [&](const auto& table, const DataRow& row) -> Result<ModelName> {
    ORRERY_ASSIGN_OR_RETURN(const Section about, table.Keys(row, kModelTable, "names", models));
    ORRERY_ASSIGN_OR_RETURN(Section keys, table.Keys(row, workload::ModelOptions(), "", own));
    if (!about.Has("model") && (!about.Has("label") || !keys.Has("vocab"))) {
      return InvalidInput("{}:{}: the model's name '{}' lacks model, or label and vocab", file,
                          row.line, Printable(row.name, 60));
    }
    return ModelName{Lower(TextOf(about, "names")), TextOf(about, "model"), TextOf(about, "label"),
                     TextOf(about, "note"),         about.Bool("drops"),    std::move(keys)};
  });
}

const ModelName* ModelNames::Find(std::string_view model, bool known) const {
  const std::string name = Lower(model);
  const auto row = std::ranges::find_if(rows_.values(), [&](const ModelName& n) {
    return n.model.empty() != known && BeginsWithOneOf(name, n.names);
  });
  return row == rows_.values().end() ? nullptr : &*row;
}

const FrameworkNames& FrameworkNames::BuiltIn() {
  static const FrameworkNames names =
      formats::Embedded<FrameworkNames>(kFrameworkNames, "data/framework_names.yaml");
  return names;
}

Status FrameworkNames::Add(std::string_view text, const std::string& file) {
  const auto own = OptionNames(kFrameworkKeys), conditions = OptionNames(RowFilter::Keys().options);
  return rows_.Add(text, file, [&](const auto& table, const DataRow& row) -> Result<Name> {
    const bool says = row.keys.Find("says") != nullptr;
    ORRERY_ASSIGN_OR_RETURN(
        const Section keys,
        table.Keys(row, kFrameworkTable, says ? "says" : "row|label", conditions));
    ORRERY_ASSIGN_OR_RETURN(const Section when,
                            table.Keys(row, RowFilter::Keys(), says ? "" : "family", own));
    ORRERY_ASSIGN_OR_RETURN(RowFilter filter, RowFilter::Read(when));
    return Name{TextOf(keys, "row"),  TextOf(keys, "label"), TextOf(when, "family"),
                TextOf(keys, "says"), TextOf(keys, "month"), std::move(filter)};
  });
}

Origin FrameworkNames::OriginOf(const Configuration& row) const {
  for (const Name& name : rows_.values()) {
    if (!name.scripts.empty() && name.filter.Fits(row, "", {})) {
      return {name.scripts, MonthOf(row, name.month)};
    }
  }
  return {"", MonthOf(row, "vversion")};
}

std::vector<std::string> FrameworkNames::Rows() const {
  std::vector<std::string> rows;
  for (const Name& name : rows_.values()) {
    if (!name.row.empty()) rows.push_back(name.row);
  }
  return rows;
}

Result<FrameworkMatch> FrameworkNames::Match(const Configuration& row,
                                             const job::FrameworkTable& frameworks) const {
  const std::string_view family = row.text("framework_family");
  if (family.empty()) {
    return InvalidInput("framework_family is blank: no framework, no defaults; name it");
  }
  std::vector<std::string_view> families;
  for (const Name& name : rows_.values()) {
    if (name.row.empty()) continue;
    if (name.filter.Fits(row, "", {})) {
      ORRERY_ASSIGN_OR_RETURN(const job::Framework* const framework, frameworks.Find(name.row));
      return FrameworkMatch{name.label, framework};
    }
    for (const std::string_view one : SplitBars(name.family)) {
      if (std::ranges::find(families, one) == families.end()) families.push_back(one);
    }
  }
  if (std::ranges::find(families, family) != families.end()) {
    return InvalidInput("framework={}: this framework is not modelled",
                        Printable(row.text("framework"), 60));
  }
  return InvalidInput("{}", UnknownName("framework_family", family, families));
}

}  // namespace orrery::search
