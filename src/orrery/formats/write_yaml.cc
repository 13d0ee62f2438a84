#include "orrery/formats/write_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Whether YAML takes the text for itself, neither a number nor a word with a meaning.
bool IsPlain(std::string_view text) {
  constexpr std::array<std::string_view, 8> kWords = {"true", "false", "null", "yes",
                                                      "no",   "on",    "off",  "nan"};
  if (text.empty() || !IsLetter(text.front())) return false;
  if (std::ranges::find(kWords, Lower(text)) != kWords.end()) return false;
  return std::ranges::all_of(text, [](char c) {
    return IsLetter(c) || (c >= '0' && c <= '9') ||
           std::string_view("_-./@+").find(c) != std::string_view::npos;
  });
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Scalar(const Node& node) {
  return node.quoted && !IsPlain(node.text) ? Quoted(node.text) : node.text;
}

std::string Key(const Field& field) {
  return fmt::format("{}:", IsPlain(field.key) ? field.key : Quoted(field.key));
}

// In one line.
std::string Flow(const Node& node) {
  if (node.kind == Node::Kind::kNull) return "null";
  if (node.kind == Node::Kind::kScalar) return Scalar(node);
  const bool list = node.kind == Node::Kind::kList;
  std::string out;
  for (const Node& item : node.items)
    out += fmt::format("{}{}", out.empty() ? "" : ", ", Flow(item));
  for (const Field& field : node.fields) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", Key(field), Flow(field.value));
  }
  return list ? fmt::format("[{}]", out) : fmt::format("{{{}}}", out);
}

bool IsListOfMaps(const Node& node) {
  return node.kind == Node::Kind::kList && !node.items.empty() &&
         std::ranges::all_of(node.items, [](const Node& item) { return !item.fields.empty(); });
}

// Sentences, which are too long for one line together.
bool IsListOfTexts(const Node& node) {
  const auto is_text = [](const Node& item) {
    return item.kind == Node::Kind::kScalar && item.quoted && !IsPlain(item.text);
  };
  return node.kind == Node::Kind::kList && std::ranges::any_of(node.items, is_text) &&
         std::ranges::all_of(node.items,
                             [](const Node& item) { return item.kind == Node::Kind::kScalar; });
}

void WriteMap(const Node& map, std::size_t indent, std::string* out);

// What stands behind "key:".
void WriteValue(const Node& value, std::size_t indent, std::string* out) {
  if (!value.fields.empty()) {
    *out += "\n";
    WriteMap(value, indent + 2, out);
  } else if (IsListOfTexts(value)) {
    *out += "\n";
    for (const Node& item : value.items) {
      *out += fmt::format("{:{}}- {}\n", "", indent + 2, Scalar(item));
    }
  } else if (IsListOfMaps(value)) {
    *out += "\n";
    for (const Node& item : value.items) {
      std::string entry;
      WriteMap(item, indent + 4, &entry);
      entry[indent + 2] = '-';
      *out += entry;
    }
  } else {
    *out += fmt::format(" {}\n", Flow(value));
  }
}

void WriteMap(const Node& map, std::size_t indent, std::string* out) {
  for (const Field& field : map.fields) {
    *out += fmt::format("{:{}}{}", "", indent, Key(field));
    WriteValue(field.value, indent, out);
  }
}

}  // namespace

std::string WriteYaml(const Node& root) {
  std::string out;
  WriteMap(root, 0, &out);
  return out;
}

}  // namespace orrery::formats
