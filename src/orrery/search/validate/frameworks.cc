#include "orrery/search/validate/frameworks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/section.h"

namespace orrery::search {
namespace {

constexpr std::string_view kNames[] = {
#include "orrery_data_framework_names.inc"
};
constexpr Option kOptions[] = {{.name = "row"},
                               {.name = "label"},
                               {.name = "family"},
                               {.name = "framework"},
                               {.name = "versions"}};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};

// LLM Foundry's sweeps (scripts/train/benchmarking) say nothing of their release, but differ in
// what they ran. The first had precision bf16, which is called amp_bf16 from October 2023 on; then
// H100 up to 64 GPUs. January 2024's has 128 to 512, with flash-attn 2 but for 13B and 30B
// (sweep.py).
std::string_view FoundryRelease(const Configuration& row) {
  if (!row.text("precision").starts_with("amp_")) return "2023.05";
  const auto gpus = row.Whole("gpus", 1, 1 << 22);
  const bool large = row.text("gpu").starts_with("H100") && gpus.ok() && gpus->value_or(0) >= 128;
  const std::string_view model = row.text("model");
  return large && model != "MPT-13B" && model != "MPT-30B" ? "2024.01" : "2023.10";
}

// A container's name may be left from an older submission: a release of ngcYY.MM two calendar years
// before the measurement says nothing about what ran.
std::string_view VersionOf(const Configuration& row) {
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  if (row.text("framework").find("llm-foundry") != std::string_view::npos) {
    return FoundryRelease(row);
  }
  if (!version.starts_with("ngc") || version.size() < 5 || !date.starts_with("20")) return version;
  const auto year = [](std::string_view digits) { return digits[0] * 10 + digits[1]; };
  return date.size() >= 4 && year(date.substr(2)) - year(version.substr(3)) >= 2 ? "" : version;
}

bool Names(const FrameworkName& name, const Configuration& row) {
  const std::string_view framework = row.text("framework");
  const std::vector<std::string_view> parts = SplitBars(name.frameworks);
  return IsOneOf(row.text("framework_family"), name.family) &&
         BeginsWithOneOf(VersionOf(row), name.versions) &&
         (name.frameworks.empty() || std::ranges::any_of(parts, [&](std::string_view part) {
            return framework.find(part) != std::string_view::npos;
          }));
}

}  // namespace

const FrameworkNames& FrameworkNames::BuiltIn() {
  static const FrameworkNames names =
      formats::Embedded<FrameworkNames>(kNames, "data/framework_names.yaml");
  return names;
}

Status FrameworkNames::Add(std::string_view text, const std::string& file) {
  const std::size_t first = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  std::vector<FrameworkName> added;
  for (std::size_t i = first; i < rows_.rows().size(); ++i) {
    const formats::DataRow& row = rows_.rows()[i];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(const formats::Section keys,
                            formats::Section::Read(rows_.document(), row.keys, kTable));
    for (const std::string_view key : {"row", "label", "family"}) {
      if (keys.Has(key)) continue;
      return InvalidInput("{}:{}: '{}' lacks {}", file, row.line, Printable(row.name, 60), key);
    }
    const auto text_of = [&](std::string_view key) {
      return keys.Has(key) ? keys.Text(key) : std::string();
    };
    added.push_back({text_of("row"), text_of("label"), text_of("family"), text_of("framework"),
                     text_of("versions")});
  }
  names_.insert(names_.begin(), std::make_move_iterator(added.begin()),
                std::make_move_iterator(added.end()));
  return {};
}

Result<FrameworkMatch> FrameworkNames::Match(const Configuration& row,
                                             const job::FrameworkTable& frameworks) const {
  const std::string_view family = row.text("framework_family");
  if (family.empty()) {
    return InvalidInput("framework_family is blank: no framework, no defaults; name it");
  }
  const auto match =
      std::ranges::find_if(names_, [&](const FrameworkName& name) { return Names(name, row); });
  if (match != names_.end()) {
    ORRERY_ASSIGN_OR_RETURN(const job::Framework* const framework, frameworks.Find(match->row));
    return FrameworkMatch{match->label, framework};
  }
  std::vector<std::string_view> families;
  for (const FrameworkName& name : names_) {
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
