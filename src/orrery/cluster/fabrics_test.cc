// NICs and fabrics out of what people write.
#include "orrery/cluster/fabrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::cluster {
namespace {

using ::testing::HasSubstr;

TEST(Fabrics, NicsOfATextInAllTheirSpellings) {
  const auto is = [](std::string_view text, int nics, std::int64_t gigabits) {
    const NicText read = ReadNics(text, 8);
    EXPECT_EQ(read.nics, nics) << text;
    EXPECT_EQ(read.gigabits, gigabits) << text;
  };
  is("8x400 Gb/s IB", 8, 400);
  is("IB 8x NDR 400Gbps (ib_write_bw 40-45 GB/s/HCA)", 8, 400);
  is("IB 8x CX-7 400Gbps", 8, 400);
  is("RoCE 16x100Gbps", 16, 100);
  is("4x100 Gb/s Omni-Path per 8-GPU node", 4, 100);
  is("EFA 3200Gbps/node", 0, 3200);
  is("RoCE 400Gbps/GPU cluster network", 8, 400);
  is("NVSwitch (NVLink5)", 0, 0);
  is("", 0, 0);
}

// What was no fabric fell back to the preset's without a word.
TEST(Fabrics, FabricsThatAPersonTypes) {
  for (const char* text :
       {"8x400Gb/s InfiniBand", "8x 400 Gbps IB", "IB", "roce 16x100Gbps", "3200Gb/s/node EFA",
        "400Gbps/GPU Ethernet", " 4x100Gb/s  Omni-Path", "8x200Gb/s TCPXO"}) {
    EXPECT_TRUE(CheckFabricText(text).ok()) << text;
  }
  for (const char* text :
       {"foo", "", " ", "8x400Gb/s InfniBand", "400Gb/s", "8x400", "0x400Gb/s IB", "99x400Gb/s IB",
        "IB RoCE", "8x400Gb/s, IB", "8x400GB/s IB", "IB 8", "8x400Gb/sIB", "-8x400Gb/s",
        "8x400Gb/s 8x400Gb/s"}) {
    EXPECT_THAT(CheckFabricText(text).message(), HasSubstr("8x400Gb/s InfiniBand")) << text;
  }
}

}  // namespace
}  // namespace orrery::cluster
