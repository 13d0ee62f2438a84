// Jobs whose messages or fluids cross the cluster's links: networks flow, links and loggops.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orrery/job/test_support.h"
#include "orrery/results/json.h"
#include "orrery/results/report.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

// kSmall on two hosts, each under a leaf of its own.
ReadOptions TwoLeaves(const char* network, std::vector<std::string> more = {}) {
  ReadOptions options;
  options.network = network;
  options.set = {"nodes=2", "parallel.dp=4", "cluster.topology.name=fat-tree-2",
                 "cluster.nodes_per_leaf=1"};
  options.set.insert(options.set.end(), more.begin(), more.end());
  return options;
}

TEST(Fabric, NamesTheWorstLinks) {
  const results::RunResult result =
      Predict(Read(kSmall, TwoLeaves("flow", {"cluster.oversubscription=4"})));
  ASSERT_FALSE(result.worst_links.empty());
  for (std::size_t i = 1; i < result.worst_links.size(); ++i) {
    EXPECT_GE(result.worst_links[i - 1].utilisation, result.worst_links[i].utilisation);
  }
  EXPECT_GT(result.worst_links.front().bytes, 0);
  EXPECT_LE(result.worst_links.front().busy_share, 1);
  EXPECT_LE(result.worst_links.front().utilisation, result.worst_links.front().busy_share + 1e-9);
  EXPECT_THAT(result.worst_links.front().name, HasSubstr("spine"));  // 4:1
  EXPECT_THAT(results::Report(result, {.full = true}),
              HasSubstr("worst links  " + result.worst_links.front().name));
  const auto json = nlohmann::json::parse(results::ToJson(result));
  EXPECT_EQ(json["network"]["worst_links"][0]["link"], result.worst_links.front().name);
  // A network that sees ports has none to name.
  EXPECT_TRUE(Predict(Read(kSmall)).worst_links.empty());
}

TEST(Fabric, OversubscriptionIsANumberOrARatio) {
  for (const char* ratio : {"4", "4:1", "4 : 1", "'8 : 2'"}) {
    const std::string set = std::string("cluster.oversubscription=") + ratio;
    EXPECT_EQ(Read(kSmall, TwoLeaves("flow", {set})).cluster.oversubscription, 4) << ratio;
  }
}

// What a class of links carries over time adds up to what it carries, whoever counts; asking moves
// nothing.
TEST(Fabric, LinkUseOverTimeAddsUp) {
  for (const char* network : {"flow", "links"}) {
    ReadOptions options;
    options.network = network;
    options.set = {"nodes=2", "parallel.dp=4", "model.layers=4"};
    const results::RunResult plain = Predict(Read(kSmall, options));
    EXPECT_TRUE(plain.over_time.empty());
    options.set.push_back("simulation.link_steps=64");
    const results::RunResult result = Predict(Read(kSmall, options));
    EXPECT_EQ(result.simulation.fingerprint, plain.simulation.fingerprint) << network;
    const results::UseOverTime& use = result.over_time;
    ASSERT_EQ(use.classes.size(), result.links.size());
    for (std::size_t c = 0; c < use.classes.size(); ++c) {
      const results::UseOverTime::Row& row = use.classes[c];
      EXPECT_EQ(row.name, result.links[c].name);
      EXPECT_GT(row.bytes.size(), 31u);
      EXPECT_LE(row.bytes.size(), 64u);
      std::int64_t sum = 0;
      for (const std::int64_t bytes : row.bytes) sum += bytes;
      // Whole bytes a step; flow rounds rates down to 1/1024 byte a change.
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(result.links[c].bytes),
                  64 + 1e-6 * static_cast<double>(result.links[c].bytes))
          << network << " " << row.name;
      // A full step of some MB, rounded to whole bytes.
      for (const double share : row.utilisation) EXPECT_LE(share, 1 + 1e-6) << network;
    }
    ASSERT_EQ(use.links.size(), result.worst_links.size());
    EXPECT_EQ(use.links.front().name, result.worst_links.front().name);
    if (std::string_view(network) == "flow") continue;
    options.threads = 2;
    const results::RunResult two = Predict(Read(kSmall, options));
    EXPECT_EQ(two.simulation.threads_used, 2);
    for (std::size_t c = 0; c < use.classes.size(); ++c) {
      EXPECT_EQ(two.over_time.classes[c].bytes, use.classes[c].bytes);
    }
  }
  ReadOptions analytic;
  analytic.set = {"simulation.link_steps=64"};
  EXPECT_THAT(Error(kSmall, analytic), HasSubstr("does not see single links"));
}

// What a sender and its receiver have priced apart is one meeting: a pipeline beside a ring.
TEST(Fabric, FlowFoldsPairsOfTwoJobs) {
  constexpr std::string_view kTwo = R"(
cluster: {preset: h100-ib-400g, topology: fat-tree-2, nodes_per_leaf: 2}
nodes: 8
network: flow
jobs:
- name: pipeline
  placement: explicit
  devices: [0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39]
  job: {model: gpt2, parallel: {tp: 4, pp: 2, dp: 2}, training: {global_batch: 16, seq_len: 1024}}
- name: ring
  placement: explicit
  devices: [8, 9, 10, 11, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 46, 47]
  job: {model: gpt2, parallel: {dp: 16}, training: {global_batch: 16, seq_len: 1024, sharding: zero1}}
)";
  const results::RunResult folded = Predict(Read(kTwo));
  const results::RunResult all = Predict(Read(kTwo, {.fold = false}));
  EXPECT_TRUE(folded.simulation.folded);
  EXPECT_EQ(folded.simulation.fingerprint, all.simulation.fingerprint);
}

// Folded by ranks and links or not, `flow` gives one answer to the picosecond and loads links
// alike.
TEST(Fabric, FlowFoldedIsUnfolded) {
  struct Case {
    const char* name;
    std::uint32_t most;  // ranks simulated, of 32 on four nodes
    std::vector<std::string> set;
  };
  const std::vector<Case> cases = {
      // The nodes of a stage are alike; places in a node need not be, rings pass them in turn.
      {"pipeline", 16, {"parallel.pp=2", "parallel.dp=8"}},
      {"sharded", 8, {"parallel.pp=1", "parallel.dp=16", "training.sharding=zero1"}},
      {"NICs of two", 16, {"parallel.pp=2", "parallel.dp=8", "cluster.nics_per_node=4"}},
      {"trees of switches",
       1,
       {"parallel.tp=1", "parallel.pp=1", "parallel.dp=32", "training.global_batch=32",
        "nccl.NCCL_ALGO=NVLSTree"}},
      {"straggler",
       32,
       {"parallel.pp=2", "parallel.dp=8", "perturb.ranks=[{rank: 5, speed: 0.8}]"}},
      {"hashed paths",
       32,
       {"parallel.pp=4", "parallel.dp=4", "cluster.topology=fat-tree-2",
        "cluster.nodes_per_leaf=1"}},
      {"oversubscribed ring",
       32,
       {"parallel.tp=1", "parallel.pp=1", "parallel.dp=32", "training.global_batch=32",
        "cluster.topology=fat-tree-2", "cluster.nodes_per_leaf=2", "cluster.oversubscription=4"}},
  };
  for (const Case& c : cases) {
    ReadOptions options;
    options.network = "flow";
    options.set = {"nodes=4", "model.layers=8"};
    options.set.insert(options.set.end(), c.set.begin(), c.set.end());
    const results::RunResult folded = Predict(Read(kSmall, options));
    options.fold = false;
    const results::RunResult all = Predict(Read(kSmall, options));
    EXPECT_FALSE(all.simulation.folded);
    EXPECT_EQ(all.simulation.ranks_simulated, 32u);
    EXPECT_LE(folded.simulation.ranks_simulated, c.most) << c.name;
    EXPECT_EQ(folded.simulation.folded, folded.simulation.ranks_simulated < 32) << c.name;
    EXPECT_EQ(folded.simulation.fingerprint, all.simulation.fingerprint) << c.name;
    EXPECT_EQ(folded.jobs.front().step_time, all.jobs.front().step_time) << c.name;
    ASSERT_EQ(folded.links.size(), all.links.size());
    for (std::size_t l = 0; l < all.links.size(); ++l) {
      const auto bytes = static_cast<double>(all.links[l].bytes);
      // Bytes of a fluid on a link are rounded down, folded once for many.
      EXPECT_NEAR(static_cast<double>(folded.links[l].bytes), bytes, 64 + 1e-6 * bytes) << c.name;
      EXPECT_NEAR(folded.links[l].busy_share, all.links[l].busy_share, 1e-9) << c.name;
    }
  }
}

// `flow` gives one answer whatever the threads: where ranks run far ahead, where collectives
// overlap and contend, with jitter, a straggler, a link that slows, other routing, and several
// jobs.
TEST(Fabric, FlowOnThreads) {
  struct Case {
    const char* name;
    std::vector<std::string> set;
  };
  const std::vector<Case> cases = {
      {"pipeline", {"parallel.pp=4", "parallel.dp=4"}},
      {"interleaved", {"parallel.pp=4", "parallel.vpp=3", "parallel.dp=4"}},
      {"two groups a domain",
       {"parallel.tp=4", "parallel.dp=4", "parallel.sequence_parallel=true"}},
      {"data parallel",
       {"parallel.tp=1", "parallel.pp=1", "parallel.dp=32", "training.global_batch=64",
        "training.sharding=zero1", "cluster.topology=fat-tree-2", "cluster.nodes_per_leaf=1",
        "cluster.oversubscription=4"}},
      {"jitter and a straggler",
       {"parallel.dp=8", "perturb={jitter: 1%, ranks: [{rank: 3, speed: 0.8}]}"}},
      {"a slow link",
       {"parallel.dp=8", "perturb.links=[{link: node0/nic0/leaf0, bandwidth: 20%, from: 1ms}]"}},
      {"adaptive", {"parallel.dp=8", "cluster.topology={name: fat-tree-2, routing: adaptive}"}},
  };
  for (const Case& c : cases) {
    ReadOptions options;
    options.network = "flow";
    options.fold = false;
    options.set = {"nodes=4", "model.layers=12"};
    options.set.insert(options.set.end(), c.set.begin(), c.set.end());
    const results::RunResult one = Predict(Read(kSmall, options));
    EXPECT_EQ(one.simulation.threads_used, 1);
    for (const int threads : {2, 3, 7}) {
      options.threads = threads;
      const results::RunResult result = Predict(Read(kSmall, options));
      EXPECT_EQ(result.simulation.threads_used, std::min(threads, 4)) << c.name;
      EXPECT_EQ(result.simulation.fingerprint, one.simulation.fingerprint) << c.name << threads;
      EXPECT_EQ(result.simulation.events, one.simulation.events) << c.name << threads;
      EXPECT_EQ(result.jobs.front().step_time, one.jobs.front().step_time) << c.name << threads;
      for (std::size_t l = 0; l < one.links.size(); ++l) {
        EXPECT_EQ(result.links[l].bytes, one.links[l].bytes) << c.name << threads;
      }
    }
  }
}

// Jobs run on loggops too: alike on any number of partitions, slower where the job names a latency.
TEST(Fabric, LogGopsServesJobs) {
  ReadOptions options;
  options.network = "loggops";
  options.set = {"nodes=4", "parallel.dp=8", "model.layers=4"};
  const results::RunResult one = Predict(Read(kSmall, options));
  for (const int threads : {2, 3, 4}) {
    options.threads = threads;
    const results::RunResult result = Predict(Read(kSmall, options));
    EXPECT_EQ(result.simulation.threads_used, threads);
    EXPECT_EQ(result.simulation.fingerprint, one.simulation.fingerprint) << threads;
    EXPECT_EQ(result.jobs.front().step_time, one.jobs.front().step_time) << threads;
  }
  options.set.push_back("loggops.L=100us");
  EXPECT_GT(Predict(Read(kSmall, options)).jobs.front().step_time, one.jobs.front().step_time);
  EXPECT_EQ(Read(Read(kSmall, options).config_json).config_json, Read(kSmall, options).config_json);
  options.network = "flow";
  EXPECT_THAT(Error(kSmall, options), HasSubstr("loggops is for network: loggops"));
}

// `packet` takes threads where packets are acknowledged.
TEST(Fabric, PacketOnThreads) {
  for (const char* control : {"swift", "none"}) {
    ReadOptions options = TwoLeaves("packet", {"model.layers=2", "model.vocab=4096"});
    options.set.push_back(std::string("packet.congestion_control=") + control);
    const results::RunResult one = Predict(Read(kSmall, options));
    options.threads = 2;
    const results::RunResult two = Predict(Read(kSmall, options));
    const bool lanes = std::string_view(control) == "none";
    EXPECT_EQ(two.simulation.threads_used, lanes ? 1 : 2);
    EXPECT_EQ(two.simulation.fingerprint, one.simulation.fingerprint) << control;
    EXPECT_EQ(two.packets->counts.hops, one.packets->counts.hops) << control;
  }
}

// A link that is slow for the whole run, or for as long as the run takes, slows the step.
TEST(Fabric, SlowLinksSlowTheStep) {
  for (const char* network : {"flow", "links"}) {
    ReadOptions options = TwoLeaves(network, {"model.layers=4"});
    const SimTime before = Predict(Read(kSmall, options)).jobs.front().step_time;
    options.set.push_back(
        "perturb.links=[{link: leaf0/spine1, bandwidth: 10%, from: 0s, until: 100s}]");
    EXPECT_GT(Predict(Read(kSmall, options)).jobs.front().step_time, before) << network;
  }
}

// Traffic goes round a link that fails for good; a NIC has one link, and the error says who lost
// it.
TEST(Fabric, TrafficGoesRoundAFailedLink) {
  for (const char* network : {"flow", "links"}) {
    ReadOptions options = TwoLeaves(network, {"model.layers=4"});
    const SimTime before = Predict(Read(kSmall, options)).jobs.front().step_time;
    options.set.push_back("perturb.links=[{link: leaf0/spine4, bandwidth: 0, from: 5ms}]");
    const SimTime after = Predict(Read(kSmall, options)).jobs.front().step_time;
    EXPECT_NE(after, before) << network;
    EXPECT_LT(after, 2 * before) << network;  // it shares the spines that are left
    options.set.back() = "perturb.links=[{link: node1/nic0/leaf1, bandwidth: 0, from: 5ms}]";
    const Status status = Simulate(Read(kSmall, options)).status();
    EXPECT_EQ(status.code(), Code::kInfeasible) << network;
    EXPECT_THAT(status.message(), HasSubstr("no path is left from node")) << network;
    EXPECT_THAT(status.message(), HasSubstr("nic0")) << network;
  }
}

// Under 4:1 hashed channels collide on spines; adaptive ones keep apart.
TEST(Fabric, AdaptiveRoutingInJobs) {
  for (const char* network : {"flow", "links"}) {
    ReadOptions options = TwoLeaves(network, {"cluster.oversubscription=4", "model.layers=4"});
    const SimTime hashed = Predict(Read(kSmall, options)).jobs.front().step_time;
    options.set.push_back("cluster.topology.routing=adaptive");
    EXPECT_LT(Predict(Read(kSmall, options)).jobs.front().step_time, hashed) << network;
  }
  ReadOptions analytic;
  analytic.set = {"cluster.topology.routing=adaptive"};
  EXPECT_THAT(Error(kSmall, analytic), HasSubstr("does not see load"));
}

}  // namespace
}  // namespace orrery::job
