// GOAL schedules through the graph: rules and finish times derived by hand, or known in closed
// form. The machine that this one replaced gave the same picoseconds on 30,000 drawn schedules.
#include "orrery/workload/importers/goal/goal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/base/rng.h"
#include "orrery/engine/general/critical_path.h"
#include "orrery/formats/goal.h"
#include "orrery/graph/verify/verify.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

using engine::Record;
using formats::GoalBuilder;
using formats::GoalSchedule;
using formats::ParseGoal;
using network::LogGops;
using ::testing::HasSubstr;
using Kind = GoalSchedule::Kind;

Result<Record> RunGoal(const GoalSchedule& schedule, const LogGops& parameters) {
  const Result<graph::Graph> graph = workload::ImportGoal(schedule, "schedule");
  if (!graph.ok()) return graph.status();
  const Status verified = graph::Verify(*graph, graph::VerifyLevel::kFull);
  EXPECT_TRUE(verified.ok()) << verified.message();
  static Scenario* const host = new Scenario("h100-ib-400g", 1);  // plays no part
  cluster::Placement placement;
  placement.device.assign(graph->bindings.size(), DeviceId(std::size_t{0}));
  const engine::Inputs inputs{
      &*graph,          &host->cluster(), &placement,           &host->compute(),
      &host->planner(), "loggops",        {.joint = parameters}};
  return engine::Run(inputs, {});
}
Record Simulated(const GoalSchedule& schedule, const LogGops& parameters = {}) {
  Result<Record> run = RunGoal(schedule, parameters);
  EXPECT_TRUE(run.ok()) << run.status().message();
  return run.ok() ? *std::move(run) : Record{};
}
Record Simulated(std::string_view text, const LogGops& parameters = {}) {
  const Result<GoalSchedule> schedule = ParseGoal(text, "t.goal");
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return schedule.ok() ? Simulated(*schedule, parameters) : Record{};
}
std::string Stuck(std::string_view text) {
  const Result<GoalSchedule> schedule = ParseGoal(text, "t.goal");
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return RunGoal(*schedule, {}).status().message();
}
std::int64_t Ns(SimTime ps) {
  EXPECT_EQ(ps % kNanosecond, 0);
  return ps / kNanosecond;
}

constexpr std::string_view kMessage =
    "num_ranks 2\nrank 0 {\nsend 1001b to 1\n}\nrank 1 {\nrecv 1001b from 0\n}\n";

// o + L + o + 1000 G = 1500 + 2500 + 1500 + 6000.
TEST(GoalSchedules, OneMessage) {
  const Record run = Simulated(kMessage);
  EXPECT_EQ(Ns(run.classes[1].finish_time), 11'500);
  EXPECT_EQ(Ns(run.classes[0].finish_time), 1'500);
  EXPECT_EQ(run.messages.sent, 1u);
  EXPECT_EQ(run.messages.bytes, 1001);
  EXPECT_EQ(Ns(run.classes[1].held_receive), 7'500);
}

// A long message frees its sender when it meets its receive: at o + L = 4000.
TEST(GoalSchedules, LongMessagesWaitForTheirReceive) {
  const Record run = Simulated(kMessage, {.S = 100});
  EXPECT_EQ(Ns(run.classes[0].finish_time), 4'000);
  EXPECT_EQ(Ns(run.classes[1].finish_time), 11'500);
  // The receive is posted at 50,000 only; the message has been taken in long before.
  const Record late = Simulated(
      "num_ranks 2\nrank 0 {\nsend 1001b to 1\n}\nrank 1 {\na: calc 50000\nb: recv 1001b from 0\n"
      "b requires a\n}\n",
      {.S = 100});
  EXPECT_EQ(late.messages.unexpected, 1u);
  // The processor calculates until 50,000, so the message is taken in after that.
  EXPECT_EQ(Ns(late.classes[1].finish_time), 57'500);
  EXPECT_EQ(Ns(late.classes[0].finish_time), 50'000);
}

TEST(GoalSchedules, WithoutBandwidthAtTheReceiver) {
  const LogGops parameters{.receiver_bandwidth = false};
  EXPECT_EQ(Ns(Simulated(kMessage, parameters).classes[1].finish_time), 12'500);
  LogGops rendezvous = parameters;
  rendezvous.S = 100;
  EXPECT_EQ(Ns(Simulated(kMessage, rendezvous).classes[0].finish_time), 12'500);
}

// o + L + o + 7 G = 5542.
TEST(GoalSchedules, WildcardsMatch) {
  const Record run = Simulated(
      "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 5\n}\nrank 1 {\nrecv 8b from -1 tag -1\n}\n");
  EXPECT_EQ(Ns(run.finish_time), 5'542);
}

// The first message meets the first receive that fits, whatever its place: 'a' takes tag 5 only.
TEST(GoalSchedules, MatchingFollowsPostingOrder) {
  const Record run = Simulated(
      "num_ranks 2\nrank 0 {\na: send 8b to 1 tag 5\nb: send 8b to 1 tag 6\nb requires a\n}\n"
      "rank 1 {\nx: recv 8b from -1 tag 6\ny: recv 8b from 0 tag -1\nc: calc 1000\nc requires y\n"
      "}\n");
  // The first message is there at 4000 and taken in by 5542: y is done, c runs until 6542; the
  // second waits for the processor (sent at 1500, there at 5500) and is taken in by 8084.
  EXPECT_EQ(Ns(run.finish_time), 8'084);
}

// Eight senders, one receiver: it takes messages in one after another.
TEST(GoalSchedules, IncastIsLimitedByTheReceiver) {
  std::string text = "num_ranks 9\nrank 0 {\n";
  for (int i = 1; i <= 8; ++i) text += fmt::format("recv 1001b from {}\n", i);
  text += "}\n";
  for (int i = 1; i <= 8; ++i) text += fmt::format("rank {} {{\nsend 1001b to 0\n}}\n", i);
  EXPECT_EQ(Ns(Simulated(text).finish_time), 4'000 + 8 * 7'500);
  // Bandwidth at the senders only: all are there at 10,000, then 1,000 and 1,500 each.
  EXPECT_EQ(Ns(Simulated(text, {.receiver_bandwidth = false}).finish_time),
            10'000 + 1'000 + 8 * 1'500);
}

TEST(GoalSchedules, StartDependenciesAndProcessors) {
  // b begins with a, on another processor; c on a's processor begins after a.
  const Record run = Simulated(
      "num_ranks 1\nrank 0 {\na: calc 100\nb: calc 30 cpu 1\nc: calc 1\nb irequires a\n"
      "c irequires a\n}\n");
  EXPECT_EQ(Ns(run.finish_time), 101);
  const Record chain =
      Simulated("num_ranks 1\nrank 0 {\na: calc 100\nb: calc 30 cpu 1\nb requires a\n}\n");
  EXPECT_EQ(Ns(chain.finish_time), 130);
}

TEST(GoalSchedules, FractionsOfNanosecondsPerByte) {
  LogGops parameters;
  parameters.G_as = 18'000'000;  // 0.018 ns a byte: 444 Gb/s
  // 4000 + 1500 + 1000 · 0.018 ns.
  EXPECT_EQ(Simulated(kMessage, parameters).finish_time, 5'518 * kNanosecond);
  parameters.G_as = 1;  // 1000 · 10⁻¹⁸ s is rounded up to 1 ps
  EXPECT_EQ(Simulated(kMessage, parameters).finish_time, 5'500 * kNanosecond + 1);
}

TEST(GoalSchedules, SaysWhatNeverMatches) {
  EXPECT_THAT(
      Stuck("num_ranks 2\nrank 0 {\n}\nrank 1 {\na: recv 8b from 0 tag 3\nb: calc 5\n"
            "b requires a\n}\n"),
      HasSubstr("rank 1 waits for ever at receive of 8 bytes from rank 0 tag 3 (operation 0 "
                "of rank 1); no message that fits comes; 1 operations wait"));
  EXPECT_THAT(Stuck("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\n}\n"),
              HasSubstr("rank 1 never receives what rank 0 sends: send of 8 bytes to rank 1 tag 0 "
                        "(operation 0 of rank 0)"));
}

TEST(GoalSchedules, NamesBothEndsOfWhatNeverMatches) {
  // Longer than S: each send waits for a receive that waits for the other send.
  EXPECT_THAT(Stuck("num_ranks 2\nrank 0 {\na: send 100000b to 1\nb: recv 100000b from 1\n"
                    "b requires a\n}\nrank 1 {\na: send 100000b to 0\nb: recv 100000b from 0\n"
                    "b requires a\n}\n"),
              HasSubstr("(operation 0 of rank 1), while receive of 100000 bytes from rank 1 tag 0 "
                        "(operation 1 of rank 0) has yet to begin"));
  // The send of the tag that is wanted waits for work that waits for a message nobody sends.
  EXPECT_THAT(Stuck("num_ranks 2\nrank 0 {\nrecv 8b from 1 tag 3\n}\nrank 1 {\n"
                    "a: recv 8b from 0\nb: send 8b to 0 tag 3\nb requires a\n}\n"),
              HasSubstr("while send of 8 bytes to rank 0 tag 3 (operation 1 of rank 1) has yet to "
                        "begin"));
}

TEST(GoalSchedules, SaysWhichReceiveIsTooShort) {
  const Record run =
      Simulated("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 4b from 0\n}\n");
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_THAT(run.warnings[0], HasSubstr("the first receive: receive of 4 bytes from rank 0 tag 0 "
                                         "(operation 0 of rank 1)"));
}

// Ranks that exchange messages in any order, each calc on a processor of its own.
GoalSchedule DrawnExchange(std::uint64_t seed) {
  CounterRng rng(seed);
  const auto ranks = static_cast<std::uint32_t>(2 + rng.Below(5));
  struct Drawn {
    Kind kind = Kind::kCalc;
    std::int64_t size = 0;
    std::uint32_t peer = 0, tag = 0;
  };
  std::vector<std::vector<Drawn>> ops(ranks);
  const auto insert = [&](std::uint32_t rank, const Drawn& op) {
    auto& list = ops[rank];
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(rng.Below(list.size() + 1)), op);
  };
  for (std::uint32_t m = 0; m < 3 * ranks; ++m) {
    const auto from = static_cast<std::uint32_t>(rng.Below(ranks));
    const std::uint32_t to = (from + 1 + static_cast<std::uint32_t>(rng.Below(ranks - 1))) % ranks;
    insert(from, {Kind::kSend, 8, to, m});
    insert(to, {Kind::kRecv, 8, from, m});
    insert(to, {Kind::kCalc, static_cast<std::int64_t>(rng.Below(1000))});
    insert(from, {Kind::kCalc, static_cast<std::int64_t>(rng.Below(1000))});
  }
  GoalBuilder builder;
  for (const auto& list : ops) {
    builder.BeginRank();
    for (std::uint32_t i = 0; i < list.size(); ++i) {
      const Drawn& op = list[i];
      const auto cpu = static_cast<std::uint8_t>(op.kind == Kind::kCalc ? i % 255 : 255);
      builder.Add(op.kind, op.size, op.peer, op.tag, cpu);
      for (int d = 0; i > 0 && d < 2; ++d) {
        if (rng.Below(3) == 0) continue;
        builder.Require(i, static_cast<std::uint32_t>(rng.Below(i)), rng.Below(8) == 0);
      }
    }
  }
  return *builder.Take(false);
}

// Where messages take no time, a run takes what the longest chain takes, and where the chain has no
// end, neither has the run.
TEST(GoalSchedules, ACriticalPathIsTheRunOnANetworkThatTakesNoTime) {
  const LogGops free{.L = 0, .o = 0, .g = 0, .G_as = 0};
  int ended = 0, stuck = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const GoalSchedule schedule = DrawnExchange(seed);
    const auto path = engine::general::FindCriticalPath(*workload::ImportGoal(schedule, ""), 1000);
    const Result<Record> run = RunGoal(schedule, free);
    if (!run.ok()) {
      ASSERT_EQ(path.outcome, engine::general::CriticalPath::Outcome::kStuck) << seed;
      ++stuck;
      continue;
    }
    ASSERT_EQ(path.outcome, engine::general::CriticalPath::Outcome::kFound) << seed;
    ASSERT_EQ(path.known, run->finish_time) << seed;
    ++ended;
  }
  EXPECT_GT(ended, 50);
  EXPECT_GT(stuck, 50);
}

// Schedules of known finish times. A step of a ring takes o + L + o + (s - 1) G.
GoalSchedule Ring(std::uint32_t ranks, std::int64_t bytes) {
  GoalBuilder builder;
  const std::int64_t chunk = bytes / ranks;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    builder.BeginRank();
    std::uint32_t received = 0;
    for (std::uint32_t step = 0; step < 2 * (ranks - 1); ++step) {
      const std::uint32_t send = builder.Add(Kind::kSend, chunk, (r + 1) % ranks, step);
      if (step > 0) builder.Require(send, received);
      received = builder.Add(Kind::kRecv, chunk, (r + ranks - 1) % ranks, step);
    }
  }
  return *builder.Take(false);
}
enum class Partner { kDistance, kXor };
GoalSchedule Rounds(std::uint32_t ranks, std::int64_t bytes, Partner partner) {
  GoalBuilder builder;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    builder.BeginRank();
    std::uint32_t calc = 0, step = 0;
    for (std::uint32_t far = 1; far < ranks; far *= 2, ++step) {
      const bool by_xor = partner == Partner::kXor;
      const std::uint32_t to = by_xor ? r ^ far : (r + far) % ranks;
      const std::uint32_t from = by_xor ? r ^ far : (r + ranks - far) % ranks;
      const std::uint32_t send = builder.Add(Kind::kSend, bytes, to, step);
      if (step > 0) builder.Require(send, calc);
      const std::uint32_t receive = builder.Add(Kind::kRecv, bytes, from, step);
      calc = builder.Add(Kind::kCalc, 100);
      builder.Require(calc, receive);
    }
  }
  return *builder.Take(false);
}

TEST(GoalSchedules, KnownFinishTimes) {
  EXPECT_EQ(Ns(Simulated(Ring(64, 64 << 20)).finish_time), 793'415'700);
  EXPECT_EQ(Ns(Simulated(Ring(256, 64 << 20)).finish_time), 804'962'580);
  EXPECT_EQ(Ns(Simulated(Rounds(1024, 8, Partner::kDistance)).finish_time), 56'420);
  EXPECT_EQ(Ns(Simulated(Rounds(1024, 1 << 20, Partner::kXor)).finish_time), 62'970'500);
}

// Ranks that count their neighbours alike are one block, however many they are; those whose partner
// stands elsewhere for each (by xor) have a column of them.
TEST(GoalSchedules, RanksOfEqualStructureShareABlock) {
  for (const GoalSchedule& schedule :
       {Ring(64, 64 << 20), Rounds(64, 8, Partner::kDistance), Rounds(64, 8, Partner::kXor)}) {
    const Result<graph::Graph> graph = workload::ImportGoal(schedule, "schedule");
    ASSERT_TRUE(graph.ok());
    EXPECT_EQ(graph->blocks.size(), 1u);
  }
  EXPECT_TRUE(workload::ImportGoal(Ring(64, 64 << 20), "")->programs[0].columns.empty());
  // Five of six rounds: half of the ring away is the same both ways.
  EXPECT_EQ(workload::ImportGoal(Rounds(64, 8, Partner::kXor), "")->programs[0].columns.size(),
            10u);
}

TEST(GoalSchedules, TimesBeyondTheClockAreRefused) {
  const Result<GoalSchedule> schedule = ParseGoal(
      "num_ranks 1\nrank 0 {\na: calc 4000000000000000\nb: calc 4000000000000000\nb requires a\n"
      "}\n",
      "t.goal");
  ASSERT_TRUE(schedule.ok());
  EXPECT_THAT(RunGoal(*schedule, {}).status().message(), HasSubstr("longer than"));
}

}  // namespace
}  // namespace orrery::testing
