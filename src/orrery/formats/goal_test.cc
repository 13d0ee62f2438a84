#include "orrery/formats/goal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::formats {
namespace {

using ::testing::HasSubstr;
using Kind = GoalSchedule::Kind;

constexpr std::string_view kTwo = R"(// two ranks
num_ranks 2
rank 0 {
a: calc 100 cpu 1
b: send 10b to 1 tag 7 cpu 1 nic 2 /* both
fields */
b requires a
}
rank 1 {
r: recv 10b from -1 tag -1
s: calc 5
s irequires r
}
)";

std::string Error(std::string_view text) { return ParseGoal(text, "f.goal").status().message(); }

TEST(Goal, ReadsText) {
  const Result<GoalSchedule> read = ParseGoal(kTwo, "f.goal");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const GoalSchedule& s = *read;
  ASSERT_EQ(s.ranks(), 2u);
  ASSERT_EQ(s.operations(), 4u);
  EXPECT_EQ(s.cpus, 2);
  EXPECT_EQ(s.nics, 3);
  EXPECT_EQ(s.ops[0].kind, Kind::kCalc);
  EXPECT_EQ(s.ops[0].size, 100);
  EXPECT_EQ(s.ops[1].tag, 7u);
  EXPECT_EQ(s.ops[1].open, 1u);
  EXPECT_EQ(s.ops[2].peer, GoalSchedule::kAny);
  EXPECT_EQ(s.ops[2].tag, GoalSchedule::kAny);
  ASSERT_EQ(s.edges_of(0).size(), 1u);
  EXPECT_EQ(s.edges_of(0)[0], 1u);
  ASSERT_EQ(s.edges_of(2).size(), 1u);
  EXPECT_EQ(s.edges_of(2)[0], 1u | GoalSchedule::kStartEdge);
  EXPECT_EQ(s.Place(1), "line 5");
  EXPECT_EQ(s.Place(2), "line 10");
}

// 14 + 2·16 head and table, then per rank 8 + 4 (one root) + 2·39 + 4 (one entry): 234 bytes.
TEST(Goal, BinaryHasTheLayoutOfTheFormat) {
  const Result<GoalSchedule> read = ParseGoal(kTwo, "f.goal");
  ASSERT_TRUE(read.ok());
  const std::string bytes = GoalToBinary(*read);
  ASSERT_EQ(bytes.size(), 234u);
  const auto byte = [&](std::size_t i) {
    return static_cast<int>(static_cast<unsigned char>(bytes[i]));
  };
  EXPECT_EQ(byte(0) + 256 * byte(1), 4223);
  EXPECT_EQ(byte(8), 2);                  // ranks
  EXPECT_EQ(byte(12), 1);                 // highest cpu
  EXPECT_EQ(byte(13), 2);                 // highest nic
  EXPECT_EQ(byte(14), 38);                // rank 0's section begins at byte 46 = 8 + 38
  EXPECT_EQ(byte(46), 2);                 // its operations
  EXPECT_EQ(byte(46 + 12 + 4), 3);        // the first is a calc
  EXPECT_EQ(byte(46 + 12 + 39 + 17), 7);  // the second's tag
}

TEST(Goal, FormsRoundTrip) {
  const Result<GoalSchedule> read = ParseGoal(kTwo, "f.goal");
  ASSERT_TRUE(read.ok());
  const std::string text = GoalToText(*read), binary = GoalToBinary(*read);
  const Result<GoalSchedule> from_text = ParseGoal(text, "t"), from_binary = ParseGoal(binary, "b");
  ASSERT_TRUE(from_text.ok()) << from_text.status().message();
  ASSERT_TRUE(from_binary.ok()) << from_binary.status().message();
  EXPECT_EQ(GoalToText(*from_text), text);
  EXPECT_EQ(GoalToText(*from_binary), text);
  EXPECT_EQ(GoalToBinary(*from_text), binary);
  EXPECT_EQ(from_binary->Place(2), "operation 0 of rank 1");
}

TEST(Goal, TextErrorsNameLineAndRemedy) {
  const std::string head = "num_ranks 2\nrank 0 {\n", tail = "\n}\nrank 1 {\n}\n";
  EXPECT_THAT(Error("hello"), HasSubstr("f.goal:1: a schedule begins with 'num_ranks N'"));
  EXPECT_THAT(Error(head + "send 8 to 1" + tail), HasSubstr("f.goal:3: 'b' expected"));
  EXPECT_THAT(Error(head + "send 8b to 2" + tail),
              HasSubstr("f.goal:3: to: '2' is outside 0 to 1"));
  EXPECT_THAT(Error(head + "send 8b to -1" + tail), HasSubstr("outside 0 to 1"));
  EXPECT_THAT(Error(head + "send 8b to 1 tag -1" + tail), HasSubstr("tag: '-1' is outside"));
  EXPECT_THAT(Error(head + "send 8b to 1 cpu 0 tag 1" + tail),
              HasSubstr("the statement ends before 'tag 1'"));
  EXPECT_THAT(Error(head + "send 8b to 1 tag 2147483648" + tail),
              HasSubstr("f.goal:3: tag: '2147483648' is outside"));
  EXPECT_THAT(Error(head + "a: calc 1\na: calc 2" + tail),
              HasSubstr("f.goal:4: the label 'a' stands at line 3 already"));
  EXPECT_THAT(Error(head + "a: calc 1\na requires b" + tail),
              HasSubstr("no operation of this rank above has the label 'b'"));
  EXPECT_THAT(Error(head + "a: calc 1\nb: calc 1\na requires b\nb requires a" + tail),
              HasSubstr("rank 0: 2 operations wait for each other, line 3 is one of them"));
  EXPECT_THAT(Error("num_ranks 2\nrank 1 {\n}\n"), HasSubstr("rank 1 stands where rank 0 must"));
  EXPECT_THAT(Error("num_ranks 1\nrank 0 {\ncalc 5\n"), HasSubstr("(line 2) has no '}'"));
  EXPECT_THAT(Error(head + "calc 99999999999999999999" + tail), HasSubstr("is outside"));
  EXPECT_THAT(Error(head + tail + "calc 5"), HasSubstr("more follows the block of the last rank"));
  EXPECT_THAT(Error("num_ranks 1 /* open"), HasSubstr("has no end"));
}

// No cut and no changed byte crashes; what is read again is a schedule or a clear error.
TEST(Goal, DamagedBinariesAreRefused) {
  const Result<GoalSchedule> read = ParseGoal(kTwo, "f.goal");
  ASSERT_TRUE(read.ok());
  const std::string bytes = GoalToBinary(*read);
  for (std::size_t cut = 8; cut < bytes.size(); ++cut) {
    EXPECT_THAT(Error(bytes.substr(0, cut)), HasSubstr("f.goal: byte ")) << cut;
  }
  int refused = 0;
  for (std::size_t at = 8; at < bytes.size(); ++at) {
    for (const int mask : {0x01, 0x80, 0xFF}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      const Result<GoalSchedule> again = ParseGoal(damaged, "f.goal");
      refused += again.ok() ? 0 : 1;
      if (!again.ok()) continue;
      EXPECT_TRUE(ParseGoal(GoalToText(*again), "t").ok()) << at;
    }
  }
  EXPECT_GT(refused, 100);
  std::string used = bytes;
  used[0] = static_cast<char>(2342 & 0xFF);
  used[1] = static_cast<char>(2342 >> 8);
  EXPECT_THAT(Error(used), HasSubstr("--save-mem has used this file up"));
}

// Ranks that share a section, or operations that share entries, would let a small file fill the
// memory. Rank 0's section is bytes 46 to 140, its table begins at byte 14, rank 1's at byte 30.
TEST(Goal, NothingOfABinaryIsReadTwice) {
  const Result<GoalSchedule> read = ParseGoal(kTwo, "f.goal");
  ASSERT_TRUE(read.ok());
  const std::string bytes = GoalToBinary(*read);
  std::string sections = bytes;
  sections.replace(30, 8, bytes, 14, 8);
  EXPECT_THAT(Error(sections), HasSubstr("byte 30: the section of rank 1 overlaps another's"));
  std::string entries = bytes;
  entries[46 + 12 + 39 + 23] = 1;  // the second operation has a dependent,
  entries[46 + 12 + 39 + 27] = 0;  // the first entry
  EXPECT_THAT(Error(entries), HasSubstr("byte 120: entries of operation 1 are another's, too"));
}

TEST(Goal, Sniffs) {
  EXPECT_EQ(SniffGoal(kTwo), GoalForm::kText);
  EXPECT_EQ(SniffGoal("\r\n/* x */ num_ranks 4\r\n"), GoalForm::kText);
  EXPECT_EQ(SniffGoal("model: gpt2\n"), GoalForm::kNone);
  EXPECT_EQ(SniffGoal(std::string("\x7f\x10\0\0\0\0\0\0", 8)), GoalForm::kBinary);
}

}  // namespace
}  // namespace orrery::formats
