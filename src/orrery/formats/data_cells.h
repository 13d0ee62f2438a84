// The lines of a data file behind its header, as cells. A malformed file breaks an invariant: it is
// ours, embedded when built.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::formats {

std::vector<std::vector<std::string>> DataRows(std::span<const std::string_view> lines,
                                               std::size_t columns);

// Names and values of a cell "a=b|c=", which has a '=' in each part.
std::vector<std::pair<std::string_view, std::string_view>> NamedValues(std::string_view cell);

}  // namespace orrery::formats
