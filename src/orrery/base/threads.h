// Threads beside the caller's, as many as the system gives.
#pragma once

#include <cstddef>
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

}  // namespace orrery
