#include "orrery/network/packet/windows.h"

#include <utility>

#include "orrery/base/threads.h"

namespace orrery::network::packet {
namespace {

constexpr int kLooks = 20'000;  // what is done between two windows

// Until the value is not `seen`. False if it took longer than somebody with a core would.
bool WaitWhile(const std::atomic<std::uint32_t>& value, std::uint32_t seen) {
  if (ChangesSoon(value, seen, kLooks)) return true;
  value.wait(seen, std::memory_order_acquire);
  return false;
}

}  // namespace

WindowThreads::WindowThreads(int threads, std::function<void(std::size_t)> work)
    : work_(std::move(work)) {
  threads_ = StartThreads(static_cast<std::size_t>(threads) - 1,
                          [this](std::size_t number) { Run(number); });
}

WindowThreads::~WindowThreads() {
  stop_.store(true, std::memory_order_release);
  opened_.fetch_add(1, std::memory_order_release);
  opened_.notify_all();
}

void WindowThreads::Open() {
  open_.store(true);
  opened_.fetch_add(1, std::memory_order_release);
  opened_.notify_all();
}

// Who comes in before the window is closed is seen inside; who comes later sees it closed.
bool WindowThreads::Close() {
  open_.store(false);
  bool quick = true;
  for (;;) {
    const std::uint32_t inside = inside_.load();
    if (inside == 0) return quick;
    quick &= WaitWhile(inside_, inside);
  }
}

void WindowThreads::Run(std::size_t number) {
  std::uint32_t seen = 0;
  for (;;) {
    WaitWhile(opened_, seen);
    seen = opened_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    inside_.fetch_add(1);
    if (open_.load()) work_(number);
    inside_.fetch_sub(1);
    inside_.notify_one();
  }
}

}  // namespace orrery::network::packet
