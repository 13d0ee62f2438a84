#include "orrery/search/validate/row_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/schema.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/job/frameworks.h"
#include "orrery/job/tables.h"
#include "orrery/search/validate/columns.h"
#include "orrery/search/validate/release_recipes.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {

using formats::DataRow;
using formats::Expression;
using formats::Node;

namespace {

constexpr std::string_view kRules[] = {
#include "orrery_data_row_rules.inc"
};
constexpr Option kRuleKeys[] = {
    {.name = "of", .type = OptionType::kChoice, .fallback = "plan", .choices = "plan|model"},
    {.name = "if"},
    {.name = "needs"},
    {.name = "least"},
    {.name = "from"},
    {.name = "to"},
    {.name = "where"},
    {.name = "refused"},
    {.name = "said"}};
constexpr OptionTable kRuleTable{.path = "", .doc = "", .options = kRuleKeys};
constexpr std::string_view kRuleParts[] = {"set", "drop"};
constexpr std::string_view kColumnRules[] = {
#include "orrery_data_columns.inc"
};
constexpr std::string_view kTried = "n";

}  // namespace

// Reads a row; `others`: keys of a column that are none of a rule. What it sets is put to `names`.
class RowRules::Reader {
 public:
  Reader(const formats::RowValues<Rule>& table, const DataRow& row,
         std::vector<std::string_view> others, std::set<std::string>* names)
      : table_(table), row_(row), others_(std::move(others)), names_(names) {}

  Result<Rule> Read() {
    others_.insert(others_.end(), std::begin(kRuleParts), std::end(kRuleParts));
    ORRERY_ASSIGN_OR_RETURN(const formats::Section keys,
                            table_.Keys(row_, kRuleTable, "", others_));
    Rule rule;
    if (keys.Text("of") == "model") rule.of = Of::kModel;
    rule.least = formats::TextOf(keys, "least");
    if (!rule.least.empty()) names_->insert({rule.least, std::string(kTried)});
    for (const auto& [key, expression] : {std::pair{"if", &rule.condition},
                                          {"from", &rule.from},
                                          {"to", &rule.to},
                                          {"where", &rule.where}}) {
      if (!keys.Has(key)) continue;
      ORRERY_ASSIGN_OR_RETURN(*expression, Parse(keys.Text(key), keys.Where(key)));
    }
    if (!rule.least.empty() && (!rule.from || !rule.to || !rule.where)) {
      return InvalidInput("least takes from, to and where").In(keys.Where("least"));
    }
    const std::string needs = formats::TextOf(keys, "needs");
    for (const std::string_view column : SplitBars(needs)) {
      rule.needs.emplace_back(column);
      ORRERY_RETURN_IF_ERROR(CheckName(rule.needs.back(), keys.Where("needs")));
    }
    ORRERY_RETURN_IF_ERROR(ReadSet(&rule));
    ORRERY_RETURN_IF_ERROR(ReadDrop(&rule));
    for (const auto& [key, text] :
         {std::pair{"refused", &rule.refused}, std::pair{"said", &rule.said}}) {
      if (!keys.Has(key)) continue;
      ORRERY_ASSIGN_OR_RETURN(*text, ParseText(keys.Text(key), keys.Where(key)));
    }
    return rule;
  }

 private:
  Status ReadSet(Rule* rule) {
    const Node* const set = row_.keys.Find("set");
    if (set == nullptr) return {};
    for (const formats::Field& field : set->fields) {
      const std::string where = fmt::format("{}: {}", table_.document().Where(field), field.key);
      if (field.key.find('.') == std::string::npos) {
        names_->insert(field.key);
      } else if (auto key = job::FindKey(field.key); !key.ok()) {
        return std::move(key).TakeStatus().In(where);
      }
      ORRERY_ASSIGN_OR_RETURN(Expression value, Parse(field.value.text, where));
      rule->set.emplace_back(field.key, std::move(value));
    }
    return {};
  }

  Status ReadDrop(Rule* rule) {
    const Node* const drop = row_.keys.Find("drop");
    if (drop == nullptr) return {};
    std::vector<Node> keys = drop->items;
    if (keys.empty()) keys.push_back(*drop);
    for (const Node& key : keys) {
      if (auto found = job::FindKey(key.text); !found.ok()) {
        return std::move(found).TakeStatus().In(table_.document().Where(key) + ": drop");
      }
      rule->drop.push_back(key.text);
    }
    return {};
  }

  Result<Expression> Parse(std::string_view text, const std::string& where) {
    auto expression = formats::ParseExpression(text, [](std::string_view) { return false; });
    if (!expression.ok()) return std::move(expression).TakeStatus().In(where);
    for (const std::string& name : formats::NamesIn(*expression)) {
      ORRERY_RETURN_IF_ERROR(CheckName(name, where));
    }
    return expression;
  }

  // "text {expression} text"
  Result<Text> ParseText(std::string_view text, const std::string& where) {
    Text parts;
    while (!text.empty()) {
      const std::size_t open = std::min(text.find('{'), text.size());
      const std::size_t close = std::min(text.find('}', open), text.size());
      parts.emplace_back(text.substr(0, open), std::nullopt);
      if (open < text.size()) {
        if (close == text.size()) return InvalidInput("a brace is not closed").In(where);
        ORRERY_ASSIGN_OR_RETURN(parts.back().second,
                                Parse(text.substr(open + 1, close - open - 1), where));
      }
      text.remove_prefix(std::min(close + 1, text.size()));
    }
    return parts;
  }

  Status CheckName(const std::string& name, const std::string& where) const {
    const std::string_view text = name;
    const bool known =
        text.starts_with(kFrameworkOf) ? job::IsFrameworkKey(text.substr(kFrameworkOf.size()))
        : text.starts_with(kChoicesOf) ? job::FindKey(text.substr(kChoicesOf.size())).ok()
                                       : names_->contains(name) || job::FindKey(name).ok();
    if (known) return {};
    std::vector<std::string_view> valid(names_->begin(), names_->end());
    return InvalidInput("{}; or a key of a job, or framework.PART.KEY",
                        UnknownName("name", Printable(name, 60), valid))
        .In(where);
  }

  const formats::RowValues<Rule>& table_;
  const DataRow& row_;
  std::vector<std::string_view> others_;
  std::set<std::string>* names_;
};

const RowRules& RowRules::BuiltIn() {
  static const RowRules rules = [] {
    RowRules built_in;
    for (const std::string_view name : NamesForRules()) built_in.names_.emplace(name);
    for (const std::string_view name : RecipeTable::OwnKeys()) built_in.names_.emplace(name);
    for (const Column& column : Columns::BuiltIn().all()) {
      if (column.means.empty()) built_in.names_.insert(column.name);
    }
    Status status = built_in.AddColumns(formats::Lines(kColumnRules), "data/columns.yaml");
    if (status.ok()) status = built_in.Add(formats::Lines(kRules), "data/row_rules.yaml");
    ORRERY_CHECK(status.ok(), status.message().c_str());
    return built_in;
  }();
  return rules;
}

std::vector<std::string_view> RowRules::Keys() {
  std::vector<std::string_view> keys = OptionNames(kRuleKeys);
  keys.insert(keys.end(), std::begin(kRuleParts), std::end(kRuleParts));
  return keys;
}

Status RowRules::Add(std::string_view text, const std::string& file) {
  return rows_.Add(text, file, [&](const auto& table, const DataRow& row) {
    return Reader(table, row, {}, &names_).Read();
  });
}

Status RowRules::AddColumns(std::string_view text, const std::string& file) {
  return columns_.Add(text, file, [&](const auto& table, const DataRow& row) {
    names_.insert(row.name);
    return Reader(table, row, Columns::Keys(), &names_).Read();
  });
}

// The numbers are tried one by one.
Status RowRules::Search(const Rule& rule, RuledRow* row) {
  constexpr std::int64_t kMostTries = 1 << 20;
  ORRERY_ASSIGN_OR_RETURN(const auto from, formats::EvaluateIfThere(*rule.from, row));
  ORRERY_ASSIGN_OR_RETURN(const auto to, formats::EvaluateIfThere(*rule.to, row));
  if (!from || !to) return {};
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t first, ParseInteger(from->text));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t last, ParseInteger(to->text));
  for (std::int64_t n = first; n <= std::min(last, first + kMostTries); ++n) {
    ORRERY_RETURN_IF_ERROR(row->Set(std::string(kTried), std::to_string(n)));
    ORRERY_ASSIGN_OR_RETURN(const bool holds, formats::Holds(*rule.where, row));
    if (holds) return row->Set(rule.least, std::to_string(n));
  }
  return {};
}

Result<std::string> RowRules::Fill(const Text& text, RuledRow* row) {
  std::string filled;
  for (const auto& [plain, expression] : text) {
    filled += plain;
    if (!expression) continue;
    ORRERY_ASSIGN_OR_RETURN(const auto value, formats::EvaluateIfThere(*expression, row));
    if (value) filled += Printable(value->text, 60);
  }
  return filled;
}

Status RowRules::ApplyOne(const Rule& rule, RuledRow* row) {
  if (rule.condition) {
    ORRERY_ASSIGN_OR_RETURN(const bool holds, formats::Holds(*rule.condition, row));
    if (!holds) return {};
  }
  for (const std::string& name : rule.needs) {
    ORRERY_ASSIGN_OR_RETURN(const auto value, row->Named(name));
    if (!value) return InvalidInput("{} is blank: the run cannot be set up without it", name);
  }
  if (!rule.least.empty()) ORRERY_RETURN_IF_ERROR(Search(rule, row));
  for (const auto& [name, expression] : rule.set) {
    ORRERY_ASSIGN_OR_RETURN(const auto value, formats::EvaluateIfThere(expression, row));
    if (value) ORRERY_RETURN_IF_ERROR(row->Set(name, value->text));
  }
  for (const std::string& key : rule.drop) row->Drop(key);
  if (rule.refused) {
    ORRERY_ASSIGN_OR_RETURN(const std::string why, Fill(*rule.refused, row));
    return InvalidInput("{}", why);
  }
  if (rule.said) {
    ORRERY_ASSIGN_OR_RETURN(std::string said, Fill(*rule.said, row));
    row->Assume(std::move(said));
  }
  return {};
}

Status RowRules::Apply(Of of, RuledRow* row) const {
  for (const auto* rules : {&columns_.values(), &rows_.values()}) {
    for (const Rule& rule : *rules) {
      if (rule.of == of) ORRERY_RETURN_IF_ERROR(ApplyOne(rule, row));
    }
  }
  return {};
}

}  // namespace orrery::search
