#include "orrery/formats/spc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::formats {
namespace {

using ::testing::HasSubstr;

std::string SpcError(std::string_view text) { return ParseSpc(text, "t.spc").status().message(); }

TEST(Spc, ReadsRequests) {
  const auto read =
      ParseSpc("0,303567,3584,w,0.000000\r\n\n 1 , 55590 ,3072, R ,0.026214,more,x\n", "");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].lba, 303567);
  EXPECT_TRUE((*read)[0].write);
  EXPECT_EQ((*read)[1].asu, 1u);
  EXPECT_EQ((*read)[1].bytes, 3072);
  EXPECT_FALSE((*read)[1].write);
  EXPECT_EQ((*read)[1].at, 26'214 * kMicrosecond);
  EXPECT_EQ(SpcError(std::string(1 << 20, '\0')),
            "t.spc:1: a line of more than 4096 bytes; a request is ASU,LBA,SIZE,OPCODE,TIMESTAMP");
  EXPECT_EQ(ParseSpc("0,1,2,r,3\n0,1,2,r,4.5\n", "", 1)->size(), 1u);
}

// The error of each field, and lines counted from 1 with the empty ones.
TEST(Spc, ErrorsNameLineFieldAndValue) {
  EXPECT_EQ(SpcError("0,1,512,r,0.5\n\n0,1,512\n"),
            "t.spc:3: 3 of the fields ASU,LBA,SIZE,OPCODE,TIMESTAMP; is it cut off?");
  EXPECT_THAT(SpcError("-1,1,512,r,0.5"),
              HasSubstr("t.spc:1: ASU '-1' is not a whole number below"));
  EXPECT_THAT(SpcError("0,x,512,r,0.5"), HasSubstr("LBA 'x' is not a whole number up to 2^42"));
  EXPECT_THAT(SpcError("0,1,5000000000,r,0.5"), HasSubstr("size '5000000000' is not bytes"));
  EXPECT_THAT(SpcError("0,1,512,q,0.5"), HasSubstr("opcode 'q' is not r or w"));
  EXPECT_THAT(SpcError("0,1,512,w,-0.5"), HasSubstr("time stamp '-0.5' is not seconds"));
  EXPECT_THAT(SpcError("0,1,512,w,1e3"), HasSubstr("time stamp '1e3'"));
  EXPECT_THAT(SpcError("\n \n"), HasSubstr("no request in it"));
}

TEST(Spc, IsKnownByItsFirstLine) {
  EXPECT_TRUE(IsSpc("\n0,303567,3584,w,0.000000\ngarbage"));
  EXPECT_TRUE(IsSpc("0,1,2,r,3"));
  EXPECT_FALSE(IsSpc("0,1,2,3,4\n"));
  EXPECT_FALSE(IsSpc("a,b,c,r,1\n"));
  EXPECT_FALSE(IsSpc(""));
}

}  // namespace
}  // namespace orrery::formats
