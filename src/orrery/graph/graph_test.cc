#include "orrery/graph/graph.h"

#include <gtest/gtest.h>

#include <string>

namespace orrery::graph {
namespace {

// A million names of a traced run took minutes while each new one was put into a sorted list.
TEST(Graph, NamesAreNumberedAsTheyCome) {
  Graph graph;
  constexpr std::size_t kNames = 5000;
  for (std::size_t i = 0; i < kNames; ++i) {
    EXPECT_EQ(graph.Intern("kernel " + std::to_string(i)), NameId(i));
  }
  EXPECT_EQ(graph.Intern(""), NameId(kNames));
  const Graph copy = graph;
  for (std::size_t i = 0; i < kNames; ++i) {
    EXPECT_EQ(graph.Intern(copy.name(NameId(i))), NameId(i));
  }
  EXPECT_EQ(graph.names().size(), kNames + 1);
}

}  // namespace
}  // namespace orrery::graph
