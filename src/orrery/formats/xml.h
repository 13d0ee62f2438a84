// XML as a tree of elements with attributes and lines; text between elements is dropped.
//
// Reading is expat's, with what strangers' files must not do refused: a document type declaration
// (and so every entity but the five of XML itself), and more bytes, depth or elements than the
// limits.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/tree.h"

namespace orrery::formats {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  int line = 0;  // from 1

  // Null when there is none.
  const std::string* Find(std::string_view attribute) const;
};

// The root element. `name` stands for the document in errors: "name:line: what; remedy".
Result<XmlElement> ParseXml(std::string_view text, const std::string& name,
                            const Limits& limits = {});

}  // namespace orrery::formats
