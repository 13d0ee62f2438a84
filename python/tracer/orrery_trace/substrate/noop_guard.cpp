// A device guard for CUDA that owns no device: it lets a CPU-only PyTorch run autograd on fake
// `cuda` tensors, and keeps a log of stream switches and events.
//
// Models: one device, any number of streams, events that are always complete. The current stream is
// per thread, as in CUDA. Nothing here allocates, launches or copies: with a *real* `cuda` tensor
// PyTorch still fails, because no CUDA kernel and no CUDA allocator exist in that build.
// Source of the contract: c10/core/impl/DeviceGuardImplInterface.h of the PyTorch built against.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using c10::StreamId;

// What one entry of the log says; the numbers are the contract with guard.py.
enum class Kind : int64_t {
  kSwitch = 0,
  kRecord = 1,
  kWait = 2,
  kSyncStream = 3,
  kSyncDevice = 4,
  kSyncEvent = 5
};

struct Entry {
  int64_t kind;
  int64_t stream;
  int64_t event;
};

std::mutex log_mutex;
std::vector<Entry> entries;
std::atomic<StreamId> next_stream{1};
std::atomic<int64_t> next_event{1};
thread_local StreamId current_stream = 0;

void Log(Kind kind, int64_t stream, int64_t event) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  entries.push_back({static_cast<int64_t>(kind), stream, event});
}

// Returns the stream before.
StreamId Switch(StreamId to) {
  const StreamId from = current_stream;
  current_stream = to;
  if (from != to) Log(Kind::kSwitch, to, 0);
  return from;
}

struct NoDeviceGuard final : public c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return Device(DeviceType::CUDA, 0); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }

  Stream Make(StreamId id) const { return Stream(Stream::UNSAFE, getDevice(), id); }
  Stream getStream(Device) const noexcept override { return Make(current_stream); }
  Stream getDefaultStream(Device) const override { return Make(0); }
  Stream getNewStream(Device, int = 0) const override { return Make(next_stream++); }
  Stream getStreamFromGlobalPool(Device, bool = false) const override {
    return Make(next_stream++);
  }
  Stream exchangeStream(Stream to) const noexcept override { return Make(Switch(to.id())); }

  // An event is a number in place of a pointer; re-recording keeps it.
  void record(void** event, const Stream& stream, const DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = reinterpret_cast<void*>(next_event++);
    Log(Kind::kRecord, stream.id(), reinterpret_cast<int64_t>(*event));
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) Log(Kind::kWait, stream.id(), reinterpret_cast<int64_t>(event));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Log(Kind::kSyncEvent, 0, reinterpret_cast<int64_t>(event));
  }
  double elapsedTime(void*, void*, const DeviceIndex) const override { return 0.0; }

  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& stream) const override {
    Log(Kind::kSyncStream, stream.id(), 0);
  }
  // Not in every release since 2.4; where it is, this overrides it.
  void synchronizeDevice(const DeviceIndex) const { Log(Kind::kSyncDevice, 0, 0); }
};

// What the rest of PyTorch asks about CUDA beyond the guard. `getAccelerator`, which the autograd
// engine consults for stream order, wants hasCUDA(); everything that would touch a device stays
// with the base class, which throws.
struct NoDeviceHooks final : public at::CUDAHooksInterface {
  explicit NoDeviceHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  // `torch.tensor(..., pin_memory=True)` makes a real tensor on the host before the fake one.
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  // Not in every release since 2.4, of which some call `init` `initCUDA`.
  void initCUDA() const {}
  void init() const {}
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  void deviceSynchronize(DeviceIndex) const override { Log(Kind::kSyncDevice, 0, 0); }
};

// DDP's stopwatch: without it a CUDA build times the reducer with events of a driver.
struct NoTimer final : public c10d::Timer {
  void record(Event) override {}
  std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

}  // namespace

extern "C" {

// Puts the guard in place; again once a CUDA build's library is loaded, which sets its own guard.
void orrery_set_guard() {
  static NoDeviceGuard* const guard = new NoDeviceGuard();  // the registry outlives main()
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(guard);
}

// Registers guard and hooks. Returns 0; 2 if PyTorch had asked for its CUDA hooks before, and so
// keeps the ones that say "no CUDA". The hooks of a CUDA build, which come later and at a lower
// priority, are not taken.
int orrery_install_guard() {
  orrery_set_guard();
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks",
      [](at::CUDAHooksArgs args) -> std::unique_ptr<at::CUDAHooksInterface> {
        return std::make_unique<NoDeviceHooks>(args);
      },
      c10::REGISTRY_PREFERRED);
  c10d::TimerRegistry()->Register(
      c10::kCUDA,
      [](c10::Device) -> std::unique_ptr<c10d::Timer> { return std::make_unique<NoTimer>(); },
      c10::REGISTRY_PREFERRED);
  return at::detail::getCUDAHooks().hasCUDA() ? 0 : 2;
}

int64_t orrery_current_stream() { return current_stream; }

// What `torch.cuda.set_stream` does.
void orrery_set_stream(int64_t stream) { Switch(stream); }

// What `torch.cuda.synchronize` does.
void orrery_sync_device() { Log(Kind::kSyncDevice, 0, 0); }

int64_t orrery_log_size() {
  const std::lock_guard<std::mutex> lock(log_mutex);
  return static_cast<int64_t>(entries.size());
}

// Copies up to `capacity` entries of three numbers each to `out` and empties the log.
int64_t orrery_take_log(int64_t* out, int64_t capacity) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  int64_t count = 0;
  for (const Entry& e : entries) {
    if (count == capacity) break;
    out[3 * count] = e.kind;
    out[3 * count + 1] = e.stream;
    out[3 * count + 2] = e.event;
    ++count;
  }
  entries.clear();
  return count;
}
}
