#include "orrery/network/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "orrery/base/rng.h"

namespace orrery::network {
namespace {

using Load = MaxMin::Load;
constexpr std::uint32_t kWhole = MaxMin::kWhole;
constexpr std::int64_t kFine = MaxMin::kFine;

struct TestFlow {
  std::vector<Load> loads;
  std::uint32_t weight = 1;
  std::int64_t cap_Bps = 0;
  std::uint32_t members = 0;
  std::uint32_t id = MaxMin::kNone;  // of the solvers, from when it first has members
};

// The rule, word for word, on every member by itself: in each stage the level of every link and cap
// is computed, the least one found, and all that have it freeze from the residuals before the
// stage.
std::vector<std::int64_t> BruteForce(const std::vector<std::int64_t>& capacity_Bps,
                                     const std::vector<TestFlow>& flows) {
  std::vector<std::int64_t> level(flows.size(), -1);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    if (flows[f].members == 0) level[f] = 0;
  }
  for (;;) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> of_link(capacity_Bps.size(), least);
    for (std::size_t l = 0; l < capacity_Bps.size(); ++l) {
      std::int64_t residual = capacity_Bps[l] * kWhole * kFine, weight = 0;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        for (const Load& load : flows[f].loads) {
          if (load.link != l) continue;
          const std::int64_t w = std::int64_t{load.share} * flows[f].weight * flows[f].members;
          if (level[f] < 0) {
            weight += w;
          } else {
            residual -= w * level[f];
          }
        }
      }
      if (weight > 0) least = std::min(least, of_link[l] = residual / weight);
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (level[f] < 0 && flows[f].cap_Bps > 0) {
        least = std::min(least, flows[f].cap_Bps * kFine / flows[f].weight);
      }
    }
    if (least == std::numeric_limits<std::int64_t>::max()) return level;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (level[f] >= 0) continue;
      bool frozen = flows[f].cap_Bps > 0 && flows[f].cap_Bps * kFine / flows[f].weight == least;
      for (const Load& load : flows[f].loads) frozen |= of_link[load.link] == least;
      if (frozen) level[f] = least;
    }
  }
}

// Real-valued max-min, plain weights.
std::vector<double> RealMaxMin(const std::vector<std::int64_t>& capacity_Bps,
                               const std::vector<TestFlow>& flows) {
  std::vector<double> level(flows.size(), -1);
  for (;;) {
    double least = std::numeric_limits<double>::infinity();
    std::vector<double> of_link(capacity_Bps.size(), least);
    for (std::size_t l = 0; l < capacity_Bps.size(); ++l) {
      double residual = static_cast<double>(capacity_Bps[l]), weight = 0;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        for (const Load& load : flows[f].loads) {
          if (load.link != l) continue;
          if (level[f] < 0) {
            weight += flows[f].members;
          } else {
            residual -= level[f] * flows[f].members;
          }
        }
      }
      if (weight > 0) least = std::min(least, of_link[l] = residual / weight);
    }
    if (std::isinf(least)) return level;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      for (const Load& load : flows[f].loads) {
        if (level[f] < 0 && of_link[load.link] <= least * (1 + 1e-12)) level[f] = least;
      }
    }
  }
}

struct Network {
  std::vector<std::int64_t> capacity_Bps;
  std::vector<TestFlow> flows;
};

// Small capacities make ties and rounding frequent, large ones are like real links.
Network Draw(CounterRng* rng, bool plain) {
  Network n;
  const bool small = rng->Below(2) == 0;
  n.capacity_Bps.resize(1 + rng->Below(8));
  for (std::int64_t& c : n.capacity_Bps) {
    c = 1 + static_cast<std::int64_t>(small ? rng->Below(40) : rng->Below(50'000'000'000));
  }
  n.flows.resize(1 + rng->Below(12));
  for (TestFlow& f : n.flows) {
    for (std::uint32_t l = 0; l < n.capacity_Bps.size(); ++l) {
      if (rng->Below(3) != 0) continue;
      const std::uint32_t shares[] = {kWhole, kWhole, 2 * kWhole, 3 * kWhole, 1072, 700};
      f.loads.push_back({l, plain ? kWhole : shares[rng->Below(6)]});
    }
    if (f.loads.empty()) {
      f.loads.push_back({static_cast<std::uint32_t>(rng->Below(n.capacity_Bps.size())), kWhole});
    }
    if (plain) continue;
    if (rng->Below(4) == 0) f.weight = 1 + static_cast<std::uint32_t>(rng->Below(4));
    if (rng->Below(4) == 0) {
      f.cap_Bps = f.weight + static_cast<std::int64_t>(rng->Below(small ? 20 : 20'000'000'000));
    }
  }
  return n;
}

void Change(CounterRng* rng, Network* n, MaxMin* a, MaxMin* b) {
  if (rng->Below(10) == 0) {
    const auto l = static_cast<std::uint32_t>(rng->Below(n->capacity_Bps.size()));
    n->capacity_Bps[l] = 1 + n->capacity_Bps[l] / 2 + static_cast<std::int64_t>(rng->Below(20));
    if (rng->Below(5) == 0) n->capacity_Bps[l] = 0;  // down
    a->SetCapacity(l, n->capacity_Bps[l]);
    b->SetCapacity(l, n->capacity_Bps[l]);
    return;
  }
  const auto f = static_cast<std::uint32_t>(rng->Below(n->flows.size()));
  std::int32_t count = 1 + static_cast<std::int32_t>(rng->Below(3));
  if (rng->Below(2) == 0) {
    count = -std::min(count, static_cast<std::int32_t>(n->flows[f].members));
    if (count == 0) return;
  }
  TestFlow& flow = n->flows[f];
  if (flow.id == MaxMin::kNone) {
    flow.id = a->AddClass(flow.loads, flow.weight, flow.cap_Bps);
    EXPECT_EQ(b->AddClass(flow.loads, flow.weight, flow.cap_Bps), flow.id);
  }
  flow.members += static_cast<std::uint32_t>(count);
  a->AddMembers(flow.id, count);
  b->AddMembers(flow.id, count);
}

TEST(MaxMin, SharesOneLinkByWeight) {
  // 100 byte/s over weights 1 and 2, in 256ths: level floor(25600 / 3) = 8533, rates 8533, 17066.
  const std::int64_t capacity[] = {100};
  MaxMin m;
  m.Setup(capacity);
  const Load load{0, kWhole};
  m.AddClass({&load, 1}, 1, 0);
  m.AddClass({&load, 1}, 2, 0);
  m.AddMembers(0, 1);
  m.AddMembers(1, 1);
  MaxMin::Changes changed;
  m.Solve(&changed);
  EXPECT_EQ(m.rate(0), 8533);
  EXPECT_EQ(m.rate(1), 17066);
}

TEST(MaxMin, LinksOfOneLevelFreezeTogether) {
  // Links of 2 byte/s. Link 0 carries a twice and b, link 1 a three times: both have the level
  // floor(512 / 3) = 170, so both freeze from the residuals before, and b does not get the 172 that
  // a would leave it.
  const std::int64_t capacity[] = {2, 2};
  MaxMin m;
  m.Setup(capacity);
  const Load a[] = {{0, 2 * kWhole}, {1, 3 * kWhole}}, b{0, kWhole};
  m.AddClass(a, 1, 0);
  m.AddClass({&b, 1}, 1, 0);
  m.AddMembers(0, 1);
  MaxMin::Changes changed;
  m.Solve(&changed);  // a alone: 170, by link 1
  EXPECT_EQ(m.level(0), 170);
  m.AddMembers(1, 1);
  m.Solve(&changed);
  EXPECT_EQ(m.level(0), 170);
  EXPECT_EQ(m.level(1), 170);
}

// Four flows over links of 3 and 10 byte/s, a fifth over the second: 3/4 each and 7. In whole
// byte/s the four would get nothing and the fifth 10.
TEST(MaxMin, SharesOfLessThanAByte) {
  const std::int64_t capacity[] = {3, 10};
  MaxMin m;
  m.Setup(capacity);
  const Load both[] = {{0, kWhole}, {1, kWhole}};
  m.AddClass(both, 1, 0);
  m.AddClass({both + 1, 1}, 1, 0);
  m.AddMembers(0, 4);
  m.AddMembers(1, 1);
  MaxMin::Changes changed;
  m.Solve(&changed);
  EXPECT_EQ(m.rate(0), 3 * kFine / 4);
  EXPECT_EQ(m.rate(1), 7 * kFine);
}

TEST(MaxMin, AFlowTwiceOnALinkTakesTwice) {
  // 90 = 2x + x: both get 30, the first uses 60.
  const std::int64_t capacity[] = {90};
  MaxMin m;
  m.Setup(capacity);
  const Load twice{0, 2 * kWhole}, once{0, kWhole};
  m.AddClass({&twice, 1}, 1, 0);
  m.AddClass({&once, 1}, 1, 0);
  m.AddMembers(0, 1);
  m.AddMembers(1, 1);
  MaxMin::Changes changed;
  m.Solve(&changed);
  EXPECT_EQ(m.rate(0), 30 * kFine);
  EXPECT_EQ(m.rate(1), 30 * kFine);
}

// A thousand flows share one link, each behind a link of its own. Another comes to the shared link:
// all get a 1,001st of it, and nothing is looked at but that link's level and the class that came.
TEST(MaxMin, ALevelChangesForAllClassesAtOnce) {
  constexpr std::uint32_t kFlows = 1000;
  const std::vector<std::int64_t> capacity(kFlows + 2, 50'000'000'000);
  MaxMin m;
  m.Setup(capacity);
  for (std::uint32_t f = 0; f <= kFlows; ++f) {
    const Load loads[] = {{0, kWhole}, {f + 1, kWhole}};
    m.AddClass(loads, 1, 0);
    if (f < kFlows) m.AddMembers(f, 1);
  }
  MaxMin::Changes changed;
  m.Solve(&changed);
  EXPECT_EQ(m.level(0), 50'000'000'000 * kFine / kFlows);
  EXPECT_EQ(changed.moved.size(), kFlows);
  changed.clear();
  m.AddMembers(kFlows, 1);
  m.Solve(&changed);
  EXPECT_EQ(changed.bottlenecks, std::vector<std::uint32_t>{0});
  EXPECT_EQ(changed.moved, std::vector<std::uint32_t>{kFlows});
  for (std::uint32_t f = 0; f <= kFlows; ++f) {
    EXPECT_EQ(m.level(f), 50'000'000'000 * kFine / (kFlows + 1));
  }
}

// 100,000 problems, each changed a dozen times: incremental, full and brute force agree exactly.
TEST(MaxMin, EqualsBruteForceOnRandomProblems) {
  std::uint64_t solves = 0;
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    CounterRng rng(seed);
    Network n = Draw(&rng, false);
    MaxMin incremental, full;
    full.set_always_full(true);
    for (MaxMin* m : {&incremental, &full}) {
      m->Setup(n.capacity_Bps);
      m->set_always_full(m == &full);
    }
    for (int step = 0; step < 12; ++step) {
      for (std::uint64_t c = 1 + rng.Below(3); c > 0; --c) Change(&rng, &n, &incremental, &full);
      MaxMin::Changes changed;
      incremental.Solve(&changed);
      full.Solve(&changed);
      ++solves;
      const auto expected = BruteForce(n.capacity_Bps, n.flows);
      for (std::uint32_t f = 0; f < n.flows.size(); ++f) {
        const std::uint32_t id = n.flows[f].id;
        if (id == MaxMin::kNone) continue;
        ASSERT_EQ(incremental.level(id), expected[f]) << "seed " << seed << " step " << step;
        ASSERT_EQ(full.level(id), expected[f]) << "seed " << seed << " step " << step;
      }
    }
  }
  EXPECT_EQ(solves, 1'200'000u);
}

// A stage's floor leaves less than 1/256 byte/s for every flow on a link, and a later flow there
// may get it all: so a level is off by at most that for every flow on every link, which is far
// within 1 byte/s a link.
TEST(MaxMin, IsWithinAByteALinkOfRealValues) {
  double worst = 0;  // in byte/s a link
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    CounterRng rng(seed + 1'000'000);
    Network n = Draw(&rng, true);
    MaxMin m;
    m.Setup(n.capacity_Bps);
    std::size_t loads = 0;
    for (std::uint32_t f = 0; f < n.flows.size(); ++f) {
      n.flows[f].members = 1;
      loads += n.flows[f].loads.size();
      m.AddClass(n.flows[f].loads, 1, 0);
      m.AddMembers(f, 1);
    }
    MaxMin::Changes changed;
    m.Solve(&changed);
    const auto real = RealMaxMin(n.capacity_Bps, n.flows);
    const auto links = static_cast<double>(n.capacity_Bps.size());
    for (std::uint32_t f = 0; f < n.flows.size(); ++f) {
      const double off = std::abs(static_cast<double>(m.level(f)) / kFine - real[f]);
      ASSERT_LE(off, static_cast<double>(loads) / kFine + 1e-12 * real[f]) << "seed " << seed;
      ASSERT_LE(off, links) << "seed " << seed;
      worst = std::max(worst, off / links);
    }
  }
  std::printf("worst %.4f byte/s a link\n", worst);
}

// Larger networks of many flows, so that the disturbed set is a small part, and links have been
// covered and loose: incremental against full.
TEST(MaxMin, IncrementalEqualsFullOnLargeNetworks) {
  MaxMin::Counters all;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CounterRng rng(seed + 77);
    const bool ties = seed % 3 == 0;  // small capacities: many levels within rounding of each other
    std::vector<std::int64_t> capacity(600);
    for (std::int64_t& c : capacity) {
      c = ties ? 20 + static_cast<std::int64_t>(rng.Below(60)) : 50'000'000'000 >> rng.Below(3);
    }
    MaxMin a, b;
    a.Setup(capacity);
    b.Setup(capacity);
    b.set_always_full(true);
    constexpr std::uint32_t kFlows = 1500;
    std::vector<std::vector<Load>> loads(kFlows);
    std::vector<bool> on(kFlows, false);
    for (std::vector<Load>& of_flow : loads) {
      const std::uint64_t hops = seed % 2 == 0 ? 4 : 2;
      for (std::uint64_t h = 0; h < hops; ++h) {
        of_flow.push_back(
            {static_cast<std::uint32_t>(rng.Below(600 / hops) + h * (600 / hops)), kWhole});
      }
    }
    std::vector<std::uint32_t> id(kFlows, MaxMin::kNone);  // from when it first comes
    MaxMin::Changes changed;
    for (int step = 0; step < 800; ++step) {
      for (std::uint64_t c = step == 0 ? 1000 : 1 + rng.Below(2); c > 0; --c) {
        const auto f = static_cast<std::uint32_t>(rng.Below(kFlows));
        on[f] = !on[f];
        if (id[f] == MaxMin::kNone) {
          id[f] = a.AddClass(loads[f], 1, 0);
          ASSERT_EQ(b.AddClass(loads[f], 1, 0), id[f]);
        }
        a.AddMembers(id[f], on[f] ? 1 : -1);
        b.AddMembers(id[f], on[f] ? 1 : -1);
      }
      a.Solve(&changed);
      b.Solve(&changed);
      for (std::uint32_t f = 0; f < kFlows; ++f) {
        if (id[f] == MaxMin::kNone) continue;
        ASSERT_EQ(a.level(id[f]), b.level(id[f]))
            << "seed " << seed << " step " << step << " flow " << f;
      }
    }
    all.loosened += a.counters().loosened;
    all.tightened += a.counters().tightened;
    all.uncovered += a.counters().uncovered;
    EXPECT_EQ(b.counters().loosened, 0u);
  }
  EXPECT_GT(all.loosened, 200u);
  EXPECT_GT(all.tightened, 100u);
  EXPECT_GT(all.uncovered, 100u);
}

}  // namespace
}  // namespace orrery::network
