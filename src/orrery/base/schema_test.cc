#include "orrery/base/schema.h"

#include <gtest/gtest.h>

namespace orrery {
namespace {

constexpr Option kTp{.name = "tp", .type = OptionType::kInteger, .min = 1, .max = 1024};
constexpr Option kRate{.name = "nic", .type = OptionType::kBandwidth, .unit = "Gb/s", .min = 1};
constexpr Option kJitter{.name = "jitter", .type = OptionType::kFraction, .max = 1};
constexpr Option kLayers{.name = "layers", .type = OptionType::kIntegers, .choices = "auto"};
constexpr Option kKind{.name = "fabric",
                       .type = OptionType::kChoice,
                       .choices = "infiniband|roce",
                       .words = "ib=infiniband|rocev2=roce"};

std::string Error(const Option& option, std::string_view text) {
  return ParseOption(option, text).status().message();
}

TEST(Schema, ReadsAndWritesBack) {
  EXPECT_EQ(FormatOption(kTp, *ParseOption(kTp, "8")), "8");
  EXPECT_EQ(FormatOption(kRate, *ParseOption(kRate, "400")), "50000000000B/s");
  EXPECT_EQ(FormatOption(kRate, *ParseOption(kRate, "50000000000B/s")), "50000000000B/s");
  EXPECT_EQ(FormatOption(kJitter, *ParseOption(kJitter, "1%")), "0.01");
  EXPECT_EQ(FormatOption(kLayers, *ParseOption(kLayers, "auto")), "auto");
  const std::vector<std::string> list = {"7", "8"};
  EXPECT_EQ(FormatOption(kLayers, *ParseOptionList(kLayers, list)), "[7, 8]");
}

TEST(Schema, BothSidesOfEveryLimit) {
  EXPECT_TRUE(ParseOption(kTp, "1").ok());
  EXPECT_TRUE(ParseOption(kTp, "1024").ok());
  EXPECT_EQ(Error(kTp, "0"), "0 is out of range: 1 to 1,024");
  EXPECT_EQ(Error(kTp, "1025"), "1025 is out of range: 1 to 1,024");
  EXPECT_EQ(Error(kRate, "0.5Gb/s"), "0.5Gb/s is too small: at least 1Gb/s");
  EXPECT_EQ(Error(kTp, "8.5"), "'8.5' is not a whole number");
}

TEST(Schema, NamesTheChoices) {
  EXPECT_EQ(Error(kKind, "infinband"),
            "unknown fabric 'infinband'; did you mean 'infiniband'? valid: infiniband, roce");
  EXPECT_EQ(Error(kLayers, "even"), "'even' is not a list of whole numbers or auto");
  EXPECT_EQ(Expected(kRate), "a bandwidth with its unit (a bare number is in Gb/s)");
}

TEST(Schema, TakesOtherFrameworksWords) {
  for (const std::string_view word : {"infiniband", "InfiniBand", "IB"}) {
    EXPECT_EQ(FormatOption(kKind, *ParseOption(kKind, word)), "infiniband") << word;
  }
  EXPECT_EQ(FormatOption(kKind, *ParseOption(kKind, "RoCEv2")), "roce");
}

}  // namespace
}  // namespace orrery
