// What Verify refuses of graphs that are not straight, and what is straight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/general_samples.h"
#include "orrery/graph/sample_graphs.h"
#include "orrery/graph/verify/straight.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::graph {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kGeneral = R"(orrery.graph/2
job "traced" ranks=3 once=1
stream 2 "copies" order=priority
block 0 "issued"
  hold cpu=0
  time ps=5 stream=2 priority=1 hold=0
  record event=0 stream=2
  wait event=0 stream=host
  generic flops=9 after=0,start:0
  all-reduce group=#0 stream=3 blocking=0 event=call bytes=8*#0 reduce=max current=1
  wait event=call
  send group=model peer=member:0 stream=4 blocking=0 batch=1 tag=9 bytes=64
  receive group=model peer=offset:-1 stream=5 blocking=0 batch=1 tag=9 bytes=64
block 1 "free" issue=free
  time ps=1*#0 stream=none after=2
  receive group=model peer=any tag=any stream=none bytes=4
  time ps=7 stream=none
  send group=pp peer=column:1 stream=none bytes=4 after=0,start:2
  all-gather group=model stream=6 bytes=16
  routed op=4 routing=0
  assumed op=4 "guessed"
routing 0 experts=4 top_k=2
program 0 "both" events=2
  column 0 10 20 30
  column 1 1 2 0
  call block=0 event=1
  call block=1
rank program=0 job=0 logical=0 model=0 row=0
rank program=0 job=0 logical=1 model=0 row=1
rank program=0 job=0 logical=2 model=0 row=2
group 0 model 0..2
group 1 dp 2 1 0
more 1
)";

std::string General() {
  std::string text(kGeneral);
  const std::string line = "stream 2 ";  // streams count from 0
  text.replace(text.find(line), line.size(), "stream 0\nstream 1\nstream 2 ");
  text.replace(text.find("\"copies\""), 8, "name=\"copies\"");
  text.replace(text.find("op=4 \"guessed\""), 14, "op=4 text=\"guessed\"");
  return text;
}

std::string Fails(std::string_view from, std::string_view to) {
  std::string text = General();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const Result<Graph> graph = FromText(text);
  EXPECT_FALSE(graph.ok()) << to;
  return graph.ok() ? "" : graph.status().message();
}

TEST(VerifyGeneral, AcceptsWhatTheGraphCanSay) {
  const Result<Graph> graph = FromText(General());
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(ToText(*FromText(ToText(*graph))), ToText(*graph));
  EXPECT_EQ(graph->group(graph->bindings[1], static_cast<GroupSlot>(kGroupSlots)), GroupId(1));
  EXPECT_EQ(graph->number(graph->bindings[2], graph->blocks[1].times[0]), 30);
  EXPECT_EQ(graph->blocks[1].comms[0].tag, kAnyTag);
}

TEST(VerifyGeneral, StreamsAndHolds) {
  EXPECT_THAT(Fails("hold=0", "hold=1"), HasSubstr("'1' is none of the block's 1 holds"));
  EXPECT_THAT(Fails("record event=0 stream=2", "record event=0 stream=none"),
              HasSubstr("op 1 '': a wait or a record on no stream"));
  EXPECT_THAT(Fails("record event=0 stream=2", "record event=0 stream=host"),
              HasSubstr("the host's stream, which only a wait may name"));
  EXPECT_THAT(Fails("record event=0 stream=2", "record event=0 hold=0"),
              HasSubstr("holds something, which only messages"));
  EXPECT_THAT(Fails("generic flops=9", "generic flops=9 stream=none"),
              HasSubstr("on no stream, and a host issues the block"));
  EXPECT_THAT(Fails("stream=4 blocking", "stream=none blocking"),
              HasSubstr("a stream beyond 2^31, or none where a host issues"));
  EXPECT_THAT(Fails("  time ps=7 stream=none", "  host-sync"),
              HasSubstr("op 2 '': work of the host, and no host issues the block"));
  EXPECT_THAT(Fails("  time ps=7 stream=none", "  wait event=0 stream=host"),
              HasSubstr("a wait of the host, and no host issues the block"));
  EXPECT_THAT(Fails("order=priority", "order=fast"), HasSubstr("'fast' is no value for 'order'"));
}

TEST(VerifyGeneral, Dependencies) {
  EXPECT_THAT(Fails("after=0,start:0", "after=1"),
              HasSubstr("op 3: depends on op 1, but op 1 takes no time of its own"));
  EXPECT_THAT(Fails("after=0,start:0", "after=0,start:9"), HasSubstr("op 3: depends on op 9 of 8"));
  EXPECT_THAT(Fails("after=0,start:0", "after=4"),
              HasSubstr("op 3: depends on op 4, which the host issues later"));
  EXPECT_THAT(Fails("after=0,start:0", "after=3"), HasSubstr("op 3: depends on op 3, itself"));
  EXPECT_THAT(Fails("time ps=7 stream=none", "time ps=7 stream=none name=\"loop\" after=start:3"),
              HasSubstr("block 1 'free': operations wait for each other: op 0 '' waits for op 2 "
                        "'loop' waits for op 3 '' waits for op 0"));
  // A stream in order is as good a reason to wait: 0 waits for 2, which stands behind it.
  EXPECT_THAT(
      Fails("time ps=1*#0 stream=none after=2\n  receive group=model peer=any tag=any "
            "stream=none bytes=4\n  time ps=7 stream=none",
            "time ps=1*#0 stream=1 after=2\n  receive group=model peer=any tag=any "
            "stream=none bytes=4\n  time ps=7 stream=1"),
      HasSubstr("operations wait for each other: op 0 '' waits for op 2 '' waits for op 0"));
}

TEST(VerifyGeneral, Peers) {
  EXPECT_THAT(Fails("receive group=model peer=any tag=any", "send group=model peer=any"),
              HasSubstr("any source, which only a receive may take"));
  EXPECT_THAT(Fails("receive group=model peer=any tag=any", "send group=model peer=next tag=any"),
              HasSubstr("any tag, which only a receive may take"));
  EXPECT_THAT(Fails("peer=member:0", "peer=member:3"),
              HasSubstr("rank 0: program 0 'both': a peer is member 3 of group 0, which has 3"));
  EXPECT_THAT(Fails("peer=member:0", "peer=member:-1"),
              HasSubstr("a peer before the group's first member"));
  EXPECT_THAT(Fails("send group=model", "send group=dp"),
              HasSubstr("uses the slot 'dp', which is not bound to one of the 2 groups"));
  EXPECT_THAT(Fails("peer=column:1", "peer=column:2"), HasSubstr("numeric slot 2 of 2 columns"));
  EXPECT_THAT(Fails("column 1 1 2 0", "column 1 1 2 3"),
              HasSubstr("rank 2: program 0 'both': the peer in numeric slot 1 is rank 3 of a job"));
  EXPECT_THAT(Fails("peer=column:1", "peer=next"),
              HasSubstr("the peer 'next' is not a rank of the job"));
}

TEST(VerifyGeneral, Columns) {
  EXPECT_THAT(Fails("ps=1*#0", "ps=1*#7"), HasSubstr("numeric slot 7 of 2 columns"));
  EXPECT_THAT(Fails("column 0 10 20 30", "column 0 10 20 -30"),
              HasSubstr("column 0, row 2: -30 times"));
  EXPECT_THAT(Fails("bytes=8*#0", "bytes=4611686018427387904*#0"), HasSubstr("is no size or time"));
  EXPECT_THAT(Fails("logical=2 model=0 row=2", "logical=2 model=0 row=3"),
              HasSubstr("rank 2: program 0 'both': row 3 of 3"));
  EXPECT_THAT(Fails("column 0 10 20 30\n  column 1 1 2 0", "column 0 10x9\n  column 1 1x9"),
              HasSubstr("columns of 9 rows, and there are 3 ranks"));
  EXPECT_THAT(Fails("column 0 10 20 30", "column 0 10 20"),
              HasSubstr("column 1 has 3 rows, those before it 2"));
}

TEST(VerifyGeneral, Groups) {
  EXPECT_THAT(Fails("more 1\n", "more -\n"), HasSubstr("uses the slot '#0', which is not bound"));
  EXPECT_THAT(Fails("more 1\n", ""), HasSubstr("uses the slot '#0' from 0 on, of 0 more groups"));
  EXPECT_THAT(Fails("more 1\n", "more 5\n"), HasSubstr("more groups 0: group 5 of 2"));
  EXPECT_THAT(Fails("more 1\n", "more 0\n"), HasSubstr("group 0 stands in two slots"));
  EXPECT_THAT(Fails("group 1 dp 2 1 0", "group 1 dp 2 1"),
              HasSubstr("rank 0: its slot '#0' names group 1 (dp), which does not have it"));
  EXPECT_THAT(Fails("group 0 model 0..2", "group 0 dp 0..2"),
              HasSubstr("rank 0: its slot 'model' names group 0 (dp), which has another role"));
}

TEST(VerifyGeneral, EventsAndGroupCalls) {
  EXPECT_THAT(Fails("record event=0 stream=2", "record event=1 stream=2"),
              HasSubstr("op 2: waits for event 0, which nothing has recorded"));
  EXPECT_THAT(Fails("call block=0 event=1", "call block=0"),
              HasSubstr("the event of the call, and the call has none"));
  EXPECT_THAT(Fails("events=2", "events=1"), HasSubstr("event 1 of 1"));
  EXPECT_THAT(Fails("  receive group=model peer=offset",
                    "  record event=0\n  receive group=model "
                    "peer=offset"),
              HasSubstr("op 8: members of batch 1 do not stand next to each other"));
}

TEST(VerifyGeneral, MembersAgreeOnTheirCollectives) {
  std::string text = General();
  const std::string_view calls = "  call block=0 event=1\n  call block=1\n";
  const std::size_t at = text.find(calls) + calls.size();
  text.insert(at,
              "program 1 \"less\" events=2\n  column 0 10\n  column 1 0\n"
              "  call block=0 event=1\n");
  const std::string_view last = "rank program=0 job=0 logical=2 model=0 row=2";
  text.replace(text.find(last), last.size(), "rank program=1 job=0 logical=2 model=0 row=0");
  EXPECT_EQ(FromText(text).status().message(),
            "graph text: group 0 (model): members disagree on their collectives: rank 0 (program 0 "
            "'both') has 1, rank 2 (program 1 'less') has 0");
  text.insert(text.find("group 0 model"), "");
  text.replace(text.find("block 1 \"free\""), 0,
               "block 1 \"other\" issue=free\n  reduce-scatter group=model stream=6 bytes=16\n");
  text.replace(text.find("block 1 \"free\""), 7, "block 2");
  text.replace(text.find("  call block=1\n"), 15, "  call block=2\n");
  text.replace(text.rfind("  call block=0 event=1\n"), 23,
               "  call block=0 event=1\n  call block=1\n");
  EXPECT_THAT(FromText(text).status().message(),
              HasSubstr("rank 2 (program 1 'less') has 1 of other kinds or types"));
}

TEST(Straight, GeneratedShapesAreStraight) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(WhyNotStraight(SampleGraph(seed, AnyShape(seed))), "") << "seed " << seed;
  }
}

// One change to a straight graph, and the reason that it is none any more.
TEST(Straight, SaysWhyNot) {
  const auto why = [](const auto& change) {
    Graph graph = SampleGraph(1);
    change(&graph);
    for (Block& block : graph.blocks) block.Seal();
    return WhyNotStraight(graph);
  };
  Op op;
  op.kind = OpKind::kRecord;
  op.event = 0;
  EXPECT_THAT(why([&](Graph* g) { g->blocks[4].ops.push_back(op); }),
              HasSubstr("block 4 'send': op 2 '': it records an event"));
  EXPECT_THAT(why([](Graph* g) { g->blocks[1].issue = Issue::kFree; }),
              HasSubstr("block 1 'layer.forward': no host issues it"));
  EXPECT_THAT(why([](Graph* g) { g->blocks[1].ops[4].stream = 1; }),
              HasSubstr("it is not on the compute stream"));
  EXPECT_THAT(why([](Graph* g) {
                g->blocks[4].comms[0].peer = {PeerKind::kOffset, 1};
              }),
              HasSubstr("op 0 'message': its peer is no neighbour's slot"));
  EXPECT_THAT(why([](Graph* g) { g->blocks[4].comms[1].tag = 2; }),
              HasSubstr("op 1 'message': its tag is not 0 or 1"));
  EXPECT_THAT(why([](Graph* g) { g->blocks[4].comms[1].bytes.slot = 0; }),
              HasSubstr("its size stands in a column"));
  EXPECT_THAT(why([](Graph* g) { g->blocks[4].comms[1].stream = 256; }),
              HasSubstr("its stream is above 255"));
  EXPECT_THAT(why([](Graph* g) { g->blocks[4].comms[1].after = 1; }),
              HasSubstr("it waits for another stream than the compute stream"));
  EXPECT_THAT(why([](Graph* g) { g->more_groups.push_back(GroupId(0)); }),
              HasSubstr("groups stand behind the roles' slots"));
  EXPECT_THAT(why([](Graph* g) {
                g->streams.push_back({{}, StreamOrder::kLast});
              }),
              HasSubstr("stream 0 is served in the order 'last'"));
  EXPECT_THAT(why([](Graph* g) { g->programs[0].events = 40000; }),
              HasSubstr("has 40000 events, more than 32767"));
}

}  // namespace
}  // namespace orrery::graph
