// Where the jobs of one run are placed: eight hosts of eight GPUs, two under each leaf.
#include "orrery/job/place_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "orrery/job/network_setup.h"

namespace orrery::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

cluster::Cluster EightHosts(std::string_view topology = "fat-tree-2") {
  Result<NetworkSetup> setup = ReadNetworkSetup(
      "h100-ib-400g", 8, "flow",
      {"cluster.topology.name=" + std::string(topology), "cluster.nodes_per_leaf=2"}, nullptr);
  EXPECT_TRUE(setup.ok()) << setup.status().message();
  return std::move(setup->cluster);
}

// The host of each rank, where ranks are whole hosts.
std::vector<std::size_t> Hosts(const cluster::Placement& placement) {
  std::vector<std::size_t> hosts;
  for (const DeviceId d : placement.device) {
    EXPECT_EQ(d.index() % 8, 0U);
    hosts.push_back(d.index() / 8);
  }
  return hosts;
}

cluster::Placement Placed(const std::vector<JobToPlace>& jobs, std::uint64_t seed = 1) {
  Result<cluster::Placement> placement = PlaceJobs(EightHosts(), jobs, seed);
  EXPECT_TRUE(placement.ok()) << placement.status().message();
  return placement.ok() ? *std::move(placement) : cluster::Placement{};
}
std::string PlacingError(const std::vector<JobToPlace>& jobs) {
  return PlaceJobs(EightHosts(), jobs, 1).status().message();
}

TEST(PlaceJobs, PackedTakesTheLowestFreeAndListedGpusGoFirst) {
  const PlacementRequest packed{.whole_nodes = true};
  const PlacementRequest listed{.policy = PlacementPolicy::kExplicit,
                                .devices = {DeviceId(8), DeviceId(0)}};
  EXPECT_THAT(Hosts(Placed({{"a", 3, &packed}, {"b", 2, &listed}})), ElementsAre(2, 3, 4, 1, 0));
}

TEST(PlaceJobs, StripedTakesAHostOfEachRackInTurn) {
  const PlacementRequest striped{.policy = PlacementPolicy::kStriped, .whole_nodes = true};
  // Racks are {0, 1}, {2, 3}, {4, 5}, {6, 7}. The second job finds the first hosts taken.
  EXPECT_THAT(Hosts(Placed({{"a", 5, &striped}, {"b", 3, &striped}})),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

TEST(PlaceJobs, StripedRanksFillTheirHosts) {
  const PlacementRequest striped{.policy = PlacementPolicy::kStriped};
  const cluster::Placement placement = Placed({{"a", 16, &striped}});
  for (std::size_t r = 0; r < 16; ++r) {
    EXPECT_EQ(placement.device[r].index(), r < 8 ? r : 8 + r) << r;  // hosts 0 and 2
  }
}

TEST(PlaceJobs, RandomIsDrawnByTheSeedAndTakesNobodysHost) {
  const PlacementRequest random{.policy = PlacementPolicy::kRandom, .whole_nodes = true};
  const std::vector<JobToPlace> jobs = {{"a", 4, &random}, {"b", 4, &random}};
  std::set<std::vector<std::size_t>> seen;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<std::size_t> hosts = Hosts(Placed(jobs, seed));
    EXPECT_EQ(hosts, Hosts(Placed(jobs, seed)));
    EXPECT_EQ(std::set<std::size_t>(hosts.begin(), hosts.end()).size(), 8U);
    seen.insert(hosts);
  }
  EXPECT_GT(seen.size(), 15U);
}

TEST(PlaceJobs, SaysWhatDoesNotFit) {
  const PlacementRequest packed{.whole_nodes = true};
  EXPECT_THAT(
      PlacingError({{"a", 5, &packed}, {"b", 4, &packed}}),
      HasSubstr("placement of b: 4 hosts need 32 GPUs, but 24 of the cluster's 64 are free"));
  const PlacementRequest twice{.policy = PlacementPolicy::kExplicit, .devices = {DeviceId(3)}};
  EXPECT_THAT(PlacingError({{"a", 1, &twice}, {"b", 1, &twice}}),
              HasSubstr("placement of b: GPU 3 is listed for job 'a' too"));
  EXPECT_THAT(PlacingError({{"a", 2, &twice}}), HasSubstr("1 GPUs are listed for 2 ranks"));
  // A rank that has a host has all of it.
  const PlacementRequest host{
      .policy = PlacementPolicy::kExplicit, .devices = {DeviceId(0)}, .whole_nodes = true};
  EXPECT_THAT(PlacingError({{"a", 1, &host}, {"b", 1, &twice}}),
              HasSubstr("placement of b: GPU 3 is listed for job 'a' too"));
  const PlacementRequest none{.policy = PlacementPolicy::kExplicit, .devices = {DeviceId(64)}};
  EXPECT_THAT(PlacingError({{"a", 1, &none}}), HasSubstr("GPU 64 does not exist"));
  // Seven whole hosts are free, but not eight: a GPU of one is taken.
  EXPECT_THAT(PlacingError({{"a", 1, &twice}, {"b", 8, &packed}}),
              HasSubstr("placement of b: 8 hosts"));
}

}  // namespace
}  // namespace orrery::job
