/* A device with a limit, for PyTorch's allocator on a machine without a GPU.
 *
 * Preloaded over the stub CUDA libraries (tools/allocator/stubs), it answers what the caching
 * allocator asks of the driver: memory with a total of ORRERY_DEVICE_BYTES at rising addresses,
 * physical pages for expandable segments, and events that are reached unless their stream is busy
 * (orrery_set_busy). Memory has no contents: addresses are numbers.
 *
 *   cc -shared -fPIC -o libnvidia-ml.so.1 device.c
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxSegments = 1 << 16, kMaxEvents = 1 << 20, kOutOfMemory = 2, kNotReady = 600 };

static uintptr_t next_address = (uintptr_t)1 << 40;
static size_t used;
static struct {
  uintptr_t address;
  size_t bytes;
} segments[kMaxSegments];
static int segment_count;

static void* event_stream[kMaxEvents];
static void* busy_streams[64];
static int busy_count;

static size_t total(void) {
  const char* text = getenv("ORRERY_DEVICE_BYTES");
  return text ? strtoull(text, NULL, 10) : (size_t)80 << 30;
}

int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = total();
  *free_bytes = total() - used;
  return 0;
}

int cudaMalloc(void** pointer, size_t size) {
  if (used + size > total()) return kOutOfMemory;
  used += size;
  segments[segment_count].address = next_address;
  segments[segment_count++].bytes = size;
  *pointer = (void*)next_address;
  next_address += size;
  return 0;
}

int cudaFree(void* pointer) {
  for (int i = segment_count - 1; i >= 0; --i) {
    if (segments[i].address != (uintptr_t)pointer) continue;
    used -= segments[i].bytes;
    segments[i] = segments[--segment_count];
    return 0;
  }
  return 0;
}

/* Expandable segments: address ranges and pages. */
int cuMemAddressReserve(uintptr_t* pointer, size_t size, size_t alignment, uintptr_t at,
                        unsigned long long flags) {
  *pointer = next_address;
  next_address += size;
  return 0;
}

int cuMemCreate(unsigned long long* handle, size_t size, const void* properties,
                unsigned long long flags) {
  if (used + size > total()) return kOutOfMemory;
  used += size;
  *handle = size;
  return 0;
}

int cuMemRelease(unsigned long long handle) {
  used -= handle;
  return 0;
}

int cuMemGetAllocationGranularity(size_t* granularity, const void* properties, int option) {
  *granularity = 2 << 20;
  return 0;
}

/* Events: numbers; an event belongs to the stream that it was last recorded on. */
int cudaEventCreateWithFlags(void** event, unsigned flags) {
  static uintptr_t count;
  *event = (void*)(++count % kMaxEvents);
  return 0;
}

int cudaEventRecord(void* event, void* stream) {
  event_stream[(uintptr_t)event] = stream;
  return 0;
}

int cudaEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}

int cudaEventQuery(void* event) {
  for (int i = 0; i < busy_count; ++i) {
    if (busy_streams[i] == event_stream[(uintptr_t)event]) return kNotReady;
  }
  return 0;
}

void orrery_set_busy(void* stream, int busy) {
  for (int i = 0; i < busy_count; ++i) {
    if (busy_streams[i] == stream) busy_streams[i--] = busy_streams[--busy_count];
  }
  if (busy) busy_streams[busy_count++] = stream;
}

/* The driver's functions are looked up by name at run time. */
static void* driver(const char* name) {
  if (!strcmp(name, "cuMemAddressReserve")) return cuMemAddressReserve;
  if (!strcmp(name, "cuMemCreate")) return cuMemCreate;
  if (!strcmp(name, "cuMemRelease")) return cuMemRelease;
  if (!strcmp(name, "cuMemGetAllocationGranularity")) return cuMemGetAllocationGranularity;
  return NULL;
}

static int nothing(void) { return 0; }

/* The management library (this library also stands in for libnvidia-ml.so.1): no fabric. */
int nvmlInit_v2(void) { return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = NULL;
  return 0;
}
int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) { return 3; /* not supported */ }
int nvmlDeviceGetGpuFabricInfo(void* device, void* info) { return 3; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, void* info) { return 3; }
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, void* list) {
  *count = 0;
  return 0;
}

int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                     unsigned long long flags, int* status) {
  *function = driver(symbol);
  if (*function == NULL) *function = nothing;
  if (status) *status = 0;
  return 0;
}

int cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                            int* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, status);
}
