// The nearest valid names for a name that a user mistyped.
//
// Distance is Damerau-Levenshtein's restricted form (insert, delete, replace, swap neighbours),
// case ignored. Cost O(|name| · |valid name|) each, where the lengths alone do not tell them apart:
// for error messages only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// Edits that turn `a` into `b`.
std::size_t EditDistance(std::string_view a, std::string_view b);

// At most `limit` of `valid`, nearest first, ties in the order given; only those near enough to be
// a typing error (a third of the longer name, at least one edit) or that begin with `name`.
std::vector<std::string> Nearest(std::string_view name, std::span<const std::string_view> valid,
                                 std::size_t limit);

// "unknown network 'flwo'; did you mean 'flow'? valid: analytic, flow" (the question only if some
// name is near). Of more than 30 valid names the 8 nearest.
std::string UnknownName(std::string_view kind, std::string_view name,
                        std::span<const std::string_view> valid);

}  // namespace orrery
