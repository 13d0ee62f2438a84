#include "orrery/graph/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/general_samples.h"
#include "orrery/graph/sample_graphs.h"
#include "orrery/graph/verify/straight.h"

namespace orrery::graph {
namespace {

using ::testing::HasSubstr;

// The message of a failed check; seals all blocks first.
std::string Fails(Graph graph, VerifyLevel level = VerifyLevel::kQuick) {
  for (Block& block : graph.blocks) block.Seal();
  const Status status = Verify(graph, level);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), status.ok() ? Code::kOk : Code::kInvalidInput);
  return status.message();
}

// The first block that holds a communication which `wanted` picks.
template <class Wanted>
Comm& Find(Graph* graph, const Wanted& wanted) {
  for (Block& block : graph->blocks) {
    for (Comm& comm : block.comms) {
      if (wanted(comm)) return comm;
    }
  }
  ADD_FAILURE() << "no such communication";
  return graph->blocks[0].comms[0];
}

TEST(Verify, AcceptsConsistentGraphs) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = SampleGraph(seed, AnyShape(seed));
    const Status status = Verify(graph, VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.message();
  }
  EXPECT_TRUE(Verify(Graph(), VerifyLevel::kFull).ok());
}

TEST(Verify, AcceptsGeneralGraphs) {
  int straight = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = GeneralGraph(seed, AnyGeneralShape(seed));
    const Status status = Verify(graph, VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.message();
    straight += WhyNotStraight(graph).empty() ? 1 : 0;
  }
  EXPECT_EQ(straight, 0);
}

TEST(Verify, ABlockMustBeSealed) {
  Graph graph = SampleGraph(1);
  graph.blocks[2].content_hash = 0;
  EXPECT_EQ(Verify(graph).message(),
            "block 2 'layer \"backward\"\n\\': not sealed: call Seal after the last change");
  graph = SampleGraph(1);
  graph.blocks[0].buffers[0].bytes += 1;
  EXPECT_TRUE(Verify(graph).ok());  // a stale hash shows at the full level only
  EXPECT_EQ(Verify(graph, VerifyLevel::kFull).message(),
            "block 0 'static': changed after it was sealed: call Seal after the last change");
}

TEST(Verify, IndicesAreInRange) {
  Graph graph = SampleGraph(1);
  graph.blocks[0].ops[1].index = 4;
  graph.blocks[0].content_hash = 1;
  EXPECT_EQ(Verify(graph).message(), "block 0 'static': op 1 '': index 4 of 4");

  graph = SampleGraph(1);
  graph.blocks[0].ops[1].module = NameId(1000);
  EXPECT_EQ(Fails(graph), "block 0 'static': op 1 '': a name beyond the 36 names");

  graph = SampleGraph(1);
  graph.programs[1].calls[3].block = BlockId(99);
  EXPECT_EQ(Fails(graph), "program 1 'stage 1', call 3: block 99 of 22");

  graph = SampleGraph(1);
  graph.programs[1].calls[2].repeat = 0;
  EXPECT_EQ(Fails(graph),
            "program 1 'stage 1', call 2 (block 14 'receive'): repeat 0, micro-batch 1, chunk 0, "
            "layer 0");

  graph = SampleGraph(1);
  graph.bindings[3].program = ProgramId(2);
  EXPECT_EQ(Fails(graph), "rank 3: program 2 of 2");
}

TEST(Verify, CommunicationsKeepTheRules) {
  const auto collective = [](const Comm& c) { return c.group == GroupSlot::kModel; };
  Graph graph = SampleGraph(1);
  Find(&graph, collective).stream = 0;
  EXPECT_NE(Fails(graph).find("a communication on stream 0, the compute stream"),
            std::string::npos);

  graph = SampleGraph(1);
  Find(&graph, collective).event = 1;
  EXPECT_NE(Fails(graph).find("a blocking communication records an event"), std::string::npos);

  graph = SampleGraph(1);
  Find(&graph, collective).bytes.value = -1;
  EXPECT_NE(Fails(graph).find("op 1 'norm': negative bytes"), std::string::npos);

  graph = SampleGraph(1);
  Block& exchange = graph.blocks[4];
  ASSERT_EQ(exchange.comms.size(), 2u);
  exchange.ops.insert(exchange.ops.begin() + 1, Op{.kind = OpKind::kHostSync});
  EXPECT_NE(Fails(graph).find("op 2: members of batch 7 do not stand next to each other"),
            std::string::npos);
}

// The fast machine takes stream, event and blocking of a group call from its first member.
TEST(Straight, MembersOfAGroupCallAreAlike) {
  const auto why = [](const auto& change) {
    Graph graph = SampleGraph(1);
    change(&graph.blocks[4]);
    graph.blocks[4].Seal();
    return WhyNotStraight(graph);
  };
  const std::string unlike =
      "block 4 'send': op 1 'message': members of a group call differ in stream, event or blocking";
  EXPECT_EQ(why([](Block*) {}), "");
  EXPECT_THAT(why([](Block* b) { ++b->comms[1].stream; }), HasSubstr(unlike));
  EXPECT_THAT(why([](Block* b) { b->comms[1].blocking = !b->comms[1].blocking; }),
              HasSubstr("op 1"));
  EXPECT_THAT(why([](Block* b) { std::swap(b->ops[0].index, b->ops[1].index); }),
              HasSubstr(unlike));
  EXPECT_THAT(why([](Block* b) { b->comms[0].collective = Collective::kAllReduce; }),
              HasSubstr("a group call of what is no message"));
}

TEST(Verify, EventsAreRecordedBeforeTheyAreWaitedFor) {
  Graph graph = SampleGraph(1);
  std::vector<Call>& calls = graph.programs[0].calls;
  std::swap(calls[calls.size() - 1], calls[calls.size() - 2]);
  EXPECT_EQ(Fails(graph),
            "program 0 'stage 0', call 16 (block 3 'wait'): op 0: waits for event 2, which nothing "
            "has recorded");

  graph = SampleGraph(1);
  graph.programs[0].calls.back().event = 3;
  EXPECT_NE(Fails(graph).find("(block 3 'wait'): op 0: event 3 of 3"), std::string::npos);

  graph = SampleGraph(1);
  graph.programs[0].calls.back().event = kNoEvent;
  EXPECT_NE(Fails(graph).find("op 0: the event of the call, and the call has none"),
            std::string::npos);
}

TEST(Verify, SlotsInUseAreBound) {
  Graph graph = SampleGraph(1);
  graph.bindings[5].groups[static_cast<std::size_t>(GroupSlot::kDp)] = GroupId();
  EXPECT_EQ(Fails(graph),
            "rank 5: program 1 'stage 1' uses the slot 'dp', which is not bound to one of the 9 "
            "groups");

  graph = SampleGraph(1);
  graph.bindings[5].peers[0] = RankId();
  EXPECT_EQ(Fails(graph),
            "rank 5: program 1 'stage 1': the peer 'previous' is not another rank of the job");
  graph.bindings[5].peers[0] = RankId(5);
  EXPECT_EQ(Fails(graph),
            "rank 5: program 1 'stage 1': the peer 'previous' is not another rank of the job");
}

TEST(Verify, GroupsAndBindingsNameEachOther) {
  Graph graph = SampleGraph(1);
  const auto dp = static_cast<std::size_t>(GroupSlot::kDp);
  std::swap(graph.bindings[0].groups[dp], graph.bindings[1].groups[dp]);
  EXPECT_EQ(Fails(graph), "group 3 (dp) has rank 0, whose slot names another group");

  graph = SampleGraph(1);
  // A slot that no program uses names somebody else's group: only the count of members shows it.
  graph.bindings[0].groups[static_cast<std::size_t>(GroupSlot::kCp)] = GroupId(1);
  EXPECT_EQ(Fails(graph), "rank 0: its slot 'cp' names group 1 (tp), which does not have it");

  graph = SampleGraph(1);
  const std::vector<RankId> twice = {RankId(0), RankId(0)};
  const auto cp = static_cast<std::size_t>(GroupSlot::kCp);
  graph.bindings[0].groups[cp] = graph.groups.Add(GroupSlot::kCp, twice);
  EXPECT_EQ(Fails(graph), "group 9 (cp) has rank 0 twice");

  graph = SampleGraph(1);
  graph.jobs[0].ranks = 9;
  EXPECT_EQ(Fails(graph), "job 0 'job \"x\"': 8 ranks are bound, not 9");
}

TEST(Verify, MembersOfAGroupAgreeOnTheirCollectives) {
  // The model's group spans both stages, whose last blocks differ: 14 is stage 0's, 21 stage 1's.
  Graph graph = SampleGraph(1);
  const BlockId last = graph.programs[1].calls[graph.programs[1].calls.size() - 2].block;
  graph.blocks[last.index()].comms.back().bytes.value = 8;
  EXPECT_EQ(Fails(graph),
            "group 0 (model): members disagree on collective 0: rank 0 (program 0 'stage 0', call "
            "16, block 12 'reduce', op 1) has all-reduce of 4 bytes of fp32 on stream 3; rank 4 "
            "(program 1 'stage 1', call 16, block 21 'reduce', op 2) has all-reduce of 8 bytes of "
            "fp32 on stream 3");
  // Each on a stream of its own: a straight graph numbers a communicator's stream alike everywhere.
  graph = SampleGraph(1);
  graph.blocks[last.index()].comms.back().stream = 1;
  EXPECT_THAT(Fails(graph), HasSubstr("4 bytes of fp32 on stream 3; rank 4"));
  EXPECT_THAT(Fails(graph), HasSubstr("4 bytes of fp32 on stream 1"));
  // One collective less.
  graph = SampleGraph(1);
  Block& block = graph.blocks[last.index()];
  block.ops.pop_back();
  block.comms.pop_back();
  EXPECT_NE(Fails(graph).find("rank 4 (program 1 'stage 1') has only 0"), std::string::npos);
}

TEST(Verify, SendsMatchReceives) {
  // Stage 0 sends micro-batch 0 with other bytes.
  Graph graph = SampleGraph(1);
  Comm& sent = Find(&graph, [](const Comm& c) { return c.collective == Collective::kSend; });
  sent.bytes.value = 1;
  EXPECT_EQ(
      Fails(graph),
      "messages of rank 0 to rank 4 with tag 0, number 0: rank 0 (program 0 'stage 0', call 1, "
      "block 4 'send', op 0) has send of 1 bytes of bf16 on stream 4; rank 4 (program 1 "
      "'stage 1', call 0, block 13 'receive', op 0) has receive of 4096 bytes of bf16 on stream 4");
  // A receive that nobody sends.
  graph = SampleGraph(1);
  graph.programs[1].calls.insert(graph.programs[1].calls.begin(), graph.programs[1].calls[0]);
  EXPECT_NE(Fails(graph).find("number 8: rank 0 (program 0 'stage 0') has only 8; rank 4"),
            std::string::npos);
  // A sender whom the receiver does not know.
  graph = SampleGraph(1);
  std::swap(graph.bindings[4].peers[0], graph.bindings[5].peers[0]);
  EXPECT_NE(Fails(graph).find("messages of rank 0 to rank 4"), std::string::npos);
}

TEST(Verify, TwoSlotsMayNameOneRank) {
  const SampleShape ring{.stages = 2, .ring = true};
  EXPECT_TRUE(Verify(SampleGraph(1, ring), VerifyLevel::kFull).ok());
  Graph graph = SampleGraph(1, ring);
  Find(&graph, [](const Comm& c) { return c.peer == PeerSlot::kPrevious; }).bytes.value = 1;
  EXPECT_NE(Fails(graph).find("messages of rank"), std::string::npos);
}

TEST(Verify, BuffersLiveAsTheirLifetimesSay) {
  // A forward that keeps what no backward frees.
  Graph graph = SampleGraph(1);
  graph.blocks[1].buffers[0].id = 77;
  EXPECT_TRUE(Verify(graph).code() == Code::kOk);
  EXPECT_NE(Fails(graph, VerifyLevel::kFull).find("op 0: buffer 10 is freed without an alloc"),
            std::string::npos);
  graph = SampleGraph(1);
  graph.blocks[1].buffers[3].id = 77;  // allocated as 77, freed as 77: one buffer
  EXPECT_TRUE(Verify(graph).ok());
  graph.blocks[1].ops[3].kind = OpKind::kHostSync;
  EXPECT_NE(Fails(graph, VerifyLevel::kFull).find("buffer 77 is freed without an alloc"),
            std::string::npos);
  graph = SampleGraph(1);
  graph.blocks[2].buffers[1].bytes = 1;
  EXPECT_NE(Fails(graph, VerifyLevel::kFull).find("buffer 11 has 704 bytes, and 1 are freed"),
            std::string::npos);
  graph = SampleGraph(1);
  graph.blocks[2].ops[1].kind = OpKind::kHostSync;
  EXPECT_NE(Fails(graph, VerifyLevel::kFull).find("is never freed"), std::string::npos);
}

TEST(Verify, LogicalRanksAreUnique) {
  Graph graph = SampleGraph(1);
  graph.bindings[1].logical_rank = graph.bindings[0].logical_rank;
  EXPECT_EQ(Fails(graph, VerifyLevel::kFull), "rank 1: logical rank 7 of job 0 is taken");
}

}  // namespace
}  // namespace orrery::graph
