// What a row of fine-tuning (`task` sft or lora) trains and sees, where its columns do not say: as
// data/release_recipes.yaml has it.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

// How context-parallel ranks see each other's keys.
void MapCpExchange(const Mapping& m);
// Adapters, packed sequences and loss. REQUIRES: degrees, batch, attention and loss are mapped.
void MapTask(const Mapping& m);

}  // namespace orrery::search
