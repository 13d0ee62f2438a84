// Presets of dense models. Internal to FindModel. Shapes are those of
// the published config.json files.
#pragma once

#include <span>
#include <string_view>

#include "orrery/workload/model.h"

namespace orrery::workload {

std::span<const ModelPreset> DensePresets();
Model BuildDensePreset(std::string_view name);  // REQUIRES: one of DensePresets

}  // namespace orrery::workload
