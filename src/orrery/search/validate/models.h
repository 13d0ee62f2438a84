// A row's model columns → workload::Model, by a table of architectures.
//
// The dimensions come from the columns; what they do not say (norm, activation, positions, biases,
// tied embeddings, the tokenizer's vocabulary) comes from the public configuration of the model's
// family, found by the beginning of its name. A name that no rule knows is read from its shape.
#pragma once

#include <string>
#include <vector>

#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/names.h"
#include "orrery/search/validate/row_tables.h"
#include "orrery/workload/model.h"

namespace orrery::search {

// Appends every default used to `assumed`. Errors name column and value.
Result<workload::Model> MapModel(const Configuration& row, const job::FrameworkRecipe& recipe,
                                 const RowTables& tables, std::vector<std::string>* assumed);

}  // namespace orrery::search
