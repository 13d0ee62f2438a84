// htsim's .topo: fat trees.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/cluster/readers/readers.h"
#include "orrery/formats/network_text.h"

namespace orrery::cluster {
namespace {

using formats::HtsimTopology;
using Settings = std::vector<HtsimTopology::Setting>;

constexpr std::array<std::string_view, 3> kTop = {"nodes", "tiers", "podsize"};
constexpr std::array<std::string_view, 9> kTier = {
    "downlink_speed_gbps", "radix_down", "radix_up", "downlink_latency_ns", "switch_latency_ns",
    "oversubscribed",      "bundle",     "queue_up", "queue_down"};

struct Tier {
  std::int64_t speed_Bps = 0, down = 0, up = 0, ratio = 1, bundle = 1;
  SimTime latency = 0, switch_latency = 0;
  int line = 0;
};

class HtsimReader {
 public:
  explicit HtsimReader(const std::string& name) : name_(name) {}

  Status Check(const Settings& settings, std::span<const std::string_view> known) const {
    for (const auto& s : settings) {
      if (std::find(known.begin(), known.end(), s.key) == known.end()) {
        return InvalidInput("{}:{}: {}", name_, s.line,
                            UnknownName("key", Printable(s.key, 40), known));
      }
    }
    return {};
  }

  Result<std::int64_t> Integer(const Settings& settings, std::string_view key, int line,
                               std::optional<std::int64_t> fallback) const {
    for (const auto& s : settings) {
      if (s.key != key) continue;
      const Result<std::int64_t> value = ParseInteger(s.value);
      if (value.ok() && *value >= (fallback ? *fallback : 1) && *value <= (1 << 22)) return *value;
      return InvalidInput("{}:{}: {} = '{}': must be a whole number, {} to {}", name_, s.line, key,
                          Printable(s.value, 40), fallback ? *fallback : 1, 1 << 22);
    }
    if (fallback) return *fallback;
    return InvalidInput("{}:{}: {} is missing; give it", name_, line, key);
  }

  Result<Tier> ReadTier(const HtsimTopology::Tier& tier) const {
    ORRERY_RETURN_IF_ERROR(Check(tier.settings, kTier));
    Tier t;
    t.line = tier.line;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t gigabits,
                            Integer(tier.settings, "downlink_speed_gbps", tier.line, {}));
    t.speed_Bps = gigabits * 125'000'000;
    ORRERY_ASSIGN_OR_RETURN(t.down, Integer(tier.settings, "radix_down", tier.line, {}));
    ORRERY_ASSIGN_OR_RETURN(t.up, Integer(tier.settings, "radix_up", tier.line, 0));
    ORRERY_ASSIGN_OR_RETURN(t.ratio, Integer(tier.settings, "oversubscribed", tier.line, 1));
    ORRERY_ASSIGN_OR_RETURN(t.bundle, Integer(tier.settings, "bundle", tier.line, 1));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t latency,
                            Integer(tier.settings, "downlink_latency_ns", tier.line, 0));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t inside,
                            Integer(tier.settings, "switch_latency_ns", tier.line, 0));
    t.latency = latency * kNanosecond;
    t.switch_latency = inside * kNanosecond;
    if (t.up == 0) t.up = std::max<std::int64_t>(1, t.down / t.ratio);
    return t;
  }

 private:
  const std::string& name_;
};

}  // namespace

Status ApplyHtsim(std::string_view text, const std::string& name, Spec* spec) {
  ORRERY_ASSIGN_OR_RETURN(const HtsimTopology file, formats::ParseHtsimTopology(text, name));
  const HtsimReader reader(name);
  ORRERY_RETURN_IF_ERROR(reader.Check(file.settings, kTop));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t nodes, reader.Integer(file.settings, "nodes", 1, {}));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t tiers, reader.Integer(file.settings, "tiers", 1, {}));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t pod, reader.Integer(file.settings, "podsize", 1, 0));
  if (tiers < 2 || tiers > 3 || file.tiers.size() != static_cast<std::size_t>(tiers)) {
    return InvalidInput("{}:1: tiers = {}: must be 2 or 3, each with its section; there are {}",
                        name, tiers, file.tiers.size());
  }
  if (nodes > (1 << 20)) {
    return InvalidInput("{}:1: nodes = {}: must be 1 to {}", name, nodes, 1 << 20);
  }
  std::vector<Tier> t;
  for (const HtsimTopology::Tier& tier : file.tiers) {
    ORRERY_ASSIGN_OR_RETURN(const Tier one, reader.ReadTier(tier));
    t.push_back(one);
  }
  for (std::size_t i = 0; i + 1 < t.size(); ++i) {
    const Tier& above = t[i + 1];
    if (t[i].up % above.bundle != 0) {
      return InvalidInput("{}:{}: bundle = {}: must divide the {} uplinks below", name, above.line,
                          above.bundle, t[i].up);
    }
    if (above.speed_Bps > std::numeric_limits<std::int64_t>::max() / above.bundle) {
      return InvalidInput("{}:{}: bundle = {}: so many links of one rate are too much for one",
                          name, above.line, above.bundle);
    }
  }
  spec->nodes = static_cast<int>(nodes);
  spec->gpus_per_node = spec->nics_per_node = spec->gpus_per_nvlink_domain = 1;
  spec->rail_optimised = false;
  spec->nic_Bps = spec->pcie_Bps = t[0].speed_Bps;
  spec->nic_latency = t[0].latency + t[0].switch_latency / 2;
  spec->pcie_latency = 0;
  spec->nodes_per_leaf = static_cast<int>(t[0].down);
  spec->oversubscription = 1;  // the radices say it
  TopologySpec& out = spec->topology;
  out.name = tiers == 2 ? "fat-tree-2" : "fat-tree-3";
  out.spines = static_cast<int>(t[0].up / t[1].bundle);
  out.uplink_Bps = t[1].speed_Bps * t[1].bundle;
  out.spine_latency = t[1].latency + (t[0].switch_latency + t[1].switch_latency) / 2;
  if (tiers == 3) {
    if (pod == 0 || pod % t[0].down != 0) {
      return InvalidInput("{}:1: podsize = {}: must be a multiple of tier 0's radix_down = {}",
                          name, pod, t[0].down);
    }
    out.nodes_per_pod = static_cast<int>(pod);
    out.cores = static_cast<int>(t[1].up / t[2].bundle);
    out.core_Bps = t[2].speed_Bps * t[2].bundle;
    out.core_latency = t[2].latency + (t[1].switch_latency + t[2].switch_latency) / 2;
  }
  return {};
}

}  // namespace orrery::cluster
