#include "orrery/graph/replicate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/forms/text_form.h"

namespace orrery::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ranks with a communicator of both, and one of each pair that `group` names.
Graph Pair(const std::string& group, const std::string& op) {
  const Result<Graph> graph =
      FromText("orrery.graph/2\njob \"j\" ranks=2 once=1\nblock 0 \"b\" issue=free\n" + op +
               "program 0 \"p\"\n  call block=0\n"
               "rank program=0 job=0 " +
               group +
               "=0\n"
               "rank program=0 job=0 logical=1 " +
               group +
               "=0\n"
               "group 0 " +
               group + " 0..1\n");
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return *graph;
}

TEST(Replicate, JoinsDataParallelGroupsAndKeepsOthers) {
  const auto reduce = [](const std::string& group) {
    return "  all-reduce bytes=8 group=" + group + " stream=1 blocking=0 current=none name=\"r\"\n";
  };
  for (const std::string group : {"dp", "tp"}) {  // of both ranks: joined, whatever it is for
    Graph graph = Pair(group, reduce(group));
    const auto made = Replicate(3, &graph);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->joined, 1u);
    EXPECT_EQ(graph.bindings.size(), 6u);
    EXPECT_EQ(graph.bindings[5].logical_rank, 5u);
    ASSERT_EQ(graph.groups.size(), 1u);
    EXPECT_EQ(graph.groups.members(GroupId(std::size_t{0})).size(), 6u);
  }
}

TEST(Replicate, MessagesStayWithinACopy) {
  const std::string ring =
      "  send bytes=8 peer=offset:1 group=pp stream=none blocking=0 current=none name=\"s\"\n"
      "  receive bytes=8 peer=offset:1 group=pp stream=none blocking=0 current=none name=\"r\"\n";
  Graph graph = Pair("pp", ring);
  const auto made = Replicate(2, &graph);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->joined + made->kept, 0u);
  ASSERT_EQ(graph.groups.size(), 2u);
  EXPECT_THAT(graph.groups.members(GroupId(std::size_t{1})),
              ElementsAre(RankId(std::size_t{2}), RankId(std::size_t{3})));

  std::string data = ring;
  for (std::size_t at = 0; (at = data.find("group=pp")) != data.npos;)
    data.replace(at, 8, "group=dp");
  Graph joined = Pair("dp", data);
  EXPECT_THAT(Replicate(2, &joined).status().message(), HasSubstr("joined across replicas"));
}

TEST(Replicate, RefusesTooManyRanks) {
  Graph graph = Pair("pp", "");
  EXPECT_THAT(Replicate(std::size_t{1} << 20, &graph).status().message(), HasSubstr("more than"));
}

}  // namespace
}  // namespace orrery::graph
