// A row's degrees, batch and stages.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

Status MapDegrees(const Mapping& m);
// `open_micro_batch`: of a global batch that nothing cuts. REQUIRES: degrees are mapped.
Status MapBatch(const Mapping& m, std::int64_t open_micro_batch);
// Chunks, the layers of each, and groups of micro-batches. REQUIRES: degrees, batch and model.
void MapStages(const Mapping& m);

}  // namespace orrery::search
