// Where the threads of a partitioned run meet between windows.
//
// A window of the simulation is often a few microseconds of work, less than it takes to wake a
// thread that sleeps, and threads end theirs up to a partition apart. So who comes early looks for
// the others, offers its core to whoever else wants it, and sleeps only after a millisecond. Where
// threads have no cores of their own (a busy machine) the offer is taken for longer than that and
// ends in sleep: TakeSlept() says so. Nothing of this changes a result.
#pragma once

#include <atomic>
#include <cstdint>

#include "orrery/base/threads.h"

namespace orrery::engine {

class Meeting {
 public:
  explicit Meeting(std::uint32_t threads) : threads_(threads) {}
  // So many, and no more, will come. REQUIRES: the caller is one of them and has not arrived yet.
  void Expect(std::uint32_t threads) { threads_.store(threads, std::memory_order_relaxed); }

  void Arrive() {
    const std::uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        threads_.load(std::memory_order_relaxed)) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
      return;
    }
    if (ChangesSoon(round_, round, kLooks)) return;
    slept_.store(true, std::memory_order_relaxed);
    round_.wait(round, std::memory_order_acquire);
  }
  // Whether someone slept since the last call.
  bool TakeSlept() { return slept_.exchange(false, std::memory_order_relaxed); }

 private:
  static constexpr int kLooks = 500;

  std::atomic<std::uint32_t> threads_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<bool> slept_{false};
};

}  // namespace orrery::engine
