// The resolved configuration and its hash.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "orrery/job/test_support.h"

namespace orrery::job {
namespace {

// A file's name stands in the configuration, what it holds in the hash: two schedules of one name
// had one hash.
TEST(Configuration, FilesCountByWhatTheyHold) {
  const std::string path = ::testing::TempDir() + "counts.schedule";
  const auto hash = [&](std::string_view last) {
    std::ofstream(path) << "orrery.schedule/1\nstage 0: F0 F1 B0 B1\nstage 1: " << last << "\n";
    const Job job =
        Read(fmt::format("model: gpt2\ncluster: h100-ib-400g\nparallel: {{pp: 2, dp: 1}}\n"
                         "schedule: {}\ntraining: {{global_batch: 2, seq_len: 128}}\n",
                         path));
    EXPECT_EQ(Read(job.config_json).config_hash, job.config_hash);
    return job.config_hash;
  };
  const std::uint64_t one = hash("F0 B0 F1 B1");
  EXPECT_NE(hash("F0 F1 B0 B1"), one);
  EXPECT_EQ(hash("F0 B0 F1 B1"), one);
}

}  // namespace
}  // namespace orrery::job
