// Requests to a storage service as they run: completion times derived by hand, on LogGOPS and on a
// cluster, and what a trace or a key can get wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/job/trace.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

class TempFile {
 public:
  explicit TempFile(std::string_view text, std::string_view suffix = ".spc") {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) /
            fmt::format("orrery_{}_{}_{}{}", test->name(), getpid(), number_++, suffix);
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::filesystem::remove(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  static inline int number_ = 0;
  std::string path_;
};

Result<results::TraceResult> RunFile(const std::string& path, std::vector<std::string> set,
                                     TraceOptions options = {}) {
  const TraceFiles files = OpenTrace({path});
  const Result<const Importer*> importer = FindImporter(files, "");
  EXPECT_TRUE(importer.ok() && *importer != nullptr) << "known by its content";
  options.set = std::move(set);
  return SimulateTrace(**importer, files, options);
}
Result<results::TraceResult> RunTrace(std::string_view text, std::vector<std::string> set,
                                      const TraceOptions& options = {}) {
  const TempFile file(text);
  return RunFile(file.path(), std::move(set), options);
}
Result<results::TraceResult> Drawn(std::vector<std::string> set, TraceOptions options = {}) {
  const TraceFiles files{{"storage"}, {}};
  const Result<const Importer*> importer = FindImporter(files, "storage");
  EXPECT_TRUE(importer.ok());
  options.set = std::move(set);
  return SimulateTrace(**importer, files, options);
}

// One of each server, messages of 1 B, L 1 us, o 100 ns, g and G nothing; a lookup takes 700 ns, a
// store 1 ns a byte to read and 2 to write, a journal 1 ns a byte.
std::vector<std::string> Small(std::vector<std::string> more = {}) {
  std::vector<std::string> set = {"storage.coordinators=1",
                                  "storage.stores=1",
                                  "storage.replicas=1",
                                  "storage.request_size=1B",
                                  "storage.reply_size=1B",
                                  "storage.lookup_time=700ns",
                                  "storage.read_rate=1GB/s",
                                  "storage.write_rate=0.5GB/s",
                                  "storage.journal_rate=1GB/s",
                                  "loggops.L=1000",
                                  "loggops.o=100",
                                  "loggops.g=0",
                                  "loggops.G=0"};
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

// When each was answered after it was made, ns.
std::vector<std::int64_t> Times(const Result<results::TraceResult>& run) {
  EXPECT_TRUE(run.ok()) << run.status().message();
  std::vector<std::int64_t> times;
  if (!run.ok() || !run->requests) return times;
  for (const auto& one : run->requests->each) {
    EXPECT_EQ((one.end - one.begin) % kNanosecond, 0);
    times.push_back((one.end - one.begin) / kNanosecond);
  }
  return times;
}
using Ns = std::vector<std::int64_t>;

// A message takes o + L + o = 1.2 us. Read: four messages, the lookup, 512 ns at the store.
TEST(Storage, AReadAlone) {
  EXPECT_EQ(Times(RunTrace("3,0,512,r,5.25\n", Small())), Ns{4 * 1200 + 700 + 512});
  EXPECT_EQ(Times(RunTrace("3,0,512,r,5.25\n", Small({"storage.lookup=never"}))),
            Ns{2 * 1200 + 512});
}

// A client's second read of a slice need not ask its coordinator again; 100 us lie between.
TEST(Storage, ALookupIsRemembered) {
  const std::string_view trace = "0,0,512,r,0\n0,8,512,r,0.0001\n0,4096,512,r,0.0002\n";
  EXPECT_EQ(Times(RunTrace(trace, Small({"storage.lookup=first"}))), (Ns{6012, 2912, 6012}));
}

// Write: to the coordinator, 1,000 ns of journal, to the store, 2,000 ns, back and back.
TEST(Storage, AWriteAlone) {
  EXPECT_EQ(Times(RunTrace("0,0,1000,w,0\n", Small())), Ns{4 * 1200 + 1000 + 2000});
}

// Three replicas: the coordinator's processor of messages sends the copies o = 100 ns apart, and
// takes in the acknowledgements as far apart: the last replica's is 200 ns later.
TEST(Storage, AWriteIsAnsweredWhenAllReplicasHaveIt) {
  EXPECT_EQ(Times(RunTrace("0,0,1000,w,0\n", Small({"storage.stores=3", "storage.replicas=3"}))),
            Ns{4 * 1200 + 1000 + 2000 + 200});
}

// Two reads of one store, from two clients at once and without lookups. At the store the second
// message is taken in 100 ns behind the first, and waits for the disk until 512 ns behind it.
TEST(Storage, AStoreServesOneAtATime) {
  const std::string_view trace = "0,0,512,r,1\n1,0,512,r,1\n";
  EXPECT_EQ(Times(RunTrace(trace, Small({"storage.lookup=never"}))),
            (Ns{2 * 1200 + 512, 2 * 1200 + 2 * 512}));
}

// 1,024 bytes across the border of two slices of 512 B, of two coordinators with a store each: two
// parts at once. The client's messages go and come o apart.
TEST(Storage, ARequestIsServedSliceBySlice) {
  const auto run =
      RunTrace("0,1,1024,r,0\n", Small({"storage.lookup=never", "storage.slice=512B",
                                        "storage.coordinators=2", "storage.stores=2"}));
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(Times(run), Ns{2 * 1200 + 512 + 100});
  EXPECT_EQ(run->record.messages.sent, 4u);
  EXPECT_EQ(run->record.messages.bytes, 2 + 1024);
}

// An open loop makes requests at their times, scaled; a closed one when a lane is free, behind the
// time to think. Two lanes: the third waits for the first.
TEST(Storage, OpenAndClosedLoops) {
  const std::string_view trace = "0,0,512,r,7\n0,0,512,r,7.00001\n0,0,512,r,7.00002\n";
  const auto begin = [](const Result<results::TraceResult>& run, std::size_t i) {
    return run->requests->each[i].begin / kNanosecond;
  };
  const auto open = RunTrace(trace, Small({"storage.time_scale=0.5"}));
  EXPECT_EQ(Times(open), (Ns{6012, 6012, 6012})) << "one is past each server before the next comes";
  EXPECT_EQ(begin(open, 2), 10'000);
  const auto closed = RunTrace(trace, Small({"storage.loop=closed", "storage.think=3us"}));
  EXPECT_EQ(Times(closed), (Ns{6012, 6012, 6012}));
  EXPECT_EQ(begin(closed, 1), 6012 + 3000);
  const auto two = RunTrace(trace, Small({"storage.loop=closed", "storage.depth=2"}));
  EXPECT_EQ(begin(two, 1), 0);
  EXPECT_EQ(begin(two, 2), Times(two)[0]);
}

// Three hosts on, a lookup, three back: 6 messages and 700 ns; then the read.
TEST(Storage, AMountComesFirst) {
  const auto run = RunTrace("0,0,512,r,0\n", Small({"storage.mount=true"}));
  EXPECT_EQ(Times(run), (Ns{6 * 1200 + 700, 6 * 1200 + 700 + 6012}));
  ASSERT_EQ(run->requests->rows.size(), 2u) << "a mount is no part of what is served";
  EXPECT_EQ(run->requests->rows[0].count, 1u);
  const auto closed =
      RunTrace("0,0,512,r,0\n", Small({"storage.mount=true", "storage.loop=closed"}));
  EXPECT_EQ(Times(closed), (Ns{6 * 1200 + 700, 6012}));
}

// The store erases for 50 us once 1,000 bytes are written: the second write waits for it.
TEST(Storage, GarbageCollectionHoldsAStore) {
  const auto run = RunTrace("0,0,1000,w,0\n0,8,1000,w,0.00001\n",
                            Small({"storage.collect_after=1000B", "storage.collect_time=50us"}));
  // The first is written at 2·1,200 + 1,000 + 2,000 = 5,400 ns; the disk is free at 55,400 and
  // writes the second by 57,400; two messages on it is 59,800, made at 10,000.
  EXPECT_EQ(Times(run), (Ns{7800, 49'800}));
}

// Reads of a slice go to its replicas in turn: three stores are at work as long.
TEST(Storage, ReadsTakeReplicasInTurn) {
  std::string trace;
  for (int i = 0; i < 6; ++i) trace += fmt::format("0,0,512,r,0.00{}\n", i);
  const auto run = RunTrace(trace, Small({"storage.stores=3", "storage.replicas=3"}));
  ASSERT_TRUE(run.ok());
  const auto& stores = run->requests->hosts.back();
  EXPECT_EQ(stores.name, "store");
  EXPECT_DOUBLE_EQ(stores.busy, stores.busiest);
}

// 1 to 1,000 ns of time that a store takes, by requests that never meet: percentiles by nearest
// rank are the 500th, 900th, 990th and 999th.
TEST(Storage, PercentilesByNearestRank) {
  std::string trace;
  for (int i = 0; i < 1000; ++i) {
    trace += fmt::format("0,0,{},r,0.{:04}\n", i * 7 % 1000 + 1, i);
  }
  const auto run = RunTrace(trace, Small({"storage.lookup=never"}));
  ASSERT_TRUE(run.ok()) << run.status().message();
  const auto& row = run->requests->rows.front();
  const auto at = [](std::int64_t ns) { return (2400 + ns) * kNanosecond; };
  EXPECT_EQ(row.p50, at(500));
  EXPECT_EQ(row.p90, at(900));
  EXPECT_EQ(row.p99, at(990));
  EXPECT_EQ(row.p999, at(999));
  EXPECT_EQ(row.max, at(1000));
  EXPECT_EQ(row.mean, at(500) + 500);  // 500.5
}

// Every network serves it. Without o and with nothing else there, a read of 512 B takes at least
// its service times, and the same on flow and links, whose paths are alike then.
TEST(Storage, RunsOnEveryNetwork) {
  TraceOptions options;
  options.cluster = "h100-ib-400g";
  std::vector<std::int64_t> mean;
  for (const char* network : {"analytic", "flow", "links", "packet", "flow-chunks"}) {
    options.network = network;
    const auto run = RunTrace("0,0,512,r,0\n", Small({"loggops.o=0", "loggops.L=1000"}), options);
    ASSERT_TRUE(run.ok()) << network << ": " << run.status().message();
    mean.push_back(run->requests->rows.front().mean);
    EXPECT_GT(mean.back(), (700 + 512) * kNanosecond) << network;
    EXPECT_LT(mean.back(), 30 * kMicrosecond) << network;
    EXPECT_THAT(results::Report(*run), HasSubstr("loggops.L plays no part"));
  }
  // Hop by hop a message is whole before it goes on.
  EXPECT_NEAR(ToSeconds(mean[2]), ToSeconds(mean[1]), 100e-9);
}

// Drawn loads: as asked, the same again for the same seed, and for every network the same requests.
TEST(Storage, DrawnLoads) {
  std::vector<std::string> set = {"storage.requests=20000", "storage.size=4KiB:3,64KiB:1",
                                  "storage.reads=60%",      "storage.rate=1e6",
                                  "storage.addresses=zipf", "loggops.G=0.01",
                                  "loggops.o=100",          "loggops.g=10"};
  const auto run = Drawn(set);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const auto& rows = run->requests->rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(static_cast<double>(rows[0].count), 12'000, 300);
  EXPECT_NEAR(static_cast<double>(rows[2].bytes) / 20'000, 19 * 1024, 600);
  // 20,000 gaps of 1 us on average.
  EXPECT_NEAR(ToSeconds(run->requests->each.back().begin), 0.02, 0.001);
  EXPECT_EQ(run->record.fingerprint, Drawn(set)->record.fingerprint);
  set.emplace_back("storage.seed=2");
  EXPECT_NE(run->record.fingerprint, Drawn(set)->record.fingerprint);
  for (const char* addresses : {"uniform", "sequential"}) {
    EXPECT_TRUE(Drawn({fmt::format("storage.addresses={}", addresses), "storage.loop=closed",
                       "storage.depth=4", "storage.placement=spread", "storage.requests=1000"})
                    .ok());
  }
}

// On flow requests run from their compact form; a timeline asks for their graph. Both say the same
// of every request, rank and link.
TEST(Storage, TheCompactFormSaysWhatItsGraphSays) {
  const TempFile timeline("", ".pftrace");
  const auto pick = [](CounterRng* rng, std::vector<std::string> of) {
    return of[rng->Below(of.size())];
  };
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CounterRng rng(seed);
    const bool open = rng.Below(2) == 0;
    std::vector<std::string> set = {
        "storage.requests=120",
        fmt::format("storage.seed={}", seed),
        "storage.clients=" + pick(&rng, {"1", "3", "7"}),
        "storage.coordinators=" + pick(&rng, {"1", "2"}),
        "storage.stores=6",
        "storage.replicas=" + pick(&rng, {"1", "2", "3"}),
        "storage.reads=" + pick(&rng, {"0%", "50%", "100%"}),
        "storage.size=" + pick(&rng, {"4KiB", "4KiB:1,200KiB:1", "3MiB"}),
        "storage.addresses=" + pick(&rng, {"uniform", "sequential", "zipf"}),
        "storage.lookup=" + pick(&rng, {"always", "first", "never"}),
        "storage.collect_after=" + pick(&rng, {"0B", "100KiB"}),
        "storage.mount=" + pick(&rng, {"true", "false"}),
        "storage.placement=" + pick(&rng, {"grouped", "spread"}),
        "storage.rank=" + pick(&rng, {"node", "gpu"}),
        "loggops.o=" + pick(&rng, {"0", "1500"}),
        "loggops.O=" + pick(&rng, {"0", "0.25"}),
        "loggops.S=" + pick(&rng, {"0", "65535"})};
    set.push_back(open ? "storage.rate=" + pick(&rng, {"1e4", "1e6", "1e9"})
                       : "storage.depth=" + pick(&rng, {"1", "5"}));
    if (open) set.push_back("storage.arrivals=" + pick(&rng, {"even", "poisson"}));
    if (!open) set.push_back("storage.think=" + pick(&rng, {"0", "3us"}));
    set.emplace_back(open ? "storage.loop=open" : "storage.loop=closed");
    TraceOptions options;
    options.network = "flow";
    options.cluster = "h100-ib-400g";
    const auto compact = Drawn(set, options);
    options.timeline = timeline.path();
    const auto graph = Drawn(set, options);
    ASSERT_TRUE(compact.ok() && graph.ok())
        << fmt::format("{}", fmt::join(set, " ")) << compact.status().message();
    const engine::Record &a = compact->record, &b = graph->record;
    SCOPED_TRACE(fmt::format("{}", fmt::join(set, " ")));
    ASSERT_EQ(a.fingerprint, b.fingerprint);
    EXPECT_EQ(a.finish_time, b.finish_time);
    EXPECT_EQ(a.messages.unexpected, b.messages.unexpected);
    EXPECT_EQ(compact->operations, graph->operations);
    for (std::size_t r = 0; r < b.classes.size(); ++r) {
      EXPECT_EQ(a.classes[r].breakdown, b.classes[r].breakdown);
      EXPECT_EQ(a.classes[r].held_calc, b.classes[r].held_calc);
      EXPECT_EQ(a.classes[r].held_receive, b.classes[r].held_receive);
    }
    for (std::size_t l = 0; l < b.links.size(); ++l) {
      EXPECT_EQ(std::pair(a.links[l].bytes, a.links[l].busy),
                std::pair(b.links[l].bytes, b.links[l].busy));
    }
    for (std::size_t i = 0; i < graph->requests->each.size(); ++i) {
      EXPECT_EQ(compact->requests->each[i].end, graph->requests->each[i].end);
    }
  }
}

TEST(Storage, AFileOfKeysNamesItsTrace) {
  const TempFile trace("0,0,512,r,0\n0,0,512,w,1\n");
  const std::string name = std::filesystem::path(trace.path()).filename();
  const TempFile keys(fmt::format("# load\nstorage:\n  trace: {}\n  requests: 1\n", name), ".yaml");
  const auto run = RunFile(keys.path(), {});
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->requests->each.size(), 1u);
  const TempFile synthetic("storage: {requests: 10, clients: 2, loop: closed}\n", ".yaml");
  EXPECT_EQ(RunFile(synthetic.path(), {"storage.requests=20"})->requests->each.size(), 20u);
}

TEST(Storage, RequestsOutOfTheirOrderAreSorted) {
  const auto run = RunTrace("0,0,512,r,2\n0,0,1024,r,1\n", Small());
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->requests->each[0].bytes, 1024);
  ASSERT_FALSE(run->warnings.empty());
  EXPECT_THAT(run->warnings.front(), HasSubstr("1 requests of the trace are earlier"));
}

TEST(Storage, WhatIsWrongIsSaid) {
  const auto error = [](std::vector<std::string> set) {
    return RunTrace("0,0,512,r,0\n0,0,x,r,1\n", std::move(set)).status().message();
  };
  EXPECT_THAT(error({}), HasSubstr(":2: size 'x' is not bytes"));
  EXPECT_THAT(error({"storage.reads=0.5"}), HasSubstr("storage.reads: is for a synthetic load"));
  EXPECT_THAT(error({"storage.depth=2"}), HasSubstr("storage.depth: is for a closed loop"));
  EXPECT_THAT(error({"storage.gateways=2"}), HasSubstr("is for storage.mount=true"));
  EXPECT_THAT(error({"storage.trace=a.spc"}), HasSubstr("is for a file of these keys"));
  EXPECT_THAT(error({"storage.requests=1", "storage.clients=2"}),
              HasSubstr("the trace has 1 disks, too few for 2 clients"));
  EXPECT_THAT(error({"storage.requests=1", "storage.replicas=9"}),
              HasSubstr("9 replicas need as many stores a coordinator"));
  const auto drawn = [](std::string set) { return Drawn({std::move(set)}).status().message(); };
  EXPECT_THAT(drawn("storage.size=4KiB:0"), HasSubstr("'4KiB:0' is not bytes"));
  EXPECT_THAT(drawn("storage.zipf=1"), HasSubstr("storage.addresses=zipf"));
  EXPECT_THAT(drawn("storage.time_scale=2"), HasSubstr("is for a trace in an open loop"));
}

}  // namespace
}  // namespace orrery::job
