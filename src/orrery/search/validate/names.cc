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
    {.name = "row"},
    {.name = "label"},
    {.name = "family"},
    {.name = "framework"},
    {.name = "versions"},
    {.name = "models"},
    {.name = "gpus"},
    {.name = "precisions"},
    {.name = "gpus_from", .type = OptionType::kInteger, .fallback = "0", .min = 0, .max = 1 << 22}};
constexpr OptionTable kFrameworkTable{.path = "", .doc = "", .options = kFrameworkKeys};

// A container's name may be left from an older submission: a release of ngcYY.MM two calendar years
// before the measurement says nothing about what ran.
std::string_view VersionOf(const Configuration& row) {
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  if (!version.starts_with("ngc") || version.size() < 5 || !date.starts_with("20")) return version;
  const auto year = [](std::string_view digits) { return digits[0] * 10 + digits[1]; };
  return date.size() >= 4 && year(date.substr(2)) - year(version.substr(3)) >= 2 ? "" : version;
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
    Word word{TextOf(keys, "column"), TextOf(keys, "words"), TextOf(keys, "means"),
              TextOf(keys, "accepts"), TextOf(keys, "otherwise")};
    const std::span<const std::string_view> columns = ConfigurationColumns(TableKind::kTraining);
    if (std::ranges::find(columns, word.column) != columns.end()) return word;
    return InvalidInput("{}", UnknownName("column", Printable(word.column, 40), columns))
        .In(keys.Where("column"));
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
    const std::string_view cell = row.text(word.column);
    if (word.accepts.empty() || cell.empty()) continue;
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
  return rows_.Add(text, file, [](const auto& table, const DataRow& row) -> Result<Name> {
    ORRERY_ASSIGN_OR_RETURN(const Section keys,
                            table.Keys(row, kFrameworkTable, "row|label|family"));
    return Name{TextOf(keys, "row"),       TextOf(keys, "label"),      TextOf(keys, "family"),
                TextOf(keys, "framework"), TextOf(keys, "versions"),   TextOf(keys, "models"),
                TextOf(keys, "gpus"),      TextOf(keys, "precisions"), keys.Integer("gpus_from")};
  });
}

std::vector<std::string> FrameworkNames::Rows() const {
  std::vector<std::string> rows;
  for (const Name& name : rows_.values()) rows.push_back(name.row);
  return rows;
}

bool FrameworkNames::Fits(const Name& name, const Configuration& row) {
  const std::string_view framework = row.text("framework");
  const std::vector<std::string_view> parts = SplitBars(name.frameworks);
  const auto gpus = row.Whole("gpus", 1, 1 << 22);
  return IsOneOf(row.text("framework_family"), name.family) &&
         BeginsWithOneOf(VersionOf(row), name.versions) &&
         BeginsWithOneOf(row.text("model"), name.models) &&
         BeginsWithOneOf(row.text("gpu"), name.gpus) &&
         BeginsWithOneOf(row.text("precision"), name.precisions) &&
         (name.gpus_from == 0 || (gpus.ok() && gpus->value_or(0) >= name.gpus_from)) &&
         (parts.empty() || std::ranges::any_of(parts, [&](std::string_view part) {
            return framework.find(part) != std::string_view::npos;
          }));
}

Result<FrameworkMatch> FrameworkNames::Match(const Configuration& row,
                                             const job::FrameworkTable& frameworks) const {
  const std::string_view family = row.text("framework_family");
  if (family.empty()) {
    return InvalidInput("framework_family is blank: no framework, no defaults; name it");
  }
  std::vector<std::string_view> families;
  for (const Name& name : rows_.values()) {
    if (Fits(name, row)) {
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
