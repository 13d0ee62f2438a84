// ASTRA-sim's analytical network YAML.
#include <array>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/tree.h"

namespace orrery::cluster {
namespace {

using formats::Document;
using formats::Node;

Result<const Node*> List(const Document& document, const char* key) {
  const Node* list = document.root.Find(key);
  if (list == nullptr) {
    return InvalidInput("{}: {} is missing; give one value a dimension", document.sources.front(),
                        key);
  }
  if (list->kind != Node::Kind::kList || list->items.empty() ||
      list->items.size() > Lattice::kMostDimensions) {
    return InvalidInput("{}: {}: must be a list of 1 to {} values, one a dimension",
                        document.Where(*list), key, Lattice::kMostDimensions);
  }
  return list;
}

// A number in `unit`, in the base unit.
Result<std::int64_t> Quantity(const Document& document, const Node& node, const char* key,
                              orrery::Dimension dimension, const char* unit) {
  Result<std::int64_t> value = ParseWhole(node.text, dimension, unit);
  if (!value.ok()) {
    return std::move(value).TakeStatus().In(document.Where(node) + ": " + key);
  }
  return *value;
}

Result<DimensionKind> KindOf(const Document& document, const Node& node) {
  constexpr std::array<std::string_view, 3> kNames = {"Ring", "FullyConnected", "Switch"};
  constexpr std::array kKinds = {DimensionKind::kRing, DimensionKind::kFullyConnected,
                                 DimensionKind::kSwitch};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (node.text == kNames[i]) return kKinds[i];
  }
  return InvalidInput("{}: topology: {}", document.Where(node),
                      UnknownName("dimension", Printable(node.text, 40), kNames));
}

}  // namespace

Status ApplyAstraSim(std::string_view text, const std::string& name, Spec* spec) {
  ORRERY_ASSIGN_OR_RETURN(const Document document, formats::ParseYaml(text, name));
  ORRERY_ASSIGN_OR_RETURN(const Node* const kinds, List(document, "topology"));
  ORRERY_ASSIGN_OR_RETURN(const Node* const counts, List(document, "npus_count"));
  ORRERY_ASSIGN_OR_RETURN(const Node* const rates, List(document, "bandwidth"));
  ORRERY_ASSIGN_OR_RETURN(const Node* const latencies, List(document, "latency"));
  const std::size_t n = kinds->items.size();
  for (const auto& [list, key] :
       {std::pair{counts, "npus_count"}, {rates, "bandwidth"}, {latencies, "latency"}}) {
    if (list->items.size() != n) {
      return InvalidInput("{}: {}: {} values, but topology has {}; the lists are equally long",
                          document.Where(*list), key, list->items.size(), n);
    }
  }
  std::vector<Dimension> dimensions(n);
  std::int64_t gpus = 1;
  for (std::size_t i = 0; i < n; ++i) {
    Dimension& d = dimensions[i];
    ORRERY_ASSIGN_OR_RETURN(d.kind, KindOf(document, kinds->items[i]));
    const Node& count = counts->items[i];
    const Result<std::int64_t> size = ParseInteger(count.text);
    if (!size.ok() || *size < 1 || *size > (1 << 20) || (gpus *= *size) > (1 << 20)) {
      return InvalidInput("{}: npus_count = '{}': must be 1 or more, their product at most {}",
                          document.Where(count), Printable(count.text, 40), 1 << 20);
    }
    d.size = static_cast<int>(*size);
    const Node& rate = rates->items[i];
    // Its GB is 2^30 bytes: read as GiB.
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t bytes, Quantity(document, rate, "bandwidth",
                                                               orrery::Dimension::kBytes, "GiB"));
    if (bytes == 0) {
      return InvalidInput("{}: bandwidth = 0: must be above 0", document.Where(rate));
    }
    d.bandwidth_Bps = bytes;
    ORRERY_ASSIGN_OR_RETURN(d.latency, Quantity(document, latencies->items[i], "latency",
                                                orrery::Dimension::kTime, "ns"));
  }
  spec->nodes = static_cast<int>(gpus);
  spec->gpus_per_node = spec->nics_per_node = spec->gpus_per_nvlink_domain = 1;
  spec->nic_Bps = spec->pcie_Bps = dimensions[0].bandwidth_Bps;
  spec->nic_latency = dimensions[0].latency;
  spec->pcie_latency = 0;
  spec->nic_header_bytes = 0;
  spec->topology.name = "astra-sim";
  spec->topology.dimensions = std::move(dimensions);
  return {};
}

}  // namespace orrery::cluster
