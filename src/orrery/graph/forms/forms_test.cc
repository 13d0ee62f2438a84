// Round trips and damage, for both forms.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "orrery/base/file.h"
#include "orrery/graph/forms/binary_form.h"
#include "orrery/graph/forms/text_form.h"
#include "orrery/graph/general_samples.h"
#include "orrery/graph/sample_graphs.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::graph {
namespace {

// Equality by meaning: names by their text. Written apart from the forms' field lists.
class Same {
 public:
  Same(const Graph& a, const Graph& b) : a_(a), b_(b) {}

  void Check() const {
    ASSERT_EQ(a_.blocks.size(), b_.blocks.size());
    for (std::size_t i = 0; i < a_.blocks.size(); ++i) CheckBlock(a_.blocks[i], b_.blocks[i]);
    ASSERT_EQ(a_.programs.size(), b_.programs.size());
    for (std::size_t i = 0; i < a_.programs.size(); ++i) {
      EXPECT_EQ(a_.programs[i].name, b_.programs[i].name);
      EXPECT_EQ(a_.programs[i].stage, b_.programs[i].stage);
      EXPECT_EQ(a_.programs[i].events, b_.programs[i].events);
      EXPECT_EQ(a_.programs[i].prologue, b_.programs[i].prologue);
      EXPECT_EQ(a_.programs[i].calls, b_.programs[i].calls);
      EXPECT_EQ(a_.programs[i].columns, b_.programs[i].columns);
    }
    ASSERT_EQ(a_.bindings.size(), b_.bindings.size());
    for (std::size_t i = 0; i < a_.bindings.size(); ++i) {
      const Binding &x = a_.bindings[i], &y = b_.bindings[i];
      EXPECT_EQ(x.program, y.program);
      EXPECT_EQ(x.job, y.job);
      EXPECT_EQ(x.logical_rank, y.logical_rank);
      EXPECT_EQ(x.groups, y.groups);
      EXPECT_EQ(x.peers, y.peers);
      EXPECT_EQ(x.more_groups, y.more_groups);
      EXPECT_EQ(x.row, y.row);
    }
    ASSERT_EQ(a_.groups.size(), b_.groups.size());
    for (std::size_t i = 0; i < a_.groups.size(); ++i) {
      const auto x = a_.groups.members(GroupId(i)), y = b_.groups.members(GroupId(i));
      EXPECT_EQ(a_.groups.slot(GroupId(i)), b_.groups.slot(GroupId(i)));
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end()));
    }
    EXPECT_EQ(a_.more_groups, b_.more_groups);
    ASSERT_EQ(a_.streams.size(), b_.streams.size());
    for (std::size_t i = 0; i < a_.streams.size(); ++i) {
      CheckName(a_.streams[i].name, b_.streams[i].name);
      EXPECT_EQ(a_.streams[i].order, b_.streams[i].order);
    }
    ASSERT_EQ(a_.routings.size(), b_.routings.size());
    for (std::size_t i = 0; i < a_.routings.size(); ++i) {
      Routing y = b_.routings[i];
      CheckName(a_.routings[i].layer, y.layer);
      y.layer = a_.routings[i].layer;
      EXPECT_EQ(a_.routings[i], y);
    }
    EXPECT_EQ(a_.shares, b_.shares);
    ASSERT_EQ(a_.jobs.size(), b_.jobs.size());
    for (std::size_t i = 0; i < a_.jobs.size(); ++i) {
      EXPECT_EQ(a_.jobs[i].name, b_.jobs[i].name);
      EXPECT_EQ(a_.jobs[i].ranks, b_.jobs[i].ranks);
      EXPECT_EQ(a_.jobs[i].tokens_per_step, b_.jobs[i].tokens_per_step);
      EXPECT_EQ(a_.jobs[i].once, b_.jobs[i].once);
      EXPECT_EQ(a_.jobs[i].noise, b_.jobs[i].noise);
      EXPECT_EQ(a_.jobs[i].model_flops_per_step, b_.jobs[i].model_flops_per_step);
    }
  }

 private:
  void CheckName(NameId x, NameId y) const {
    ASSERT_EQ(x.valid(), y.valid());
    EXPECT_EQ(x.valid() ? a_.name(x) : "", y.valid() ? b_.name(y) : "");
  }
  void CheckBlock(const Block& x, const Block& y) const {
    CheckName(x.name, y.name);
    EXPECT_EQ(x.pass, y.pass);
    EXPECT_EQ(x.launch, y.launch);
    EXPECT_EQ(x.issue, y.issue);
    EXPECT_EQ(x.times, y.times);
    EXPECT_EQ(x.holds, y.holds);
    EXPECT_EQ(x.dep_begin, y.dep_begin);
    EXPECT_EQ(x.deps, y.deps);
    EXPECT_EQ(x.routed, y.routed);
    ASSERT_EQ(x.assumed.size(), y.assumed.size());
    for (std::size_t i = 0; i < x.assumed.size(); ++i) {
      EXPECT_EQ(x.assumed[i].op, y.assumed[i].op);
      CheckName(x.assumed[i].text, y.assumed[i].text);
    }
    EXPECT_EQ(x.kernels, y.kernels);
    EXPECT_EQ(x.comms, y.comms);
    EXPECT_EQ(x.host_ps, y.host_ps);
    EXPECT_EQ(x.content_hash, y.content_hash);
    ASSERT_EQ(x.buffers.size(), y.buffers.size());
    for (std::size_t i = 0; i < x.buffers.size(); ++i) {
      Buffer b = y.buffers[i];
      CheckName(x.buffers[i].name, b.name);
      b.name = x.buffers[i].name;
      EXPECT_EQ(x.buffers[i], b);
    }
    ASSERT_EQ(x.ops.size(), y.ops.size());
    for (std::size_t i = 0; i < x.ops.size(); ++i) {
      EXPECT_EQ(x.ops[i].kind, y.ops[i].kind);
      EXPECT_EQ(x.ops[i].event, y.ops[i].event);
      EXPECT_EQ(x.ops[i].index, y.ops[i].index);
      EXPECT_EQ(x.ops[i].stream, y.ops[i].stream);
      EXPECT_EQ(x.ops[i].hold, y.ops[i].hold);
      EXPECT_EQ(x.ops[i].priority, y.ops[i].priority);
      CheckName(x.ops[i].name, y.ops[i].name);
      CheckName(x.ops[i].module, y.ops[i].module);
    }
  }

  const Graph &a_, &b_;
};

TEST(Forms, TextRoundTripIsExact) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = SampleGraph(seed, AnyShape(seed));
    const std::string text = ToText(graph);
    const Result<Graph> read = FromText(text);
    ASSERT_TRUE(read.ok()) << read.status().message();
    Same(graph, *read).Check();
    ASSERT_EQ(ToText(*read), text) << "seed " << seed;
  }
}

TEST(Forms, BinaryRoundTripIsExact) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = SampleGraph(seed, AnyShape(seed));
    const std::string bytes = ToBinary(graph);
    const Result<Graph> read = FromBinary(bytes);
    ASSERT_TRUE(read.ok()) << read.status().message();
    Same(graph, *read).Check();
    ASSERT_EQ(ToBinary(*read), bytes) << "seed " << seed;
    EXPECT_TRUE(std::ranges::equal(graph.names(), read->names()));
    EXPECT_LT(4 * bytes.size(), 3 * ToText(graph).size());
  }
}

TEST(Forms, GeneralGraphsGoRound) {
  const std::string path = testing::TempDir() + "/orrery_general.graph";
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = GeneralGraph(seed, AnyGeneralShape(seed));
    const std::string text = ToText(graph), bytes = ToBinary(graph);
    const Result<Graph> from_text = FromText(text);
    ASSERT_TRUE(from_text.ok()) << "seed " << seed << ": " << from_text.status().message();
    Same(graph, *from_text).Check();
    ASSERT_EQ(ToText(*from_text), text) << "seed " << seed;
    const Result<Graph> from_bytes = FromBinary(bytes);
    ASSERT_TRUE(from_bytes.ok()) << "seed " << seed << ": " << from_bytes.status().message();
    Same(graph, *from_bytes).Check();
    ASSERT_EQ(ToBinary(*from_bytes), bytes) << "seed " << seed;
    ASSERT_TRUE(WriteFile(path, bytes).ok());
    const Result<MappedGraph> mapped = MapBinary(path);
    ASSERT_TRUE(mapped.ok()) << "seed " << seed << ": " << mapped.status().message();
    Same(graph, mapped->graph).Check();
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

// A mapped graph's numbers are the file's own bytes, also after the graph has moved.
TEST(Forms, MappedColumnsAreNotCopied) {
  const std::string path = testing::TempDir() + "/orrery_mapped.graph";
  const Graph graph = GeneralGraph(1, {.phases = 20});
  ASSERT_TRUE(WriteFile(path, ToBinary(graph)).ok());
  Result<MappedGraph> mapped = MapBinary(path);
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  const MappedGraph moved = *std::move(mapped);
  const std::string_view file = moved.file.bytes();
  std::size_t codes = 0;
  for (const Program& program : moved.graph.programs) {
    const std::span<const std::uint8_t> bytes = program.columns.codes();
    if (bytes.empty()) continue;
    codes += bytes.size();
    const auto at =
        static_cast<std::size_t>(reinterpret_cast<const char*>(bytes.data()) -  // NOLINT
                                 file.data());
    EXPECT_LE(at + bytes.size(), file.size());
    EXPECT_EQ(at % kBinaryAlignment, 0u);
  }
  EXPECT_GT(codes, 0u);
  EXPECT_FALSE(MapBinary(path + ".none").ok());
  EXPECT_FALSE(MapBinary(testing::TempDir()).ok());
}

TEST(Forms, AnEmptyGraphIsAGraph) {
  EXPECT_EQ(ToText(Graph()), "orrery.graph/2\n");
  EXPECT_TRUE(FromText("orrery.graph/2").ok());
  EXPECT_TRUE(FromText("orrery.graph/1").ok());
  EXPECT_TRUE(FromBinary(ToBinary(Graph())).ok());
}

constexpr std::string_view kHandWritten = R"(orrery.graph/2
# Two ranks that reduce what one kernel makes.
job "tiny" ranks=2 tokens=4096 flops=1.5e12

block 0 "work" pass=backward
  spare timed ps=7
  gemm m=1024 n=512 k=256 dtype=fp16 out=fp32 accumulate=1 name="main \"gemm\"" module="mlp"
  kernel @0
  alloc id=1 kind=temporary bytes=512 buffer="scratch"
  all-reduce group=dp stream=2 blocking=0 event=call bytes=2*#1
  free @0
  host ps=1500
  wait event=call name="sync"
  host-sync
program 0 "only" events=1
  column 0 5x2
  column 1 1000 2000
  call block=0 repeat=2 event=0 layer=1
rank program=0 job=0 logical=0 dp=0
rank program=0 job=0 logical=1 dp=0 row=1
group 0 dp 0..1
)";

TEST(Forms, TextIsReadable) {
  const Result<Graph> graph = FromText(kHandWritten);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const Block& block = graph->blocks[0];
  EXPECT_EQ(graph->name(block.ops[0].name), "main \"gemm\"");
  EXPECT_EQ(block.ops[0].index, 1u);
  EXPECT_EQ(std::get<Timed>(block.kernels[0]).duration_ps, 7);
  EXPECT_EQ(std::get<Gemm>(block.kernels[1]).out_dtype, DType::kFp32);
  EXPECT_EQ(block.comms[0].bytes, (Quantity{2, 1}));
  EXPECT_EQ(block.comms[0].event, kCallEvent);
  EXPECT_EQ(graph->bindings[1].row, 1u);
  EXPECT_EQ(graph->number(graph->bindings[1], block.comms[0].bytes), 4000);
  EXPECT_EQ(graph->jobs[0].model_flops_per_step, 1.5e12);
  EXPECT_EQ(ToText(*FromText(ToText(*graph))), ToText(*graph));
}

// Both forms carry who sends how much to whom, by receiver and by pair.
TEST(Forms, SharesOfAnAllToAll) {
  std::string text(kHandWritten);
  const std::string_view before = "  free @0\n";
  text.insert(text.find(before),
              "  all-to-all group=dp bytes=64 shares=0\n"
              "  all-to-all group=dp bytes=64 shares=1 returned=1\n");
  text += "shares 0 1500000 500000\nshares 1 0 1000000\nshares 1 2000000 1000000\n";
  const Result<Graph> graph = FromText(text);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_EQ(graph->shares.size(), 2u);
  EXPECT_EQ(graph->shares[0].part(1, 0, false), 1500000);
  EXPECT_EQ(graph->shares[0].part(1, 0, true), 500000);
  EXPECT_EQ(graph->shares[1].part(1, 0, false), 2000000);
  EXPECT_EQ(graph->shares[1].part(1, 0, true), 1000000);
  EXPECT_TRUE(graph->blocks[0].comms[2].returned);
  EXPECT_EQ(ToText(*FromText(ToText(*graph))), ToText(*graph));
  const Result<Graph> binary = FromBinary(ToBinary(*graph));
  ASSERT_TRUE(binary.ok()) << binary.status().message();
  EXPECT_EQ(ToText(*binary), ToText(*graph));
  EXPECT_EQ(binary->shares, graph->shares);
  const auto fails = [&](std::string_view from, std::string_view to) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), from.size(), to);
    return FromText(wrong).status().message();
  };
  EXPECT_EQ(fails("shares 0 1500000 500000", "shares 0 1500000 500000 1"),
            "graph text: rank 0: shares are of 3 members, its group 'dp' has 2");
  EXPECT_EQ(fails("shares 1 2000000 1000000\n", ""), "");  // one line: by receiver
  EXPECT_EQ(fails("shares 1 2000000 1000000", "shares 1 2000000"),
            "graph text, line 26: 1 parts: a sender has one for every member");
  EXPECT_EQ(fails("shares=1", "shares=2"), "graph text: block 0 'work': op 5 '': shares 2 of 2");
  EXPECT_EQ(fails("all-to-all group=dp bytes=64 shares=0", "all-gather group=dp bytes=64 shares=0"),
            "graph text: block 0 'work': op 4 '': shares of what is no all-to-all");
}

// The example of docs/formats/graph.md is a graph.
TEST(Forms, TheDocumentedExampleIsRead) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/docs/formats/graph.md");
  std::ostringstream page;
  page << file.rdbuf();
  const std::string text = page.str();
  const std::size_t begin = text.find("```\norrery.graph/2\n") + 4;
  ASSERT_NE(begin, std::string::npos + 4);
  const Result<Graph> graph =
      FromText(std::string_view(text).substr(begin, text.find("```", begin) - begin));
  EXPECT_TRUE(graph.ok()) << graph.status().message();
}

std::string TextError(std::string_view from, std::string_view to) {
  std::string text(kHandWritten);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const Result<Graph> graph = FromText(text);
  EXPECT_FALSE(graph.ok());
  return graph.status().message();
}

TEST(Forms, TextErrorsNameTheLine) {
  EXPECT_EQ(TextError("orrery.graph/2", "orrery.graph/3"),
            "graph text, line 1: not a graph of version 'orrery.graph/2': the first line says so");
  EXPECT_EQ(TextError("m=1024", "m=10x"), "graph text, line 7: '10x' is no value for 'm'");
  EXPECT_EQ(TextError("m=1024", "mm=1024"), "graph text, line 7: unknown or repeated field 'mm'");
  EXPECT_EQ(TextError("m=1024", "m=1024 m=1"), "graph text, line 7: unknown or repeated field 'm'");
  EXPECT_EQ(TextError("dtype=fp16", "dtype=fp17"),
            "graph text, line 7: 'fp17' is no value for 'dtype'");
  EXPECT_EQ(TextError("kernel @0", "kernel @2"),
            "graph text, line 8: '@2' is no earlier entry; there are 2");
  EXPECT_EQ(TextError("kernel @0", "kernle m=3"), "graph text, line 8: unknown operation 'kernle'");
  EXPECT_EQ(TextError("\"sync\"", "\"sync"),
            "graph text, line 13: a string without its closing quote");
  EXPECT_EQ(TextError("\"sync\"", "\"\\q\""),
            "graph text, line 13: unknown escape \\q; valid: \\\" \\\\ \\xNN");
  EXPECT_EQ(TextError("program 0", "program 1"),
            "graph text, line 15: its number is 0: they count from 0");
  EXPECT_EQ(TextError("0..1", "0..2"),
            "graph text, line 21: rank 2 of 2: ranks stand before groups");
  EXPECT_EQ(TextError("0..1", "0 0"), "graph text: group 0 (dp) has rank 0 twice");
  EXPECT_EQ(TextError("repeat=2", "repeat=70000"),
            "graph text, line 18: '70000' is no value for 'repeat'");
  EXPECT_EQ(TextError("event=0 layer=1", "event=1"),
            "graph text: program 0 'only', call 0 (block 0 'work'): op 3: event 1 of 1");
}

// Either a clear error or a graph that passes Verify.
template <class Read>
void Survives(const std::string& bytes, const Read& read, const char* form) {
  const Result<Graph> graph = read(bytes);
  if (graph.ok()) {
    EXPECT_TRUE(Verify(*graph, VerifyLevel::kFull).ok());
  } else {
    EXPECT_TRUE(graph.status().message().starts_with(form)) << graph.status().message();
    EXPECT_NE(graph.status().code(), Code::kOk);
  }
}

TEST(Forms, TruncatedBytesEndWithAnError) {
  const std::string bytes = ToBinary(SampleGraph(3));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const Result<Graph> graph = FromBinary(std::string_view(bytes).substr(0, n));
    ASSERT_FALSE(graph.ok()) << n;
    EXPECT_TRUE(graph.status().message().starts_with("binary graph: "));
  }
}

// The parts of a file between header and codes, and behind.
std::string_view BodyOf(std::string_view bytes) {
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data() + 16, 8);
  return bytes.substr(kBinaryHeader, size);
}
std::string_view CodesOf(std::string_view bytes) {
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data() + 24, 8);
  return bytes.substr(bytes.size() - size);
}

void DamageBytes(const std::string& bytes) {
  const std::string body(BodyOf(bytes)), codes(CodesOf(bytes));
  ASSERT_EQ(BinaryFile(body, codes), bytes);
  const auto read = [](std::string_view b) { return FromBinary(b, {.memory_bytes = 1 << 20}); };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    const bool padding = i >= kBinaryHeader + body.size() && i < bytes.size() - codes.size();
    EXPECT_EQ(read(damaged).ok(), padding) << i;
  }
  // With the checksums made right, the reader finds it, or the graph is another one.
  for (std::size_t i = 0; i < body.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = body;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << bit);
      Survives(BinaryFile(damaged, codes), read, "binary graph: ");
    }
  }
  CounterRng rng(9);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = body.substr(0, rng.Below(4) == 0 ? rng.Below(body.size()) : body.size());
    for (std::uint64_t n = 1 + rng.Below(6); n > 0 && !damaged.empty(); --n) {
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    }
    std::string other =
        codes.substr(0, rng.Below(8) == 0 ? rng.Below(codes.size() + 1) : codes.size());
    if (!other.empty()) other[rng.Below(other.size())] = static_cast<char>(rng.Next());
    Survives(BinaryFile(damaged, other), read, "binary graph: ");
  }
}

TEST(Forms, DamagedBytesNeverCrash) {
  DamageBytes(ToBinary(SampleGraph(3, AnyShape(3))));
  DamageBytes(ToBinary(GeneralGraph(5, {.program_ranks = 2, .segments = 2})));
}

void DamageText(const std::string& text) {
  CounterRng rng(10);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text.substr(0, rng.Below(4) == 0 ? rng.Below(text.size()) : text.size());
    for (std::uint64_t n = 1 + rng.Below(4); n > 0 && damaged.size() > 16; --n) {
      const std::size_t at = 16 + rng.Below(damaged.size() - 16);
      // Another character of the text, any byte, or a few characters gone.
      const std::uint64_t kind = rng.Below(3);
      if (kind == 0) damaged[at] = text[rng.Below(text.size())];
      if (kind == 1) damaged[at] = static_cast<char>(rng.Next());
      if (kind == 2) damaged.erase(at, 1 + rng.Below(8));
    }
    Survives(
        damaged, [](std::string_view t) { return FromText(t); }, "graph text");
  }
}

TEST(Forms, DamagedTextNeverCrashes) {
  DamageText(ToText(SampleGraph(3, AnyShape(3))));
  DamageText(ToText(GeneralGraph(5, {.program_ranks = 2, .segments = 2})));
}

TEST(Forms, CountsAreNotBelieved) {
  // 2^60 names in a body of 9 bytes.
  EXPECT_EQ(FromBinary(BinaryFile("\x80\x80\x80\x80\x80\x80\x80\x80\x10", "")).status().message(),
            "binary graph: offset 57: more records than bytes");
  const std::string bytes = ToBinary(SampleGraph(3));
  const Result<Graph> graph = FromBinary(bytes, {.memory_bytes = 1000});
  EXPECT_EQ(graph.status().code(), Code::kResource);
  // A group that unfolds into more members than there are ranks.
  EXPECT_EQ(TextError("group 0 dp 0..1", "group 0 dp 0..1 0..1"),
            "graph text, line 21: the group has more members than there are ranks");
}

TEST(Forms, OtherFilesAreToldApart) {
  EXPECT_EQ(FromBinary("PK\3\4 something else entirely").status().message(),
            "binary graph: not a binary graph: it begins with 'orrgraph'");
  std::string next = ToBinary(Graph());
  next[8] = static_cast<char>(kBinaryVersion - 1);
  EXPECT_EQ(FromBinary(next).status().message(),
            fmt::format("binary graph: a binary graph of version {}; this reads version {}: write "
                        "it anew from its source",
                        kBinaryVersion - 1, kBinaryVersion));
  std::string old(kHandWritten);
  old.replace(old.find("/2"), 2, "/1");
  EXPECT_TRUE(FromText(old).ok());
  EXPECT_EQ(FromText(old + "numbers 5 5\n").status().message(),
            "graph text, line 22: numeric slots of version 1; they are columns of a program now");
  EXPECT_FALSE(FromText("").ok());
  EXPECT_FALSE(FromText("job: x").ok());
}

}  // namespace
}  // namespace orrery::graph
