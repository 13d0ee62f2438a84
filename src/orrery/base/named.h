// Values of an enum under the names that files use for them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "orrery/base/check.h"

namespace orrery {

template <class E>
using Named = std::pair<std::string_view, E>;

template <class E, std::size_t N>
std::optional<E> Find(const std::array<Named<E>, N>& names, std::string_view name) {
  for (const auto& [text, value] : names) {
    if (text == name) return value;
  }
  return std::nullopt;
}

// REQUIRES: the option table let only these names pass.
template <class E, std::size_t N>
E Choose(const std::array<Named<E>, N>& names, std::string_view name) {
  const std::optional<E> value = Find(names, name);
  ORRERY_CHECK(value.has_value(), "the option table and the names of an enum differ");
  return *value;
}

// "?" where the table lacks the value.
template <class E, std::size_t N>
std::string_view NameOf(const std::array<Named<E>, N>& names, E value) {
  for (const auto& [text, candidate] : names) {
    if (candidate == value) return text;
  }
  return "?";
}

}  // namespace orrery
