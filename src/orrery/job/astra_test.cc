// ASTRA-sim's figures, to the nanosecond. The expected numbers are what its analytical binaries
// (518bd51) print for the same files.
#include "orrery/job/astra.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "orrery/base/time.h"
#include "orrery/formats/chakra.h"
#include "orrery/results/trace.h"

namespace orrery::job {
namespace {

using formats::ChakraCollective;
using formats::ChakraNode;
using formats::ChakraNodeType;
using ::testing::HasSubstr;

ChakraNode Compute(std::uint64_t id, std::uint64_t us) {
  ChakraNode node;
  node.id = id;
  node.type = ChakraNodeType::kCompute;
  node.duration_us = us;
  return node;
}
ChakraNode Collective(std::uint64_t id, ChakraCollective kind, std::uint64_t bytes) {
  ChakraNode node;
  node.id = id;
  node.type = ChakraNodeType::kCollective;
  node.collective = kind;
  node.comm_size = bytes;
  node.has = ChakraNode::kCommType | ChakraNode::kCommSize;
  return node;
}

constexpr const char* kNoMemory = R"({"memory-type": "NO_MEMORY_EXPANSION"})";

// A folder with ASTRA-sim's four kinds of files.
class Files {
 public:
  Files()
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("astra_" +
                 std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("memory.json", kNoMemory);
  }
  ~Files() { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void Rank(std::size_t rank, const std::string& bytes) const {
    Write("w." + std::to_string(rank) + ".et", bytes);
  }
  void Network(const std::string& topology, const std::string& npus, const std::string& bandwidth,
               const std::string& latency) const {
    Write("network.yml", "topology: [" + topology + "]\nnpus_count: [" + npus + "]\nbandwidth: [" +
                             bandwidth + "]\nlatency: [" + latency + "]\n");
  }
  AstraOptions Options() const {
    AstraOptions options;
    options.workload_configuration = Path("w");
    options.system_configuration = Path("system.json");
    options.network_configuration = Path("network.yml");
    options.remote_memory_configuration = Path("memory.json");
    return options;
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

// A list of JSON strings: "ring", "direct".
std::string Quoted(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "\"" : ", \"") + word + "\"";
  return "[" + list + "]";
}
// What an algorithm that a collective does not have is in its place.
std::string Instead(const std::string& word, const std::string& collective) {
  const bool none = (word == "halvingDoubling" && collective == "all-to-all") ||
                    (word == "doubleBinaryTree" && collective != "all-reduce");
  return none ? "ring" : word;
}
std::string System(const std::vector<std::string>& algorithms, const std::string& policy,
                   int chunks, int splits, const std::string& optimization) {
  std::string text = "{";
  for (const std::string c : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all"}) {
    std::vector<std::string> words;
    for (const std::string& a : algorithms) words.push_back(Instead(a, c));
    text += "\"" + c + "-implementation\": " + Quoted(words) + ", ";
  }
  return text + "\"scheduling-policy\": \"" + policy +
         "\", \"endpoint-delay\": 10, \"active-chunks-per-dimension\": " + std::to_string(chunks) +
         ", \"preferred-dataset-splits\": " + std::to_string(splits) +
         ", \"collective-optimization\": \"" + optimization +
         "\", \"local-mem-bw\": 1600, \"boost-mode\": 0}";
}
// The same with more keys.
std::string With(std::string system, const std::string& keys) {
  return system.insert(1, keys + ", ");
}

struct Ends {
  std::int64_t first = 0, last = 0;  // ns
};
Ends EndsOf(const results::TraceResult& result) {
  Ends ends{INT64_MAX, 0};
  for (const engine::RankClass& rank : result.record.classes) {
    ends.first = std::min(ends.first, rank.finish_time / kNanosecond);
    ends.last = std::max(ends.last, rank.finish_time / kNanosecond);
  }
  return ends;
}

// One collective over a ring: formats' figures, and 1,024 ranks.
TEST(AstraSim, RingsAreExact) {
  struct Case {
    std::size_t ranks;
    ChakraCollective kind;
    std::uint64_t bytes;
    std::int64_t ns;
  };
  const Case cases[] = {{16, ChakraCollective::kAllGather, 1 << 20, 323560},
                        {8, ChakraCollective::kAllReduce, 1 << 20, 64440},
                        {8, ChakraCollective::kAllReduce, 1 << 30, 36790164},
                        {64, ChakraCollective::kAllReduce, 1 << 30, 41613556},
                        {256, ChakraCollective::kAllReduce, 1 << 30, 42887980},
                        {1024, ChakraCollective::kAllReduce, 1 << 30, 46129156}};
  for (const Case& c : cases) {
    const Files files;
    files.Network("Ring", std::to_string(c.ranks), "50", "500");
    files.Write("system.json", System({"ring"}, "LIFO", 1, 4, "localBWAware"));
    formats::ChakraWriter writer;
    writer.Add(Collective(0, c.kind, c.bytes), "c", "", {});
    const std::string bytes = writer.Release();
    for (std::size_t r = 0; r < c.ranks; ++r) files.Rank(r, bytes);
    AstraOptions options = files.Options();
    const auto folded = SimulateAstra(options);
    ASSERT_TRUE(folded.ok()) << folded.status().message();
    EXPECT_TRUE(folded->record.folded);
    EXPECT_EQ(folded->record.finish_time, c.ns * kNanosecond) << c.ranks;
    if (c.ranks > 64) continue;
    options.fold = false;
    const auto all = SimulateAstra(options);
    ASSERT_TRUE(all.ok()) << all.status().message();
    EXPECT_EQ(all->record.finish_time, c.ns * kNanosecond) << c.ranks;
    EXPECT_EQ(all->record.fingerprint, folded->record.fingerprint);
  }
}

// Computation, a collective behind it, one beside it, and computation behind the first.
std::string TwoCollectives(ChakraCollective first, std::uint64_t first_bytes,
                           ChakraCollective second, std::uint64_t second_bytes) {
  formats::ChakraWriter writer;
  const std::uint64_t on_first[] = {0}, on_second[] = {1};
  writer.Add(Compute(0, 5), "a", "", {});
  writer.Add(Collective(1, first, first_bytes), "b", "", on_first);
  ChakraNode beside = Collective(2, second, second_bytes);
  beside.priority = 3;
  writer.Add(beside, "c", "", {});
  writer.Add(Compute(3, 3), "d", "", on_second);
  return writer.Release();
}

// Over networks of several dimensions, every algorithm, policies, chunks, queues, and both models.
TEST(AstraSim, DimensionsAlgorithmsAndQueuesAreExact) {
  using C = ChakraCollective;
  struct Case {
    const char *topology, *npus, *bandwidth, *latency;
    std::size_t ranks;
    std::vector<std::string> algorithms;
    const char* policy;
    int chunks, splits;
    const char* optimization;
    int queues;
    C first;
    std::uint64_t first_bytes;
    C second;
    std::uint64_t second_bytes;
    const char* congestion;
    Ends ends;
  };
  const Case cases[] = {
      {"Ring, Switch",
       "4, 2",
       "50, 25",
       "500, 700",
       8,
       {"ring", "direct"},
       "LIFO",
       1,
       4,
       "localBWAware",
       1,
       C::kAllReduce,
       1 << 20,
       C::kAllGather,
       4096,
       "unaware",
       {54114, 54114}},
      {"Ring, Switch",
       "4, 2",
       "50, 25",
       "500, 700",
       8,
       {"ring", "direct"},
       "LIFO",
       1,
       4,
       "baseline",
       1,
       C::kAllReduce,
       1 << 20,
       C::kAllGather,
       4096,
       "unaware",
       {73172, 73172}},
      {"FullyConnected, Ring, Switch",
       "3, 4, 2",
       "100.5, 50, 25",
       "100, 500, 1000.5",
       24,
       {"direct2", "ring", "halvingDoubling"},
       "FIFO",
       2,
       7,
       "localBWAware",
       1,
       C::kAllReduce,
       100003,
       C::kReduceScatter,
       1 << 20,
       "unaware",
       {34974, 34974}},
      {"Switch",
       "8",
       "400",
       "100",
       8,
       {"halvingDoubling"},
       "LIFO",
       2,
       16,
       "baseline",
       2,
       C::kAllReduce,
       1 << 24,
       C::kAllGather,
       1 << 16,
       "unaware",
       {58824, 58824}},
      {"Switch",
       "8",
       "50",
       "500",
       8,
       {"doubleBinaryTree"},
       "LIFO",
       1,
       4,
       "baseline",
       1,
       C::kAllReduce,
       1 << 20,
       C::kAllReduce,
       4096,
       "unaware",
       {138518, 157172}},
      {"Ring, FullyConnected",
       "4, 4",
       "50, 50",
       "500, 500",
       16,
       {"ring", "doubleBinaryTree"},
       "EXPLICIT",
       1,
       4,
       "localBWAware",
       1,
       C::kAllReduce,
       1 << 20,
       C::kAllReduce,
       1 << 22,
       "unaware",
       {181396, 181396}},
      {"Ring, Ring",
       "4, 4",
       "50, 50",
       "500, 500",
       16,
       {"oneRing"},
       "LIFO",
       1,
       2,
       "baseline",
       1,
       C::kAllToAll,
       1 << 20,
       C::kReduceScatter,
       1 << 20,
       "unaware",
       {307240, 307240}},
      {"Switch, Ring",
       "4, 2",
       "25, 10",
       "0, 100",
       8,
       {"direct", "ring"},
       "LIFO",
       4,
       4,
       "localBWAware",
       4,
       C::kAllToAll,
       1 << 20,
       C::kAllReduce,
       1 << 18,
       "unaware",
       {22788, 22788}},
      {"Ring",
       "5",
       "50",
       "500",
       5,
       {"direct"},
       "LIFO",
       2,
       3,
       "baseline",
       1,
       C::kAllToAll,
       1 << 20,
       C::kAllReduce,
       1 << 18,
       "aware",
       {28264, 28264}},
      {"Switch",
       "8",
       "25",
       "100",
       8,
       {"halvingDoubling"},
       "FIFO",
       1,
       4,
       "baseline",
       1,
       C::kAllReduce,
       1 << 20,
       C::kAllGather,
       1 << 12,
       "aware",
       {150488, 150488}},
      {"FullyConnected",
       "4",
       "25",
       "1000.5",
       4,
       {"direct3"},
       "LIFO",
       4,
       8,
       "localBWAware",
       1,
       C::kReduceScatter,
       1 << 20,
       C::kAllReduce,
       1 << 14,
       "aware",
       {18841, 18841}},
      {"Ring, Switch",
       "4, 3",
       "50, 25",
       "500, 700",
       12,
       {"ring", "direct"},
       "LIFO",
       2,
       4,
       "localBWAware",
       1,
       C::kAllReduce,
       1 << 20,
       C::kAllToAll,
       1 << 16,
       "aware",
       {42967, 42967}},
      {"FullyConnected, Ring, Switch",
       "3, 2, 2",
       "50, 25, 12.5",
       "500, 700.5, 300",
       12,
       {"direct2", "ring", "halvingDoubling"},
       "FIFO",
       1,
       3,
       "baseline",
       2,
       C::kAllGather,
       1 << 14,
       C::kReduceScatter,
       1 << 18,
       "aware",
       {14679, 14679}},
  };
  for (const Case& c : cases) {
    const Files files;
    files.Network(c.topology, c.npus, c.bandwidth, c.latency);
    files.Write("system.json", System(c.algorithms, c.policy, c.chunks, c.splits, c.optimization));
    const std::string bytes = TwoCollectives(c.first, c.first_bytes, c.second, c.second_bytes);
    for (std::size_t r = 0; r < c.ranks; ++r) files.Rank(r, bytes);
    AstraOptions options = files.Options();
    options.num_queues_per_dim = c.queues;
    options.set = {std::string("astra.congestion=") + c.congestion};
    for (const bool fold : {true, false}) {
      options.fold = fold;
      const auto result = SimulateAstra(options);
      ASSERT_TRUE(result.ok()) << c.topology << ": " << result.status().message();
      EXPECT_EQ(EndsOf(*result).first, c.ends.first) << c.topology << " " << c.algorithms[0];
      EXPECT_EQ(EndsOf(*result).last, c.ends.last) << c.topology << " " << c.algorithms[0];
    }
  }
}

// model-shared-bus: hand-overs take turns on LogGP's bus.
TEST(AstraSim, TheMemoryBusIsExact) {
  using C = ChakraCollective;
  const Files rings;
  rings.Network("Ring", "8", "50", "500");
  rings.Write("system.json", With(System({"ring"}, "LIFO", 2, 4, "localBWAware"),
                                  R"("model-shared-bus": 1, "L": 5, "o": 3, "g": 10, "G": 0.5,
                      "local-reduction-delay": 2)"));
  for (std::size_t r = 0; r < 8; ++r) {
    rings.Rank(r, TwoCollectives(C::kAllReduce, 1 << 20, C::kAllGather, 1 << 14));
  }
  const auto ring = SimulateAstra(rings.Options());
  ASSERT_TRUE(ring.ok()) << ring.status().message();
  EXPECT_EQ(EndsOf(*ring).last, 1888904);
  EXPECT_THAT(ring->record.not_folded_because, HasSubstr("memory bus"));

  const Files dimensions;
  dimensions.Network("Ring, Switch", "4, 2", "50, 25", "500, 700");
  dimensions.Write("system.json",
                   With(System({"direct2", "halvingDoubling"}, "FIFO", 2, 4, "baseline"),
                        R"("model-shared-bus": 1, "L": 1, "o": 1, "g": 0, "G": 0.0038)"));
  for (std::size_t r = 0; r < 8; ++r) {
    dimensions.Rank(r, TwoCollectives(C::kReduceScatter, 1 << 18, C::kAllReduce, 1 << 16));
  }
  const auto two = SimulateAstra(dimensions.Options());
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_EQ(EndsOf(*two).last, 20023);

  const Files trees;
  trees.Network("Switch", "8", "50", "500");
  trees.Write("system.json", With(System({"doubleBinaryTree"}, "EXPLICIT", 4, 16, "baseline"),
                                  R"("model-shared-bus": 1, "L": 1, "o": 0, "g": 10, "G": 0.1)"));
  for (std::size_t r = 0; r < 8; ++r) {
    trees.Rank(r, TwoCollectives(C::kAllReduce, 1 << 20, C::kAllReduce, 1 << 16));
  }
  AstraOptions aware = trees.Options();
  aware.set = {"astra.congestion=aware"};
  const auto tree = SimulateAstra(aware);
  ASSERT_TRUE(tree.ok()) << tree.status().message();
  EXPECT_EQ(EndsOf(*tree).first, 733793);
  EXPECT_EQ(EndsOf(*tree).last, 749994);
}

// A collective over all ranks behind one that only some are in: ASTRA-sim numbers both in one line,
// so that ranks then wait for messages of other numbers.
TEST(AstraSim, StallsOfItsAreMendedUnlessAskedFor) {
  const Files files;
  files.Network("Ring", "4", "50", "500");
  files.Write("system.json", System({"ring"}, "LIFO", 1, 2, "baseline"));
  files.Write("groups.json", R"({"1": [0, 2]})");
  for (std::size_t r = 0; r < 4; ++r) {
    formats::ChakraWriter writer;
    const std::uint64_t on_first[] = {0};
    if (r % 2 == 0) {
      writer.Add(Collective(0, ChakraCollective::kAllReduce, 1 << 12), "some", "1", {});
    }
    writer.Add(
        Collective(1, ChakraCollective::kAllReduce, 1 << 12), "all", "",
        r % 2 == 0 ? std::span<const std::uint64_t>(on_first) : std::span<const std::uint64_t>());
    files.Rank(r, writer.Release());
  }
  AstraOptions options = files.Options();
  options.comm_group_configuration = files.Path("groups.json");
  EXPECT_TRUE(SimulateAstra(options).ok());
  options.set = {"astra.stalls=true"};
  EXPECT_THAT(SimulateAstra(options).status().message(), HasSubstr("deadlock"));
}

// Every node of the ranks asked for is a slice; the rank that stands for all gives each the same.
TEST(AstraSim, TimelinesShowNodes) {
  using C = ChakraCollective;
  const Files files;
  files.Network("Ring", "4", "50", "500");
  files.Write("system.json", System({"ring"}, "LIFO", 1, 4, "baseline"));
  const std::string bytes = TwoCollectives(C::kAllReduce, 1 << 20, C::kAllGather, 1 << 12);
  for (std::size_t r = 0; r < 4; ++r) files.Rank(r, bytes);
  AstraOptions options = files.Options();
  const auto written = [&](const char* name, const char* ranks, bool fold) {
    options.timeline = files.Path(name);
    options.timeline_ranks = ranks;
    options.fold = fold;
    const auto result = SimulateAstra(options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->record.folded, fold);
    std::ifstream file(options.timeline, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string one = written("one.pftrace", "", true);
  EXPECT_EQ(written("unfolded.pftrace", "0", false), one);
  EXPECT_THAT(one, HasSubstr("rank 0"));
  EXPECT_THAT(one, HasSubstr("GPU"));
  EXPECT_THAT(one, HasSubstr("communication"));
  const std::string two = written("two.pftrace", "1,3", true);
  EXPECT_EQ(written("both.pftrace", "1,3", false), two);
  EXPECT_THAT(two, HasSubstr("rank 3"));
  options.timeline_ranks = "4";
  EXPECT_THAT(SimulateAstra(options).status().message(), HasSubstr("there is no rank 4"));
}

// Two passes of text workloads on 4 × 2 NPUs: the ends that ASTRA-sim prints for what Chakra's text
// converter makes of them.
TEST(AstraSim, TextWorkloadsAreExact) {
  struct Case {
    const char* text;
    std::int64_t ns;
  };
  const Case cases[] = {{"HYBRID_DLRM 2\n5\n"
                         "embedding -1 5 ALLTOALL 65536 7 ALLTOALL 65536 3 NONE 0 1\n"
                         "bottom1 -1 9 NONE 0 8 NONE 0 6 ALLREDUCE 262144 1\n"
                         "bottom2 -1 4 NONE 0 5 NONE 0 7 ALLREDUCE 131072 1\n"
                         "top1 -1 12 NONE 0 13 NONE 0 14 ALLREDUCE 524288 1\n"
                         "top2 -1 3 NONE 0 2 NONE 0 1 ALLREDUCE 65536 1\n",
                         268870},
                        {"DATA\n3\n"
                         "a -1 5 NONE 0 7 NONE 0 3 ALLREDUCE 1048576 1\n"
                         "b -1 9 NONE 0 8 NONE 0 6 REDUCESCATTER 262144 1\n"
                         "c -1 4 NONE 0 5 NONE 0 7 ALLREDUCE 131072 1\n",
                         193114},
                        {"HYBRID_MODEL_DATA\n3\n"
                         "a -1 5 ALLGATHER 4096 7 REDUCESCATTER 65536 3 ALLREDUCE 1048576 1\n"
                         "b -1 9 ALLGATHER 8192 8 REDUCESCATTER 65536 6 ALLREDUCE 262144 1\n"
                         "c -1 4 ALLREDUCE 65536 5 ALLREDUCE 65536 7 ALLREDUCE 131072 1\n",
                         317820}};
  const Files files;
  files.Network("Ring, Switch", "4, 2", "50, 25", "500, 700");
  files.Write("system.json", System({"ring", "ring"}, "LIFO", 1, 4, "localBWAware"));
  for (const Case& c : cases) {
    files.Write("w.txt", c.text);
    AstraOptions options = files.Options();
    options.workload_configuration = files.Path("w.txt");
    options.set = {"astra.passes=2"};
    for (const bool fold : {true, false}) {
      options.fold = fold;
      const auto result = SimulateAstra(options);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(result->record.finish_time, c.ns * kNanosecond) << c.text;
    }
  }
  files.Write("w.txt", "DATA\n2\na -1 5 NONE 0 7 NONE 0 3 ALLREDUCE 12x 1\n");
  AstraOptions options = files.Options();
  options.workload_configuration = files.Path("w.txt");
  EXPECT_THAT(SimulateAstra(options).status().message(), HasSubstr("w.txt:3: column 11: '12x'"));
}

// A ring of three that sends one of three chunks of 3,000 bytes on and then what it received: two
// steps of 500 + 1,000 / 53.687 ns.
TEST(AstraSim, MscclAlgorithmsRun) {
  const Files files;
  files.Network("Ring", "3", "50", "500");
  std::string xml = "<algo name=\"ring\" nchunksperloop=\"3\" ngpus=\"3\" coll=\"allgather\">";
  for (int g = 0; g < 3; ++g) {
    const auto peer = [g](int by) { return std::to_string((g + by) % 3); };
    xml += "<gpu id=\"" + std::to_string(g) + "\"><tb id=\"0\" send=\"" + peer(1) + "\" recv=\"" +
           peer(2) +
           "\" chan=\"0\">"
           "<step s=\"0\" type=\"s\" cnt=\"1\" depid=\"-1\" deps=\"-1\"/>"
           "<step s=\"1\" type=\"rcs\" cnt=\"1\" depid=\"-1\" deps=\"-1\"/>"
           "<step s=\"2\" type=\"r\" cnt=\"1\" depid=\"-1\" deps=\"-1\"/></tb></gpu>";
  }
  files.Write("ring.xml", xml + "</algo>");
  std::string system = System({"ring"}, "LIFO", 1, 4, "baseline");
  system.insert(1, "\"all-gather-implementation-custom\": [\"" + files.Path("ring.xml") + "\"], ");
  files.Write("system.json", system);
  formats::ChakraWriter writer;
  writer.Add(Collective(0, ChakraCollective::kAllGather, 3000), "c", "", {});
  const std::string bytes = writer.Release();
  for (std::size_t r = 0; r < 3; ++r) files.Rank(r, bytes);
  const auto result = SimulateAstra(files.Options());
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->record.finish_time, 2 * 518 * kNanosecond);
  files.Write("ring.xml",
              "<algo nchunksperloop=\"3\"><gpu id=\"0\"><tb id=\"0\"><step s=\"0\" "
              "type=\"x\"/></tb></gpu></algo>");
  EXPECT_THAT(SimulateAstra(files.Options()).status().message(), HasSubstr("unknown type 'x'"));
}

// Four ranks that differ in their work, a collective with work beside it, and a message. The
// numbers are what ASTRA-sim prints of each rank: its end, "GPU time", "Comm time", "Total
// compute-communication overlap" (what is not exposed), and "exposed communication" (its end less
// GPU time). Parts add up to the rank's end, and the CSV has the same.
TEST(AstraSim, RanksPartsAreWhatItPrints) {
  const Files files;
  files.Network("Ring", "4", "50", "500");
  files.Write("system.json", System({"ring"}, "FIFO", 1, 4, "localBWAware"));
  for (std::uint32_t r = 0; r < 4; ++r) {
    formats::ChakraWriter writer;
    const auto add = [&writer](const ChakraNode& node, const std::vector<std::uint64_t>& deps) {
      writer.Add(node, "n", "", deps);
    };
    add(Compute(1, 20 + 10 * r), {});
    add(Collective(2, ChakraCollective::kAllReduce, 1 << 20), {1});
    add(Compute(3, 15), {1});
    if (r < 2) {
      ChakraNode message;
      message.id = 6;
      message.type = r == 0 ? ChakraNodeType::kSend : ChakraNodeType::kReceive;
      message.source = 0;
      message.destination = 1;
      message.tag = 1;
      message.comm_size = 65536;
      message.has =
          ChakraNode::kSource | ChakraNode::kDestination | ChakraNode::kTag | ChakraNode::kCommSize;
      add(message, {3});
    }
    std::vector<std::uint64_t> last = {2};
    if (r < 2) last.push_back(6);
    add(Compute(7, 9), last);
    files.Rank(r, writer.Release());
  }
  const auto result = SimulateAstra(files.Options());
  ASSERT_TRUE(result.ok()) << result.status().message();
  struct Printed {
    std::int64_t end, gpu, comm, overlap, exposed;
  };
  const Printed printed[] = {{98560, 44000, 69560, 15000, 54560},
                             {98560, 54000, 59560, 15000, 44560},
                             {100280, 64000, 51280, 15000, 36280},
                             {102000, 74000, 43000, 15000, 28000}};
  std::string csv =
      "rank,alike,finish_ps,compute_ps,exposed_communication_ps,waiting_ps,host_ps,"
      "communication_ps,gpu_ticks_ps\n";
  for (std::size_t r = 0; r < 4; ++r) {
    const Printed& p = printed[r];
    const engine::RankClass& c = result->record.classes[r];
    EXPECT_EQ(c.finish_time, p.end * kNanosecond);
    EXPECT_EQ(result->counts[r].gpu_ticks, p.gpu * kNanosecond);
    EXPECT_EQ(result->counts[r].communication, p.comm * kNanosecond);
    EXPECT_EQ(p.end - p.gpu, p.exposed);
    SimTime sum = 0;
    for (const SimTime part : c.breakdown) sum += part;
    EXPECT_EQ(sum, c.finish_time);
    csv += fmt::format("{},1,{}000,{}000,{}000,0,0,{}000,{}000\n", r, p.end, p.gpu,
                       p.comm - p.overlap, p.comm, p.gpu);
  }
  EXPECT_EQ(results::ToCsv(*result), csv);
}

// Requests to a pool are served one at a time: 100 + 50,000 / 50 ns each, four times.
TEST(AstraSim, RemoteMemoryQueues) {
  const Files files;
  files.Network("Switch", "4", "50", "500");
  files.Write("system.json", System({"ring"}, "LIFO", 1, 1, "baseline"));
  files.Write("memory.json",
              R"({"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 50})");
  ChakraNode load;
  load.type = ChakraNodeType::kMemLoad;
  load.tensor_size = 50'000;
  load.has = ChakraNode::kTensorSize;
  formats::ChakraWriter writer;
  writer.Add(load, "m", "", {});
  const std::string bytes = writer.Release();
  for (std::size_t r = 0; r < 4; ++r) files.Rank(r, bytes);
  const auto pool = SimulateAstra(files.Options());
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  EXPECT_EQ(pool->record.classes[0].finish_time, 1100 * kNanosecond);
  EXPECT_EQ(pool->record.finish_time, 4400 * kNanosecond);
  files.Write("memory.json", kNoMemory);
  EXPECT_THAT(SimulateAstra(files.Options()).status().message(), HasSubstr("NO_MEMORY_EXPANSION"));
}

TEST(AstraSim, NamesWhatIsWrong) {
  const Files files;
  files.Network("Ring", "4", "50", "500");
  files.Write("system.json", System({"ring"}, "LIFO", 1, 4, "baseline"));
  const auto error = [&files] { return SimulateAstra(files.Options()).status().message(); };
  EXPECT_THAT(error(), HasSubstr("no trace '"));
  formats::ChakraWriter writer;
  writer.Add(Collective(0, ChakraCollective::kAllReduce, 4096), "c", "5", {});
  const std::string bytes = writer.Release();
  for (std::size_t r = 0; r < 3; ++r) files.Rank(r, bytes);
  EXPECT_THAT(error(), HasSubstr("3 ranks, and the network 4 NPUs"));
  files.Rank(3, bytes);
  EXPECT_THAT(error(), HasSubstr("group 5 (pg_name) is not known"));
  files.Write("system.json", System({"rings"}, "LIFO", 1, 4, "baseline"));
  EXPECT_THAT(error(), HasSubstr("unknown implementation 'rings'"));
  files.Write("system.json", R"({"scheduling-policy": "LIFO"})");
  EXPECT_THAT(error(), HasSubstr("preferred-dataset-splits"));
  files.Network("Rinf", "4", "50", "500");
  files.Write("system.json", System({"ring"}, "LIFO", 1, 4, "baseline"));
  EXPECT_THAT(error(), HasSubstr("did you mean 'Ring'?"));
}

// Rank 1 receives another size than rank 0 sends: ASTRA-sim ends without a result, and exits 0.
TEST(AstraSim, SaysWhoWaitsForEver) {
  const Files files;
  files.Network("Ring", "2", "50", "500");
  files.Write("system.json", System({"ring"}, "LIFO", 1, 4, "baseline"));
  for (const std::uint32_t r : {0u, 1u}) {
    ChakraNode node;
    node.type = r == 0 ? ChakraNodeType::kSend : ChakraNodeType::kReceive;
    node.comm_size = 100 + r;
    node.destination = 1;
    node.source = 0;
    node.has = ChakraNode::kCommSize | ChakraNode::kSource | ChakraNode::kDestination;
    formats::ChakraWriter writer;
    writer.Add(node, "m", "", {});
    files.Rank(r, writer.Release());
  }
  const auto result = SimulateAstra(files.Options());
  EXPECT_EQ(result.status().code(), Code::kInfeasible);
  EXPECT_THAT(result.status().message(), HasSubstr("deadlock: rank 1 of 2"));
}

}  // namespace
}  // namespace orrery::job
