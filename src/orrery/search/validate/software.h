// A row's software columns: attention's kernels, what runs beside what, graphs, loss, libraries.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

void MapAttention(const Mapping& m);
// REQUIRES: schedule, sharding and precision are mapped.
Status MapOverlap(const Mapping& m);
// What libraries and layers keep on the device; the loss.
Status MapLibraries(const Mapping& m);
// Where tensor-parallel communication cannot run in pieces it stands alone. REQUIRES: all else is
// mapped.
void MapUserbuffers(const Mapping& m);

}  // namespace orrery::search
