#include "orrery/base/units.h"

#include <gtest/gtest.h>

namespace orrery {
namespace {

std::int64_t Whole(std::string_view text, Dimension dimension, std::string_view unit) {
  Result<std::int64_t> value = ParseWhole(text, dimension, unit);
  EXPECT_TRUE(value.ok()) << text << ": " << value.status().message();
  return value.ok() ? *value : -1;
}

std::string Error(std::string_view text, Dimension dimension, std::string_view unit) {
  Result<std::int64_t> value = ParseWhole(text, dimension, unit);
  EXPECT_FALSE(value.ok()) << text;
  return value.ok() ? "" : value.status().message();
}

TEST(Units, ReadsExactly) {
  EXPECT_EQ(Whole("2.5us", Dimension::kTime, "us"), 2'500'000);
  EXPECT_EQ(Whole("2.5", Dimension::kTime, "us"), 2'500'000);
  EXPECT_EQ(Whole("0.001ns", Dimension::kTime, "us"), 1);
  EXPECT_EQ(Whole("1e-3 ns", Dimension::kTime, "us"), 1);
  EXPECT_EQ(Whole("2h", Dimension::kTime, "us"), 7'200'000'000'000'000);
  EXPECT_EQ(Whole("3 µs", Dimension::kTime, "us"), 3'000'000);
  EXPECT_EQ(Whole("80GiB", Dimension::kBytes, "B"), 80LL << 30);
  EXPECT_EQ(Whole("1.5KiB", Dimension::kBytes, "B"), 1536);
  // 400 · 10^9 bits are 50 · 10^9 bytes.
  EXPECT_EQ(Whole("400Gb/s", Dimension::kBandwidth, "Gb/s"), 50'000'000'000);
  EXPECT_EQ(Whole("400", Dimension::kBandwidth, "Gb/s"), 50'000'000'000);
  EXPECT_EQ(Whole("400Gbps", Dimension::kBandwidth, "Gb/s"), 50'000'000'000);
  EXPECT_EQ(Whole("900GB/s", Dimension::kBandwidth, "GB/s"), 900'000'000'000);
}

TEST(Units, RefusesOtherDimensions) {
  EXPECT_EQ(
      Error("400GB", Dimension::kBandwidth, "Gb/s"),
      "'400GB' is a size in bytes, but this key takes a bandwidth; units: b/s, kb/s, Mb/s, Gb/s, "
      "Tb/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s");
  EXPECT_EQ(
      Error("3 parsecs", Dimension::kTime, "us"),
      "'3 parsecs' has the unknown unit 'parsecs'; units of a time: ps, ns, us, ms, s, min, h");
  EXPECT_EQ(Error("fast", Dimension::kTime, "us"),
            "'fast' is not a time; write a number and a unit: ps, ns, us, ms, s, min, h");
}

TEST(Units, RefusesWhatDoesNotFit) {
  EXPECT_EQ(Error("0.5ps", Dimension::kTime, "us"), "'0.5ps' is not a whole number of picoseconds");
  EXPECT_EQ(Error("-1us", Dimension::kTime, "us"), "'-1us' is negative");
  EXPECT_EQ(Error("1e300s", Dimension::kTime, "us"), "'1e300s' is too large");
  EXPECT_EQ(Error("1e9999s", Dimension::kTime, "us"), "'1e9999s' is too large");
  EXPECT_EQ(Error("1e-9999s", Dimension::kTime, "us"),
            "'1e-9999s' is not a whole number of picoseconds");
  EXPECT_EQ(Error("99999999999TiB", Dimension::kBytes, "B"), "'99999999999TiB' is too large");
  EXPECT_EQ(Error("", Dimension::kBytes, "B"),
            "'' is not a size in bytes; write a number and a unit: B, kB, MB, GB, TB, KiB, MiB, "
            "GiB, TiB");
}

TEST(Units, Reals) {
  EXPECT_EQ(*ParseReal("1%", Dimension::kFraction, ""), 0.01);
  EXPECT_EQ(*ParseReal("0.01", Dimension::kFraction, ""), 0.01);
  EXPECT_EQ(*ParseReal("989.4TFLOP/s", Dimension::kFlops, "TFLOP/s"), 989.4e12);
  EXPECT_EQ(*ParseReal("0.9", Dimension::kNone, ""), 0.9);
  EXPECT_FALSE(ParseReal("0.9x", Dimension::kNone, "").ok());
  EXPECT_FALSE(ParseReal("nan", Dimension::kNone, "").ok());
  EXPECT_FALSE(ParseReal("1e999", Dimension::kNone, "").ok());
}

TEST(Units, Integers) {
  EXPECT_EQ(*ParseInteger("40_000_000"), 40'000'000);
  EXPECT_EQ(*ParseInteger("1e6"), 1'000'000);
  EXPECT_EQ(*ParseInteger("-3"), -3);
  EXPECT_EQ(*ParseInteger("2.50e1"), 25);
  EXPECT_FALSE(ParseInteger("2.5").ok());
  EXPECT_FALSE(ParseInteger("8x").ok());
  EXPECT_FALSE(ParseInteger("9999999999999999999").ok());
}

}  // namespace
}  // namespace orrery
