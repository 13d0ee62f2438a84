#include "orrery/base/text.h"

#include <gtest/gtest.h>

namespace orrery {
namespace {

TEST(Text, FindsInvalidUtf8) {
  EXPECT_EQ(FindInvalidUtf8("plain, ümlaut, 模型, 🙂"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("ab\xff"), 2u);
  EXPECT_EQ(FindInvalidUtf8("\xc0\xaf"), 0u);          // overlong '/'
  EXPECT_EQ(FindInvalidUtf8("a\xed\xa0\x80"), 1u);     // a surrogate
  EXPECT_EQ(FindInvalidUtf8("\xf4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("a\xe6\xa8"), 1u);         // cut short
}

TEST(Text, ShowsNothingThatActs) {
  EXPECT_EQ(Printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(Printable("a\nb\x7f"), "a\\x0ab\\x7f");
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "evil"),
            "\\u202eevil");  // right-to-left override
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // the one-byte CSI as UTF-8
  EXPECT_EQ(Printable("\xff"), "\\xff");
  EXPECT_EQ(Printable("模型"), "模型");
  EXPECT_EQ(Printable("abcdef", 3), "abc…");
}

TEST(Text, LowersLettersAlone) { EXPECT_EQ(Lower("TCPXO 8x\xc3\x89"), "tcpxo 8x\xc3\x89"); }

TEST(Text, NumbersForPeople) {
  EXPECT_EQ(HumanTime(12'340 * kMillisecond), "12.34 s");
  EXPECT_EQ(HumanTime(999'999 * kMicrosecond), "1.000 s");
  EXPECT_EQ(HumanTime(41'000 * kNanosecond), "41.00 us");
  EXPECT_EQ(HumanTime(7), "7.000 ps");
  EXPECT_EQ(HumanTime(0), "0 s");
  EXPECT_EQ(HumanBytes(80LL << 30), "80.0 GiB");
  EXPECT_EQ(HumanBytes(512), "512 B");
  EXPECT_EQ(HumanCount(1234567), "1,234,567");
  EXPECT_EQ(HumanCount(-1000), "-1,000");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanParameters(8'030'261'248), "8.0B");
  EXPECT_EQ(HumanParameters(986'000'000), "1.0B");
  EXPECT_EQ(HumanParameters(124'439'808), "124.4M");
}

}  // namespace
}  // namespace orrery
