#include "orrery/network/links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "orrery/base/rng.h"
#include "orrery/network/wire.h"

namespace orrery::network {
namespace {

using cluster::Cluster;

// Small machine with round numbers: NVLink 100 GB/s (10 ps a byte), PCIe 50 GB/s (20), NIC 25 GB/s
// (40).
Cluster MakeCluster(int nodes = 7, bool rails = true, double oversubscription = 1) {
  cluster::Spec spec;
  spec.name = "test";
  spec.device.name = "test";
  spec.device.sms = 1;
  spec.device.memory_bytes = 1;
  spec.device.memory_bandwidth_Bps = 1;
  spec.nodes = nodes;
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
  spec.nic_header_bytes = 100;
  spec.nodes_per_leaf = 2;
  spec.rail_optimised = rails;
  spec.oversubscription = oversubscription;
  auto cluster = Cluster::Build(spec);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return *std::move(cluster);
}

Transfer MakeTransfer(FlightId id, std::size_t from, std::size_t to, std::int64_t bytes,
                      std::uint64_t salt = 0) {
  return {id, DeviceId(from), DeviceId(to), bytes, static_cast<std::uint32_t>(from), salt};
}

std::vector<std::uint32_t> OnePartition(const Cluster& cluster) {
  return std::vector<std::uint32_t>(cluster.nvlink_domain(DeviceId(cluster.devices() - 1)) + 1, 0);
}

struct Start {
  SimTime time = 0;
  Transfer transfer;
};
using Ends = std::map<FlightId, SimTime>;

// Runs on one instance until idle. REQUIRES: starts in order of time.
Ends SimulateLinks(const Cluster& cluster, const std::vector<Start>& starts,
                   std::vector<PortStatistics>* statistics = nullptr) {
  Links network;
  EXPECT_TRUE(network.SetupLinks(cluster, OnePartition(cluster), 0).ok());
  EXPECT_EQ(network.lookahead(), kNever);
  Ends ends;
  std::vector<Completion> done;
  for (std::size_t i = 0;;) {
    const SimTime start = i < starts.size() ? starts[i].time : kNever;
    const SimTime inside = network.next_time();
    if (start == kNever && inside == kNever) break;
    done.clear();
    const SimTime now = network.AdvanceUntil(std::min(start, inside), &done);
    for (const Completion& c : done) {
      EXPECT_EQ(c.time, now);
      EXPECT_TRUE(ends.emplace(c.id, c.time).second);
    }
    std::vector<Transfer> batch;
    for (; done.empty() && i < starts.size() && starts[i].time == now; ++i) {
      batch.push_back(starts[i].transfer);
    }
    network.Start(now, batch);
  }
  if (statistics) {
    const auto s = network.statistics();
    statistics->assign(s.begin(), s.end());
  }
  return ends;
}

TEST(Links, UncontendedByHand) {
  const Cluster cluster = MakeCluster();
  // NVLink: 200 bytes are 2 packets, 232 on the wire; 10 ps a byte. Two hops: 2320 for all of it,
  // the head of 144 once more (1440), latencies 1001.
  EXPECT_EQ(Uncontended(cluster, MakeTransfer(0, 0, 1, 200)), 2320 + 1440 + 1001);
  // Rail 0 of nodes 0 and 1 meet at one leaf: PCIe, NIC up, NIC down, PCIe. 1500 bytes are 1700 on
  // the wire: 40 ps a byte on the slowest hop, heads of 1100 on the others (20, 40 and 20 ps a
  // byte).
  EXPECT_EQ(Uncontended(cluster, MakeTransfer(0, 0, 4, 1500)),
            1700 * 40 + 1100 * (20 + 40 + 20) + 2 * 300'000 + 2 * 500'000);
  // GPUs 0 and 2 have NICs of different rails; nodes 0 and 1: leaf, spine, leaf. One full packet.
  EXPECT_EQ(Uncontended(cluster, MakeTransfer(0, 0, 6, 1000)),
            1100 * (20 + 4 * 40 + 20) + 2 * 300'000 + 4 * 500'000);
  EXPECT_EQ(Uncontended(cluster, MakeTransfer(0, 3, 3, 1000)), 0);
  EXPECT_EQ(Uncontended(cluster, MakeTransfer(0, 0, 1, 0)), 1001);
}

TEST(Links, AloneATransferTakesTheUncontendedTime) {
  for (const double oversubscription : {1.0, 3.0}) {
    const Cluster cluster = MakeCluster(7, true, oversubscription);
    FlightId id = 0;
    for (std::size_t to = 0; to < cluster.devices(); ++to) {
      for (const std::int64_t bytes : {0, 1, 127, 128, 129, 999, 1000, 1001, 123'457, 40'000'000}) {
        const Transfer transfer = MakeTransfer(++id, 1, to, bytes, to);
        const Ends ends = SimulateLinks(cluster, {{17, transfer}});
        EXPECT_EQ(ends.at(id), 17 + Uncontended(cluster, transfer)) << to << " " << bytes;
      }
    }
  }
}

TEST(Links, UncontendedIsWithinOnePicosecondAHopOfTheFormula) {
  const Cluster cluster = MakeCluster(7, false, 3);
  CounterRng rng(3);
  std::vector<LinkId> path;
  for (int i = 0; i < 1000; ++i) {
    const Transfer t = MakeTransfer(0, rng.Below(28), rng.Below(28),
                                    static_cast<std::int64_t>(rng.Below(1u << rng.Below(26))), i);
    cluster.Route(t.from, t.to, t.salt, &path);
    const auto wire = static_cast<long double>(WireBytes(cluster, t.from, t.to, t.bytes));
    long double sum = 0, least = 1e30L, head_there = 0;
    for (const LinkId id : path) {
      const cluster::Link& l = cluster.links()[id.index()];
      const auto rate = static_cast<long double>(l.bandwidth_Bps) * 1e-12L;
      const long double head = std::min<long double>(wire, l.mtu_bytes) / rate;
      sum += static_cast<long double>(l.latency) + head;
      if (rate < least) least = rate, head_there = head;
    }
    if (!path.empty()) sum += wire / least - head_there;
    EXPECT_GE(static_cast<long double>(Uncontended(cluster, t)), sum - 0.5L);
    EXPECT_LE(static_cast<long double>(Uncontended(cluster, t)),
              sum + static_cast<long double>(path.size()) + 0.5L);
  }
}

TEST(Links, AFifoServesOneAfterTheOther) {
  const Cluster cluster = MakeCluster();
  // Both leave GPU 0 by NVLink: 128 bytes are 144 on the wire, 1440 ps a link. The second begins
  // when the first has left, at 1440; the hops behind are free by then.
  const Ends ends =
      SimulateLinks(cluster, {{0, MakeTransfer(0, 0, 1, 128)}, {0, MakeTransfer(1, 0, 2, 128)}});
  EXPECT_EQ(ends.at(0), 2 * 1440 + 1001);
  EXPECT_EQ(ends.at(1), 3 * 1440 + 1001);
}

TEST(Links, ASlowLinkHoldsTheMessageBehindIt) {
  const Cluster cluster = MakeCluster();
  // GPUs 0 and 1 of node 0 share a NIC towards node 1. Each message is 1100 on the wire: PCIe
  // 22,000 ps, NIC 44,000. The NIC serves creator 0 first, then creator 1.
  const SimTime alone = Uncontended(cluster, MakeTransfer(0, 0, 4, 1000));
  const Ends ends =
      SimulateLinks(cluster, {{0, MakeTransfer(1, 1, 5, 1000)}, {0, MakeTransfer(0, 0, 4, 1000)}});
  EXPECT_EQ(ends.at(0), alone);
  EXPECT_EQ(ends.at(1), alone + 44'000);
}

std::vector<Start> RandomTraffic(const Cluster& cluster, std::uint64_t seed, std::size_t count) {
  CounterRng rng(seed);
  std::vector<Start> starts;
  for (FlightId id = 0; id < count; ++id) {
    const auto bytes = static_cast<std::int64_t>(rng.Below(1u << (1 + rng.Below(16))));
    Start s;
    s.time = static_cast<SimTime>(rng.Below(4)) * 400'000;
    s.transfer = MakeTransfer(id, rng.Below(cluster.devices()), rng.Below(cluster.devices()), bytes,
                              rng.Below(3));
    starts.push_back(s);
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& a, const Start& b) { return a.time < b.time; });
  return starts;
}

// The rules of the header with nothing clever: all heads in one list, the next one found by search.
Ends Naive(const Cluster& cluster, const std::vector<Start>& starts) {
  struct Head {
    SimTime time, tail;
    std::size_t creator, sequence, hop;
    Transfer transfer;
    std::vector<LinkId> path;
  };
  std::vector<Head> heads;
  std::map<std::size_t, std::size_t> sequences;
  for (const Start& s : starts) {
    Head h{s.time, s.time, s.transfer.creator, sequences[s.transfer.creator]++, 0, s.transfer, {}};
    cluster.Route(s.transfer.from, s.transfer.to, s.transfer.salt, &h.path);
    heads.push_back(h);
  }
  std::map<std::size_t, SimTime> free;
  Ends ends;
  while (!heads.empty()) {
    const auto h = std::min_element(heads.begin(), heads.end(), [](const Head& a, const Head& b) {
      return std::tie(a.time, a.creator, a.sequence) < std::tie(b.time, b.creator, b.sequence);
    });
    if (h->hop == h->path.size()) {
      ends[h->transfer.id] = h->time;
      heads.erase(h);
      continue;
    }
    const std::size_t number = h->path[h->hop++].index();
    const cluster::Link& l = cluster.links()[number];
    const std::int64_t wire =
        WireBytes(cluster, h->transfer.from, h->transfer.to, h->transfer.bytes);
    const SimTime begin = std::max(h->time, free[number]);
    const SimTime head = TransferTime(std::min<std::int64_t>(l.mtu_bytes, wire), l.bandwidth_Bps);
    free[number] = std::max(begin + TransferTime(wire, l.bandwidth_Bps), h->tail + head);
    h->tail = free[number] + l.latency;
    h->time = h->hop == h->path.size() ? h->tail : begin + head + l.latency;
  }
  return ends;
}

TEST(Links, EqualsANaiveSimulation) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Cluster cluster = MakeCluster(1 + static_cast<int>(seed % 7), seed % 2 == 0, 1);
    const auto starts = RandomTraffic(cluster, seed, 150);
    EXPECT_EQ(SimulateLinks(cluster, starts), Naive(cluster, starts)) << "seed " << seed;
  }
}

TEST(Links, OrderOfCreatorsInABatchChangesNothing) {
  const Cluster cluster = MakeCluster();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto starts = RandomTraffic(cluster, seed, 150);
    const Ends expected = SimulateLinks(cluster, starts);
    // Each creator keeps its own order; creators are interleaved otherwise.
    std::stable_sort(starts.begin(), starts.end(), [seed](const Start& a, const Start& b) {
      if (a.time != b.time) return a.time < b.time;
      return HashCombine(seed, a.transfer.creator) < HashCombine(seed, b.transfer.creator);
    });
    EXPECT_EQ(SimulateLinks(cluster, starts), expected) << "seed " << seed;
  }
}

TEST(Links, BytesAreConserved) {
  const Cluster cluster = MakeCluster();
  const auto starts = RandomTraffic(cluster, 5, 300);
  std::vector<PortStatistics> statistics;
  (void)SimulateLinks(cluster, starts, &statistics);
  std::vector<std::int64_t> bytes(cluster.links().size());
  std::vector<LinkId> path;
  for (const Start& s : starts) {
    cluster.Route(s.transfer.from, s.transfer.to, s.transfer.salt, &path);
    for (const LinkId id : path) {
      bytes[id.index()] += WireBytes(cluster, s.transfer.from, s.transfer.to, s.transfer.bytes);
    }
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(statistics[i].bytes, bytes[i]);
}

// ---- Partitions. Every delivery is answered at once by its receiver until `answers` are out.

struct Traffic {
  std::vector<Start> starts;
  int answers = 0;
};

struct PartitionedRun {
  PartitionedRun(const Cluster& cluster, const Traffic& traffic, std::uint32_t partitions)
      : cluster(cluster), traffic(traffic), networks(partitions) {
    for (std::size_t d = 0; d <= cluster.nvlink_domain(DeviceId(cluster.devices() - 1)); ++d) {
      partition_of_domain.push_back(static_cast<std::uint32_t>(d * 5 % partitions));
    }
    for (std::uint32_t p = 0; p < partitions; ++p) {
      EXPECT_TRUE(networks[p].SetupLinks(cluster, partition_of_domain, p).ok());
    }
  }
  std::uint32_t Owner(DeviceId d) const { return partition_of_domain[cluster.nvlink_domain(d)]; }

  // Answers what was delivered. The id of an answer names its question.
  void Answer(Links* network, const Completion& c) {
    ends[c.id] = c.time;
    const Transfer& question = transfers.at(c.id);
    const FlightId answer = c.id + 1000;
    if (static_cast<int>(c.id / 1000) >= traffic.answers) return;
    Transfer t = question;
    t.id = answer;
    std::swap(t.from, t.to);
    t.creator = t.from.value;
    transfers[answer] = t;
    network->Start(c.time, {&t, 1});
  }

  // One partition's window [.., end): starts and events in order of time.
  void Window(std::uint32_t p, SimTime end) {
    Links& network = networks[p];
    std::vector<Completion> done;
    for (;;) {
      std::vector<Transfer> batch;
      SimTime start = kNever;
      for (const Start& s : traffic.starts) {
        if (Owner(s.transfer.from) != p || transfers.contains(s.transfer.id)) continue;
        if (start == kNever) start = s.time;
        if (s.time == start) batch.push_back(s.transfer);
      }
      const SimTime next = std::min(start, network.next_time());
      if (next >= end) return;
      done.clear();
      // Order by id: an engine reacts in the order of ranks, not of arrival.
      const SimTime now = network.AdvanceUntil(next, &done);
      std::sort(done.begin(), done.end(),
                [](const Completion& a, const Completion& b) { return a.id < b.id; });
      for (const Completion& c : done) Answer(&network, c);
      if (start != now || !done.empty()) continue;
      for (const Transfer& t : batch) transfers[t.id] = t;
      network.Start(now, batch);
    }
  }

  Ends Simulate() {
    SimTime now = 0;
    while (now != kNever) {
      SimTime lookahead = kNever;
      for (const Links& n : networks) lookahead = std::min(lookahead, n.lookahead());
      const SimTime end = lookahead == kNever ? kNever : now + lookahead;
      for (std::uint32_t p = 0; p < networks.size(); ++p) Window(p, end);
      std::vector<RemoteHop> hops;
      for (Links& n : networks) n.TakeRemote(&hops);
      remote += hops.size();
      std::reverse(hops.begin(), hops.end());  // the order in which they are carried is arbitrary
      for (const RemoteHop& hop : hops) {
        EXPECT_GE(hop.time, end);
        networks[hop.partition].Deliver(hop);
      }
      now = kNever;
      for (const Links& n : networks) now = std::min(now, n.next_time());
      for (const Start& s : traffic.starts) {
        if (!transfers.contains(s.transfer.id)) now = std::min(now, s.time);
      }
    }
    return ends;
  }

  const Cluster& cluster;
  const Traffic& traffic;
  std::vector<Links> networks;
  std::vector<std::uint32_t> partition_of_domain;
  std::map<FlightId, Transfer> transfers;  // started
  Ends ends;
  std::size_t remote = 0;
};

TEST(Links, PartitionsChangeNothing) {
  for (const bool rails : {true, false}) {
    const Cluster cluster = MakeCluster(7, rails);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Traffic traffic{RandomTraffic(cluster, seed, 120), 3};
      PartitionedRun one(cluster, traffic, 1);
      const Ends expected = one.Simulate();
      EXPECT_EQ(expected.size(), 4 * 120u);
      EXPECT_EQ(one.remote, 0u);
      for (const std::uint32_t partitions : {2u, 3u, 7u}) {
        PartitionedRun run(cluster, traffic, partitions);
        EXPECT_EQ(run.Simulate(), expected) << "seed " << seed << ", partitions " << partitions;
        EXPECT_GT(run.remote, 0u);
        // Leaves and spines stand between partitions, a NIC's link before them.
        EXPECT_EQ(run.networks[0].lookahead(), 500'000);
        std::int64_t bytes = 0, bytes_of_one = 0;
        for (Links& n : run.networks) {
          for (const PortStatistics& s : n.statistics()) bytes += s.bytes;
        }
        for (const PortStatistics& s : one.networks[0].statistics()) bytes_of_one += s.bytes;
        EXPECT_EQ(bytes, bytes_of_one);
      }
    }
  }
}

TEST(Links, RefusesFluidsAndUnassignedDomains) {
  Links network;
  EXPECT_FALSE(network.SetupPorts({}).ok());
  const Cluster cluster = MakeCluster();
  const std::vector<std::uint32_t> two = {0, 0};
  const Status status = network.SetupLinks(cluster, two, 0);
  EXPECT_EQ(status.message(), "NVLink domain 2 has no partition; 2 domains have one");
}

TEST(Networks, AreFoundByName) {
  for (const BackendInfo& info : Backends()) {
    auto network = Create(info.name);
    ASSERT_TRUE(network.ok());
    EXPECT_EQ((*network)->name(), info.name);
    EXPECT_NE(info.fluids, info.transfers);
    EXPECT_TRUE(info.transfers || !info.link_fluids);
    EXPECT_TRUE(info.description.ends_with('.'));
  }
  EXPECT_EQ(Create("lniks").status().message(),
            "unknown network 'lniks'; did you mean 'links'? valid: analytic, links, flow, "
            "flow-chunks, loggops, packet, external");
}

}  // namespace
}  // namespace orrery::network
