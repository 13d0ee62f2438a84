#include "orrery/formats/tree.h"

#include <fmt/format.h>

#include "orrery/base/file.h"
#include "orrery/base/text.h"

namespace orrery::formats {

const Node* Node::Find(std::string_view key) const {
  for (const Field& field : fields) {
    if (field.key == key) return &field.value;
  }
  return nullptr;
}

Node* Node::Find(std::string_view key) {
  return const_cast<Node*>(static_cast<const Node*>(this)->Find(key));
}

Node* Node::Make(std::string_view path) {
  const std::size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  if (kind != Kind::kMap) *this = Node{.kind = Kind::kMap};
  Node* inner = Find(key);
  if (inner == nullptr) {
    fields.push_back({.key = std::string(key), .value = {}});
    inner = &fields.back().value;
  }
  return dot == std::string_view::npos ? inner : inner->Make(path.substr(dot + 1));
}

const Node* Node::At(std::string_view path) const {
  const std::size_t dot = path.find('.');
  const Node* const inner = Find(path.substr(0, dot));
  return dot == std::string_view::npos || inner == nullptr ? inner
                                                           : inner->At(path.substr(dot + 1));
}

namespace {

void ShiftSources(std::uint32_t by, Node* node) {
  node->source += by;
  for (Node& item : node->items) ShiftSources(by, &item);
  for (Field& field : node->fields) ShiftSources(by, &field.value);
}

std::string Place(const std::string& source, std::int32_t line, std::int32_t column) {
  std::string name = Printable(source, 400);
  if (line == 0) return name;
  if (column == 0) return fmt::format("{}:{}", name, line);
  return fmt::format("{}:{}:{}", name, line, column);
}

}  // namespace

std::string Document::Where(const Node& node) const {
  return Place(sources[node.source], node.line, node.column);
}

std::string Document::Where(const Field& field) const {
  return Place(sources[field.value.source], field.line, field.column);
}

void Document::TakeSources(const std::vector<std::string>& from, Node* node) {
  ShiftSources(static_cast<std::uint32_t>(sources.size()), node);
  sources.insert(sources.end(), from.begin(), from.end());
}

Result<Document> ReadDocument(const std::string& path, const Limits& limits) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(path, static_cast<std::int64_t>(limits.bytes)));
  if (path.ends_with(".json")) return ParseJson(text, path, limits);
  return ParseYaml(text, path, limits);
}

}  // namespace orrery::formats
