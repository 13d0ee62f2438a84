// A row's model columns → workload::Model, by a table of architectures.
//
// The dimensions come from the columns; what they do not say (norm, activation, positions, biases,
// tied embeddings, the tokenizer's vocabulary) comes from the public configuration of the model's
// family, found by the beginning of its name. A name that no rule knows is read from its shape.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

// Fills m.out->model and the preset that it begins with. Errors name column and value.
Status MapModel(const Mapping& m);

}  // namespace orrery::search
