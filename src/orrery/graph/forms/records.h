// Internal to the binary form: a record as a row of numbers, and a row back to a record.
//
// The binary form writes a record as its difference to one before it: a mask of the numbers that
// differ, then their differences. So equal records cost a byte, and those that count upwards two or
// three.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "orrery/graph/forms/fields.h"

namespace orrery::graph {

constexpr std::size_t kMostNumbers = 32;  // of a record

struct Row {
  std::array<std::uint64_t, kMostNumbers> numbers{};
  std::size_t count = 0;
};

// The visitor of fields.h that gives the row of a record.
class Flatten {
 public:
  template <class T>
  static Row Of(const T& record) {
    Flatten flatten;
    fields::Visit(flatten, record);
    return flatten.row_;
  }

  template <class T>
  void operator()(std::string_view, const T& value, const T&) {
    if constexpr (std::is_same_v<T, Quantity>) {
      Add(value.value);
      Add(value.slot);
    } else if constexpr (std::is_same_v<T, Peer>) {
      Add(static_cast<std::int64_t>(value.kind));
      Add(value.value);
    } else if constexpr (std::is_floating_point_v<T>) {
      Add(std::bit_cast<std::int64_t>(value));
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      Add(static_cast<std::int64_t>(value));
    } else {
      Add(value.valid() ? std::int64_t{value.value} + 1 : 0);  // an id
    }
  }
  template <fields::Meaning meaning, class Int>
  void operator()(std::string_view, fields::Field<meaning, const Int> field, Int) {
    Add(static_cast<std::int64_t>(field.number));
  }

 private:
  void Add(std::int64_t value) { row_.numbers[row_.count++] = static_cast<std::uint64_t>(value); }

  Row row_;
};

// The visitor that gives the record of a row; `fault` says what does not fit, null if all does.
class Restore {
 public:
  template <class T>
  static const char* To(const Row& row, T* record) {
    Restore restore(row);
    fields::Visit(restore, *record);
    return restore.fault_;
  }

  template <class T>
  void operator()(std::string_view, T& value, const T&) {
    if constexpr (std::is_same_v<T, Quantity>) {
      value.value = Next();
      value.slot = Fit<std::int32_t>(Next());
    } else if constexpr (std::is_same_v<T, Peer>) {
      value.kind = Enum<PeerKind>(Next());
      value.value = Fit<std::int32_t>(Next());
    } else if constexpr (std::is_floating_point_v<T>) {
      value = std::bit_cast<double>(Next());
      if (!std::isfinite(value)) fault_ = "a number that is not finite";
    } else if constexpr (std::is_same_v<T, GroupSlot>) {
      value = static_cast<GroupSlot>(Fit<std::uint32_t>(Next()));
    } else if constexpr (std::is_enum_v<T>) {
      value = Enum<T>(Next());
    } else if constexpr (std::is_same_v<T, bool>) {
      const std::int64_t number = Next();
      if (number != 0 && number != 1) fault_ = "a truth value above 1";
      value = number == 1;
    } else if constexpr (std::is_integral_v<T>) {
      value = Fit<T>(Next());
    } else {
      value.value = Fit<std::uint32_t>(Next()) - 1u;  // an id
    }
  }
  template <fields::Meaning meaning, class Int>
  void operator()(std::string_view, fields::Field<meaning, Int> field, Int) {
    field.number = Fit<Int>(Next());
  }

 private:
  explicit Restore(const Row& row) : row_(row) {}

  std::int64_t Next() { return static_cast<std::int64_t>(row_.numbers[at_++]); }
  template <class T>
  T Fit(std::int64_t value) {
    if (!std::in_range<T>(value)) fault_ = "a number beyond its field";
    return static_cast<T>(value);
  }
  template <class E>
  E Enum(std::int64_t value) {
    if (value >= 0 && value < fields::Count(E{})) return static_cast<E>(value);
    fault_ = "an unknown kind";
    return E{};
  }

  const Row& row_;
  std::size_t at_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace orrery::graph
