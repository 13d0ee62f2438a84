// Presets of models with experts, and of the dense models of their families (Qwen3). Internal to
// FindModel. Shapes are those of the published config.json files.
#pragma once

#include <span>
#include <string_view>

#include "orrery/workload/model.h"

namespace orrery::workload {

std::span<const ModelPreset> ExpertPresets();
Model BuildExpertPreset(std::string_view name);  // REQUIRES: one of ExpertPresets

}  // namespace orrery::workload
