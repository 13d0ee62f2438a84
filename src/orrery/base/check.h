// ORRERY_CHECK: a broken invariant stops the process with file, line and reason, in release too.
// Nothing that a user can get wrong may end here: that is a Status (base/status.h).
#pragma once

namespace orrery {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const char* why);

}  // namespace orrery

#define ORRERY_CHECK(condition, why)                              \
  do {                                                            \
    if (!(condition)) [[unlikely]]                                \
      ::orrery::CheckFailed(__FILE__, __LINE__, #condition, why); \
  } while (false)
