#include "orrery/formats/nccl_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::formats {
namespace {

TEST(NcclTestsLog, ReadsRowsOfAllKinds) {
  const auto log = ParseNcclTestsLog(
      "# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5\n"
      "#  Rank  0 Group  0 Pid  2463 on node device  0 [0x1b] NVIDIA H100 80GB HBM3\n"
      "#  Rank  1 Group  0 Pid  2463 on node device  1 [0x43] NVIDIA H100 80GB HBM3\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
      "     1048576        262144     float     sum      -1    51.44   20.38   38.22      0    "
      "50.9 "
      "  20.61   38.63      0\n"
      "[1,0]<stdout>:    2097152        131072     float    none      -1    70.10   29.92   28.05  "
      " "
      "   0    69.9   30.0   28.1    N/A\n"
      "0:     4194304       1048576    half     sum   93.5   44.9   84.1  2e-07   92.0  45.6  85.5 "
      "2e-07\n"
      "# Avg bus bandwidth    : 40.1\n",
      "log");
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_EQ(log->rows.size(), 3u);
  ASSERT_EQ(log->ranks.size(), 2u);
  EXPECT_EQ(log->ranks[1].host, "node");
  EXPECT_EQ(log->ranks[1].gpu, "H100-80GB-HBM3");
  EXPECT_EQ(log->ranks[1].line, 3);
  EXPECT_EQ(log->rows[0].bytes, 1 << 20);
  EXPECT_EQ(log->rows[0].type, "float");
  EXPECT_DOUBLE_EQ(log->rows[0].time_us, 51.44);
  EXPECT_DOUBLE_EQ(log->rows[0].busbw_GBps, 38.22);
  EXPECT_EQ(log->rows[0].line, 5);
  EXPECT_DOUBLE_EQ(log->rows[1].time_us, 70.10);
  EXPECT_EQ(log->rows[2].bytes, 4 << 20);
  EXPECT_DOUBLE_EQ(log->rows[2].time_us, 93.5);
  EXPECT_DOUBLE_EQ(log->rows[2].busbw_GBps, 84.1);
}

TEST(NcclTestsLog, RefusesWhatIsNone) {
  EXPECT_THAT(ParseNcclTestsLog("hello\n", "x.log").status().message(),
              ::testing::HasSubstr("'x.log' holds no row of nccl-tests"));
}

}  // namespace
}  // namespace orrery::formats
