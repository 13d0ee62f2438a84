#include "orrery/search/validate/model_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/workload/options.h"

namespace orrery::search {
namespace {

using formats::Section;

constexpr std::string_view kNames[] = {
#include "orrery_data_model_names.inc"
};
// Keys of a row beside a model's.
constexpr Option kOptions[] = {{.name = "names"},
                               {.name = "model"},
                               {.name = "label"},
                               {.name = "note"},
                               {.name = "drops", .type = OptionType::kBool, .fallback = "false"}};
constexpr OptionTable kTable{.path = "", .doc = "", .options = kOptions};

}  // namespace

const ModelNames& ModelNames::BuiltIn() {
  static const ModelNames names = formats::Embedded<ModelNames>(kNames, "data/model_names.yaml");
  return names;
}

Status ModelNames::Add(std::string_view text, const std::string& file) {
  const std::size_t first = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  const auto own = OptionNames(kOptions), models = OptionNames(workload::ModelOptions().options);
  std::vector<ModelName> added;
  for (std::size_t i = first; i < rows_.rows().size(); ++i) {
    const formats::DataRow& row = rows_.rows()[i];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(const Section about,
                            Section::Read(rows_.document(), row.keys, kTable, models));
    ORRERY_ASSIGN_OR_RETURN(
        Section keys, Section::Read(rows_.document(), row.keys, workload::ModelOptions(), own));
    const bool known = about.Has("model");
    const bool complete =
        about.Has("names") && (known || (about.Has("label") && keys.Has("vocab")));
    if (!complete) {
      return InvalidInput("{}:{}: the model '{}' lacks {}", file, row.line, Printable(row.name, 60),
                          about.Has("names") ? "model, or label and vocab" : "names");
    }
    const auto text_of = [&](std::string_view key) {
      return about.Has(key) ? about.Text(key) : std::string();
    };
    added.push_back({Lower(text_of("names")), text_of("model"), text_of("label"), text_of("note"),
                     about.Bool("drops"), std::move(keys)});
  }
  names_.insert(names_.begin(), std::make_move_iterator(added.begin()),
                std::make_move_iterator(added.end()));
  return {};
}

const ModelName* ModelNames::Find(std::string_view model, bool known) const {
  const std::string name = Lower(model);
  const auto row = std::ranges::find_if(names_, [&](const ModelName& n) {
    return n.model.empty() != known && BeginsWithOneOf(name, n.names);
  });
  return row == names_.end() ? nullptr : &*row;
}

}  // namespace orrery::search
