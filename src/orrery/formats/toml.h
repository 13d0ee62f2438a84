// TOML 1.0 as a tree (tree.h), bounded as the other documents are. Dates are refused; numbers come
// without underscores and in base ten; entries stand in the file's order.
#pragma once

#include <string>
#include <string_view>

#include "orrery/formats/tree.h"

namespace orrery::formats {

Result<Document> ParseToml(std::string_view text, const std::string& name,
                           const Limits& limits = {});

}  // namespace orrery::formats
