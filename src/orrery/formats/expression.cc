#include "orrery/formats/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "orrery/base/schema.h"
#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

using Maybe = std::optional<Value>;

// What binds less stands before.
constexpr std::array<std::string_view, 6> kLevels = {
    "or", "and", "==|!=|<|<=|>|>=|is|begins|holds", "+|-", "*|/|%|min|max", "behind|words|without"};
constexpr std::size_t kNotLevel = 2;  // `not` stands before comparisons
constexpr std::string_view kPrefixes = "blank|number|upto";

bool IsOneOf(std::string_view text, std::string_view choices) {
  return std::ranges::count(SplitBars(choices), text) > 0;
}

struct ExpressionWord {
  std::string_view text;
  bool quoted = false;
};

Result<std::vector<ExpressionWord>> WordsOf(std::string_view text) {
  std::vector<ExpressionWord> words;
  while (true) {
    const std::size_t from = text.find_first_not_of(' ');
    if (from == std::string_view::npos) return words;
    text.remove_prefix(from);
    std::size_t size = std::min(text.find(' '), text.size());
    if (text.front() == '\'') {
      size = text.find('\'', 1);
      if (size == std::string_view::npos) return InvalidInput("a quote is not closed");
      words.push_back({text.substr(1, size - 1), true});
      ++size;
    } else if (text.front() == '(' || text.front() == ')') {
      size = 1;
      words.push_back({text.substr(0, 1)});
    } else {
      size = std::min(size, text.find(')'));
      words.push_back({text.substr(0, size)});
    }
    text.remove_prefix(size);
  }
}

class ExpressionParser {
 public:
  ExpressionParser(std::vector<ExpressionWord> words,
                   const std::function<bool(std::string_view)>& is_field)
      : words_(std::move(words)), is_field_(is_field) {}

  Result<Expression> Parse() {
    ORRERY_ASSIGN_OR_RETURN(Expression whole, Alternatives());
    if (at_ == words_.size()) return whole;
    return InvalidInput(
        "'{}' is not understood; valid: $key, a name of the row, a literal, {}, {}, not, if, |, "
        "parentheses",
        Printable(words_[at_].text, 40), fmt::join(kLevels, ", "), kPrefixes);
  }

 private:
  bool Next(std::string_view operators) {
    if (at_ == words_.size() || words_[at_].quoted || !IsOneOf(words_[at_].text, operators)) {
      return false;
    }
    ++at_;
    return true;
  }
  bool NextBar() {
    if (at_ == words_.size() || words_[at_].quoted || words_[at_].text != "|") return false;
    ++at_;
    return true;
  }
  std::string Last() const { return std::string(words_[at_ - 1].text); }

  Result<Expression> Alternatives() {
    if (++depth_ > kMostDeep) return InvalidInput("it is nested too deep");
    ORRERY_ASSIGN_OR_RETURN(Expression left, Conditional());
    while (NextBar()) {
      ORRERY_ASSIGN_OR_RETURN(Expression right, Conditional());
      left = Make(Expression::Kind::kBinary, "|", std::move(left), std::move(right));
    }
    --depth_;
    return left;
  }

  Result<Expression> Conditional() {
    ORRERY_ASSIGN_OR_RETURN(Expression value, Level(0));
    if (!Next("if")) return value;
    ORRERY_ASSIGN_OR_RETURN(Expression condition, Level(0));
    return Make(Expression::Kind::kBinary, "if", std::move(value), std::move(condition));
  }

  Result<Expression> Level(std::size_t level) {
    if (level == kNotLevel && Next("not")) {
      ORRERY_ASSIGN_OR_RETURN(Expression of, Level(level));
      return Make(Expression::Kind::kPrefix, "not", std::move(of));
    }
    if (level == kLevels.size()) return Operand();
    ORRERY_ASSIGN_OR_RETURN(Expression left, Level(level + 1));
    while (Next(kLevels[level])) {
      std::string op = Last();
      ORRERY_ASSIGN_OR_RETURN(Expression right, Level(level + 1));
      left = Make(Expression::Kind::kBinary, std::move(op), std::move(left), std::move(right));
    }
    return left;
  }

  Result<Expression> Operand() {
    if (at_ == words_.size()) return InvalidInput("a value is missing");
    if (Next(kPrefixes)) {
      std::string op = Last();
      ORRERY_ASSIGN_OR_RETURN(Expression of, Operand());
      return Make(Expression::Kind::kPrefix, std::move(op), std::move(of));
    }
    if (Next("(")) {
      ORRERY_ASSIGN_OR_RETURN(Expression inner, Alternatives());
      if (!Next(")")) return InvalidInput("a parenthesis is not closed");
      return inner;
    }
    const ExpressionWord word = words_[at_++];
    if (word.quoted) return Expression{Expression::Kind::kLiteral, std::string(word.text), {}};
    if (word.text.starts_with('$')) {
      return Expression{Expression::Kind::kName, std::string(word.text.substr(1)), {}};
    }
    return Expression{is_field_(word.text) ? Expression::Kind::kField : Expression::Kind::kLiteral,
                      std::string(word.text),
                      {}};
  }

  template <class... Parts>
  static Expression Make(Expression::Kind kind, std::string text, Parts&&... parts) {
    Expression made{kind, std::move(text), {}};
    (made.parts.push_back(std::forward<Parts>(parts)), ...);
    return made;
  }

  static constexpr int kMostDeep = 32;
  std::vector<ExpressionWord> words_;
  const std::function<bool(std::string_view)>& is_field_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

std::optional<double> NumberOf(const Value& value) {
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [at, error] = std::from_chars(value.text.data(), end, number);
  return value.quoted || error != std::errc() || at != end ? std::nullopt : std::optional(number);
}

bool Holds(const Maybe& value) {
  if (!value) return false;
  const bool list = value->node != nullptr && value->node->kind != Node::Kind::kScalar;
  return list ? formats::Holds(value->node) : formats::Holds(value->text);
}

Maybe Of(std::string text) { return Value{.text = std::move(text)}; }
Maybe Of(bool holds) { return Of(std::string(holds ? "true" : "false")); }

// "a+b+c" as far as its words are choices, each as it is read.
Maybe FirstWords(std::string_view text, std::string_view choices) {
  std::string words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('+'));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    std::string_view means;
    for (const std::string_view choice : SplitBars(choices)) {
      const std::string_view name = choice.substr(0, choice.find('='));
      if (word == name) means = choice.substr(choice.find('=') + 1);  // npos + 1: the whole
    }
    if (means.empty()) break;
    words += fmt::format("{}{}", words.empty() ? "" : "+", means);
  }
  return words.empty() ? Maybe() : Of(std::move(words));
}

// "a+b+c" but for those of its words that are choices.
Maybe Without(std::string_view text, std::string_view choices) {
  std::string words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('+'));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!IsOneOf(word, choices)) words += fmt::format("{}{}", words.empty() ? "" : "+", word);
  }
  return words.empty() ? Maybe() : Of(std::move(words));
}

Maybe Behind(std::string_view text, std::string_view words) {
  for (const std::string_view word : SplitBars(words)) {
    const std::size_t at = text.find(word);
    if (at != std::string_view::npos) return Of(std::string(text.substr(at + word.size())));
  }
  return {};
}

Maybe FirstNumber(std::string_view text) {
  const std::size_t from = text.find_first_of("0123456789");
  if (from == std::string_view::npos) return {};
  text.remove_prefix(from);
  return Of(std::string(text.substr(0, text.find_first_not_of("0123456789"))));
}

bool TextHolds(std::string_view op, std::string_view text, std::string_view choices) {
  return std::ranges::any_of(SplitBars(choices), [&](std::string_view choice) {
    return op == "is"       ? text == choice
           : op == "begins" ? text.starts_with(choice)
                            : text.find(choice) != std::string_view::npos;
  });
}

class ExpressionEvaluator {
 public:
  explicit ExpressionEvaluator(Names* names) : names_(names) {}

  // The first name that an alternative lacks.
  const std::string& missing() const { return missing_; }

  Result<Maybe> Value(const Expression& e) {
    switch (e.kind) {
      case Expression::Kind::kLiteral:
        return Of(e.text);
      case Expression::Kind::kField:
        return names_->Field(e.text);
      case Expression::Kind::kName: {
        ORRERY_ASSIGN_OR_RETURN(Maybe value, names_->Named(e.text));
        if (!value && !in_condition_ && missing_.empty()) missing_ = e.text;
        return value;
      }
      case Expression::Kind::kPrefix:
        return Prefix(e);
      case Expression::Kind::kBinary:
        return Binary(e);
    }
    return Maybe();
  }

  Result<bool> Condition(const Expression& e) {
    const bool outer = std::exchange(in_condition_, true);
    Result<Maybe> value = Value(e);
    in_condition_ = outer;
    if (!value.ok()) return std::move(value).TakeStatus();
    return Holds(*value);
  }

 private:
  Result<Maybe> Prefix(const Expression& e) {
    const Expression& of = e.parts.front();
    if (e.text == "blank" || (e.text == "not" && in_condition_)) {
      const bool outer = std::exchange(in_condition_, true);
      Result<Maybe> value = Value(of);
      in_condition_ = outer;
      if (!value.ok()) return value;
      return Of(e.text == "not" ? !Holds(*value) : !*value || (*value)->text.empty());
    }
    ORRERY_ASSIGN_OR_RETURN(Maybe value, Value(of));
    if (!value) return value;
    if (e.text == "number") return FirstNumber(value->text);
    if (e.text == "upto") {
      value->text = value->text.substr(0, value->text.find_first_of("+,; "));
      return value->text.empty() ? Maybe() : value;
    }
    if (value->quoted || (value->text != "true" && value->text != "false")) {
      return names_->Wrong(*value, "true or false");
    }
    value->text = value->text == "true" ? "false" : "true";
    return value;
  }

  Result<Maybe> Binary(const Expression& e) {
    const Expression &a = e.parts.front(), &b = e.parts.back();
    const std::string& op = e.text;
    if (op == "|") {
      ORRERY_ASSIGN_OR_RETURN(Maybe first, Value(a));
      if (first) return first;
      return Value(b);
    }
    if (op == "if") {
      ORRERY_ASSIGN_OR_RETURN(const bool holds, Condition(b));
      if (!holds) return Maybe();
      return Value(a);
    }
    if (op == "and" || op == "or") {
      ORRERY_ASSIGN_OR_RETURN(const bool first, Condition(a));
      if (first == (op == "or")) return Of(first);
      ORRERY_ASSIGN_OR_RETURN(const bool second, Condition(b));
      return Of(second);
    }
    ORRERY_ASSIGN_OR_RETURN(Maybe left, Value(a));
    ORRERY_ASSIGN_OR_RETURN(Maybe right, Value(b));
    if (!left || !right) return op == "!=" && in_condition_ ? Of(true) : Maybe();
    if (IsOneOf(op, "is|begins|holds")) return Of(TextHolds(op, left->text, right->text));
    if (op == "behind") return Behind(left->text, right->text);
    if (op == "words") return FirstWords(left->text, right->text);
    if (op == "without") return Without(left->text, right->text);
    if (IsOneOf(op, kLevels[kNotLevel])) return Compare(op, *left, *right);
    return Compute(op, *std::move(left), *right);
  }

  Result<Maybe> Compare(std::string_view op, const formats::Value& a, const formats::Value& b) {
    const std::optional<double> x = NumberOf(a), y = NumberOf(b);
    if (op == "==" || op == "!=") {
      const bool same = x && y ? *x == *y : a.text == b.text;
      return Of(same == (op == "=="));
    }
    if (!x || !y) return names_->Wrong(x ? b : a, "a number");
    return Of(op == "<" ? *x < *y : op == "<=" ? *x <= *y : op == ">" ? *x > *y : *x >= *y);
  }

  Result<std::int64_t> Whole(const formats::Value& value) {
    std::int64_t number = 0;
    const char* end = value.text.data() + value.text.size();
    const auto [at, error] = std::from_chars(value.text.data(), end, number);
    constexpr std::int64_t kMost = std::int64_t{3'000'000'000};
    if (value.quoted || error != std::errc() || at != end || number < 0 || number > kMost) {
      return names_->Wrong(value, "a whole number from 0");
    }
    return number;
  }

  Result<Maybe> Compute(std::string_view op, formats::Value a, const formats::Value& b) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t x, Whole(a));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t y, Whole(b));
    if (y == 0 && (op == "/" || op == "%")) return names_->Wrong(b, "a number above 0");
    if (op == "-" && y > x) return names_->Wrong(b, fmt::format("at most {}", x));
    // Products of two fit: both are at most kMost.
    a.text = std::to_string(op == "*"     ? x * y
                            : op == "/"   ? x / y
                            : op == "%"   ? x % y
                            : op == "+"   ? x + y
                            : op == "-"   ? x - y
                            : op == "min" ? std::min(x, y)
                                          : std::max(x, y));
    return Maybe(std::move(a));
  }

  Names* names_;
  std::string missing_;
  bool in_condition_ = false;
};

void AddNames(const Expression& e, std::vector<std::string>* names) {
  if (e.kind == Expression::Kind::kName) names->push_back(e.text);
  for (const Expression& part : e.parts) AddNames(part, names);
}

}  // namespace

bool Holds(std::string_view text) {
  if (text.empty() || text == "false" || text == "null") return false;
  return text.find_first_not_of("0.") != std::string_view::npos;
}

bool Holds(const Node* node) {
  if (node == nullptr) return false;
  return node->kind == Node::Kind::kScalar ? Holds(node->text)
                                           : !node->items.empty() || !node->fields.empty();
}

std::vector<std::string> NamesIn(const Expression& expression) {
  std::vector<std::string> names;
  AddNames(expression, &names);
  return names;
}

Result<Expression> ParseExpression(std::string_view text,
                                   const std::function<bool(std::string_view)>& is_field) {
  ORRERY_ASSIGN_OR_RETURN(std::vector<ExpressionWord> words, WordsOf(text));
  return ExpressionParser(std::move(words), is_field).Parse();
}

Result<Maybe> Evaluate(const Expression& expression, Names* names) {
  ExpressionEvaluator evaluator(names);
  ORRERY_ASSIGN_OR_RETURN(Maybe value, evaluator.Value(expression));
  if (value && value->node == nullptr && value->key.empty() && value->text == "default") {
    return Maybe();
  }
  if (!value && !evaluator.missing().empty()) return names->Missing(evaluator.missing());
  return value;
}

Result<Maybe> EvaluateIfThere(const Expression& expression, Names* names) {
  return ExpressionEvaluator(names).Value(expression);
}

Result<bool> Holds(const Expression& condition, Names* names) {
  return ExpressionEvaluator(names).Condition(condition);
}

}  // namespace orrery::formats
