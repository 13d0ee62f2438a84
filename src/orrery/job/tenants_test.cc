// Jobs of several kinds on one cluster.
#include "orrery/job/tenants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "orrery/job/test_support.h"
#include "orrery/results/json.h"
#include "orrery/results/report.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

const ReadOptions kTenants{.tenants = true};

// Three leaves of two hosts with one link of a NIC's rate between a leaf and the spine.
std::string OneUplink(std::string_view network, std::string_view jobs) {
  return fmt::format(
      "cluster: {{preset: h100-ib-400g, topology: fat-tree-2, nodes_per_leaf: 2, "
      "oversubscription: 16}}\nnodes: 6\nnetwork: {}\njobs:\n{}",
      network, jobs);
}
// Rank 1 sends `size` to rank 0, over the uplink of leaf 1.
std::string Sender(std::string_view name, std::string_view size, int near, int far,
                   std::string_view more = "") {
  return fmt::format(
      "- {{name: {}, rank: node, placement: explicit, hosts: [{}, {}]{}, "
      "pattern: {{name: linear-gather, ranks: 2, size: {}}}}}\n",
      name, near, far, more, size);
}
const results::SharingRow& SharingOf(const results::RunResult& result, std::size_t j) {
  return result.sharing->rows.at(j);
}

// Two messages of equal size share one link: each takes twice as long as alone, but for latency.
TEST(Tenants, TwoThatShareALinkTakeTwiceAsLong) {
  for (const char* network : {"flow", "links", "packet", "flow-chunks"}) {
    const results::RunResult result = Predict(Read(
        OneUplink(network, Sender("a", "64MiB", 0, 2) + Sender("b", "64MiB", 1, 3)), kTenants));
    ASSERT_EQ(result.sharing->rows.size(), 2U) << network;
    // `links` serves message by message: the second one waits for the first.
    const bool in_turn = std::string_view(network) == "links";
    EXPECT_NEAR(std::max(SharingOf(result, 0).slowdown(), SharingOf(result, 1).slowdown()), 2, 0.03)
        << network;
    EXPECT_NEAR(std::min(SharingOf(result, 0).slowdown(), SharingOf(result, 1).slowdown()),
                in_turn ? 1 : 2, 0.03)
        << network;
    if (!in_turn) {
      EXPECT_NEAR(result.sharing->jain_index(), 1, 1e-3) << network;
    }
    EXPECT_EQ(result.sharing->matrix[0][1], SharingOf(result, 0).slowdown());
    EXPECT_EQ(result.sharing->matrix[1][0], SharingOf(result, 1).slowdown());
  }
}

// A ring beside an all-to-all that is over after a seventh of its time: messages of a pair go in
// order, so that the ring loses what the all-to-all takes and no chunk of it waits for its last.
TEST(Tenants, AShortNeighbourCostsNoMoreThanItsTime) {
  const std::string jobs =
      "- {name: p, placement: random, pattern: {name: linear-alltoall, ranks: 32, size: 1MiB}}\n"
      "- {name: q, placement: random, pattern: {name: ring, ranks: 32, size: 256MiB}}\n";
  for (const char* network : {"flow", "flow-chunks", "links"}) {
    const results::RunResult result = Predict(
        Read(fmt::format("cluster: {{preset: h100-ib-400g, topology: fat-tree-2, nodes_per_leaf: 2,"
                         " oversubscription: 4}}\nnodes: 8\nnetwork: {}\njobs:\n{}",
                         network, jobs),
             kTenants));
    const auto &p = SharingOf(result, 0), &q = SharingOf(result, 1);
    EXPECT_LT(*p.alone * 5, *q.alone) << network;
    EXPECT_LT(q.time - *q.alone, p.time) << network;
  }
}

// A third job that sends under a leaf of its own: pairs show who slows whom.
TEST(Tenants, TheMatrixNamesTheCulprit) {
  const results::RunResult result =
      Predict(Read(OneUplink("flow", Sender("a", "64MiB", 0, 2) + Sender("b", "64MiB", 1, 3) +
                                         Sender("c", "64MiB", 4, 5)),
                   kTenants));
  const auto& matrix = result.sharing->matrix;
  ASSERT_EQ(matrix.size(), 3U);
  EXPECT_NEAR(matrix[0][1], 2, 0.03);
  EXPECT_EQ(matrix[0][2], 1);
  EXPECT_EQ(matrix[2][0], 1);
  EXPECT_EQ(SharingOf(result, 2).slowdown(), 1);
  EXPECT_EQ(result.sharing->runs_of_pairs, 3);
}

// b begins when a has ended: nobody is slowed, and b ends that much later.
TEST(Tenants, AStartMovesAJob) {
  const results::RunResult apart = Predict(Read(
      OneUplink("flow", Sender("a", "64MiB", 0, 2) + Sender("b", "64MiB", 1, 3, ", start: 10ms")),
      kTenants));
  EXPECT_EQ(SharingOf(apart, 0).slowdown(), 1);
  EXPECT_EQ(SharingOf(apart, 1).slowdown(), 1);
  EXPECT_EQ(SharingOf(apart, 1).end, 10 * kMillisecond + *SharingOf(apart, 1).alone);
  EXPECT_EQ(SharingOf(apart, 0).time, SharingOf(apart, 1).time);
}

// Iterations follow each other; in the background they go on until the others have ended.
TEST(Tenants, IterationsAndBackground) {
  const results::RunResult result =
      Predict(Read(OneUplink("flow", Sender("a", "64MiB", 0, 2, ", iterations: 5") +
                                         Sender("b", "16MiB", 1, 3, ", background: true")),
                   kTenants));
  EXPECT_EQ(SharingOf(result, 0).iterations, 5);
  EXPECT_NEAR(SharingOf(result, 0).slowdown(), 2, 0.05);
  EXPECT_TRUE(SharingOf(result, 1).background);
  // b gets half of the link for as long as a lasts: as many bytes, in messages of 16 MiB, less what
  // latencies leave idle.
  EXPECT_GE(SharingOf(result, 1).iterations, 5 * 4 - 2);
  EXPECT_LE(SharingOf(result, 1).iterations, 5 * 4);
  EXPECT_LE(SharingOf(result, 1).end, SharingOf(result, 0).end);
}

constexpr std::string_view kMixed =
    "- {name: train, placement: striped, iterations: 2, job: {model: {preset: gpt2, layers: 1, "
    "vocab: 2048}, parallel: {tp: 2, dp: 8}, training: {global_batch: 16, seq_len: 1024}}}\n"
    "- {name: halo, rank: node, placement: random, pattern: {name: nearest-3d, ranks: 2, size: "
    "64KiB, steps: 3, compute: 1ms}}\n"
    "- {name: disks, rank: node, placement: packed, storage: {requests: 40, clients: 2, stores: 2, "
    "coordinators: 1, replicas: 2, rate: 1e5, rank: gpu}}\n";

std::string Mixed(std::string_view network) {
  return fmt::format(
      "cluster: {{preset: h100-ib-400g, topology: fat-tree-2, nodes_per_leaf: 2, "
      "oversubscription: 4}}\nnodes: 16\nnetwork: {}\njobs:\n{}",
      network, kMixed);
}

// Training, a pattern and storage run side by side on every network that has links; requests keep
// their completion times beside those alone.
TEST(Tenants, EveryKindRunsOnEveryNetwork) {
  for (const char* network : {"analytic", "flow", "links", "packet", "loggops"}) {
    const results::RunResult result = Predict(Read(Mixed(network), kTenants));
    ASSERT_TRUE(result.sharing) << network;
    ASSERT_EQ(result.sharing->rows.size(), 3U) << network;
    EXPECT_EQ(SharingOf(result, 0).name, "disks");
    EXPECT_EQ(SharingOf(result, 2).kind, "training");
    for (const results::SharingRow& row : result.sharing->rows) {
      EXPECT_GE(row.slowdown(), 0.999) << network << ' ' << row.name;
      EXPECT_LT(row.slowdown(), 3) << network << ' ' << row.name;
    }
    ASSERT_TRUE(SharingOf(result, 0).requests && SharingOf(result, 0).requests_alone) << network;
    EXPECT_EQ(SharingOf(result, 0).requests->rows.back().count, 40U);
    ASSERT_EQ(result.jobs.size(), 1U);  // what trains has its step, too
    EXPECT_GT(result.jobs[0].step_time, 0);
    EXPECT_THAT(results::Report(result, {.full = true}), HasSubstr("Requests of disks alone"));
    const auto json = nlohmann::json::parse(results::ToJson(result));
    EXPECT_EQ(json["jobs"][2]["name"], "train");
    EXPECT_EQ(json["jobs"][0]["requests"]["kinds"].back()["requests"], 40);
    EXPECT_EQ(json["interference"]["runs_alone"], 3);
  }
}

// The order of entries and the number of threads change nothing.
TEST(Tenants, SameResultInAnyOrderAndForAnyThreads) {
  const std::string text = Mixed("flow");
  const std::size_t first = text.find("- {name"), second = text.find("- {name", first + 1);
  const std::string turned =
      text.substr(0, first) + text.substr(second) + text.substr(first, second - first);
  ReadOptions threads = kTenants;
  threads.threads = 3;
  const results::RunResult a = Predict(Read(text, kTenants));
  const results::RunResult b = Predict(Read(turned, kTenants));
  const results::RunResult c = Predict(Read(text, threads));
  EXPECT_NE(a.simulation.fingerprint, 0U);
  EXPECT_EQ(a.simulation.fingerprint, b.simulation.fingerprint);
  EXPECT_EQ(a.simulation.fingerprint, c.simulation.fingerprint);
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_EQ(SharingOf(a, j).time, SharingOf(b, j).time);
    EXPECT_EQ(SharingOf(a, j).alone, SharingOf(c, j).alone);
  }
}

// Where all train from start to end the fast machine runs them, and nothing else does unless asked.
TEST(Tenants, TrainingAloneIsComparedWhereAskedFor) {
  const std::string job =
      "placement: striped, job: {model: {preset: gpt2, layers: 1, vocab: 2048}, parallel: {tp: 2, "
      "dp: 8}, training: {global_batch: "
      "16, seq_len: 1024}}}\n";
  const std::string text = fmt::format(
      "cluster: {{preset: h100-ib-400g, topology: fat-tree-2, nodes_per_leaf: 2, "
      "oversubscription: 4}}\nnodes: 4\nnetwork: flow\njobs:\n- {{name: a, {}- {{name: b, {}",
      job, job);
  const results::RunResult plain = Predict(Read(text));
  EXPECT_FALSE(plain.sharing);
  const results::RunResult asked = Predict(Read(text + "interference: {alone: true}\n"));
  EXPECT_EQ(asked.simulation.fingerprint, plain.simulation.fingerprint);
  ASSERT_TRUE(asked.sharing);
  EXPECT_TRUE(asked.sharing->steps);
  for (std::size_t j = 0; j < 2; ++j) {
    EXPECT_EQ(SharingOf(asked, j).time, asked.jobs[j].step_time);
    EXPECT_GE(SharingOf(asked, j).slowdown(), 1);
  }
}

TEST(Tenants, SaysWhatCannotBe) {
  const auto error = [](std::string_view jobs) { return Error(OneUplink("flow", jobs), kTenants); };
  EXPECT_THAT(error(Sender("a", "1MiB", 0, 2, ", background: true")),
              HasSubstr("all jobs are in the background: none would ever end"));
  EXPECT_THAT(error(Sender("a", "1MiB", 0, 2, ", priority: 1")),
              HasSubstr("network 'flow' has no classes of messages; take network packet"));
  EXPECT_THAT(error("- {name: a, pattern: {name: ring, ranks: 2}, file: b.yaml}\n"),
              HasSubstr("needs one of file, job, trace and pattern"));
  EXPECT_THAT(error("- {name: a, mpi: {library: mpich}}\n"),
              HasSubstr("mpi says how a trace is read; name the trace, too"));
  EXPECT_THAT(error("- {name: a, trace: none.goal}\n"), HasSubstr("none.goal"));
  EXPECT_THAT(Error(OneUplink("flow", Sender("a", "1MiB", 0, 2))),
              HasSubstr("such files run with 'orrery simulate'"));
}

// Jain's index by hand: slowdowns 1 and 2 are progress 1 and 1/2: (3/2)² / (2 · 5/4) = 0.9.
TEST(Tenants, JainsIndex) {
  results::Sharing sharing;
  sharing.rows.resize(3);
  sharing.rows[0].time = sharing.rows[0].alone.emplace(100);
  sharing.rows[1].alone = 100;
  sharing.rows[1].time = 200;  // the third came to no end: it does not count
  EXPECT_DOUBLE_EQ(sharing.jain_index(), 0.9);
  EXPECT_EQ(results::Sharing().jain_index(), 0);
}

}  // namespace
}  // namespace orrery::job
