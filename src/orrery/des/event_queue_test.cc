#include "orrery/des/event_queue.h"

#include <gtest/gtest.h>

#include <queue>

#include "orrery/base/rng.h"

namespace orrery::des {
namespace {

struct Event {
  SimTime time = 0;
  std::uint32_t id = 0;
  friend bool operator<(const Event& a, const Event& b) { return a.id < b.id; }
};

TEST(EventQueue, LeavesInOrderOfTimeThenKey) {
  EventQueue<Event> queue;
  queue.Push({30, 1});
  queue.Push({10, 9});
  queue.Push({10, 2});
  queue.Push({20, 3});
  const std::vector<std::uint32_t> expected = {2, 9, 3, 1};
  for (std::uint32_t id : expected) {
    EXPECT_EQ(queue.Top().id, id);
    queue.Pop();
  }
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, PushAtThePresentKeepsTheOrderOfKeys) {
  EventQueue<Event> queue;
  queue.Push({5, 4});
  queue.Push({5, 8});
  EXPECT_EQ(queue.Top().id, 4u);
  queue.Pop();
  queue.Push({5, 6});
  EXPECT_EQ(queue.Top().id, 6u);
  queue.Pop();
  EXPECT_EQ(queue.Top().id, 8u);
}

// 200,000 mixed operations give the same sequence as a binary heap.
TEST(EventQueue, AgreesWithABinaryHeap) {
  const auto later = [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.id > b.id;
  };
  std::priority_queue<Event, std::vector<Event>, decltype(later)> oracle(later);
  EventQueue<Event> queue;
  CounterRng rng(7);
  SimTime now = 0;
  std::uint32_t next_id = 0;
  for (int step = 0; step < 200'000; ++step) {
    if (oracle.empty() || rng.Below(5) < 3) {
      const SimTime span = SimTime{1} << rng.Below(45);
      const Event e{now + static_cast<SimTime>(rng.Below(static_cast<std::uint64_t>(span))),
                    next_id++ * 2654435761u};  // all different, in no order
      oracle.push(e);
      queue.Push(e);
    } else {
      ASSERT_EQ(queue.Top().id, oracle.top().id);
      ASSERT_EQ(queue.Top().time, oracle.top().time);
      now = oracle.top().time;
      oracle.pop();
      queue.Pop();
    }
    ASSERT_EQ(queue.size(), oracle.size());
    ASSERT_EQ(queue.NextTime(), oracle.empty() ? kNever : oracle.top().time);
  }
}

// Asking for the first time leaves room for an earlier event; Top does not.
TEST(EventQueue, NextTimeMovesNothing) {
  EventQueue<Event> queue;
  EXPECT_EQ(queue.NextTime(), kNever);
  queue.Push({100, 0});
  EXPECT_EQ(queue.NextTime(), 100);
  queue.Push({50, 1});
  EXPECT_EQ(queue.NextTime(), 50);
  EXPECT_EQ(queue.Top().id, 1u);
  EXPECT_EQ(queue.last(), 50);
}

}  // namespace
}  // namespace orrery::des
