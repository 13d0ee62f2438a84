#include "orrery/job/straddling_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>

namespace orrery::job {
namespace {

using graph::GroupSlot;

struct GroupKind {
  GroupSlot slot;
  std::string_view name, key;
  bool only_fitting;  // groups larger than a domain are not spoken of
};
constexpr GroupKind kKinds[] = {
    {GroupSlot::kTp, "tensor-parallel", "parallel.tp", false},
    {GroupSlot::kEp, "expert-parallel", "parallel.ep", true},
};

// GPUs of a domain, and what it is called.
struct ScaleUpDomain {
  std::int64_t gpus = 0, host = 0;
  bool rack = false;  // of several hosts
};

ScaleUpDomain DomainOf(const cluster::Spec& spec) {
  const std::int64_t nvlink = spec.gpus_per_nvlink_domain, host = spec.gpus_per_node;
  return {.gpus = std::max(nvlink, host), .host = host, .rack = nvlink > host};
}

// What keeps groups of `group` ranks, `stride` apart, in one domain.
std::string WholeGroups(const ScaleUpDomain& domain, const GroupKind& kind, std::int64_t group,
                        std::int64_t span) {
  if (group > domain.gpus) {
    return fmt::format("{} of at most {} stays inside", kind.key, domain.gpus);
  }
  const std::int64_t share = span <= domain.gpus ? domain.gpus / span * span : 0;
  if (domain.rack && share > 0 && share % domain.host == 0) {
    return fmt::format(
        "--set cluster.gpus_per_nvlink_domain={} takes {} hosts of each rack, so that they stay "
        "whole; or a {} whose groups divide {}",
        share, share / domain.host, kind.key, domain.gpus);
  }
  return fmt::format("use a {} whose groups divide {}, or nodes and gpus_per_node that they fill",
                     kind.key, domain.gpus);
}

}  // namespace

std::vector<std::string> StraddlingGroups(const graph::Graph& graph,
                                          const cluster::Cluster& cluster,
                                          const cluster::Placement& placement) {
  std::vector<std::string> warnings;
  if (cluster.direct()) return warnings;
  const ScaleUpDomain domain = DomainOf(cluster.spec());
  if (domain.gpus < 2) return warnings;
  for (std::size_t job = 0; job < graph.jobs.size(); ++job) {
    for (const GroupKind& kind : kKinds) {
      std::map<std::size_t, GroupId> groups;
      for (const graph::Binding& binding : graph.bindings) {
        const GroupId id = graph.group(binding, kind.slot);
        if (binding.job.index() == job && id.valid()) groups.emplace(id.index(), id);
      }
      std::int64_t size = 0, span = 0, straddling = 0;
      for (const auto& [index, id] : groups) {
        const std::span<const RankId> members = graph.groups.members(id);
        std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = -1;
        bool apart = false;
        for (const RankId rank : members) {
          const auto at = static_cast<std::int64_t>(placement.device[rank.index()].index());
          low = std::min(low, at);
          high = std::max(high, at);
          apart = apart || at / domain.gpus != low / domain.gpus ||
                  at / domain.gpus != high / domain.gpus;
        }
        size = std::max<std::int64_t>(size, std::ssize(members));
        span = std::max(span, high - low + 1);
        straddling += apart ? 1 : 0;
      }
      if (straddling == 0 || (kind.only_fitting && size > domain.gpus)) continue;
      const std::string who =
          graph.jobs.size() > 1 ? fmt::format("job '{}': ", graph.jobs[job].name) : "";
      warnings.push_back(fmt::format(
          "{}{} of {} {} groups of {} ranks ({}) {} in several {} of {} GPUs, exchanging over "
          "NICs: {}",
          who, straddling, groups.size(), kind.name, size, kind.key,
          straddling == 1 ? "lies" : "lie", domain.rack ? "NVLink domains" : "hosts", domain.gpus,
          WholeGroups(domain, kind, size, span)));
    }
  }
  return warnings;
}

}  // namespace orrery::job
