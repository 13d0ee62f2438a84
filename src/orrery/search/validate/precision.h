// A row's precision: of GEMMs and attention, of gradients, and what stays in bf16 beside 8 bits.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

Status MapPrecision(const Mapping& m);
// What recipes keep in bf16 or run in 8 bits, without the parts that this row's run lacks.
// REQUIRES: model, attention and experts are mapped.
void KeepToWhatIsThere(const Mapping& m);

}  // namespace orrery::search
