#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "orrery/astra/config.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/tree.h"

namespace orrery::astra {
namespace {

using formats::Document;
using formats::Field;
using Yaml = formats::Node;

// JSON by content, whatever the file is called: ASTRA-sim's examples have no fixed endings.
Result<Document> Open(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(Document document, formats::ReadDocument(path));
  if (document.root.kind != Yaml::Kind::kMap) {
    return InvalidInput("{}: an object of keys and values is expected", Printable(path));
  }
  return document;
}

class Reader {
 public:
  explicit Reader(const Document& document) : document_(document) {}

  Status Number(const Yaml& node, double least, double* out) const {
    const char* end = node.text.data() + node.text.size();
    const auto [at, error] = std::from_chars(node.text.data(), end, *out);
    const bool sound = node.kind == Yaml::Kind::kScalar && !node.quoted && error == std::errc() &&
                       at == end && std::isfinite(*out) && *out >= least && *out <= 1e18;
    if (sound) return {};
    return InvalidInput("{}: '{}' is no number of at least {}", document_.Where(node),
                        Printable(node.text, 40), least);
  }
  // What C++ would cut a JSON number to.
  template <class Int>
  Status Whole(const Yaml& node, double least, double most, Int* out) const {
    double value = 0;
    ORRERY_RETURN_IF_ERROR(Number(node, least, &value));
    if (value > most) {
      return InvalidInput("{}: {} is more than {}", document_.Where(node), value, most);
    }
    *out = static_cast<Int>(value);
    return {};
  }
  Status Flag(const Yaml& node, bool* out) const {
    if (node.text == "true" || node.text == "false") {
      *out = node.text == "true";
      return {};
    }
    double value = 0;
    ORRERY_RETURN_IF_ERROR(Number(node, 0, &value));
    *out = value != 0;
    return {};
  }
  Status OneOf(const Yaml& node, std::span<const std::string_view> words, std::size_t* out) const {
    const auto at = std::ranges::find(words, node.text);
    if (node.kind == Yaml::Kind::kScalar && at != words.end()) {
      *out = static_cast<std::size_t>(at - words.begin());
      return {};
    }
    return InvalidInput("{}: {}", document_.Where(node),
                        UnknownName("value", Printable(node.text, 40), words));
  }
  Status List(const Yaml& node) const {
    if (node.kind == Yaml::Kind::kList && !node.items.empty()) return {};
    return InvalidInput("{}: a list is expected, one entry a dimension", document_.Where(node));
  }
  std::string Where(const Yaml& node) const { return document_.Where(node); }

 private:
  const Document& document_;
};

// Whether the text begins with `prefix`; what follows it is `rest`.
bool TakePrefix(std::string_view text, std::string_view prefix, std::string_view* rest) {
  if (!text.starts_with(prefix)) return false;
  *rest = text.substr(prefix.size());
  return true;
}

Result<Implementation> ReadImplementation(const Reader& reader, const Yaml& node) {
  Implementation out;
  std::string_view text = node.text, window;
  if (text == "doubleBinaryTree") {
    out.algorithm = Algorithm::kDoubleBinaryTree;
    return out;
  }
  if (text == "ring" || text == "oneRing") {
    out.one = text == "oneRing";
    return out;
  }
  if (text == "halvingDoubling" || text == "oneHalvingDoubling") {
    out.algorithm = Algorithm::kHalvingDoubling;
    out.one = text == "oneHalvingDoubling";
    return out;
  }
  out.one = TakePrefix(text, "oneDirect", &window);
  if (out.one || TakePrefix(text, "direct", &window)) {
    out.algorithm = Algorithm::kDirect;
    if (window.empty()) return out;
    const auto [at, error] =
        std::from_chars(window.data(), window.data() + window.size(), out.window);
    if (error == std::errc() && at == window.data() + window.size() && out.window > 0) return out;
  }
  const std::string_view valid[] = {"ring",      "oneRing",         "direct",
                                    "oneDirect", "halvingDoubling", "oneHalvingDoubling",
                                    "direct[N]", "oneDirect[N]",    "doubleBinaryTree"};
  return InvalidInput("{}: {}", reader.Where(node),
                      UnknownName("implementation", Printable(text, 40), valid));
}

struct KeyOf {
  std::string_view prefix;
  Collective collective;
};
constexpr std::array<KeyOf, kCollectives> kKeys = {{
    {"all-reduce", Collective::kAllReduce},
    {"all-gather", Collective::kAllGather},
    {"reduce-scatter", Collective::kReduceScatter},
    {"all-to-all", Collective::kAllToAll},
}};

// Of the -implementation keys; false: it is none.
Result<bool> ReadCollectiveKey(const Reader& reader, const Field& field, SystemConfig* out) {
  for (const KeyOf& key : kKeys) {
    std::string_view rest;
    if (!TakePrefix(field.key, key.prefix, &rest)) continue;
    const auto c = static_cast<std::size_t>(key.collective);
    if (rest == "-implementation") {
      ORRERY_RETURN_IF_ERROR(reader.List(field.value));
      for (const Yaml& item : field.value.items) {
        ORRERY_ASSIGN_OR_RETURN(const Implementation one, ReadImplementation(reader, item));
        out->implementations[c].push_back(one);
      }
      return true;
    }
    if (rest == "-implementation-custom") {
      ORRERY_RETURN_IF_ERROR(reader.List(field.value));
      if (field.value.items.size() != 1) {
        return InvalidInput("{}: one prefix of a Chakra graph is expected",
                            reader.Where(field.value));
      }
      out->custom[c] = field.value.items[0].text;
      return true;
    }
  }
  return false;
}

// {node id: prefix}, YAML.
Status ReadByNode(const std::string& path, std::map<std::uint64_t, std::string>* out) {
  ORRERY_ASSIGN_OR_RETURN(const Document document, Open(path));
  for (const Field& field : document.root.fields) {
    std::uint64_t id = 0;
    const char* end = field.key.data() + field.key.size();
    const auto [at, error] = std::from_chars(field.key.data(), end, id);
    if (error != std::errc() || at != end || field.value.kind != Yaml::Kind::kScalar) {
      return InvalidInput("{}: the id of a node and a prefix are expected", document.Where(field));
    }
    (*out)[id] = field.value.text;
  }
  return {};
}

// Of the memory bus; false: it is none. ASTRA-sim keeps L, o, g and G as float.
Result<bool> ReadBusKey(const Reader& reader, const Field& field, BusConfig* out) {
  const std::string_view key = field.key;
  if (key == "model-shared-bus") {
    if (field.value.text == "true" || field.value.text == "false") {
      out->shared = field.value.text == "true";
      return true;
    }
    int shared = 0;
    ORRERY_RETURN_IF_ERROR(reader.Whole(field.value, 0, 1e6, &shared));
    out->shared = shared == 1;
    return true;
  }
  if (key == "local-reduction-delay") {
    ORRERY_RETURN_IF_ERROR(reader.Whole(field.value, 0, 1e9, &out->reduction_delay));
    return true;
  }
  if (key != "L" && key != "o" && key != "g" && key != "G") return false;
  double value = 0;
  ORRERY_RETURN_IF_ERROR(reader.Number(field.value, 0, &value));
  const float kept = static_cast<float>(value);
  if (key == "G") {
    out->G = static_cast<double>(kept);
    return true;
  }
  (key == "L" ? out->L : key == "o" ? out->o : out->g) = static_cast<Tick>(kept);
  return true;
}

Result<bool> ReadSystemNumber(const Reader& reader, const Field& field, SystemConfig* out) {
  const Yaml& value = field.value;
  const std::string_view key = field.key;
  Status status;
  double real = 0;
  if (key == "endpoint-delay") {
    status = reader.Whole(value, 0, 1e12, &out->endpoint_delay);
  } else if (key == "active-chunks-per-dimension") {
    status = reader.Whole(value, 1, 1e6, &out->active_chunks);
  } else if (key == "preferred-dataset-splits") {
    status = reader.Whole(value, 1, 1e6, &out->splits);
  } else if (key == "local-mem-bw") {
    status = reader.Number(value, 0, &real);
    out->local_mem_bandwidth = real * 1000000000;
  } else if (key == "peak-perf") {
    status = reader.Number(value, 0, &real);
    out->peak_flops = real * 1000000000000;
  } else if (key == "roofline-enabled") {
    status = reader.Flag(value, &out->roofline);
  } else if (key == "replay-only") {
    status = reader.Flag(value, &out->replay_only);
  } else {
    return ReadBusKey(reader, field, &out->bus);
  }
  if (!status.ok()) return status;
  return true;
}

}  // namespace

std::string_view Name(Collective collective) {
  return kKeys[static_cast<std::size_t>(collective)].prefix;
}

Result<SystemConfig> ReadSystem(const std::string& path, const RunConfig& run,
                                std::vector<std::string>* warnings) {
  ORRERY_ASSIGN_OR_RETURN(const Document document, Open(path));
  const Reader reader(document);
  SystemConfig out;
  bool policy = false, delay = false;
  std::vector<std::string> ignored;
  for (const Field& field : document.root.fields) {
    ORRERY_ASSIGN_OR_RETURN(const bool of_collective, ReadCollectiveKey(reader, field, &out));
    if (of_collective) continue;
    ORRERY_ASSIGN_OR_RETURN(const bool number, ReadSystemNumber(reader, field, &out));
    delay = delay || field.key == "endpoint-delay";
    if (number) continue;
    std::size_t choice = 0;
    if (field.key == "scheduling-policy") {
      constexpr std::string_view kPolicies[] = {"LIFO", "FIFO", "EXPLICIT"};
      ORRERY_RETURN_IF_ERROR(reader.OneOf(field.value, kPolicies, &choice));
      out.policy = static_cast<Policy>(choice);
      policy = true;
    } else if (field.key == "collective-optimization") {
      constexpr std::string_view kKinds[] = {"baseline", "localBWAware"};
      ORRERY_RETURN_IF_ERROR(reader.OneOf(field.value, kKinds, &choice));
      out.local_bandwidth_aware = choice == 1;
    } else if (field.key == "per-node-custom-implementation") {
      ORRERY_RETURN_IF_ERROR(ReadByNode(field.value.text, &out.custom_by_node));
    } else if (field.key != "boost-mode" && field.key != "trace-enabled") {
      ignored.push_back(field.key);
    }
  }
  if (out.splits == 0) {
    return InvalidInput(
        "{}: has no preferred-dataset-splits, into how many chunks a collective "
        "is cut",
        Printable(path));
  }
  if (!policy) warnings->push_back("the system file has no scheduling-policy: LIFO is assumed");
  if (delay) {
    out.endpoint_delay = static_cast<Tick>(
        static_cast<std::int64_t>(static_cast<double>(out.endpoint_delay) * run.injection_scale));
  }
  if (!ignored.empty()) {
    std::string names;
    for (const std::string& name : ignored) {
      names += (names.empty() ? "" : ", ") + Printable(name, 60);
    }
    warnings->push_back(
        "keys of the system file that ASTRA-sim ignores, or that only write logs: " + names);
  }
  return out;
}

Result<NetworkConfig> ReadNetwork(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const Document document, Open(path));
  const Reader reader(document);
  NetworkConfig out;
  std::size_t lists = 0;
  for (const Field& field : document.root.fields) {
    const std::string_view names[] = {"topology", "npus_count", "bandwidth", "latency"};
    const auto known = std::ranges::find(names, field.key);
    if (known == std::end(names)) {
      return InvalidInput("{}: {}", document.Where(field),
                          UnknownName("key", Printable(field.key, 40), names));
    }
    ORRERY_RETURN_IF_ERROR(reader.List(field.value));
    const std::vector<Yaml>& items = field.value.items;
    if (lists++ == 0) out.dimensions.resize(items.size());
    if (items.size() != out.dimensions.size() || items.size() > 8) {
      return InvalidInput("{}: {} entries, and another list has {} (at most 8 dimensions)",
                          document.Where(field.value), items.size(), out.dimensions.size());
    }
    for (std::size_t d = 0; d < items.size(); ++d) {
      Dimension& dimension = out.dimensions[d];
      if (field.key == "topology") {
        constexpr std::string_view kShapes[] = {"Ring", "FullyConnected", "Switch"};
        std::size_t shape = 0;
        ORRERY_RETURN_IF_ERROR(reader.OneOf(items[d], kShapes, &shape));
        dimension.shape = static_cast<Shape>(shape);
      } else if (field.key == "npus_count") {
        ORRERY_RETURN_IF_ERROR(reader.Whole(items[d], 2, 1 << 20, &dimension.npus));
      } else if (field.key == "bandwidth") {
        double gb = 0;
        ORRERY_RETURN_IF_ERROR(reader.Number(items[d], 1e-9, &gb));
        dimension.bandwidth_gb = gb;
        dimension.bandwidth = gb * (1 << 30) / 1000000000;  // 1 GB is 2^30 bytes here
      } else {
        ORRERY_RETURN_IF_ERROR(reader.Number(items[d], 0, &dimension.latency));
      }
    }
  }
  if (lists != 4) {
    return InvalidInput("{}: topology, npus_count, bandwidth and latency are expected",
                        Printable(path));
  }
  std::size_t npus = 1;
  for (const Dimension& d : out.dimensions) {
    npus *= static_cast<std::size_t>(d.npus);
    if (npus > std::size_t{1} << 20) {
      return InvalidInput("{}: more than 2^20 NPUs", Printable(path));
    }
  }
  return out;
}

Result<MemoryConfig> ReadMemory(const std::string& path, std::vector<std::string>* warnings) {
  ORRERY_ASSIGN_OR_RETURN(const Document document, Open(path));
  const Reader reader(document);
  MemoryConfig out;
  for (const Field& field : document.root.fields) {
    const Yaml& value = field.value;
    if (field.key == "memory-type") {
      constexpr std::string_view kKinds[] = {"NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION",
                                             "PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL"};
      std::size_t kind = 0;
      ORRERY_RETURN_IF_ERROR(reader.OneOf(value, kKinds, &kind));
      out.kind = static_cast<MemoryKind>(kind);
    } else if (field.key == "remote-mem-latency") {
      ORRERY_RETURN_IF_ERROR(reader.Whole(value, 0, 1e15, &out.latency));
    } else if (field.key == "remote-mem-bw") {
      ORRERY_RETURN_IF_ERROR(reader.Whole(value, 0, 1e12, &out.bandwidth));
    } else if (field.key == "num-nodes") {
      ORRERY_RETURN_IF_ERROR(reader.Whole(value, 0, 1 << 20, &out.nodes));
    } else if (field.key == "num-npus-per-node") {
      ORRERY_RETURN_IF_ERROR(reader.Whole(value, 0, 1 << 20, &out.npus_per_node));
    } else {
      warnings->push_back("the remote memory file's key '" + Printable(field.key, 60) +
                          "' is ignored");
    }
  }
  if (out.kind != MemoryKind::kNone && out.bandwidth == 0) {
    return InvalidInput("{}: remote-mem-bw is below 1 byte/ns", Printable(path));
  }
  if (out.kind == MemoryKind::kPerNode && (out.nodes == 0 || out.npus_per_node == 0)) {
    return InvalidInput("{}: PER_NODE_MEMORY_EXPANSION needs num-nodes and num-npus-per-node",
                        Printable(path));
  }
  return out;
}

}  // namespace orrery::astra
