// Patterns (workload/schedules) as they run: finish times that LogGOPSim gives for the same
// schedule, and what a user can get wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "orrery/job/trace.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

Result<results::TraceResult> Simulated(std::string_view name, int ranks, std::string_view keys,
                                       TraceOptions options = {}) {
  options.set.push_back(fmt::format("pattern.name={}", name));
  options.set.push_back(fmt::format("pattern.ranks={}", ranks));
  while (!keys.empty()) {
    const std::string_view key = keys.substr(0, keys.find(' '));
    options.set.push_back(fmt::format("pattern.{}", key));
    keys.remove_prefix(std::min(keys.size(), key.size() + 1));
  }
  const TraceFiles files{{std::string(name)}, {}};
  const Result<const Importer*> importer = FindImporter(files, "pattern");
  EXPECT_TRUE(importer.ok());
  return SimulateTrace(**importer, files, options);
}

// LogGOPSim 76451de with its ready operations ordered by kind and place (docs/formats/goal.md):
//     schedgen -p SCHEDGEN -s RANKS -d SIZE [--root R] [--nway W] [--segmentsize S] -o s.goal
//     txt2bin -i s.goal -o s.bin; LogGOPSim -f s.bin
// Schedgen does not have the last eight; their schedules are 'orrery convert p.yaml -o s.goal'.
struct Case {
  std::string_view name, schedgen;
  int ranks;
  std::string_view keys;
  std::int64_t finish_time;  // ns
};
constexpr Case kCases[] = {
    {"binomial-bcast", "binomialtreebcast", 13, "size=1001 root=3", 41500},
    {"binomial-reduce", "binomialtreereduce", 13, "size=1001 root=3", 42000},
    {"binary-bcast", "binarytreebcast", 13, "size=1001", 48500},
    {"dissemination", "dissemination", 100, "size=70000", 2978458},
    {"nway-dissemination", "nwaydissemination", 16, "size=1001 ways=3", 69000},
    {"halving-doubling", "allreduce_recdoub", 64, "size=70000", 892512},
    {"ring", "allreduce_ring", 64, "size=70000", 1518552},
    {"pipelined-ring", "pipelinedring", 7, "size=70000 segment=1024 root=3", 807750},
    {"pipelined-ring-in-turn", "pipelinedringdep", 7, "size=70000 segment=1024", 1741128},
    {"double-ring", "doublering", 16, "size=70000", 7230898},
    {"linear-gather", "gather", 16, "size=1001 root=3", 116500},
    {"linear-scatter", "scatter", 16, "size=1001 root=3", 109500},
    {"linear-barrier", "linbarrier", 100, "", 305000},
    {"linear-alltoall", "linear_alltoall", 16, "size=70000", 6382410},
    {"recursive-doubling", "", 13, "size=1001 compute=100ns", 77100},
    {"rabenseifner", "", 13, "size=70000 compute=100ns", 2572627},
    {"pairwise-alltoall", "", 7, "size=70000", 2552964},
    {"nearest-2d", "", 12, "size=70000 steps=3 compute=100us", 5405928},
    {"nearest-3d", "", 24, "size=1001 steps=3 compute=10us", 237000},
    {"sweep-2d", "", 12, "size=1001 steps=5 compute=10us", 606500},
    {"sweep-3d", "", 24, "size=1001 steps=9 compute=10us", 1257000},
    {"bsp", "", 13, "size=1001 steps=3 ways=3 compute=10us", 199500},
};

TEST(Patterns, FinishWhenLogGopsimSays) {
  for (const Case& c : kCases) {
    const auto run = Simulated(c.name, c.ranks, c.keys);
    ASSERT_TRUE(run.ok()) << c.name << ": " << run.status().message();
    EXPECT_EQ(run->record.finish_time, c.finish_time * kNanosecond) << c.name;
  }
}

// A rank is done once its processor is: 7 bytes' O behind the last send's end at o.
TEST(Patterns, ARankIsDoneWhenItsProcessorIs) {
  TraceOptions options;
  options.set = {"loggops.O=1", "loggops.G=0"};
  const auto run = Simulated("linear-gather", 2, "size=8", options);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->record.classes[1].finish_time, 1507 * kNanosecond);
}

// Every rank does 2·log2(16) exchanges of halves: 2·15/16 of the vector in all.
TEST(Patterns, RabenseifnerMovesTwiceTheVector) {
  const auto run = Simulated("rabenseifner", 16, "size=16000");
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->record.messages.sent, 16u * 8);
  EXPECT_EQ(run->record.messages.bytes, std::int64_t{16} * 30000);
}

// Its largest halves stay inside a host, as MPICH and Open MPI have them: with the farthest member
// first they would all cross NICs.
TEST(Patterns, RabenseifnerBeginsWithTheNearest) {
  TraceOptions options;
  options.network = "flow";
  options.cluster = "h100-ib-400g";
  options.set = {"cluster.nics_per_node=1"};
  const auto library = Simulated("rabenseifner", 16, "size=16MiB", options);
  const auto schedgen = Simulated("halving-doubling", 16, "size=16MiB", options);
  ASSERT_TRUE(library.ok() && schedgen.ok()) << library.status().message();
  EXPECT_EQ(library->record.finish_time, schedgen->record.finish_time);
}

// Messages that wait for one interface try one after the other: events grow with their number, not
// with its square. Each is a send, an arrival and a receive, and a little for those that wait.
TEST(Patterns, ALongQueueCostsEventsInProportion) {
  const auto scatter = Simulated("linear-scatter", 1000, "size=64KiB");
  ASSERT_TRUE(scatter.ok()) << scatter.status().message();
  EXPECT_EQ(scatter->record.finish_time, 393'820'290 * kNanosecond);
  EXPECT_LT(scatter->record.events, 8'000u);
  const auto all = Simulated("linear-alltoall", 64, "size=64KiB");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_LT(all->record.events, 64u * 63 * 8);
}

// The same pattern on a cluster's links: no message is lost, and it takes its links' time.
TEST(Patterns, RunOnAClustersLinks) {
  TraceOptions options;
  options.network = "flow";
  options.cluster = "h100-ib-400g";
  const auto run = Simulated("nearest-3d", 64, "size=1MiB steps=2 grid=4x4x4", options);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->record.messages.sent, 64u * 6 * 2);
  EXPECT_EQ(run->record.messages.bytes, std::int64_t{64} * 6 * 2 << 20);
  EXPECT_FALSE(run->worst_links.empty());
}

TEST(Patterns, SayWhatIsWrong) {
  const auto error = [](std::string_view name, int ranks, std::string_view keys) {
    return Simulated(name, ranks, keys).status().message();
  };
  EXPECT_THAT(error("rng", 4, ""), HasSubstr("unknown pattern 'rng'; did you mean 'ring'"));
  EXPECT_THAT(error("ring", 4, "root=1"), HasSubstr("'ring' has none; leave it out"));
  EXPECT_THAT(error("binomial-bcast", 4, "root=4"), HasSubstr("there are ranks 0 to 3"));
  EXPECT_THAT(error("halving-doubling", 12, ""), HasSubstr("needs a power of two, not 12"));
  EXPECT_THAT(error("nearest-2d", 12, "grid=5x2"), HasSubstr("has room for 10 ranks"));
  EXPECT_THAT(error("nearest-2d", 12, "grid=12"), HasSubstr("is not 2 whole numbers"));
  EXPECT_THAT(error("nearest-2d", 12, "grid=3x2x2"), HasSubstr("is not 2 whole numbers"));
  EXPECT_THAT(error("bsp", 4, "ways=4"), HasSubstr("a rank has 3 others"));
  EXPECT_THAT(error("bsp", 4, "compute=1ps"), HasSubstr("whole nanoseconds"));
  EXPECT_THAT(error("linear-alltoall", 1 << 20, ""), HasSubstr("at most 200000000 in all"));
}

// simulation.link_steps had no effect on what is no job.
TEST(Patterns, LinksUseOverTimeInAsManySteps) {
  TraceOptions options{.network = "flow", .cluster = "h100-ib-400g"};
  options.set = {"simulation.link_steps=8"};
  const auto run = Simulated("ring", 16, "size=70000", options);
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_FALSE(run->over_time.empty());
  EXPECT_LE(run->over_time.classes.front().bytes.size(), 8u);
  EXPECT_TRUE(Simulated("ring", 16, "size=70000", {.network = "flow", .cluster = "h100-ib-400g"})
                  ->over_time.empty());
  options.set = {"simulation.link_steps=7"};
  EXPECT_THAT(Simulated("ring", 16, "size=70000", options).status().message(),
              HasSubstr("link_steps takes an even number; 7 is odd"));
  options.network = "analytic";
  options.set = {"simulation.link_steps=8"};
  EXPECT_THAT(Simulated("ring", 16, "size=70000", options).status().message(),
              HasSubstr("the network 'analytic' does not see single links"));
}

}  // namespace
}  // namespace orrery::job
