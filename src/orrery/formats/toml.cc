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

// toml++ 3.3 has no defined answer for U+FB26 to U+FEFE outside texts and comments. REQUIRES:
// UTF-8.
Status CheckCharacters(std::string_view text, const std::string& name) {
  constexpr std::string_view kFirst = "\xEF\xAC\xA6", kLast = "\xEF\xBB\xBE";
  for (std::size_t i = text.find('\xEF'); i != std::string_view::npos;
       i = text.find('\xEF', i + 1)) {
    const std::string_view character = text.substr(i, 3);
    if (character < kFirst || character > kLast) continue;
    const TextPlace place = PlaceOf(text, i);
    return InvalidInput(
        "{}:{}:{}: a character between U+FB26 and U+FEFE, which are not read in TOML; leave it out",
        name, place.line, place.column);
  }
  return {};
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
