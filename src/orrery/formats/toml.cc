// By toml++, whose tables are sorted by name: entries are put back in the file's order.
#include "orrery/formats/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/impl/preprocessor.h>
// "1979-05-27T:00Z" breaks an assumption of its parser of dates, which a message follows: to clang
// that is undefined behaviour, and to a debug build the end.
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(expr) static_assert(true)
#include <toml++/toml.h>

#include "orrery/base/text.h"
#include "orrery/formats/tree_builder.h"

namespace orrery::formats {
namespace {

struct Place {
  std::int32_t line = 0, column = 0;
};

Place PlaceOfNode(const toml::node& node) {
  return {static_cast<std::int32_t>(node.source().begin.line),
          static_cast<std::int32_t>(node.source().begin.column)};
}

// A number as a job file has it: no underscores, no base but ten.
std::string TextOf(const toml::node& node) {
  if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* text = node.as_string()) return text->get();
  return "";
}

class TomlWalker {
 public:
  TomlWalker(const std::string& name, const Limits& limits) : name_(name), builder_(limits) {}

  // The tree is at most as deep as toml++ lets it be.
  Status Walk(const toml::node& node) {
    const Place at = PlaceOfNode(node);
    if (const auto* table = node.as_table()) {
      ORRERY_RETURN_IF_ERROR(In(builder_.Open(Node::Kind::kMap, at.line, at.column), at));
      for (const auto& [key, value] : InFileOrder(*table)) {
        const Place place = PlaceOfNode(*value);
        ORRERY_RETURN_IF_ERROR(In(builder_.Key(key, place.line, place.column), place));
        ORRERY_RETURN_IF_ERROR(Walk(*value));
      }
      builder_.Close();
      return {};
    }
    if (const auto* array = node.as_array()) {
      ORRERY_RETURN_IF_ERROR(In(builder_.Open(Node::Kind::kList, at.line, at.column), at));
      for (const toml::node& item : *array) ORRERY_RETURN_IF_ERROR(Walk(item));
      builder_.Close();
      return {};
    }
    if (node.is_date() || node.is_time() || node.is_date_time()) {
      return In(InvalidInput("dates are not accepted; put it in quotes"), at);
    }
    return In(builder_.Scalar(TextOf(node), node.is_string(), at.line, at.column), at);
  }

  Node TakeRoot() { return builder_.TakeRoot(); }

 private:
  using Entry = std::pair<std::string_view, const toml::node*>;
  static std::vector<Entry> InFileOrder(const toml::table& table) {
    std::vector<Entry> entries;
    for (const auto& [key, value] : table) entries.emplace_back(key.str(), &value);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      const Place x = PlaceOfNode(*a.second), y = PlaceOfNode(*b.second);
      return x.line != y.line ? x.line < y.line : x.column < y.column;
    });
    return entries;
  }

  Status In(Status status, const Place& at) const {
    if (status.ok()) return status;
    return InvalidInput("{}:{}:{}: {}", name_, at.line, at.column, status.message());
  }

  const std::string& name_;
  TreeBuilder builder_;
};

// Where letters beyond ASCII may stand: in comments and in texts.
class LetterCheck {
 public:
  explicit LetterCheck(std::string_view text)
      : text_(text), at_(text.starts_with("\xEF\xBB\xBF") ? 3 : 0) {}

  // The first byte of a letter beyond ASCII elsewhere, or npos.
  std::size_t FindOutside() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (IsLetter()) return at_;
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        const std::string_view three(text_.substr(at_, 3));
        const bool lines = three == "\"\"\"" || three == "'''";
        at_ += lines ? 3 : 1;
        if (!SkipText(c, lines)) return at_;
      } else {
        ++at_;
      }
    }
    return std::string_view::npos;
  }

 private:
  bool IsLetter() const { return at_ < text_.size() && (text_[at_] & 0x80) != 0; }

  // To behind a text's end, or a line's where it has only one. False: a letter where the parser
  // looks for the end of the blanks behind a backslash.
  bool SkipText(char quote, bool lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n' && !lines) return true;
      if (c == '\\' && quote == '"') {
        const std::size_t behind = at_ + 1;
        at_ = std::min(text_.find_first_not_of(" \t\r\n", behind), text_.size());
        if (IsLetter()) return false;
        if (at_ > behind) --at_;  // blanks, not an escape of one letter
      } else if (c == quote && (!lines || text_.substr(at_, 3) == std::string(3, quote))) {
        at_ += lines ? 3 : 1;
        return true;
      }
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_;
};

// TOML has no letters beyond ASCII outside texts and comments, and toml++ 3.3 no defined answer for
// most of them (is_non_ascii_horizontal_whitespace).
Status CheckCharacters(std::string_view text, const std::string& name) {
  const std::size_t at = LetterCheck(text).FindOutside();
  if (at == std::string_view::npos) return {};
  const TextPlace place = PlaceOf(text, at);
  return InvalidInput(
      "{}:{}:{}: a letter beyond ASCII outside texts and comments; put the key or value in quotes",
      name, place.line, place.column);
}

}  // namespace

Result<Document> ParseToml(std::string_view text, const std::string& name, const Limits& limits) {
  ORRERY_RETURN_IF_ERROR(CheckText(text, name, limits));
  ORRERY_RETURN_IF_ERROR(CheckCharacters(text, name));
  const toml::parse_result parsed = toml::parse(text, std::string_view(name));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return InvalidInput("{}:{}:{}: this is not TOML: {}", name, error.source().begin.line,
                        error.source().begin.column, Printable(error.description(), 200));
  }
  Document document;
  document.sources.push_back(name);
  TomlWalker walker(name, limits);
  ORRERY_RETURN_IF_ERROR(walker.Walk(parsed.table()));
  document.root = walker.TakeRoot();
  return document;
}

}  // namespace orrery::formats
