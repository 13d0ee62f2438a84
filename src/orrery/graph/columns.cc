#include "orrery/graph/columns.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "orrery/base/check.h"

namespace orrery::graph {

static_assert(std::endian::native == std::endian::little, "codes are kept little-endian");

std::size_t Columns::Add(std::span<const std::int64_t> values) {
  ORRERY_CHECK(columns_.empty() || values.size() == rows_, "a number for every row");
  ORRERY_CHECK(adopted_ == nullptr, "a mapped table does not grow");
  rows_ = values.size();
  Column c;
  c.base = values.empty() ? 0 : *std::min_element(values.begin(), values.end());
  std::uint64_t unit = 0, most = 0;
  for (const std::int64_t v : values) {
    const std::uint64_t above = static_cast<std::uint64_t>(v) - static_cast<std::uint64_t>(c.base);
    unit = std::gcd(unit, above);
    most = std::max(most, above);
  }
  if (most > 0) {
    c.unit = static_cast<std::int64_t>(unit);
    const int bits = std::bit_width(most / unit);
    c.width = bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8;
  }
  c.offset = owned_.size();
  owned_.resize(owned_.size() + c.width * values.size());
  for (std::size_t row = 0; c.width > 0 && row < values.size(); ++row) {
    const std::uint64_t code =
        (static_cast<std::uint64_t>(values[row]) - static_cast<std::uint64_t>(c.base)) / unit;
    std::memcpy(owned_.data() + c.offset + row * c.width, &code, c.width);
  }
  size_ = owned_.size();
  columns_.push_back(c);
  return columns_.size() - 1;
}

void Columns::Adopt(std::vector<Column> columns, std::size_t rows,
                    std::span<const std::uint8_t> codes) {
  columns_ = std::move(columns);
  rows_ = rows;
  owned_.clear();
  adopted_ = codes.data();
  size_ = codes.size();
}

void Columns::Own(std::vector<Column> columns, std::size_t rows, std::vector<std::uint8_t> codes) {
  columns_ = std::move(columns);
  rows_ = rows;
  owned_ = std::move(codes);
  adopted_ = nullptr;
  size_ = owned_.size();
}

bool operator==(const Columns& a, const Columns& b) {
  return a.rows_ == b.rows_ && a.columns_ == b.columns_ &&
         std::equal(a.codes().begin(), a.codes().end(), b.codes().begin(), b.codes().end());
}

}  // namespace orrery::graph
