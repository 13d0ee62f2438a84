#include "orrery/interference/interference.h"

#include <gtest/gtest.h>

namespace orrery::interference {
namespace {

cluster::DeviceSpec A100() {
  cluster::DeviceSpec d;
  d.name = "test A100";
  d.arch = cluster::Arch::kAmpere;
  d.sms = 108;
  d.memory_bandwidth_Bps = 2'000'000'000'000;
  return d;
}

const graph::Kernel kGemm = graph::Gemm{.m = 1, .n = 1, .k = 1};
const graph::Kernel kAdd = graph::MemoryBound{.op = graph::MemoryOp::kAdd};
const graph::Kernel kTraced = graph::Timed{.duration_ps = 1};

TEST(Interference, CollectivesHaveAClassMessagesHaveNone) {
  EXPECT_EQ(ClassOf(graph::Collective::kAllReduce, false), kIntraNode);
  EXPECT_EQ(ClassOf(graph::Collective::kReduceScatter, true), kInterNode);
  EXPECT_EQ(ClassOf(graph::Collective::kSend, true), kAlone);
  EXPECT_EQ(ClassOf(graph::Collective::kRecv, false), kAlone);
}

TEST(Interference, NothingBesideNothingLost) {
  const Factors f = Slowdown(kGemm, kAlone, A100());
  EXPECT_EQ(f.compute, 1);
  EXPECT_EQ(f.communication, 1);
  EXPECT_EQ(CommunicationFactor(kAlone, A100()), 1);
}

// 24 of 108 SMs are held: 108/84.
TEST(Interference, GemmLosesTheSmsOfTheChannels) {
  EXPECT_DOUBLE_EQ(Slowdown(kGemm, kIntraNode, A100()).compute, 108.0 / 84.0);
  EXPECT_DOUBLE_EQ(Slowdown(kGemm, kInterNode, A100()).compute, 108.0 / 100.0);
  // Near Moye's +27 % beside an all-reduce over NVLink.
  EXPECT_NEAR(Slowdown(kGemm, kIntraNode, A100()).compute, 1.27, 0.03);
}

// 3 · 240 GB/s of 2,000 GB/s are taken: 1/(1 - 0.36). Over NICs 3 · 25: 1/(1 - 0.0375).
TEST(Interference, MemoryBoundKernelsLoseTheBandwidthThatCommunicationMoves) {
  EXPECT_DOUBLE_EQ(Slowdown(kAdd, kIntraNode, A100()).compute, 1 / (1 - 0.36));
  EXPECT_DOUBLE_EQ(Slowdown(kAdd, kInterNode, A100()).compute, 1 / (1 - 0.0375));
  EXPECT_GT(Slowdown(kTraced, kIntraNode, A100()).compute,
            Slowdown(kGemm, kIntraNode, A100()).compute);
  EXPECT_LT(Slowdown(kTraced, kIntraNode, A100()).compute,
            Slowdown(kAdd, kIntraNode, A100()).compute);
}

TEST(Interference, BothAtOnceAddUpToHalfOfTheDevice) {
  const Class both = kIntraNode | kInterNode;
  EXPECT_DOUBLE_EQ(Slowdown(kGemm, both, A100()).compute, 108.0 / 76.0);
  cluster::DeviceSpec small = A100();
  small.sms = 20;
  EXPECT_DOUBLE_EQ(Slowdown(kGemm, both, small).compute, 2);
}

TEST(Interference, EveryFactorIsAtLeastOne) {
  for (int c = 0; c < kClasses; ++c) {
    for (const graph::Kernel& kernel : {kGemm, kAdd, kTraced}) {
      const Factors f = Slowdown(kernel, static_cast<Class>(c), A100());
      EXPECT_GE(f.compute, 1);
      EXPECT_GE(f.communication, 1);
      EXPECT_EQ(f.communication, CommunicationFactor(static_cast<Class>(c), A100()));
    }
  }
}

}  // namespace
}  // namespace orrery::interference
