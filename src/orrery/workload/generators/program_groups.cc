// Layers that run again at once: Megatron's recompute_method uniform with several layers.
//
// Forward, a group of layers keeps the input of its first alone, which is the output of the group
// before. Backward, the whole group runs again first and keeps everything; then its layers'
// backward passes follow, last to first.
#include <algorithm>

#include "orrery/workload/generators/program_writer.h"

namespace orrery::workload {

void ProgramWriter::GroupedLayers(bool forward, const Chunk& chunk, int index, int from, int to,
                                  int microbatch) {
  const int size = plan().recomputed_together();
  const int step = forward ? 1 : -1;
  for (int unit = from; (to - unit) * step >= 0;) {
    const int first = (unit - 1) / size * size + 1;
    const int last = std::min(first + size - 1, chunk.parts.layers);
    const int end = forward ? std::min(to, last) : std::max(to, first);
    if (!forward && unit == last && first < last) {
      GroupRun(true, true, chunk, index, first, last, microbatch);
    }
    GroupRun(forward, !forward, chunk, index, unit, end, microbatch);
    unit = end + step;
  }
}

// Units of one group, one call a run of equal ones.
void ProgramWriter::GroupRun(bool forward, bool again, const Chunk& chunk, int index, int from,
                             int to, int microbatch) {
  const int size = plan().recomputed_together();
  const auto places = [&](int unit) {
    const int first = (unit - 1) / size * size + 1;
    const int last = std::min(first + size - 1, chunk.parts.layers);
    if (first == last) return std::uint8_t{0};  // a rest of one layer runs again by itself
    return static_cast<std::uint8_t>((forward && unit > first ? kGroupInside : 0) |
                                     (unit < last ? kGroupHandsOn : 0) | (again ? kGroupAgain : 0));
  };
  const auto kind = [&](int unit) { return chunk.parts.kinds[static_cast<std::size_t>(unit - 1)]; };
  const int step = forward ? 1 : -1;
  for (int unit = from; (to - unit) * step >= 0;) {
    int end = unit + step;
    while ((to - end) * step >= 0 && kind(end) == kind(unit) && places(end) == places(unit) &&
           !draws(kind(unit))) {
      end += step;
    }
    const int layer = chunk.first_layer + unit - 1;
    const bool adds = !forward && adds_tensors(microbatch);
    Call(LayerBlock(forward, kind(unit), adds, layer, places(unit)), index, microbatch, layer,
         (end - unit) * step);
    unit = end;
  }
}

}  // namespace orrery::workload
