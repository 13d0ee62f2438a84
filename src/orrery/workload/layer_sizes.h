// Sizes of single layers as a job file has them (model.layer_sizes): runs of layers, one behind
// the other, `COUNT` or `COUNT*NAME=VALUE+NAME=VALUE`, with commas between; names are heads,
// kv_heads, head_dim, ffn_hidden, compress and borrows_keys (1). "2, 4*ffn_hidden=5376,
// 1*kv_heads=4+ffn_hidden=28672" says seven layers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

// Errors say what is wrong and how to write it, not where.
Result<std::vector<LayerSizes>> ParseLayerSizes(std::string_view text);
std::string SayLayerSizes(const Model& model);  // empty where all layers are alike

}  // namespace orrery::workload
