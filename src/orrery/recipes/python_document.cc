#include "orrery/recipes/python_document.h"

#include "orrery/base/text.h"

namespace orrery::recipes {

void LeafDocument::Add(std::string_view path, const PythonValue& value) {
  using formats::Node;
  Node node{.line = value.line};
  if (value.kind == PythonValue::Kind::kNone) return;
  if (value.kind == PythonValue::Kind::kList) {
    node.kind = Node::Kind::kList;
    for (const PythonValue& item : value.items) {
      node.items.push_back({.kind = Node::Kind::kScalar, .text = item.text, .line = item.line});
    }
  } else {
    node.kind = Node::Kind::kScalar;
    node.text = value.kind == PythonValue::Kind::kBool ? Lower(value.text) : value.text;
  }
  *document_.root.Make(path) = std::move(node);
}

void LeafDocument::Add(std::string_view path, std::string text, std::int32_t line) {
  *document_.root.Make(path) = {
      .kind = formats::Node::Kind::kScalar, .text = std::move(text), .line = line};
}

void LeafDocument::AddFields(const std::string& prefix, const PythonValue& map) {
  for (const auto& [key, value] : map.fields) {
    std::string path = prefix;
    if (!path.empty()) path += '.';
    path += key;
    if (value.kind == PythonValue::Kind::kMap || value.kind == PythonValue::Kind::kCall) {
      AddFields(path, value);
    } else {
      Add(path, value);
    }
  }
}

}  // namespace orrery::recipes
