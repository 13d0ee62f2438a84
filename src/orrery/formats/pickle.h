// Pickles, read as data: a file from a stranger never names or calls anything.
//
// Understands the opcodes of protocols 2 to 5 that build None, booleans, whole numbers, floats,
// text, bytes, lists, tuples and dictionaries, and the memo. Every other opcode is refused by its
// name and offset, those first that import, call or build an object (GLOBAL, REDUCE, BUILD, …).
// Source: the comments of Lib/pickletools.py (Python 3.13), read for the opcodes' meaning.
//
// Cost: O(bytes); 24 bytes a value beside the text, which must outlive the values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::formats {

struct PickleLimits {
  std::size_t values = 200'000'000;  // made, and held by containers
  std::size_t depth = 64;            // of containers within containers, as read
};

class Pickle {
 public:
  enum class Kind : std::uint8_t { kNone, kBool, kInteger, kFloat, kText, kBytes, kList, kDict };
  using Id = std::uint32_t;  // of a value; containers may share one

  // Whether the bytes begin as a pickle of protocol 2 or later does.
  static bool Sniff(std::string_view bytes);
  // `file` stands in messages, with the offset.
  static Result<Pickle> Parse(std::string_view bytes, const std::string& file,
                              const PickleLimits& limits = {});

  Id root() const { return root_; }
  Kind kind(Id id) const { return values_[id].kind; }
  // 0, "" or nothing where the value is of another kind.
  std::int64_t integer(Id id) const;
  std::string_view text(Id id) const;
  const std::vector<Id>& items(Id id) const;  // of lists and tuples; of dicts key, value, key, …
  // The value behind a text key of a dict; false: there is none.
  bool Find(Id dict, std::string_view key, Id* value) const;

 private:
  friend class PickleReader;
  struct Value {
    Kind kind = Kind::kNone;
    std::uint32_t length = 0;  // of text and bytes
    std::int64_t number = 0;   // offset of text, index into containers_, or the number itself
  };

  std::string_view bytes_;
  std::vector<Value> values_;
  std::vector<std::vector<Id>> containers_;
  Id root_ = 0;
};

}  // namespace orrery::formats
