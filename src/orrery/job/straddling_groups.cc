#include "orrery/job/straddling_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
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
  const std::int64_t share = FilledByGroups(domain.gpus, domain.host, span);
  if (domain.rack && share > 0) {
    return fmt::format(
        "--set cluster.gpus_per_nvlink_domain={} takes {} hosts of each rack, so that they stay "
        "whole; or a {} whose groups divide {}",
        share, share / domain.host, kind.key, domain.gpus);
  }
  return fmt::format("use a {} whose groups divide {}, or nodes and gpus_per_node that they fill",
                     kind.key, domain.gpus);
}

}  // namespace

std::int64_t FilledByGroups(std::int64_t rack, std::int64_t host, std::int64_t group) {
  const std::int64_t filled = rack / group * group;
  return filled % host == 0 ? filled : 0;
}

std::vector<std::string> StraddlingGroups(const graph::Graph& graph,
                                          const cluster::Cluster& cluster,
                                          const cluster::Placement& placement) {
  std::vector<std::string> warnings;
  if (cluster.direct()) return warnings;
  const ScaleUpDomain domain = DomainOf(cluster.spec());
  if (domain.gpus < 2) return warnings;
  for (std::size_t job = 0; job < graph.jobs.size(); ++job) {
    for (const GroupKind& kind : kKinds) {
      std::int64_t groups = 0, size = 0, span = 0, straddling = 0;
      for (std::size_t rank = 0; rank < graph.bindings.size(); ++rank) {
        const graph::Binding& binding = graph.bindings[rank];
        const GroupId id = graph.group(binding, kind.slot);
        if (binding.job.index() != job || !id.valid()) continue;
        const std::span<const RankId> members = graph.groups.members(id);
        if (members.front().index() != rank) continue;  // a group is looked at once
        ++groups;
        std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = -1;
        bool apart = false;
        for (const RankId member : members) {
          const auto at = static_cast<std::int64_t>(placement.device[member.index()].index());
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
          who, straddling, groups, kind.name, size, kind.key, straddling == 1 ? "lies" : "lie",
          domain.rack ? "NVLink domains" : "hosts", domain.gpus,
          WholeGroups(domain, kind, size, span)));
    }
  }
  return warnings;
}

}  // namespace orrery::job
