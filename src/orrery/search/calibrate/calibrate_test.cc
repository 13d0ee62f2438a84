#include "orrery/search/calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "orrery/base/file.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::string_view kLog =
    "+ mpirun ./build/all_reduce_perf -b 1M -e 4G -f 4 -g 1\n"
    "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4294967296 step: 4(factor)\n"
    "#  Rank  0 Group  0 Pid   11 on      node1 device  0 [0x07] NVIDIA A100-SXM4-80GB\n"
    "#  Rank  1 Group  0 Pid   12 on      node1 device  1 [0x0b] NVIDIA A100-SXM4-80GB\n"
    "NCCL version 2.21.5+cuda12.4\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\r\n"
    "     1048576        262144     float     sum      -1    24.10   43.51   43.51      0    23.9\n"
    "  1073741824     268435456     float     sum      -1  5120.00  209.72  209.72      0  5111.0\n"
    "# Out of bounds values : 0 OK\n";

TEST(NcclLog, BecomesATableOfCollectives) {
  const auto csv = NcclLogToCsv(kLog, "a.log", {});
  ASSERT_TRUE(csv.ok()) << csv.status().message();
  EXPECT_THAT(*csv, HasSubstr("log,A100-SXM4-80GB,1,2,2.21.5,,all_reduce,1048576,float,24.1\n"));
  EXPECT_THAT(*csv, HasSubstr(",1073741824,float,5120\n"));
}

std::string LogError(std::string_view from, std::string_view to,
                     const NcclLogOptions& options = {}) {
  std::string log(kLog);
  for (std::size_t at = log.find(from); at != std::string::npos;
       at = log.find(from, at + to.size())) {
    log.replace(at, from.size(), to);
  }
  const auto csv = NcclLogToCsv(log, "a.log", options);
  return csv.ok() ? "" : csv.status().message();
}

TEST(NcclLog, WhatIsMissingIsNamedWithTheRemedy) {
  EXPECT_THAT(LogError("all_reduce_perf", "test"), HasSubstr("--collective all_reduce"));
  EXPECT_EQ(LogError("all_reduce_perf", "test", {.collective = "all_reduce"}), "");
  EXPECT_THAT(LogError("#  Rank", "#  rank"), HasSubstr("no '#  Rank' lines"));
  EXPECT_THAT(LogError("24.10", "-"), HasSubstr("a.log:8"));
  EXPECT_THAT(LogError("24.10", "0.00"), HasSubstr("no positive number"));
  EXPECT_THAT(LogError("12 on      node1", "12 on      node2"), HasSubstr("--fabric"));
  EXPECT_THAT(LogError("[0x0b] NVIDIA A100", "[0x0b] NVIDIA H100"), HasSubstr("different GPUs"));
  EXPECT_THAT(NcclLogToCsv("hello\n", "b.log", {}).status().message(), HasSubstr("b.log"));
}

TEST(NcclLog, AFabricThatIsNotUnderstoodIsRefused) {
  EXPECT_THAT(LogError("24.10", "24.1", {.network = "8x400Gb/s InfniBand"}),
              HasSubstr("--fabric: '8x400Gb/s InfniBand' is no fabric"));
  EXPECT_EQ(LogError("12 on      node1", "12 on      node2", {.network = "8x400Gb/s IB"}), "");
}

TEST(NcclLog, AMistypedCollectiveIsTheOptionsFault) {
  EXPECT_THAT(LogError("24.10", "24.1", {.collective = "allreduce"}),
              HasSubstr("--collective: unknown collective 'allreduce'; did you mean 'all_reduce'"));
}

// A comma in a GPU's name was an error of a line that no file has.
TEST(NcclLog, CommasStayInTheirField) {
  std::string log(kLog);
  for (std::size_t at = 0; (at = log.find("A100-SXM4", at)) != std::string::npos; at += 10) {
    log.replace(at, 9, "A100,SXM4");
  }
  const auto csv = NcclLogToCsv(log, "a.log", {});
  ASSERT_TRUE(csv.ok());
  EXPECT_THAT(*csv, HasSubstr("log,\"A100,SXM4-80GB\",1,2,"));
}

// The fabric that rows were taken to have run on is said.
TEST(Calibrate, SaysTheFabric) {
  const auto assumed = [](std::string_view network) {
    auto table = formats::CsvTable::Parse(
        "source,gpu,nodes,gpus_per_node,nccl_version,network,collective,"
        "size_bytes,dtype,time_us_oop\n"
        "s,H100,2,8,2.21.5," +
            std::string(network) + ",all_reduce,1048576,float,50\n",
        "t.csv");
    EXPECT_TRUE(table.ok());
    const auto observed = ObserveCollectives(*table);
    EXPECT_TRUE(observed.ok()) << observed.status().message();
    return observed.ok() ? observed->assumed : std::vector<std::string>();
  };
  EXPECT_THAT(assumed("8x200Gb/s RoCE"), Contains("8 NICs of 200 Gb/s a host, RoCE"));
  EXPECT_THAT(assumed("8x200Gb/s"), Contains("fabric=ib (not stated)"));
}

constexpr std::string_view kHeader =
    "source,gpu,nodes,gpus_per_node,nccl_version,network,collective,size_bytes,dtype,time_us_oop\n";

// Made with constants that are known: calibration finds their way back.
TEST(Calibrate, FindsTheConstantThatMadeTheMeasurements) {
  std::string text(kHeader);
  for (int i = 20; i < 34; ++i) {
    text += "s,A100-SXM4-80GB,1,8,2.21.5,,all_reduce," + std::to_string(std::int64_t{1} << i) +
            ",float,1\n";
  }
  auto table = formats::CsvTable::Parse(text, "t.csv");
  ASSERT_TRUE(table.ok());
  auto observed = ObserveCollectives(*table);
  ASSERT_TRUE(observed.ok()) << observed.status().message();
  const constants::Set start = constants::Set::Fitted();
  constants::Set truth = start;
  const std::size_t rate = constants::kNvlinkRateAmpere;
  const constants::Definition& d = constants::Definitions()[rate];
  truth.set(rate, d.fitted + 1.5 * d.spread <= d.high ? d.fitted + 1.5 * d.spread
                                                      : d.fitted - 1.5 * d.spread);
  observed->measured = *observed->predict(truth);
  const auto found = Calibrate(*observed, start);
  ASSERT_TRUE(found.ok()) << found.status().message();
  double before = 0, after = 0;
  for (std::size_t i = 0; i < observed->measured.size(); ++i) {
    before += std::abs(found->predicted_before[i] / observed->measured[i] - 1);
    after += std::abs(found->predicted_after[i] / observed->measured[i] - 1);
  }
  EXPECT_LT(after, 0.65 * before);  // the shipped value keeps pulling
  for (std::size_t c = 0; c < constants::kCount; ++c) {
    EXPECT_GE(found->after.at(c), constants::Definitions()[c].low);
    EXPECT_LE(found->after.at(c), constants::Definitions()[c].high);
    EXPECT_LE(found->spread_after[c], found->spread_before[c] * 1.0001) << c;
  }
  // What an all-reduce on one A100 node says nothing about stays.
  EXPECT_EQ(found->after[constants::kNicRateIb], start[constants::kNicRateIb]);
  EXPECT_EQ(found->after[constants::kGemmRate16Hopper], start[constants::kGemmRate16Hopper]);

  const std::string path = testing::TempDir() + "calibration.json";
  ASSERT_TRUE(WriteFile(path, ToJson(*found)).ok());
  const auto read = ReadCalibration(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  for (std::size_t c = 0; c < constants::kCount; ++c) {
    EXPECT_NEAR(read->at(c), found->after.at(c), 0.011 * constants::Definitions()[c].spread) << c;
  }
  EXPECT_THAT(ToText(*found), HasSubstr("what remains"));
}

// The fit's own deviations: small collectives are mostly latency, of which less is known.
TEST(Calibrate, SmallCollectivesMayBeFartherOff) {
  const std::string row = "s,A100-SXM4-80GB,1,8,2.21.5,,all_reduce,";
  auto table = formats::CsvTable::Parse(
      std::string(kHeader) + row + "1048575,float,50\n" + row + "1048576,float,50\n", "t.csv");
  ASSERT_TRUE(table.ok());
  const auto observed = ObserveCollectives(*table);
  ASSERT_TRUE(observed.ok()) << observed.status().message();
  EXPECT_EQ(observed->sigma, (std::vector<double>{0.12, 0.08}));
}

// They went without a word.
TEST(Calibrate, RowsThatCannotBePredictedAreCounted) {
  const std::string row = ",1,8,2.21.5,,all_reduce,1048576,float,50\n";
  auto table = formats::CsvTable::Parse(
      std::string(kHeader) + "s,A100" + row + "s,P100" + row + "s,K80" + row, "t");
  ASSERT_TRUE(table.ok());
  const auto observed = ObserveCollectives(*table);
  ASSERT_TRUE(observed.ok()) << observed.status().message();
  EXPECT_THAT(observed->assumed, Contains(HasSubstr("2 of 3 rows left out: gpu=P100")));
}

// What was a list of GPUs, though the table was at fault, or nothing at all beside another file.
TEST(Calibrate, KernelsThatSayNothingAreNamed) {
  const auto file = [](const std::string& name, const std::string& gpu, const std::string& row) {
    const std::string path = testing::TempDir() + name;
    const std::string text = "# orrery.measured/1\n# table: gemm\n# device: cuda\n# gpu: " + gpu +
                             "\nop,dtype,layout,m,n,k,groups,time_us,time_us_q1,time_us_q3,mode,"
                             "samples\n" +
                             row;
    EXPECT_TRUE(WriteFile(path, text).ok());
    return path;
  };
  const std::string row = "gemm,bf16,nt,4096,6144,4096,1,412.41,411.9,413.06,hot,40\n";
  const std::string good = file("good.csv", "h100", row), bad = file("bad.csv", "h1000", row);
  EXPECT_TRUE(ObserveKernels({good}).ok());
  EXPECT_THAT(ObserveKernels({good, bad}).status().message(),
              HasSubstr("bad.csv: unknown gpu 'h1000'; did you mean 'h100'"));
  EXPECT_THAT(ObserveKernels({file("none.csv", "h100", "")}).status().message(),
              HasSubstr("none.csv: no kernel to learn from"));
}

TEST(Calibrate, NothingToLearnFromIsAnError) {
  auto table = formats::CsvTable::Parse(
      std::string(kHeader) + "s,P100,1,8,2.21.5,,all_reduce,8,float,1\n", "t.csv");
  ASSERT_TRUE(table.ok());
  const auto observed = ObserveCollectives(*table);
  ASSERT_FALSE(observed.ok());
  EXPECT_THAT(observed.status().message(), HasSubstr("P100"));
}

// A run with experts or Mamba layers never moved their constants.
TEST(Calibrate, ARunMovesTheConstantsOfItsLayers) {
  const auto scope = [](std::string_view model) {
    const std::string path = testing::TempDir() + "calibrated.yaml";
    const std::string job =
        "model: " + std::string(model) +
        "\ncluster: h100-ib-400g\nnodes: 1\nparallel: {tp: 8, sequence_parallel: true}\n"
        "training: {global_batch: 8, seq_len: 4096, precision: fp8}\n";
    EXPECT_TRUE(WriteFile(path, job).ok());
    const auto observed = ObserveRun(path, 1, "");
    EXPECT_TRUE(observed.ok()) << observed.status().message();
    return observed.ok() ? observed->scope : constants::Scope{};
  };
  const constants::Scope experts = scope("mixtral-8x7b"), hybrid = scope("nemotron-h-8b");
  EXPECT_TRUE(experts.Covers("experts") && experts.Covers("fp8") && experts.Covers("core"));
  EXPECT_FALSE(experts.Covers("mamba"));
  EXPECT_TRUE(hybrid.Covers("mamba"));
  EXPECT_FALSE(hybrid.Covers("experts"));
}

TEST(Calibration, ADamagedFileIsRefusedByName) {
  const std::string path = testing::TempDir() + "bad.json";
  const auto message = [&](std::string_view text) {
    EXPECT_TRUE(WriteFile(path, text).ok());
    return ReadCalibration(path).status().message();
  };
  EXPECT_THAT(message("{"), HasSubstr("orrery calibrate"));
  EXPECT_THAT(message(R"({"schema":"orrery.result/1"})"), HasSubstr("orrery.calibration/1"));
  // Was an internal error.
  EXPECT_THAT(message(R"({"schema":1,"constants":{}})"), HasSubstr("orrery.calibration/1"));
  const auto with = [&](std::string_view constants) {
    return message(R"({"schema":"orrery.calibration/1","constants":)" + std::string(constants) +
                   "}");
  };
  EXPECT_THAT(with(R"({"rank_noize":{"value":0.01}})"), HasSubstr("rank_noise"));
  EXPECT_THAT(with(R"({"rank_noise":{"value":"x"}})"), HasSubstr("rank_noise: value"));
  EXPECT_THAT(with(R"({"rank_noise":{"value":7}})"), HasSubstr("outside"));
}

}  // namespace
}  // namespace orrery::search
