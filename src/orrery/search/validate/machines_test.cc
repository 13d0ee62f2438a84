// GPUs, hosts and racks out of the columns of a row.
#include "orrery/search/validate/machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/search/validate/test_support.h"

namespace orrery::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// By its first letters alone an H1000 was an H100, and so was a board with a PCIe plug.
TEST(Machines, AGpuIsKnownByItsWholeName) {
  const auto table = [](const std::string& gpu) {
    const Mapped mapped = Map(kGpt175, {{"gpu", gpu}, {"compute_dtype", "fp16"}});
    return mapped.error.empty() ? mapped.run.cluster.device.table : mapped.error;
  };
  for (const char* gpu : {"H100", "H100-SXM5-80GB", "H100 SXM", "H100 (power limited)"}) {
    EXPECT_EQ(table(gpu), "h100") << gpu;
  }
  EXPECT_EQ(table("H100-PCIe"), "h100-pcie");
  EXPECT_EQ(table("H100 PCIE 80GB"), "h100-pcie");
  EXPECT_EQ(table("H100-NVL"), "h100-nvl");
  EXPECT_EQ(table("NVIDIA A100-PCIE-80GB"), "a100");
  EXPECT_EQ(table("V100-SXM2-16GB"), "v100");  // gpu_mem_gb says 80, so the first of the name
  EXPECT_EQ(table("GeForce RTX 3090"), "rtx3090");
  EXPECT_EQ(table("3090"), "rtx3090");
  EXPECT_EQ(table("AMD Instinct MI325X OAM"), "mi325x");
  EXPECT_EQ(table("GH200 480GB"), "gh200");
  for (const char* gpu : {"H1000", "A100X", "B20", "X"}) {
    EXPECT_THAT(table(gpu), HasSubstr("no device of this name; there are V100-SXM2-32GB, ")) << gpu;
  }
}

TEST(Machines, OmniPathAndRacks) {
  const Mapped omni = Map(kGpt175, {{"gpu", "A100-SXM4"},
                                    {"fabric", "omnipath"},
                                    {"nic_gbps_per_gpu", "50"},
                                    {"network", "4x100 Gb/s Omni-Path per 8-GPU node"}});
  EXPECT_EQ(omni.run.cluster.nics_per_node, 4);
  EXPECT_EQ(omni.run.cluster.nic_Bps, 12'500'000'000);
  // No count: NICs of the preset's 200 Gb/s.
  const Mapped hdr = Map(kGpt175, {{"gpu", "A100-SXM4"},
                                   {"fabric", "ib"},
                                   {"nic_gbps_per_gpu", "100"},
                                   {"network", "800 Gb/s IB per node"}});
  EXPECT_EQ(hdr.run.cluster.nics_per_node, 4);
  EXPECT_EQ(hdr.run.cluster.nic_Bps, 25'000'000'000);
  EXPECT_THAT(hdr.assumed, Contains(StartsWith("4 NICs a host")));
  // 128 GPUs are 32 hosts of 4, on two racks: 16 hosts, 64 GPUs of each.
  const Mapped racks = Map(kGpt175, {{"gpu", "GB200"},
                                     {"gpus_per_node", "4"},
                                     {"gpus", "128"},
                                     {"tp", "8"},
                                     {"pp", "4"},
                                     {"dp", "4"},
                                     {"global_batch", "64"},
                                     {"gpu_mem_gb", "192"}});
  ASSERT_EQ(racks.error, "");
  EXPECT_EQ(racks.run.cluster.gpus_per_nvlink_domain, 64);
}

}  // namespace
}  // namespace orrery::search
