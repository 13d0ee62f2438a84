#include "orrery/recipes/known_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orrery/base/check.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/tree.h"
#include "orrery/recipes/csv.h"
#include "orrery/workload/hub_names.h"

namespace orrery::recipes {
namespace {

using workload::HubName;

struct KnownModel {
  std::string preset;  // empty: the keys say all
  std::string beside;  // what stands beside the text model and is not counted
  std::vector<std::pair<std::string, std::string>> keys;
};

// "preset=llama3-8b|layers=16"
KnownModel ParseKeys(std::string_view text) {
  KnownModel model;
  for (const auto& [key, value] : NamedValues(text)) {
    if (key == "preset") {
      model.preset = value;
    } else if (key == "beside") {
      model.beside = value;
    } else {
      model.keys.emplace_back(key, value);
    }
  }
  return model;
}

using Models = std::map<std::string, KnownModel, std::less<>>;  // by "framework name"

const Models& AllModels() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_models.inc"
  };
  static const Models models = [] {
    Models all;
    for (const std::vector<std::string>& cell : DataRows(kLines, 4)) {
      const bool fresh = all.emplace(cell[0] + " " + cell[1], ParseKeys(cell[2])).second;
      ORRERY_CHECK(fresh, "a model has one row");
    }
    return all;
  }();
  return models;
}

std::string Nearby(std::string_view framework, std::string_view name) {
  const std::string prefix = std::string(framework) + " ";
  std::vector<std::string_view> names;
  for (const auto& [key, model] : AllModels()) {
    if (key.starts_with(prefix)) names.push_back(std::string_view(key).substr(prefix.size()));
  }
  const std::vector<std::string> near = Nearest(std::string(name), names, 3);
  std::string text;
  for (const std::string& one : near) text += (text.empty() ? "" : ", ") + one;
  return text.empty() ? "" : fmt::format("; known names near it: {}", text);
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
  const Models& models = AllModels();
  const bool hub = framework == "hub" || framework == "litgpt";  // which has the hub's names
  const std::string plain = hub ? HubName(name) : std::string(name);
  const auto found = models.find(std::string(framework) + " " + plain);
  if (found == models.end()) return false;
  if (!found->second.preset.empty()) draft->SetText("model", found->second.preset);
  for (const auto& [key, value] : found->second.keys) draft->Set("model." + key, value);
  if (found->second.preset.empty()) draft->SetText("model.name", plain);
  if (!found->second.beside.empty()) {
    draft->Assume(fmt::format("{}: its text model; {} beside it is not counted",
                              Printable(name, 80), found->second.beside));
  }
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
