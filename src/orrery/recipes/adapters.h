// Which linear layers have adapters, from the names of a model's modules (PEFT's target_modules).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/recipes/reading.h"

namespace orrery::recipes {

// Sets training.lora_targets from names, patterns over them ("layers.[\\d]+.(mlp|self_attn).
// (up|down|gate|q|k|v|o)_proj"), "all" or "all-linear"; refuses `argument` where none of them is of
// a linear layer. A part of what lies in one product here (q and v, gate) is priced as all of it,
// which the draft says.
// `experts`: what training.lora_experts says where feed-forwards are named, in models that have
// experts; empty: it is left as it is.
void SetLoraTargets(const std::vector<std::string>& modules, std::string_view argument,
                    Reading* reading, std::string_view experts = "");

// PEFT's target_parameters, names of experts' tensors beside `modules`: both of each expert's, or
// refused.
void SetLoraParameters(const std::vector<std::string>& parameters,
                       const std::vector<std::string>& modules, std::string_view argument,
                       Reading* reading);

}  // namespace orrery::recipes
