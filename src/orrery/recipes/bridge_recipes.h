// Recipes of Megatron Bridge that are written in Python, as the YAML that they stand for.
#pragma once

#include <string>

#include "orrery/base/status.h"

namespace orrery::recipes {

// What `--recipe name` of Megatron Bridge's run_recipe.py sets, as its YAML. Error: no such recipe
// is known, with the nearest that are.
Result<std::string> BridgeRecipe(const std::string& name, std::string_view said = "--recipe");

}  // namespace orrery::recipes
