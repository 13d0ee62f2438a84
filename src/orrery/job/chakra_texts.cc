#include "orrery/job/chakra_texts.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "orrery/base/text.h"

namespace orrery::job {
namespace {

using formats::ChakraCollective;
using formats::ChakraNode;
using formats::ChakraNodeType;
using Json = nlohmann::ordered_json;

std::string_view SchemaName(ChakraNodeType type) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "INVALID_NODE", "METADATA_NODE",  "MEM_LOAD_NODE",  "MEM_STORE_NODE",
      "COMP_NODE",    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"};
  return kNames[static_cast<std::size_t>(type)];
}
std::string_view SchemaName(ChakraCollective collective) {
  static constexpr std::array<std::string_view, formats::kChakraCollectives> kNames = {
      "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
      "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};
  return kNames[static_cast<std::size_t>(collective)];
}

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Attributes as the writer of .et files types them.
Json Attributes(const formats::ChakraTrace& trace, const ChakraNode& n) {
  using N = ChakraNode;
  Json list = Json::array();
  const auto add = [&list](std::string_view name, const char* type, const Json& value) {
    list.push_back({{"name", name}, {type, value}});
  };
  if (n.Has(N::kCpuOp)) add("is_cpu_op", "boolVal", n.cpu);
  if (n.Has(N::kDurationPs)) add("duration_ps", "uint64Val", std::to_string(n.duration_ps));
  if (n.Has(N::kNumOps)) add("num_ops", "uint64Val", std::to_string(n.num_ops));
  if (n.Has(N::kTensorSize)) add("tensor_size", "uint64Val", std::to_string(n.tensor_size));
  if (n.Has(N::kCommType)) {
    add("comm_type", "int64Val", std::to_string(static_cast<int>(n.collective)));
  }
  if (n.Has(N::kCommSize)) add("comm_size", "int64Val", std::to_string(n.comm_size));
  if (n.Has(N::kSource)) add("comm_src", "uint32Val", n.source);
  if (n.Has(N::kDestination)) add("comm_dst", "uint32Val", n.destination);
  if (n.Has(N::kTag)) add("comm_tag", "uint32Val", n.tag);
  if (n.priority != 0) add("comm_priority", "uint32Val", n.priority);
  if (n.group.size > 0) add("pg_name", "stringVal", trace.text(n.group));
  return list;
}

// In a DOT string.
std::string Quoted(std::string_view text) {
  std::string out;
  for (const char c : Printable(text, 80)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// What a node does, in a line.
std::string About(const formats::ChakraTrace& trace, const ChakraNode& n) {
  const auto bytes = [](std::uint64_t size) { return HumanBytes(static_cast<std::int64_t>(size)); };
  switch (n.type) {
    case ChakraNodeType::kCompute:
      return HumanTime(n.Has(ChakraNode::kDurationPs)
                           ? static_cast<SimTime>(n.duration_ps)
                           : static_cast<SimTime>(n.duration_us) * kMicrosecond);
    case ChakraNodeType::kMemLoad:
    case ChakraNodeType::kMemStore:
      return bytes(n.tensor_size);
    case ChakraNodeType::kSend:
      return fmt::format("{} to {}, tag {}", bytes(n.comm_size), n.destination, n.tag);
    case ChakraNodeType::kReceive:
      return fmt::format("{} from {}, tag {}", bytes(n.comm_size), n.source, n.tag);
    case ChakraNodeType::kCollective: {
      const std::string_view group = trace.text(n.group);
      return fmt::format("{} {}{}", SchemaName(n.collective), bytes(n.comm_size),
                         group.empty() ? "" : fmt::format(", group {}", group));
    }
    default:
      return "";
  }
}

std::string_view Shape(ChakraNodeType type) {
  switch (type) {
    case ChakraNodeType::kCompute:
      return "box";
    case ChakraNodeType::kSend:
    case ChakraNodeType::kReceive:
      return "cds";
    case ChakraNodeType::kCollective:
      return "octagon";
    case ChakraNodeType::kMemLoad:
    case ChakraNodeType::kMemStore:
      return "cylinder";
    default:
      return "point";
  }
}

}  // namespace

std::string ChakraToJson(const formats::ChakraTrace& trace) {
  std::string out = Line({{"version", trace.version}});
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const ChakraNode& n = trace.nodes[i];
    Json node = {{"id", std::to_string(n.id)}, {"name", trace.text(n.name)}};
    node["type"] = SchemaName(n.type);
    Json deps = Json::array();
    for (const std::uint64_t d : trace.deps_of(i)) deps.push_back(std::to_string(d));
    if (!deps.empty()) node["dataDeps"] = std::move(deps);
    if (n.duration_us != 0) node["durationMicros"] = std::to_string(n.duration_us);
    Json attributes = Attributes(trace, n);
    if (!attributes.empty()) node["attr"] = std::move(attributes);
    out += Line(node);
  }
  return out;
}

std::string ChakraToDot(const formats::ChakraTrace& trace, const std::string& title) {
  std::string out = fmt::format("digraph \"{}\" {{\n  node [fontsize=10]\n", Quoted(title));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const ChakraNode& n = trace.nodes[i];
    const std::string about = Quoted(About(trace, n));
    out += fmt::format("  n{} [shape={}{} label=\"{}{}{}\"]\n", n.id, Shape(n.type),
                       n.cpu ? " style=dashed" : "", Quoted(trace.text(n.name)),
                       about.empty() ? "" : "\\n", about);
  }
  for (std::size_t i = 0; i < trace.size(); ++i) {
    for (const std::uint64_t d : trace.deps_of(i)) {
      out += fmt::format("  n{} -> n{}\n", d, trace.nodes[i].id);
    }
  }
  return out + "}\n";
}

}  // namespace orrery::job
