#include "orrery/search/validate/machines.h"

#include <algorithm>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/cluster/fabrics.h"
#include "orrery/cluster/gpu_name.h"

namespace orrery::search {
namespace {

using cluster::Spec;

constexpr std::int64_t kGigabit = 1'000'000'000 / 8;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string KnownGpus(const cluster::Catalog& catalog) {
  std::vector<std::string_view> names;
  for (const cluster::DeviceSpec& device : catalog.device_specs()) names.push_back(device.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The first cluster of the tables with this GPU.
Result<Spec> PresetOf(const Configuration& row, const cluster::Catalog& catalog,
                      std::vector<std::string>* assumed) {
  const std::string_view name = row.text("gpu");
  if (name.empty()) return InvalidInput("gpu is blank: name it");
  const bool training = row.kind() == TableKind::kTraining;
  const auto gigabytes = training ? row.Number("gpu_mem_gb") : std::nullopt;
  const cluster::DeviceSpec* device = cluster::FindGpu(name, gigabytes, catalog);
  if (device == nullptr) {
    return InvalidInput("gpu={}: no device of this name; there are {}", Printable(name, 40),
                        KnownGpus(catalog));
  }
  if (!gigabytes && training) {
    assumed->push_back(fmt::format("gpu_mem_gb blank: {}", device->name));
  }
  if (Contains(name, "power")) assumed->push_back("gpu: its power limit is not modelled");
  for (const cluster::Preset& preset : catalog.clusters()) {
    ORRERY_ASSIGN_OR_RETURN(Spec spec, catalog.Find(preset.name));
    if (spec.device.name == device->name) return spec;
  }
  return InvalidInput("gpu={}: no cluster has the device {}", Printable(name, 40), device->name);
}

// As data/fabrics.yaml has what the text names.
Status SetFabric(std::string_view text, const RowTables& tables, std::vector<std::string>* assumed,
                 Spec* spec) {
  const cluster::FabricName* const name = tables.fabrics.Find(text);
  if (name == nullptr) {
    assumed->push_back("fabric=ib (not stated)");
    return {};
  }
  if (!name->refused.empty()) {
    return InvalidInput("network={}: {}", Printable(text, 60), name->refused);
  }
  if (!name->cluster.empty()) {
    ORRERY_ASSIGN_OR_RETURN(const Spec other, tables.data->clusters.Find(name->cluster));
    spec->nic_latency = other.nic_latency;
    spec->nic_mtu_bytes = other.nic_mtu_bytes;
    spec->nic_header_bytes = other.nic_header_bytes;
  }
  spec->fabric = name->fabric.value_or(spec->fabric);
  if (!name->note.empty()) assumed->push_back(name->note);
  return {};
}

// `nics` of a node must divide its GPUs: several NICs beside one GPU count as one.
void SetNics(int nics, std::int64_t node_Bps, Spec* spec) {
  nics = std::clamp(nics, 1, spec->gpus_per_node);
  while (spec->gpus_per_node % nics != 0) --nics;
  spec->nics_per_node = nics;
  spec->nic_Bps = node_Bps / nics;
}

// A torus has a router a chip; its rings are as equal as the number of chips allows.
void SetTorus(std::int64_t chips, Spec* spec) {
  spec->gpus_per_node = spec->nics_per_node = spec->gpus_per_nvlink_domain = 1;
  spec->nodes = static_cast<int>(chips);
  std::vector<cluster::Dimension>& rings = spec->topology.dimensions;
  int rest = spec->nodes;
  for (std::size_t i = 0; i < rings.size(); ++i) {
    const auto fits = [&](int size) {
      std::int64_t routers = 1;
      for (std::size_t left = i; left < rings.size(); ++left) routers *= size;
      return routers <= rest;
    };
    int size = 1;
    while (fits(size + 1)) ++size;
    while (rest % size != 0) --size;
    rings[i].size = size;
    rest /= size;
  }
}

// NVL72 jobs that need several racks take an equal number of hosts of each.
void SetDomains(Spec* spec, std::vector<std::string>* assumed) {
  if (spec->gpus_per_nvlink_domain <= spec->gpus_per_node) {
    spec->gpus_per_nvlink_domain = spec->gpus_per_node;
    return;
  }
  const int hosts_per_rack = spec->gpus_per_nvlink_domain / spec->gpus_per_node;
  const int racks = (spec->nodes + hosts_per_rack - 1) / hosts_per_rack;
  const int hosts = (spec->nodes + racks - 1) / racks;
  spec->gpus_per_nvlink_domain = hosts * spec->gpus_per_node;
  if (racks > 1 && hosts != hosts_per_rack) {
    assumed->push_back(fmt::format("{} hosts on each of {} racks", hosts, racks));
  }
}

void SetHostShape(std::int64_t gpus_per_node, Spec* spec) {
  const bool domain_is_node = spec->gpus_per_nvlink_domain == spec->gpus_per_node;
  spec->gpus_per_node = static_cast<int>(gpus_per_node);
  if (domain_is_node) spec->gpus_per_nvlink_domain = spec->gpus_per_node;
  const std::int64_t node_Bps = spec->nic_Bps * gpus_per_node;
  SetNics(spec->gpus_per_node, node_Bps, spec);
}

void NoteMemory(std::optional<double> gigabytes, const Spec& spec,
                std::vector<std::string>* assumed) {
  if (!gigabytes || HasMemory(spec.device, *gigabytes)) return;
  assumed->push_back(fmt::format("device memory {:.0f} GiB of {}, not gpu_mem_gb={:g}",
                                 static_cast<double>(spec.device.memory_bytes) / (1 << 30),
                                 spec.device.name, *gigabytes));
}

}  // namespace

Result<Spec> MapTrainingMachine(const Configuration& row, const RowTables& tables,
                                std::vector<std::string>* assumed) {
  ORRERY_ASSIGN_OR_RETURN(Spec spec, PresetOf(row, tables.data->clusters, assumed));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t gpus, row.Needed("gpus"));
  const auto per_node = row.Whole("gpus_per_node");
  const auto nic = row.Number("nic_gbps_per_gpu");
  const auto thinning = row.Number("oversubscription");
  const auto memory = row.Number("gpu_mem_gb");
  const auto power = row.Number("gpu_power_w");
  if (!per_node) {
    assumed->push_back(fmt::format("gpus_per_node={} (blank: {})", spec.gpus_per_node, spec.name));
  }
  if (power) spec.device.power_w = *power;
  NoteMemory(memory, spec, assumed);
  if (spec.topology.name == "torus") {
    SetTorus(gpus, &spec);
    return spec;
  }
  SetHostShape(per_node.value_or(spec.gpus_per_node), &spec);
  spec.nodes = static_cast<int>((gpus + spec.gpus_per_node - 1) / spec.gpus_per_node);
  SetDomains(&spec, assumed);
  spec.oversubscription = thinning.value_or(1);
  if (static_cast<std::int64_t>(spec.gpus_per_nvlink_domain) >= gpus)
    return spec;  // no NIC matters

  const bool stated = row.has("fabric");
  ORRERY_RETURN_IF_ERROR(
      SetFabric(stated ? row.text("fabric") : row.text("network"), tables, assumed, &spec));
  if (!thinning) assumed->push_back("oversubscription=1 (blank)");
  if (!nic) {
    assumed->push_back(
        fmt::format("nic_gbps_per_gpu={} (blank: {})", spec.nic_Bps / kGigabit, spec.name));
    return spec;
  }
  const double node_gigabits = *nic * spec.gpus_per_node;
  const cluster::NicText text = cluster::ReadNics(row.text("network"), spec.gpus_per_node);
  const bool agree = text.nics > 0 &&
                     std::abs(static_cast<double>(text.nics * text.gigabits) - node_gigabits) < 0.5;
  // 800 Gb/s beside 8 A100 are 4 NICs of 200, not 8 of 100.
  const double fit = node_gigabits / static_cast<double>(spec.nic_Bps / kGigabit);
  const int as_preset = static_cast<int>(std::clamp(fit, 1.0, 64.0));
  SetNics(agree ? text.nics : as_preset,
          static_cast<std::int64_t>(node_gigabits * static_cast<double>(kGigabit)), &spec);
  if (!agree) {
    assumed->push_back(fmt::format("{} NICs a host (network states no count: {}'s rate)",
                                   spec.nics_per_node, spec.name));
  }
  return spec;
}

Result<Spec> MapCollectiveMachine(const Configuration& row, const RowTables& tables,
                                  std::vector<std::string>* assumed) {
  ORRERY_ASSIGN_OR_RETURN(Spec spec, PresetOf(row, tables.data->clusters, assumed));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t nodes, row.Needed("nodes"));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t per_node, row.Needed("gpus_per_node"));
  SetHostShape(per_node, &spec);
  for (const Host* host : tables.hosts.Named(row)) {
    spec.cpu_is_amd = host->cpu_is_amd.value_or(spec.cpu_is_amd);
  }
  spec.nodes = static_cast<int>(nodes);
  SetDomains(&spec, assumed);
  if (spec.gpus_per_nvlink_domain >= spec.nodes * spec.gpus_per_node) return spec;
  ORRERY_RETURN_IF_ERROR(SetFabric(row.text("network"), tables, assumed, &spec));
  const cluster::NicText text = cluster::ReadNics(row.text("network"), spec.gpus_per_node);
  if (text.gigabits == 0) {
    assumed->push_back(fmt::format("{} NICs of {} Gb/s a node (not stated: {})", spec.nics_per_node,
                                   spec.nic_Bps / kGigabit, spec.name));
    return spec;
  }
  const int nics = text.nics > 0 ? text.nics : 1;
  SetNics(text.nics > 0 ? text.nics : spec.gpus_per_node, nics * text.gigabits * kGigabit, &spec);
  return spec;
}

}  // namespace orrery::search
