#include "orrery/search/validate/test_cases.h"

#include <fmt/format.h>

#include <utility>

#include "orrery/base/text.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/workload/models.h"
#include "orrery/workload/options.h"

namespace orrery::search {
namespace {

using formats::Section;
using workload::Model;
using enum OptionType;

constexpr std::string_view kCases[] = {
#include "orrery_data_test_cases.inc"
};

// Keys of a row beside a model's.
constexpr Option kCaseOptions[] = {
    {.name = "case"},  // part of the case's name
    {.name = "latent", .type = kBool, .fallback = "false"},
    {.name = "layers_from", .type = kInteger, .fallback = "0", .min = 0, .max = 1 << 20},
    {.name = "layers_to", .type = kInteger, .fallback = "1000000", .min = 0, .max = 1 << 20},
    {.name = "gated_width", .type = kBool, .fallback = "false"},
};
constexpr OptionTable kCaseTable{.path = "", .doc = "", .options = kCaseOptions};

// The default of --swiglu: two thirds of 4·hidden, in steps of 64.
void SetGatedWidth(Model* m) {
  m->ffn_hidden = m->hidden * 8 / 3 / 64 * 64;
  if (m->experts.count > 0) m->experts.ffn_hidden = m->ffn_hidden;
}

}  // namespace

const TestCaseTable& TestCaseTable::BuiltIn() {
  static const TestCaseTable table =
      formats::Embedded<TestCaseTable>(kCases, "data/test_cases.yaml");
  return table;
}

Status TestCaseTable::Add(std::string_view text, const std::string& file) {
  const std::size_t first = rows_.rows().size();
  ORRERY_RETURN_IF_ERROR(rows_.Add(text, file));
  const auto own = OptionNames(kCaseOptions),
             models = OptionNames(workload::ModelOptions().options);
  for (std::size_t i = first; i < rows_.rows().size(); ++i) {
    const formats::DataRow& row = rows_.rows()[i];
    if (row.part()) continue;
    ORRERY_ASSIGN_OR_RETURN(Section about,
                            Section::Read(rows_.document(), row.keys, kCaseTable, models));
    ORRERY_ASSIGN_OR_RETURN(
        Section model, Section::Read(rows_.document(), row.keys, workload::ModelOptions(), own));
    if (!about.Has("case") || row.description.empty()) {
      return InvalidInput("{}:{}: the test case '{}' lacks {}", file, row.line,
                          Printable(row.name, 60),
                          about.Has("case") ? "a description, which `assumed` shows"
                                            : "case, a part of the names it is about");
    }
    facts_.push_back({row.description, std::move(about), std::move(model)});
  }
  return {};
}

void TestCaseTable::Apply(const Configuration& row, Model* model,
                          std::vector<std::string>* assumed) const {
  const auto test_case = Behind(row, "case=");
  if (!test_case) return;
  const std::string_view name = test_case->substr(0, test_case->find('+'));
  const Model columns = *model;
  for (const Fact& fact : facts_) {
    if (name.find(fact.about.Text("case")) == std::string_view::npos) continue;
    if (fact.about.Bool("latent") && model->latent.kv_rank == 0) continue;
    if (model->layers < fact.about.Integer("layers_from") ||
        model->layers > fact.about.Integer("layers_to")) {
      continue;
    }
    assumed->push_back(fmt::format("{} (the test case's YAML)", fact.says));
    workload::ApplyModelKeys(fact.model, true, model);
    if (fact.about.Bool("gated_width")) SetGatedWidth(model);
  }
  if (row.has("ffn_hidden")) model->ffn_hidden = columns.ffn_hidden;
  if (row.has("vocab")) model->vocab = columns.vocab;
}

}  // namespace orrery::search
