#include "orrery/recipes/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "orrery/base/units.h"
#include "orrery/formats/toml.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using formats::Node;

class Expressions {
 public:
  explicit Expressions(const Node& root) : root_(root) {}

  void ResolveAll(const std::string& section, Node* node) const {
    for (formats::Field& field : node->fields) {
      const std::string path = section.empty() ? field.key : section + "." + field.key;
      if (field.value.kind == Node::Kind::kScalar) Leaf(section, &field.value);
      ResolveAll(path, &field.value);
    }
    for (Node& item : node->items) {
      if (item.kind == Node::Kind::kScalar) Leaf(section, &item);
      ResolveAll(section, &item);
    }
  }

 private:
  static constexpr int kMostDepth = 8;
  static constexpr std::int64_t kMostBytes = 8 << 20;  // that all expressions of a file become

  void Leaf(const std::string& section, Node* node) const {
    if (node->text.find("${") == std::string::npos) return;
    const Node* whole = Target(node->text, section);  // "${x}" alone may be null
    if (whole != nullptr && whole->kind == Node::Kind::kNull) {
      node->kind = Node::Kind::kNull;
    } else {
      node->text = Resolve(node->text, section, 0);
    }
  }

  static std::size_t End(std::string_view text, std::size_t open) {
    int depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
      if (text[i] == '{') ++depth;
      if (text[i] == '}' && --depth == 0) return i;
    }
    return std::string_view::npos;
  }

  std::string Resolve(std::string_view text, const std::string& section, int depth) const {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t open = std::min(text.find("${", at), text.size());
      out += text.substr(at, open - at);
      if (open == text.size()) break;
      const std::size_t close = End(text, open);
      if (close == std::string_view::npos || depth > kMostDepth) {
        out += text.substr(open);
        break;
      }
      const std::string inside =
          Resolve(text.substr(open + 2, close - open - 2), section, depth + 1);
      const std::optional<std::string> value = Value(inside, section, depth);
      out += value ? *value : std::string(text.substr(open, close + 1 - open));
      at = close + 1;
      bytes_ += static_cast<std::int64_t>(out.size());
      if (bytes_ > kMostBytes) return out;
    }
    return out;
  }

  std::optional<std::string> Value(const std::string& inside, const std::string& section,
                                   int depth) const {
    if (const std::size_t colon = inside.find(':'); colon != std::string::npos) {
      return Call(inside.substr(0, colon), inside.substr(colon + 1));
    }
    const std::string path = Absolute(inside, section);
    const Node* node = At(path);
    if (node == nullptr || node->kind != Node::Kind::kScalar) return std::nullopt;
    const std::size_t dot = path.rfind('.');
    return Resolve(node->text, dot == std::string::npos ? "" : path.substr(0, dot), depth + 1);
  }

  // What "${path}" names; null: nothing, or the text is more than that.
  const Node* Target(std::string_view text, const std::string& section) const {
    if (!text.starts_with("${") || End(text, 0) != text.size() - 1) return nullptr;
    return At(Absolute(std::string(text.substr(2, text.size() - 3)), section));
  }

  static std::string Absolute(std::string path, std::string section) {
    if (path.starts_with('.')) {
      path.erase(0, 1);
      for (; path.starts_with('.'); path.erase(0, 1)) {
        const std::size_t dot = section.rfind('.');
        section.erase(dot == std::string::npos ? 0 : dot);
      }
      if (!section.empty()) path.insert(0, section + ".");
    }
    if (path.starts_with("training.")) path.erase(0, 9);  // NeMo's launcher puts its file there
    return path;
  }

  const Node* At(std::string_view path) const {
    const Node* node = &root_;
    for (std::size_t at = 0; node != nullptr && at <= path.size();) {
      const std::size_t end = std::min(path.find('.', at), path.size());
      node = node->Find(path.substr(at, end - at));
      at = end + 1;
    }
    return node;
  }

  // multiply:a, b and divide_floor:a, b of whole numbers; mul, add and div in NeMo-RL.
  static std::optional<std::string> Call(const std::string& name, const std::string& arguments) {
    const std::size_t comma = arguments.find(',');
    if (comma == std::string::npos) return std::nullopt;
    const auto whole = [](std::string text) {
      std::erase(text, ' ');
      return ParseInteger(text);
    };
    const auto a = whole(arguments.substr(0, comma)), b = whole(arguments.substr(comma + 1));
    std::int64_t product = 0;
    if (!a.ok() || !b.ok()) return std::nullopt;
    if (name == "add" && !__builtin_add_overflow(*a, *b, &product)) return std::to_string(product);
    if ((name == "multiply" || name == "mul") && !__builtin_mul_overflow(*a, *b, &product)) {
      return std::to_string(product);
    }
    if (name == "div" && *b > 0 && *a % *b == 0) return std::to_string(*a / *b);
    if (name.starts_with("divide") && *b > 0) return std::to_string(*a / *b);
    return std::nullopt;
  }

  const Node& root_;
  mutable std::int64_t bytes_ = 0;
};

}  // namespace

bool IsYaml(std::string_view path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

bool HasKey(std::string_view text, std::string_view key) {
  const std::string line = fmt::format("{}:", key);
  return text.starts_with(line) || Contains(text, "\n" + line);
}

Result<Document> ParseConfiguration(const File& file) {
  const auto ends = [&](std::string_view ending) { return file.path.ends_with(ending); };
  ORRERY_ASSIGN_OR_RETURN(Document document,
                          ends(".toml")   ? formats::ParseToml(file.text, file.path)
                          : ends(".json") ? formats::ParseJson(file.text, file.path)
                                          : formats::ParseYaml(file.text, file.path));
  for (const Override& set : file.overrides) {
    if (document.root.kind == Node::Kind::kNull) document.root.kind = Node::Kind::kMap;
    const auto known = std::ranges::find(document.sources, set.source);
    const auto source = static_cast<std::uint32_t>(known - document.sources.begin());
    if (known == document.sources.end()) document.sources.push_back(set.source);
    Node* leaf = document.root.Make(set.path);
    const bool null = set.value == "null" || set.value == "None";
    *leaf = Node{.kind = null ? Node::Kind::kNull : Node::Kind::kScalar,
                 .text = set.value,
                 .source = source,
                 .line = set.line};
  }
  return document;
}

void ResolveExpressions(Document* document) {
  const Node root = document->root;
  Expressions(root).ResolveAll("", &document->root);
}

}  // namespace orrery::recipes
