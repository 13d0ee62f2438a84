#include "orrery/engine/work.h"

#include <gtest/gtest.h>

namespace orrery::engine {
namespace {

// Two kernels of 100 and 200 ps alone, 150 and 300 beside a collective; each costs the host 10 ps.
BlockPrice TwoKernels() {
  BlockPrice b;
  KernelPrice k;
  k.host = 10;
  k.duration = {100, 150, 150, 150};
  b.kernels.push_back(k);
  k.duration = {200, 300, 300, 300};
  b.kernels.push_back(k);
  Item item;
  item.count = 2;
  item.duration = {300, 450, 450, 450};
  b.items.push_back(item);
  return b;
}

WorkProgress At(SimTime start, SimTime host) {
  WorkProgress p;
  p.time = p.start = start;
  p.host = host;
  return p;
}

TEST(Work, HostAheadOfTheGpu) {
  const BlockPrice b = TwoKernels();
  SimTime idle = 0;
  // Host came 1000 ps before: no launch is waited for. 5000 + 100 + 200.
  EXPECT_EQ(Finish(b, b.items[0], At(5000, 4000), 0, 50, &idle), 5300);
  EXPECT_EQ(idle, 0);
}

TEST(Work, GpuWaitsForLaunches) {
  BlockPrice b = TwoKernels();
  b.kernels[1].host = 400;
  SimTime idle = 0;
  // First kernel: issued at 5010, starts at 5060, ends at 5160. Second: issued at 5410, starts at
  // 5460.
  EXPECT_EQ(Finish(b, b.items[0], At(5000, 5000), 0, 50, &idle), 5660);
  EXPECT_EQ(idle, 60 + 300);
}

TEST(Work, ClassChangesInTheMiddleOfAKernel) {
  const BlockPrice b = TwoKernels();
  WorkProgress p = At(0, -100000);
  // 40 of 100 ps done alone; the rest of the first kernel takes 150 - 60 = 90, the second 300.
  Advance(b, b.items[0], &p, 40, 0, 50);
  EXPECT_EQ(p.kernel, 0u);
  EXPECT_EQ(p.elapsed, 40);
  SimTime idle = 0;
  EXPECT_EQ(Finish(b, b.items[0], p, 1, 50, &idle), 40 + 90 + 300);
  // At 190 (60 into the second kernel of 300) it is alone again: 60/300 of 200 = 40 done, 160 left.
  Advance(b, b.items[0], &p, 190, 1, 50);
  EXPECT_EQ(p.kernel, 1u);
  EXPECT_EQ(Finish(b, b.items[0], p, 0, 50, &idle), 190 + 160);
}

TEST(Work, SeveralChangesOfOneInstantAreOne) {
  const BlockPrice b = TwoKernels();
  WorkProgress once = At(0, -100000), twice = once;
  Advance(b, b.items[0], &once, 33, 0, 50);
  Advance(b, b.items[0], &twice, 33, 0, 50);
  Advance(b, b.items[0], &twice, 33, 1, 50);  // no time passes: nothing is converted
  Advance(b, b.items[0], &twice, 33, 2, 50);
  SimTime idle = 0;
  EXPECT_EQ(Finish(b, b.items[0], once, 3, 50, &idle), Finish(b, b.items[0], twice, 3, 50, &idle));
}

TEST(Work, AdvanceToTheEndLeavesNothing) {
  const BlockPrice b = TwoKernels();
  WorkProgress p = At(0, -100000);
  Advance(b, b.items[0], &p, 300, 0, 50);
  SimTime idle = 0;
  EXPECT_EQ(Finish(b, b.items[0], p, 1, 50, &idle), 300);
}

TEST(Work, IdleBeforeALaunchIsCountedOnce) {
  BlockPrice b = TwoKernels();
  WorkProgress p = At(0, 0);  // first kernel ready at 10 + 50 = 60
  Advance(b, b.items[0], &p, 30, 0, 50);
  EXPECT_EQ(p.idle, 30);
  SimTime idle = 0;
  EXPECT_EQ(Finish(b, b.items[0], p, 0, 50, &idle), 360);
  EXPECT_EQ(idle, 30);
}

}  // namespace
}  // namespace orrery::engine
