#include "orrery/formats/execution_trace.h"

#include <algorithm>
#include <array>

#include "orrery/formats/kineto.h"
#include "orrery/formats/raw_json.h"

namespace orrery::formats {
namespace {

namespace ondemand = simdjson::ondemand;
using raw::Error;
using raw::Integer;
using raw::Json;
using raw::Text;
using raw::Unquoted;

class NodesReader {
 public:
  NodesReader(std::string text, const std::string& file)
      : json_(std::move(text), file), file_(file) {}

  Result<ExecutionTrace> Read() {
    ORRERY_RETURN_IF_ERROR(json_.Open(kMostKinetoBytes));
    ondemand::object top;
    Error error = json_.root().get_object().get(top);
    if (error == simdjson::SUCCESS) error = ReadTop(top);
    if (error != simdjson::SUCCESS) return json_.Broken(error);
    if (out_.schema.empty()) {
      return InvalidInput("'{}': no 'schema': no execution trace of PyTorch", Printable(file_));
    }
    if (!out_.schema.starts_with("1.0.") && !out_.schema.starts_with("1.1.")) {
      return InvalidInput("'{}': execution trace of schema '{}'; 1.0.x and 1.1.x are read",
                          Printable(file_), Printable(out_.schema, 40));
    }
    std::stable_sort(out_.nodes.begin(), out_.nodes.end(),
                     [](const auto& a, const auto& b) { return a.record < b.record; });
    return std::move(out_);
  }

 private:
  // Keys of a node, or of its attributes.
  enum Key : std::size_t {
    kName,
    kRecord,
    kCollective,
    kDtype,
    kIn,
    kOut,
    kInSplit,
    kOutSplit,
    kGroupName,
    kGroupDescription,
    kGroupSize,
    kInputs,
    kShapes,
    kTypes,
    kKeys
  };
  static constexpr std::array<std::string_view, kKeys> kNames = {
      "name",           "rf_id",         "collective_name", "dtype",      "in_msg_nelems",
      "out_msg_nelems", "in_split_size", "out_split_size",  "pg_name",    "pg_desc",
      "pg_size",        "inputs",        "input_shapes",    "input_types"};

  Error ReadTop(ondemand::object& top) {
    return raw::ForEachMember(top, [&](std::string_view key, ondemand::value value) {
      if (key == "nodes") {
        ondemand::array nodes;
        if (auto error = value.get_array().get(nodes)) return error;
        return ReadNodes(nodes);
      }
      const bool schema = key == "schema";
      if (!schema && key != "pid") return simdjson::SUCCESS;
      std::string_view text;
      if (auto error = raw::Take(value, &text)) return error;
      if (schema) {
        out_.schema = Text(text);
      } else {
        out_.process = Integer(text, -1);
      }
      return simdjson::SUCCESS;
    });
  }

  Error ReadNodes(ondemand::array nodes) {
    for (auto each : nodes) {
      ondemand::object node;
      if (auto error = each.get_object().get(node)) return error;
      values_.fill({});
      const Error error =
          raw::ForEachMember(node, [&](std::string_view key, ondemand::value value) {
            if (key == "attrs") return ReadAttributes(value);
            return TakeKnown(key, value);
          });
      if (error != simdjson::SUCCESS) return error;
      AddNode();
    }
    return simdjson::SUCCESS;
  }
  Error TakeKnown(std::string_view key, ondemand::value value) {
    for (std::size_t k = 0; k < kNames.size(); ++k) {
      if (kNames[k] == key) return raw::Take(value, &values_[k]);
    }
    return simdjson::SUCCESS;
  }
  // [{"name": "rf_id", "type": "uint64", "value": 3}, …]
  Error ReadAttributes(ondemand::value value) {
    ondemand::array attributes;
    if (auto error = value.get_array().get(attributes)) return error;
    for (auto each : attributes) {
      ondemand::object attribute;
      if (auto error = each.get_object().get(attribute)) return error;
      std::string_view name, text;
      const Error error =
          raw::ForEachMember(attribute, [&](std::string_view key, ondemand::value member) {
            if (key == "name") return raw::Take(member, &name);
            return key == "value" ? raw::Take(member, &text) : simdjson::SUCCESS;
          });
      if (error != simdjson::SUCCESS) return error;
      for (std::size_t k = kRecord; k < kInputs; ++k) {
        if (kNames[k] == Unquoted(name)) values_[k] = text;
      }
    }
    return simdjson::SUCCESS;
  }

  void AddNode() {
    ++out_.operators;
    const std::string_view name = Unquoted(values_[kName]);
    if (name.find("process_group:init") != std::string_view::npos) ReadGroups();
    if (!IsCommunication(name)) return;
    ExecutionTrace::Node node;
    node.record = Integer(values_[kRecord], -1);
    node.name = Text(values_[kName]);
    ProfileTrace::Comm& comm = node.comm;
    comm.collective = Text(values_[kCollective]);
    comm.dtype = Text(values_[kDtype]);
    comm.in = Integer(values_[kIn], -1);
    comm.out = Integer(values_[kOut], -1);
    comm.in_split = Text(values_[kInSplit]);
    comm.out_split = Text(values_[kOutSplit]);
    comm.group = Text(values_[kGroupName]);
    comm.description = Text(values_[kGroupDescription]);
    comm.group_size = Integer(values_[kGroupSize], -1);
    Json inputs = raw::Tree(values_[kInputs]);  // 1.1: an object of lists; 1.0: the values
    Json shapes = raw::Tree(values_[kShapes]), types = raw::Tree(values_[kTypes]);
    Json values = inputs;
    if (inputs.is_object()) {
      values = inputs.value("values", Json());
      shapes = inputs.value("shapes", Json());
      types = inputs.value("types", Json());
    }
    for (const Json& s : shapes.is_array() ? shapes : Json::array()) {
      comm.elements.push_back(raw::Elements(s));
    }
    for (const Json& t : types.is_array() ? types : Json::array()) {
      comm.types.push_back(t.is_string() ? t.get<std::string>() : "");
    }
    for (const Json& v : values.is_array() ? values : Json::array()) {
      comm.values.push_back(v.is_string() ? v.get<std::string>() : v.is_array() ? "" : v.dump());
    }
    out_.nodes.push_back(std::move(node));
  }

  // The first value is JSON in a string.
  void ReadGroups() {
    const Json inputs = raw::Tree(values_[kInputs]);
    const Json values = inputs.is_object() ? inputs.value("values", Json()) : inputs;
    if (!values.is_array() || values.empty() || !values.front().is_string()) return;
    const Json table = raw::Tree(values.front().get_ref<const std::string&>());
    for (const Json& g : table.is_array() ? table : Json::array()) {
      if (!g.is_object()) continue;
      ProfileTrace::Group group;
      const Json name = g.value("pg_name", Json()), description = g.value("pg_desc", Json());
      group.name = name.is_string() ? name.get<std::string>() : name.dump();
      if (description.is_string()) group.description = description.get<std::string>();
      const Json size = g.value("group_size", Json());
      if (size.is_number_integer()) group.size = size.get<std::int64_t>();
      group.ranks = raw::RanksOf(g.value("ranks", Json()));
      out_.groups.push_back(std::move(group));
    }
  }

  raw::Document json_;
  const std::string& file_;
  ExecutionTrace out_;
  std::array<std::string_view, kKeys> values_;
};

}  // namespace

bool IsExecutionTrace(std::string_view start) {
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && start[first] == '{' &&
         start.find("\"schema\"") != std::string_view::npos &&
         start.find("\"orrery.") == std::string_view::npos &&  // a result of ours has nodes, too
         (start.find("\"nodes\"") != std::string_view::npos ||
          start.find("execution_trace") != std::string_view::npos);
}

Result<ExecutionTrace> ParseExecutionTrace(std::string text, const std::string& file) {
  return NodesReader(std::move(text), file).Read();
}

}  // namespace orrery::formats
