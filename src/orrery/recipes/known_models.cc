#include "orrery/recipes/known_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"
#include "orrery/formats/tree.h"
#include "orrery/workload/known_models.h"

namespace orrery::recipes {
namespace {

using workload::HubName;

std::string Nearby(std::string_view framework, std::string_view name) {
  const std::vector<std::string> near = workload::NearestKnownModels(framework, name);
  return near.empty() ? "" : fmt::format("; known names near it: {}", fmt::join(near, ", "));
}

}  // namespace

std::string TakeModelFile(std::vector<File>* files) {
  const auto found = std::ranges::find_if(*files, [](const File& file) {
    return file.path.ends_with(".json") && file.text.find("\"model_type\"") != std::string::npos;
  });
  if (found == files->end()) return "";
  std::string path = found->path;
  files->erase(found);
  return path;
}

Result<Configuration> TakeConfiguration(const std::vector<File>& files, std::string_view framework,
                                        std::string_view kind) {
  std::vector<File> rest = files;
  Configuration taken{.file = {}, .model = TakeModelFile(&rest)};
  if (rest.size() != 1) {
    return InvalidInput(
        "{}'s configuration is one {} file, with a model's config.json beside it if need be; {} "
        "files are given",
        framework, kind, files.size());
  }
  taken.file = std::move(rest.front());
  return taken;
}

bool SetKnownModel(std::string_view framework, std::string_view name, Draft* draft) {
  const bool hub = framework == "hub" || framework == "litgpt";  // which has the hub's names
  const std::string plain = hub ? HubName(name) : std::string(name);
  const std::string_view keys = workload::KnownModelKeys(framework, plain);
  if (keys.empty()) return false;
  bool preset = false;
  for (const auto& [key, value] : formats::NamedValues(keys)) {
    if (key == "preset") {
      preset = true;
      draft->SetText("model", std::string(value));
    } else if (key == "beside") {
      draft->Assume(fmt::format("{}: its text model; {} beside it is not counted",
                                Printable(name, 80), value));
    } else {
      draft->Set(fmt::format("model.{}", key), std::string(value));
    }
  }
  if (!preset) draft->SetText("model.name", plain);
  return true;
}

void ReadModel(std::string_view framework, const std::string& file, const std::string& name,
               std::string_view argument, Reading* reading) {
  const Options& options = reading->options();
  if (reading->IsSet("model") || reading->IsSet("model.preset")) return;
  if (!options.model.empty()) {
    reading->draft().SetText("model", reading->FromJob(options.model));
  } else if (!file.empty()) {
    reading->draft().SetText("model", reading->FromJob(file));
  } else if (name.empty()) {
    reading->Missing(
        "which model it trains: give its config.json as another FILE, or --model NAME ('orrery "
        "list models')");
  } else if (!SetKnownModel(framework, name, &reading->draft())) {
    reading->Missing(fmt::format(
        "the shapes of the model '{}' ({}): give its config.json as another FILE, or --model "
        "NAME ('orrery list models'){}",
        Printable(name, 80), argument, Nearby(framework, HubName(name))));
  }
}

}  // namespace orrery::recipes
