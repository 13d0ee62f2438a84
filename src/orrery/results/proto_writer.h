// Protobuf's wire format, the few forms that we write: varints, doubles, strings, nested messages.
// Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::results {

class ProtoWriter {
 public:
  void Varint(std::uint32_t field, std::uint64_t value) {
    Raw(std::uint64_t{field} << 3);
    Raw(value);
  }
  void Bytes(std::uint32_t field, std::string_view bytes) {
    Raw(std::uint64_t{field} << 3 | 2);
    Raw(bytes.size());
    bytes_.append(bytes);
  }
  void Double(std::uint32_t field, double value) {  // 8 bytes, least first
    Raw(std::uint64_t{field} << 3 | 1);
    auto bits = std::bit_cast<std::uint64_t>(value);
    for (int i = 0; i < 8; ++i, bits >>= 8) bytes_.push_back(static_cast<char>(bits & 0xFF));
  }
  void Message(std::uint32_t field, const ProtoWriter& message) { Bytes(field, message.bytes_); }

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  void Clear() { bytes_.clear(); }

 private:
  void Raw(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

}  // namespace orrery::results
