// The model of a recipe: what --model says, a config.json beside it, or the name that it gives, as
// data/recipes/models.csv knows it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/recipes/dialects.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {

// Takes the model's config.json out of `files`; empty: there is none.
std::string TakeModelFile(std::vector<File>* files);

// A framework's configuration, which is one file (`kind`: YAML), and the path of the model's
// config.json that is given beside it; empty: there is none.
struct Configuration {
  File file;
  std::string model;
};
Result<Configuration> TakeConfiguration(const std::vector<File>& files, std::string_view framework,
                                        std::string_view kind = "YAML");

// The keys of `model` of a name that a framework ("hub", "torchtitan", "maxtext") gives a model;
// false: it is not known. Of a name of the hub, owner, case and words like -Instruct do not count.
bool SetKnownModel(std::string_view framework, std::string_view name, Draft* draft);

// Sets the model, or asks for it. `file` is what TakeModelFile gave, `name` what the recipe says
// (empty: nothing), `argument` where it says so.
void ReadModel(std::string_view framework, const std::string& file, const std::string& name,
               std::string_view argument, Reading* reading);

}  // namespace orrery::recipes
