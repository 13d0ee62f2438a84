// What must hold for packets, whatever the congestion control.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "orrery/base/rng.h"
#include "orrery/network/packet/packet.h"
#include "orrery/network/packet/pint_code.h"
#include "orrery/network/packet/settings.h"
#include "orrery/network/packet/test_support.h"

namespace orrery::network::packet {
namespace {

using ::testing::HasSubstr;

TEST(Packet, AloneAMessageTakesItsUncontendedTime) {
  for (const char* preset : {"h100-ib-400g", "a100-80g-roce-200g", "gb200-nvl72-ib-400g"}) {
    const cluster::Cluster cluster = Build(preset, 40, 4);
    const cluster::Spec& spec = cluster.spec();
    CounterRng rng(5);
    for (int i = 0; i < 100; ++i) {
      const std::size_t from = rng.Below(cluster.devices()), to = rng.Below(cluster.devices());
      // Whole packets: a shorter last one is less than a head on hops that are not the slowest.
      const auto packets = static_cast<std::int64_t>(rng.Below(300));
      const Transfer t = Make(0, from, to, packets * spec.nic_mtu_bytes, rng.Next() >> 8);
      const SimTime end = Simulate(cluster, {{1000, t}}).ends.at(0);
      // Each packet's time on each hop is rounded up by itself: at most 1 ps.
      EXPECT_GE(end, 1000 + Uncontended(cluster, t)) << preset << " " << t.bytes;
      EXPECT_LE(end, 1000 + Uncontended(cluster, t) + 8 * (packets + 1)) << preset << t.bytes;
    }
  }
}

// What a control adds to a message that has its path to itself: nothing where it starts at line
// rate and is told of nothing, else its start-up. docs/packets.md says how much.
TEST(Packet, AloneEveryControlIsAsFastAsItsStartUp) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 40, 4);
  const std::int64_t mtu = cluster.spec().nic_mtu_bytes;
  for (const ControlInfo& control : Controls()) {
    PacketParameters packet;
    packet.congestion_control = control.name;
    const bool paced = control.name == "hpcc" || control.name == "pint";  // at 95 % of the rate
    for (const std::int64_t packets : {16, 256, 4096}) {
      const Transfer t = Make(0, 0, 300, packets * mtu);
      const SimTime end = Simulate(cluster, {{0, t}}, packet).ends.at(0);
      const double gap = ToSeconds(end) / ToSeconds(Uncontended(cluster, t)) - 1;
      EXPECT_GE(gap, -1e-9) << control.name << " " << packets;
      EXPECT_LT(gap, paced ? 1 / 0.95 - 1 : 1e-4) << control.name << " " << packets;
    }
  }
}

TEST(Packet, ALastPacketThatIsShortIsLessThanAHeadLate) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 40, 4);
  const SimTime head = TransferTime(cluster.spec().nic_mtu_bytes, cluster.spec().nic_Bps);
  for (std::int64_t bytes : {1, 100, 4095, 4097, 1'000'001}) {
    const Transfer t = Make(0, 0, 300, bytes);
    const SimTime end = Simulate(cluster, {{0, t}}).ends.at(0);
    EXPECT_LE(end, Uncontended(cluster, t) + bytes / 512);
    EXPECT_GE(end, Uncontended(cluster, t) - 2 * head);
  }
}

TEST(Packet, CutThroughSavesAPacketsTimeOnEverySwitch) {
  // Six hops of one rate: five switches send on after 64 bytes in place of a packet.
  cluster::Spec spec = SpecOf("h100-ib-400g", 40, 4);
  const cluster::Cluster cluster = Build(spec);
  const Transfer t = Make(0, 0, 300, 64 * std::int64_t{spec.nic_mtu_bytes});
  std::vector<LinkId> path;
  cluster.Route(t.from, t.to, t.salt, &path);
  int switches = 0;
  for (const LinkId l : path) switches += cluster::IsLocal(cluster.links()[l.index()].kind) ? 0 : 1;
  --switches;
  const SimTime whole = Simulate(cluster, {{0, t}}).ends.at(0);
  PacketParameters cut;
  cut.cut_through = true;
  const SimTime saved = whole - Simulate(cluster, {{0, t}}, cut).ends.at(0);
  const std::int64_t bytes = spec.nic_mtu_bytes + spec.nic_header_bytes - kControlBytes;
  EXPECT_NEAR(static_cast<double>(saved),
              static_cast<double>(
                  switches * TransferTime(bytes, cluster.links()[path[1].index()].bandwidth_Bps)),
              100);
}

TEST(Packet, EveryControlDeliversEverythingOnceAndEnds) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 8, 2);
  for (const ControlInfo& control : Controls()) {
    for (std::uint64_t seed : {1, 2, 3}) {
      const std::vector<Begin> begins = RandomTraffic(cluster, seed, 300);
      PacketParameters packet;
      packet.congestion_control = control.name;
      const Outcome out = Simulate(cluster, begins, packet);
      EXPECT_TRUE(out.status.ok()) << control.name << out.status.message();
      ASSERT_EQ(out.ends.size(), begins.size()) << control.name;
      for (const Begin& b : begins) {
        EXPECT_GE(out.ends.at(b.transfer.id) - b.time + 200'000, Uncontended(cluster, b.transfer))
            << control.name;
      }
      std::uint64_t drops = 0;
      for (std::size_t l = 0; l < out.links.size(); ++l) {
        EXPECT_LE(out.links[l].busy, out.finish) << control.name;
        drops += out.counts.ports[l].drops;
      }
      if (control.pfc) {
        EXPECT_EQ(drops, 0u) << control.name;
      }
      EXPECT_EQ(Simulate(cluster, begins, packet).ends, out.ends) << control.name;
    }
  }
}

// Messages of a few pairs of GPUs, several connections each, at moments that make lanes of theirs
// alone, disturb them and leave them alone again. Where queues are logged no lane is ever alone.
void ExpectLanesAreExact(const char* control) {
  std::uint64_t turns = 0, turns_alone = 0, marks = 0;
  PacketParameters packet;
  packet.congestion_control = control;
  for (const char* preset : {"h100-ib-400g", "a100-80g-roce-200g", "gb200-nvl72-ib-400g"}) {
    const cluster::Cluster cluster = Build(preset, 40, 4);
    const auto each = static_cast<std::size_t>(cluster.spec().gpus_per_nvlink_domain);
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      CounterRng rng(seed);
      const std::size_t pairs = 1 + rng.Below(5), from_hosts = 1 + rng.Below(3);
      std::vector<std::pair<std::size_t, std::size_t>> pair;
      for (std::size_t p = 0; p < pairs; ++p) {
        const std::size_t from = rng.Below(from_hosts) * each + rng.Below(2);
        const std::size_t to = (from_hosts + rng.Below(2)) * each + rng.Below(2);
        pair.emplace_back(from, to % cluster.devices());
      }
      const auto longest = static_cast<std::uint64_t>(1) << (10 + rng.Below(12));
      std::vector<Begin> begins;
      for (int i = 0; i < 60; ++i) {
        const auto [from, to] = pair[rng.Below(pairs)];
        if (cluster.nvlink_domain(DeviceId(from)) == cluster.nvlink_domain(DeviceId(to))) continue;
        const auto packets = static_cast<std::int64_t>(rng.Below(64));
        const std::int64_t bytes = rng.Below(2) == 0
                                       ? static_cast<std::int64_t>(1 + rng.Below(longest))
                                       : (1 + packets) * cluster.spec().nic_mtu_bytes;
        begins.push_back({static_cast<SimTime>(rng.Below(200'000'000)),
                          Make(static_cast<FlightId>(i), from, to, bytes, 7 + rng.Below(3))});
      }
      const Outcome alone = Simulate(cluster, begins, packet);
      const Outcome single = Simulate(cluster, begins, packet, true);
      EXPECT_EQ(alone.ends, single.ends) << preset << " seed " << seed;
      EXPECT_EQ(alone.counts.hops, single.counts.hops);
      EXPECT_EQ(alone.counts.data_packets, single.counts.data_packets);
      for (std::size_t l = 0; l < alone.links.size(); ++l) {
        EXPECT_EQ(alone.links[l].bytes, single.links[l].bytes) << l;
        EXPECT_EQ(alone.links[l].busy, single.links[l].busy) << l;
      }
      for (std::size_t l = 0; l < alone.links.size(); ++l) marks += alone.counts.ports[l].marks;
      turns += single.counts.turns;
      turns_alone += alone.counts.turns;
    }
  }
  EXPECT_LT(turns_alone, turns);  // lanes were alone
  EXPECT_EQ(marks > 0, std::string_view(control) != "none");
}
TEST(Packet, ALaneAloneIsExact) { ExpectLanesAreExact("none"); }
TEST(Packet, ALaneAloneIsExactWhereMarksAreTold) { ExpectLanesAreExact("dcqcn"); }

PacketParameters Drawn(const ControlInfo& control, std::uint64_t seed) {
  CounterRng rng(seed);
  PacketParameters packet;
  packet.congestion_control = control.name;
  packet.ack_every = static_cast<int>(1 + rng.Below(3));
  if (rng.Below(2) == 0) packet.buffer_per_port = 256 * 1024;
  packet.cut_through = rng.Below(3) == 0;
  return packet;
}

// An event at a time no host runs ahead of the rest.
TEST(Packet, RunningAheadIsExact) {
  const auto cluster = Build("h100-roce-400g", 8, 4);
  std::uint64_t seed = 0;
  for (const ControlInfo& control : Controls()) {
    for (int draw = 0; draw < 3; ++draw) {
      SCOPED_TRACE(std::string(control.name) + ", seed " + std::to_string(++seed));
      const auto packet = Drawn(control, seed);
      const auto traffic = RandomTraffic(cluster, seed, 60);
      ExpectSame(Simulate(cluster, traffic, packet),
                 Simulate(cluster, traffic, packet, false, false, true));
    }
  }
}

// Adaptive choices among one way choose nothing, but make a switch work in the order of time.
TEST(Packet, APortAtATimeIsAllInOrder) {
  const auto cluster = Build("h100-roce-400g", 8, 4);
  std::uint64_t seed = 100;
  for (const ControlInfo& control : Controls()) {
    for (int draw = 0; draw < 3; ++draw) {
      SCOPED_TRACE(std::string(control.name) + ", seed " + std::to_string(++seed));
      auto packet = Drawn(control, seed);
      const auto traffic = RandomTraffic(cluster, seed, 60);
      packet.paths = 1;
      packet.load_balancing = "spray";
      const Outcome by_port = Simulate(cluster, traffic, packet);
      packet.load_balancing = "adaptive";
      ExpectSame(by_port, Simulate(cluster, traffic, packet));
    }
  }
}

TEST(Packet, MessagesAloneOnTheirPathCostAFewTurnsHoweverLong) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 4, 4);
  std::vector<Begin> begins;
  for (FlightId i = 0; i < 4; ++i)
    begins.push_back({i * kMicrosecond, Make(i, 0, 8, 256 << 20, i)});
  const Outcome out = Simulate(cluster, begins);
  EXPECT_EQ(out.ends.size(), 4u);
  EXPECT_EQ(out.counts.data_packets, 4u * 65536);
  EXPECT_LT(out.counts.turns + out.counts.batches, 100u);
}

TEST(Packet, LaterMessagesOfAConnectionEndToo) {
  // Posted while the first is under way, just after it and long after it.
  const cluster::Cluster cluster = Build("h100-ib-400g", 8, 2);
  for (const ControlInfo& control : Controls()) {
    PacketParameters packet;
    packet.congestion_control = control.name;
    std::vector<Begin> begins;
    FlightId id = 0;
    for (SimTime start : {0, 5, 27, 28, 40, 400, 427, 430, 2000}) {
      begins.push_back({start * kMicrosecond, Make(id++, 0, 24, 1 << 20, 3)});
    }
    const Outcome out = Simulate(cluster, begins, packet);
    EXPECT_TRUE(out.status.ok()) << control.name << out.status.message();
    ASSERT_EQ(out.ends.size(), begins.size()) << control.name;
    const SimTime alone = out.ends.at(0);
    EXPECT_LT(out.ends.at(8) - begins[8].time, 2 * alone) << control.name;
    EXPECT_LT(out.ends.at(4), 6 * alone) << control.name;
    EXPECT_EQ(out.counts.timeouts, 0u) << control.name;
  }
}

// Whenever the second message comes: while packets of the first are on their way, while only their
// acknowledgements are, and after.
TEST(Packet, ASecondMessageEndsWheneverItComes) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 8, 2);
  for (const ControlInfo& control : Controls()) {
    PacketParameters packet;
    packet.congestion_control = control.name;
    for (SimTime start = 0; start < 20; ++start) {
      const Outcome out = Simulate(
          cluster,
          {{0, Make(0, 0, 24, 200'000, 3)}, {start * kMicrosecond, Make(1, 0, 24, 200'000, 3)}},
          packet);
      EXPECT_EQ(out.ends.size(), 2u) << control.name << " at " << start << " us";
    }
  }
}

TEST(Packet, PfcNeverDropsWhateverTheBuffer) {
  for (std::int64_t buffer : {200'000, 300'000, 1 << 20}) {
    for (bool cut_through : {false, true}) {
      const cluster::Cluster cluster = Build("h100-ib-400g", 16, 2);
      PacketParameters packet;
      packet.buffer_per_port = buffer;
      packet.cut_through = cut_through;
      const Outcome out = Simulate(cluster, RandomTraffic(cluster, 7, 1000), packet);
      EXPECT_EQ(out.ends.size(), 1000u);
      std::uint64_t drops = 0, pauses = 0;
      for (const PacketPort& port : out.counts.ports) drops += port.drops, pauses += port.pauses;
      EXPECT_EQ(drops, 0u);
      EXPECT_GT(pauses, 0u);
      EXPECT_LE(out.counts.largest_buffer, 64 * buffer);
    }
  }
}

TEST(Packet, WithoutPfcASmallQueueLosesAndBothRecoveriesRepair) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 8, 2);
  for (const char* recovery : {"go-back-n", "selective-repeat"}) {
    PacketParameters packet;
    packet.congestion_control = "dctcp";
    packet.queue = 20'000;
    packet.recovery = recovery;
    packet.rto = 100 * kMicrosecond;
    const Outcome out = Simulate(cluster, RandomTraffic(cluster, 3, 300), packet);
    EXPECT_EQ(out.ends.size(), 300u) << recovery;
    std::uint64_t drops = 0;
    std::int64_t longest = 0;
    for (const PacketPort& port : out.counts.ports) {
      drops += port.drops;
      longest = std::max(longest, port.longest_queue);
    }
    EXPECT_GT(drops, 0u);
    EXPECT_GE(out.counts.retransmissions, drops);
    EXPECT_LE(longest, packet.queue);
  }
}

// A receiver that waits for four packets, and a sender whose window holds one.
TEST(Packet, AWindowSmallerThanAnAcknowledgementsShareStallsNobody) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 16, 32);
  std::vector<Begin> begins;
  for (FlightId f = 0; f < 15; ++f) begins.push_back({0, Make(f, 8 * f + 8, 0, 1 << 20)});
  for (const char* control : {"nscc", "dctcp", "swift"}) {
    PacketParameters packet;
    packet.congestion_control = control;
    const Outcome each = Simulate(cluster, begins, packet);
    packet.ack_every = 4;
    const Outcome fourth = Simulate(cluster, begins, packet);
    EXPECT_EQ(fourth.counts.timeouts, 0u) << control;
    EXPECT_LT(ToSeconds(fourth.finish), 1.1 * ToSeconds(each.finish)) << control;
  }
}

TEST(Packet, TwoFlowsOfOneBottleneckShareIt) {
  // Two senders, one receiver, PFC: 2 · 8 MiB at 400 Gb/s take twice the time of one, both.
  const cluster::Cluster cluster = Build("h100-ib-400g", 4, 32);
  const std::int64_t bytes = 8 << 20;
  const Outcome out = Simulate(cluster, {{0, Make(0, 0, 24, bytes)}, {0, Make(1, 8, 24, bytes)}});
  const SimTime alone = Uncontended(cluster, Make(0, 0, 24, bytes));
  EXPECT_NEAR(ToSeconds(out.ends.at(0)) / ToSeconds(alone), 2, 0.05);
  EXPECT_NEAR(ToSeconds(out.ends.at(1)) / ToSeconds(alone), 2, 0.05);
}

TEST(Packet, AnUrgentMessageOvertakes) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 4, 32);
  std::vector<Begin> begins = {{0, Make(0, 0, 24, 8 << 20)}, {0, Make(1, 8, 24, 8 << 20)}};
  begins.push_back({100 * kMicrosecond, Make(2, 16, 24, 1 << 20, 0, 0)});
  const SimTime usual = Simulate(cluster, begins).ends.at(2) - begins[2].time;
  begins[2].transfer.priority = 2;
  const SimTime urgent = Simulate(cluster, begins).ends.at(2) - begins[2].time;
  EXPECT_GT(usual, 2 * urgent);
  // Nothing goes before it in the fabric; PCIe behind it is first come, first served.
  EXPECT_LT(ToSeconds(urgent) / ToSeconds(Uncontended(cluster, begins[2].transfer)), 1.25);
}

TEST(Packet, SprayingMakesAPermutationNearlyUncontended) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 16, 2);
  std::vector<Begin> begins;
  for (std::size_t g = 0; g < cluster.devices(); ++g) {
    begins.push_back({0, Make(static_cast<FlightId>(g), g, (g + 40) % cluster.devices(), 1 << 20)});
  }
  const auto longest = [&](const char* balancing) {
    PacketParameters packet;
    packet.load_balancing = balancing;
    SimTime most = 0;
    for (const auto& [id, end] : Simulate(cluster, begins, packet).ends) most = std::max(most, end);
    return ToSeconds(most) / ToSeconds(Uncontended(cluster, begins[0].transfer));
  };
  EXPECT_GT(longest("ecmp"), 1.8);  // some link has two flows
  EXPECT_LT(longest("spray"), 1.25);
  EXPECT_LT(longest("adaptive"), 1.25);
}

TEST(Packet, ADeadlockIsReportedWithItsCycle) {
  // Five switches in a ring of one-way shortest paths, each host sends two switches on: every link
  // of the ring waits for the next once the buffers are full.
  cluster::Spec spec = SpecOf("h100-ib-400g", 5, 1);
  spec.topology.name = "torus";
  spec.topology.dimensions = {{cluster::DimensionKind::kRing, 5, 0, 0}};
  spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = 1;
  const cluster::Cluster cluster = Build(spec);
  std::vector<Begin> begins;
  for (std::size_t from = 0; from < 5; ++from) {
    for (std::uint32_t k = 0; k < 4; ++k) {
      begins.push_back(
          {0, Make(static_cast<FlightId>(4 * from + k), from, (from + 2) % 5, 8 << 20, k)});
    }
  }
  PacketParameters packet;
  packet.buffer_per_port = 160'000;
  packet.pfc_xoff = 30'000;
  const Outcome out = Simulate(cluster, begins, packet);
  EXPECT_LT(out.ends.size(), begins.size());
  EXPECT_EQ(out.status.code(), Code::kInfeasible);
  EXPECT_THAT(out.status.message(), HasSubstr("a PFC deadlock"));
  EXPECT_THAT(out.status.message(), HasSubstr("waits for"));
}

TEST(Packet, WrongSettingsAreNamed) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 4, 2);
  const auto error = [&](auto change) {
    PacketParameters packet;
    change(&packet);
    auto network = Create("packet", {.packet = packet});
    const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
    return (*network)->SetupLinks(cluster, owner, 0).message();
  };
  EXPECT_THAT(error([](auto* p) { p->congestion_control = "dcqnc"; }), HasSubstr("dcqcn"));
  EXPECT_THAT(error([](auto* p) { p->load_balancing = "sprey"; }), HasSubstr("spray"));
  EXPECT_THAT(error([](auto* p) { p->buffer_per_port = 1000; }), HasSubstr("buffer_per_port"));
  EXPECT_THAT(error([](auto* p) { p->paths = 12; }), HasSubstr("power of two"));
  EXPECT_THAT(error([](auto* p) { p->pfc = p->trimming = true; }), HasSubstr("exclude"));
}

TEST(Packet, MorePacketsOfAConnectionThanItNumbersAreRefused) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 4, 2);
  EXPECT_THAT(Simulate(cluster, {{0, Make(0, 0, 8, std::int64_t{1} << 50)}}).status.message(),
              HasSubstr("more than 4,294,967,295 packets from node0/gpu0 to node1/gpu0"));
}

// A path of more links, or a switch of more, than a packet can count ended in a crash.
TEST(Packet, PathsAndSwitchesBeyondItsCountsAreRefused) {
  cluster::Spec spec = SpecOf("h100-ib-400g", 600, 32);
  spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = 1;
  spec.topology.name = "mesh";
  spec.topology.dimensions = {{.size = 600}};
  const cluster::Cluster mesh = Build(spec);
  // 300 hosts further on: two links at either end and 300 between routers.
  EXPECT_THAT(
      Simulate(mesh, {{0, Make(0, 0, 300, 1)}}).status.message(),
      HasSubstr("a path of 304 links from node0/gpu0 to node300/gpu0; it counts up to 255"));
  spec.nodes = spec.nodes_per_leaf = 66'000;
  spec.topology = {};
  const cluster::Cluster flat = Build(spec);
  const auto network = Create("packet");
  ASSERT_TRUE(network.ok());
  const std::vector<std::uint32_t> owner(flat.nvlink_domains(), 0);
  EXPECT_THAT((*network)->SetupLinks(flat, owner, 0).message(),
              HasSubstr("more than 65,536 links leave leaf0"));
}

TEST(Rings, KeepOrderAndNumberSetsForget) {
  Ring<int> ring;
  for (int i = 0; i < 100; ++i) {
    ring.Push(2 * i);
    ring.Push(2 * i + 1);
    EXPECT_EQ(ring.front(), i);
    ring.Pop();
  }
  EXPECT_EQ(ring.size(), 100u);
  EXPECT_EQ(ring[99], 199);
  NumberSet set;
  for (std::uint32_t n = 0; n < 10'000; ++n) {
    set.Add(n + 300);
    EXPECT_TRUE(set.Has(n + 300));
    EXPECT_FALSE(set.Has(n + 301));
    if (n >= 300) {
      EXPECT_TRUE(set.Has(n));
      set.Remove(n);
      set.Forget(n + 1);
    }
    EXPECT_FALSE(set.Has(n));
  }
}

TEST(Pint, CodesAreRightInTheMean) {
  for (double u : {0.01, 0.3, 0.95, 2.7}) {
    double sum = 0;
    for (int i = 0; i < 1000; ++i) sum += FromPintCode(ToPintCode(u, (i + 0.5) / 1000));
    EXPECT_NEAR(sum / 1000, u, u * 0.01);
  }
}

}  // namespace
}  // namespace orrery::network::packet
