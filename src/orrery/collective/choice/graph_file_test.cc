#include "orrery/collective/choice/graph_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "orrery/collective/choice/nccl_tables.h"
#include "orrery/collective/ideal_executor_test.h"

namespace orrery::collective {
namespace {

using graph::Collective;
using ::testing::HasSubstr;

// `channels` of 4 GPUs, each beginning one GPU further; the host's other half of the way round
// where `nets` differ.
std::string File(int channels, const std::string& attributes = "", int leaves_by = 0) {
  std::string text = "<graphs version=\"1\">\n";
  for (int id = 0; id < 2; ++id) {
    text += fmt::format(
        "<graph id=\"{}\" pattern=\"{}\" crossnic=\"{}\" nchannels=\"{}\" speedintra=\"24\" "
        "speedinter=\"24\" latencyinter=\"0\" typeintra=\"NVL\" typeinter=\"PXB\" "
        "samechannels=\"0\">\n",
        id, id == 0 ? 4 : 1, leaves_by, channels);
    for (int c = 0; c < channels; ++c) {
      text += fmt::format("<channel><net dev=\"{:x}\"/>", c % 4);
      for (int i = 0; i < 4; ++i) {
        text += fmt::format("<gpu dev=\"{}\" rank=\"{}\"/>", (c + 3 * i) % 4, (c + 3 * i) % 4);
      }
      text += fmt::format("<net dev=\"{}\"/></channel>\n", (c % 4) ^ leaves_by);
    }
    text += "</graph>\n";
  }
  text += "</graphs>\n";
  if (!attributes.empty()) {
    const std::size_t equals = attributes.find('=');
    const std::string key = attributes.substr(0, equals + 1);
    const std::size_t at = text.find(" " + key) + 1;
    text.replace(at, text.find('"', at + key.size() + 1) + 1 - at, attributes);
  }
  return text;
}

std::string Refusal(const std::string& text) {
  const auto read = ParseGraphFile(text, "graph.xml");
  return read.ok() ? "read" : read.status().message();
}

struct Hosts {
  explicit Hosts(int nodes) : cluster(Build(nodes)) {
    for (int n = 0; n < nodes; ++n) {
      for (int i = 0; i < 4; ++i) members.emplace_back(static_cast<std::size_t>(n * 8 + i));
    }
    shape = ShapeOf(cluster, members);
  }
  static cluster::Cluster Build(int nodes) {
    cluster::Spec spec = *cluster::FindPreset("a100-80g-ib-200g");
    spec.nodes = nodes;
    return *cluster::Cluster::Build(spec);
  }
  cluster::Cluster cluster;
  std::vector<DeviceId> members;
  GroupShape shape;
};

TEST(GraphFile, ReadsChannelsAndSpeeds) {
  const Graphs graphs = *ParseGraphFile(File(2), "graph.xml");
  EXPECT_TRUE(graphs.ring.given);
  EXPECT_EQ(graphs.gpus(), 4u);
  EXPECT_EQ(graphs.ring.channels[1].gpus, (std::vector<int>{1, 0, 3, 2}));
  EXPECT_EQ(graphs.ring.channels[1].nets, (std::vector<int>{1, 1}));
  EXPECT_EQ(graphs.ring.inter_GBps, 24);
  EXPECT_EQ(graphs.ring.inter, PathType::kBridges);
  EXPECT_NE(graphs.hash, ParseGraphFile(File(4), "graph.xml")->hash);
}

TEST(GraphFile, NamesWhatIsWrong) {
  EXPECT_EQ(Refusal("<system version=\"1\"/>"),
            "graph.xml:1: <system>: NCCL's graphs begin with <graphs>");
  EXPECT_THAT(Refusal(File(2, "speedintra=\"fast\"")),
              HasSubstr("graph.xml:2: speedintra = 'fast' of <graph>: must be a number from 0 to"));
  EXPECT_THAT(Refusal(File(2, "typeinter=\"PXC\"")), HasSubstr("unknown typeinter 'PXC'"));
  EXPECT_THAT(Refusal(File(2, "nchannels=\"3\"")),
              HasSubstr("nchannels = 3 of <graph>: it has 2 <channel>"));
  EXPECT_THAT(Refusal(File(2, "dev=\"zz\"")), HasSubstr("dev = 'zz' of <net>: must be a hexad"));
  EXPECT_THAT(Refusal("<graphs version=\"1\"></graphs>"), HasSubstr("no graph of rings"));
}

// Two rings of the file are four channels; the search of 4 A100 with a NIC each finds 4 rings: 8.
// A group of other GPUs is searched for, and the plan says so.
TEST(GraphFile, StandsForTheSearch) {
  const Hosts h(2);
  Environment e;
  e.graphs = *ParseGraphFile(File(2), "graph.xml");
  const Planner planner(h.cluster, e), own(h.cluster, {});
  const Plan plan = *planner.MakePlan(Collective::kAllReduce, 1 << 28, h.shape);
  EXPECT_EQ(own.MakePlan(Collective::kAllReduce, 1 << 28, h.shape)->channels, 8);
  EXPECT_EQ(plan.channels, 4);
  EXPECT_EQ(plan.note, "");
  const std::vector<DeviceId> pair = {DeviceId(0), DeviceId(8)};
  const Plan other = *planner.MakePlan(Collective::kAllReduce, 1 << 28, ShapeOf(h.cluster, pair));
  EXPECT_THAT(std::string(other.note), HasSubstr("NCCL_GRAPH_FILE"));
  EXPECT_EQ(other.graphs, nullptr);
}

// LL128 goes by NVLink and no further than a host's bridges.
TEST(GraphFile, PathsRuleLL128Out) {
  const Hosts h(2);
  for (const auto& [types, ll128] : {std::pair{"typeinter=\"PXB\"", true},
                                     {"typeinter=\"SYS\"", false},
                                     {"typeintra=\"PHB\"", false}}) {
    Environment e;
    e.graphs = *ParseGraphFile(File(4, types), "graph.xml");
    const nccl::Channels found = nccl::SearchChannels(h.cluster.spec(), h.shape, e);
    EXPECT_EQ(found.ll128, ll128) << types;
  }
}

// Of trees that begin and end at one GPU (pattern 3) NCCL expects 0.85, from 2.18.3 on.
TEST(GraphFile, SaysWhetherTreesAreSpread) {
  const Hosts h(2);
  std::string text = File(4);
  const auto plain = [&](int version) {
    Environment e;
    e.version = version;
    e.graphs = *ParseGraphFile(text, "graph.xml");
    return nccl::SearchChannels(h.cluster.spec(), h.shape, e).plain_trees;
  };
  EXPECT_FALSE(plain(22203));
  text.replace(text.find("pattern=\"1\""), 11, "pattern=\"3\"");
  EXPECT_TRUE(plain(22203));
  EXPECT_FALSE(plain(21801));
  text.replace(text.find("pattern=\"3\""), 11, "pattern=\"9\"");
  EXPECT_THAT(Refusal(text), HasSubstr("pattern = '9'"));
}

// A ring visits GPUs as its channel says, on every host: 1, 0, 3, 2 and on.
TEST(GraphFile, RingsRunInItsOrder) {
  const Hosts h(3);
  Environment e;
  e.graphs = *ParseGraphFile(File(2), "graph.xml");
  const Planner planner(h.cluster, e);
  for (const Algorithm a : {Algorithm::kRing, Algorithm::kTree}) {
    const Plan plan = planner.Shape(Collective::kAllReduce, a, Protocol::kSimple, 1 << 24, h.shape);
    const Schedule schedule(plan, h.cluster, h.members);
    for (const auto& [from, to] : {std::pair{1u, 0u}, {0u, 3u}, {3u, 2u}, {9u, 8u}}) {
      if (to == 8 && a == Algorithm::kTree) continue;
      EXPECT_TRUE(std::ranges::any_of(schedule.connections(),
                                      [&, from = from, to = to](const Connection& c) {
                                        return c.channel == 1 && c.from == from && c.to == to;
                                      }))
          << Name(a) << ' ' << from;
    }
  }
}

// A channel begins at each GPU, as a search finds them: the two readings agree as without a file.
TEST(GraphFile, FormulaAndStepsAgree) {
  const Hosts h(4);
  Environment e;
  e.graphs = *ParseGraphFile(File(4), "graph.xml");
  const Planner planner(h.cluster, e);
  for (const Algorithm a : {Algorithm::kRing, Algorithm::kTree}) {
    for (const std::int64_t bytes : {1 << 14, 1 << 20, 1 << 26}) {
      const Plan plan = planner.Shape(Collective::kAllReduce, a, Protocol::kSimple, bytes, h.shape);
      IdealExecutor executor(Schedule(plan, h.cluster, h.members), h.cluster, h.members);
      const auto run = static_cast<double>(executor.RunPeriodic());
      ASSERT_GT(run, 0);
      EXPECT_NEAR(static_cast<double>(planner.ClosedForm(plan).total()) / run, 1, 0.05)
          << Name(a) << ' ' << bytes;
    }
  }
}

}  // namespace
}  // namespace orrery::collective
