// GPUs as tables, command lines, drivers, profiles and logs call them: "H100-SXM5-80GB", "NVIDIA
// A100 80GB PCIe", "GeForce RTX 3090", "B200 (power limited)".
#pragma once

#include <optional>
#include <string_view>

#include "orrery/cluster/catalog.h"

namespace orrery::cluster {

// The device of this name with this memory (nothing: that of the name, if it says one; then
// whatever its board); else the first of this name; null where there is none. A board by its word
// (other clocks, and NVLink between pairs at most), or one that has no word where the model has no
// such. "3090" is an RTX 3090 where no GPU has the whole name. Lives as long as the catalog.
const DeviceSpec* FindGpu(std::string_view name, std::optional<double> gigabytes,
                          const Catalog& catalog = Catalog::BuiltIn());

// Whether a device's memory is what somebody calls so many GB.
bool HasMemory(const DeviceSpec& device, double gigabytes);

}  // namespace orrery::cluster
