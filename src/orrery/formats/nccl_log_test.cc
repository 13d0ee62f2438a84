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
      "50.9   20.61   38.63      0\n"
      "[1,0]<stdout>:    2097152        131072     float    none      -1    70.10   29.92   28.05  "
      "    0    69.9   30.0   28.1    N/A\n"
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

// From 2.17 on nccl-tests says the library's version itself; NCCL's own line needs NCCL_DEBUG.
TEST(NcclTestsLog, TheVersionOfTheLibrary) {
  const auto version = [](std::string_view lines) {
    const auto log = ParseNcclTestsLog(
        std::string(lines) + "8 2 float sum -1 51.44 0.1 0.1 0 50.9 0.1 0.1 0\n", "log");
    EXPECT_TRUE(log.ok()) << log.status().message();
    return log.ok() ? log->version : "";
  };
  const std::string header = "# nccl-tests version 2.18.3 nccl-headers=23003 nccl-library=";
  EXPECT_EQ(version(header + "22809\n# Collective test starting: all_reduce_perf\n"), "2.28.9");
  EXPECT_EQ(version(header + "22809\nNCCL version 2.28.7+cuda12.9\n"), "2.28.7");
  EXPECT_EQ(version(header + "0\n"), "");
  EXPECT_EQ(version("# nThread 1\n"), "");
}

// Rows alone, with bars and without, tell what they are of.
TEST(NcclTestsLog, RowsTellTheTestAndTheRanks) {
  const auto log = ParseNcclTestsLog(
      "|     1048576 |      262144 | float | sum | -1 | 51.44 | 20.38 | 35.67 | 0 |\n"
      "  1073741824     268435456     float     sum      -1   2400.0  447.39  782.93      0\n",
      "x.log");
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_EQ(log->rows.size(), 2u);
  EXPECT_EQ(log->rows[0].redop, "sum");
  EXPECT_DOUBLE_EQ(log->rows[1].algbw_GBps, 447.39);
  EXPECT_TRUE(CheckNcclTestsLog(*log, "all_reduce", 8, "x.log").ok());
  EXPECT_EQ(CheckNcclTestsLog(*log, "all_reduce", 16, "x.log").message(),
            "x.log:2: busbw is 1.75 times algbw, which all_reduce over 16 ranks does not give, but "
            "1.875 (of 8 ranks, if it is of all_reduce); compare a log of the same test on as many "
            "ranks");
  EXPECT_EQ(CheckNcclTestsLog(*log, "all_gather", 8, "x.log").message(),
            "x.log:1: redop 'sum': all_gather reduces nothing; compare a log of the same test");
  EXPECT_THAT(CheckNcclTestsLog(*log, "reduce_scatter", 8, "x.log").message(),
              ::testing::HasSubstr("1.75 times algbw, which reduce_scatter over 8 ranks does not"));
  const auto gather =
      ParseNcclTestsLog("1048576 32768 float none -1 51.44 20.38 19.11 0 51 20 19 0\n", "y.log");
  EXPECT_TRUE(CheckNcclTestsLog(*gather, "all_gather", 16, "y.log").ok());
  EXPECT_TRUE(CheckNcclTestsLog(*gather, "alltoall", 16, "y.log").ok());
  EXPECT_FALSE(CheckNcclTestsLog(*gather, "all_reduce", 16, "y.log").ok());
}

// "for test in …; do ./$test; done > log" was read as one test on twice as many GPUs.
TEST(NcclTestsLog, TwoRunsInOneLogAreRefused) {
  const std::string run =
      "#  Rank  0 Group  0 Pid  2463 on node device  0 [0x1b] NVIDIA H100 80GB HBM3\n"
      "#  Rank  1 Group  0 Pid  2463 on node device  1 [0x43] NVIDIA H100 80GB HBM3\n"
      "8 2 float sum -1 51.44 0.1 0.1 0 50.9 0.1 0.1 0\n";
  EXPECT_TRUE(ParseNcclTestsLog(run, "x.log").ok());
  EXPECT_EQ(ParseNcclTestsLog(run + run, "x.log").status().message(),
            "x.log:4: rank 0 is listed on line 1 already: give each run's output a file");
}

TEST(NcclTestsLog, RefusesWhatIsNone) {
  EXPECT_THAT(ParseNcclTestsLog("hello\n", "x.log").status().message(),
              ::testing::HasSubstr("'x.log' holds no row of nccl-tests"));
}

}  // namespace
}  // namespace orrery::formats
