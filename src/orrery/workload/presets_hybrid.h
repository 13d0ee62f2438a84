// Presets of hybrids of Mamba-2, attention and feed-forward layers. Internal to FindModel. Shapes
// are those of the published config.json files.
#pragma once

#include <span>
#include <string_view>

#include "orrery/workload/model.h"

namespace orrery::workload {

std::span<const ModelPreset> HybridPresets();
Model BuildHybridPreset(std::string_view name);  // REQUIRES: one of HybridPresets

}  // namespace orrery::workload
