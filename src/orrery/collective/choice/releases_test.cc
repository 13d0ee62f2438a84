// The table of NCCL's releases: what holds where, and rows that change nothing.
#include "orrery/collective/choice/releases.h"

#include <gtest/gtest.h>

namespace orrery::collective::nccl {
namespace {

const Release& At(int version) { return Releases::BuiltIn().At(version); }

TEST(Releases, HoldFromTheirNameToTheNext) {
  EXPECT_EQ(At(20900).name, "2.9");
  EXPECT_EQ(At(20500).name, "2.9");  // nothing earlier is known
  EXPECT_EQ(At(22203).name, "2.22");
  EXPECT_EQ(At(22706).name, "2.27.6");
  EXPECT_EQ(At(22806).name, "2.28");
  EXPECT_EQ(At(22808).name, "2.28.7");
  EXPECT_EQ(At(29900).name, "2.30");
}

// Values that changed twice or back.
TEST(Releases, WhatARowDoesNotSayIsTheRowBefores) {
  EXPECT_FALSE(At(21699).nvls_single);
  EXPECT_TRUE(At(21700).nvls_of_two);
  EXPECT_FALSE(At(21800).nvls_of_two || At(22806).nvls_of_two);
  EXPECT_TRUE(At(22807).nvls_of_two);
  EXPECT_EQ(At(21700).net[0][2], 28);
  EXPECT_EQ(At(21800).net[0][2], 14);
  EXPECT_EQ(At(21900).net[0][2], 28);
  EXPECT_EQ(At(22300).net[0][2], 14);
  EXPECT_EQ(At(23000).net[1][1], 4);
  EXPECT_TRUE(At(22200).peers_ll_of_all && At(22901).peers_ll_of_all);
  EXPECT_FALSE(At(22902).peers_ll_of_all);
  EXPECT_EQ(At(21500).on(cluster::Arch::kAmpere).most_bus, 235);
  EXPECT_EQ(At(21600).on(cluster::Arch::kAmpere).most_bus, 0);
  EXPECT_EQ(At(22100).on(cluster::Arch::kHopper).most_ll, 141);
  EXPECT_EQ(At(22100).on(cluster::Arch::kBlackwell).most_ll, 282);
  // 40.1 GB/s of a link in place of the packets' 40.0.
  EXPECT_EQ(At(22705).on(cluster::Arch::kBlackwell).nvlink_factor, 40.1 / 40);
  EXPECT_EQ(At(22704).on(cluster::Arch::kBlackwell).nvlink_factor, 1);
}

TEST(Releases, StepsFall) {
  for (int version = 20900; version <= 23000; ++version) {
    for (const Generation& gpu : At(version).generations) {
      for (const std::vector<double>* steps : {&gpu.steps, &gpu.steps_between}) {
        for (std::size_t i = 1; i < steps->size(); ++i) {
          EXPECT_LT((*steps)[i], (*steps)[i - 1]) << version;
        }
      }
    }
  }
}

}  // namespace
}  // namespace orrery::collective::nccl
