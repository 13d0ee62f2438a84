// Internal to the binary form: bytes taken from the front, every step checked.
//
// The first failure is kept with its offset; from then on every read gives 0 and ok() is false, so
// that a reader may check at the end of each loop's step rather than at each field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::graph {

class ByteReader {
 public:
  // `first`: the offset of `bytes` in their file, for messages.
  ByteReader(std::string_view bytes, std::size_t memory_bytes, std::size_t first = 0)
      : bytes_(bytes), memory_(memory_bytes), first_(first) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::size_t left() const { return bytes_.size() - at_; }

  void Fail(Code code, const std::string& why) {
    if (!ok()) return;
    status_ = Status(code, fmt::format("offset {}: {}", first_ + at_, why));
    at_ = bytes_.size();
  }
  void Fail(const std::string& why) { Fail(Code::kInvalidInput, why); }

  std::uint8_t Byte() {
    if (left() == 0) {
      Fail("the bytes end here, and should not");
      return 0;
    }
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }

  // Seven bits a byte, low ones first; at most ten bytes.
  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = Byte();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (shift == 63 && byte > 1) Fail("a number beyond 64 bits");
        return ok() ? value : 0;
      }
    }
    Fail("a number beyond 64 bits");
    return 0;
  }
  // Zigzag: 0, -1, 1, -2, …
  std::int64_t Signed() {
    const std::uint64_t v = Varint();
    return static_cast<std::int64_t>(v >> 1) ^ -static_cast<std::int64_t>(v & 1);
  }
  std::uint64_t Fixed64() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 8) {
      value |= static_cast<std::uint64_t>(Byte()) << shift;
    }
    return value;
  }
  std::string_view Bytes(std::size_t count) {
    if (count > left()) {
      Fail("a string longer than what remains");
      return {};
    }
    const std::string_view bytes = bytes_.substr(at_, count);
    at_ += count;
    return bytes;
  }

  // The number of records that follow, each of at least one byte here and `size` in memory.
  std::size_t Count(std::size_t size) {
    const std::uint64_t count = Varint();
    if (count > left()) {
      Fail("more records than bytes");
      return 0;
    }
    return Take(count * size) ? static_cast<std::size_t>(count) : 0;
  }
  // Charges memory to the budget.
  bool Take(std::size_t memory) {
    if (memory > memory_) {
      Fail(Code::kResource, "the graph needs more memory than the limit");
      return false;
    }
    memory_ -= memory;
    return ok();
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t memory_;
  std::size_t first_;
  Status status_;
};

}  // namespace orrery::graph
