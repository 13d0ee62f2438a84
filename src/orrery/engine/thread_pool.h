// Threads that run tasks for an owner who hands them out, takes part, and waits.
//
// A task is a number, in hand once at a time; tasks in hand must not touch each other. Who finds
// nothing to do looks on for some microseconds and then sleeps.
// Cost: one compare-and-swap a task; a wake where somebody sleeps.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "orrery/base/threads.h"

namespace orrery::engine {

class ThreadPool {
 public:
  // REQUIRES: no more than `most` tasks are in hand at any time.
  ThreadPool(int threads, std::size_t most, std::function<void(std::uint32_t)> run)
      : run_(std::move(run)), tasks_(std::bit_ceil(most)) {
    threads_ = StartThreads(static_cast<std::size_t>(std::max(threads, 1) - 1),
                            [this](std::size_t) { Work(); });
  }
  ~ThreadPool() {
    stop_.store(true, std::memory_order_release);
    Signal();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Add(std::uint32_t task) {
    const std::uint32_t at = added_.load(std::memory_order_relaxed);
    tasks_[at % tasks_.size()].store(task, std::memory_order_relaxed);
    added_.store(at + 1, std::memory_order_release);
    if (!threads_.empty()) Signal();
  }
  // How many were ever done.
  std::uint32_t done() const { return done_.load(std::memory_order_acquire); }
  // Until done() is not `seen`.
  void WaitPast(std::uint32_t seen) const {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (done() != seen) return;
      Pause();
    }
    done_.wait(seen, std::memory_order_acquire);
  }
  // Runs a task that nobody has taken; false if there is none.
  bool RunOne() {
    std::uint32_t at = taken_.load(std::memory_order_relaxed), task = 0;
    do {
      if (at == added_.load(std::memory_order_acquire)) return false;
      // Read first: as long as `at` is not taken, no later task is in its place; once it is, others
      // may come round while this thread sleeps.
      task = tasks_[at % tasks_.size()].load(std::memory_order_relaxed);
    } while (!taken_.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel));
    run_(task);
    done_.fetch_add(1, std::memory_order_release);
    if (!threads_.empty()) done_.notify_all();
    return true;
  }

 private:
  static constexpr int kLooks = 5'000;  // of some 10 ns
  void Signal() {
    signal_.fetch_add(1, std::memory_order_release);
    signal_.notify_all();
  }
  void Work() {
    for (;;) {
      const std::uint32_t seen = signal_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_acquire)) return;
      if (RunOne()) continue;
      int looks = 0;
      while (looks < kLooks && signal_.load(std::memory_order_acquire) == seen) {
        Pause();
        ++looks;
      }
      if (looks == kLooks) signal_.wait(seen, std::memory_order_acquire);
    }
  }

  std::function<void(std::uint32_t)> run_;
  std::vector<std::atomic<std::uint32_t>> tasks_;  // a ring
  alignas(64) std::atomic<std::uint32_t> added_{0};
  alignas(64) std::atomic<std::uint32_t> taken_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  alignas(64) std::atomic<std::uint32_t> signal_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> threads_;
};

}  // namespace orrery::engine
