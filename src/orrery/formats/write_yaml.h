// A tree as YAML that ParseYaml reads back to the same values: maps and lists of maps in lines of
// their own, lists of values in brackets.
#pragma once

#include <string>

#include "orrery/formats/tree.h"

namespace orrery::formats {

// REQUIRES: `root` is a map.
std::string WriteYaml(const Node& root);

}  // namespace orrery::formats
