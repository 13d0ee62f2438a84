#include "orrery/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/memory/allocator_conf.h"

namespace orrery::memory {
namespace {

using Handle = CachingAllocator::Handle;

CachingAllocator Make(const AllocatorSettings& settings = {}, std::int64_t bytes = 1024 * kMiB) {
  return {settings, bytes, bytes};
}

// A recorded trace of PyTorch's allocator (tools/allocator/record.py), replayed line by line.
void ReplayTrace(const std::filesystem::path& path) {
  SCOPED_TRACE(path.filename());
  std::ifstream in(path);
  std::string line, word, conf, version;
  std::getline(in, version);
  ASSERT_EQ(version.rfind("torch ", 0), 0u) << version;
  std::int64_t device = 0, capacity = 0;
  double fraction = 0;
  in >> word >> conf >> word >> device >> word >> capacity >> word >> fraction;
  auto settings = ParseAllocatorConf(conf == "default" ? "" : conf);
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  if (fraction > 0) settings->memory_fraction = fraction;
  CachingAllocator allocator(*settings, device, capacity);
  std::map<std::int64_t, Handle> live;
  int number = 2, checked = 0;
  std::getline(in, line);
  while (std::getline(in, line)) {
    ++number;
    std::istringstream fields(line);
    char what = 0;
    std::int64_t id = 0, bytes = 0, allocated = 0, reserved = 0;
    int stream = 0;
    fields >> what;
    if (what == 'a') {
      fields >> id >> bytes >> stream >> word;
      const Handle h = allocator.Alloc(bytes, stream);
      ASSERT_EQ(h == CachingAllocator::kNone, word == "oom") << "line " << number << ": " << line;
      if (h != CachingAllocator::kNone) {
        live[id] = h;
        std::from_chars(word.data(), word.data() + word.size(), allocated);
      } else {
        fields >> allocated;
      }
      fields >> reserved;
    } else {
      if (what == 'f') {
        fields >> id;
        allocator.Free(live.at(id));
        live.erase(id);
      } else if (what == 'r') {
        fields >> id >> stream;
        allocator.RecordStream(live.at(id), stream);
      } else if (what == 'b') {
        int busy = 0;
        fields >> stream >> busy;
        allocator.SetBusy(stream, busy != 0);
      } else {
        ASSERT_EQ(what, 'e') << line;
        allocator.EmptyCache();
      }
      fields >> allocated >> reserved;
    }
    ASSERT_EQ(allocator.stats().allocated, allocated) << "line " << number << ": " << line;
    ASSERT_EQ(allocator.stats().reserved, reserved) << "line " << number << ": " << line;
    ++checked;
  }
  EXPECT_GE(checked, 500);
}

// Allocated and reserved equal PyTorch's own after every event, and it runs out where PyTorch does.
TEST(CachingAllocator, EqualsPyTorchOnRecordedTraces) {
  int traces = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(ORRERY_SOURCE_DIR "/tools/allocator/traces")) {
    if (entry.path().extension() != ".txt") continue;
    ReplayTrace(entry.path());
    ++traces;
  }
  EXPECT_GE(traces, 8);
}

TEST(CachingAllocator, SizesAndSegments) {
  CachingAllocator a = Make();
  const Handle one = a.Alloc(1);  // 512 bytes of a small segment
  EXPECT_EQ(a.stats().allocated, 512);
  EXPECT_EQ(a.stats().reserved, 2 * kMiB);
  a.Alloc(kMiB);  // the rest of that segment is 2 MiB - 512
  EXPECT_EQ(a.stats().reserved, 2 * kMiB);
  a.Alloc(kMiB + 1);  // large: 20 MiB, split
  EXPECT_EQ(a.stats().reserved, 22 * kMiB);
  EXPECT_EQ(a.stats().allocated, 512 + kMiB + kMiB + 512);
  a.Alloc(11 * kMiB);  // of the 20 MiB
  EXPECT_EQ(a.stats().reserved, 22 * kMiB);
  a.Alloc(11 * kMiB);  // 12 MiB, of which the last MiB is not split off
  EXPECT_EQ(a.stats().reserved, 34 * kMiB);
  EXPECT_EQ(a.stats().allocated, 512 + kMiB + kMiB + 512 + 11 * kMiB + 12 * kMiB);
  EXPECT_EQ(a.stats().rounded, 512 + kMiB + kMiB + 512 + 22 * kMiB);
  a.Free(one);
  EXPECT_EQ(a.stats().reserved, 34 * kMiB);
}

TEST(CachingAllocator, RetryGivesCachedSegmentsBack) {
  CachingAllocator a = Make({}, 100 * kMiB);
  const Handle first = a.Alloc(60 * kMiB);
  a.Free(first);
  EXPECT_NE(a.Alloc(80 * kMiB), CachingAllocator::kNone);
  EXPECT_EQ(a.stats().retries, 1);
  EXPECT_EQ(a.stats().reserved, 80 * kMiB);
  EXPECT_EQ(a.Alloc(40 * kMiB), CachingAllocator::kNone);
  a.LiftLimits();
  EXPECT_NE(a.Alloc(40 * kMiB), CachingAllocator::kNone);
}

// A fraction of the device is a limit of its own: what goes on after it ran out lifts that, too.
TEST(CachingAllocator, AFractionOfTheDeviceIsLifted) {
  CachingAllocator a({.memory_fraction = 0.5}, 100 * kMiB, 100 * kMiB);
  EXPECT_NE(a.Alloc(40 * kMiB), CachingAllocator::kNone);
  EXPECT_EQ(a.Alloc(40 * kMiB), CachingAllocator::kNone);
  a.LiftLimits();
  EXPECT_NE(a.Alloc(40 * kMiB), CachingAllocator::kNone);
  EXPECT_EQ(a.stats().reserved, 80 * kMiB);
}

// What a job would need is asked of an allocator with room beyond its device: a range of an
// expandable segment holds a request that is larger than the device.
TEST(CachingAllocator, RequestsLargerThanTheDevice) {
  CachingAllocator a({.expandable_segments = true}, 1024 * kMiB, std::int64_t{1} << 50);
  const Handle large = a.Alloc(8192 * kMiB, 0);
  ASSERT_NE(large, CachingAllocator::kNone);
  EXPECT_NE(a.Alloc(8192 * kMiB, 0), CachingAllocator::kNone);
  a.Free(large);
}

// A hole between two blocks of a segment cannot be given back; pages of an expandable one can.
TEST(CachingAllocator, ExpandableSegmentsGiveHolesBack) {
  for (const bool expandable : {false, true}) {
    CachingAllocator a = Make({.expandable_segments = expandable}, 400 * kMiB);
    const Handle whole = a.Alloc(300 * kMiB);
    a.Free(whole);
    a.Alloc(20 * kMiB);
    const Handle middle = a.Alloc(240 * kMiB);
    a.Alloc(40 * kMiB);
    a.Free(middle);
    EXPECT_EQ(a.Alloc(300 * kMiB) != CachingAllocator::kNone, expandable);
  }
}

TEST(CachingAllocator, AnotherStreamHoldsAFreedBlock) {
  CachingAllocator a = Make();
  const Handle h = a.Alloc(64 * kMiB);
  a.RecordStream(h, 1);
  a.SetBusy(1, true);
  a.Free(h);
  EXPECT_EQ(a.stats().allocated, 0);
  EXPECT_EQ(a.stats().waiting, 64 * kMiB);
  a.Alloc(64 * kMiB);
  EXPECT_EQ(a.stats().reserved, 128 * kMiB);
  a.SetBusy(1, false);
  a.Alloc(64 * kMiB);
  EXPECT_EQ(a.stats().reserved, 128 * kMiB);
}

// What is freed in any order leaves whole segments: everything goes back to the driver.
TEST(CachingAllocatorProperty, EverythingComesBack) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CounterRng rng(seed);
    CachingAllocator a = Make({.expandable_segments = seed % 2 == 1}, 4096 * kMiB);
    std::vector<Handle> live;
    std::int64_t used = 0;
    for (int i = 0; i < 600; ++i) {
      if (live.empty() || rng.Below(100) < 55) {
        live.push_back(a.Alloc(
            1 + static_cast<std::int64_t>(rng.Below(rng.Below(2) == 0 ? 100'000 : 30'000'000)),
            static_cast<int>(rng.Below(3))));
        ASSERT_NE(live.back(), CachingAllocator::kNone);
        used += a.BlockBytes(live.back());
      } else {
        const std::size_t at = rng.Below(live.size());
        used -= a.BlockBytes(live[at]);
        a.Free(live[at]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
      ASSERT_EQ(a.stats().allocated, used);
      ASSERT_LE(used, a.stats().reserved);
      ASSERT_LE(a.stats().rounded, used);
    }
    for (const Handle h : live) a.Free(h);
    a.EmptyCache();
    EXPECT_EQ(a.stats().allocated, 0);
    EXPECT_EQ(a.stats().reserved, 0);
    EXPECT_EQ(a.stats().peak_reserved > 0, true);
  }
}

TEST(AllocatorConf, ReadsWhatUsersSet) {
  const auto s = ParseAllocatorConf(
      "expandable_segments:True, max_split_size_mb:128,garbage_collection_threshold:0.8,"
      "roundup_power2_divisions:[256:1,512:2,>:4],pinned_use_background_threads:True");
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_TRUE(s->expandable_segments);
  EXPECT_EQ(s->max_split_bytes, 128 * kMiB);
  EXPECT_EQ(s->garbage_collection_threshold, 0.8);
  EXPECT_EQ(s->roundup_power2_divisions[0], 1);
  EXPECT_EQ(s->roundup_power2_divisions[8], 1);
  EXPECT_EQ(s->roundup_power2_divisions[9], 2);
  EXPECT_EQ(s->roundup_power2_divisions[15], 4);
  EXPECT_EQ(*ParseAllocatorConf(""), AllocatorSettings{});
}

TEST(AllocatorConf, RefusesWhatItDoesNotKnow) {
  const auto message = [](std::string_view text) {
    const auto s = ParseAllocatorConf(text);
    return s.ok() ? std::string("ok") : s.status().message();
  };
  EXPECT_NE(message("expandable_segment:True").find("did you mean 'expandable_segments'"),
            std::string::npos);
  EXPECT_EQ(message("expandable_segments:yes"), "expandable_segments:yes: True or False");
  EXPECT_EQ(message("max_split_size_mb:5"), "max_split_size_mb:5: a whole number of MiB from 20");
  EXPECT_NE(message("backend:cudaMallocAsync"), "ok");
  EXPECT_NE(message("roundup_power2_divisions:3"), "ok");
  EXPECT_NE(message("garbage_collection_threshold:nan"), "ok");
  EXPECT_NE(message("max_split_size_mb"), "ok");
}

}  // namespace
}  // namespace orrery::memory
