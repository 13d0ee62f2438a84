#include "orrery/workload/stage_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace orrery::workload {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CutLayers, ByRule) {
  EXPECT_THAT(CutLayers(StageCut::kSpread, 30, 4), ElementsAre(8, 8, 7, 7));
  EXPECT_THAT(CutLayers(StageCut::kFilled, 30, 4), ElementsAre(8, 8, 8, 6));
  EXPECT_THAT(CutLayers(StageCut::kFilled, 9, 8), ElementsAre(2, 2, 2, 2, 1, 0, 0, 0));
  EXPECT_THAT(CutLayers(StageCut::kInner, 30, 4), ElementsAre(7, 8, 8, 7));
  EXPECT_THAT(CutLayers(StageCut::kInner, 31, 4), IsEmpty());  // three more for two chunks
  // 34 for 8: four each, five for two; less one at either end.
  EXPECT_THAT(CutLayers(StageCut::kCounted, 32, 8), ElementsAre(4, 5, 4, 4, 4, 4, 4, 3));
  EXPECT_THAT(CutLayers(StageCut::kShort, 61, 16),
              ElementsAre(4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1));
  EXPECT_THAT(CutLayers(StageCut::kShort, 62, 16),
              ElementsAre(3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3));
  EXPECT_THAT(CutLayers(StageCut::kThinEnds, 32, 6), ElementsAre(4, 6, 6, 6, 6, 4));
}

// Every rule gives all layers or says nothing, whatever is asked.
TEST(CutLayers, LosesNoLayer) {
  for (const auto& [name, cut] : kStageCuts) {
    EXPECT_THAT(CutLayers(cut, 32, 4), cut == StageCut::kCounted || cut == StageCut::kThinEnds
                                           ? testing::SizeIs(4)
                                           : testing::SizeIs(0))
        << name;
    for (int layers = 1; layers < 40; ++layers) {
      for (int chunks = 1; chunks < 45; ++chunks) {
        const std::vector<int> found = CutLayers(cut, layers, chunks);
        if (found.empty()) continue;
        EXPECT_EQ(found.size(), static_cast<std::size_t>(chunks));
        EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), layers) << name << " " << chunks;
        EXPECT_THAT(found, testing::Each(testing::Ge(0))) << name << " " << layers << " " << chunks;
      }
    }
  }
}

}  // namespace
}  // namespace orrery::workload
