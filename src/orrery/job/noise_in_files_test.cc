// The noise of equal ranks in what a job is written as.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "orrery/constants/constants.h"
#include "orrery/job/test_support.h"
#include "orrery/job/trace.h"
#include "orrery/job/writers.h"

namespace orrery::job {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Written WrittenAs(const Simulation& simulation, const std::string& format) {
  const Result<const Writer*> writer = FindWriter("file", format);
  EXPECT_TRUE(writer.ok());
  const engine::Inputs inputs = simulation.inputs();
  Result<Written> written = (*writer)->write({&inputs, true, 1});
  EXPECT_TRUE(written.ok()) << written.status().message();
  return written.ok() ? *std::move(written) : Written{};
}

// The step of the graph that was written is the job's, and not some per cent shorter.
TEST(NoiseInFiles, AGraphCarriesIt) {
  const Job job = Read(kSmall);
  ASSERT_GT(job.engine.rank_noise, 0);
  Caches caches;
  const auto simulation = Simulation::Prepare(job, {}, &caches);
  ASSERT_TRUE(simulation.ok());
  const SimTime step = Predict(job).jobs[0].step_time;
  const constants::Set constants = constants::Set::Fitted();
  const TraceOptions options{.cluster = "h100-ib-400g", .nodes = 1, .constants = &constants};
  for (const std::string format : {"graph", "graph-text"}) {
    const auto path = std::filesystem::path(::testing::TempDir()) /
                      fmt::format("orrery_noise_{}_{}.graph", format, getpid());
    std::ofstream(path, std::ios::binary) << WrittenAs(*simulation, format).bytes;
    const TraceFiles files = OpenTrace({path});
    const Result<const Importer*> importer = FindImporter(files, "");
    ASSERT_TRUE(importer.ok() && *importer != nullptr);
    const auto result = SimulateTrace(**importer, files, options);
    std::filesystem::remove(path);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_NEAR(ToSeconds(result->record.jobs[0].step_time), ToSeconds(step),
                1e-3 * ToSeconds(step))
        << format;
  }
}

// Forms that cannot say it name it with its size.
TEST(NoiseInFiles, OthersListIt) {
  const Job job = Read(kSmall);
  Caches caches;
  const auto simulation = Simulation::Prepare(job, {}, &caches);
  ASSERT_TRUE(simulation.ok());
  for (const char* format : {"goal", "goal-binary", "chakra"}) {
    EXPECT_THAT(WrittenAs(*simulation, format).lost,
                Contains(HasSubstr("the noise of equal ranks: a step waits for the slowest")))
        << format;
  }
  EXPECT_TRUE(WrittenAs(*simulation, "graph").lost.empty());
}

TEST(NoiseInFiles, AGraphWithNonsenseIsRefused) {
  const auto path =
      std::filesystem::path(::testing::TempDir()) / fmt::format("orrery_noise_{}.txt", getpid());
  std::ofstream(path) << "orrery.graph/2\njob \"j\" ranks=1 noise=-1\nblock 0\n  host ps=5\n"
                         "program 0\n  call block=0\nrank program=0 job=0\n";
  const TraceFiles files = OpenTrace({path});
  const Result<const Importer*> importer = FindImporter(files, "");
  ASSERT_TRUE(importer.ok() && *importer != nullptr);
  const auto result = SimulateTrace(**importer, files, {.cluster = "h100-ib-400g", .nodes = 1});
  std::filesystem::remove(path);
  EXPECT_THAT(result.status().message(), HasSubstr("job 0 'j': noise = -1 is not 0 to 0.5"));
}

}  // namespace
}  // namespace orrery::job
