// What strangers' bytes are given to: one function a reader. A target returns whatever the reader
// says; a broken promise (a round trip that differs, an answer that does not verify) aborts.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <span>
#include <string>
#include <string_view>

#include "orrery/base/check.h"

namespace orrery::fuzz {

struct Target {
  std::string_view name;  // of its corpus: corpus/NAME/
  void (*run)(std::string_view bytes);
};
std::span<const Target> Targets();

// A file in memory for readers that take a path; the next call writes it anew.
inline std::string AsFile(std::string_view bytes) {
  static const int file = memfd_create("input", MFD_CLOEXEC);
  ORRERY_CHECK(file >= 0 && ftruncate(file, 0) == 0, "a file in memory");
  ORRERY_CHECK(pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "a file in memory takes its bytes");
  return "/proc/self/fd/" + std::to_string(file);
}

}  // namespace orrery::fuzz
