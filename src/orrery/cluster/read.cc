#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/cluster/catalog.h"
#include "orrery/cluster/options.h"
#include "orrery/cluster/ratio.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/constants/constants.h"

namespace orrery::cluster {
namespace {

using formats::LooksLikeFile;
using formats::Node;
using formats::Section;
using formats::Setting;
using formats::Source;

struct IntField {
  std::string_view key;
  int Spec::*member;
};
constexpr std::array<IntField, 7> kInts = {
    {{"gpus_per_node", &Spec::gpus_per_node},
     {"gpus_per_nvlink_domain", &Spec::gpus_per_nvlink_domain},
     {"nics_per_node", &Spec::nics_per_node},
     {"nvlink_packet_bytes", &Spec::nvlink_packet_bytes},
     {"nvlink_header_bytes", &Spec::nvlink_header_bytes},
     {"nic_mtu_bytes", &Spec::nic_mtu_bytes},
     {"nic_header_bytes", &Spec::nic_header_bytes}}};
struct WholeField {
  std::string_view key;
  std::int64_t Spec::*member;
};
constexpr std::array<WholeField, 7> kWholes = {{{"nvlink_bandwidth", &Spec::nvlink_Bps},
                                                {"nvlink_latency", &Spec::nvlink_latency},
                                                {"pcie_bandwidth", &Spec::pcie_Bps},
                                                {"pcie_latency", &Spec::pcie_latency},
                                                {"nic_bandwidth", &Spec::nic_Bps},
                                                {"nic_latency", &Spec::nic_latency},
                                                {"stream_bandwidth", &Spec::stream_Bps}}};

constexpr std::array<std::pair<std::string_view, Arch>, 4> kArchs = {
    {{"volta", Arch::kVolta},
     {"ampere", Arch::kAmpere},
     {"hopper", Arch::kHopper},
     {"blackwell", Arch::kBlackwell}}};

void ApplyCluster(const Section& section, Spec* spec) {
  for (const IntField& field : kInts) {
    if (section.Has(field.key)) spec->*field.member = static_cast<int>(section.Integer(field.key));
  }
  for (const WholeField& field : kWholes) {
    if (section.Has(field.key)) spec->*field.member = section.Integer(field.key);
  }
  if (section.Has("fabric")) {
    spec->fabric = FindFabric(section.Text("fabric")).value_or(spec->fabric);
  }
  if (section.Has("sharp")) spec->sharp = section.Bool("sharp");
  if (section.Has("rail_optimised")) spec->rail_optimised = section.Bool("rail_optimised");
  if (section.Has("nodes_per_leaf")) {
    spec->nodes_per_leaf = static_cast<int>(section.Integer("nodes_per_leaf"));
  }
  if (section.Has("oversubscription")) spec->oversubscription = section.Real("oversubscription");
  if (section.Has("cpu")) {
    const bool grace = section.Text("cpu") == "grace";
    spec->cpu_is_amd = section.Text("cpu") == "amd";
    if (grace != spec->cpu_is_grace) {
      spec->cpu_is_grace = spec->cpu_speed_fitted = grace;
      spec->cpu_relative_speed = grace ? constants::Set::Fitted()[constants::kCpuSpeedGrace] : 1;
    }
  }
  if (section.Has("cpu_relative_speed")) {
    spec->cpu_relative_speed = section.Real("cpu_relative_speed");
    spec->cpu_speed_fitted = false;
  }
  if (section.Has("name")) spec->name = section.Text("name");
}

void ApplyDevice(const Section& section, DeviceSpec* device) {
  if (section.Has("name")) device->name = section.Text("name");
  if (section.Has("table")) device->table = section.Text("table");
  if (section.Has("arch")) {
    for (const auto& [name, arch] : kArchs) {
      if (section.Text("arch") == name) device->arch = arch;
    }
    device->bf16 = device->arch != Arch::kVolta;
  }
  if (section.Has("bf16")) device->bf16 = section.Bool("bf16");
  if (section.Has("transfer_spread")) device->transfer_spread = section.Real("transfer_spread");
  if (section.Has("sms")) device->sms = static_cast<int>(section.Integer("sms"));
  if (section.Has("fp32")) device->fp32_flops = section.Real("fp32");
  if (section.Has("tf32")) device->tf32_flops = section.Real("tf32");
  if (section.Has("fp16")) device->fp16_flops = section.Real("fp16");
  if (section.Has("fp8")) device->fp8_flops = section.Real("fp8");
  if (section.Has("fp4")) device->fp4_flops = section.Real("fp4");
  if (section.Has("int8")) device->int8_flops = section.Real("int8");
  if (section.Has("memory")) device->memory_bytes = section.Integer("memory");
  if (section.Has("memory_bandwidth")) {
    device->memory_bandwidth_Bps = section.Integer("memory_bandwidth");
  }
  if (section.Has("l2")) device->l2_bytes = section.Integer("l2");
  if (section.Has("power")) device->power_w = section.Real("power");
  if (section.Has("cuda")) device->cuda = static_cast<int>(section.Integer("cuda"));
  if (section.Has("vboost")) device->vboost = section.Bool("vboost");
  if (section.Has("exp_per_clock")) device->exp_per_clock = section.Real("exp_per_clock");
  if (section.Has("collective_setup"))
    device->collective_setup = section.Integer("collective_setup");
  if (section.Has("collective_threads")) {
    device->collective_threads = static_cast<int>(section.Integer("collective_threads"));
  }
  if (section.Has("price_per_hour")) device->price_per_hour_usd = section.Real("price_per_hour");
}

Status CheckGiven(const std::string& where, const Section& section,
                  std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (section.Has(key)) continue;
    return InvalidInput("{}: {} is missing; give it, or name a preset to start from", where,
                        formats::FullName(section.table(), key));
  }
  return {};
}

constexpr std::string_view kClusterNeeds[] = {"gpus_per_node", "nics_per_node", "pcie_bandwidth",
                                              "nic_bandwidth"};
constexpr std::string_view kDeviceNeeds[] = {
    "name", "arch", "sms", "fp32", "fp16", "memory", "memory_bandwidth", "l2"};

// `device`: a device's name, or keys, which change the preset's or, with `preset`, that device.
Status ReadDevice(const Source& source, const Node* node, const Catalog& catalog, bool needed,
                  const std::string& where, DeviceSpec* device) {
  if (node != nullptr && node->kind == Node::Kind::kScalar) {
    Result<DeviceSpec> found = catalog.FindDevice(Printable(node->text));
    if (!found.ok()) return std::move(found).TakeStatus().In(source.Where(*node));
    *device = *std::move(found);
    return {};
  }
  Section section(DeviceOptions());
  if (node != nullptr) {
    ORRERY_ASSIGN_OR_RETURN(section, Section::Read(*source.document, *node, DeviceOptions()));
  }
  if (section.Has("preset")) {
    Result<DeviceSpec> found = catalog.FindDevice(Printable(section.Text("preset")));
    if (!found.ok()) return std::move(found).TakeStatus().In(section.Where("preset"));
    *device = *std::move(found);
  } else if (needed) {
    ORRERY_RETURN_IF_ERROR(CheckGiven(where, section, kDeviceNeeds));
  }
  ApplyDevice(section, device);
  return {};
}

Status ApplyTopologyFile(const Source& source, const std::string& file, const std::string& where,
                         Spec* spec) {
  const std::string path = source.Path(file);
  Result<std::string> text = ReadFile(path, kTopologyBytes);
  if (!text.ok()) return std::move(text).TakeStatus().In(where);
  return ApplyTopology(*text, path, spec);
}

Status ApplyDimensions(const Section& section, TopologySpec* t) {
  if (!section.Has("sizes")) return {};
  constexpr std::array<std::pair<std::string_view, DimensionKind>, 3> kKinds = {
      {{"Ring", DimensionKind::kRing},
       {"FullyConnected", DimensionKind::kFullyConnected},
       {"Switch", DimensionKind::kSwitch}}};
  const OptionValue sizes = section.Value("sizes");
  t->dimensions.clear();
  for (const std::int64_t size : std::get<std::vector<std::int64_t>>(sizes)) {
    t->dimensions.push_back({.size = static_cast<int>(size)});
  }
  if (!section.Has("kinds")) return {};
  const std::string kinds = section.Text("kinds");
  std::size_t begin = 0, count = 0;
  while (begin <= kinds.size()) {
    const std::size_t end = std::min(kinds.find(',', begin), kinds.size());
    std::string_view word = std::string_view(kinds).substr(begin, end - begin);
    word = Trimmed(word);
    bool known = false;
    for (const auto& [name, kind] : kKinds) {
      if (name != word || count >= t->dimensions.size()) continue;
      t->dimensions[count].kind = kind;
      known = true;
    }
    if (!known) break;
    ++count;
    begin = end + 1;
  }
  if (count == t->dimensions.size() && begin > kinds.size()) return {};
  return InvalidInput(
      "{}: '{}': must be Ring, FullyConnected or Switch, one for each of the {} sizes",
      section.Where("kinds"), Printable(kinds, 80), t->dimensions.size());
}

Status ApplyTopologyKeys(const Section& section, TopologySpec* t) {
  constexpr std::array<std::pair<std::string_view, int TopologySpec::*>, 6> kCounts = {
      {{"spines", &TopologySpec::spines},
       {"nodes_per_pod", &TopologySpec::nodes_per_pod},
       {"cores", &TopologySpec::cores},
       {"nics_per_router", &TopologySpec::nics_per_router},
       {"routers_per_group", &TopologySpec::routers_per_group},
       {"global_links", &TopologySpec::global_links}}};
  constexpr std::array<std::pair<std::string_view, std::int64_t TopologySpec::*>, 4> kQuantities = {
      {{"uplink_bandwidth", &TopologySpec::uplink_Bps},
       {"core_bandwidth", &TopologySpec::core_Bps},
       {"spine_latency", &TopologySpec::spine_latency},
       {"core_latency", &TopologySpec::core_latency}}};
  for (const auto& [key, member] : kCounts) {
    if (section.Has(key)) t->*member = static_cast<int>(section.Integer(key));
  }
  for (const auto& [key, member] : kQuantities) {
    if (section.Has(key)) t->*member = section.Integer(key);
  }
  if (section.Has("core_oversubscription")) {
    t->core_oversubscription = section.Real("core_oversubscription");
  }
  for (const Routing routing :
       {Routing::kEcmp, Routing::kStatic, Routing::kRailLocal, Routing::kAdaptive}) {
    if (section.Text("routing") == Name(routing)) t->routing = routing;
  }
  return ApplyDimensions(section, t);
}

// `topology`: a name, a file, or a section. The file comes first, keys beside it change what it
// said.
Status ApplyTopology(const Source& source, const Node& node, Spec* spec) {
  if (node.kind == Node::Kind::kNull) return {};
  if (node.kind == Node::Kind::kScalar) {
    if (LooksLikeFile(node.text)) {
      return ApplyTopologyFile(source, node.text, source.Where(node) + ": cluster.topology", spec);
    }
    spec->topology.name = node.text;
    return CheckTopologyName(Printable(node.text)).In(source.Where(node));
  }
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, node, TopologyOptions()));
  if (section.Has("file")) {
    ORRERY_RETURN_IF_ERROR(
        ApplyTopologyFile(source, section.Text("file"), section.Where("file"), spec));
  }
  if (section.Has("name")) {
    spec->topology.name = section.Text("name");
    ORRERY_RETURN_IF_ERROR(
        CheckTopologyName(Printable(spec->topology.name)).In(section.Where("name")));
  }
  return ApplyTopologyKeys(section, &spec->topology);
}

// `pcie_tree`: a name ("none" takes a preset's away), or a section.
Status ApplyPcieTree(const Source& source, const Node& node, PcieTreeSpec* tree) {
  if (node.kind == Node::Kind::kNull) return {};
  if (node.kind == Node::Kind::kScalar) {
    tree->name = tree->tree = tree->nvlinks = "";
    if (node.text == "none") return {};
    tree->name = node.text;
    return CheckPcieTreeName(Printable(node.text)).In(source.Where(node));
  }
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(*source.document, node, PcieTreeOptions()));
  if (section.Has("name") && section.Has("tree")) {
    return InvalidInput("{}: name and tree: give one of them", section.Where("tree"));
  }
  if (section.Has("name")) {
    tree->name = section.Text("name");
    tree->tree = "";
    ORRERY_RETURN_IF_ERROR(CheckPcieTreeName(Printable(tree->name)).In(section.Where("name")));
  }
  if (section.Has("tree")) {
    tree->tree = section.Text("tree");
    tree->name = "";
  }
  if (section.Has("nvlinks")) {
    tree->nvlinks = section.Text("nvlinks");
    tree->peers = !tree->nvlinks.empty();
  }
  if (section.Has("peers")) tree->peers = section.Text("peers") == "pcie";
  if (section.Has("uplink_bandwidth")) tree->uplink_Bps = section.Integer("uplink_bandwidth");
  if (section.Has("uplink_latency")) tree->uplink_latency = section.Integer("uplink_latency");
  if (section.Has("socket_bandwidth")) tree->socket_Bps = section.Integer("socket_bandwidth");
  if (section.Has("socket_latency")) tree->socket_latency = section.Integer("socket_latency");
  return {};
}

// What all definitions say alike, behind the preset's or the row's beginning.
Status ApplyAll(const Source& source, const Node& node, const Section& section, Spec* spec) {
  if (const Node* topology = node.Find("topology")) {
    ORRERY_RETURN_IF_ERROR(ApplyTopology(source, *topology, spec));
  }
  if (const Node* tree = node.Find("pcie_tree")) {
    ORRERY_RETURN_IF_ERROR(ApplyPcieTree(source, *tree, &spec->pcie_tree));
  }
  ApplyCluster(section, spec);
  return {};
}

// A definition without NVLink keys has none; otherwise the node is the domain.
void BeginWithoutPreset(const Section& section, Spec* spec) {
  spec->gpus_per_nvlink_domain =
      section.Has("nvlink_bandwidth") ? static_cast<int>(section.Integer("gpus_per_node")) : 1;
  spec->nvlink_packet_bytes = 128;
}

// Keys of a cluster that hold a section, with options of its own.
constexpr std::string_view kSections[] = {"device", "topology", "pcie_tree"};

// The keys of a cluster, whose oversubscription may be a ratio; with blanks, 4 : 1, YAML takes it
// for a map.
Result<Section> ReadKeys(const formats::Document& document, const Node& node) {
  Node keys = node;
  if (Node* ratio = keys.Find("oversubscription"); ratio != nullptr) {
    const bool map = ratio->kind == Node::Kind::kMap && ratio->fields.size() == 1;
    const std::string text =
        map ? fmt::format("{}:{}", ratio->fields[0].key, ratio->fields[0].value.text) : ratio->text;
    if (const auto value = ParseRatio(text)) {
      ratio->kind = Node::Kind::kScalar;
      ratio->fields.clear();
      ratio->text = fmt::format("{}", *value);
      ratio->quoted = false;
    }
  }
  return Section::Read(document, keys, ClusterOptions(), kSections);
}

Result<Spec> ReadClusterFile(const Source& source, const std::string& name,
                             const std::string& where, const Catalog& catalog,
                             std::vector<std::string>* assumed);

// The preset may be a file, too, unless the fields are a file's themselves: `cluster: file.yaml`
// with --set cluster.KEY=….
Result<Spec> ReadFields(const Source& source, const Node& node, const Catalog& catalog,
                        bool of_file, std::vector<std::string>* assumed) {
  ORRERY_ASSIGN_OR_RETURN(const Section section, ReadKeys(*source.document, node));
  Spec spec;
  const Setting* preset = section.Find("preset");
  if (preset != nullptr && !of_file && LooksLikeFile(section.Text("preset"))) {
    ORRERY_ASSIGN_OR_RETURN(
        spec, ReadClusterFile(source, section.Text("preset"), preset->where, catalog, assumed));
  } else if (preset != nullptr) {
    Result<Spec> found = catalog.Find(Printable(section.Text("preset")));
    if (!found.ok()) {
      return std::move(found).TakeStatus().In(preset->where + ": cluster.preset");
    }
    spec = *std::move(found);
  } else {
    ORRERY_RETURN_IF_ERROR(CheckGiven(source.Where(node), section, kClusterNeeds));
    spec.name = "inline cluster";
    BeginWithoutPreset(section, &spec);
    spec.sources = {source.name()};
    assumed->push_back(
        "cluster: what the definition leaves out is 0 (latencies, headers), InfiniBand, "
        "rail-optimised, 32 hosts a leaf, no oversubscription, Intel hosts");
  }
  ORRERY_RETURN_IF_ERROR(ApplyAll(source, node, section, &spec));
  const Node* tree = node.Find("pcie_tree");
  if (tree != nullptr && tree->kind == Node::Kind::kMap && !spec.pcie_tree.any()) {
    return InvalidInput("{}: pcie_tree names no tree; give name ('orrery list pcie-trees') or tree",
                        source.Where(*tree));
  }
  ORRERY_RETURN_IF_ERROR(ReadDevice(source, node.Find("device"), catalog, preset == nullptr,
                                    source.Where(node), &spec.device));
  if (Status status = Validate(spec); !status.ok()) {
    return std::move(status).In(source.Where(node) + ": cluster");
  }
  return spec;
}

// Another tool's topology file in place of a definition.
Result<Spec> ReadTopology(const Source& source, const std::string& name, const std::string& where,
                          const Catalog& catalog, std::vector<std::string>* assumed) {
  const std::string path = source.Path(name);
  Result<std::string> text = ReadFile(path, kTopologyBytes);
  if (!text.ok()) return std::move(text).TakeStatus().In(where);
  ORRERY_ASSIGN_OR_RETURN(const std::string preset, PresetOf(*text, path));
  ORRERY_ASSIGN_OR_RETURN(Spec spec, catalog.Find(preset));
  spec.name = Printable(name, 80);
  ORRERY_RETURN_IF_ERROR(ApplyTopology(*text, path, &spec));
  assumed->push_back(
      fmt::format("cluster: what {} does not say is {}'s; a definition with preset and "
                  "topology: {{file: …}} begins with another",
                  Printable(name, 80), preset));
  if (Status status = Validate(spec); !status.ok()) return std::move(status).In(where);
  return spec;
}

bool IsTopology(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // a pipe is read once
  std::string start(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return SniffTopology(start) != TopologyFile::kUnknown;
}

Result<Spec> ReadClusterFile(const Source& source, const std::string& name,
                             const std::string& where, const Catalog& catalog,
                             std::vector<std::string>* assumed) {
  const std::string path = source.Path(name);
  if (IsTopology(path)) return ReadTopology(source, name, where + ": cluster", catalog, assumed);
  Result<formats::Document> document = formats::ReadDocument(path);
  if (!document.ok()) return std::move(document).TakeStatus().In(where + ": cluster");
  const Source inner{&*document, source.folder};
  return ReadFields(inner, document->root, catalog, true, assumed);
}

}  // namespace

Result<DeviceSpec> ReadDeviceRow(const formats::DataTable& table, const formats::DataRow& row) {
  ORRERY_ASSIGN_OR_RETURN(const Section section,
                          Section::Read(table.document(), row.keys, DeviceOptions()));
  DeviceSpec device;
  device.name = row.name;
  device.source = row.sources.back();
  for (const std::string_view key : std::span(kDeviceNeeds).subspan(1)) {
    if (!section.Has(key)) {
      return InvalidInput("{}: the device '{}' lacks {}", table.document().Where(row.keys),
                          Printable(row.name, 60), key);
    }
  }
  ApplyDevice(section, &device);
  return device;
}

Result<Spec> ReadClusterRow(const formats::DataTable& table, const formats::DataRow& row,
                            const Catalog& catalog) {
  Node keys = row.keys;
  int nodes = 1;
  if (const Node* count = keys.Find("nodes")) {
    constexpr Option kNodes = {.name = "nodes", .type = OptionType::kInteger, .min = 1, .max = 1e6};
    Result<OptionValue> value = formats::ReadOption(kNodes, *count);
    if (!value.ok()) {
      return std::move(value).TakeStatus().In(table.document().Where(*count) + ": nodes");
    }
    nodes = static_cast<int>(std::get<std::int64_t>(*value));
    std::erase_if(keys.fields, [](const formats::Field& f) { return f.key == "nodes"; });
  }
  const Source source{&table.document(), ""};
  ORRERY_ASSIGN_OR_RETURN(const Section section, ReadKeys(table.document(), keys));
  const std::string where =
      fmt::format("{}: the cluster '{}'", source.Where(row.keys), Printable(row.name, 60));
  ORRERY_RETURN_IF_ERROR(CheckGiven(where, section, kClusterNeeds));
  Spec spec;
  spec.name = row.name;
  spec.nodes = nodes;
  BeginWithoutPreset(section, &spec);
  ORRERY_RETURN_IF_ERROR(
      ReadDevice(source, keys.Find("device"), catalog, true, where, &spec.device));
  spec.sources = {spec.device.source};
  for (const std::string& text : row.sources) {
    if (text != spec.device.source) spec.sources.push_back(text);
  }
  ORRERY_RETURN_IF_ERROR(ApplyAll(source, keys, section, &spec));
  if (Status status = Validate(spec); !status.ok()) return std::move(status).In(where);
  return spec;
}

Result<Spec> Read(const Source& source, const Node* node, const Catalog& catalog,
                  std::vector<std::string>* assumed) {
  if (node == nullptr || node->kind == Node::Kind::kNull) {
    return InvalidInput("{}: cluster is missing; name a preset ('orrery list clusters') or a file",
                        source.name());
  }
  if (node->kind != Node::Kind::kScalar) return ReadFields(source, *node, catalog, false, assumed);
  if (LooksLikeFile(node->text)) {
    return ReadClusterFile(source, node->text, source.Where(*node), catalog, assumed);
  }
  Result<Spec> spec = catalog.Find(Printable(node->text));
  if (!spec.ok()) return std::move(spec).TakeStatus().In(source.Where(*node) + ": cluster");
  return spec;
}

}  // namespace orrery::cluster
