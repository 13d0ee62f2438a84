#include "orrery/engine/general/matching.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "orrery/base/rng.h"

namespace orrery::engine::general {
namespace {

constexpr std::uint32_t kRanks = 3;

// MPI's rule, searched through from the first item on.
struct Naive {
  std::array<std::vector<Matching::Item>, kRanks> waiting[2];

  bool Meet(std::uint32_t rank, const Matching::Item& item, bool message, Matching::Item* met) {
    auto& others = waiting[message ? 0 : 1][rank];
    const auto fits = [](std::uint32_t a, std::uint32_t b) {
      return a == b || a == Matching::kAny || b == Matching::kAny;
    };
    for (auto it = others.begin(); it != others.end(); ++it) {
      if (!fits(it->source, item.source) || !fits(it->tag, item.tag)) continue;
      *met = *it;
      others.erase(it);
      return true;
    }
    waiting[message ? 1 : 0][rank].push_back(item);
    return false;
  }
};

// Rank 2 has wildcards. Bursts of receives, then of messages in another order of tags, so that
// searches go past the first items.
TEST(Matching, AgreesWithASearchFromTheFirst) {
  Matching matching({false, false, true});
  Naive naive;
  CounterRng rng(11);
  std::uint32_t node = 0;
  int met_in_all = 0;
  for (int burst = 0; burst < 400; ++burst) {
    const bool message = rng.Below(2) == 0;
    const auto rank = static_cast<std::uint32_t>(rng.Below(kRanks));
    const auto tags = 1 + rng.Below(40);
    for (int i = 0; i < 60; ++i) {
      Matching::Item item{.ready = node,
                          .node = node,
                          .source = static_cast<std::uint32_t>(rng.Below(2)),
                          .tag = static_cast<std::uint32_t>(rng.Below(tags))};
      ++node;
      if (rank == 2 && !message && rng.Below(3) == 0) item.source = Matching::kAny;
      if (rank == 2 && !message && rng.Below(3) == 0) item.tag = Matching::kAny;
      Matching::Item a, b;
      const bool expected = naive.Meet(rank, item, message, &a);
      const bool met =
          message ? matching.Message(rank, item, &b) : matching.Receive(rank, item, &b);
      ASSERT_EQ(met, expected) << node;
      if (!met) continue;
      ++met_in_all;
      ASSERT_EQ(a.node, b.node);
      ASSERT_EQ(a.source, b.source);
      ASSERT_EQ(a.tag, b.tag);
    }
  }
  EXPECT_GT(met_in_all, 1000);
  Matching::Left left;
  ASSERT_TRUE(matching.FirstLeft(&left));
  for (std::uint32_t rank = 0; rank < left.rank; ++rank) {
    EXPECT_TRUE(naive.waiting[0][rank].empty() && naive.waiting[1][rank].empty());
  }
  EXPECT_EQ(left.item.node, naive.waiting[left.message ? 1 : 0][left.rank].front().node);
}

TEST(Matching, AnItemThatWaitsIsFoundWithItsMeeting) {
  Matching matching({false});
  Matching::Item met;
  EXPECT_FALSE(matching.Receive(0, {.node = 3, .source = 0, .tag = 1}, &met));
  matching.left_waiting().set_meeting(17);
  ASSERT_TRUE(matching.Message(0, {.node = 4, .source = 0, .tag = 1}, &met));
  ASSERT_TRUE(met.has_meeting());
  EXPECT_EQ(met.meeting(), 17u);
  Matching::Left left;
  EXPECT_FALSE(matching.FirstLeft(&left));
}

}  // namespace
}  // namespace orrery::engine::general
