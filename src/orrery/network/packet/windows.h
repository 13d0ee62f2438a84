// Threads that work through a window together with their owner.
//
// The owner opens a window, does what else there is to do, and closes it: then it waits for those
// that are at work, and for no one who has not come. Who waits looks for the others, offers its
// core to whoever else wants it, and sleeps after a millisecond. Cost: a window costs each thread a
// few looks at another's line of the cache; a thread that sleeps is woken by the next window.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace orrery::network::packet {

class WindowThreads {
 public:
  // As many threads as the system gives. `work` is called once a window, at most, with each number
  // from 1 to threads - 1, each on a thread of its own. It comes back when there is nothing left to
  // take. REQUIRES: threads > 0.
  WindowThreads(int threads, std::function<void(std::size_t)> work);
  ~WindowThreads();
  WindowThreads(const WindowThreads&) = delete;
  WindowThreads& operator=(const WindowThreads&) = delete;

  void Open();
  // False if the owner had to wait for a thread that has no core. REQUIRES: a window is open, of
  // which nothing is left to take.
  bool Close();

 private:
  void Run(std::size_t number);

  std::function<void(std::size_t)> work_;
  alignas(64) std::atomic<std::uint32_t> opened_{0};  // windows
  std::atomic<bool> open_{false}, stop_{false};
  alignas(64) std::atomic<std::uint32_t> inside_{0};  // threads at work, or looking whether to
  std::vector<std::jthread> threads_;
};

}  // namespace orrery::network::packet
