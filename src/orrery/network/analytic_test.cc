#include "orrery/network/analytic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "orrery/base/rng.h"

namespace orrery::network {
namespace {

constexpr std::int64_t kTB = 1'000'000'000'000;  // 1 TB/s moves one byte in one ps

// A problem: fluids with their loads and start times, ports with capacities.
struct Item {
  SimTime start = 0;
  Fluid fluid;
  std::vector<PortLoad> loads;
};
struct Problem {
  std::vector<std::int64_t> capacity_Bps;
  std::vector<Item> items;
};

// Runs a problem; the fluids of one instant start in the order of `items`, in one batch or each in
// its own. Returns the end of each fluid by id.
std::map<FlightId, SimTime> Simulate(const Problem& problem, bool one_batch, bool peek,
                                     std::vector<PortStatistics>* statistics = nullptr) {
  Analytic network;
  EXPECT_TRUE(network.SetupPorts(problem.capacity_Bps).ok());
  std::map<SimTime, std::vector<const Item*>> starts;
  for (const Item& item : problem.items) starts[item.start].push_back(&item);
  std::map<FlightId, SimTime> ends;
  std::vector<Completion> done;
  auto next = starts.begin();
  for (;;) {
    const SimTime start = next == starts.end() ? kNever : next->first;
    const SimTime end = network.next_time();
    if (start == kNever && end == kNever) break;
    done.clear();
    EXPECT_EQ(network.AdvanceUntil(std::min(start, end), &done), std::min(start, end));
    for (const Completion& c : done) {
      EXPECT_TRUE(ends.emplace(c.id, c.time).second);
      EXPECT_EQ(c.time, end);
    }
    if (start > end) continue;
    std::vector<Fluid> fluids;
    std::vector<PortLoad> loads;
    for (const Item* item : next->second) {
      fluids.push_back(item->fluid);
      fluids.back().first_load = static_cast<std::uint32_t>(loads.size());
      fluids.back().loads = static_cast<std::uint32_t>(item->loads.size());
      loads.insert(loads.end(), item->loads.begin(), item->loads.end());
      if (!one_batch) {
        network.Start(start, fluids, loads);
        if (peek) (void)network.next_time();
        fluids.clear();
        loads.clear();
      }
    }
    network.Start(start, fluids, loads);
    ++next;
  }
  if (statistics) {
    const auto s = network.statistics();
    statistics->assign(s.begin(), s.end());
  }
  return ends;
}

Item MakeItem(FlightId id, SimTime start, SimTime fixed, SimTime transfer,
              std::vector<PortLoad> loads) {
  Item item;
  item.start = start;
  item.fluid = {id, fixed, transfer, 0, 0};
  item.loads = std::move(loads);
  return item;
}

TEST(Analytic, OneFluidTakesItsOwnTime) {
  // 1000 bytes at 1 TB/s fill the port for 1000 ps, as long as the transfer says: 50 + 1000.
  Problem problem{{kTB}, {MakeItem(0, 7, 50, 1000, {{0, 1, 1000}})}};
  EXPECT_EQ(Simulate(problem, true, false).at(0), 7 + 1050);
}

TEST(Analytic, TwoFluidsShareAPort) {
  // Both fill the port: each takes 50 + 2 · 1000 while both are there. They start together, so both
  // end at 2050.
  Problem problem{
      {kTB}, {MakeItem(0, 0, 50, 1000, {{0, 1, 1000}}), MakeItem(1, 0, 50, 1000, {{0, 1, 1000}})}};
  const auto ends = Simulate(problem, true, false);
  EXPECT_EQ(ends.at(0), 2050);
  EXPECT_EQ(ends.at(1), 2050);
}

TEST(Analytic, ALaterFluidSlowsTheEarlierOne) {
  // Fluid 0 runs alone for 500 of 1000 ps, then at half rate: half of 2000 is 1000 more, end 1500.
  // Fluid 1 then has done 1000 of 2000 ps; half of its 1000 ps alone remains: 2000.
  Problem problem{
      {kTB}, {MakeItem(0, 0, 0, 1000, {{0, 1, 1000}}), MakeItem(1, 500, 0, 1000, {{0, 1, 1000}})}};
  const auto ends = Simulate(problem, true, false);
  EXPECT_EQ(ends.at(0), 1500);
  EXPECT_EQ(ends.at(1), 2000);
}

TEST(Analytic, HeadroomBeforeSlowdown) {
  // Each moves 500 bytes in 1000 ps: two of them just fill the port (no slowdown), three need 1500.
  Problem two{{kTB}, {}};
  for (FlightId i = 0; i < 2; ++i) two.items.push_back(MakeItem(i, 0, 10, 1000, {{0, 1, 500}}));
  EXPECT_EQ(Simulate(two, true, false).at(1), 1010);
  Problem three = two;
  three.items.push_back(MakeItem(2, 0, 10, 1000, {{0, 1, 500}}));
  EXPECT_EQ(Simulate(three, true, false).at(2), 1510);
  // 501 bytes: 1002 ps for two, one step over the boundary.
  two.items[0].loads[0].bytes = 501;
  const auto ends = Simulate(two, true, false);
  EXPECT_EQ(ends.at(0), 1012);
  EXPECT_EQ(ends.at(1), 1010);
}

TEST(Analytic, CopiesStandForEqualFlows) {
  // One fluid with four copies on a port takes as long as four fluids there, and carries their
  // bytes.
  Problem folded{{kTB}, {MakeItem(0, 0, 10, 1000, {{0, 4, 1000}})}};
  Problem unfolded{{kTB}, {}};
  for (FlightId i = 0; i < 4; ++i)
    unfolded.items.push_back(MakeItem(i, 0, 10, 1000, {{0, 1, 1000}}));
  std::vector<PortStatistics> a, b;
  EXPECT_EQ(Simulate(folded, true, false, &a).at(0), 4010);
  EXPECT_EQ(Simulate(unfolded, true, false, &b).at(3), 4010);
  EXPECT_EQ(a[0].bytes, 4000);
  EXPECT_EQ(b[0].bytes, 4000);
  EXPECT_EQ(a[0].busy, b[0].busy);
}

TEST(Analytic, DurationsRoundUpOnce) {
  // 1 byte at 3 TB/s shared by two: 2/3 ps, and a transfer of 0: 1 ps.
  Problem problem{{3 * kTB}, {MakeItem(0, 0, 0, 0, {{0, 2, 1}})}};
  EXPECT_EQ(Simulate(problem, true, false).at(0), 1);
  problem.items[0].loads[0].copies = 3;  // exactly 1 ps
  EXPECT_EQ(Simulate(problem, true, false).at(0), 1);
  problem.items[0].loads[0].copies = 4;  // 4/3 ps
  EXPECT_EQ(Simulate(problem, true, false).at(0), 2);
}

TEST(Analytic, NothingToDoTakesNoTime) {
  Problem problem{{kTB}, {MakeItem(3, 5, 0, 0, {}), MakeItem(4, 5, 0, 0, {{0, 1, 0}})}};
  const auto ends = Simulate(problem, true, false);
  EXPECT_EQ(ends.at(3), 5);
  EXPECT_EQ(ends.at(4), 5);
}

TEST(Analytic, AnEndAndAStartOfOneInstantChangeNothing) {
  // Fluid 0 shares with 1 until 2000; at that instant 2 takes the place of 1 (equal level): fluid 0
  // must go on as if nothing had happened, also when the level is asked for in between.
  Problem problem{{kTB},
                  {MakeItem(0, 0, 0, 3000, {{0, 1, 3000}}), MakeItem(1, 0, 0, 1000, {{0, 1, 1000}}),
                   MakeItem(2, 2000, 0, 2000, {{0, 1, 2000}})}};
  EXPECT_EQ(Simulate(problem, false, true).at(0), 6000);
  EXPECT_EQ(Simulate(problem, false, true).at(2), 6000);
}

TEST(Analytic, LongTimesStayExact) {
  // Eleven days at 1 B/s, 10^18 ps alone; the other starts halfway.
  const std::int64_t bytes = 1'000'000;
  const SimTime alone = bytes * kSecond;
  Problem problem{{1},
                  {MakeItem(0, 0, 0, alone, {{0, 1, bytes}}),
                   MakeItem(1, alone / 2 + 1, 0, alone, {{0, 1, bytes}})}};
  const auto ends = Simulate(problem, true, false);
  // 0 has alone/2 − 1 left at full rate: twice that at half rate.
  EXPECT_EQ(ends.at(0), alone / 2 + 1 + 2 * (alone / 2 - 1));
  EXPECT_EQ(ends.at(1), 2 * alone);  // the port was never idle
}

TEST(Analytic, RefusesImpossiblePorts) {
  Analytic network;
  const std::vector<std::int64_t> capacity = {1, 0};
  const Status status = network.SetupPorts(capacity);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "port 1: a capacity of 0 B/s; it must be above 0");
}

// ---- The same problems in exact rational arithmetic, by brute force.

struct Rational {
  Int128 over = 0, under = 1;
};
Int128 Gcd(Int128 a, Int128 b) {
  while (b != 0) a = std::exchange(b, a % b);
  return a;
}
Rational Minus(Rational a, SimTime passed, SimTime duration) {
  Rational r{a.over * duration - static_cast<Int128>(passed) * a.under, a.under * duration};
  const Int128 g = Gcd(r.over < 0 ? -r.over : r.over, r.under);
  EXPECT_LT(r.under, Int128{1} << 80);  // products with a duration stay exact
  return {r.over / g, r.under / g};
}

std::map<FlightId, SimTime> BruteForce(const Problem& problem) {
  struct State {
    const Item* item;
    Rational left{1, 1};
    SimTime duration = 0;
  };
  std::vector<State> running;
  std::map<FlightId, SimTime> ends;
  std::vector<const Item*> waiting;
  for (const Item& item : problem.items) waiting.push_back(&item);
  SimTime now = 0;
  for (;;) {
    std::erase_if(running, [&](const State& s) {
      if (s.left.over > 0 && s.duration > 0) return false;
      ends[s.item->fluid.id] = now;
      return true;
    });
    std::erase_if(waiting, [&](const Item* item) {
      if (item->start != now) return false;
      running.push_back({item});
      return true;
    });
    SimTime next = kNever;
    for (const Item* item : waiting) next = std::min(next, item->start);
    for (State& s : running) {
      SimTime longest = s.item->fluid.transfer;
      for (const PortLoad& load : s.item->loads) {
        Int128 flows = 0;
        for (const State& other : running) {
          for (const PortLoad& l : other.item->loads) flows += l.port == load.port ? l.copies : 0;
        }
        const Int128 capacity = problem.capacity_Bps[load.port];
        const Int128 time = (load.bytes * flows * Int128{kSecond} + capacity - 1) / capacity;
        longest = std::max(longest, static_cast<SimTime>(time));
      }
      s.duration = s.item->fluid.fixed + longest;
      const Int128 time = (s.left.over * s.duration + s.left.under - 1) / s.left.under;
      next = std::min(next, now + static_cast<SimTime>(time));
    }
    if (next == kNever) return ends;
    for (State& s : running) {
      if (s.duration > 0) s.left = Minus(s.left, next - now, s.duration);
    }
    now = next;
  }
}

Problem RandomProblem(std::uint64_t seed) {
  CounterRng rng(seed);
  Problem problem;
  const std::size_t ports = 1 + rng.Below(4), fluids = 1 + rng.Below(6);
  for (std::size_t p = 0; p < ports; ++p) {
    problem.capacity_Bps.push_back(static_cast<std::int64_t>(1 + rng.Below(4)) * kTB);
  }
  for (FlightId i = 0; i < fluids; ++i) {
    std::vector<PortLoad> loads;
    for (std::uint32_t p = 0; p < ports; ++p) {
      if (rng.Below(2)) continue;
      loads.push_back({p, static_cast<std::uint32_t>(1 + rng.Below(3)),
                       static_cast<std::int64_t>(rng.Below(60))});
    }
    problem.items.push_back(MakeItem(i, static_cast<SimTime>(rng.Below(5) * 10),
                                     static_cast<SimTime>(rng.Below(20)),
                                     static_cast<SimTime>(rng.Below(60)), std::move(loads)));
  }
  return problem;
}

TEST(Analytic, EqualsBruteForceInRationalArithmetic) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const Problem problem = RandomProblem(seed);
    EXPECT_EQ(Simulate(problem, true, false), BruteForce(problem)) << "seed " << seed;
  }
}

TEST(Analytic, OrderWithinAnInstantChangesNothing) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Problem problem = RandomProblem(seed ^ 0xabcd);
    const auto expected = Simulate(problem, true, false);
    CounterRng rng(seed);
    for (int round = 0; round < 4; ++round) {
      rng.Shuffle(&problem.items);
      EXPECT_EQ(Simulate(problem, round % 2 == 0, round > 1), expected) << "seed " << seed;
    }
  }
}

TEST(Analytic, BytesAreConservedAndPortsNeverOverfull) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Problem problem = RandomProblem(seed ^ 0x5eed);
    std::vector<PortStatistics> statistics;
    (void)Simulate(problem, true, false, &statistics);
    std::vector<std::int64_t> bytes(problem.capacity_Bps.size());
    for (const Item& item : problem.items) {
      for (const PortLoad& load : item.loads) bytes[load.port] += load.bytes * load.copies;
    }
    for (std::size_t p = 0; p < bytes.size(); ++p) {
      EXPECT_EQ(statistics[p].bytes, bytes[p]);
      EXPECT_GE(statistics[p].busy, TransferTime(bytes[p], problem.capacity_Bps[p]));
    }
  }
}

}  // namespace
}  // namespace orrery::network
