#include "orrery/network/failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/network/network.h"

namespace orrery::network {
namespace {

using ::testing::HasSubstr;

cluster::Cluster Build() {
  auto spec = cluster::FindPreset("h100-ib-400g");
  EXPECT_TRUE(spec.ok());
  spec->nodes = 2;
  spec->nodes_per_leaf = 1;
  spec->topology.name = "fat-tree-2";
  auto cluster = cluster::Cluster::Build(*spec);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return *std::move(cluster);
}

// The leaf's link to the spine that GPU 0 takes to GPU 8.
std::string SpineLink(const cluster::Cluster& cluster, std::uint64_t salt = 0) {
  std::vector<LinkId> path;
  cluster.Route(DeviceId(std::size_t{0}), DeviceId(std::size_t{8}), salt, &path);
  return cluster.link_name(path[2]);
}

struct Outcome {
  SimTime end = kNever;
  std::int64_t bytes = 0;  // over all links
  Status status;
};

Outcome OneTransfer(const cluster::Cluster& cluster, std::string_view name, std::int64_t bytes,
                    SimTime start = 0) {
  auto network = *Create(name);
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  EXPECT_TRUE(network->SetupLinks(cluster, owner, 0).ok());
  const Transfer transfer{7, DeviceId(std::size_t{0}), DeviceId(std::size_t{8}), bytes, 0, 0};
  network->Start(start, {&transfer, 1});
  std::vector<Completion> done;
  while (done.empty() && network->next_time() != kNever) {
    network->AdvanceUntil(network->next_time(), &done);
  }
  Outcome outcome{.status = network->status()};
  if (!done.empty()) outcome.end = done.front().time;
  for (const PortStatistics& link : network->statistics()) outcome.bytes += link.bytes;
  return outcome;
}

// A transfer of about 20 ms loses its spine after 5 ms. In `flow` what is left goes on over another
// one of equal rate at once: no time is lost, and the two spines' bytes are the whole. In `links`
// the message begins again at the leaf: 5 ms later (less what the first byte took to get there).
TEST(Failures, ATransferInFlightGoesRound) {
  const cluster::Cluster idle = Build();
  cluster::Cluster cluster = Build();
  const SimTime fails = 5 * kMillisecond;
  ASSERT_TRUE(cluster.ChangeLinks(SpineLink(idle), 0, fails, kNever).ok());
  const std::int64_t bytes = 1'000'000'000;
  const Outcome flow = OneTransfer(cluster, "flow", bytes),
                flow_idle = OneTransfer(idle, "flow", bytes);
  EXPECT_TRUE(flow.status.ok());
  EXPECT_NEAR(static_cast<double>(flow.end), static_cast<double>(flow_idle.end), 1);
  EXPECT_NEAR(static_cast<double>(flow.bytes), static_cast<double>(flow_idle.bytes), 2);
  const Outcome links = OneTransfer(cluster, "links", bytes),
                links_idle = OneTransfer(idle, "links", bytes);
  EXPECT_TRUE(links.status.ok());
  EXPECT_LE(links.end, links_idle.end + fails);
  EXPECT_GT(links.end, links_idle.end + fails - 10 * kMicrosecond);
}

// Who starts while the link is down takes another path from the start; after its return its own.
TEST(Failures, NewTransfersAvoidIt) {
  const cluster::Cluster idle = Build();
  cluster::Cluster cluster = Build();
  ASSERT_TRUE(cluster.ChangeLinks(SpineLink(idle), 0, 0, 40 * kMillisecond).ok());
  Failures failures(cluster);
  EXPECT_TRUE(failures.any());
  EXPECT_EQ(failures.next(), 40 * kMillisecond);
  const DeviceId from(std::size_t{0}), to(std::size_t{8});
  std::vector<LinkId> own, path;
  cluster.Route(from, to, 0, &own);
  EXPECT_TRUE(failures.blocked(own));
  ASSERT_TRUE(failures.Route(from, to, 0, &path).ok());
  EXPECT_FALSE(failures.blocked(path));
  for (const char* name : {"flow", "links"}) {
    EXPECT_EQ(OneTransfer(cluster, name, 1'000'000).end, OneTransfer(idle, name, 1'000'000).end)
        << name;
  }
  EXPECT_FALSE(failures.Advance(39 * kMillisecond));
  EXPECT_TRUE(failures.Advance(40 * kMillisecond));
  ASSERT_TRUE(failures.Route(from, to, 0, &path).ok());
  EXPECT_EQ(path, own);
}

// GPU 0's NIC has one link: the transfer waits where it returns and is lost where it does not.
TEST(Failures, WhereNoPathIsLeft) {
  const cluster::Cluster idle = Build();
  cluster::Cluster returns = Build(), gone = Build();
  ASSERT_TRUE(returns.ChangeLinks("node0/nic0/leaf0", 0, 5 * kMillisecond, 8 * kMillisecond).ok());
  ASSERT_TRUE(gone.ChangeLinks("node0/nic0/leaf0", 0, 5 * kMillisecond, kNever).ok());
  for (const char* name : {"flow", "links"}) {
    const Outcome outcome = OneTransfer(returns, name, 1'000'000'000);
    EXPECT_TRUE(outcome.status.ok()) << name;
    EXPECT_LT(outcome.end, kNever) << name;
    const Outcome lost = OneTransfer(gone, name, 1'000'000'000);
    EXPECT_EQ(lost.end, kNever) << name;
    EXPECT_EQ(lost.status.code(), Code::kInfeasible) << name;
    EXPECT_THAT(lost.status.message(),
                HasSubstr("no path is left from node0/gpu0 to node1/gpu0 5.000 ms"));
    EXPECT_THAT(lost.status.message(), HasSubstr("node0/nic0/leaf0"));
    // What has passed by then is there.
    EXPECT_LT(OneTransfer(gone, name, 1'000'000).end, kMillisecond) << name;
  }
}

}  // namespace
}  // namespace orrery::network
