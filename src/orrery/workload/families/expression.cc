#include "orrery/workload/families/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "orrery/base/text.h"

namespace orrery::workload::families {
namespace {

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t from = text.find_first_not_of(' ');
    if (from == std::string_view::npos) break;
    text.remove_prefix(from);
    const std::size_t to = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, to));
    text.remove_prefix(to);
  }
  return words;
}

class Parser {
 public:
  Parser(std::span<const std::string_view> words,
         const std::function<bool(std::string_view)>& is_field)
      : words_(words), is_field_(is_field) {}

  Result<Alternative> Parse() {
    Alternative alternative;
    ORRERY_RETURN_IF_ERROR(Add(&alternative.terms));
    while (Next("*") || Next("+") || Next("/")) {
      alternative.operators += words_[at_ - 1];
      ORRERY_RETURN_IF_ERROR(Add(&alternative.terms));
    }
    if (Next("if")) {
      std::vector<Term> condition;
      ORRERY_RETURN_IF_ERROR(Add(&condition));
      alternative.condition = condition.front();
      if (Next("==")) {
        if (at_ == words_.size()) return InvalidInput("nothing stands behind '=='");
        alternative.equals = words_[at_++];
      }
    }
    if (at_ < words_.size()) {
      return InvalidInput(
          "'{}' is not understood; valid: $key, a name of the row, a literal, *, +, /, "
          "not, if, ==, |",
          Printable(words_[at_], 40));
    }
    return alternative;
  }

 private:
  bool Next(std::string_view word) {
    if (at_ == words_.size() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  Status Add(std::vector<Term>* terms) {
    Term term;
    term.negated = Next("not");
    if (at_ == words_.size()) return InvalidInput("a value is missing");
    const std::string_view word = words_[at_++];
    term.text = word;
    if (word.starts_with('$')) {
      term.kind = Term::Kind::kKey;
      term.text = word.substr(1);
    } else if (is_field_(word)) {
      term.kind = Term::Kind::kField;
    }
    terms->push_back(std::move(term));
    return {};
  }

  std::span<const std::string_view> words_;
  const std::function<bool(std::string_view)>& is_field_;
  std::size_t at_ = 0;
};

// A list of equal items, one a layer, stands for its item.
Value OfNode(const std::string& key, const formats::Node& node) {
  const auto alike = [&](const formats::Node& item) {
    return item.kind == formats::Node::Kind::kScalar && item.text == node.items.front().text;
  };
  if (node.items.size() > 1 && std::ranges::all_of(node.items, alike)) {
    return OfNode(key, node.items.front());
  }
  return {.text = node.text, .quoted = node.quoted, .key = key, .node = &node};
}

// `key.length`, where the key has a list: how many items it has.
std::optional<Value> LengthOf(std::string_view dotted, Scope* scope) {
  constexpr std::string_view kLength = ".length";
  if (!dotted.ends_with(kLength)) return std::nullopt;
  const std::string key(dotted.substr(0, dotted.size() - kLength.size()));
  const formats::Node* list = scope->Key(key);
  if (list == nullptr || list->kind != formats::Node::Kind::kList) return std::nullopt;
  return Value{.text = fmt::format("{}", list->items.size()), .key = key};
}

Result<std::optional<Value>> ValueOf(const Term& term, Scope* scope) {
  std::optional<Value> value;
  if (term.kind == Term::Kind::kKey) {
    if (std::optional<Value> length = LengthOf(term.text, scope)) return length;
    const formats::Node* node = scope->Key(term.text);
    if (node == nullptr) return value;
    value = OfNode(term.text, *node);
  } else if (term.kind == Term::Kind::kField) {
    ORRERY_ASSIGN_OR_RETURN(value, scope->Field(term.text));
    if (!value) return value;
  } else {
    value = Value{.text = term.text};
  }
  if (!term.negated) return value;
  if (value->quoted || (value->text != "true" && value->text != "false")) {
    return scope->Wrong(*value, "true or false");
  }
  value->text = value->text == "true" ? "false" : "true";
  return value;
}

Result<std::int64_t> Whole(const Value& value, Scope* scope) {
  std::int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [at, error] = std::from_chars(value.text.data(), end, number);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // products of two stay in 64 bits
  if (value.quoted || error != std::errc() || at != end || number < 0 || number > kMost) {
    return scope->Wrong(value, "a whole number from 0");
  }
  return number;
}

Result<bool> Applies(const Alternative& alternative, Scope* scope) {
  if (!alternative.condition) return true;
  Term term = *alternative.condition;
  const bool negated = term.negated;
  term.negated = false;
  bool holds = false;
  if (term.kind == Term::Kind::kKey) {
    const formats::Node* node = scope->Key(term.text);
    holds = alternative.equals.empty()
                ? Holds(node)
                : node != nullptr && OfNode(term.text, *node).text == alternative.equals;
  } else {
    ORRERY_ASSIGN_OR_RETURN(const std::optional<Value> value, ValueOf(term, scope));
    holds = value &&
            (alternative.equals.empty() ? Holds(value->text) : value->text == alternative.equals);
  }
  return holds != negated;
}

}  // namespace

bool Holds(std::string_view text) {
  if (text.empty() || text == "false" || text == "null") return false;
  return text.find_first_not_of("0.") != std::string_view::npos;
}

bool Holds(const formats::Node* node) {
  if (node == nullptr) return false;
  using Kind = formats::Node::Kind;
  return node->kind == Kind::kScalar ? Holds(node->text)
                                     : !node->items.empty() || !node->fields.empty();
}

std::vector<std::string> Expression::Keys() const {
  std::vector<std::string> keys;
  const auto add = [&](const Term& term) {
    if (term.kind == Term::Kind::kKey) keys.push_back(term.text);
  };
  for (const Alternative& alternative : alternatives) {
    std::ranges::for_each(alternative.terms, add);
    if (alternative.condition) add(*alternative.condition);
  }
  return keys;
}

Result<Expression> ParseExpression(std::string_view text,
                                   const std::function<bool(std::string_view)>& is_field) {
  const std::vector<std::string_view> words = Words(text);
  Expression expression;
  for (auto from = words.begin();;) {
    const auto to = std::find(from, words.end(), "|");
    ORRERY_ASSIGN_OR_RETURN(Alternative alternative, Parser(std::span(from, to), is_field).Parse());
    expression.alternatives.push_back(std::move(alternative));
    if (to == words.end()) return expression;
    from = to + 1;
  }
}

Result<std::optional<Value>> Evaluate(const Expression& expression, Scope* scope) {
  std::string missing;  // the first key that the file would have to have
  for (const Alternative& alternative : expression.alternatives) {
    ORRERY_ASSIGN_OR_RETURN(const bool applies, Applies(alternative, scope));
    if (!applies) continue;
    std::vector<Value> values;
    for (const Term& term : alternative.terms) {
      ORRERY_ASSIGN_OR_RETURN(std::optional<Value> value, ValueOf(term, scope));
      if (!value) {
        if (missing.empty() && term.kind == Term::Kind::kKey) missing = term.text;
        break;
      }
      values.push_back(std::move(*value));
    }
    if (values.size() < alternative.terms.size()) continue;
    if (values.size() == 1) {
      if (values.front().node == nullptr && values.front().text == "default") {
        return std::optional<Value>();
      }
      return std::optional<Value>(std::move(values.front()));
    }
    ORRERY_ASSIGN_OR_RETURN(std::int64_t result, Whole(values.front(), scope));
    for (std::size_t i = 1; i < values.size(); ++i) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t next, Whole(values[i], scope));
      const char op = alternative.operators[i - 1];
      if (op == '/' && next == 0) return scope->Wrong(values[i], "a number above 0");
      result = op == '*' ? result * next : op == '/' ? result / next : result + next;
    }
    values.front().text = fmt::format("{}", result);
    return std::optional<Value>(std::move(values.front()));
  }
  if (missing.empty()) return std::optional<Value>();
  return scope->Missing(missing);
}

}  // namespace orrery::workload::families
