// Threads beside the caller's, as many as the system gives, and how they wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace orrery {

// Starts up to `most` threads that run work(1), work(2), …; fewer where the system has no more (a
// limit on processes, as containers have). The work must be what any number of them can do beside
// the caller. They are joined when the vector ends, by an exception too: what they wait for then
// must be told to them by what is made after it.
template <class Work>
std::vector<std::jthread> StartThreads(std::size_t most, const Work& work) {
  std::vector<std::jthread> threads;
  threads.reserve(most);
  for (std::size_t t = 1; t <= most; ++t) {
    try {
      threads.emplace_back(work, t);
    } catch (const std::system_error&) {
      break;
    }
  }
  return threads;
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Looks so often for the value to be another than `seen`, each look some 10 to 70 ns, and then
// offers its core to whoever else wants it for a millisecond. False: it is `seen` still, so that
// who would change it has no core, and to sleep is best (value.wait).
inline bool ChangesSoon(const std::atomic<std::uint32_t>& value, std::uint32_t seen, int looks) {
  for (int i = 0; i < looks; ++i) {
    if (value.load(std::memory_order_acquire) != seen) return true;
    Pause();
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  do {
    if (value.load(std::memory_order_acquire) != seen) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace orrery
