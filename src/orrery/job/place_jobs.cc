#include "orrery/job/place_jobs.h"

#include <algorithm>
#include <map>

#include "orrery/base/rng.h"
#include "orrery/base/text.h"

namespace orrery::job {
namespace {

constexpr std::size_t kFree = ~std::size_t{0};

class Placer {
 public:
  Placer(const cluster::Cluster& cluster, std::span<const JobToPlace> jobs, std::uint64_t seed)
      : cluster_(cluster),
        jobs_(jobs),
        seed_(seed),
        per_node_(static_cast<std::size_t>(cluster.spec().gpus_per_node)),
        owner_(cluster.devices(), kFree),
        devices_(jobs.size()) {}

  Result<cluster::Placement> Run() {
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (jobs_[j].request->policy != PlacementPolicy::kExplicit) continue;
      ORRERY_RETURN_IF_ERROR(TakeListed(j).In(Where(j)));
    }
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (jobs_[j].request->policy == PlacementPolicy::kExplicit) continue;
      ORRERY_RETURN_IF_ERROR(TakeFree(j).In(Where(j)));
    }
    cluster::Placement placement;
    for (const std::vector<DeviceId>& of : devices_) {
      placement.device.insert(placement.device.end(), of.begin(), of.end());
    }
    return placement;
  }

 private:
  std::string Where(std::size_t j) const {
    return fmt::format("placement of {}", Printable(jobs_[j].name));
  }

  Status TakeListed(std::size_t j) {
    const JobToPlace& job = jobs_[j];
    if (job.request->devices.size() != job.ranks) {
      return InvalidInput("{} GPUs are listed for {} ranks; list one a rank",
                          job.request->devices.size(), job.ranks);
    }
    const std::size_t each = job.request->whole_nodes ? per_node_ : 1;
    for (const DeviceId d : job.request->devices) {
      if (d.index() >= owner_.size()) {
        return InvalidInput("GPU {} does not exist; the cluster has 0 to {}", d.index(),
                            owner_.size() - 1);
      }
      const std::size_t first = d.index() / each * each;
      for (std::size_t g = first; g < first + each; ++g) {
        const std::size_t other = owner_[g];
        if (other == j) return InvalidInput("GPU {} is listed for two ranks", g);
        if (other != kFree) {
          return InvalidInput("GPU {} is listed for job '{}' too; give each job its own", g,
                              Printable(jobs_[other].name));
        }
        owner_[g] = j;
      }
      devices_[j].push_back(d);
    }
    return {};
  }

  // Hosts on which nothing runs, of the racks in turn.
  Result<std::vector<std::size_t>> StripedHosts() const {
    if (cluster_.direct()) {
      return InvalidInput(
          "striped: the topology '{}' has no racks; take packed, random or explicit",
          cluster_.spec().topology.name);
    }
    std::map<std::size_t, std::vector<std::size_t>> racks;
    const std::vector<std::size_t> rack = RacksOf(cluster_);
    for (std::size_t n = 0; n < rack.size(); ++n) racks[rack[n]].push_back(n);
    std::vector<std::size_t> hosts;
    for (std::size_t turn = 0, left = racks.size(); left > 0; ++turn) {
      left = 0;
      for (const auto& [rack, members] : racks) {
        if (turn < members.size()) hosts.push_back(members[turn]);
        left += turn + 1 < members.size() ? 1 : 0;
      }
    }
    return hosts;
  }

  Status TakeFree(std::size_t j) {
    const JobToPlace& job = jobs_[j];
    const std::size_t each = job.request->whole_nodes ? per_node_ : 1;
    const auto free = static_cast<std::size_t>(std::ranges::count(owner_, kFree));
    if (job.ranks * each > free) {
      return InvalidInput("{} {} need {} GPUs, but {} of the cluster's {} are free; raise nodes",
                          job.ranks, each > 1 ? "hosts" : "ranks", job.ranks * each, free,
                          owner_.size());
    }
    if (job.request->whole_nodes || job.request->policy == PlacementPolicy::kStriped) {
      return TakeHosts(j, job.request->whole_nodes);
    }
    cluster::Placement taken;
    for (std::size_t d = 0; d < owner_.size(); ++d) {
      if (owner_[d] != kFree) taken.device.emplace_back(d);
    }
    const std::size_t before = taken.device.size();
    const auto kind = job.request->policy == PlacementPolicy::kRandom
                          ? cluster::PlacementKind::kRandom
                          : cluster::PlacementKind::kPacked;
    ORRERY_RETURN_IF_ERROR(cluster::Place(cluster_, kind, job.ranks, seed_, {}, &taken));
    for (std::size_t i = before; i < taken.device.size(); ++i) Take(j, taken.device[i]);
    return {};
  }

  // Host after host in the policy's order: all of its GPUs that are free, or the whole host for one
  // rank.
  Status TakeHosts(std::size_t j, bool whole) {
    std::vector<std::size_t> hosts;
    if (jobs_[j].request->policy == PlacementPolicy::kStriped) {
      ORRERY_ASSIGN_OR_RETURN(hosts, StripedHosts());
    } else {
      for (std::size_t n = 0; n * per_node_ < owner_.size(); ++n) hosts.push_back(n);
    }
    if (whole) std::erase_if(hosts, [this](std::size_t host) { return !IsFree(host); });
    if (jobs_[j].request->policy == PlacementPolicy::kRandom) CounterRng(seed_).Shuffle(&hosts);
    for (const std::size_t host : hosts) {
      for (std::size_t i = 0; i < per_node_; ++i) {
        const DeviceId d(host * per_node_ + i);
        if (devices_[j].size() == jobs_[j].ranks && !(whole && i > 0)) return {};
        if (owner_[d.index()] != kFree) continue;
        owner_[d.index()] = j;
        if (!whole || i == 0) devices_[j].push_back(d);
      }
    }
    if (devices_[j].size() == jobs_[j].ranks) return {};
    return InvalidInput("{} whole hosts are needed and {} are free; raise nodes", jobs_[j].ranks,
                        hosts.size());
  }
  bool IsFree(std::size_t host) const {
    const auto first = owner_.begin() + static_cast<std::ptrdiff_t>(host * per_node_);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(per_node_),
                       [](std::size_t o) { return o == kFree; });
  }
  void Take(std::size_t j, DeviceId device) {
    owner_[device.index()] = j;
    devices_[j].push_back(device);
  }

  const cluster::Cluster& cluster_;
  const std::span<const JobToPlace> jobs_;
  const std::uint64_t seed_;
  const std::size_t per_node_;
  std::vector<std::size_t> owner_;  // of each GPU: a job's number
  std::vector<std::vector<DeviceId>> devices_;
};

}  // namespace

std::string_view Name(PlacementPolicy policy) {
  switch (policy) {
    case PlacementPolicy::kPacked:
      return "packed";
    case PlacementPolicy::kRandom:
      return "random";
    case PlacementPolicy::kStriped:
      return "striped";
    case PlacementPolicy::kExplicit:
      return "explicit";
  }
  return "?";
}

std::vector<std::size_t> RacksOf(const cluster::Cluster& cluster) {
  const auto per_node = static_cast<std::size_t>(cluster.spec().gpus_per_node);
  std::vector<std::size_t> racks;
  for (std::size_t first = 0; first < cluster.devices(); first += per_node) {
    racks.push_back(cluster.direct() ? 0 : cluster.leaf(cluster.nic(DeviceId(first))));
  }
  return racks;
}

Result<cluster::Placement> PlaceJobs(const cluster::Cluster& cluster,
                                     std::span<const JobToPlace> jobs, std::uint64_t seed) {
  return Placer(cluster, jobs, seed).Run();
}

}  // namespace orrery::job
