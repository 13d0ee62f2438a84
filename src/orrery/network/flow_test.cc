#include "orrery/network/flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "orrery/base/rng.h"

namespace orrery::network {
namespace {

cluster::Cluster Build(std::string_view preset, int nodes, int nodes_per_leaf = 0,
                       double oversubscription = 1) {
  auto spec = cluster::FindPreset(preset);
  EXPECT_TRUE(spec.ok());
  spec->nodes = nodes;
  if (nodes_per_leaf > 0) spec->nodes_per_leaf = nodes_per_leaf;
  spec->oversubscription = oversubscription;
  auto cluster = cluster::Cluster::Build(*spec);
  EXPECT_TRUE(cluster.ok());
  return std::move(*cluster);
}

struct Begin {
  SimTime time = 0;
  Transfer transfer;
};

enum class Batches { kOne, kEach, kEachReversed };

std::map<FlightId, SimTime> Simulate(const cluster::Cluster& cluster, std::vector<Begin> begins,
                                     bool full = false, Batches batches = Batches::kOne,
                                     MaxMin::Counters* counters = nullptr,
                                     std::size_t log_steps = 0) {
  Flow network;
  EXPECT_TRUE(network.SetupLinks(cluster, {}, 0).ok());
  if (log_steps > 0) network.KeepUseLog(log_steps);
  network.set_always_full(full);
  if (batches == Batches::kEachReversed) std::reverse(begins.begin(), begins.end());
  std::stable_sort(begins.begin(), begins.end(),
                   [](const Begin& a, const Begin& b) { return a.time < b.time; });
  std::map<FlightId, SimTime> ends;
  std::vector<Completion> done;
  std::size_t next = 0;
  for (;;) {
    const SimTime start = next == begins.size() ? kNever : begins[next].time;
    const SimTime until = std::min(start, network.next_time());
    if (until == kNever) break;
    done.clear();
    network.AdvanceUntil(until, &done);
    for (const Completion& c : done) EXPECT_TRUE(ends.emplace(c.id, c.time).second);
    if (start > until) continue;
    std::vector<Transfer> batch;
    for (; next < begins.size() && begins[next].time == start; ++next) {
      batch.push_back(begins[next].transfer);
      if (batches == Batches::kOne) continue;
      network.Start(start, batch);
      (void)network.next_time();
      batch.clear();
    }
    network.Start(start, batch);
  }
  if (counters != nullptr) *counters = network.counters();
  return ends;
}

Transfer Make(FlightId id, std::size_t from, std::size_t to, std::int64_t bytes,
              std::uint64_t salt = 0) {
  return {id, DeviceId(from), DeviceId(to), bytes, 0, salt};
}

TEST(Flow, AloneATransferTakesItsUncontendedTime) {
  for (const char* preset : {"h100-ib-400g", "a100-80g-roce-200g", "gb200-nvl72-ib-400g"}) {
    const cluster::Cluster cluster = Build(preset, 40, 4);
    CounterRng rng(5);
    for (int i = 0; i < 300; ++i) {
      const Transfer t =
          Make(0, rng.Below(cluster.devices()), rng.Below(cluster.devices()),
               static_cast<std::int64_t>(rng.Below(1ULL << (1 + rng.Below(34)))), rng.Next());
      const auto ends = Simulate(cluster, {{1000, t}});
      EXPECT_EQ(ends.at(0), 1000 + Uncontended(cluster, t)) << preset << " " << t.bytes;
    }
  }
}

// GPUs 1 and 2 of node 0 send over NVLink to GPU 0: its way in is shared. B wire bytes each at half
// of the rate, both from after half of the fixed time: the end is fixed + 2 B / rate.
TEST(Flow, TwoShareOneLink) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 1);
  const std::int64_t rate = cluster.links()[cluster.nvlink_in(DeviceId(0)).index()].bandwidth_Bps;
  const Transfer t = Make(0, 1, 0, 1 << 20);
  const cluster::Spec& spec = cluster.spec();
  const std::int64_t wire =
      (1 << 20) + (1 << 20) / spec.nvlink_packet_bytes * spec.nvlink_header_bytes;
  const SimTime fixed = Uncontended(cluster, t) - TransferTime(wire, rate);
  const auto ends = Simulate(cluster, {{0, t}, {0, Make(1, 2, 0, 1 << 20)}});
  EXPECT_EQ(ends.at(0), fixed + TransferTime(wire, rate / 2));
  EXPECT_EQ(ends.at(1), ends.at(0));
}

// As above, but the second one comes when half of the first has gone: the first has B/2 left at
// half of the rate (end 1.5 B/rate), the second then has half of its bytes left and the whole rate:
// 2 B/rate.
TEST(Flow, ALaterFlowSlowsTheEarlierOne) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 1);
  const std::int64_t rate = cluster.links()[cluster.nvlink_in(DeviceId(0)).index()].bandwidth_Bps;
  const Transfer t = Make(0, 1, 0, 64 << 20);
  const SimTime alone = Uncontended(cluster, t);
  const cluster::Spec& spec = cluster.spec();
  const std::int64_t wire =
      (64 << 20) + (64 << 20) / spec.nvlink_packet_bytes * spec.nvlink_header_bytes;
  const SimTime whole = TransferTime(wire, rate);
  const auto ends = Simulate(cluster, {{0, t}, {whole / 2, Make(1, 2, 0, 64 << 20)}});
  EXPECT_NEAR(static_cast<double>(ends.at(0)), static_cast<double>(alone + whole / 2), 3);
  EXPECT_NEAR(static_cast<double>(ends.at(1)), static_cast<double>(alone + whole), 3);
}

// Flows of one class end by their bytes, each as if it stood alone in the count.
TEST(Flow, EqualFlowsAreOneClass) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 2);
  std::vector<Begin> begins;
  for (FlightId i = 0; i < 100; ++i) begins.push_back({0, Make(i, 0, 8, 1000 * (1 + i % 10))});
  MaxMin::Counters counters;
  const auto ends = Simulate(cluster, begins, false, Batches::kOne, &counters);
  for (FlightId i = 10; i < 100; ++i) EXPECT_EQ(ends.at(i), ends.at(i - 10));
  for (FlightId i = 1; i < 10; ++i) EXPECT_GT(ends.at(i), ends.at(i - 1));
  // Wire bytes and heads differ by size, so do the instants: ten starts and ten ends at most.
  EXPECT_LE(counters.solves, 20u);
}

// Random traffic on an oversubscribed fabric: the incremental solver gives what the full one gives,
// to the picosecond, and neither batches nor their order matter.
TEST(Flow, IncrementalEqualsFullToThePicosecond) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const cluster::Cluster cluster = Build("h100-ib-400g", 16, 4, 1 << (seed % 3));
    CounterRng rng(seed);
    std::vector<Begin> begins;
    const std::uint64_t instants = 1 + rng.Below(60);
    for (FlightId i = 0; i < 400; ++i) {
      begins.push_back(
          {static_cast<SimTime>(rng.Below(instants)) * 5 * kMicrosecond,
           Make(i, rng.Below(128), rng.Below(128),
                static_cast<std::int64_t>(rng.Below(1ULL << (8 + rng.Below(18)))), rng.Below(4))});
    }
    const auto expected = Simulate(cluster, begins, true);
    EXPECT_EQ(expected.size(), 400u);
    EXPECT_EQ(Simulate(cluster, begins), expected);
    EXPECT_EQ(Simulate(cluster, begins, false, Batches::kEach), expected);
    EXPECT_EQ(Simulate(cluster, begins, true, Batches::kEachReversed), expected);
    for (const Begin& b : begins) {
      EXPECT_GE(expected.at(b.transfer.id), b.time + Uncontended(cluster, b.transfer));
    }
  }
}

TEST(Flow, ALogOfUseChangesNoEnd) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 8, 4);
  // Alone on their links, sharing them, and one after another.
  const std::vector<Begin> begins = {{0, Make(0, 0, 1, 1 << 20)},
                                     {0, Make(1, 8, 16, 3 << 20)},
                                     {1000, Make(2, 8, 24, 1 << 20)},
                                     {90'000'000, Make(3, 0, 1, 1 << 20)}};
  EXPECT_EQ(Simulate(cluster, begins, false, Batches::kOne, nullptr, 64),
            Simulate(cluster, begins));
}

// Three messages of one connection, one of another between the same GPUs. Two connections share the
// link: B each, then the first one's second and third alone. Of w = B/rate: the first and the other
// end at 2w, the second at 3w, the short third behind it and not before.
TEST(Flow, MessagesOfAConnectionGoInOrder) {
  const cluster::Cluster cluster = Build("h100-ib-400g", 1);
  const std::int64_t rate = cluster.links()[cluster.nvlink_in(DeviceId(0)).index()].bandwidth_Bps;
  const cluster::Spec& spec = cluster.spec();
  const std::int64_t wire =
      (64 << 20) + (64 << 20) / spec.nvlink_packet_bytes * spec.nvlink_header_bytes;
  std::vector<Begin> begins;
  for (FlightId i = 0; i < 3; ++i) {
    begins.push_back({0, Make(i, 1, 0, i == 2 ? 0 : 64 << 20)});
    begins.back().transfer.connection = 7;
  }
  begins.push_back({0, Make(3, 1, 0, 64 << 20)});
  const Transfer& first = begins[0].transfer;
  const SimTime fixed = Uncontended(cluster, first) - TransferTime(wire, rate);
  const auto near = [&](SimTime end, double times) {
    EXPECT_NEAR(static_cast<double>(end - fixed), times * static_cast<double>(wire) / rate * 1e12,
                9);
  };
  const auto ends = Simulate(cluster, begins);
  near(ends.at(0), 2);
  near(ends.at(3), 2);
  near(ends.at(1), 3);
  EXPECT_GE(ends.at(2), ends.at(1));
  EXPECT_LT(ends.at(2), ends.at(1) + kMicrosecond);
  EXPECT_EQ(Simulate(cluster, begins, true), ends);
  EXPECT_EQ(Simulate(cluster, begins, false, Batches::kEach), ends);
}

TEST(Flow, AFluidMovesUnderItsCap) {
  // 1,000,000 bytes at most 1 GB/s: 1 ms, plus 10 before and 20 after.
  const cluster::Cluster cluster = Build("h100-ib-400g", 1);
  Flow network;
  ASSERT_TRUE(network.SetupLinks(cluster, {}, 0).ok());
  const LinkLoad loads[] = {{cluster.nvlink_out(DeviceId(0)), 1024}};
  const LinkFluid fluid{7, 10, 20, 1'000'000, 1, 1'000'000'000, 0, 1};
  network.Start(100, {&fluid, 1}, loads);
  std::vector<Completion> done;
  const SimTime end = 100 + 10 + kMillisecond + 20;
  EXPECT_EQ(network.AdvanceUntil(end + 5, &done), end);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, 7u);
  const PortStatistics use = network.statistics()[cluster.nvlink_out(DeviceId(0)).index()];
  EXPECT_EQ(use.bytes, 1'000'000);
  EXPECT_EQ(use.busy, kMillisecond);
}

TEST(Flow, ALinkMayChangeItsCapacity) {
  // 2,000,000 bytes at 2 GB/s until the link falls to 1 GB/s at t: what is left then takes its
  // time at the new rate.
  const cluster::Cluster cluster = Build("h100-ib-400g", 1);
  Flow network;
  ASSERT_TRUE(network.SetupLinks(cluster, {}, 0).ok());
  const LinkId link = cluster.nvlink_out(DeviceId(0));
  const LinkLoad loads[] = {{link, 1024}};
  const LinkFluid fluid{0, 0, 0, 2'000'000, 1, 2'000'000'000, 0, 1};
  network.Start(0, {&fluid, 1}, loads);
  std::vector<Completion> done;
  network.AdvanceUntil(kMillisecond / 2, &done);  // 1,000,000 bytes have gone
  network.SetCapacity(kMillisecond / 2, link, 1'000'000'000);
  EXPECT_EQ(network.AdvanceUntil(kNever - 1, &done), kMillisecond / 2 + kMillisecond);
}

}  // namespace
}  // namespace orrery::network
