// Which GPUs the jobs of one run have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"

namespace orrery::job {

// packed    the lowest GPUs that are free
// random    whole hosts, drawn by the run's seed; single GPUs where ranks do not fill hosts
// striped   a host of each rack (the leaf above its first NIC) in turn, racks by number
// explicit  the GPUs that are listed
enum class PlacementPolicy : std::uint8_t { kPacked, kRandom, kStriped, kExplicit };
std::string_view Name(PlacementPolicy policy);

struct PlacementRequest {
  PlacementPolicy policy = PlacementPolicy::kPacked;
  std::vector<DeviceId> devices;  // explicit: of each rank
  bool whole_nodes = false;       // a rank has a host, and runs on its first GPU
};

struct JobToPlace {
  std::string name;  // for errors
  std::size_t ranks = 0;
  const PlacementRequest* request = nullptr;
};

// Of each host, the rack it stands in: the leaf above its first NIC. One for all where hosts are
// joined directly.
std::vector<std::size_t> RacksOf(const cluster::Cluster& cluster);

// The device of every rank, job by job. Listed GPUs are taken first, then the jobs have their turns
// in the order given. Errors name the jobs.
Result<cluster::Placement> PlaceJobs(const cluster::Cluster& cluster,
                                     std::span<const JobToPlace> jobs, std::uint64_t seed);

}  // namespace orrery::job
