// Which layers of a config.json have experts, a window, Mamba: lists of words, numbers of layers, a
// letter each. Model says it in the shortest way that it has (window, full_every, first_dense,
// every), else in letters (Model::pattern).
#pragma once

#include "orrery/base/status.h"
#include "orrery/formats/tree.h"
#include "orrery/workload/families/family.h"
#include "orrery/workload/model.h"

namespace orrery::workload::families {

// REQUIRES: the values of the family's row stand in the model. Changes which layers have what.
Status ReadLayers(const formats::Document& document, const Family& family, Scope* scope,
                  Model* model);

}  // namespace orrery::workload::families
