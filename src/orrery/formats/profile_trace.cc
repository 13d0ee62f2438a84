#include "orrery/formats/profile_trace.h"

#include <algorithm>

namespace orrery::formats {

void SortEvents(std::vector<ProfileTrace::Event>* events) {
  const auto before = [](const ProfileTrace::Event& a, const ProfileTrace::Event& b) {
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    return a.duration_ns > b.duration_ns;
  };
  // Profilers mostly write events in this order.
  if (!std::is_sorted(events->begin(), events->end(), before)) {
    std::stable_sort(events->begin(), events->end(), before);
  }
}

}  // namespace orrery::formats
