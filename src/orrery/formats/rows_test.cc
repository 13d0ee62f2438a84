#include "orrery/formats/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string AddError(std::string_view text, DataTable* table) {
  const std::size_t before = table->rows().size();
  const Status status = table->Add(text, "t.yaml");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(table->rows().size(), before);  // nothing of a refused file stays
  return status.message();
}

TEST(DataTable, RowsStartFromOthers) {
  DataTable table("device");
  ASSERT_TRUE(table
                  .Add("_base: {sms: 80, link: {rate: 1, kind: a}, source: sheet}\n"
                       "big: {like: _base, sms: 108, link: {rate: 2}, source: other sheet,\n"
                       "      description: A big one}\n",
                       "t.yaml")
                  .ok());
  const DataRow* row = table.Find("big");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->keys.Find("sms")->text, "108");
  EXPECT_EQ(row->keys.Find("link")->Find("rate")->text, "2");
  EXPECT_EQ(row->keys.Find("link")->Find("kind")->text, "a");
  EXPECT_EQ(row->keys.Find("like"), nullptr);
  EXPECT_EQ(row->description, "A big one");
  EXPECT_THAT(row->sources, ElementsAre("sheet", "other sheet"));
  EXPECT_TRUE(table.rows().front().part());
  // A second file goes on from the first, and places are its own.
  ASSERT_TRUE(table.Add("bigger: {like: big, sms: 132, source: guess}\n", "mine.yaml").ok());
  EXPECT_EQ(table.document().Where(*table.Find("bigger")->keys.Find("sms")), "mine.yaml:1:26");
}

TEST(DataTable, SaysWhatIsWrong) {
  DataTable table("device");
  ASSERT_TRUE(table.Add("a: {sms: 1, source: s}\n", "built-in.yaml").ok());
  EXPECT_EQ(AddError("b: {sms: 2}\n", &table),
            "t.yaml:1:1: the device 'b' has no source; say who states it: source: TEXT");
  EXPECT_EQ(AddError("\na: {sms: 2, source: s}\n", &table),
            "t.yaml:2:1: the device 'a' is a row already (built-in.yaml:1); choose another name");
  EXPECT_THAT(AddError("c: {like: aa, source: s}\n", &table),
              HasSubstr("t.yaml:1:5: like: unknown device 'aa'; did you mean 'a'?"));
  EXPECT_EQ(AddError("_d: {sms: 2, source: s}\n", &table),
            "t.yaml:1: no row is like the part '_d'; take it out");
  EXPECT_EQ(AddError("e: 3\n", &table), "t.yaml:1:1: the device 'e' takes keys with values");
  EXPECT_EQ(AddError("- 3\n", &table),
            "t.yaml: a table of devices is a map from a row's name to its keys");
}

}  // namespace
}  // namespace orrery::formats
