#include "orrery/search/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "orrery/base/file.h"
#include "orrery/job/simulate.h"

namespace orrery::search {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kJob = R"(
model: gpt2
cluster: h100-ib-400g
nodes: 2
parallel: {tp: 2, pp: 2}
training: {global_batch: 64, seq_len: 1024, recompute: selective, sharding: zero1}
)";

Template Job() {
  Result<Template> job = ReadTemplateText(kJob, "job.yaml", {}, "");
  EXPECT_TRUE(job.ok()) << job.status().message();
  return *std::move(job);
}

// tp 3 does not divide the GPUs, so that some rows are refused.
Space Grid() {
  Space space;
  EXPECT_TRUE(space.Add(*ParseVary("parallel.tp=1..4")).ok());
  EXPECT_TRUE(space.Add(*ParseVary("cluster.nic_bandwidth=200Gb/s,400Gb/s")).ok());
  EXPECT_TRUE(space.Add(*ParseVary("training.micro_batch=1,2")).ok());
  return space;
}

Sweep Swept(const SweepOptions& options) {
  Result<Sweep> sweep = RunSweep(Job(), Grid(), options);
  EXPECT_TRUE(sweep.ok()) << sweep.status().message();
  return sweep.ok() ? *std::move(sweep) : Sweep{};
}

TEST(Sweep, ARowIsWhatSimulateSays) {
  const Sweep sweep = Swept({.threads = 1});
  ASSERT_EQ(sweep.rows.size(), 16u);
  const Space space = Grid();
  for (const SweepRow& row : sweep.rows) {
    job::ReadOptions read;
    read.set = space.Assignments(row.point);
    const auto job = job::ReadJobText(kJob, "job.yaml", "", read);
    if (row.status == RowStatus::kRefused) {
      EXPECT_EQ(row.values[0], "3");
      EXPECT_EQ(row.reason, job.status().message());
      continue;
    }
    ASSERT_TRUE(job.ok());
    const auto result = job::Simulate(*job);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(row.step_time, result->jobs[0].step_time);
    EXPECT_EQ(row.parts, result->jobs[0].overall.parts);
    EXPECT_EQ(row.interval_high_s, result->jobs[0].interval_high_s);
    std::int64_t memory = 0;
    for (const auto& one : result->jobs[0].memory) memory = std::max(memory, one.total());
    EXPECT_EQ(row.memory_bytes, memory);
  }
}

TEST(Sweep, ThreadsAndShardsChangeNothing) {
  const std::string whole = SweepToJson(Swept({.threads = 1}));
  EXPECT_EQ(SweepToJson(Swept({.threads = 3})), whole);
  std::vector<Sweep> shards;
  for (const int shard : {3, 1, 2}) {
    const Sweep part = Swept({.threads = 1, .shard = shard, .shards = 3});
    Result<Sweep> read = SweepFromJson(SweepToJson(part), "part.json");
    ASSERT_TRUE(read.ok()) << read.status().message();
    shards.push_back(*std::move(read));
  }
  std::vector<Sweep> doubled = {shards[0], shards[1], shards[2], shards[1]};
  std::vector<Sweep> missing = {shards[0], shards[2]};
  const auto merged = Merge(std::move(shards));
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  EXPECT_EQ(SweepToJson(*merged), whole);
  EXPECT_THAT(Merge(std::move(doubled)).status().message(), HasSubstr("stands in two shards"));
  EXPECT_THAT(Merge(std::move(missing)).status().message(), HasSubstr("none of the shards"));
}

// Cut short after five rows and in the middle of a line, a sweep goes on from its journal.
TEST(Sweep, ResumesWhereItEnded) {
  const std::string path = ::testing::TempDir() + "orrery_sweep_journal";
  std::filesystem::remove(path);
  const std::string whole = SweepToJson(Swept({.threads = 1}));
  std::atomic<bool> stop{false};
  SweepOptions options{.threads = 1, .journal = path, .stop = &stop};
  options.progress = [&](std::size_t done, std::size_t) { stop = done == 5; };
  EXPECT_EQ(Swept(options).rows.size(), 5u);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 7);
  std::size_t ran = 0;
  options.stop = nullptr;
  options.progress = [&](std::size_t, std::size_t total) { ran = total; };
  EXPECT_EQ(SweepToJson(Swept(options)), whole);
  EXPECT_EQ(ran, 12u);  // four whole rows were kept
  options.replay = false;
  EXPECT_THAT(RunSweep(Job(), Grid(), options).status().message(),
              HasSubstr("holds another sweep"));
  std::filesystem::remove(path);
}

// Whoever names a file of his own as the journal keeps it.
TEST(Sweep, AFileThatIsNoJournalStaysAsItIs) {
  const std::string path = ::testing::TempDir() + "orrery_sweep_no_journal";
  const std::string own = "model: gpt2";  // one line without an end
  ASSERT_TRUE(WriteFile(path, own).ok());
  EXPECT_THAT(RunSweep(Job(), Grid(), {.threads = 1, .journal = path}).status().message(),
              HasSubstr("is no journal of a sweep"));
  EXPECT_EQ(*ReadFile(path, 100), own);
  std::filesystem::remove(path);
}

TEST(Sweep, WeakScalingGrowsTheBatch) {
  const auto weak = ScaleAxis(Job(), "nodes=0.5x,2x", true);
  ASSERT_TRUE(weak.ok()) << weak.status().message();
  EXPECT_EQ(weak->points[0], (std::vector<std::string>{"1", "2", "32"}));
  EXPECT_EQ(weak->points[1], (std::vector<std::string>{"4", "8", "128"}));
  const auto strong = ScaleAxis(Job(), "nodes=2x", false);
  EXPECT_EQ(strong->points[0], (std::vector<std::string>{"4", "8", "64"}));
  EXPECT_THAT(ScaleAxis(Job(), "nodes=3", true).status().message(), HasSubstr("is no factor"));
  EXPECT_THAT(ScaleAxis(Job(), "nodes=0.3x", true).status().message(), HasSubstr("whole number"));
}

// Live memory is a lower bound of what the allocator needs.
// What follows the nodes parts no lines; a grid beside it does.
TEST(Sweep, APlotHasALineForEachPlanThatGrows) {
  const Template job = Job();
  const auto lines = [&](bool grid) {
    Space space;
    EXPECT_TRUE(space.Add(*ScaleAxis(job, "nodes=1x,2x,4x", true)).ok());
    if (grid) {
      EXPECT_TRUE(space.Add(*ParseVary("training.micro_batch=1,2")).ok());
    }
    const auto sweep = RunSweep(job, space, {.threads = 1});
    EXPECT_TRUE(sweep.ok()) << sweep.status().message();
    const std::string svg = sweep.ok() ? SweepToSvg(*sweep) : "";
    std::size_t count = 0;
    for (auto at = svg.find("<polyline"); at != svg.npos; at = svg.find("<polyline", at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(lines(false), 1u);
  EXPECT_EQ(lines(true), 2u);
}

TEST(Sweep, TheBoundOfMemoryIsBelowTheReplay) {
  const Sweep replayed = Swept({.threads = 1}), bound = Swept({.threads = 1, .replay = false});
  for (std::size_t i = 0; i < bound.rows.size(); ++i) {
    if (bound.rows[i].status != RowStatus::kOk) continue;
    EXPECT_TRUE(bound.rows[i].memory_bound);
    EXPECT_LE(bound.rows[i].memory_bytes, replayed.rows[i].memory_bytes);
    EXPECT_GE(bound.rows[i].memory_bytes, replayed.rows[i].memory_bytes / 2);
  }
}

TEST(Sweep, WhenNothingIsPossibleTheFirstReasonIsTheError) {
  Space space;
  ASSERT_TRUE(space.Add(*ParseVary("parallel.tpp=1,2")).ok());
  const auto sweep = RunSweep(Job(), space, {.threads = 1});
  EXPECT_EQ(sweep.status().code(), Code::kInvalidInput);
  EXPECT_THAT(sweep.status().message(), HasSubstr("did you mean 'tp'"));
}

}  // namespace
}  // namespace orrery::search
