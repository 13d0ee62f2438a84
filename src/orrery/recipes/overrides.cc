#include "orrery/recipes/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
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

// "a.b=c", "++a.b=c", "--a.b=c" and "--a.b c"; `undotted`: "--a c" as well.
std::vector<Override> Set(const std::vector<Word>& command, const std::string& script,
                          bool undotted) {
  std::vector<Override> all;
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string_view text = command[i].text;
    const bool dashed = text.starts_with("--");
    text.remove_prefix(std::min(text.find_first_not_of(dashed ? "-" : "+"), text.size()));
    const std::size_t equals = text.find('=');
    const std::string_view path = text.substr(0, equals);
    const bool dotted = path.find('.') != std::string_view::npos;
    if (!IsPath(path) || (dashed && !dotted && !undotted)) continue;
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

// A configuration that a command stands for by itself: its file's ending and text, which the keys
// that it sets are laid over.
struct Implied {
  std::string ending, text;
  std::vector<Override> set;
};

// verl's python -m verl.trainer.main_ppo and fsdp_sft_trainer; its defaults are the tables'.
std::optional<Implied> ImpliedByVerl(const std::vector<Word>& command) {
  const auto trainer = std::ranges::find_if(command, [](const Word& word) {
    return word.text.starts_with("verl.trainer.") || word.text.starts_with("recipe.");
  });
  if (trainer == command.end() || trainer->text.find("generation") != std::string::npos) {
    return std::nullopt;
  }
  if (trainer->text.find("sft") != std::string::npos) {
    return Implied{.ending = "sft_trainer.yaml", .text = "model:\n  partial_pretrain:\n"};
  }
  const bool megatron = ValueOf(command, "--config-name").find("megatron") != std::string::npos;
  return Implied{.ending = megatron ? "ppo_megatron_trainer.yaml" : "ppo_trainer.yaml",
                 .text = megatron ? "actor_rollout_ref:\n  actor: {strategy: megatron}\n"
                                  : "actor_rollout_ref: {actor: {strategy: fsdp}}\n"};
}

// litgpt pretrain MODEL, litgpt finetune_lora CHECKPOINT; a --config is read as any other is.
std::optional<Implied> ImpliedByLitgpt(const std::vector<Word>& command) {
  const auto program =
      std::ranges::find_if(command, [](const Word& word) { return word.text == "litgpt"; });
  if (program == command.end() || command.end() - program < 2) return std::nullopt;
  const std::string& task = (program + 1)->text;
  const bool pretrain = task == "pretrain", full = task == "finetune_full";
  if (!pretrain && !full && task != "finetune_lora" && task != "finetune") return std::nullopt;
  Implied implied{.ending = "litgpt.yaml",
                  .text = full || pretrain ? "train:\n  micro_batch_size:\n"
                                           : "train:\n  micro_batch_size:\nlora_r: 8\n"};
  const std::string_view key = pretrain ? "model_name" : "checkpoint_dir";
  implied.text += std::string(key) + ":\n" + (pretrain ? "data:\n" : "");
  if (command.end() - program > 2 && !(program + 2)->text.starts_with("--")) {
    implied.set.push_back({.path = std::string(key),
                           .value = (program + 2)->text,
                           .line = (program + 2)->line,
                           .unknown = (program + 2)->unknown});
  }
  return implied;
}

// `xtuner train CONFIG.py`, or its train.py; empty: it is none.
std::string XtunerFile(const std::vector<Word>& command) {
  bool xtuner = false;
  for (const Word& word : command) {
    const bool file = word.text.ends_with(".py");
    if (file && xtuner && !word.text.ends_with("tools/train.py")) return word.text;
    xtuner =
        xtuner || word.text.ends_with("xtuner") || word.text.ends_with("xtuner/tools/train.py");
  }
  return "";
}

// Files that a command names without their ending: torchtune's `tune run RECIPE --config
// llama3/8B_full`, torchtitan's --module llama3 --config llama3_8b of 2026.
std::string NamedShort(const std::vector<Word>& command, std::vector<Override>* set) {
  if (std::string path = XtunerFile(command); !path.empty()) {
    const std::string deepspeed = ValueOf(command, "--deepspeed");
    if (!deepspeed.empty()) set->push_back({.path = "deepspeed", .value = deepspeed});
    return path;
  }
  const std::string config = ValueOf(command, "--config");
  if (config.empty() || IsConfiguration(config)) return "";
  const auto holds = [&](std::string_view text) {
    return std::ranges::find(command, text, &Word::text) != command.end();
  };
  if (holds("tune") && holds("run")) return "recipes/configs/" + config + ".yaml";
  const std::string module = ValueOf(command, "--module");
  if (module.empty() || !holds("torchtitan.train")) return "";
  set->push_back({.path = "config", .value = config});
  return "torchtitan/models/" + module + "/config_registry.py";
}

// Megatron Bridge's run_recipe.py and train.sh name a recipe in Python; its performance scripts put
// the name together from a model, a task, GPUs and a type. Some keys have options of their own.
std::string BridgeRecipeOf(const std::vector<Word>& command) {
  const auto runs = [&](std::string_view program) {
    return std::ranges::any_of(command,
                               [&](const Word& word) { return word.text.ends_with(program); });
  };
  if (runs("run_recipe.py") || runs("scripts/training/train.sh")) {
    return ValueOf(command, "--recipe");
  }
  if (!runs("setup_experiment.py") && !runs("run_script.py")) return "";
  const auto either = [&](std::string_view brief, std::string_view name, std::string fallback) {
    std::string value = ValueOf(command, brief);
    if (value.empty()) value = ValueOf(command, name);
    return value.empty() ? std::move(fallback) : value;
  };
  const std::string model = either("-mr", "--model_recipe_name", "");
  const std::string gpus = either("-ng", "--num_gpus", "");
  if (model.empty() || gpus.empty()) return "";
  std::string type = either("-c", "--compute_dtype", "bf16");
  std::erase(type, '_');  // fp8_cs
  return fmt::format("{}_{}_{}gpu_{}_{}_config", model, either("--task", "--task", "pretrain"),
                     gpus, either("-g", "--gpu", "h100"), type);
}

// "llama3_70b_pretrain_64gpu_h100_bf16_config" runs on 64.
std::int64_t GpusOfName(std::string_view name) {
  const std::size_t end = name.find("gpu_");
  if (end == std::string_view::npos) return 0;
  const std::size_t from = name.rfind('_', end);
  if (from == std::string_view::npos) return 0;
  const Result<std::int64_t> gpus = ParseInteger(name.substr(from + 1, end - from - 1));
  return gpus.ok() && *gpus > 0 ? *gpus : 0;
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

// torchtune's `optimizer=torch.optim.AdamW` names the component itself.
void NameComponents(const Table& table, std::vector<Override>* all) {
  for (Override& set : *all) {
    const std::string component = set.path + "._component_";
    if (table.Find(set.path) == nullptr && table.Find(component) != nullptr) set.path = component;
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
  // What the script itself writes comes before what lies on the disk.
  const auto open = [&](const std::string& name) -> Result<std::optional<File>> {
    const auto written = read.files.find(name);
    if (written != read.files.end() && written->second.unknown.empty()) {
      return std::optional(File{.path = script.path + ":" + name, .text = written->second.text});
    }
    ORRERY_ASSIGN_OR_RETURN(std::optional<File> found, OpenNamed(name, script.path));
    // LLM Foundry's commands start in its folder of scripts.
    if (!found && name.starts_with("train/yamls/"))
      return OpenNamed("scripts/" + name, script.path);
    return found;
  };
  for (const std::vector<Word>& command : read.commands) {
    std::optional<File> file;
    const Table* table = nullptr;
    for (const std::string& name : Named(command)) {
      ORRERY_ASSIGN_OR_RETURN(file, open(name));
      table = file ? table_of(*file) : nullptr;
      if (table != nullptr) break;
    }
    std::vector<Override> implied_set;
    if (table == nullptr) {
      if (const std::string name = NamedShort(command, &implied_set); !name.empty()) {
        ORRERY_ASSIGN_OR_RETURN(file, OpenNamed(name, script.path));
        table = file ? table_of(*file) : nullptr;
        if (table == nullptr) implied_set.clear();
      }
    }
    std::optional<Implied> implied = table == nullptr ? ImpliedByVerl(command) : std::nullopt;
    if (table == nullptr && !implied) implied = ImpliedByLitgpt(command);
    if (implied) {
      file = File{.path = script.path + " (" + implied->ending + ").yaml", .text = implied->text};
      table = table_of(*file);
      implied_set = std::move(implied->set);
    }
    if (table == nullptr && RunsMaxText(command)) {
      file = File{.path = script.path + " (base.yml)",
                  .text = "per_device_batch_size: 12.0\nbase_config: base.yml\n"};
      table = &MaxTextTable();
    }
    const std::string recipe = BridgeRecipeOf(command);
    if (table == nullptr && !recipe.empty()) {
      ORRERY_ASSIGN_OR_RETURN(std::string text, BridgeRecipe(recipe));
      file = File{.path = recipe + ".yaml", .text = std::move(text)};
      table = &NemoTable();
    }
    if (table == nullptr) continue;
    const bool litgpt = table == &LitgptTable();
    if (litgpt && implied_set.empty()) {  // the model stands before --config
      if (std::optional<Implied> named = ImpliedByLitgpt(command)) {
        implied_set = std::move(named->set);
      }
    }
    std::vector<Override> set = Set(command, script.path, litgpt);
    for (Override& one : implied_set) {
      one.source = script.path;
      set.push_back(std::move(one));
    }
    if (litgpt) std::erase_if(set, [](const Override& one) { return one.path == "config"; });
    if (!recipe.empty()) AddBridgeOptions(command, script.path, &set);
    if (table == &TorchtuneTable()) NameComponents(*table, &set);
    ORRERY_ASSIGN_OR_RETURN(file->overrides, Known(std::move(set), *table));
    Launch launch = CommandOf(read, command).launch;
    if (!recipe.empty() && launch.gpus == 0 && launch.nodes == 0) launch.gpus = GpusOfName(recipe);
    return std::optional(Commanded{*std::move(file), std::move(launch)});
  }
  return std::optional<Commanded>();
}

}  // namespace orrery::recipes
