#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "orrery/compute/measured_table.h"
#include "orrery/job/job.h"
#include "orrery/job/simulate.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

constexpr const char* kText =
    "model: gpt2\ncluster: h100-ib-400g\nnodes: 1\nparallel: {tp: 1}\n"
    "training: {global_batch: 8, seq_len: 1024, micro_batch: 1}\n";

Result<results::RunResult> RunOf(const std::string& more, const std::string& database) {
  ORRERY_ASSIGN_OR_RETURN(const Job job, ReadJobText(kText + more, "job.yaml", "", {}));
  SimulateOptions options;
  options.measured_database = database;
  return Simulate(job, options);
}

TEST(MeasuredKernels, PriceWhatTheyReachWhereTheJobAsksForThem) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("orrery_measured_job_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string csv = (folder / "gemm.csv").string(), database = (folder / "k.sqlite").string();
  // The first product of GPT-2's feed-forward, far longer than it takes.
  std::ofstream(csv) << "# orrery.measured/1\n# table: gemm\n# device: cuda\n"
                        "# gpu: h100-80gb-hbm3\n# gpu_name: NVIDIA H100 80GB HBM3\n"
                        "op,dtype,layout,m,n,k,groups,time_us,time_us_q1,time_us_q3,mode,samples\n"
                        "gemm,bf16,nt,1024,3072,768,1,50000,49900,50100,hot,40\n";
  ASSERT_TRUE(compute::BuildDatabase({csv}, database).ok());
  const auto plain = RunOf("", database), model = RunOf("kernels: model\n", database),
             measured = RunOf("kernels: measured\n", database);
  ASSERT_TRUE(plain.ok() && model.ok());
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(plain->simulation.config_hash, model->simulation.config_hash);
  EXPECT_NE(plain->simulation.config_hash, measured->simulation.config_hash);
  EXPECT_EQ(plain->jobs[0].step_time, model->jobs[0].step_time);
  // Once a layer and pass; twelve layers.
  EXPECT_GT(measured->jobs[0].step_time, 12 * 49'000 * kMicrosecond);
  std::filesystem::remove_all(folder);
}

TEST(MeasuredKernels, WithoutATableTheyAreRefused) {
  EXPECT_THAT(RunOf("kernels: measured\n", "").status().message(),
              HasSubstr("there is no table of measured kernels beside the program"));
  EXPECT_THAT(RunOf("kernels: guessed\n", "").status().message(), HasSubstr("kernels"));
}

}  // namespace
}  // namespace orrery::job
