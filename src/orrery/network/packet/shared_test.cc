// Threads change nothing but the time that a run takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "orrery/network/packet/control.h"
#include "orrery/network/packet/settings.h"
#include "orrery/network/packet/test_support.h"

namespace orrery::network::packet {
namespace {

constexpr int kNumbersOfThreads[] = {2, 3, 7};

// Every control under every load balancing that it goes with, with and without PFC and trimming,
// small buffers, cut-through.
TEST(PacketThreads, Agree) {
  const cluster::Cluster cluster = Build("h100-roce-400g", 6, 2);
  std::uint64_t seed = 0;
  int shared = 0;
  for (const ControlInfo& control : Controls()) {
    for (const BalanceInfo& balance : LoadBalancers()) {
      CounterRng rng(++seed);
      PacketParameters packet;
      packet.congestion_control = control.name;
      packet.load_balancing = balance.name;
      packet.paths = 8;
      packet.ack_every = static_cast<int>(1 + rng.Below(3));
      packet.recovery = "selective-repeat";
      if (rng.Below(3) == 0) packet.buffer_per_port = 256 * 1024;
      if (rng.Below(3) == 0) packet.pfc = !control.pfc;
      if (rng.Below(4) == 0) packet.queue = 64 * 1024;
      packet.cut_through = rng.Below(3) == 0;
      if (!Resolve(packet, cluster).ok()) continue;  // what excludes each other
      SCOPED_TRACE(std::string(control.name) + " and " + std::string(balance.name) + ", seed " +
                   std::to_string(seed));
      const auto traffic = RandomTraffic(cluster, seed, 40);
      const Outcome one = Simulate(cluster, traffic, packet);
      EXPECT_EQ(one.counts.windows, 0u);
      const int threads = kNumbersOfThreads[seed % 3];
      const Outcome more = Simulate(cluster, traffic, packet, false, false, false, threads);
      shared += more.counts.windows > 0 ? 1 : 0;
      ExpectSame(one, more);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(shared, 40);
}

// Thousands of packets are under way, so that arrays grow while a window is open.
TEST(PacketThreads, ArraysGrowInAWindow) {
  cluster::Spec spec = SpecOf("h100-roce-400g", 32, 4);
  spec.gpus_per_node = spec.nics_per_node = spec.gpus_per_nvlink_domain = 1;
  const cluster::Cluster cluster = Build(spec);
  for (const char* control : {"ndp", "hpcc", "swift"}) {
    PacketParameters packet;
    packet.congestion_control = control;
    packet.window = 1 << 20;
    packet.paths = 8;
    packet.load_balancing = "adaptive";
    packet.recovery = "selective-repeat";
    std::vector<Begin> begins;
    for (FlightId i = 0; i < 96; ++i) {
      begins.push_back(
          {(i / 32) * kMicrosecond, Make(i, i % 32, (i + 5 * (i / 32) + 3) % 32, 1 << 18, i)});
    }
    const Outcome one = Simulate(cluster, begins, packet);
    for (const int threads : kNumbersOfThreads) {
      ExpectSame(one, Simulate(cluster, begins, packet, false, false, false, threads));
    }
  }
}

// A caller who starts what others' ends let him, as jobs do, at any time of a window.
TEST(PacketThreads, AgreeWhereMessagesWaitForEachOther) {
  const cluster::Cluster cluster = Build("h100-roce-400g", 6, 2);
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  constexpr FlightId kRanks = 24, kSteps = 12;
  const auto run = [&](const char* control, int threads) {
    PacketParameters packet;
    packet.congestion_control = control;
    auto network = Create("packet", {.packet = packet});
    EXPECT_TRUE((*network)->SetupLinks(cluster, owner, 0).ok());
    (*network)->UseThreads(threads, true);
    // Rank r sends step s on when it has the step before; every third ring is slower.
    const auto transfer = [&](FlightId id) {
      const std::size_t rank = id % kRanks, gpu = rank * 2 % cluster.devices();
      return Make(id, gpu, (gpu + 10) % cluster.devices(), 20'000 + 7'000 * (id % 3), rank);
    };
    std::vector<SimTime> ends(std::size_t{kRanks} * kSteps);
    std::vector<Transfer> batch;
    for (FlightId r = 0; r < kRanks; ++r) batch.push_back(transfer(r));
    (*network)->Start(0, batch);
    std::vector<Completion> done;
    while ((*network)->next_time() < kNever) {
      done.clear();
      const SimTime now = (*network)->AdvanceUntil((*network)->next_time(), &done);
      batch.clear();
      for (const Completion& c : done) {
        ends[c.id] = c.time;
        const FlightId next = c.id + kRanks + (c.id % kRanks + 1 < kRanks ? 1 : 1 - kRanks);
        if (next < ends.size()) batch.push_back(transfer(next));
      }
      if (!batch.empty()) (*network)->Start(now, batch);
    }
    EXPECT_EQ((*network)->packet_counts()->windows > 0, threads > 1);
    return std::pair(ends, (*network)->packet_counts()->hops);
  };
  for (const char* control : {"swift", "ndp", "nscc", "hpcc", "timely"}) {
    const auto one = run(control, 1);
    EXPECT_EQ(std::ranges::count(one.first, 0), 0) << control;
    for (const int threads : kNumbersOfThreads) EXPECT_EQ(run(control, threads), one) << control;
  }
}

// Where switches have to be seen into, or logs are kept, there is one thread.
TEST(PacketThreads, AreNotTakenWhereTheyCannotBe) {
  const cluster::Cluster cluster = Build("h100-roce-400g", 4, 2);
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  const auto threads = [&](const char* control, bool queues) {
    PacketParameters packet;
    packet.congestion_control = control;
    auto network = Create("packet", {.packet = packet});
    EXPECT_TRUE((*network)->SetupLinks(cluster, owner, 0).ok());
    if (queues) (*network)->KeepQueueLog(64);
    return (*network)->UseThreads(3);
  };
  EXPECT_EQ(threads("swift", false), 3);
  EXPECT_EQ(threads("swift", true), 1);
  EXPECT_EQ(threads("none", false), 1);  // lanes
}

}  // namespace
}  // namespace orrery::network::packet
