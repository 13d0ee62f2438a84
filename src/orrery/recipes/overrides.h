// A command that names a configuration file and sets keys of it, in a launch script: MaxText's
// "key=value", Hydra's and OmegaConf's "a.b=c" (NeMo, LLM Foundry, LLaMA-Factory), torchtitan's
// "--a.b c", and Megatron Bridge's run_recipe.py, whose --recipe names one in Python.
#pragma once

#include <functional>
#include <optional>

#include "orrery/recipes/import.h"
#include "orrery/recipes/reading.h"
#include "orrery/recipes/table.h"

namespace orrery::recipes {

struct Commanded {
  File file;  // the configuration with what the command sets in it
  Launch launch;
};

// The table of a configuration's dialect; null: it is of none.
using TableOf = std::function<const Table*(const File& file)>;

// nullopt: no command of the script names a configuration that can be found and is known. Errors: a
// key that matters is set to a variable that the script does not set.
Result<std::optional<Commanded>> FindConfiguration(const File& script, const Options& options,
                                                   const TableOf& table_of);

}  // namespace orrery::recipes
