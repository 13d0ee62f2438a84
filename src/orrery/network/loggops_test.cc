#include "orrery/network/loggops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "orrery/base/rng.h"
#include "orrery/network/wire.h"

namespace orrery::network {
namespace {

using cluster::Cluster;

// NVLink 100 GB/s (10 ps a byte), PCIe 50 GB/s (20), NIC 25 GB/s (40); two GPUs share a NIC.
Cluster WireOnlyCluster(double oversubscription = 1) {
  cluster::Spec spec;
  spec.name = "test";
  spec.device.name = "test";
  spec.device.sms = 1;
  spec.device.memory_bytes = 1;
  spec.device.memory_bandwidth_Bps = 1;
  spec.nodes = 6;
  spec.gpus_per_node = spec.gpus_per_nvlink_domain = 4;
  spec.nics_per_node = 2;
  spec.nvlink_Bps = 100'000'000'000;
  spec.nvlink_latency = 1'001;
  spec.nvlink_packet_bytes = 128;
  spec.nvlink_header_bytes = 16;
  spec.pcie_Bps = 50'000'000'000;
  spec.pcie_latency = 300'000;
  spec.nic_Bps = 25'000'000'000;
  spec.nic_latency = 500'000;
  spec.nic_mtu_bytes = 1000;
  spec.nic_header_bytes = 0;
  spec.nodes_per_leaf = 2;
  spec.oversubscription = oversubscription;
  auto cluster = Cluster::Build(spec);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return *std::move(cluster);
}

struct Send {
  SimTime time = 0;
  Transfer transfer;
};
using Arrivals = std::map<FlightId, SimTime>;

Transfer MakeSend(FlightId id, std::size_t from, std::size_t to, std::int64_t bytes,
                  std::uint64_t salt = 0) {
  return {id, DeviceId(from), DeviceId(to), bytes, static_cast<std::uint32_t>(from), salt};
}

// Runs over `partitions` instances in windows, as the engine does. REQUIRES: starts in order.
Arrivals SimulateSends(const Cluster& cluster, const std::vector<Send>& starts,
                       const Parameters& parameters = {}, std::uint32_t partitions = 1,
                       std::string_view name = "loggops") {
  std::vector<std::uint32_t> owner;
  for (std::size_t d = 0; d < cluster.nvlink_domains(); ++d) {
    owner.push_back(static_cast<std::uint32_t>(d * partitions / cluster.nvlink_domains()));
  }
  std::vector<std::unique_ptr<Network>> networks;
  SimTime ahead = kNever;
  for (std::uint32_t p = 0; p < partitions; ++p) {
    networks.push_back(*Create(name, parameters));
    EXPECT_TRUE(networks.back()->SetupLinks(cluster, owner, p).ok());
    ahead = std::min(ahead, networks.back()->lookahead());
  }
  Arrivals ends;
  std::vector<Completion> done;
  std::vector<RemoteHop> hops;
  std::size_t next = 0;
  for (;;) {
    SimTime first = next < starts.size() ? starts[next].time : kNever;
    for (auto& n : networks) first = std::min(first, n->next_time());
    if (first == kNever) break;
    const SimTime end = ahead == kNever ? kNever : first + ahead;
    std::size_t after = next;
    for (std::uint32_t p = 0; p < partitions; ++p) {
      std::size_t i = next;
      for (;;) {
        while (i < starts.size() && owner[cluster.nvlink_domain(starts[i].transfer.from)] != p) {
          ++i;
        }
        const SimTime start = i < starts.size() ? starts[i].time : kNever;
        const SimTime now = std::min(start, networks[p]->next_time());
        if (now == kNever || now >= end) break;
        done.clear();
        const SimTime at = networks[p]->AdvanceUntil(now, &done);
        for (const Completion& c : done) EXPECT_TRUE(ends.emplace(c.id, c.time).second);
        if (done.empty() && at == start) networks[p]->Start(at, {&starts[i++].transfer, 1});
      }
    }
    while (after < starts.size() && starts[after].time < end) ++after;
    next = after;
    for (auto& n : networks) n->TakeRemote(&hops);
    for (const RemoteHop& hop : hops) networks[hop.partition]->Deliver(hop);
    hops.clear();
  }
  return ends;
}

// Uncontended()'s formula, by every back end that serves transfers; `analytic` takes the same as a
// fluid.
TEST(LogGops, AllBackEndsAgreeUncontended) {
  for (const double oversubscription : {1.0, 3.0}) {
    const Cluster cluster = WireOnlyCluster(oversubscription);
    for (std::size_t to = 1; to < cluster.devices(); ++to) {
      for (const std::int64_t bytes : {0, 1, 127, 129, 999, 1000, 1001, 123'457, 40'000'000}) {
        const Transfer transfer = MakeSend(1, 0, to, bytes, to);
        const SimTime expected = Uncontended(cluster, transfer);
        for (const char* name : {"links", "loggops", "flow"}) {
          EXPECT_EQ(SimulateSends(cluster, {{17, transfer}}, {}, 1, name).at(1), 17 + expected)
              << name << " to " << to << ", " << bytes << " bytes";
        }
        std::vector<LinkId> path;
        cluster.Route(transfer.from, transfer.to, transfer.salt, &path);
        const std::int64_t wire = WireBytes(cluster, transfer.from, transfer.to, bytes);
        std::int64_t least = INT64_MAX;
        for (const LinkId id : path) {
          least = std::min(least, cluster.links()[id.index()].bandwidth_Bps);
        }
        auto analytic = *Create("analytic");
        ASSERT_TRUE(analytic->SetupPorts(std::vector<std::int64_t>{least, least}).ok());
        const SimTime moving = TransferTime(wire, least);
        const PortLoad loads[] = {{0, 1, wire}, {1, 1, wire}};
        const Fluid fluid{1, expected - moving, moving, 0, 2};
        analytic->Start(17, {&fluid, 1}, loads);
        std::vector<Completion> done;
        while (done.empty()) analytic->AdvanceUntil(analytic->next_time(), &done);
        EXPECT_EQ(done.front().time, 17 + expected);
      }
    }
  }
}

// LogGOPSim's own check: 1001 bytes at L = 2500, o = 1500, g = 1000, G = 6 end after
// o + L + o + 1000 G = 11,500 ns. With G from the path (25 GB/s) the byte before the others counts
// too: 1001 · 40 ps. Inside a domain nothing changes.
TEST(LogGops, NamedParameters) {
  const Cluster cluster = WireOnlyCluster();
  Parameters p;
  p.loggops = {.L = 2'500'000, .G_as = 6'000'000'000, .o = 1'500'000, .g = 1'000'000};
  EXPECT_EQ(SimulateSends(cluster, {{0, MakeSend(1, 0, 4, 1001)}}, p).at(1), 11'500'000);
  const Transfer inside = MakeSend(1, 0, 1, 1001);
  EXPECT_EQ(SimulateSends(cluster, {{0, inside}}, p).at(1), Uncontended(cluster, inside));
  p.loggops.G_as.reset();
  EXPECT_EQ(SimulateSends(cluster, {{0, MakeSend(1, 0, 4, 1001)}}, p).at(1), 5'500'000 + 1001 * 40);
}

// GPU 0 sends 1001 bytes to 4 and then to 8: its NIC is held for g + 1000 G = 7 us by the first,
// longer than its processor (1.5 us): the second ends 7 us later. Two senders to GPU 4 meet at its
// NIC in the same way.
TEST(LogGops, PortsServeOneAfterTheOther) {
  const Cluster cluster = WireOnlyCluster();
  Parameters p;
  p.loggops = {.L = 2'500'000, .G_as = 6'000'000'000, .o = 1'500'000, .g = 1'000'000};
  const Arrivals out =
      SimulateSends(cluster, {{0, MakeSend(1, 0, 4, 1001)}, {0, MakeSend(2, 0, 8, 1001)}}, p);
  EXPECT_EQ(out.at(1), 11'500'000);
  EXPECT_EQ(out.at(2), 18'500'000);
  const Arrivals in =
      SimulateSends(cluster, {{0, MakeSend(1, 0, 4, 1001)}, {0, MakeSend(2, 8, 4, 1001)}}, p);
  EXPECT_EQ(in.at(1), 11'500'000);
  EXPECT_EQ(in.at(2), 18'500'000);
  // One byte holds the NICs for g = 1 us but the processors for o = 1.5 us: that counts.
  const Arrivals small =
      SimulateSends(cluster, {{0, MakeSend(1, 0, 4, 1)}, {0, MakeSend(2, 0, 8, 1)}}, p);
  EXPECT_EQ(small.at(1), 5'500'000);
  EXPECT_EQ(small.at(2), 7'000'000);
}

// GPUs 0 and 1 share a NIC: what its two flows take together is their bytes at its rate.
TEST(LogGops, GpusShareTheirNic) {
  const Cluster cluster = WireOnlyCluster();
  const Arrivals ends = SimulateSends(
      cluster, {{0, MakeSend(1, 0, 4, 1'000'000)}, {0, MakeSend(2, 1, 8, 1'000'000)}});
  EXPECT_EQ(ends.at(1), Uncontended(cluster, MakeSend(1, 0, 4, 1'000'000)));
  EXPECT_EQ(ends.at(2), Uncontended(cluster, MakeSend(2, 1, 8, 1'000'000)) + 1'000'000 * 40);
}

TEST(LogGops, AnyNumberOfPartitions) {
  const Cluster cluster = WireOnlyCluster();
  CounterRng rng(7);
  for (const bool named : {false, true}) {
    Parameters p;
    if (named) p.loggops = {.L = 2'500'000, .o = 150'000, .g = 10'000, .O_as = 1'000'000};
    std::vector<Send> starts;
    SimTime now = 0;
    for (FlightId id = 0; id < 2'000; ++id) {
      const auto from = static_cast<std::size_t>(rng.Next() % cluster.devices());
      const auto to = static_cast<std::size_t>(rng.Next() % cluster.devices());
      now += static_cast<SimTime>(rng.Next() % 3) * 100'000;
      starts.push_back(
          {now, MakeSend(id, from, to, static_cast<std::int64_t>(rng.Next() % 20'000), id)});
    }
    const Arrivals one = SimulateSends(cluster, starts, p);
    EXPECT_EQ(one.size(), starts.size());
    for (const std::uint32_t n : {2u, 3u, 6u})
      EXPECT_EQ(SimulateSends(cluster, starts, p, n), one) << n;
  }
}

TEST(LogGops, RefusesWhatItCannotPartition) {
  const Cluster cluster = WireOnlyCluster();
  const std::vector<std::uint32_t> owner = {0, 1, 0, 1, 0, 1};
  Parameters p;
  p.loggops.L = 0;
  EXPECT_THAT((*Create("loggops", p))->SetupLinks(cluster, owner, 0).message(),
              ::testing::HasSubstr("--threads 1"));
}

}  // namespace
}  // namespace orrery::network
