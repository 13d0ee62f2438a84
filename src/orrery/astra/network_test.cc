#include "orrery/astra/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "orrery/astra/memory_bus.h"

namespace orrery::astra {
namespace {

NetworkConfig RingOf(int npus, double bandwidth, double latency) {
  NetworkConfig config;
  config.dimensions = {
      {.shape = Shape::kRing, .npus = npus, .bandwidth = bandwidth, .latency = latency}};
  return config;
}

TEST(AstraNetwork, UnawareTakesTheRingsShorterWay) {
  const Network network(RingOf(8, 2, 100));
  EXPECT_EQ(network.Delay(0, 3, 1001), 3 * 100 + 500);  // cut to whole ns
  EXPECT_EQ(network.Delay(0, 7, 1000), 100 + 500);
}

// 64 hops of 10^18 ns do not fit a time: such a message arrives after the end of every run, not at
// once.
TEST(AstraNetwork, TimesBeyondAnyRunStayBeyondIt) {
  const Network far(RingOf(128, 50, 1e18));
  EXPECT_GT(far.Delay(0, 64, 1), kLatest);
  const Network slow(RingOf(2, 1e-9, 0));
  EXPECT_GT(slow.Delay(0, 1, std::uint64_t{1} << 50), kLatest);
  EXPECT_EQ(WholeTicks(1.9), 1);
  EXPECT_EQ(WholeTicks(-0.5), 0);
}

// The same on the memory bus, where a movement was delivered at once.
TEST(MemoryBus, ASlowBusIsSlow) {
  Tick longest = 0;
  MemoryBus bus({.shared = true, .G = 1e18},
                {.now = [] { return Tick{0}; },
                 .schedule = [&](Tick delay, std::uint8_t,
                                 MemoryBus::Step) { longest = std::max(longest, delay); },
                 .done = [](const MemoryBus::Delivery&) {}});
  bus.Move(false, {.bytes = 1 << 20}, false);
  EXPECT_GT(longest, kLatest);
}

}  // namespace
}  // namespace orrery::astra
