#include "orrery/memory/storage_replay.h"

#include <gtest/gtest.h>

namespace orrery::memory {
namespace {

using Kind = StorageEvent::Kind;

StorageEvent Event(Kind kind, std::int64_t storage, std::int64_t bytes = 0) {
  return {.kind = kind, .storage = storage, .bytes = bytes};
}
ReplayOptions DeviceOf(std::int64_t bytes) { return {.device_bytes = bytes, .capacity = bytes}; }

// Two storages of 12 MiB at once, then one: 24 MiB allocated, in segments of 12 MiB each.
TEST(StorageReplay, PeaksAreThoseOfTheAllocator) {
  const StorageEvent events[] = {
      Event(Kind::kAlloc, 1, 12 * kMiB), Event(Kind::kAlloc, 2, 12 * kMiB), Event(Kind::kFree, 1),
      Event(Kind::kAlloc, 3, 12 * kMiB), Event(Kind::kAlloc, 4, 0),         Event(Kind::kFree, 4)};
  const auto replay = ReplayStorages(events, 0, DeviceOf(1 << 30));
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->peak_allocated, 24 * kMiB);
  EXPECT_EQ(replay->peak_reserved, 24 * kMiB);
  EXPECT_EQ(replay->peak_requested, 24 * kMiB);
  EXPECT_FALSE(replay->oom.has_value());
}

// What came before the measured part counts for what is reserved, not for the peak allocated.
TEST(StorageReplay, OnlyTheStepIsMeasured) {
  StorageEvent kept = Event(Kind::kAlloc, 2, 4 * kMiB);
  kept.role = StorageRole::kParameter;
  const StorageEvent events[] = {Event(Kind::kAlloc, 1, 100 * kMiB), Event(Kind::kFree, 1), kept,
                                 Event(Kind::kAlloc, 3, 512)};
  const auto replay = ReplayStorages(events, 3, DeviceOf(1 << 30));
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->peak_allocated, 4 * kMiB + 512);
  EXPECT_EQ(replay->at_peak[static_cast<std::size_t>(StorageRole::kParameter)], 4 * kMiB);
  EXPECT_EQ(replay->at_peak[static_cast<std::size_t>(StorageRole::kOther)], 512);
  EXPECT_GE(replay->peak_reserved, 100 * kMiB);
}

// FSDP2 gives a storage back by resizing it to nothing.
TEST(StorageReplay, ResizingToNothingFrees) {
  const StorageEvent events[] = {Event(Kind::kAlloc, 1, 40 * kMiB), Event(Kind::kResize, 1, 0),
                                 Event(Kind::kAlloc, 2, 40 * kMiB), Event(Kind::kFree, 2),
                                 Event(Kind::kResize, 1, 40 * kMiB)};
  const auto replay = ReplayStorages(events, 0, DeviceOf(1 << 30));
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->peak_allocated, 40 * kMiB);
  EXPECT_EQ(replay->peak_reserved, 40 * kMiB);
}

TEST(StorageReplay, SaysWhatNoLongerFits) {
  const StorageEvent events[] = {Event(Kind::kAlloc, 1, 40 * kMiB),
                                 Event(Kind::kAlloc, 2, 40 * kMiB)};
  const auto replay = ReplayStorages(events, 0, DeviceOf(64 * kMiB));
  ASSERT_TRUE(replay.ok());
  ASSERT_TRUE(replay->oom.has_value());
  EXPECT_EQ(replay->oom->requested, 40 * kMiB);
  EXPECT_EQ(replay->oom->allocated, 40 * kMiB);
  EXPECT_EQ(replay->oom->device_free, 24 * kMiB);
  EXPECT_EQ(replay->peak_allocated, 80 * kMiB);  // what the program needs
}

TEST(StorageReplay, RefusesWhatCannotBe) {
  const StorageEvent twice[] = {Event(Kind::kAlloc, 1, 1), Event(Kind::kAlloc, 1, 1)};
  EXPECT_FALSE(ReplayStorages(twice, 0, DeviceOf(1 << 30)).ok());
  const StorageEvent unknown[] = {Event(Kind::kFree, 7)};
  EXPECT_EQ(ReplayStorages(unknown, 0, DeviceOf(1 << 30)).status().message(),
            "line 0: storage 7 does not live");
}

}  // namespace
}  // namespace orrery::memory
