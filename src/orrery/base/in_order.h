// Results of numbered tasks, made on several threads and used in their order.
//
// Cost: a lock a task; up to kAhead results wait.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "orrery/base/threads.h"

namespace orrery {

// Calls make(i) for i = 0 … n - 1 on the caller's thread and `helpers` more, and use(i, result) on
// the caller's, in order, until that says false. REQUIRES: calls of make may run at the same time;
// it throws nothing.
template <class T, class Make, class Use>
void InOrder(std::size_t n, unsigned helpers, const Make& make, const Use& use) {
  constexpr std::size_t kAhead = 16;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<T>> made(kAhead);
  std::size_t taken = 0, used = 0;
  bool stop = false;
  // One task, while `lock` is let go.
  const auto run = [&](std::unique_lock<std::mutex>* lock) {
    const std::size_t i = taken++;
    lock->unlock();
    T result = make(i);
    lock->lock();
    made[i % kAhead] = std::move(result);
    changed.notify_all();
  };
  const auto may_run = [&] { return taken < n && taken < used + kAhead; };
  const auto threads = StartThreads(helpers, [&](std::size_t) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || taken == n || may_run(); });
      if (stop || taken == n) return;
      run(&lock);
    }
  });
  struct Stop {  // whatever ends the caller's part ends theirs
    ~Stop() {
      const std::lock_guard lock(*mutex);
      *stop = true;
      changed->notify_all();
    }
    std::mutex* mutex;
    std::condition_variable* changed;
    bool* stop;
  } const ends{&mutex, &changed, &stop};
  std::unique_lock lock(mutex);
  while (used < n && !stop) {
    std::optional<T>& next = made[used % kAhead];
    if (!next) {
      if (may_run()) {
        run(&lock);
      } else {
        changed.wait(lock);
      }
      continue;
    }
    T result = std::move(*next);
    next.reset();
    lock.unlock();
    const bool more = use(used, std::move(result));
    lock.lock();
    ++used;
    stop = !more;
    changed.notify_all();
  }
}

}  // namespace orrery
