#include "orrery/formats/rank_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orrery/formats/rank_trace_samples.h"

namespace orrery::formats {
namespace {

using TraceKind = TraceEvent::Kind;

const std::string kTraces = ORRERY_SOURCE_DIR "/examples/traces";

const std::string kMm =
    R"({"t":"sig","id":0,"name":"aten::mm","in":[["bfloat16",[2,3]],["bfloat16",[3,4],[1,3]]],)"
    R"("out":[["bfloat16",[2,4]]],"read":36,"written":16,"flops":48})";
const std::vector<std::string> kLines = {
    R"({"t":"alloc","storage":0,"bytes":512,"stream":3})",
    R"({"t":"step","index":1})",
    R"({"t":"resident","storage":0,"bytes":512,"what":"parameter","name":"w"})",
    kMm,
    R"({"t":"module","id":0,"path":"layers.0"})",
    R"({"t":"op","sig":0,"in":[0],"out":[1],"stream":2,"pass":"backward","module":0,"mb":5})",
    R"({"t":"group","id":0,"name":"7","size":4,"ranks":[[0,2,4],[9,2,1]]})",
    R"({"t":"comm","id":3,"kind":"send","op":"c10d::send","group":0,"send":8,"recv":0,"peer":9})",
    R"({"t":"wait","comm":3,"by":"host"})",
    R"({"t":"sync","of":"device","why":"sync_device"})",
    R"({"t":"assumed","what":"a"})",
    R"({"t":"assumed","what":"a","at":"b:1"})",
    R"({"t":"free","storage":0})"};

TEST(RankTrace, IsReadAsItStands) {
  const auto trace = ParseRankTrace(RankTraceText(4, 16, kLines), "f");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->rank, 4U);
  ASSERT_EQ(trace->setup.size(), 1U);
  EXPECT_EQ(trace->setup[0].stream, 3);
  ASSERT_EQ(trace->step.size(), 6U);
  const TraceSignature& mm = trace->signatures[0];
  EXPECT_EQ(mm.in[1].strides, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(mm.flops, 48);
  const TraceEvent& op = trace->step[1];
  EXPECT_EQ(op.pass, TraceEvent::Pass::kBackward);
  EXPECT_EQ(op.stream, 2);
  EXPECT_EQ(op.micro_batch, 5);
  EXPECT_EQ(op.line, 7U);
  EXPECT_EQ(trace->groups[0].ranks, (std::vector<std::uint32_t>{0, 4, 9, 10}));
  EXPECT_EQ(trace->comms[0].peer, 9);
  EXPECT_EQ(trace->step[3].stream, TraceEvent::kHost);
  EXPECT_EQ(trace->step[4].stream, TraceEvent::kDevice);
  EXPECT_EQ(trace->assumed, std::vector<std::string>{"a"});
}

TEST(RankTrace, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string line) {
    std::vector<std::string> lines = kLines;
    lines.push_back(std::move(line));
    return ParseRankTrace(RankTraceText(4, 16, lines), "f").status().message();
  };
  EXPECT_EQ(message(R"({"t":"op","sig":1})"), "f:15: key 'sig': 1 of 1");
  EXPECT_NE(message(R"({"t":"comn","id":1})").find("'comn'; did you mean 'comm'"),
            std::string::npos);
  EXPECT_EQ(message(R"({"t":"op","sig":0,"module":7})"), "f:15: key 'module': 7 of 1");
  EXPECT_EQ(message(R"({"t":"op","sig":0,"module":4294967296})"),
            "f:15: key 'module': 4294967296 of 1");
  EXPECT_NE(message(R"({"t":"op","sig":0,"pass":"bakward"})").find("'backward'"),
            std::string::npos);
  EXPECT_EQ(message(R"({"t":"alloc","storage":1,"bytes":-1})").substr(0, 24),
            "f:15: key 'bytes' is -1,");
  EXPECT_EQ(message(R"({"t":"alloc","storage":1.5,"bytes":1})"),
            "f:15: key 'storage' is no whole number");
  EXPECT_EQ(message(R"({"t":"alloc","storage":18446744073709551615,"bytes":1})"),
            "f:15: key 'storage' is no whole number");
  EXPECT_EQ(message(R"({"t":"group","id":1,"name":"x","ranks":[[8,9,1]]})").substr(0, 30),
            "f:15: key 'ranks': a run is [f");
  EXPECT_EQ(message(R"({"t":"wait","comm":1,"by":"gost"})"), "f:15: key 'by': 'gost' is no stream");
}

TEST(RankTrace, ACutOrChangedFileIsRefused) {
  const std::string text = RankTraceText(4, 16, kLines);
  for (std::size_t n = 0; n + 1 < text.size(); ++n) {
    EXPECT_FALSE(ParseRankTrace(text.substr(0, n), "f").ok()) << n;
  }
  std::string missing = text;
  const std::size_t line = missing.find("{\"t\":\"free\"");
  missing.erase(line, missing.find('\n', line) + 1 - line);
  EXPECT_EQ(ParseRankTrace(missing, "f").status().message(),
            "f:14: 0 lines of 'free', and key 'counts' says 1");
  std::string newer = text;
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_EQ(ParseRankTrace(newer, "f").status().message(),
            "f:1: trace version 2; this program reads version 1");
}

TEST(RankTrace, ReadsWhatTheTracerWrote) {
  const auto directory = ReadTraceDirectory(kTraces + "/megatron", 1 << 26);
  ASSERT_TRUE(directory.ok()) << directory.status().message();
  EXPECT_EQ(directory->world_size, 8U);
  ASSERT_EQ(directory->mesh.size(), 3U);
  EXPECT_EQ(directory->mesh[0].name, "pp");
  ASSERT_EQ(directory->programs.size(), 2U);
  EXPECT_EQ(directory->programs[1].ranks, (std::vector<std::uint32_t>{4, 5, 6, 7}));
  EXPECT_EQ(directory->programs[0].groups[3], (std::vector<std::string>{"pp", "dp", "tp"}));
  EXPECT_EQ(directory->programs[0].trace.comms.size(), 100U);
}

TEST(RankTrace, AnIndexIsCheckedToo) {
  const std::string folder = ::testing::TempDir() + "/orrery_rank_trace";
  std::filesystem::create_directories(folder);
  const auto message = [&](const std::string& index) {
    std::ofstream(folder + "/trace.json") << index;
    return ReadTraceDirectory(folder, 1 << 20).status().message();
  };
  const auto holds = [&](const std::string& index, const char* what) {
    EXPECT_NE(message(index).find(what), std::string::npos) << message(index);
  };
  holds("[]", "no JSON object");
  holds(R"({"orrery_trace":2,"world_size":1,"programs":[]})", "trace version 2");
  holds(R"({"orrery_trace":1,"world_size":1,"programs":[]})", "'programs' is empty");
  holds(R"({"orrery_trace":1,"world_size":8,"mesh":[["dp",4]],"programs":[]})", "do not make");
  holds(R"({"orrery_trace":1,"world_size":1,"programs":[],"assumed":[1]})", "'assumed'");
  holds(
      R"({"orrery_trace":1,"world_size":1,"programs":[{"rank":0,"file":"../x","ranks":[[0,1,1]]}]})",
      "no file of this folder");
  holds(R"({"orrery_trace":1,"world_size":1,"programs":[{"rank":0,"file":"x","ranks":[[0,2,1]]}]})",
        "within a world of 1");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace orrery::formats
