#include "orrery/formats/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "orrery/base/text.h"

namespace orrery::formats {
namespace {

// Opcodes that are refused, with their names, for messages.
struct RefusedPickle {
  unsigned char code;
  const char* name;
};
constexpr RefusedPickle kRefused[] = {{'c', "GLOBAL"},
                                      {0x93, "STACK_GLOBAL"},
                                      {'R', "REDUCE"},
                                      {'b', "BUILD"},
                                      {'i', "INST"},
                                      {'o', "OBJ"},
                                      {0x81, "NEWOBJ"},
                                      {0x92, "NEWOBJ_EX"},
                                      {0x82, "EXT1"},
                                      {0x83, "EXT2"},
                                      {0x84, "EXT4"},
                                      {'P', "PERSID"},
                                      {'Q', "BINPERSID"},
                                      {0x97, "NEXT_BUFFER"},
                                      {0x98, "READONLY_BUFFER"},
                                      {0x8f, "EMPTY_SET"},
                                      {0x90, "ADDITEMS"},
                                      {0x91, "FROZENSET"},
                                      {0x96, "BYTEARRAY8"},
                                      {'I', "INT"},
                                      {'L', "LONG"},
                                      {'F', "FLOAT"},
                                      {'S', "STRING"},
                                      {'V', "UNICODE"},
                                      {'p', "PUT"},
                                      {'g', "GET"}};

constexpr std::size_t kLongestInteger = 8;  // bytes

}  // namespace

// Runs the opcodes over a stack of values; marks are kept beside it.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const PickleLimits& limits)
      : bytes_(bytes), limits_(limits) {
    out_.bytes_ = bytes;
  }

  Result<Pickle> Read(const std::string& file) {
    Status status = Run();
    if (!status.ok()) {
      return std::move(status).In(fmt::format("{}: offset {}", Printable(file), opcode_at_));
    }
    return std::move(out_);
  }

 private:
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;

  Status Run() {
    while (true) {
      opcode_at_ = at_;
      std::uint64_t code = 0;
      ORRERY_RETURN_IF_ERROR(Take(1, &code));
      if (code == '.') {
        if (stack_.size() != 1 || !marks_.empty()) {
          return InvalidInput("the end, with {} values left", stack_.size());
        }
        out_.root_ = stack_.back();
        return {};
      }
      ORRERY_RETURN_IF_ERROR(Execute(static_cast<unsigned char>(code)));
      if (made_ > limits_.values) return InvalidInput("more than {} values", limits_.values);
    }
  }

  Status Execute(unsigned char code) {
    switch (code) {
      case 0x80:  // PROTO
        return Skip(1);
      case 0x95:  // FRAME
        return Skip(8);
      case '(':
        marks_.push_back(stack_.size());
        return marks_.size() > limits_.depth ? InvalidInput("deeper than {}", limits_.depth)
                                             : Status();
      case 'N':
        return Push({Kind::kNone});
      case 0x88:
      case 0x89:
        return Push({Kind::kBool, 0, code == 0x88 ? 1 : 0});
      case 'K':
      case 'M':
      case 'J':
        return Number(code == 'K' ? 1 : code == 'M' ? 2 : 4, code == 'J');
      case 0x8a:  // LONG1
      case 0x8b:  // LONG4
        return Long(code == 0x8a ? 1 : 4);
      case 'G':
        return Float();
      case 0x8c:  // SHORT_BINUNICODE
      case 'X':
      case 0x8d:  // BINUNICODE8
        return Text(Kind::kText, code == 0x8c ? 1 : code == 'X' ? 4 : 8);
      case 'C':
      case 'U':
      case 'B':
      case 'T':
      case 0x8e:  // BINBYTES8
        return Text(Kind::kBytes, code == 'C' || code == 'U' ? 1 : code == 0x8e ? 8 : 4);
      case 'q':
      case 'r':
      case 0x94:  // MEMOIZE
        return Memoize(code);
      case 'h':
      case 'j':
        return Recall(code == 'h' ? 1 : 4);
      default:
        return ExecuteContainer(code);
    }
  }

  Status ExecuteContainer(unsigned char code) {
    switch (code) {
      case ']':
      case ')':
        return Push({Kind::kList, 0, NewContainer()});
      case '}':
        return Push({Kind::kDict, 0, NewContainer()});
      case 'l':
      case 't':
        return FromMark(Kind::kList);
      case 'd':
        return FromMark(Kind::kDict);
      case 0x85:
      case 0x86:
      case 0x87:
        return FromTop(code - 0x84u);
      case 'a':
        return AddTop(Kind::kList, 1);
      case 's':
        return AddTop(Kind::kDict, 2);
      case 'e':
        return AddMarked(Kind::kList);
      case 'u':
        return AddMarked(Kind::kDict);
      case '0':
        return Pop();
      case '1':  // POP_MARK
        if (marks_.empty()) return InvalidInput("POP_MARK without a mark");
        stack_.resize(marks_.back());
        marks_.pop_back();
        return {};
      case '2':
        if (stack_.size() <= Floor()) return InvalidInput("DUP of an empty stack");
        stack_.push_back(stack_.back());
        return {};
      default:
        break;
    }
    const auto* row = std::ranges::find(kRefused, code, &RefusedPickle::code);
    if (row == std::end(kRefused)) return InvalidInput("no opcode: byte 0x{:02x}", code);
    return InvalidInput("opcode {}: a pickle is read as data here, which needs none of it",
                        row->name);
  }

  // --- bytes -----------------------------------------------------------------------------------

  Status Skip(std::size_t n) {
    if (bytes_.size() - at_ < n) return InvalidInput("the file is cut off");
    at_ += n;
    return {};
  }
  // Little-endian, without a sign.
  Status Take(std::size_t n, std::uint64_t* value) {
    const std::size_t from = at_;
    ORRERY_RETURN_IF_ERROR(Skip(n));
    *value = 0;
    for (std::size_t i = n; i-- > 0;) {
      *value = *value << 8 | static_cast<unsigned char>(bytes_[from + i]);
    }
    return {};
  }
  Status Number(std::size_t n, bool is_signed) {
    std::uint64_t value = 0;
    ORRERY_RETURN_IF_ERROR(Take(n, &value));
    const auto number = is_signed ? std::int64_t{static_cast<std::int32_t>(value)}
                                  : static_cast<std::int64_t>(value);
    return Push({Kind::kInteger, 0, number});
  }
  Status Long(std::size_t prefix) {
    std::uint64_t length = 0, value = 0;
    ORRERY_RETURN_IF_ERROR(Take(prefix, &length));
    if (length > kLongestInteger + 1) return InvalidInput("a number of {} bytes", length);
    const std::size_t low = std::min<std::size_t>(length, kLongestInteger);
    ORRERY_RETURN_IF_ERROR(Take(low, &value));
    if (low < length) {  // the ninth byte holds the sign of an unsigned address
      std::uint64_t sign = 0;
      ORRERY_RETURN_IF_ERROR(Take(1, &sign));
      if (sign != 0) return InvalidInput("a number beyond 64 bits");
    } else if (low > 0 && low < kLongestInteger && (value >> (8 * low - 1)) != 0) {
      value |= ~std::uint64_t{0} << (8 * low);
    }
    return Push({Kind::kInteger, 0, static_cast<std::int64_t>(value)});
  }
  Status Float() {
    const std::size_t from = at_;
    ORRERY_RETURN_IF_ERROR(Skip(8));
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      bits = bits << 8 | static_cast<unsigned char>(bytes_[from + i]);
    }
    return Push({Kind::kFloat, 0, static_cast<std::int64_t>(bits)});
  }
  Status Text(Kind kind, std::size_t prefix) {
    std::uint64_t length = 0;
    ORRERY_RETURN_IF_ERROR(Take(prefix, &length));
    if (length > bytes_.size() - at_) return InvalidInput("a text of {} bytes is cut off", length);
    if (length > 0xFFFFFFFFu) return InvalidInput("a text of {} bytes", length);
    const std::size_t from = at_;
    at_ += length;
    return Push({kind, static_cast<std::uint32_t>(length), static_cast<std::int64_t>(from)});
  }

  // --- the stack -------------------------------------------------------------------------------

  std::size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::int64_t NewContainer() {
    out_.containers_.emplace_back();
    return static_cast<std::int64_t>(out_.containers_.size() - 1);
  }
  Status Push(const Pickle::Value& value) {
    ++made_;
    stack_.push_back(static_cast<Id>(out_.values_.size()));
    out_.values_.push_back(value);
    return {};
  }
  Status Pop() {
    if (stack_.size() > Floor()) {
      stack_.pop_back();
    } else if (!marks_.empty()) {
      marks_.pop_back();
    } else {
      return InvalidInput("POP of an empty stack");
    }
    return {};
  }
  Status FromMark(Kind kind) {
    if (marks_.empty()) return InvalidInput("a container without a mark");
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return Gather(kind, from);
  }
  Status FromTop(std::size_t n) {
    if (stack_.size() < Floor() + n) return InvalidInput("a tuple of {} from fewer values", n);
    return Gather(Kind::kList, stack_.size() - n);
  }
  Status Gather(Kind kind, std::size_t from) {
    std::vector<Id> items(stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    if (kind == Kind::kDict && items.size() % 2 != 0) return InvalidInput("a key without a value");
    stack_.resize(from);
    made_ += items.size();
    const std::int64_t container = NewContainer();
    out_.containers_.back() = std::move(items);
    return Push({kind, 0, container});
  }
  Status AddMarked(Kind kind) {
    if (marks_.empty()) return InvalidInput("items without a mark");
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return Add(kind, from);
  }
  Status AddTop(Kind kind, std::size_t n) {
    if (stack_.size() < Floor() + n) return InvalidInput("an item of an empty stack");
    return Add(kind, stack_.size() - n);
  }
  // What stands on the stack from `from` on goes into the container below it.
  Status Add(Kind kind, std::size_t from) {
    if (from <= Floor()) return InvalidInput("items without their container");
    const Pickle::Value& value = out_.values_[stack_[from - 1]];
    if (value.kind != kind) return InvalidInput("items for a value of another kind");
    if (kind == Kind::kDict && (stack_.size() - from) % 2 != 0) {
      return InvalidInput("a key without a value");
    }
    auto& items = out_.containers_[static_cast<std::size_t>(value.number)];
    items.insert(items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    made_ += stack_.size() - from;
    stack_.resize(from);
    return {};
  }
  Status Memoize(unsigned char code) {
    std::uint64_t key = memo_.size();
    if (code != 0x94) ORRERY_RETURN_IF_ERROR(Take(code == 'q' ? 1 : 4, &key));
    if (stack_.size() <= Floor()) return InvalidInput("a memo of an empty stack");
    memo_[key] = stack_.back();
    ++made_;
    return {};
  }
  Status Recall(std::size_t bytes) {
    std::uint64_t key = 0;
    ORRERY_RETURN_IF_ERROR(Take(bytes, &key));
    const auto found = memo_.find(key);
    if (found == memo_.end()) return InvalidInput("memo {}, which nothing was kept as", key);
    ++made_;
    stack_.push_back(found->second);
    return {};
  }

  std::string_view bytes_;
  const PickleLimits& limits_;
  Pickle out_;
  std::size_t at_ = 0, opcode_at_ = 0, made_ = 0;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Id> memo_;
};

bool Pickle::Sniff(std::string_view bytes) {
  return bytes.size() > 2 && static_cast<unsigned char>(bytes[0]) == 0x80 && bytes[1] >= 2 &&
         bytes[1] <= 5;
}

Result<Pickle> Pickle::Parse(std::string_view bytes, const std::string& file,
                             const PickleLimits& limits) {
  if (!Sniff(bytes)) {
    return InvalidInput("{}: no pickle of protocol 2 to 5", Printable(file));
  }
  return PickleReader(bytes, limits).Read(file);
}

std::int64_t Pickle::integer(Id id) const {
  const Value& v = values_[id];
  return v.kind == Kind::kInteger || v.kind == Kind::kBool ? v.number : 0;
}

std::string_view Pickle::text(Id id) const {
  const Value& v = values_[id];
  if (v.kind != Kind::kText && v.kind != Kind::kBytes) return {};
  return bytes_.substr(static_cast<std::size_t>(v.number), v.length);
}

const std::vector<Pickle::Id>& Pickle::items(Id id) const {
  static const std::vector<Id> kNothing;
  const Value& v = values_[id];
  if (v.kind != Kind::kList && v.kind != Kind::kDict) return kNothing;
  return containers_[static_cast<std::size_t>(v.number)];
}

bool Pickle::Find(Id dict, std::string_view key, Id* value) const {
  if (kind(dict) != Kind::kDict) return false;
  const std::vector<Id>& pairs = items(dict);
  for (std::size_t i = pairs.size(); i >= 2; i -= 2) {  // the last of equal keys counts
    if (kind(pairs[i - 2]) != Kind::kText || text(pairs[i - 2]) != key) continue;
    *value = pairs[i - 1];
    return true;
  }
  return false;
}

}  // namespace orrery::formats
