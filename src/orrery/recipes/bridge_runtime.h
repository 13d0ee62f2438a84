// What Megatron Bridge changes in a configuration before it trains (runtime_config_update): its
// mixed precision and its overlap of communication overrule what model, ddp and optimizer say.
#pragma once

#include "orrery/formats/tree.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {

// After the leaves of `document` were added and before they are translated.
void ApplyBridgeRuntime(const formats::Document& document, Reading* r);
// After Megatron's rules: switches that are said to be off, where Bridge's releases turn them on.
void ApplyBridgeSwitches(Reading* r);

}  // namespace orrery::recipes
