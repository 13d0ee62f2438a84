// A row's precision: of GEMMs and attention, of gradients, and what stays in bf16 beside 8 bits.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

Status MapPrecision(const Mapping& m);
// Linear layers that stay in bf16, of those that the model has. REQUIRES: all else is mapped.
void MapBf16Parts(const Mapping& m);

}  // namespace orrery::search
