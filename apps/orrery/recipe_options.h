// The options with which `import` and `simulate` read a recipe.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/recipes/import.h"

namespace orrery::app {

struct RecipeOptions {
  std::string from, cluster, model, args;
  std::int64_t nodes = 0, gpus = 0;
  std::vector<std::string> env, leave_out, set;

  void Declare(CLI::App* app);  // all but --set
  Result<recipes::Options> Resolve() const;
};

}  // namespace orrery::app
