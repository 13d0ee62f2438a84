#include "orrery/network/use_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace orrery::network {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SimTime kW = UseLog::kFirstWidth;

// 10 bytes over two and a half steps, from the middle of the first: 2, 4 and 4 of them; the edges
// stand at 10 * 0.5 / 2.5 = 2 and 10 * 1.5 / 2.5 = 6.
TEST(UseLog, BytesSplitAtTheEdges) {
  UseLog log(2, 4);
  log.AddBytes(1, kW / 2, 3 * kW, 10);
  EXPECT_THAT(log.of(0), IsEmpty());
  EXPECT_THAT(log.of(1), ElementsAre(2 * UseLog::kByte, 4 * UseLog::kByte, 4 * UseLog::kByte, 0));
  log.AddBytes(1, kW, kW, 3);  // an instant on an edge belongs to the later step
  EXPECT_THAT(log.of(1), ElementsAre(2 * UseLog::kByte, 7 * UseLog::kByte, 4 * UseLog::kByte, 0));
}

// At 1 GB/s a step of 2^20 ps carries 1048.576 bytes; half a share half of it.
TEST(UseLog, RatesFillTheSteps) {
  UseLog log(1, 4);
  log.AddRate(0, 0, kW + kW / 2, 1'000'000'000, 512);
  EXPECT_THAT(log.of(0), ElementsAre(static_cast<std::int64_t>(524.288 * 1024),
                                     static_cast<std::int64_t>(262.144 * 1024), 0, 0));
}

// The width doubles until the time fits, and what stood there is added up in pairs: as if the log
// had been that wide from the start.
TEST(UseLog, GrowsAndKeepsWhatItHas) {
  UseLog fine(1, 4), coarse(1, 4);
  coarse.AddBytes(0, 15 * kW, 15 * kW, 1);
  for (int i = 0; i < 3; ++i) {
    fine.AddBytes(0, i * kW, (i + 1) * kW, 7);
    coarse.AddBytes(0, i * kW, (i + 1) * kW, 7);
  }
  EXPECT_EQ(fine.width(), kW);
  EXPECT_EQ(coarse.width(), 4 * kW);
  EXPECT_THAT(coarse.of(0), ElementsAre(21 * UseLog::kByte, 0, 0, UseLog::kByte));
  fine.AddBytes(0, 15 * kW, 15 * kW, 1);
  EXPECT_TRUE(std::ranges::equal(fine.of(0), coarse.of(0)));
}

TEST(UseLog, MergesOtherWidths) {
  UseLog a(2, 4), b(2, 4);
  a.AddBytes(0, 0, 3 * kW, 9);
  b.AddBytes(0, 0, 8 * kW, 16);
  b.AddBytes(1, 0, kW, 1);
  UseLog ab = a;
  ab.Merge(b);
  b.Merge(a);
  for (std::size_t l = 0; l < 2; ++l) EXPECT_TRUE(std::ranges::equal(ab.of(l), b.of(l)));
  EXPECT_EQ(std::accumulate(b.of(0).begin(), b.of(0).end(), std::int64_t{0}), 25 * UseLog::kByte);
}

}  // namespace
}  // namespace orrery::network
