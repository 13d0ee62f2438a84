// Layers of a config.json that have sizes of their own: lists of numbers, one a layer, and the
// searched layers of Nemotron (block_configs). Model says them as `sizes` and, where layers lack a
// part, as `pattern`.
//
// A block of Nemotron's says how many query heads share a key (attention.n_heads_in_group) and the
// width of its feed-forward as a multiple of two thirds of the hidden size, rounded up to a
// multiple of 256 (ffn.ffn_mult); either part may be missing (no_op), and a layer without both is
// none. Source: nvidia/Llama-3_3-Nemotron-Super-49B-v1, modeling_decilm.py.
#pragma once

#include "orrery/base/status.h"
#include "orrery/formats/tree.h"
#include "orrery/workload/families/family.h"
#include "orrery/workload/model.h"

namespace orrery::workload::families {

// REQUIRES: the values of the family's row stand in the model. Errors name line, layer and remedy.
Status ReadSizes(const formats::Document& document, const Family& family, Scope* scope,
                 Model* model);

}  // namespace orrery::workload::families
