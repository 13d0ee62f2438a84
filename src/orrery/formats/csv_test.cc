// Is a table read as RFC 4180 says, and is damage named by line and column?
#include "orrery/formats/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::formats {
namespace {

using ::testing::HasSubstr;

CsvTable Good(std::string_view text) {
  auto table = CsvTable::Parse(text, "t.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return table.ok() ? *std::move(table) : CsvTable();
}
std::string Bad(std::string_view text) {
  const auto table = CsvTable::Parse(text, "t.csv");
  EXPECT_FALSE(table.ok()) << text;
  return table.status().message();
}

TEST(Csv, FieldsRecordsAndLines) {
  const CsvTable t = Good("a,b\n1,\n\n,2\n");
  ASSERT_EQ(t.rows(), 2U);
  EXPECT_EQ(t.cell(0, 0), "1");
  EXPECT_EQ(t.cell(0, 1), "");
  EXPECT_EQ(t.cell(1, 0), "");
  EXPECT_EQ(t.cell(1, 1), "2");
  EXPECT_EQ(t.line(1), 4U);  // the empty line counts as a line, not as a row
  EXPECT_EQ(t.Find("b"), 1U);
  EXPECT_EQ(t.Find("c"), std::nullopt);
}

TEST(Csv, QuotesHoldCommasQuotesAndLineEnds) {
  const CsvTable t = Good("a,b\n\"x, \"\"y\"\"\",\"two\r\nlines\"\nlast,1");
  EXPECT_EQ(t.cell(0, 0), "x, \"y\"");
  EXPECT_EQ(t.cell(0, 1), "two\r\nlines");
  EXPECT_EQ(t.cell(1, 0), "last");
  EXPECT_EQ(t.line(1), 4U);
}

TEST(Csv, CarriageReturnsAndByteOrderMark) {
  const CsvTable t = Good(
      "\xEF\xBB\xBF"
      "a,b\r\n1,2\r\n");
  EXPECT_EQ(t.header()[0], "a");
  EXPECT_EQ(t.cell(0, 1), "2");
}

TEST(Csv, DamageIsNamed) {
  EXPECT_THAT(Bad(""), HasSubstr("t.csv: empty"));
  EXPECT_THAT(Bad("a,b\n1\n"), HasSubstr("t.csv:2: 1 fields where the header has 2"));
  EXPECT_THAT(Bad("a,b\n1,2,3\n"), HasSubstr("t.csv:2: 3 fields"));
  EXPECT_THAT(Bad("a,b\n1,\"open\n2,3\n"), HasSubstr("t.csv:2: column 2: the quote opened here"));
  EXPECT_THAT(Bad("a,b\n1,x\"y\n"), HasSubstr("t.csv:2: column 2: a quote inside 'x'"));
  EXPECT_THAT(Bad("a,b\n\"x\"y,1\n"), HasSubstr("column 1: text after the closing quote of 'x'"));
  EXPECT_THAT(Bad("a,a\n1,2\n"), HasSubstr("column 'a' stands twice"));
  EXPECT_THAT(Bad("\n\na,\n1,2\n"), HasSubstr("t.csv:3: column 2 has no name"));
  EXPECT_THAT(Bad("a\rb\n"), HasSubstr("a carriage return without a line feed"));
  EXPECT_THAT(Bad(std::string_view("a\n\0\n", 4)), HasSubstr("t.csv:2: column 1: a NUL byte"));
  EXPECT_THAT(Bad("a\n1\n\xFF\n"), HasSubstr("t.csv:3: not UTF-8"));
  EXPECT_THAT(Bad(std::string(2000, ',')), HasSubstr("more than 1024 columns"));
}

TEST(Csv, MissingFile) { EXPECT_FALSE(CsvTable::Read("/nowhere/at/all.csv").ok()); }

}  // namespace
}  // namespace orrery::formats
