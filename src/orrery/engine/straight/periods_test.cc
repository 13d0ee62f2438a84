#include "orrery/engine/straight/periods.h"

#include <gtest/gtest.h>

namespace orrery::engine {
namespace {

std::vector<graph::Call> Calls(std::string_view blocks) {
  std::vector<graph::Call> calls;
  for (const char block : blocks) {
    graph::Call call;
    call.block = BlockId(static_cast<std::size_t>(block - 'a'));
    call.microbatch = static_cast<std::int32_t>(calls.size());
    calls.push_back(call);
  }
  return calls;
}

std::optional<CallPattern::Period> PeriodOf(std::string_view blocks) {
  const std::vector<graph::Call> calls = Calls(blocks);
  return CallPattern(calls).FindPeriod();
}

TEST(Periods, AreTheShortestThatMakeUpAQuarter) {
  const auto found = PeriodOf("zabababababababababy");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->calls, 2u);
  EXPECT_EQ(found->begin, 1u);
  EXPECT_EQ(found->end, 19u);
  // Within a round a block repeats, too: that is not the program's period.
  const auto nested = PeriodOf("aaabaaabaaabaaabaaabaaabaaabaaab");
  ASSERT_TRUE(nested);
  EXPECT_EQ(nested->calls, 4u);
  EXPECT_FALSE(PeriodOf("abcabcabcabcabc"));  // five rounds
  EXPECT_FALSE(PeriodOf("abcdefghijklmnopqrstuvwxyz"));
  EXPECT_FALSE(PeriodOf(""));
}

// Events in turn are one pattern, whatever their numbers.
TEST(Periods, EventsAreKnownByTheirDistance) {
  std::vector<graph::Call> calls = Calls("abababababababababab");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].event = static_cast<std::int32_t>(i / 2 % 3);
  }
  const CallPattern pattern(calls);
  EXPECT_EQ(pattern.EndOfPeriods(6, 2), calls.size());
  EXPECT_EQ(pattern.EndOfPeriods(0, 2), 6u);  // named for the first time, then again
  EXPECT_TRUE(pattern.Names(2));
  EXPECT_FALSE(pattern.Names(3));
  calls[12].event = 1;
  EXPECT_EQ(CallPattern(calls).EndOfPeriods(6, 2), 12u);
}

TEST(Periods, EndWithTheFirstCallThatIsOther) {
  const std::vector<graph::Call> calls = Calls("abababac"), once = Calls("abc");
  EXPECT_EQ(CallPattern(calls).EndOfPeriods(0, 2), 7u);
  EXPECT_EQ(CallPattern(once).EndOfPeriods(2, 2), 4u);
}

TEST(Periods, NotesRepeatWithTheirCallsAndTimes) {
  HashNotes notes;
  notes.Reset(5);
  notes.Add(4, 99, 99);  // of the next iteration
  notes.Add(7, 10, 3);
  notes.Add(7, 1, 0);
  EXPECT_EQ(notes.Repeated(2, 4, 100), CallWeight(11) * (11 + 300) + CallWeight(15) * (11 + 600));
}

}  // namespace
}  // namespace orrery::engine
