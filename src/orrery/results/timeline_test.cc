#include "orrery/results/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <map>

namespace orrery::results {
namespace {

using ::testing::ElementsAre;

// Reads protobuf's wire format: field number → values, nested messages as bytes.
struct Message {
  std::multimap<std::uint32_t, std::uint64_t> numbers;
  std::multimap<std::uint32_t, double> doubles;
  std::multimap<std::uint32_t, std::string> bytes;
  std::uint64_t number(std::uint32_t field) const { return numbers.find(field)->second; }
  const std::string& text(std::uint32_t field) const { return bytes.find(field)->second; }
};

std::uint64_t ReadVarint(std::string_view* in) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(in->front());
    in->remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
}

Message Parse(std::string_view in) {
  Message message;
  while (!in.empty()) {
    const std::uint64_t tag = ReadVarint(&in);
    const auto field = static_cast<std::uint32_t>(tag >> 3);
    if ((tag & 7) == 0) {
      message.numbers.emplace(field, ReadVarint(&in));
      continue;
    }
    if ((tag & 7) == 1) {
      std::uint64_t bits = 0;
      for (int i = 7; i >= 0; --i) bits = bits << 8 | static_cast<unsigned char>(in[i]);
      in.remove_prefix(8);
      message.doubles.emplace(field, std::bit_cast<double>(bits));
      continue;
    }
    EXPECT_EQ(tag & 7, 2u);
    const std::uint64_t size = ReadVarint(&in);
    EXPECT_LE(size, in.size());
    message.bytes.emplace(field, std::string(in.substr(0, size)));
    in.remove_prefix(size);
  }
  return message;
}

graph::Graph TwoRanks() {
  graph::Graph graph;
  graph.programs.resize(2);
  graph.programs[0].name = "stage 0";
  graph.programs[1].name = "stage 1";
  graph.programs[1].stage = 1;
  graph.jobs.push_back({.name = "job", .ranks = 4});
  for (std::size_t r = 0; r < 4; ++r) {
    graph::Binding binding;
    binding.program = ProgramId(r / 2);
    binding.job = JobId(std::size_t{0});
    graph.bindings.push_back(binding);
  }
  return graph;
}

TEST(Timeline, Ranks) {
  const graph::Graph graph = TwoRanks();
  EXPECT_THAT(DefaultRanks(graph), ElementsAre(RankId(std::size_t{0}), RankId(std::size_t{2})));
  EXPECT_THAT(*ParseRanks("3,0-1", 4),
              ElementsAre(RankId(std::size_t{0}), RankId(std::size_t{1}), RankId(std::size_t{3})));
  EXPECT_FALSE(ParseRanks("4", 4).ok());
  EXPECT_FALSE(ParseRanks("0-99999999999", 4).ok());
  EXPECT_FALSE(ParseRanks("0,3-1", 4).ok());
  EXPECT_FALSE(ParseRanks("", 4).ok());
}

TEST(Timeline, SlicesBeginAndEnd) {
  graph::Graph graph = TwoRanks();
  const NameId gemm = graph.Intern("gemm\x1b");
  const std::string path = "/tmp/orrery-timeline-test-" + std::to_string(getpid());
  Result<Timeline> timeline = Timeline::Create(path, graph, {RankId(std::size_t{2})});
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();
  EXPECT_TRUE(timeline->wants(RankId(std::size_t{2})));
  EXPECT_FALSE(timeline->wants(RankId(std::size_t{0})));
  engine::Sink::Interval interval;
  interval.rank = RankId(std::size_t{2});
  interval.start = 5'500;
  interval.end = 9'250;
  interval.name = gemm;
  timeline->Add(interval);
  interval.start = 9'000;  // jitter: it would cross the one before
  interval.end = 11'000;
  timeline->Add(interval);
  interval.start = 5'500;
  interval.end = 9'250;
  interval.stream = 1;
  interval.waited = 2'000;
  interval.bytes = 64;
  timeline->Add(interval);
  timeline->Add(interval);  // of the same call: it waited at the same time
  ASSERT_TRUE(timeline->Finish().ok());
  const Result<std::string> file = ReadFile(path, 1 << 20);
  unlink(path.c_str());
  const Message trace = Parse(*file);
  std::vector<std::uint64_t> types, times;
  std::vector<std::string> names;
  for (auto [at, end] = trace.bytes.equal_range(1); at != end; ++at) {
    const Message packet = Parse(at->second);
    EXPECT_EQ(packet.number(10), 1u);  // one packet sequence
    if (packet.bytes.contains(12)) {
      const Message interned = Parse(packet.text(12));
      for (auto [name, last] = interned.bytes.equal_range(2); name != last; ++name) {
        names.push_back(Parse(name->second).text(2));
      }
    }
    if (!packet.bytes.contains(11)) continue;
    types.push_back(Parse(packet.text(11)).number(9));
    times.push_back(packet.number(8));
  }
  // Compute slices; the wait from the rank's arrival on; the communications, whose wait was drawn
  // before the arrival once, and so before the start of the run. Nanoseconds, rounded down.
  EXPECT_THAT(types, ElementsAre(1, 2, 1, 2, 1, 2, 1, 2, 1, 2));
  EXPECT_THAT(times, ElementsAre(5, 9, 9, 11, 5, 7, 7, 9, 7, 9));
  EXPECT_THAT(names, ElementsAre("gemm\\x1b", "waiting for partners"));
}

// A counter changes at the step in which its share does and ends at 0.
TEST(Timeline, CountersOfTheNetwork) {
  const graph::Graph graph = TwoRanks();
  const std::string path = "/tmp/orrery-timeline-test-" + std::to_string(getpid());
  Result<Timeline> timeline = Timeline::Create(path, graph, {RankId(std::size_t{0})});
  ASSERT_TRUE(timeline.ok()) << timeline.status().message();
  UseOverTime use;
  use.step = 2'000'000;  // 2 us
  use.classes.push_back({"nvlink", {1, 1, 2}, {0.25, 0.25, 0.5}});
  use.links.push_back({"leaf0/spine1", {0, 3, 0}, {0, 1, 0}});
  timeline->AddCounters(use);
  ASSERT_TRUE(timeline->Finish().ok());
  const Result<std::string> file = ReadFile(path, 1 << 20);
  unlink(path.c_str());
  const Message trace = Parse(*file);
  std::map<std::uint64_t, std::string> names;
  std::vector<std::string> values;
  for (auto [at, end] = trace.bytes.equal_range(1); at != end; ++at) {
    const Message packet = Parse(at->second);
    if (packet.bytes.contains(60)) {
      const Message track = Parse(packet.text(60));
      if (!track.bytes.contains(8)) continue;
      EXPECT_EQ(Parse(track.text(8)).text(6), "%");
      EXPECT_EQ(track.number(5), 0xFFu);  // the network's process
      names[track.number(1)] = track.text(2);
    }
    if (!packet.bytes.contains(11)) continue;
    const Message event = Parse(packet.text(11));
    EXPECT_EQ(event.number(9), 4u);
    values.push_back(names.at(event.number(11)) + " " + std::to_string(packet.number(8)) + " " +
                     std::to_string(static_cast<int>(event.doubles.find(44)->second)));
  }
  EXPECT_THAT(values,
              ElementsAre("nvlink 0 25", "nvlink 4000 50", "nvlink 6000 0", "leaf0/spine1 0 0",
                          "leaf0/spine1 2000 100", "leaf0/spine1 4000 0"));
}

}  // namespace
}  // namespace orrery::results
