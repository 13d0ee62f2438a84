#include "orrery/workload/importers/trace/trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "orrery/formats/rank_trace_samples.h"
#include "orrery/graph/verify/straight.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::workload {
namespace {

using formats::TraceDirectory;
using graph::GroupSlot;
using graph::OpKind;

const std::string kTraces = ORRERY_SOURCE_DIR "/examples/traces";

constexpr const char* kStep = R"({"t":"step","index":1})";
constexpr const char* kMm =
    R"({"t":"sig","id":0,"name":"aten::mm","in":[["bfloat16",[2,3]],["bfloat16",[3,4],[1,3]]],)"
    R"("out":[["bfloat16",[2,4]]],"read":36,"written":16,"flops":48})";

std::string Group(int id, const char* runs) {
  return fmt::format(R"({{"t":"group","id":{},"name":"g{}","ranks":[{}]}})", id, id, runs);
}
std::string Comm(int id, const char* kind, int group, const char* rest) {
  return fmt::format(
      R"({{"t":"comm","id":{},"kind":"{}","op":"c10d::{}","group":{},"dtype":"bfloat16",{}}})", id,
      kind, kind, group, rest);
}

// A directory of one traced rank a list of lines.
TraceDirectory Directory(
    std::uint32_t world, std::vector<TraceDirectory::Dimension> mesh,
    const std::vector<std::pair<std::vector<std::uint32_t>, std::vector<std::string>>>& programs) {
  TraceDirectory d{.world_size = world, .mesh = std::move(mesh)};
  for (const auto& [ranks, lines] : programs) {
    formats::TraceProgram& p = d.programs.emplace_back();
    p.rank = ranks.front();
    p.file = fmt::format("rank-{}", p.rank);
    const std::string text =
        formats::RankTraceText(static_cast<int>(p.rank), static_cast<int>(world), lines);
    auto trace = formats::ParseRankTrace(text, p.file);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    p.trace = *std::move(trace);
    p.ranks = ranks;
  }
  return d;
}

ImportedRanks Imported(const TraceDirectory& directory) {
  auto import = ImportRankTraces(directory, "job");
  EXPECT_TRUE(import.ok()) << import.status().message();
  const Status status = graph::Verify(import->graph, graph::VerifyLevel::kFull);
  EXPECT_TRUE(status.ok()) << status.message();
  return *std::move(import);
}
std::string Refused(const TraceDirectory& directory) {
  const auto import = ImportRankTraces(directory, "job");
  EXPECT_FALSE(import.ok());
  return import.ok() ? "" : import.status().message();
}

std::vector<std::uint32_t> Members(const graph::Graph& g, std::uint32_t rank, GroupSlot slot) {
  std::vector<std::uint32_t> out;
  for (const RankId r : g.groups.members(g.group(g.bindings[rank], slot))) out.push_back(r.value);
  return out;
}

// Every example, in full: valid, and straight but for what graph.h says is not.
TEST(RankTraces, ExamplesAreValidGraphs) {
  const std::map<std::string, std::string> examples = {
      {"ddp", ""},
      {"tp", ""},
      {"pipeline", ""},
      {"fsdp2", "it records an event"},
      {"hybrid", "it records an event"},
      {"fsdp1", "it records an event"},
      {"megatron", ""},
      {"megatron-interleaved", "no neighbour's slot"}};
  for (const auto& [name, why_not] : examples) {
    const auto directory =
        formats::ReadTraceDirectory(fmt::format("{}/{}", kTraces, name), 1 << 26);
    ASSERT_TRUE(directory.ok()) << directory.status().message();
    const ImportedRanks import = Imported(*directory);
    EXPECT_TRUE(import.warnings.empty()) << name << ": " << import.warnings.front();
    const std::string why = graph::WhyNotStraight(import.graph);
    EXPECT_EQ(why_not.empty(), why.empty()) << name << ": " << why;
    EXPECT_NE(why.find(why_not), std::string::npos) << why;
  }
}

// pp 2, dp 2, tp 2; ranks 0 and 4 were traced. Groups of rank 6 = (1, 1, 0).
TEST(RankTraces, ARankStandsForItsClass) {
  const std::vector<TraceDirectory::Dimension> mesh = {{"pp", 2}, {"dp", 2}, {"tp", 2}};
  const auto lines = [](int base) {
    const int other = 4 - base;
    return std::vector<std::string>{
        kStep,
        Group(0, fmt::format("[{},2,1]", base).c_str()),
        Group(1, fmt::format("[{},2,2]", base).c_str()),
        Group(2, "[0,2,4]"),
        Comm(0, "all_reduce", 0, R"("send":8,"recv":8,"async":false)"),
        Comm(1, "all_gather", 1, R"("send":8,"recv":16)"),
        Comm(2, base == 0 ? "send" : "recv", 2,
             fmt::format(R"("{}":8,"peer":{})", base == 0 ? "send" : "recv", other).c_str()),
        R"({"t":"wait","comm":1})",
        R"({"t":"wait","comm":2})"};
  };
  const ImportedRanks import =
      Imported(Directory(8, mesh, {{{0, 1, 2, 3}, lines(0)}, {{4, 5, 6, 7}, lines(4)}}));
  const graph::Graph& g = import.graph;
  EXPECT_EQ(Members(g, 6, GroupSlot::kTp), (std::vector<std::uint32_t>{6, 7}));
  EXPECT_EQ(Members(g, 6, GroupSlot::kDp), (std::vector<std::uint32_t>{4, 6}));
  EXPECT_EQ(Members(g, 6, GroupSlot::kPp), (std::vector<std::uint32_t>{2, 6}));
  EXPECT_EQ(g.bindings[6].peers[static_cast<std::size_t>(graph::PeerSlot::kPrevious)].value, 2U);
  EXPECT_EQ(g.groups.size(), 12U);  // four of each kind, each once
  EXPECT_EQ(g.blocks[0].comms[1].bytes.value, 16);
  EXPECT_TRUE(g.blocks[0].comms[0].blocking);
  EXPECT_FALSE(g.blocks[0].comms[1].blocking);
  EXPECT_EQ(graph::WhyNotStraight(g), "");
}

// Megatron-Core reduces over its tensor-parallel group even where that is one rank.
TEST(RankTraces, AGroupOfOneHasNothingToSay) {
  const std::vector<std::string> lines = {
      kStep,
      Group(0, "[0,1,1]"),
      Group(1, "[0,2,1]"),
      Comm(0, "all_reduce", 0, R"("send":8,"recv":8,"async":false)"),
      Comm(1, "all_gather", 0, R"("send":8,"recv":8)"),
      Comm(2, "all_reduce", 1, R"("send":8,"recv":8,"async":false)"),
      R"({"t":"wait","comm":1})"};
  const ImportedRanks import = Imported(Directory(2, {}, {{{0}, lines}}));
  ASSERT_EQ(import.graph.blocks[0].comms.size(), 1U);
  EXPECT_EQ(Members(import.graph, 1, import.graph.blocks[0].comms[0].group),
            (std::vector<std::uint32_t>{0, 1}));
}

// Ranks of two stages, which use their groups in another order.
TEST(RankTraces, ACommunicatorHasOneStreamInAllPrograms) {
  const std::vector<TraceDirectory::Dimension> mesh = {{"pp", 2}, {"dp", 2}};
  const auto lines = [](int base) {
    std::vector<std::string> all = {kStep, Group(0, fmt::format("[{},2,1]", base).c_str()),
                                    Group(1, "[0,4,1]")};
    const std::vector<std::string> comms = {
        Comm(base == 0 ? 0 : 1, "all_reduce", 0, R"("send":8,"recv":8,"async":false)"),
        Comm(base == 0 ? 1 : 0, "all_reduce", 1, R"("send":4,"recv":4,"async":false)")};
    all.push_back(comms[base == 0 ? 0 : 1]);
    all.push_back(comms[base == 0 ? 1 : 0]);
    return all;
  };
  const ImportedRanks import =
      Imported(Directory(4, mesh, {{{0, 1}, lines(0)}, {{2, 3}, lines(2)}}));
  std::map<GroupSlot, std::set<std::uint32_t>> streams;
  for (const graph::Block& block : import.graph.blocks) {
    for (const graph::Comm& c : block.comms) streams[c.group].insert(c.stream);
  }
  ASSERT_EQ(streams.size(), 2U);
  for (const auto& [slot, numbers] : streams) EXPECT_EQ(numbers.size(), 1U);
}

// A rank that sends no message may stand for all; one that does may not.
TEST(RankTraces, OneRankStandsForAllWhereNothingTellsRanksApart) {
  const std::vector<std::string> lines = {
      kStep, Group(0, "[2,2,1]"), Group(1, "[0,4,2]"),
      Comm(0, "all_reduce", 0, R"("send":8,"recv":8,"async":false)"),
      Comm(1, "all_reduce", 1, R"("send":8,"recv":8,"async":false)")};
  const ImportedRanks import = Imported(Directory(8, {}, {{{2}, lines}}));
  EXPECT_EQ(import.assumed[0], "rank 2 was traced, and stands for all 8 ranks");
  std::map<std::vector<std::uint32_t>, int> groups;
  for (std::size_t i = 0; i < import.graph.groups.size(); ++i) {
    std::vector<std::uint32_t> members;
    for (const RankId r : import.graph.groups.members(GroupId(i))) members.push_back(r.value);
    ++groups[members];
  }
  EXPECT_EQ(groups.size(), 6U);  // {0,1} … {6,7} and {0,2,4,6}, {1,3,5,7}
  EXPECT_EQ((groups[{1, 3, 5, 7}]), 1);
  EXPECT_EQ((groups[{6, 7}]), 1);

  std::vector<std::string> with_message = lines;
  with_message.push_back(Comm(2, "send", 1, R"("send":8,"peer":4)"));
  EXPECT_EQ(Refused(Directory(8, {}, {{{2}, with_message}})).substr(0, 30),
            "no program stands for rank 0, ");
}

// Experts: rank 1 gets three times what rank 0 gets, and sends it back.
TEST(RankTraces, UnevenAllToAllsHaveShares) {
  const auto lines = [](const char* there, const char* back) {
    return std::vector<std::string>{kStep, Group(0, "[0,2,1]"), Comm(0, "all_to_all", 0, there),
                                    Comm(1, "all_to_all", 0, back)};
  };
  const std::vector<std::string> first =
      lines(R"("send":16,"recv":8,"send_each":[4,12],"recv_each":[4,4])",
            R"("send":8,"recv":16,"send_each":[4,4],"recv_each":[4,12])");
  const std::vector<std::string> second =
      lines(R"("send":16,"recv":24,"send_each":[4,12],"recv_each":[12,12])",
            R"("send":24,"recv":16,"send_each":[12,12],"recv_each":[4,12])");
  const ImportedRanks import = Imported(Directory(2, {}, {{{0}, first}, {{1}, second}}));
  ASSERT_EQ(import.graph.shares.size(), 1U);
  EXPECT_EQ(import.graph.shares[0].parts, (std::vector<std::int64_t>{500000, 1500000}));
  for (const graph::Block& block : import.graph.blocks) {
    EXPECT_EQ(block.comms[0].bytes.value, 16);
    EXPECT_FALSE(block.comms[0].returned);
    EXPECT_EQ(block.comms[1].bytes.value, 16);
    EXPECT_TRUE(block.comms[1].returned);
  }
  EXPECT_NE(
      Refused(Directory(2, {},
                        {{{0},
                          {kStep, Group(0, "[0,2,1]"),
                           Comm(0, "all_to_all", 0, R"("send":8,"recv":8,"send_each":[3,4])")}}}))
          .find("'send_each' has no 2 sizes that sum up to the call's 8 bytes"),
      std::string::npos);
  // A ring: each sends all to the next. It would take the other members' calls to say so.
  const ImportedRanks ring = Imported(Directory(
      2, {},
      {{{0}, lines(R"("send":8,"recv":8,"send_each":[0,8],"recv_each":[0,8])", R"("send":8)")},
       {{1}, lines(R"("send":8,"recv":8,"send_each":[8,0],"recv_each":[8,0])", R"("send":8)")}}));
  EXPECT_TRUE(ring.graph.shares.empty());
  EXPECT_EQ(std::ranges::count(ring.assumed,
                               "2 all-to-alls of uneven shares are even ones of the same bytes"),
            1);
}

// pp 3, dp 2: the first and the last stage share an embedding, the middle one has no part in it.
// Rank 1 stands where rank 0 does, in a group of its own.
TEST(RankTraces, AGroupMayHoldSomeStagesOnly) {
  const std::vector<TraceDirectory::Dimension> mesh = {{"pp", 3}, {"dp", 2}};
  const std::vector<std::string> ends = {
      kStep, R"({"t":"group","id":0,"name":"e","description":"EMBEDDING_GROUP","ranks":[[0,2,4]]})",
      Comm(0, "all_reduce", 0, R"("send":8,"recv":8,"async":false)")};
  const std::vector<std::string> middle = {kStep, kMm, R"({"t":"op","sig":0})"};
  auto directory = Directory(6, mesh, {{{0, 1}, ends}, {{2, 3}, middle}, {{4, 5}, ends}});
  directory.assumed = {"rank 0 stands for rank 1"};
  const ImportedRanks import = Imported(directory);
  const graph::Graph& g = import.graph;
  EXPECT_EQ(Members(g, 0, GroupSlot::kEmbedding), (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(Members(g, 1, GroupSlot::kEmbedding), (std::vector<std::uint32_t>{1, 5}));
  EXPECT_EQ(Members(g, 5, GroupSlot::kEmbedding), (std::vector<std::uint32_t>{1, 5}));
  EXPECT_EQ(g.groups.size(), 2U);
  EXPECT_NE(std::ranges::find(import.assumed, "traced: rank 0 stands for rank 1"),
            import.assumed.end());
}

TEST(RankTraces, AGroupMustBeAPlaneOfTheMesh) {
  const std::vector<std::string> lines = {kStep, Group(0, "[0,1,1],[3,1,1]"),
                                          Comm(0, "all_reduce", 0, R"("send":8,"recv":8)")};
  EXPECT_NE(Refused(Directory(4, {{"dp", 2}, {"tp", 2}}, {{{0, 1, 2, 3}, lines}}))
                .find("is no plane of the mesh"),
            std::string::npos);
}

// A gather that holds up its side stream runs beside kernels: it does not block, and its stream
// waits.
TEST(RankTraces, ABlockingCollectiveOfASideStreamIsAwaitedByIt) {
  const std::vector<std::string> lines = {
      kStep, Group(0, "[0,2,1]"),
      Comm(0, "all_gather", 0, R"("send":8,"recv":16,"async":false,"stream":3)"),
      R"({"t":"wait","comm":0,"by":3})"};
  const ImportedRanks import = Imported(Directory(2, {}, {{{0}, lines}}));
  const graph::Block& block = import.graph.blocks[0];
  EXPECT_FALSE(block.comms[0].blocking);
  ASSERT_GE(block.ops.size(), 3U);  // the host's call, the gather, the wait
  EXPECT_EQ(block.ops[2].kind, OpKind::kWait);
  EXPECT_EQ(block.ops[2].stream, block.comms[0].after);
  EXPECT_EQ(block.ops[2].event, block.comms[0].event);
}

TEST(RankTraces, CollectivesOfAGroupCallAreOneMessagesABatch) {
  const std::vector<std::string> lines = {
      kStep,
      Group(0, "[0,2,1]"),
      R"({"t":"call_begin","call":0})",
      Comm(0, "reduce_scatter", 0, R"("send":8,"recv":4)"),
      Comm(1, "reduce_scatter", 0, R"("send":16,"recv":8)"),
      R"({"t":"call_end","call":0,"id":2})",
      R"({"t":"wait","comm":2})",
  };
  const ImportedRanks import = Imported(Directory(2, {}, {{{0}, lines}}));
  const graph::Block& block = import.graph.blocks[0];
  ASSERT_EQ(block.comms.size(), 1U);
  EXPECT_EQ(block.comms[0].bytes.value, 24);
  EXPECT_EQ(block.host_ps.size(), 1U);  // one call
  EXPECT_EQ(block.ops[2].kind, OpKind::kWait);
  EXPECT_EQ(block.ops[2].event, block.comms[0].event);

  const auto message = [](int self) {
    return std::vector<std::string>{
        kStep,
        Group(0, "[0,2,1]"),
        R"({"t":"call_begin","call":0})",
        Comm(0, "send", 0, fmt::format(R"("send":8,"peer":{})", 1 - self).c_str()),
        Comm(1, "recv", 0, fmt::format(R"("recv":8,"peer":{})", 1 - self).c_str()),
        R"({"t":"call_end","call":0})",
        R"({"t":"wait","comm":0})",
        R"({"t":"wait","comm":1})"};
  };
  const ImportedRanks pair = Imported(Directory(2, {}, {{{0}, message(0)}, {{1}, message(1)}}));
  const graph::Block& batch = pair.graph.blocks[0];
  EXPECT_EQ(batch.comms[0].batch, batch.comms[1].batch);
  EXPECT_NE(batch.comms[0].batch, 0U);
  EXPECT_EQ(batch.comms[0].event, batch.comms[1].event);
}

// An event that only its own stream waits for needs no operation.
TEST(RankTraces, EventsAreKeptWhereAnotherStreamWaits) {
  const std::vector<std::string> lines = {kStep,
                                          kMm,
                                          R"({"t":"op","sig":0,"stream":4})",
                                          R"({"t":"record","event":9,"stream":4})",
                                          R"({"t":"await","event":9,"stream":4})",
                                          R"({"t":"record","event":9,"stream":4})",
                                          R"({"t":"op","sig":0})",
                                          R"({"t":"await","event":9,"stream":0})",
                                          R"({"t":"await","event":8,"stream":0})",
                                          R"({"t":"sync","of":"device","why":"x"})"};
  const ImportedRanks import = Imported(Directory(1, {}, {{{0}, lines}}));
  std::vector<OpKind> kinds;
  for (const graph::Op& op : import.graph.blocks[0].ops) kinds.push_back(op.kind);
  EXPECT_EQ(kinds, (std::vector<OpKind>{OpKind::kKernel, OpKind::kRecord, OpKind::kKernel,
                                        OpKind::kWait, OpKind::kHostSync, OpKind::kHostSync}));
  EXPECT_EQ(import.graph.blocks[0].kernels.size(), 1U);
  EXPECT_EQ(import.assumed[0].substr(0, 7), "1 waits");
}

// A module's call, 25 us forward and 20 backward; a view, 8; a collective's call, 25
// (host_work.cc).
TEST(RankTraces, ViewsModulesAndCollectivesCostTheHost) {
  const std::vector<std::string> lines = {
      kStep,
      Group(0, "[0,2,1]"),
      kMm,
      R"({"t":"sig","id":1,"name":"aten::t","in":[],"out":[],"kernel":false})",
      R"({"t":"module","id":0,"path":"a"})",
      R"({"t":"module","id":1,"path":"b"})",
      R"({"t":"op","sig":1,"pass":"forward","module":0})",
      R"({"t":"op","sig":0,"pass":"forward","module":0})",
      R"({"t":"op","sig":0,"pass":"forward","module":0})",
      R"({"t":"op","sig":0,"pass":"forward","module":1})",
      R"({"t":"op","sig":0,"pass":"backward","module":0})",
      Comm(0, "all_reduce", 0, R"("send":8,"recv":8,"async":false)"),
      R"({"t":"op","sig":1})"};
  const ImportedRanks import = Imported(Directory(2, {}, {{{0}, lines}}));
  ASSERT_EQ(import.graph.blocks.size(), 2U);
  constexpr std::int64_t kMicro = 1'000'000;
  EXPECT_EQ(import.graph.blocks[0].host_ps, (std::vector<std::int64_t>{33 * kMicro, 25 * kMicro}));
  EXPECT_EQ(import.graph.blocks[1].host_ps,
            (std::vector<std::int64_t>{20 * kMicro, 25 * kMicro, 8 * kMicro}));
  std::vector<OpKind> kinds;
  for (const graph::Op& op : import.graph.blocks[0].ops) kinds.push_back(op.kind);
  EXPECT_EQ(kinds, (std::vector<OpKind>{OpKind::kHost, OpKind::kKernel, OpKind::kKernel,
                                        OpKind::kHost, OpKind::kKernel}));
}

TEST(RankTraces, NothingUnknownIsDroppedInSilence) {
  const std::vector<std::string> unknown = {
      kStep,
      R"({"t":"sig","id":0,"name":"my::op","in":[["float32",[4]]],"out":[["float32",[4]]],)"
      R"("read":16,"written":16,"flops":7})",
      R"({"t":"op","sig":0})", R"({"t":"op","sig":0})"};
  const ImportedRanks import = Imported(Directory(1, {}, {{{0}, unknown}}));
  ASSERT_EQ(import.warnings.size(), 1U);
  EXPECT_NE(import.warnings[0].find("my::op (2)"), std::string::npos) << import.warnings[0];
  const auto& generic = std::get<graph::Generic>(import.graph.blocks[0].kernels[0]);
  EXPECT_EQ(generic.bytes_read, 16);
  EXPECT_EQ(generic.flops, 7);

  const std::vector<std::string> comm = {kStep, Group(0, "[0,2,1]"),
                                         Comm(0, "batch_p2p", 0, R"("send":8)")};
  EXPECT_NE(Refused(Directory(2, {}, {{{0}, comm}})).find("rank-0:4: c10d::batch_p2p"),
            std::string::npos);
  const std::vector<std::string> peer = {kStep, Group(0, "[0,2,1]"),
                                         Comm(0, "send", 0, R"("send":8,"peer":3)")};
  EXPECT_NE(Refused(Directory(4, {}, {{{0}, peer}, {{1}, peer}, {{2}, peer}, {{3}, peer}})), "");
}

}  // namespace
}  // namespace orrery::workload
