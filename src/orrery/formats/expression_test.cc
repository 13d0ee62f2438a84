// Does an expression have the value that its words say?
#include "orrery/formats/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace orrery::formats {
namespace {

using ::testing::HasSubstr;

class Cells final : public Names {
 public:
  explicit Cells(std::map<std::string, std::string> cells) : cells_(std::move(cells)) {}
  Result<std::optional<Value>> Named(const std::string& name) override {
    const auto at = cells_.find(name);
    if (at == cells_.end()) return std::optional<Value>();
    return std::optional(Value{.text = at->second, .key = name});
  }
  Result<std::optional<Value>> Field(const std::string& name) override { return Named(name); }
  Status Missing(std::string_view name) const override {
    return InvalidInput("{} is missing", name);
  }
  Status Wrong(const Value& value, std::string_view expected) const override {
    return InvalidInput("{}={}: {} belongs here", value.key, value.text, expected);
  }

 private:
  std::map<std::string, std::string> cells_;
};

// "-": nothing. Errors are shown.
std::string ValueOf(std::string_view text) {
  Cells cells({{"tp", "8"},
               {"pp", "6"},
               {"off", "0"},
               {"gpu", "H100-SXM5"},
               {"extra", "dp_last+etp4_x+recompute=norm+mlp+other"},
               {"flag", "true"}});
  const auto expression = ParseExpression(text, [](std::string_view word) { return word == "tp"; });
  if (!expression.ok()) return expression.status().message();
  const auto value = EvaluateIfThere(*expression, &cells);
  if (!value.ok()) return value.status().message();
  return *value ? (*value)->text : "-";
}

TEST(Expression, Values) {
  const std::pair<const char*, const char*> cases[] = {
      {"$tp", "8"},
      {"tp", "8"},  // a name of the data row
      {"other", "other"},
      {"'two words'", "two words"},
      {"$none", "-"},
      {"$none | $pp", "6"},
      {"$tp + $pp * 2", "20"},
      {"( $tp + $pp ) * 2", "28"},
      {"$tp * $none", "-"},
      {"$tp / $pp", "1"},
      {"$tp % $pp max 3", "3"},
      {"$tp - 1 min $pp", "7"},  // min binds as products do: 8 - min(1, 6)
      {"1 if $off | 2", "2"},
      {"1 if blank $off | 2", "2"},  // 0 is something
      {"1 if blank $none | 2", "1"},
      {"1 if not $off and $tp > 7 | 2", "1"},
      {"1 if $none > 7 | 2", "2"},   // nothing follows from what is missing
      {"1 if $none != 7 | 2", "1"},  // but that it is not that
      {"1 if $tp == 8.0 | 2", "1"},
      {"1 if $gpu is A100|H100 | 2", "2"},
      {"1 if $gpu begins A100|H100 | 2", "1"},
      {"1 if $gpu holds SXM and not $gpu holds PCIe or $none | 2", "1"},
      {"not $flag", "false"},
      {"$tp > 7", "true"},
      {"number ( $extra behind etp )", "4"},
      {"$extra behind recompute= words norm=layernorm|mlp|moe", "layernorm+mlp"},
      {"$extra behind nothing=", "-"},
      {"$extra without dp_last|mlp", "etp4_x+recompute=norm+other"},
      {"upto $extra", "dp_last"}};
  for (const auto& [text, value] : cases) EXPECT_EQ(ValueOf(text), value) << text;
}

TEST(Expression, Errors) {
  EXPECT_THAT(ValueOf("$tp +"), HasSubstr("a value is missing"));
  EXPECT_THAT(ValueOf("( $tp"), HasSubstr("a parenthesis is not closed"));
  EXPECT_THAT(ValueOf("'tp"), HasSubstr("a quote is not closed"));
  EXPECT_THAT(ValueOf("$tp $pp"), HasSubstr("'$pp' is not understood; valid: "));
  EXPECT_THAT(ValueOf("$tp / $off"), HasSubstr("off=0: a number above 0 belongs here"));
  EXPECT_THAT(ValueOf("$tp - 9 * 2"), HasSubstr("at most 8 belongs here"));
  EXPECT_THAT(ValueOf("$gpu * 2"), HasSubstr("gpu=H100-SXM5: a whole number from 0"));
  EXPECT_THAT(ValueOf("not $gpu"), HasSubstr("true or false"));
  EXPECT_THAT(ValueOf(std::string(200, '(')), HasSubstr("nested too deep"));
}

// What a file lacks is named, unless an alternative has a value or says `default`.
TEST(Expression, MissingNames) {
  Cells cells(std::map<std::string, std::string>{{"a", "1"}});
  const auto evaluate = [&](std::string_view text) {
    return Evaluate(*ParseExpression(text, [](std::string_view) { return false; }), &cells);
  };
  EXPECT_EQ(evaluate("$b | $c").status().message(), "b is missing");
  EXPECT_EQ(evaluate("$b | $a")->value().text, "1");
  EXPECT_FALSE(evaluate("$b | default")->has_value());
  EXPECT_FALSE(evaluate("$a if $b")->has_value());
}

}  // namespace
}  // namespace orrery::formats
