/* The part of the CUDA runtime that answers: one device, streams and events that are numbers.
 *
 * Everything else that a CUDA build of PyTorch links is a stub that returns 0 (success); see
 * build.py. Kernels do nothing and device memory has no contents.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static uintptr_t next_handle = 16;

int cudaGetDeviceCount(int* count) { *count = 1; return 0; }
int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaDriverGetVersion(int* version) { *version = 13000; return 0; }
int cudaRuntimeGetVersion(int* version) { *version = 13000; return 0; }
const char* cudaGetErrorString(int error) { return "stub"; }
const char* cudaGetErrorName(int error) { return "stub"; }

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -3;
  return 0;
}

int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  *stream = (void*)(next_handle += 16);
  return 0;
}

int cudaEventCreateWithFlags(void** event, unsigned flags) {
  *event = (void*)(next_handle += 16);
  return 0;
}

int cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = (size_t)80 << 30;
  return 0;
}

/* Device memory is address space without pages: touching it from the host is a fault. */
int cudaMalloc(void** pointer, size_t size) {
  void* got = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *pointer = got == MAP_FAILED ? NULL : got;
  return got == MAP_FAILED ? 2 : 0;
}

/* An attribute: 9.0 as the compute capability (75 major, 76 minor), 132 processors (16). */
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 16 ? 132 : attribute == 76 ? 0 : 1024;
  return 0;
}

/* cudaDeviceProp of CUDA 13, by offset, since no CUDA header is at hand: an H100. What comes after
 * the processor count is only read as limits, so it is filled with 2048. */
int cudaGetDeviceProperties(void* properties, int device) {
  int* field = (int*)properties;
  memcpy(properties, "stub H100", 10);
  for (int i = 97; i < 250; ++i) field[i] = 2048;
  *(size_t*)(field + 72) = (size_t)80 << 30; /* totalGlobalMem */
  *(size_t*)(field + 74) = 49152;            /* sharedMemPerBlock */
  field[76] = 65536;                         /* regsPerBlock */
  field[77] = 32;                            /* warpSize */
  *(size_t*)(field + 78) = 2147483647;       /* memPitch */
  field[80] = 1024;                          /* maxThreadsPerBlock */
  field[81] = field[82] = 1024;              /* maxThreadsDim */
  field[83] = 64;
  field[84] = 2147483647; /* maxGridSize */
  field[85] = field[86] = 65535;
  *(size_t*)(field + 88) = 65536; /* totalConstMem */
  field[90] = 9;                  /* major */
  field[91] = 0;                  /* minor */
  *(size_t*)(field + 92) = 512;   /* textureAlignment */
  *(size_t*)(field + 94) = 32;    /* texturePitchAlignment */
  field[96] = 132;                /* multiProcessorCount */
  return 0;
}

int cudaStreamIsCapturing(void* stream, int* status) { *status = 0; return 0; }
int cudaDeviceCanAccessPeer(int* can, int a, int b) { *can = 0; return 0; }

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}

/* Host memory is real, since the host writes to it. */
int cudaHostAlloc(void** pointer, size_t size, unsigned flags) {
  *pointer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return 0;
}

/* cudaFuncAttributes: three sizes, then threads per block, registers, PTX and binary version. */
int cudaFuncGetAttributes(void* attributes, const void* function) {
  int* field = (int*)attributes;
  memset(attributes, 0, 64);
  field[6] = 1024;
  field[7] = 32;
  field[8] = field[9] = 90;
  return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                           int threads, size_t shared,
                                                           unsigned flags) {
  *blocks = 2;
  return 0;
}
