// A row's software columns: attention's kernels, what runs beside what, graphs, loss, libraries.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

void MapAttention(const Mapping& m);
// REQUIRES: stages, sharding and precision are mapped.
Status MapOverlap(const Mapping& m);
// What libraries and layers keep on the device; the loss.
void MapLibraries(const Mapping& m);

}  // namespace orrery::search
