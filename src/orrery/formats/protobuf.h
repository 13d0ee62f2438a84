// Protocol Buffers' wire format: fields out of a message's bytes, and into them. No schema.
//
// Source: https://protobuf.dev/programming-guides/encoding/. Groups (wire types 3 and 4), which
// proto3 does not have, are refused. Every length is checked against what is left; the first
// failure is kept with its offset.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::formats {

enum class ProtoWire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  std::uint32_t number = 0;
  ProtoWire wire = ProtoWire::kVarint;
  std::uint64_t value = 0;  // of all but kBytes
  std::string_view bytes;   // of kBytes
};

class ProtoReader {
 public:
  // `first`: the offset of `bytes` in their file.
  explicit ProtoReader(std::string_view bytes, std::size_t first = 0)
      : bytes_(bytes), first_(first) {}

  bool done() const { return at_ == bytes_.size(); }
  std::size_t offset() const { return first_ + at_; }
  const Status& status() const { return status_; }

  // The next field; false at the end of the message and after a failure.
  bool Next(ProtoField* field) {
    if (done()) return false;
    const std::uint64_t key = Varint();
    field->number = static_cast<std::uint32_t>(key >> 3);
    field->wire = static_cast<ProtoWire>(key & 7);
    if (status_.ok() && (key >> 3 == 0 || key >> 32 != 0)) Fail("field number out of range");
    switch (field->wire) {
      case ProtoWire::kVarint:
        field->value = Varint();
        break;
      case ProtoWire::kFixed64:
        field->value = Fixed(8);
        break;
      case ProtoWire::kFixed32:
        field->value = Fixed(4);
        break;
      case ProtoWire::kBytes:
        field->bytes = Take(Varint());
        break;
      default:
        Fail("unknown wire type");
    }
    return status_.ok();
  }
  // Seven bits a byte, low ones first.
  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (done()) return Fail("the message is cut off within a number");
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return shift == 63 && byte > 1 ? Fail("a number beyond 64 bits") : value;
    }
    return Fail("a number beyond 64 bits");
  }
  std::string_view Take(std::uint64_t size) {
    if (size > bytes_.size() - at_) {
      Fail("a length beyond the end");
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

 private:
  std::uint64_t Fixed(std::size_t size) {
    std::uint64_t value = 0;
    const std::string_view raw = Take(size);
    for (std::size_t i = 0; i < raw.size(); ++i) {
      value |= std::uint64_t{static_cast<std::uint8_t>(raw[i])} << (8 * i);
    }
    return value;
  }
  std::uint64_t Fail(const char* why) {
    if (status_.ok()) status_ = InvalidInput("offset {}: {}", offset(), why);
    at_ = bytes_.size();
    return 0;
  }

  std::string_view bytes_;
  std::size_t at_ = 0, first_ = 0;
  Status status_;
};

// Zigzag: 0, -1, 1, -2, … (sint32, sint64).
constexpr std::int64_t ProtoSigned(std::uint64_t v) {
  return static_cast<std::int64_t>(v >> 1) ^ -static_cast<std::int64_t>(v & 1);
}

class ProtoWriter {
 public:
  void Varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  void Number(std::uint32_t field, std::uint64_t value) {
    Varint(field << 3);
    Varint(value);
  }
  void Bytes(std::uint32_t field, std::string_view bytes) {
    Varint(field << 3 | static_cast<std::uint32_t>(ProtoWire::kBytes));
    Varint(bytes.size());
    out_ += bytes;
  }
  const std::string& bytes() const { return out_; }
  std::string Release() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace orrery::formats
