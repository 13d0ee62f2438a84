// Which file of the Hugging Face ecosystem is what, and what they name in turn: a Trainer's
// arguments name DeepSpeed's JSON, `accelerate launch` its YAML.
#include "orrery/recipes/huggingface.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/python_document.h"
#include "orrery/recipes/xtuner.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using formats::Node;

// A key at the start of a line of YAML.
bool IsJson(const std::string& path) { return path.ends_with(".json"); }

Tables AllTables(const Hub* hub) {
  Tables tables = {&DeepSpeedTable(), &AccelerateTable(), &TrainerTable(), &LlamaFactoryTable()};
  if (hub != nullptr) tables.insert(tables.begin(), &hub->table());
  return tables;
}

class Files {
 public:
  Files(const Options& options, const std::string& name, const Hub* hub)
      : reading_(AllTables(hub), options, name) {
    sources_.hub = hub;
  }

  Status Add(const File& file) {
    if (IsDeepSpeed(file.text, file.path)) return AddDeepSpeed(file);
    if (IsAccelerate(file.text, file.path)) return AddAccelerate(file);
    const bool factory = sources_.hub == nullptr && IsLlamaFactory(file.text, file.path);
    const bool hub = sources_.hub != nullptr && sources_.hub->knows(file.text, file.path);
    if (!factory && !hub && !IsTrainer(file.text, file.path)) {
      return InvalidInput(
          "'{}' is neither DeepSpeed's JSON, Accelerate's YAML, a Trainer's arguments nor a "
          "model's config.json",
          Printable(file.path));
    }
    sources_.trainer = true;
    sources_.llama_factory = sources_.llama_factory || factory;
    if (sources_.python() && IsTrainerPython(file.text, file.path)) {
      return AddTrainerPython(file, &reading_);
    }
    if (file.path.ends_with(".py")) return AddPython(file);
    return IsJson(file.path) || IsYaml(file.path) ? AddArguments(file) : AddScript(file);
  }

  // What the files that were given name in turn.
  Status Follow() {
    const std::string trainers = Named("--deepspeed");
    const std::string launchers = Named("deepspeed_config.deepspeed_config_file");
    const std::string& deepspeed = trainers.empty() ? launchers : trainers;
    if (!deepspeed.empty() && !sources_.deepspeed) {
      ORRERY_ASSIGN_OR_RETURN(const std::optional<File> file, Open(deepspeed));
      if (file) return AddDeepSpeed(*file);
      reading_.Missing(fmt::format("what '{}' holds (DeepSpeed's JSON): give it as another FILE",
                                   Printable(deepspeed, 120)));
    }
    if (const std::string fsdp = Named("--fsdp_config"); !fsdp.empty()) {
      ORRERY_ASSIGN_OR_RETURN(const std::optional<File> file, Open(fsdp));
      if (!file) {
        reading_.Missing(fmt::format("what '{}' holds (--fsdp_config): run where it can be read",
                                     Printable(fsdp, 120)));
        return {};
      }
      ORRERY_ASSIGN_OR_RETURN(Document document, ParseConfiguration(*file));
      Node root;
      root.kind = Node::Kind::kMap;
      root.fields.push_back({.key = "fsdp_config", .value = document.root});
      AddLeaves(document, root, {&TrainerTable()}, &reading_);
    }
    return {};
  }

  Result<Imported> Finish(std::vector<File>* files) && {
    sources_.model_file = TakeModelFile(files);
    for (const File& file : *files) ORRERY_RETURN_IF_ERROR(Add(file));
    if (sources_.hub != nullptr) {
      sources_.hub->defaults(script_ ? &*script_ : nullptr, &sources_, &reading_);
    }
    ORRERY_RETURN_IF_ERROR(Follow());
    ReadLaunch();
    reading_.Translate();
    std::string name = reading_.TextIfKnown("--model_name_or_path");
    if (name.empty()) name = reading_.TextIfKnown("--config_name");
    for (const std::string_view packed : {"-unsloth-bnb-4bit", "-bnb-4bit"}) {
      if (name.ends_with(packed)) name.resize(name.size() - packed.size());
    }
    ReadModel("hub", sources_.model_file, name, "model_name_or_path", &reading_);
    ReadTrainerRules(sources_, &reading_);
    if (sources_.hub != nullptr && sources_.hub->after != nullptr) sources_.hub->after(&reading_);
    if (sources_.deepspeed) ReadDeepSpeedRules(sources_, &reading_);
    SetThreads();
    ReadLengths(sources_, &reading_);
    SetBatch(sources_, SaidBatch(), &reading_);
    if (sources_.hub != nullptr) return reading_.Finish(std::string(sources_.hub->name));
    return reading_.Finish(sources_.llama_factory ? "llama-factory"
                           : sources_.trainer     ? "trainer"
                           : sources_.accelerate  ? "accelerate"
                                                  : "deepspeed");
  }

 private:
  Status AddDeepSpeed(const File& file) {
    sources_.deepspeed = true;
    ORRERY_ASSIGN_OR_RETURN(const Document document, ParseConfiguration(file));
    AddLeaves(document, document.root, {&DeepSpeedTable()}, &reading_);
    return {};
  }

  Status AddAccelerate(const File& file) {
    sources_.accelerate = true;
    ORRERY_ASSIGN_OR_RETURN(const Document document, ParseConfiguration(file));
    AddLeaves(document, document.root, {&AccelerateTable()}, &reading_);
    return {};
  }

  Status AddArguments(const File& file) {
    ORRERY_ASSIGN_OR_RETURN(Document document, ParseConfiguration(file));
    Node& root = document.root;
    if (const Node* inside = root.Find("deepspeed"); inside && inside->kind == Node::Kind::kMap) {
      sources_.deepspeed = true;
      AddLeaves(document, *inside, {&DeepSpeedTable()}, &reading_);
      std::erase_if(root.fields, [](const formats::Field& f) { return f.key == "deepspeed"; });
    }
    AddLeaves(document, root, ArgumentTables(), &reading_);
    return {};
  }

  Status AddPython(const File& file) {
    ORRERY_ASSIGN_OR_RETURN(const PythonFile python, ReadPython(file.text, file.path));
    LeafDocument leaves(file.path);
    leaves.AddFields("", python.values);
    for (const Override& set : file.overrides) {
      if (set.path == "deepspeed") {
        reading_.AddAs("--deepspeed", "--deepspeed", set.value,
                       fmt::format("{}:{}", set.source, set.line));
      } else {
        leaves.Add(set.path, set.value, set.line);
      }
    }
    AddXtunerFile(leaves.Take(), &reading_);
    return {};
  }

  Status AddScript(const File& file) {
    ORRERY_ASSIGN_OR_RETURN(script_,
                            ReadScript(file.text, file.path, reading_.options().variables));
    const Script& script = *script_;
    ORRERY_ASSIGN_OR_RETURN(const CommandLine line,
                            FindTraining(script, ArgumentTables(), file.path));
    AddWords(line.words, ArgumentTables(), &reading_);
    for (const std::string& note : script.notes) {
      reading_.draft().Assume(fmt::format("{} {}", file.path, note));
    }
    sources_.launch = line.launch;
    ReadThreads(script, line.launcher);
    const auto launch = std::ranges::find(line.launcher, "launch", &Word::text);
    if (launch == line.launcher.end()) return {};
    const std::vector<Word> words(launch + 1, line.launcher.end());
    AddWords(words, {&AccelerateTable()}, &reading_);
    const std::string config = Named("--config_file");
    if (config.empty() || sources_.accelerate) return {};
    ORRERY_ASSIGN_OR_RETURN(const std::optional<File> yaml, Open(config));
    if (yaml) return AddAccelerate(*yaml);
    reading_.Missing(fmt::format("what '{}' holds (Accelerate's YAML): give it as another FILE",
                                 Printable(config, 120)));
    return {};
  }

  // LLaMA-Factory takes the Trainer's arguments beside its own.
  Tables ArgumentTables() const {
    if (sources_.hub != nullptr) {
      return {&sources_.hub->table(), &TrainerTable(), &AccelerateTable()};
    }
    if (sources_.llama_factory) return {&LlamaFactoryTable(), &TrainerTable()};
    return {&TrainerTable()};
  }

  // Threads of a rank on the CPU: torchrun and accelerate set one where the script sets none
  // (torch/distributed/run.py, accelerate/utils/launch.py); deepspeed's launcher sets none.
  void ReadThreads(const Script& script, const std::vector<Word>& launcher) {
    const auto starts = [&](std::string_view text) {
      return std::ranges::find(launcher, text, &Word::text) != launcher.end();
    };
    const auto said = script.exported.find("OMP_NUM_THREADS");
    if (said != script.exported.end() && said->second.unknown.empty()) {
      const Result<std::int64_t> threads = ParseInteger(said->second.text);
      sources_.host_threads = threads.ok() ? *threads : 0;
    } else if (starts("torchrun") || starts("accelerate") || starts("torch.distributed.run")) {
      sources_.host_threads = 1;
    }
  }

  // Of an optimizer that runs on the CPU.
  void SetThreads() {
    const std::string_view offload = reading_.draft().Text("training.offload");
    if (sources_.host_threads < 1 || offload.empty() || offload == "activations") return;
    reading_.draft().Set("training.offload_threads", sources_.host_threads);
    reading_.draft().Assume(fmt::format(
        "the CPU runs the optimizer in {} {} a rank: OMP_NUM_THREADS, 1 unless set under torchrun "
        "and accelerate launch",
        sources_.host_threads, sources_.host_threads == 1 ? "thread" : "threads"));
  }

  // The path that an argument names; empty: none, or an empty one.
  std::string Named(std::string_view argument) {
    return reading_.Has(argument) ? reading_.Text(argument) : std::string();
  }

  Result<std::optional<File>> Open(const std::string& name) const {
    return OpenNamed(name, reading_.file());
  }

  void ReadLaunch() {
    Launch& launch = sources_.launch;
    const auto processes = reading_.Whole("num_processes"), hosts = reading_.Whole("num_machines");
    if (launch.gpus == 0 && launch.nodes == 0 && processes && *processes > 0) {
      launch.gpus = *processes;
      if (hosts && *hosts > 0 && *processes % *hosts == 0) {
        launch.gpus_per_node = *processes / *hosts;
      }
    }
  }

  Batch SaidBatch() {
    Batch batch;
    if (sources_.deepspeed) batch = DeepSpeedBatch(&reading_);
    const auto passes = reading_.Whole("deepspeed_config.gradient_accumulation_steps");
    if (!sources_.trainer) {
      if (!batch.passes) batch.passes = passes;
      return batch;
    }
    if (!batch.micro) batch.micro = reading_.Whole("--per_device_train_batch_size");
    if (!batch.passes) {
      const bool said = reading_.Has("--gradient_accumulation_steps") || !passes;
      batch.passes = said ? reading_.Whole("--gradient_accumulation_steps") : passes;
    }
    if (!reading_.Has("--per_device_train_batch_size")) {
      reading_.draft().Assume(
          fmt::format("per_device_train_batch_size: {}, {}'s default", batch.micro.value_or(8),
                      sources_.hub == nullptr ? "the Trainer" : sources_.hub->name));
    }
    return batch;
  }

  Reading reading_;
  Sources sources_;
  std::optional<Script> script_;  // the launch script, where one is given
};

}  // namespace

const Table& DeepSpeedTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_deepspeed.inc"
  };
  static const Table table(kLines);
  return table;
}

const Table& AccelerateTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_accelerate.inc"
  };
  static const Table table(kLines);
  return table;
}

const Table& TrainerTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_trainer.inc"
  };
  static const Table table(kLines);
  return table;
}

const Table& LlamaFactoryTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_llama_factory.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsTrainer(std::string_view text, const std::string& path) {
  if (path.ends_with(".toml")) return false;
  if (IsJson(path)) {
    return Contains(text, "\"per_device_train_batch_size\"") || Contains(text, "\"output_dir\"");
  }
  if (IsYaml(path)) return HasKey(text, "per_device_train_batch_size");
  return Contains(text, "--per_device_train_batch_size") ||
         Contains(text, "--per_gpu_train_batch_size") ||
         (Contains(text, "--model_name_or_path") && Contains(text, "--output_dir"));
}

bool IsLlamaFactory(std::string_view text, const std::string& path) {
  if (IsYaml(path)) {
    return HasKey(text, "model_name_or_path") &&
           (HasKey(text, "finetuning_type") || HasKey(text, "cutoff_len") || HasKey(text, "stage"));
  }
  if (IsJson(path)) {
    return Contains(text, "\"model_name_or_path\"") &&
           (Contains(text, "\"finetuning_type\"") || Contains(text, "\"cutoff_len\""));
  }
  return Contains(text, "--finetuning_type") && Contains(text, "--model_name_or_path");
}

bool IsAccelerate(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "distributed_type");
}

bool IsDeepSpeed(std::string_view text, const std::string& path) {
  if (!IsJson(path) || Contains(text, "\"per_device_train_batch_size\"")) return false;
  return Contains(text, "\"zero_optimization\"") || Contains(text, "\"train_batch_size\"") ||
         Contains(text, "\"train_micro_batch_size_per_gpu\"");
}

Result<Imported> ReadHuggingFace(const std::vector<File>& files, const Options& options) {
  std::vector<File> rest = files;
  const Hub* hub = nullptr;
  const auto main = std::ranges::find_if(rest, [&](const File& file) {
    if (hub == nullptr) hub = FindHub(file.text, file.path);
    return hub != nullptr || IsTrainer(file.text, file.path) ||
           IsLlamaFactory(file.text, file.path);
  });
  return Files(options, main != rest.end() ? main->path : files.front().path, hub).Finish(&rest);
}

}  // namespace orrery::recipes
