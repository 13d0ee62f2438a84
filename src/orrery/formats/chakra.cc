#include "orrery/formats/chakra.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/formats/gzip.h"
#include "orrery/formats/protobuf.h"

namespace orrery::formats {
namespace {

constexpr std::string_view kVersion = "0.0.4";
constexpr std::size_t kMostIgnored = 1000;  // attributes counted by name

// Fields of AttributeProto; a list stands one above its scalar.
enum AttributeField : std::uint32_t {
  kAttributeName = 1,
  kFirstValue = 3,
  kDouble = 3,
  kFloat = 5,
  kInt32 = 7,
  kInt64 = 9,
  kUint32 = 11,
  kUint64 = 13,
  kSint32 = 15,
  kSint64 = 17,
  kFixed32 = 19,
  kFixed64 = 21,
  kSfixed32 = 23,
  kSfixed64 = 25,
  kBool = 27,
  kBoolList = 28,
  kString = 29,
  kLastValue = 32,
};

struct Attribute {
  std::string_view name;
  std::uint32_t field = 0;  // 0: no value
  ProtoField value;
};

class Parser {
 public:
  Parser(ChakraTrace* trace, std::string_view name) : trace_(*trace), file_(name) {
    bytes_ = {trace_.bytes.data(), trace_.bytes.size()};
  }

  Status Parse() {
    ProtoReader frames(bytes_);
    bool first = true;
    while (!frames.done()) {
      const std::size_t at = frames.offset();
      const std::string_view message = frames.Take(frames.Varint());
      if (!frames.status().ok()) return In(frames.status());
      const auto offset = static_cast<std::size_t>(message.data() - bytes_.data());
      Status read = first ? Metadata(message, offset) : AddNode(message, offset, at);
      if (!read.ok()) return In(std::move(read));
      first = false;
    }
    if (first) return InvalidInput("{}: is empty", Printable(file_));
    ChakraNode end;
    end.first_dep = trace_.deps.size();
    trace_.nodes.push_back(end);
    return {};
  }

 private:
  Status In(Status status) const { return std::move(status).In(Printable(file_)); }
  ChakraNode::Text TextOf(std::string_view text) const {
    return {static_cast<std::uint64_t>(text.data() - bytes_.data()),
            static_cast<std::uint32_t>(text.size())};
  }

  Status Metadata(std::string_view message, std::size_t offset) {
    ProtoReader reader(message, offset);
    ProtoField field;
    while (reader.Next(&field)) {
      if (field.number == 1 && field.wire == ProtoWire::kBytes) trace_.version = field.bytes;
    }
    ORRERY_RETURN_IF_ERROR(Status(reader.status()));
    for (const std::string_view old : {"0.0.1", "0.0.2", "0.0.3"}) {
      if (trace_.version != old) continue;
      return InvalidInput(
          "Chakra schema {}: 0.0.4 and 1.0 are read; convert the trace anew with Chakra's tools",
          old);
    }
    return {};
  }

  Status AddNode(std::string_view message, std::size_t offset, std::size_t frame) {
    ChakraNode node;
    node.offset = frame;
    node.first_dep = trace_.deps.size();
    ProtoReader reader(message, offset);
    ProtoField f;
    while (reader.Next(&f)) {
      const bool number = f.wire == ProtoWire::kVarint;
      const bool bytes = f.wire == ProtoWire::kBytes;
      const auto at = static_cast<std::size_t>(bytes ? f.bytes.data() - bytes_.data() : 0);
      if (f.number == 1 && number) {
        node.id = f.value;
      } else if (f.number == 2 && bytes) {
        node.name = TextOf(f.bytes);
      } else if (f.number == 3 && number) {
        if (f.value > static_cast<std::uint64_t>(ChakraNodeType::kCollective)) {
          return InvalidInput("offset {}: node {}: unknown type {}", frame, node.id, f.value);
        }
        node.type = static_cast<ChakraNodeType>(f.value);
      } else if (f.number == 4 || f.number == 5) {
        ORRERY_RETURN_IF_ERROR(AddDeps(f, at));
      } else if (f.number == 7 && number) {
        node.duration_us = f.value;
      } else if (f.number == 8 && bytes) {
        inputs_ = f.bytes;
      } else if (f.number == 10 && bytes) {
        Status added = AddAttribute(f.bytes, at, &node);
        if (!added.ok()) return std::move(added).In(fmt::format("node {}", node.id));
      }
    }
    ORRERY_RETURN_IF_ERROR(Status(reader.status()));
    if (message.empty()) return InvalidInput("offset {}: a node of no bytes", frame);
    if (trace_.nodes.size() == kMostChakraNodes) {
      return InvalidInput("offset {}: more than {} nodes, the most of a rank", frame,
                          kMostChakraNodes);
    }
    if (node.type == ChakraNodeType::kMetadata) ORRERY_RETURN_IF_ERROR(AddGroups());
    inputs_ = {};
    trace_.nodes.push_back(node);
    return {};
  }

  // Packed or one by one.
  Status AddDeps(const ProtoField& f, std::size_t offset) {
    if (f.wire == ProtoWire::kVarint) {
      trace_.deps.push_back(f.value);
      return {};
    }
    if (f.wire != ProtoWire::kBytes)
      return InvalidInput("offset {}: dependencies of another type", offset);
    ProtoReader packed(f.bytes, offset);
    while (!packed.done()) {
      trace_.deps.push_back(packed.Varint());
      ORRERY_RETURN_IF_ERROR(Status(packed.status()));
    }
    return {};
  }

  // What a METADATA node lists: IOInfo.values.
  Status AddGroups() {
    if (inputs_.empty()) return {};
    ProtoReader reader(inputs_, static_cast<std::size_t>(inputs_.data() - bytes_.data()));
    ProtoField f;
    while (reader.Next(&f)) {
      if (f.number == 1 && f.wire == ProtoWire::kBytes && f.bytes.find("pg_name") != f.bytes.npos) {
        trace_.group_lists.push_back(TextOf(f.bytes));
      }
    }
    return reader.status();
  }

  Status AddAttribute(std::string_view message, std::size_t offset, ChakraNode* node) {
    ProtoReader reader(message, offset);
    ProtoField f;
    Attribute a;
    while (reader.Next(&f)) {
      if (f.number == kAttributeName && f.wire == ProtoWire::kBytes) a.name = f.bytes;
      if (f.number >= kFirstValue && f.number <= kLastValue) {
        a.field = f.number;
        a.value = f;
      }
    }
    ORRERY_RETURN_IF_ERROR(Status(reader.status()));
    Status set = Set(a, node);
    if (set.ok()) return set;
    return std::move(set).In(
        fmt::format("offset {}: attribute '{}'", offset, Printable(a.name, 60)));
  }

  Status Set(const Attribute& a, ChakraNode* node) {
    struct Row {
      std::string_view name;
      ChakraNode::Bit bit;
      std::uint64_t ChakraNode::*large;
      std::uint32_t ChakraNode::*small;
    };
    using N = ChakraNode;
    static constexpr auto kNoBit = static_cast<N::Bit>(0);
    static constexpr std::array<Row, 8> kNumbers = {{
        {"comm_size", N::kCommSize, &N::comm_size, nullptr},
        {"num_ops", N::kNumOps, &N::num_ops, nullptr},
        {"tensor_size", N::kTensorSize, &N::tensor_size, nullptr},
        {"comm_src", N::kSource, nullptr, &N::source},
        {"comm_dst", N::kDestination, nullptr, &N::destination},
        {"comm_tag", N::kTag, nullptr, &N::tag},
        {"duration_ps", N::kDurationPs, &N::duration_ps, nullptr},
        {"comm_priority", kNoBit, nullptr, &N::priority},
    }};
    for (const Row& row : kNumbers) {
      if (a.name != row.name) continue;
      std::uint64_t value = 0;
      ORRERY_RETURN_IF_ERROR(Integer(a, &value));
      node->has |= row.bit;
      if (row.large != nullptr) {
        node->*row.large = value;
      } else if (value > std::numeric_limits<std::uint32_t>::max()) {
        return InvalidInput("{} is beyond 32 bits", value);
      } else {
        node->*row.small = static_cast<std::uint32_t>(value);
      }
      return {};
    }
    if (a.name == "is_cpu_op") {
      std::uint64_t value = 0;
      ORRERY_RETURN_IF_ERROR(Integer(a, &value));
      node->cpu = value != 0;
      node->has |= N::kCpuOp;
    } else if (a.name == "comm_type") {
      std::uint64_t value = 0;
      ORRERY_RETURN_IF_ERROR(Integer(a, &value));
      if (value >= kChakraCollectives) return InvalidInput("unknown collective {}", value);
      node->collective = static_cast<ChakraCollective>(value);
      node->has |= N::kCommType;
    } else if (a.name == "pg_name") {
      if (a.field != kString) return InvalidInput("a text is expected");
      node->group = TextOf(a.value.bytes);
    } else if (a.name == "involved_dim") {
      return SetInvolved(a, node);
    } else {
      const auto known = trace_.ignored.find(std::string(a.name));
      if (known != trace_.ignored.end()) {
        ++known->second;
      } else if (trace_.ignored.size() < kMostIgnored) {
        trace_.ignored.emplace(a.name, 1);
      }
    }
    return {};
  }

  static Status SetInvolved(const Attribute& a, ChakraNode* node) {
    if (a.field != kBoolList || a.value.wire != ProtoWire::kBytes) {
      return InvalidInput("a list of bools is expected");
    }
    node->has |= ChakraNode::kInvolvedDim;
    ProtoReader list(a.value.bytes);
    ProtoField f;
    const auto add = [node](std::uint64_t value) {
      if (node->involved_dims == 8) return;
      node->involved |= static_cast<std::uint8_t>((value != 0 ? 1u : 0u) << node->involved_dims);
      ++node->involved_dims;
    };
    while (list.Next(&f)) {
      if (f.number != 1) continue;
      if (f.wire == ProtoWire::kVarint) add(f.value);
      if (f.wire != ProtoWire::kBytes) continue;
      ProtoReader packed(f.bytes);
      while (!packed.done()) add(packed.Varint());
      ORRERY_RETURN_IF_ERROR(Status(packed.status()));
    }
    return list.status();
  }

  // A whole number of any of protobuf's types.
  static Status Integer(const Attribute& a, std::uint64_t* out) {
    std::int64_t value = 0;
    switch (a.field) {
      case kInt32:
      case kInt64:
      case kSfixed64:
        value = static_cast<std::int64_t>(a.value.value);
        break;
      case kSfixed32:
        value = static_cast<std::int32_t>(a.value.value);
        break;
      case kSint32:
      case kSint64:
        value = ProtoSigned(a.value.value);
        break;
      case kUint32:
      case kUint64:
      case kFixed32:
      case kFixed64:
      case kBool:
        *out = a.value.value;
        return a.value.wire == ProtoWire::kBytes ? InvalidInput("a whole number is expected")
                                                 : Status();
      case 0:
        return InvalidInput("no value");
      default:
        return InvalidInput("a whole number is expected, not type {} of AttributeProto", a.field);
    }
    if (a.value.wire == ProtoWire::kBytes) return InvalidInput("a whole number is expected");
    if (value < 0) return InvalidInput("{} is negative", value);
    *out = static_cast<std::uint64_t>(value);
    return {};
  }

  ChakraTrace& trace_;
  std::string_view file_, bytes_, inputs_;
};

}  // namespace

std::string_view Name(ChakraNodeType type) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "invalid", "metadata", "memory load", "memory store",
      "compute", "send",     "receive",     "collective"};
  return kNames[static_cast<std::size_t>(type)];
}

// [length] 0a [length] version, whose characters are those of a number; or an empty metadata, and
// a node with an id or a name.
bool SniffChakra(std::string_view start) {
  ProtoReader reader(start);
  const std::uint64_t length = reader.Varint();
  if (!reader.status().ok() || length > start.size()) return false;
  const std::string_view metadata = reader.Take(length);
  if (!reader.status().ok()) return false;
  if (length == 0) {
    const std::uint64_t node = reader.Varint();
    return reader.status().ok() && node > 1 && start.size() > 2 &&
           (start[reader.offset()] == '\x08' || start[reader.offset()] == '\x12');
  }
  ProtoReader fields(metadata);
  ProtoField f;
  if (!fields.Next(&f) || f.wire != ProtoWire::kBytes) return false;
  if (f.number == 2) return f.bytes.find("schema") != f.bytes.npos;
  return f.number == 1 && !f.bytes.empty() && f.bytes.size() < 32 &&
         f.bytes.find_first_not_of("0123456789.-chakrevs") == f.bytes.npos &&
         f.bytes.find('.') != f.bytes.npos;
}

Result<ChakraTrace> ParseChakra(std::string bytes, const std::string& name,
                                std::int64_t limit_bytes) {
  ChakraTrace trace;
  if (IsGzip(bytes)) {
    constexpr std::size_t kStart = std::size_t{1} << 16;
    if (!SniffChakra(GunzipStart(bytes, kStart))) {
      return InvalidInput("{}: does not inflate to a Chakra trace", Printable(name));
    }
    constexpr std::int64_t kMostInflated = std::int64_t{4} << 30;
    ORRERY_ASSIGN_OR_RETURN(trace.bytes, Gunzip(bytes, std::min(limit_bytes, kMostInflated), name));
  } else {
    trace.bytes = std::move(bytes);
  }
  ORRERY_RETURN_IF_ERROR(Parser(&trace, name).Parse());
  return trace;
}

ChakraWriter::ChakraWriter() {
  ProtoWriter metadata;
  metadata.Bytes(1, kVersion);
  ProtoWriter frame;
  frame.Varint(metadata.bytes().size());
  out_ = frame.bytes() + metadata.bytes();
}

void ChakraWriter::Add(const ChakraNode& node, std::string_view name, std::string_view group,
                       std::span<const std::uint64_t> deps) {
  ProtoWriter message;
  message.Number(1, node.id);
  if (!name.empty()) message.Bytes(2, name);
  message.Number(3, static_cast<std::uint64_t>(node.type));
  if (!deps.empty()) {
    ProtoWriter packed;
    for (const std::uint64_t dep : deps) packed.Varint(dep);
    message.Bytes(5, packed.bytes());
  }
  if (node.duration_us != 0) message.Number(7, node.duration_us);
  const auto attribute = [&message](std::string_view key, std::uint32_t field,
                                    std::uint64_t value) {
    ProtoWriter a;
    a.Bytes(kAttributeName, key);
    a.Number(field, value);
    message.Bytes(10, a.bytes());
  };
  using N = ChakraNode;
  if (node.Has(N::kCpuOp)) attribute("is_cpu_op", kBool, node.cpu ? 1 : 0);
  if (node.Has(N::kDurationPs)) attribute("duration_ps", kUint64, node.duration_ps);
  if (node.Has(N::kNumOps)) attribute("num_ops", kUint64, node.num_ops);
  if (node.Has(N::kTensorSize)) attribute("tensor_size", kUint64, node.tensor_size);
  if (node.Has(N::kCommType)) {
    attribute("comm_type", kInt64, static_cast<std::uint64_t>(node.collective));
  }
  if (node.Has(N::kCommSize)) attribute("comm_size", kInt64, node.comm_size);
  if (node.Has(N::kSource)) attribute("comm_src", kUint32, node.source);
  if (node.Has(N::kDestination)) attribute("comm_dst", kUint32, node.destination);
  if (node.Has(N::kTag)) attribute("comm_tag", kUint32, node.tag);
  if (node.priority != 0) attribute("comm_priority", kUint32, node.priority);
  if (!group.empty()) {
    ProtoWriter a;
    a.Bytes(kAttributeName, "pg_name");
    a.Bytes(kString, group);
    message.Bytes(10, a.bytes());
  }
  if (node.Has(N::kInvolvedDim)) {
    ProtoWriter packed, list, a;
    for (unsigned d = 0; d < node.involved_dims; ++d) packed.Varint(node.involved >> d & 1);
    list.Bytes(1, packed.bytes());
    a.Bytes(kAttributeName, "involved_dim");
    a.Bytes(kBoolList, list.bytes());
    message.Bytes(10, a.bytes());
  }
  ProtoWriter frame;
  frame.Varint(message.bytes().size());
  out_ += frame.bytes();
  out_ += message.bytes();
}

}  // namespace orrery::formats
