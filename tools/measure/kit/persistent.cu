// A companion that loads the device as a collective's kernel does: a few blocks of 512 threads that
// stay resident and move data HBM to HBM, at a set pace, until told to stop.
//
// Each block owns a slice of the buffers and goes round it in chunks of 32 KiB: every thread has
// four independent 16-byte loads in flight, then stores. `copy` reads one buffer and writes one;
// `reduce` reads two, adds them as bf16 and writes the third. Pace: chunk i may not start before t0
// + i * ns_per_chunk on the global timer; the schedule is absolute, so the timer's coarse ticks do
// not add up. A block that waits spins, like a collective that waits for its peer. End: a flag in
// device memory, looked at with every 16th chunk, or `max_ns` after the start, so that a lost flag
// cannot hang the device.
//
// Built as a plain shared library with a C interface (nvcc takes seconds; a torch extension takes
// minutes).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;
constexpr int kChunkVectors = kThreads * kUnroll;  // of 16 bytes: 32 KiB
constexpr unsigned kLookEvery = 16;
// A collective's block also holds tens of KiB of shared memory, which keeps blocks of large matrix
// kernels off its SM. The size is an assumption, not a reading of any library; the kernel does not
// use the memory.
constexpr int kSharedBytes = 64 << 10;

__device__ __forceinline__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ uint32_t AddPair(uint32_t a, uint32_t b) {
  __nv_bfloat162 x = *reinterpret_cast<__nv_bfloat162*>(&a);
  __nv_bfloat162 y = *reinterpret_cast<__nv_bfloat162*>(&b);
  __nv_bfloat162 sum = __hadd2(x, y);
  return *reinterpret_cast<uint32_t*>(&sum);
}

__device__ __forceinline__ uint4 Add(uint4 a, uint4 b) {
  return make_uint4(AddPair(a.x, b.x), AddPair(a.y, b.y), AddPair(a.z, b.z), AddPair(a.w, b.w));
}

// counters: per block {chunks moved, start ns, end ns}.
template <bool kReduce>
__global__ void __launch_bounds__(kThreads)
    Companion(uint4* dst, const uint4* a, const uint4* b, uint64_t vectors_per_block,
              double ns_per_chunk, uint64_t max_ns, const volatile uint32_t* stop,
              uint64_t* counters) {
  __shared__ int leave[2];  // by turns: a block may still read one while the next is written
  const uint64_t base = blockIdx.x * vectors_per_block;
  const uint64_t start = NowNs();
  uint64_t at = 0;
  uint64_t chunks = 0;
  for (;;) {
    uint4 v[kUnroll];
    uint4 w[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const uint64_t here = base + at + i * kThreads + threadIdx.x;
      v[i] = a[here];
      if (kReduce) w[i] = b[here];
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      dst[base + at + i * kThreads + threadIdx.x] = kReduce ? Add(v[i], w[i]) : v[i];
    }
    at += kChunkVectors;
    if (at + kChunkVectors > vectors_per_block) at = 0;
    ++chunks;
    if (threadIdx.x == 0) {
      const uint64_t due = start + static_cast<uint64_t>(chunks * ns_per_chunk);
      bool out = chunks % kLookEvery == 0 && *stop != 0;
      uint64_t now = NowNs();
      while (!out && now < due) {
        out = *stop != 0;
        now = NowNs();
      }
      leave[chunks & 1] = out || now - start >= max_ns;
    }
    __syncthreads();
    if (leave[chunks & 1]) break;
  }
  if (threadIdx.x == 0) {
    counters[blockIdx.x * 3 + 0] = chunks;
    counters[blockIdx.x * 3 + 1] = start;
    counters[blockIdx.x * 3 + 2] = NowNs();
  }
}

}  // namespace

extern "C" {

// Bytes of payload in one chunk of one block.
uint64_t orrery_companion_chunk_bytes() { return kChunkVectors * sizeof(uint4); }

// Starts `blocks` blocks on `stream`. REQUIRES 16-byte aligned buffers of blocks * bytes_per_block
// bytes, bytes_per_block a multiple of the chunk, counters of 3 * blocks words. Returns a
// cudaError_t.
int orrery_companion_launch(int reduce, void* dst, const void* a, const void* b,
                            uint64_t bytes_per_block, int blocks, double ns_per_chunk,
                            uint64_t max_ns, const void* stop, void* counters, void* stream) {
  auto* d = static_cast<uint4*>(dst);
  const auto* x = static_cast<const uint4*>(a);
  const auto* y = static_cast<const uint4*>(b);
  const auto* flag = static_cast<const volatile uint32_t*>(stop);
  auto* count = static_cast<uint64_t*>(counters);
  const uint64_t vectors = bytes_per_block / sizeof(uint4);
  auto s = static_cast<cudaStream_t>(stream);
  auto kernel = reduce != 0 ? Companion<true> : Companion<false>;
  const cudaError_t set =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (set != cudaSuccess) return static_cast<int>(set);
  kernel<<<blocks, kThreads, kSharedBytes, s>>>(d, x, y, vectors, ns_per_chunk, max_ns, flag,
                                                count);
  return static_cast<int>(cudaGetLastError());
}

const char* orrery_companion_error(int code) {
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

}  // extern "C"
