#include "orrery/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace orrery {

void CheckFailed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "orrery: internal error at %s:%d: %s (%s)\n", file, line, condition, why);
  std::abort();
}

}  // namespace orrery
