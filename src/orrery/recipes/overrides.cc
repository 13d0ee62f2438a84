#include "orrery/recipes/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/recipes/bridge_recipes.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/launch.h"

namespace orrery::recipes {
namespace {

bool IsConfiguration(std::string_view path) { return IsYaml(path) || path.ends_with(".toml"); }

bool IsPath(std::string_view text) {
  return !text.empty() &&
         (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_') &&
         std::ranges::all_of(text, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
         });
}

std::string ValueOf(const std::vector<Word>& command, std::string_view option) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string& text = command[i].text;
    if (text == option && i + 1 < command.size()) return command[i + 1].text;
    if (text.starts_with(option) && text.substr(option.size(), 1) == "=") {
      return text.substr(option.size() + 1);
    }
  }
  return "";
}

// Names of configuration files in a command, Hydra's --config-path and --config-name among them.
std::vector<std::string> Named(const std::vector<Word>& command) {
  std::vector<std::string> names;
  for (const Word& word : command) {
    const std::string path = word.text.substr(word.text.find('=') + 1);  // --job.config_file=X
    if (IsConfiguration(path)) names.push_back(path);
  }
  if (const std::string name = ValueOf(command, "--config-name"); !name.empty()) {
    const std::string folder = ValueOf(command, "--config-path");
    names.push_back((folder.empty() ? "" : folder + "/") + name +
                    (IsConfiguration(name) ? "" : ".yaml"));
  }
  return names;
}

// "a.b=c", "++a.b=c", "--a.b=c" and "--a.b c".
std::vector<Override> Set(const std::vector<Word>& command, const std::string& script) {
  std::vector<Override> all;
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string_view text = command[i].text;
    const bool dashed = text.starts_with("--");
    text.remove_prefix(std::min(text.find_first_not_of(dashed ? "-" : "+"), text.size()));
    const std::size_t equals = text.find('=');
    const std::string_view path = text.substr(0, equals);
    if (!IsPath(path) || (dashed && path.find('.') == std::string_view::npos)) continue;
    Override set{.path = std::string(path), .source = script, .line = command[i].line};
    const Word* value = &command[i];
    if (equals != std::string_view::npos) {
      set.value = text.substr(equals + 1);
    } else if (!dashed) {
      continue;
    } else if (i + 1 < command.size() && !command[i + 1].text.starts_with("--")) {
      value = &command[++i];
      set.value = value->text;
    } else {
      set.value = "true";
    }
    set.unknown = value->unknown;
    if (!IsConfiguration(set.value)) all.push_back(std::move(set));
  }
  return all;
}

// MaxText's base.yml need not be at hand: the tables know its defaults.
bool RunsMaxText(const std::vector<Word>& command) {
  return std::ranges::any_of(command, [](const Word& word) {
    const std::string lower = Lower(word.text);
    return lower.find("maxtext") != std::string::npos && lower.find("train") != std::string::npos;
  });
}

// Megatron Bridge's run_recipe.py names a recipe in Python; some keys have options of their own.
bool RunsBridge(const std::vector<Word>& command) {
  return std::ranges::any_of(command,
                             [](const Word& word) { return word.text.ends_with("run_recipe.py"); });
}

void AddBridgeOptions(const std::vector<Word>& command, const std::string& script,
                      std::vector<Override>* all) {
  struct Option {
    std::string_view brief, name, key;
  };
  constexpr std::array<Option, 9> kOptions = {
      {{"-gb", "--global_batch_size", "train.global_batch_size"},
       {"-mb", "--micro_batch_size", "train.micro_batch_size"},
       {"-sl", "--seq_length", "model.seq_length"},
       {"-tp", "--tensor_model_parallel_size", "model.tensor_model_parallel_size"},
       {"-pp", "--pipeline_model_parallel_size", "model.pipeline_model_parallel_size"},
       {"-cp", "--context_parallel_size", "model.context_parallel_size"},
       {"-vp", "--virtual_pipeline_model_parallel_size",
        "model.virtual_pipeline_model_parallel_size"},
       {"-ep", "--expert_model_parallel_size", "model.expert_model_parallel_size"},
       {"-etp", "--expert_tensor_parallel_size", "model.expert_tensor_parallel_size"}}};
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string& text = command[i].text;
    const std::size_t equals = text.find('=');
    const std::string_view name = std::string_view(text).substr(0, equals);
    const auto found = std::ranges::find_if(kOptions, [&](const Option& option) {
      return option.brief == name || option.name == name;
    });
    if (found == kOptions.end() || (equals == std::string::npos && i + 1 >= command.size())) {
      continue;
    }
    const Word& value = equals == std::string::npos ? command[i + 1] : command[i];
    all->push_back({.path = std::string(found->key),
                    .value = equals == std::string::npos ? value.text : text.substr(equals + 1),
                    .source = script,
                    .line = command[i].line,
                    .unknown = value.unknown});
  }
}

// Keys that matter must be known; those without effect are passed over where they are not.
Result<std::vector<Override>> Known(std::vector<Override> all, const Table& table) {
  for (const Override& set : all) {
    const Row* row = table.Find(set.path);
    if (set.unknown.empty() || (row != nullptr && row->effect == Effect::kInert)) continue;
    return InvalidInput("{}:{}: {} is {}, and {} is not set; give --env {}=VALUE", set.source,
                        set.line, set.path, Printable(set.value, 80), Printable(set.unknown, 60),
                        Printable(set.unknown, 60));
  }
  std::erase_if(all, [](const Override& set) { return !set.unknown.empty(); });
  return all;
}

}  // namespace

Result<std::optional<Commanded>> FindConfiguration(const File& script, const Options& options,
                                                   const TableOf& table_of) {
  ORRERY_ASSIGN_OR_RETURN(const Script read,
                          ReadScript(script.text, script.path, options.variables));
  for (const std::vector<Word>& command : read.commands) {
    std::optional<File> file;
    const Table* table = nullptr;
    for (const std::string& name : Named(command)) {
      ORRERY_ASSIGN_OR_RETURN(file, OpenNamed(name, script.path));
      table = file ? table_of(*file) : nullptr;
      if (table != nullptr) break;
    }
    if (table == nullptr && RunsMaxText(command)) {
      file = File{.path = script.path + " (base.yml)",
                  .text = "per_device_batch_size: 12.0\nbase_config: base.yml\n"};
      table = &MaxTextTable();
    }
    const std::string recipe = RunsBridge(command) ? ValueOf(command, "--recipe") : "";
    if (table == nullptr && !recipe.empty()) {
      ORRERY_ASSIGN_OR_RETURN(std::string text, BridgeRecipe(recipe));
      file = File{.path = recipe + ".yaml", .text = std::move(text)};
      table = &NemoTable();
    }
    if (table == nullptr) continue;
    std::vector<Override> set = Set(command, script.path);
    if (!recipe.empty()) AddBridgeOptions(command, script.path, &set);
    ORRERY_ASSIGN_OR_RETURN(file->overrides, Known(std::move(set), *table));
    return std::optional(Commanded{*std::move(file), CommandOf(read, command).launch});
  }
  return std::optional<Commanded>();
}

}  // namespace orrery::recipes
