// Measured tables, with made-up numbers on a made-up GPU: nothing here is data.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "orrery/compute/compute.h"
#include "orrery/compute/constants.h"
#include "orrery/compute/measured_csv.h"
#include "orrery/compute/measured_table.h"
#include "orrery/compute/model.h"
#include "orrery/compute/test_devices.h"

namespace orrery::compute {
namespace {

using graph::Attention;
using graph::DType;
using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryBound;
using graph::MemoryOp;

std::string Header(const std::string& table, const std::string& gpu = "a100") {
  return "# orrery.measured/1\n# table: " + table + "\n# device: cuda\n# gpu: " + gpu +
         "\n# note: synthetic test data\n";
}
const char* const kGemmColumns =
    "op,dtype,layout,m,n,k,groups,time_us,time_us_q1,time_us_q3,mode,samples\n";
const char* const kAttentionColumns =
    "op,dtype,kernel,b,h,kv_heads,s_q,s_kv,d,causal,pass,time_us,time_us_q1,time_us_q3,mode,"
    "samples\n";
const char* const kMemoryColumns =
    "op,dtype,kernel,rows,cols,bytes,time_us,time_us_q1,time_us_q3,mode,samples\n";

std::string Message(const std::string& text) {
  const auto file = ParseMeasured("bad.csv", text);
  return file.ok() ? "ok" : file.status().message();
}

class Measured : public ::testing::Test {
 protected:
  Measured() {
    folder_ =
        std::filesystem::temp_directory_path() / ("orrery_measured_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Measured() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string Database() { return (folder_ / "kernels.sqlite").string(); }
  // A database of these rows, and a cost model on it.
  CostModel Build(const cluster::DeviceSpec& device, const std::string& gemm,
                  const std::string& attention = "", const std::string& memory = "",
                  std::vector<cluster::DeviceSpec> references = {}) {
    const auto report =
        BuildDatabase({Write("gemm.csv", Header("gemm") + kGemmColumns + gemm),
                       Write("attention.csv", Header("attention") + kAttentionColumns + attention),
                       Write("memory_bound.csv", Header("memory_bound") + kMemoryColumns + memory),
                       Write("launch.csv", Header("launch") + "whatever\n")},
                      Database());
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.status().message());
    EXPECT_EQ(report->files, 3);
    EXPECT_EQ(report->skipped, 1);
    Options options{.measured_database = Database(), .references = std::move(references)};
    auto model = CostModel::Create(device, options);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.status().message());
    return *std::move(model);
  }
  std::filesystem::path folder_;
};

double ModelledSeconds(const cluster::DeviceSpec& device, const graph::Kernel& kernel) {
  return Model(kernel, *DeviceRates::Make(device)).total_s();
}

TEST_F(Measured, ExactRowsAreGivenBack) {
  const CostModel model =
      Build(TestA100(), "gemm,bf16,nt,4096,6144,4096,1,800.5,795.1,808.59,hot,40\n",
            "attention,bf16,flash,2,16,4,2048,2048,128,1,fwd,150,149,151,hot,40\n",
            "memory_bound,bf16,layernorm_fwd,4096,8192,134217728,90,89,91,hot,40\n");
  const KernelTime gemm = model.Price(Gemm{.m = 4096, .n = 6144, .k = 4096});
  EXPECT_EQ(gemm.provenance, Provenance::kMeasured);
  EXPECT_EQ(gemm.duration, 800'500'000);
  EXPECT_NEAR(gemm.spread, 13.49 / 800.5 / 1.349, 1e-6);
  const KernelTime attention = model.Price(Attention{
      .batch = 2, .heads = 16, .kv_heads = 4, .seq_q = 2048, .seq_kv = 2048, .head_dim = 128});
  EXPECT_EQ(attention.provenance, Provenance::kMeasured);
  EXPECT_EQ(attention.duration, 150 * kMicrosecond);
  const KernelTime norm = model.Price(MemoryBound{.op = MemoryOp::kLayerNorm,
                                                  .rows = 4096,
                                                  .cols = 8192,
                                                  .bytes_read = 67'125'248,
                                                  .bytes_written = 67'108'864});
  EXPECT_EQ(norm.provenance, Provenance::kMeasured);
  EXPECT_EQ(norm.duration, 90 * kMicrosecond);
  EXPECT_NEAR(norm.spread, 2.0 / 90 / 1.349, 1e-6);
  // Another layout, type or traffic is another kernel.
  EXPECT_EQ(
      model.Price(Gemm{.m = 4096, .n = 6144, .k = 4096, .layout = GemmLayout::kTN}).provenance,
      Provenance::kModelled);
  EXPECT_EQ(
      model
          .Price(MemoryBound{
              .op = MemoryOp::kLayerNorm, .rows = 4096, .cols = 8192, .bytes_read = 300'000'000})
          .provenance,
      Provenance::kModelled);
}

// Two shapes measured at 1.2 and 1.4 times the model. In the middle in d² the mean is 1.3; near one
// of them the answer is near its ratio.
TEST_F(Measured, BetweenShapesTheModelsErrorIsInterpolated) {
  const auto row = [](std::int64_t m, double ratio) {
    const double us = ratio * 1e6 * ModelledSeconds(TestA100(), Gemm{.m = m, .n = 4096, .k = 4096});
    return fmt::format("gemm,bf16,nt,{},4096,4096,1,{},{},{},hot,40\n", m, us, us, us);
  };
  const CostModel model = Build(TestA100(), row(4096, 1.2) + row(6144, 1.4));
  const auto ratio = [&](std::int64_t m) {
    const Gemm gemm{.m = m, .n = 4096, .k = 4096};
    const KernelTime t = model.Price(gemm);
    EXPECT_EQ(t.provenance, Provenance::kInterpolated) << m;
    EXPECT_GE(t.spread, kSpreadInterpolated);
    return ToSeconds(t.duration) / ModelledSeconds(TestA100(), gemm);
  };
  // (m-4096)²/(4096·m) = (6144-m)²/(6144·m) at m = sqrt(4096·6144) = 5,016.6.
  EXPECT_NEAR(ratio(5016), 1.3, 0.001);
  EXPECT_NEAR(ratio(4160), 1.2, 0.002);
  EXPECT_NEAR(ratio(6080), 1.4, 0.002);
  // Outside the measured range the model answers.
  EXPECT_EQ(model.Price(Gemm{.m = 6200, .n = 4096, .k = 4096}).provenance, Provenance::kModelled);
  EXPECT_EQ(model.Price(Gemm{.m = 5016, .n = 4096, .k = 5000}).provenance, Provenance::kModelled);
}

// The accumulating weight gradient is measured without accumulation: the model brings the
// difference.
TEST_F(Measured, AccumulationBorrowsThePlainKernel) {
  const Gemm plain{.m = 4096, .n = 4096, .k = 8192, .layout = GemmLayout::kTN};
  const double us = 1.1e6 * ModelledSeconds(TestA100(), plain);
  const CostModel model =
      Build(TestA100(), fmt::format("gemm,bf16,tn,4096,4096,8192,1,{},{},{},hot,40\n", us, us, us));
  Gemm accumulating = plain;
  accumulating.accumulate = true;
  accumulating.out_dtype = DType::kFp32;
  const KernelTime t = model.Price(accumulating);
  EXPECT_EQ(t.provenance, Provenance::kInterpolated);
  EXPECT_NEAR(ToSeconds(t.duration) / ModelledSeconds(TestA100(), accumulating), 1.1, 1e-6);
}

// 8 experts with 512 rows each of a call over 4,096.
TEST_F(Measured, GroupedGemmIsABatch) {
  const CostModel model = Build(TestA100(), "gemm,bf16,nt,4096,2048,1024,8,100,99,101,hot,40\n");
  const KernelTime t = model.Price(Gemm{.m = 512, .n = 2048, .k = 1024, .batch = 8});
  EXPECT_EQ(t.provenance, Provenance::kMeasured);
}

// Experts' products one after the other and pieces beside each other are other kernels than the
// measured one: what the fit knows of them was lost.
TEST_F(Measured, OtherKindsOfGemmAreModelled) {
  const CostModel model = Build(TestA100(),
                                "gemm,bf16,nt,4096,2048,1024,8,100,99,101,hot,40\n"
                                "gemm,bf16,nt,512,2048,1024,1,20,19,21,hot,40\n");
  const auto provenance = [&](graph::GemmKind kind, std::int64_t batch) {
    return model.Price(Gemm{.m = 512, .n = 2048, .k = 1024, .batch = batch, .kind = kind})
        .provenance;
  };
  EXPECT_EQ(provenance(graph::GemmKind::kGrouped, 8), Provenance::kModelled);
  EXPECT_EQ(provenance(graph::GemmKind::kPiece, 1), Provenance::kModelled);
  EXPECT_EQ(provenance(graph::GemmKind::kGrouped, 1), Provenance::kMeasured);
}

// The power limit: one shape measured in both modes takes 1.25 times as long; so do its siblings.
TEST_F(Measured, HotTimesAreBroughtToSustainedLoad) {
  const CostModel model = Build(TestA100(),
                                "gemm,bf16,nt,4096,4096,4096,1,100,99,101,hot,40\n"
                                "gemm,bf16,nt,4096,4096,4096,1,125,124,126,sustained,40\n"
                                "gemm,bf16,nt,8192,4096,4096,1,200,199,201,hot,40\n");
  EXPECT_EQ(model.Price(Gemm{.m = 4096, .n = 4096, .k = 4096}).duration, 125 * kMicrosecond);
  EXPECT_EQ(model.Price(Gemm{.m = 8192, .n = 4096, .k = 4096}).duration, 250 * kMicrosecond);
}

// An A100's GEMM of 1,001.8 us, 1.8 of them fixed, on half an A100.
TEST_F(Measured, AnotherDeviceIsScaledByTheBoundThatHoldsThere) {
  cluster::DeviceSpec half = TestA100();
  half.table = half.name = "half";
  half.fp16_flops = 156e12;
  half.sms = 54;
  half.memory_bandwidth_Bps /= 4;
  const std::string gemm = "gemm,bf16,nt,4096,6144,8192,1,1001.8,1000,1003,hot,40\n";
  const std::string memory = "memory_bound,bf16,add,16384,8192,805306368,501.8,501,502,hot,40\n";
  const CostModel model = Build(half, gemm, "", memory, {TestV100(), TestA100()});
  const KernelTime scaled = model.Price(Gemm{.m = 4096, .n = 6144, .k = 8192});
  EXPECT_EQ(scaled.provenance, Provenance::kScaled);
  EXPECT_NEAR(ToSeconds(scaled.duration) * 1e6, 1.8 + 1000 * 2, 1e-3);
  EXPECT_GE(scaled.spread, kSpreadScaled);
  const KernelTime add = model.Price(
      MemoryBound{.op = MemoryOp::kAdd, .rows = 16384, .cols = 8192, .bytes_read = 805306368});
  EXPECT_EQ(add.provenance, Provenance::kScaled);
  EXPECT_NEAR(ToSeconds(add.duration) * 1e6, 1.8 + 500 * 4, 1e-3);
  // Nothing is scaled to another architecture.
  Options options{.measured_database = Database(), .references = {TestA100()}};
  const auto h100 = CostModel::Create(TestH100(), options);
  ASSERT_TRUE(h100.ok());
  EXPECT_EQ(h100->Price(Gemm{.m = 4096, .n = 6144, .k = 8192}).provenance, Provenance::kModelled);
}

// An H200 knows of an H100's products: as neighbours, and the sustained ones make its own hot ones
// sustained, also in a series that has none.
TEST_F(Measured, ATwinsProductsServe) {
  const std::string hot = Header("gemm", "h200") + kGemmColumns +
                          "gemm,bf16,nt,4096,4096,4096,1,200,200,201,hot,40\n"
                          "gemm,fp16,nt,4096,4096,4096,1,220,220,221,hot,40\n";
  const std::string sustained = Header("gemm", "h100") + kGemmColumns +
                                "gemm,bf16,nt,4096,4096,4096,1,240,240,241,sustained,40\n"
                                "gemm,bf16,nt,8192,8192,8192,1,1800,1800,1801,sustained,40\n";
  ASSERT_TRUE(BuildDatabase({Write("a.csv", hot), Write("b.csv", sustained)}, Database()).ok());
  cluster::DeviceSpec h100 = TestH100(), h200 = TestH200();
  Options options{.measured_database = Database(), .references = {h100, h200}};
  const Gemm large{.m = 8192, .n = 8192, .k = 8192};
  // Without a known power limit they are no twins.
  auto model = CostModel::Create(h200, options);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->Price(large).provenance, Provenance::kScaled);
  h100.power_w = h200.power_w = 700;
  options.references = {h100, h200};
  model = CostModel::Create(h200, options);
  ASSERT_TRUE(model.ok());
  const KernelTime time = model->Price(large);
  EXPECT_EQ(time.provenance, Provenance::kInterpolated);
  EXPECT_EQ(time.duration, 1800 * kMicrosecond);
  EXPECT_EQ(model->Price(Gemm{.m = 4096, .n = 4096, .k = 4096}).duration, 240 * kMicrosecond);
  const Gemm half{
      .m = 4096, .n = 4096, .k = 4096, .dtype = DType::kFp16, .out_dtype = DType::kFp16};
  EXPECT_EQ(model->Price(half).duration, 264 * kMicrosecond);
  EXPECT_EQ(model->Price(half).provenance, Provenance::kMeasured);
}

TEST_F(Measured, RowsThatMeasuredNoKernelOrTheHostAreLeftOut) {
  const CostModel model = Build(TestA100(),
                                "gemm,bf16,nt,64,64,64,1,0.1,0.1,0.1,hot,40\n"
                                "gemm,bf16,nt,128,64,64,1,100,99,140,hot,40\n"
                                "gemm,bf16,nt,4096,4096,4096,1,700,699,701,hot,40\n");
  EXPECT_EQ(model.Price(Gemm{.m = 64, .n = 64, .k = 64}).provenance, Provenance::kModelled);
  EXPECT_EQ(model.Price(Gemm{.m = 128, .n = 64, .k = 64}).provenance, Provenance::kModelled);
  EXPECT_EQ(model.Price(Gemm{.m = 4096, .n = 4096, .k = 4096}).provenance, Provenance::kMeasured);
}

TEST_F(Measured, OrderOfRowsAndFilesChangesNothing) {
  std::string forward, backward;
  for (int m = 512; m <= 8192; m += 512) {
    const std::string row =
        fmt::format("gemm,bf16,nt,{},4096,4096,1,{}.5,{},{},hot,9\n", m, m / 8, m / 8, m / 8 + 1);
    forward += row;
    backward.insert(0, row);
  }
  const CostModel a = Build(TestA100(), forward);
  const CostModel b = Build(TestA100(), backward);
  for (int m = 512; m <= 8192; m += 100) {
    const Gemm gemm{.m = m, .n = 4096, .k = 4096};
    EXPECT_EQ(a.Price(gemm).duration, b.Price(gemm).duration) << m;
  }
}

TEST_F(Measured, TheSameKernelInTwoFilesNamesBoth) {
  const std::string row = "gemm,bf16,nt,64,64,64,1,5,5,5,hot,9\n";
  const std::string first = Write("a.csv", Header("gemm") + kGemmColumns + row);
  const std::string second = Write("b.csv", Header("gemm") + kGemmColumns + row);
  const auto report = BuildDatabase({second, first}, Database());
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().message(), second +
                                           ":7: gpu = 'a100': the same kernel is measured in " +
                                           first + "; keep one of the two");
  EXPECT_FALSE(std::filesystem::exists(Database()));
}

// `orrery calibrate` read them through a file in /tmp, which stayed behind when it was interrupted.
TEST_F(Measured, SamplesOfFilesNeedNoDatabase) {
  const std::string b = Write("b.csv", Header("gemm", "h100") + kGemmColumns +
                                           "gemm,bf16,nt,64,64,64,1,5,5,5,hot,9\n"
                                           "gemm,fp8_split,nt,64,64,64,1,5,5,5,hot,9\n");
  const std::string a = Write(
      "a.csv", Header("gemm", "x9") + kGemmColumns + "gemm,fp8_split,nt,64,64,64,1,5,5,5,hot,9\n");
  const auto gpus = ReadSamples({b, a});
  ASSERT_TRUE(gpus.ok()) << gpus.status().message();
  ASSERT_EQ(gpus->size(), 2U);
  EXPECT_EQ((*gpus)[0].gpu, "h100");
  EXPECT_EQ((*gpus)[0].path, b);
  ASSERT_EQ((*gpus)[0].samples.size(), 1U);
  EXPECT_DOUBLE_EQ((*gpus)[0].samples[0].time_s, 5e-6);
  EXPECT_EQ((*gpus)[1].path, a);
  EXPECT_TRUE((*gpus)[1].samples.empty());
  EXPECT_NE(ReadSamples({b, b}).status().message().find("keep one of the two"), std::string::npos);
}

TEST_F(Measured, MissingOrForeignDatabaseIsAnError) {
  Options options{.measured_database = (folder_ / "none.sqlite").string()};
  EXPECT_FALSE(CostModel::Create(TestA100(), options).ok());
  options.measured_database = Write("text.sqlite", "this is no database, however long it may be");
  const auto model = CostModel::Create(TestA100(), options);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("build the database again"), std::string::npos);
}

TEST(MeasuredCsv, DamageNamesLineFieldValueAndRemedy) {
  const std::string head = Header("gemm") + kGemmColumns;
  EXPECT_EQ(Message(head + "gemm,bf16,nt,64,abc,64,1,5,5,5,hot,9\n"),
            "bad.csv:7: n = 'abc': is not an integer; restore the line or delete it");
  EXPECT_EQ(Message(head + "gemm,bf16,nt,64,64,64,1,-5,5,5,hot,9\n"),
            "bad.csv:7: time_us = '-5': must be from 0.0001 to 1e15; measure it again");
  EXPECT_EQ(Message(head + "gemm,bf16,nt,64,64,64,1,nan,5,5,hot,9\n"),
            "bad.csv:7: time_us = 'nan': must be from 0.0001 to 1e15; measure it again");
  EXPECT_EQ(Message(head + "gemm,bf17,nt,64,64,64,1,5,5,5,hot,9\n"),
            "bad.csv:7: dtype = 'bf17': is unknown; valid: bf16, fp16, fp32, tf32, fp8, fp8_split");
  EXPECT_EQ(
      Message(head + "gemm,bf16,nt,64,64,64,1,5,5\n"),
      "bad.csv:7: row = 'gemm,bf16,nt,64,64,64,1,5,5': has 9 cells, not 12; restore the line or "
      "delete it");
  EXPECT_EQ(
      Message(head + "gemm,bf16,nt,64,64,64,1,5,5,5,hot"),
      "bad.csv:7: line = 'gemm,bf16,nt,64,64,64,1,5,5,5,hot': has no end of line, so the file "
      "is cut; resume the measurement, or end the line");
  const std::string row = "gemm,bf16,nt,64,64,64,1,5,5,5,hot,9\n";
  EXPECT_EQ(Message(head + row + row),
            "bad.csv:8: row = 'gemm,bf16,nt,64,64,64,1,hot,': repeats the key of a row above; keep "
            "one of the two");
  EXPECT_EQ(
      Message("# orrery.measured/2\n"),
      "bad.csv:1: first line = '# orrery.measured/2': is not '# orrery.measured/1'; only this "
      "version of the format is read");
  EXPECT_EQ(Message(Header("gemm") + "op,dtype,layout,n,m,k\n"),
            "bad.csv:6: column 4 = 'n': table gemm has 'm' there; write the columns of "
            "docs/formats/measured-kernels.md in their order");
  EXPECT_EQ(Message(Header("gemm")),
            "bad.csv:5: columns = '': are missing; the file ends too early");
  EXPECT_EQ(Message("# orrery.measured/1\n# table: gemm\n# table: gemm\n"),
            "bad.csv:3: header = 'table': stands twice; keep one of the two");
}

TEST(MeasuredCsv, TrialRunsAreNotData) {
  EXPECT_EQ(
      Message("# orrery.measured/1\n# table: gemm\n# gpu: x\n# device: cpu (tiny, not data)\n" +
              std::string(kGemmColumns)),
      "bad.csv:5: device = 'cpu (tiny, not data)': is a trial run; measure on a GPU, without "
      "--tiny");
}

TEST(MeasuredCsv, QuotesAreUndone) {
  const auto file = ParseMeasured("good.csv", Header("memory_bound") + kMemoryColumns +
                                                  "memory_bound,bf16,\"a \"\"b\"\", c\",1,2,3,4,4,"
                                                  "4,hot,5\n");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(std::get<std::string>(file->rows[0][2]), "a \"b\", c");
}

// Not a gate: nanoCPU seconds are printed, for a table as large as a measuring run leaves.
TEST_F(Measured, LookUpIsCheap) {
  std::string rows;
  for (const int k : {1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288, 16384}) {
    for (const int n : {1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576}) {
      for (int m = 512; m <= 32768; m *= 2) {
        for (const int odd : {0, m / 4, m / 2}) {
          rows += fmt::format("gemm,bf16,nt,{},{},{},1,{},{},{},hot,9\n", m + odd, n, k, 10 + m,
                              10 + m, 10 + m);
        }
      }
    }
  }
  const CostModel model = Build(TestA100(), rows);
  constexpr int kCount = 50'000;
  const auto time = [&](const char* what, int step) {
    const std::clock_t start = std::clock();
    SimTime sum = 0;
    for (int i = 0; i < kCount; ++i) {
      sum += model.Price(Gemm{.m = 4096 + step * (1 + i % 100), .n = 4096, .k = 4096}).duration;
    }
    const double cpu = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC * 1e9;
    EXPECT_GT(sum, 0);
    EXPECT_LT(cpu / kCount, 100'000);
    std::printf("%s of 2,520: %.0f ns per price\n", what, cpu / kCount);
  };
  time("exact", 0);
  time("interpolated", 1);
}

}  // namespace
}  // namespace orrery::compute
