// Numbers that differ from rank to rank: durations, bytes, counts and peers of the ranks that share
// one program. A column is one numeric slot, a row one rank.
//
// A column keeps base + unit · code, with codes as narrow as its values allow (0, 1, 2, 4 or 8
// bytes), so that 1,024 ranks with 100,000 durations of their own take some 200 MB. Codes lie
// column by column in one array of bytes, which may be a mapped file's. Cost of `at`: one load of a
// descriptor, one of the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace orrery::graph {

class Columns {
 public:
  struct Column {
    std::int64_t base = 0;
    std::int64_t unit = 1;
    std::uint64_t offset = 0;  // of its codes
    std::uint32_t width = 0;   // bytes a code: 0, 1, 2, 4, 8
    friend bool operator==(const Column&, const Column&) = default;
  };

  std::size_t size() const { return columns_.size(); }
  std::size_t rows() const { return rows_; }
  bool empty() const { return columns_.empty(); }

  // The number in a slot and row. REQUIRES: both exist.
  std::int64_t at(std::size_t column, std::size_t row) const {
    const Column& c = columns_[column];
    if (c.width == 0) return c.base;
    std::uint64_t code = 0;
    std::memcpy(&code, data() + c.offset + row * c.width, c.width);  // little-endian
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(c.base) +
                                     static_cast<std::uint64_t>(c.unit) * code);
  }
  // Adds a column of one number a row and returns its slot. REQUIRES: as many as in the columns
  // before it.
  std::size_t Add(std::span<const std::int64_t> values);

  // For the binary form: what is kept, and its return. Adopted codes stay the caller's and must
  // outlive the columns. REQUIRES: every column's codes lie within `codes`.
  std::span<const Column> descriptors() const { return columns_; }
  std::span<const std::uint8_t> codes() const { return {data(), size_}; }
  void Adopt(std::vector<Column> columns, std::size_t rows, std::span<const std::uint8_t> codes);
  void Own(std::vector<Column> columns, std::size_t rows, std::vector<std::uint8_t> codes);

  friend bool operator==(const Columns& a, const Columns& b);

 private:
  const std::uint8_t* data() const { return adopted_ != nullptr ? adopted_ : owned_.data(); }

  std::vector<Column> columns_;
  std::size_t rows_ = 0;
  std::size_t size_ = 0;
  std::vector<std::uint8_t> owned_;
  const std::uint8_t* adopted_ = nullptr;
};

}  // namespace orrery::graph
