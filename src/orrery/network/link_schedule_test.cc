#include "orrery/network/link_schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "orrery/network/network.h"

namespace orrery::network {
namespace {

constexpr std::int64_t kGBps = 1'000'000'000;

cluster::Cluster TwoNodes() {
  auto spec = cluster::FindPreset("h100-ib-400g");
  EXPECT_TRUE(spec.ok());
  spec->nodes = 2;
  auto cluster = cluster::Cluster::Build(*spec);
  EXPECT_TRUE(cluster.ok());
  return *std::move(cluster);
}

// The end of one transfer from GPU 0 to GPU 8, by every network that sees links.
std::map<std::string, SimTime> EndsByNetwork(const cluster::Cluster& cluster, std::int64_t bytes,
                                             SimTime start = 0) {
  std::map<std::string, SimTime> ends;
  for (const BackendInfo& backend : Backends()) {
    if (!backend.sees_links || backend.name == "packet") continue;  // that refuses changes
    auto network = Create(backend.name);
    EXPECT_TRUE(network.ok());
    const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
    EXPECT_TRUE((*network)->SetupLinks(cluster, owner, 0).ok());
    const Transfer transfer{7, DeviceId(0), DeviceId(8), bytes, 0, 0};
    (*network)->Start(start, {&transfer, 1});
    std::vector<Completion> done;
    while (done.empty() && (*network)->next_time() != kNever) {
      (*network)->AdvanceUntil((*network)->next_time(), &done);
    }
    ends[std::string(backend.name)] = done.empty() ? kNever : done.front().time;
    EXPECT_EQ((*network)->next_time(), kNever) << "idle networks have nothing to do";
  }
  EXPECT_GE(ends.size(), 2u);
  return ends;
}

// The first of the slowest links from GPU 0 to GPU 8: what it loses nothing behind it can make up.
std::string Slowest(const cluster::Cluster& cluster) {
  std::vector<LinkId> path;
  cluster.Route(DeviceId(0), DeviceId(8), 0, &path);
  LinkId slowest = path.front();
  for (const LinkId id : path) {
    if (cluster.links()[id.index()].bandwidth_Bps <
        cluster.links()[slowest.index()].bandwidth_Bps) {
      slowest = id;
    }
  }
  EXPECT_EQ(slowest, path.front());
  return cluster.link_name(slowest);
}

TEST(LinkSchedule, ServesInPieces) {
  const LinkSchedule::Change changes[] = {{kMillisecond, LinkId(0), kGBps / 2},
                                          {3 * kMillisecond, LinkId(0), 0},
                                          {5 * kMillisecond, LinkId(0), kGBps}};
  // 1 MB in the first ms, 1 MB in the next two, nothing in two, then the last 1 MB.
  EXPECT_EQ(ServedBy(changes, kGBps, 0, 1'000'000), kMillisecond);
  EXPECT_EQ(ServedBy(changes, kGBps, 0, 2'000'000), 3 * kMillisecond);
  EXPECT_EQ(ServedBy(changes, kGBps, 0, 3'000'000), 6 * kMillisecond);
  EXPECT_EQ(ServedBy(changes, kGBps, 4 * kMillisecond, 1'000), 5 * kMillisecond + kMicrosecond);
  EXPECT_EQ(ServedBy({changes, 2}, kGBps, 4 * kMillisecond, 1'000), kNever);
  EXPECT_EQ(ServedBy({}, kGBps, 5, 1), 5 + 1'000);
}

TEST(LinkSchedule, OverlappingChangesTakeTheLeast) {
  cluster::Cluster cluster = TwoNodes();
  const std::string name = Slowest(cluster);
  ASSERT_TRUE(cluster.ChangeLinks(name, 0.5, 0, 10).ok());
  ASSERT_TRUE(cluster.ChangeLinks(name, 0.25, 4, 6).ok());
  const LinkSchedule schedule(cluster);
  std::vector<LinkId> path;
  cluster.Route(DeviceId(0), DeviceId(8), 0, &path);
  for (const LinkId id : path) {
    const auto changes = schedule.of(id);
    if (changes.empty()) continue;
    const std::int64_t own = cluster.links()[id.index()].bandwidth_Bps;
    ASSERT_EQ(changes.size(), 4u);
    EXPECT_EQ(changes[0].capacity_Bps, own / 2);
    EXPECT_EQ(changes[1].time, 4);
    EXPECT_EQ(changes[1].capacity_Bps, own / 4);
    EXPECT_EQ(changes[2].capacity_Bps, own / 2);
    EXPECT_EQ(changes[3].time, 10);
    EXPECT_EQ(changes[3].capacity_Bps, own);
    return;
  }
  FAIL() << "the path crosses the link";
}

// A transfer of about 20 ms; its link is down for 3 ms in the middle: it ends 3 ms later.
TEST(LinkSchedule, ADownLinkHoldsATransferUntilItReturns) {
  const cluster::Cluster idle = TwoNodes();
  const auto before = EndsByNetwork(idle, 1'000'000'000);
  cluster::Cluster cluster = TwoNodes();
  ASSERT_TRUE(cluster.ChangeLinks(Slowest(cluster), 0, 5 * kMillisecond, 8 * kMillisecond).ok());
  for (const auto& [name, end] : EndsByNetwork(cluster, 1'000'000'000)) {
    EXPECT_EQ(end, before.at(name) + 3 * kMillisecond) << name;
  }
  // After it has returned nothing is left of it.
  const SimTime later = 9 * kMillisecond;
  for (const auto& [name, end] : EndsByNetwork(cluster, 1'000'000'000, later)) {
    EXPECT_EQ(end, before.at(name) + later) << name;
  }
}

// Half the rate for 4 ms costs the time of 2 ms at the whole.
TEST(LinkSchedule, ASlowLinkSlowsATransfer) {
  const auto before = EndsByNetwork(TwoNodes(), 1'000'000'000);
  cluster::Cluster cluster = TwoNodes();
  ASSERT_TRUE(cluster.ChangeLinks(Slowest(cluster), 0.5, 5 * kMillisecond, 9 * kMillisecond).ok());
  for (const auto& [name, end] : EndsByNetwork(cluster, 1'000'000'000)) {
    EXPECT_NEAR(static_cast<double>(end), static_cast<double>(before.at(name) + 2 * kMillisecond),
                2)
        << name;
  }
}

TEST(LinkSchedule, ALinkDownForGoodDeliversNothing) {
  cluster::Cluster cluster = TwoNodes();
  ASSERT_TRUE(cluster.ChangeLinks(Slowest(cluster), 0, kMillisecond, kNever).ok());
  for (const auto& [name, end] : EndsByNetwork(cluster, 1'000'000'000))
    EXPECT_EQ(end, kNever) << name;
  // What has passed by then is there.
  for (const auto& [name, end] : EndsByNetwork(cluster, 1'000'000))
    EXPECT_LT(end, kMillisecond) << name;
}

}  // namespace
}  // namespace orrery::network
