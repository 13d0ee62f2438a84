// A configuration in Python as a document, whose leaves the tables know by their dotted paths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "orrery/formats/tree.h"
#include "orrery/recipes/python_file.h"

namespace orrery::recipes {

class LeafDocument {
 public:
  explicit LeafDocument(const std::string& name) {
    document_.sources.push_back(name);
    document_.root.kind = formats::Node::Kind::kMap;
  }

  // None is not added.
  void Add(std::string_view path, const PythonValue& value);
  void Add(std::string_view path, std::string text, std::int32_t line);
  // Every field of a map or call, sections and all; unknown values are left to whom they concern.
  void AddFields(const std::string& prefix, const PythonValue& map);

  formats::Document Take() { return std::move(document_); }

 private:
  formats::Document document_;
};

}  // namespace orrery::recipes
