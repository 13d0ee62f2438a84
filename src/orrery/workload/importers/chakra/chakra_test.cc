#include "orrery/workload/importers/chakra/chakra.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/base/time.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::workload {
namespace {

using formats::ChakraNode;
using formats::ChakraNodeType;
using formats::ChakraWriter;
using ::testing::HasSubstr;

ChakraNode Compute(std::uint64_t id, std::uint64_t us) {
  ChakraNode node;
  node.id = id;
  node.type = ChakraNodeType::kCompute;
  node.duration_us = us;
  return node;
}
ChakraNode Collective(std::uint64_t id, formats::ChakraCollective kind, std::uint64_t bytes) {
  ChakraNode node;
  node.id = id;
  node.type = ChakraNodeType::kCollective;
  node.collective = kind;
  node.comm_size = bytes;
  node.has = ChakraNode::kCommType | ChakraNode::kCommSize;
  return node;
}

Result<ChakraImport> Import(const std::vector<std::string>& files,
                            const ChakraGroups& groups = {}) {
  return ImportChakra(
      files.size(),
      [&files](std::size_t rank) { return formats::ParseChakra(files[rank], "x.et", 1 << 20); },
      groups, "x");
}

// Ranks that differ in a duration alone share a program; an all-gather's size is a rank's share.
TEST(ImportChakra, SharesPrograms) {
  std::vector<std::string> files;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    ChakraWriter writer;
    writer.Add(Compute(0, 10 + rank), "a", "", {});
    const std::uint64_t deps[] = {0};
    writer.Add(Collective(1, formats::ChakraCollective::kAllGather, 1000), "b", "7", deps);
    files.push_back(writer.Release());
  }
  const auto import = Import(files, {{7, {3, 2, 1, 0}}});
  ASSERT_TRUE(import.ok()) << import.status().message();
  const graph::Graph& graph = import->graph;
  ASSERT_TRUE(graph::Verify(graph).ok()) << graph::Verify(graph).message();
  ASSERT_EQ(graph.programs.size(), 1u);
  const graph::Block& block = graph.blocks[0];
  EXPECT_EQ(block.comms[0].bytes.value, 4000);
  EXPECT_EQ(graph.number(graph.bindings[2], block.times[0]), 12 * kMicrosecond);
  const GroupId group = graph.group(graph.bindings[0], block.comms[0].group);
  EXPECT_EQ(graph.groups.members(group)[0], RankId(std::size_t{3}));
}

TEST(ImportChakra, NamesWhatIsWrong) {
  const auto error = [](const std::vector<std::string>& files) {
    return Import(files).status().message();
  };
  ChakraWriter unknown;
  unknown.Add(Collective(0, formats::ChakraCollective::kAllReduce, 8), "a", "9", {});
  const std::string with_unknown = unknown.Release();
  EXPECT_THAT(error({with_unknown, with_unknown}),
              HasSubstr("communicator 9 (pg_name) is not known"));
  ChakraWriter absent;
  const std::uint64_t deps[] = {5};
  absent.Add(Compute(0, 1), "a", "", deps);
  EXPECT_THAT(error({absent.Release()}), HasSubstr("depends on node 5, which the file does not"));
  ChakraWriter itself;
  const std::uint64_t own[] = {3};
  itself.Add(Compute(3, 1), "a", "", own);
  EXPECT_THAT(error({itself.Release()}), HasSubstr("node 3 depends on itself"));
  ChakraWriter twice;
  twice.Add(Compute(4, 1), "a", "", {});
  twice.Add(Compute(4, 1), "b", "", {});
  EXPECT_THAT(error({twice.Release()}), HasSubstr("a second node 4"));
  ChakraWriter huge;
  huge.Add(Compute(0, ~std::uint64_t{0}), "a", "", {});
  EXPECT_THAT(error({huge.Release()}), HasSubstr("duration_micros"));
  ChakraWriter self;
  ChakraNode send;
  send.type = ChakraNodeType::kSend;
  send.destination = 0;
  send.has = ChakraNode::kDestination;
  self.Add(send, "s", "", {});
  EXPECT_THAT(error({self.Release()}), HasSubstr("send with rank 0"));
}

}  // namespace
}  // namespace orrery::workload
