#include "orrery/memory/layer_states.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace orrery::memory {

void LayerStates::Get(std::int32_t first, std::int32_t last, std::vector<LayerRun>* runs) const {
  std::int32_t next = first;
  for (const LayerRun& run : runs_) {
    if (run.last < first) continue;
    if (run.first > last) break;
    if (run.first > next) runs->push_back({next, run.first - 1, kNothing});
    runs->push_back({std::max(run.first, first), std::min(run.last, last), run.state});
    next = runs->back().last + 1;
  }
  if (next <= last) runs->push_back({next, last, kNothing});
}

void LayerStates::Set(const LayerRun& run) {
  // [begin, end) are the runs that touch the new one; at most their outer parts stay.
  auto begin = runs_.begin();
  while (begin != runs_.end() && begin->last < run.first) ++begin;
  auto end = begin;
  while (end != runs_.end() && end->first <= run.last) ++end;
  std::array<LayerRun, 3> pieces;
  std::size_t count = 0;
  if (begin != end && begin->first < run.first) {
    pieces[count++] = {begin->first, run.first - 1, begin->state};
  }
  if (run.state != kNothing) pieces[count++] = run;
  if (begin != end && (end - 1)->last > run.last) {
    pieces[count++] = {run.last + 1, (end - 1)->last, (end - 1)->state};
  }
  const std::size_t old = static_cast<std::size_t>(end - begin);
  const std::size_t both = std::min(old, count);
  begin = std::copy_n(pieces.begin(), both, begin);
  if (count > old) {
    runs_.insert(begin, pieces.begin() + static_cast<std::ptrdiff_t>(both),
                 pieces.begin() + static_cast<std::ptrdiff_t>(count));
  } else {
    runs_.erase(begin, begin + static_cast<std::ptrdiff_t>(old - both));
  }
}

}  // namespace orrery::memory
