#include "orrery/base/suggest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::array<std::string_view, 4> kNames = {"analytic", "links", "loggops", "flow"};

TEST(Suggest, CountsEdits) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("flow", "flow"), 0u);
  EXPECT_EQ(EditDistance("flwo", "flow"), 1u);       // neighbours swapped
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);  // the textbook's example
  EXPECT_EQ(EditDistance("Flow", "fLOW"), 0u);       // case ignored
}

TEST(Suggest, ListsNearNamesOnly) {
  EXPECT_THAT(Nearest("flwo", kNames, 3), ElementsAre("flow"));
  EXPECT_THAT(Nearest("l", kNames, 3), ElementsAre("links", "loggops"));  // beginnings
  EXPECT_THAT(Nearest("quantum", kNames, 3), IsEmpty());
  EXPECT_THAT(Nearest("link", kNames, 0), IsEmpty());
}

// A name of megabytes is near nothing, which its length says: no table of edits is made.
TEST(Suggest, LongNamesCostNothing) {
  const std::string name(std::size_t{1} << 26, 'n');
  EXPECT_THAT(Nearest(name, kNames, 3), IsEmpty());
  const std::vector<std::string_view> many(40, "flow");
  EXPECT_NE(UnknownName("network", name, many).find("of 40 valid ones"), std::string::npos);
}

TEST(Suggest, Message) {
  EXPECT_EQ(UnknownName("network", "flwo", kNames),
            "unknown network 'flwo'; did you mean 'flow'? valid: analytic, links, loggops, flow");
  EXPECT_EQ(UnknownName("network", "quantum", kNames),
            "unknown network 'quantum'; valid: analytic, links, loggops, flow");
}

}  // namespace
}  // namespace orrery
