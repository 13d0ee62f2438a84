// Themis's rule as its paper states it (Rashidi et al., ISCA'22, section 4): a chunk's
// reduce-scatter visits the dimensions from the least to the most loaded, unless loads differ by
// less than a sixteenth of a chunk takes over the least loaded one: then in the network's order. A
// chunk of S bytes loads a dimension of n NPUs with S · (n - 1)/n over its bandwidth, and goes on
// as S / n. Its all-gather goes the way back.
#include "orrery/astra/greedy.h"

#include <gtest/gtest.h>

namespace orrery::astra {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
using Order = std::vector<int>;

NetworkConfig NetworkOf(const std::vector<int>& npus, const std::vector<double>& bandwidths) {
  NetworkConfig network;
  for (std::size_t d = 0; d < npus.size(); ++d) {
    Dimension dimension;
    dimension.npus = npus[d];
    dimension.bandwidth_gb = bandwidths[d];
    network.dimensions.push_back(dimension);
  }
  return network;
}
// The orders of a reduce-scatter's (or all-reduce's) chunks of 1 MiB.
std::vector<Order> Orders(GreedyScheduler* scheduler, std::uint64_t chunks,
                          unsigned involved = 0xFF,
                          Collective collective = Collective::kAllReduce) {
  std::vector<Order> orders;
  for (std::uint64_t c = 0; c < chunks; ++c) {
    orders.push_back(
        scheduler->Next(c, (chunks - c) * kMiB, kMiB, involved, false, collective).order);
  }
  return orders;
}

// The paper's example: 4 × 4 NPUs, the first dimension twice as fast. In units of 1 MiB over the
// first, a chunk that begins there loads it with 3/4, and the second with 1/4 · 3/4 · 2 = 3/8; one
// that begins in the second loads that with 3/4 · 2 = 3/2, and the first with 3/16.
//   chunk 0: 0, 0         even: 0 1     -> 0.75, 0.375
//   chunk 1: gap 0.375    1 0           -> 0.9375, 1.875
//   chunk 2: gap 0.9375   0 1           -> 1.6875, 2.25
//   chunk 3: gap 0.5625   0 1           -> 2.4375, 2.625
//   chunk 4: gap 0.1875   0 1           -> 3.1875, 3.0
//   chunk 5: gap 0.1875   1 0           -> 3.375, 4.5
TEST(Themis, BeginsWhereLeastIsToDo) {
  GreedyScheduler scheduler(NetworkOf({4, 4}, {100, 50}), 1);
  EXPECT_EQ(Orders(&scheduler, 6),
            (std::vector<Order>{{0, 1}, {1, 0}, {0, 1}, {0, 1}, {0, 1}, {1, 0}}));
}

// The threshold is a sixteenth of a chunk over the least loaded dimension. 4 × 4, of speeds 1 and
// 1/3.9: chunk 0 loads 0.75 and 1/4 · 3/4 · 3.9 = 0.73125. The gap of 0.01875 is what 0.0064 of a
// chunk takes over the second, below a sixteenth: chunk 1 takes the network's order.
// With speeds 1 and 1/3.5: 0.75 and 0.65625; the gap is 0.0357 of a chunk, below it, too. With 1
// and 1/3: 0.75 and 0.5625; 0.083 of a chunk: chunk 1 begins in the second.
TEST(Themis, EvenLoadsTakeTheNetworksOrder) {
  for (const auto& [slower, order] :
       std::vector<std::pair<double, Order>>{{3.9, {0, 1}}, {3.5, {0, 1}}, {3, {1, 0}}}) {
    GreedyScheduler scheduler(NetworkOf({4, 4}, {100, 100 / slower}), 1);
    EXPECT_EQ(Orders(&scheduler, 2)[1], order) << slower;
  }
}

// Three dimensions of 2, 4 and 8 NPUs, equally fast. Chunk 0 in the network's order loads 1/2, 1/2
// · 3/4 = 0.375 and 1/8 · 7/8 = 0.109. Chunk 1 visits 2, 1, 0: 0.875 more for the last, 1/8 · 3/4 =
// 0.094 for the middle one, 1/32 · 1/2 = 0.016 for the first: 0.516, 0.469, 0.984. Chunk 2: 1,
// 0, 2.
TEST(Themis, OfThreeDimensions) {
  GreedyScheduler scheduler(NetworkOf({2, 4, 8}, {50, 50, 50}), 1);
  EXPECT_EQ(Orders(&scheduler, 3), (std::vector<Order>{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}));
}

// Of a gather, which begins small, the most loaded dimension comes first. 4 × 4, the first twice as
// fast, shares of 1 MiB: chunk 0, from the last dimension to the first, loads the second with 3 · 2
// = 6 and the first with 4 · 3 = 12, so that chunk 1 begins in the first. (ASTRA-sim's code counts
// 3 and 24, with the same order.)
TEST(Themis, AGatherBeginsWhereMostIsToDo) {
  GreedyScheduler scheduler(NetworkOf({4, 4}, {100, 50}), 1);
  EXPECT_EQ(Orders(&scheduler, 2, 0xFF, Collective::kAllGather)[1], (Order{0, 1}));
}

// A dimension that a collective leaves out gets no load: behind two chunks (0.9375, 1.875) two of
// the first dimension alone make it 2.4375, so that the next begins in the second. Had they loaded
// the second, too, it were 2.625. A collective at another time knows no loads.
TEST(Themis, CountsWhatIsInvolved) {
  GreedyScheduler scheduler(NetworkOf({4, 4}, {100, 50}), 1);
  Orders(&scheduler, 2);
  Orders(&scheduler, 2, 0b01);
  EXPECT_EQ(Orders(&scheduler, 1)[0], (Order{1, 0}));
  scheduler.Forget();
  EXPECT_EQ(Orders(&scheduler, 2), (std::vector<Order>{{0, 1}, {1, 0}}));
}

}  // namespace
}  // namespace orrery::astra
