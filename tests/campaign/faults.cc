// What a machine may do to a program, for the campaigns: loaded by LD_PRELOAD it lets one call
// fail, or ends the program there. Calls count from the program's main on.
//
//   ORRERY_FAULT=KIND:N     at the N-th call of that kind, from 1; KIND:N+ from that one on
//     alloc                 an allocation has no memory
//     thread                a thread cannot be started
//     read                  a read fails with EIO
//     kill                  the program is killed before a call that changes files
//     torn                  the same, but half of the bytes are written
//     short                 a write puts one byte
//     fsync                 a flush fails with EIO
//     EIO ENOSPC EDQUOT EINTR  a call that changes files fails so
//   ORRERY_FAULT_COUNT=FILE  how many such calls there were, written when the program ends
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum class Kind { kNone, kAlloc, kThread, kRead, kKill, kTorn, kShort, kFsync, kErrno };

std::atomic<bool> active{false};
std::atomic<long> calls{0};
Kind kind = Kind::kNone;
long at = 0;
bool sticky = false;
int error = 0;

void ReadFault() {
  const char* const text = getenv("ORRERY_FAULT");
  if (text == nullptr) return;
  const char* const colon = strchr(text, ':');
  if (colon == nullptr) return;
  constexpr struct {
    const char* name;
    Kind kind;
    int error;
  } kKinds[] = {{"alloc", Kind::kAlloc, ENOMEM},  {"thread", Kind::kThread, EAGAIN},
                {"read", Kind::kRead, EIO},       {"kill", Kind::kKill, 0},
                {"torn", Kind::kTorn, 0},         {"short", Kind::kShort, 0},
                {"fsync", Kind::kFsync, EIO},     {"EIO", Kind::kErrno, EIO},
                {"ENOSPC", Kind::kErrno, ENOSPC}, {"EDQUOT", Kind::kErrno, EDQUOT},
                {"EINTR", Kind::kErrno, EINTR}};
  for (const auto& row : kKinds) {
    if (strncmp(text, row.name, strlen(row.name)) != 0 || text[strlen(row.name)] != ':') continue;
    kind = row.kind;
    error = row.error;
  }
  at = atol(colon + 1);
  sticky = text[strlen(text) - 1] == '+';
}

// Whether the fault falls on this call.
bool Now() {
  const long n = ++calls;
  return n == at || (sticky && n > at);
}

bool FailsAllocation() { return active && kind == Kind::kAlloc && Now(); }

// Of a call that changes files, before it: whether it fails, errno set.
bool FailsChange() {
  if (!active) return false;
  if (kind == Kind::kKill && Now()) kill(getpid(), SIGKILL);
  if (kind == Kind::kErrno && Now()) {
    errno = error;
    return true;
  }
  return false;
}

template <class Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void WriteCount() {
  const char* const path = getenv("ORRERY_FAULT_COUNT");
  if (path == nullptr || !active) return;
  active = false;
  char digits[32];
  const int size = snprintf(digits, sizeof digits, "%ld\n", calls.load());
  const int file = static_cast<int>(syscall(SYS_open, path, O_WRONLY | O_CREAT | O_TRUNC, 0666));
  if (file < 0) return;
  syscall(SYS_write, file, digits, size);
  syscall(SYS_close, file);
}

int (*real_main)(int, char**, char**) = nullptr;

int CountedMain(int argc, char** argv, char** environment) {
  ReadFault();
  atexit(WriteCount);
  active = true;
  return real_main(argc, argv, environment);
}

bool Writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0; }

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  real_main = main;
  using Start =
      int(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  return Real<Start>("__libc_start_main")(CountedMain, argc, argv, init, fini, rtld_fini,
                                          stack_end);
}

void* malloc(size_t size) {
  if (FailsAllocation()) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (FailsAllocation()) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  if (FailsAllocation()) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  if (FailsAllocation()) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_memalign(alignment, size);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  if (active && kind == Kind::kThread && Now()) return EAGAIN;
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  return Real<Create>("pthread_create")(thread, attributes, run, argument);
}

ssize_t read(int file, void* bytes, size_t size) {
  if (active && kind == Kind::kRead && Now()) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_read, file, bytes, size);
}

ssize_t write(int file, const void* bytes, size_t size) {
  if (FailsChange()) return -1;
  if (active && kind == Kind::kShort && size > 1 && Now()) size = 1;
  if (active && kind == Kind::kTorn && Now()) {
    syscall(SYS_write, file, bytes, size / 2);
    kill(getpid(), SIGKILL);
  }
  return syscall(SYS_write, file, bytes, size);
}
ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t offset) {
  if (FailsChange()) return -1;
  return syscall(SYS_pwrite64, file, bytes, size, offset);
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return pwrite64(file, bytes, size, offset);
}

int fsync(int file) {
  if (FailsChange()) return -1;
  if (active && kind == Kind::kFsync && Now()) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}
int fdatasync(int file) {
  if (FailsChange()) return -1;
  return static_cast<int>(syscall(SYS_fdatasync, file));
}
int rename(const char* from, const char* to) {
  if (FailsChange()) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}
int unlink(const char* path) {
  if (FailsChange()) return -1;
  return static_cast<int>(syscall(SYS_unlink, path));
}
int ftruncate64(int file, off64_t size) {
  if (FailsChange()) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, file, size));
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
int fchmod(int file, mode_t mode) {
  if (FailsChange()) return -1;
  return static_cast<int>(syscall(SYS_fchmod, file, mode));
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  if (Writes(flags) && FailsChange()) return -1;
  return static_cast<int>(syscall(SYS_open, path, flags, mode));
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return open64(path, flags, mode);
}
}
