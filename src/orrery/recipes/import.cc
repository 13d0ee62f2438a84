#include "orrery/recipes/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/toml.h"
#include "orrery/formats/tree.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/overrides.h"
#include "orrery/recipes/shell.h"
#include "orrery/recipes/wrappers.h"

namespace orrery::recipes {
namespace {

constexpr std::int64_t kMostBytes = 4 << 20;

struct Reader {
  Dialect dialect;
  bool (*knows)(std::string_view text, const std::string& path);
  Result<Imported> (*read)(const std::vector<File>& files, const Options& options);
};

// The first that knows a file reads it.
constexpr Reader kReaders[] = {
    {{"nemo", "NeMo 1 and Megatron Bridge 0.6: their YAML, in sections of Megatron's arguments",
      NemoTable},
     IsNemo,
     ReadNemo},
    {{"nemo-rl", "NeMo-RL of August 2026: an update of its policy, or its fine-tuning; its YAML",
      NemoRlTable},
     IsNemoRl,
     ReadNemoRl},
    {{"ms-swift-megatron",
      "ms-swift 4.5: `megatron sft` and `megatron pt`, in a script or its YAML",
      MsSwiftMegatronTable},
     IsMsSwiftMegatron,
     ReadMsSwiftMegatron},
    {{"ms-swift", "ms-swift 4.5: `swift sft` and `swift pt`, in a script or its YAML",
      MsSwiftTable},
     IsMsSwift,
     ReadHuggingFace},
    {{"axolotl", "axolotl 0.18: its YAML, with the Trainer's arguments", AxolotlTable},
     IsAxolotl,
     ReadHuggingFace},
    {{"open-instruct", "open-instruct (AI2) of August 2026: finetune.py's arguments or YAML",
      OpenInstructTable},
     IsOpenInstruct,
     ReadHuggingFace},
    {{"xtuner", "xtuner 0.1 and 0.2: a configuration in Python, and `xtuner train`", XtunerTable},
     IsXtuner,
     ReadHuggingFace},
    {{"primus", "AMD Primus 26.5: its YAML, on Megatron, Megatron Bridge, torchtitan or MaxText",
      PrimusTable},
     IsPrimus,
     ReadPrimus},
    {{"nanotron", "nanotron 0.5: its YAML", NanotronTable}, IsNanotron, ReadNanotron},
    {{"gpt-neox", "GPT-NeoX 2.0 and later: its YAML, several files laid over each other",
      GptNeoxTable},
     IsGptNeox,
     ReadGptNeox},
    {{"megatron-deepspeed",
      "Megatron-DeepSpeed, DeepSpeed's and BigScience's: a launch script, beside Megatron's "
      "arguments",
      MegatronDeepSpeedTable},
     IsMegatronDeepSpeed,
     ReadMegatronDeepSpeed},
    {{"megatron-patch",
      "Pai-Megatron-Patch (Alibaba) until 1.0: a launch script, beside Megatron's arguments",
      MegatronPatchTable},
     IsMegatronPatch,
     ReadMegatronPatch},
    {{"mindspeed",
      "MindSpeed-LLM of August 2026 (Ascend): a launch script, beside Megatron's arguments",
      MindSpeedTable},
     IsMindSpeed,
     ReadMindSpeed},
    {{"slime", "slime of August 2026: an update of its actor on Megatron; a launch script",
      SlimeTable},
     IsSlime,
     ReadSlime},
    {{"megatron",
      "Megatron-LM and Megatron Core 0.20: a launch script, a command line, or its YAML",
      MegatronTable},
     IsMegatron,
     ReadMegatron},
    {{"torchtitan",
      "torchtitan v0.1.0 to v0.2.2 and of 2024: its TOML; of 2026: its config_registry.py",
      TorchtitanTable},
     IsTorchtitan,
     ReadTorchtitan},
    {{"torchtune", "torchtune 0.6.1: its YAML", TorchtuneTable}, IsTorchtune, ReadTorchtune},
    {{"litgpt", "LitGPT 0.5: its YAML, and `litgpt pretrain`, `finetune_full`, `finetune_lora`",
      LitgptTable},
     IsLitgpt,
     ReadLitgpt},
    {{"olmo", "OLMo 0.6 (allenai/OLMo): its YAML", OlmoTable}, IsOlmo, ReadOlmo},
    {{"olmo-core", "OLMo-core of June 2026: its training scripts in Python", OlmoCoreTable},
     IsOlmoCore,
     ReadOlmoCore},
    {{"nanogpt", "nanoGPT: a configuration in Python", NanoGptTable}, IsNanoGpt, ReadNanoGpt},
    {{"internevo", "InternEvo 0.5: a configuration in Python", InternEvoTable},
     IsInternEvo,
     ReadInternEvo},
    {{"verl", "verl 0.7: an update of its actor, or its fine-tuning; a command or its YAML",
      VerlTable},
     IsVerl,
     ReadVerl},
    {{"automodel", "NeMo Automodel of August 2026: its YAML for language models", AutomodelTable},
     IsAutomodel,
     ReadAutomodel},
    {{"maxtext", "MaxText of August 2026 on GPUs: its YAML", MaxTextTable}, IsMaxText, ReadMaxText},
    {{"llm-foundry", "LLM Foundry 0.22 on Composer 0.32: its YAML", LlmFoundryTable},
     IsLlmFoundry,
     ReadLlmFoundry},
    {{"llama-factory", "LLaMA-Factory 0.9.5: its YAML, with the Trainer's arguments",
      LlamaFactoryTable},
     IsLlamaFactory,
     ReadHuggingFace},
    {{"trainer-python",
      "Python scripts and notebooks around the Trainer, TRL's SFTTrainer and Unsloth",
      TrainerPythonTable},
     IsTrainerPython,
     ReadHuggingFace},
    {{"aws-fsdp", "AWS's FSDP example of 2026 (HyperPod): its launch scripts and manifests",
      AwsFsdpTable},
     IsAwsFsdp,
     ReadAwsFsdp},
    {{"hyperpod", "SageMaker HyperPod's fine-tuning recipes of June 2026 (llmft_*): their YAML",
      HyperPodTable},
     IsHyperPod,
     ReadHuggingFace},
    {{"openrlhf", "OpenRLHF of August 2026 and before: train_sft's launch scripts", OpenRlhfTable},
     IsOpenRlhf,
     ReadHuggingFace},
    {{"veomni", "VeOmni of August 2026 (ByteDance Seed): its YAML for language models",
      VeOmniTable},
     IsVeOmni,
     ReadVeOmni},
    {{"llama-factory-v1",
      "LLaMA-Factory's version 1 of August 2026: its YAML, on FSDP2, DDP or DeepSpeed",
      LlamaFactoryV1Table},
     IsLlamaFactoryV1,
     ReadHuggingFace},
    {{"trainer",
      "Hugging Face Trainer of Transformers 5.24 and 4.46, TRL: a launch script, JSON or YAML",
      TrainerTable},
     IsTrainer,
     ReadHuggingFace},
    {{"accelerate", "Hugging Face Accelerate 1.15: its YAML (DDP, FSDP 1 and 2, DeepSpeed)",
      AccelerateTable},
     IsAccelerate,
     ReadHuggingFace},
    {{"deepspeed", "DeepSpeed 0.19.6: its JSON, with the model's config.json", DeepSpeedTable},
     IsDeepSpeed,
     ReadHuggingFace},
};

const Reader* Find(std::string_view text, const std::string& path) {
  const auto found = std::ranges::find_if(
      kReaders, [&](const Reader& reader) { return reader.knows(text, path); });
  return found == std::end(kReaders) ? nullptr : found;
}

}  // namespace

std::span<const Dialect> Dialects() {
  static const std::vector<Dialect> dialects = [] {
    std::vector<Dialect> all;
    for (const Reader& reader : kReaders) all.push_back(reader.dialect);
    return all;
  }();
  return dialects;
}

std::string DialectTable() {
  std::string text =
      "| recipe | arguments | keys of a job | read with others | without effect | assumed | "
      "refused by name |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Dialect& dialect : Dialects()) {
    const std::vector<Row>& rows = dialect.table().rows();
    const auto count = [&](Effect effect) {
      return std::ranges::count(rows, effect, &Row::effect);
    };
    text += fmt::format("| `{}`: {} | {} | {} | {} | {} | {} | {} |\n", dialect.name,
                        dialect.description, rows.size(), count(Effect::kJob), count(Effect::kRule),
                        count(Effect::kInert), count(Effect::kAssumed), count(Effect::kRefused));
  }
  return text;
}

const Dialect* Sniff(std::string_view text, const std::string& path) {
  const Reader* reader = Find(text, path);
  return reader == nullptr ? nullptr : &reader->dialect;
}

Result<Imported> Import(const std::vector<std::string>& paths, const Options& options) {
  std::vector<File> files;
  for (const std::string& path : paths) {
    ORRERY_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMostBytes));
    if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
      return InvalidInput("{}: byte {} is not UTF-8; this is no text file", Printable(path), bad);
    }
    files.push_back({path, std::move(text)});
  }
  return ImportFiles(files, options);
}

namespace {

// What is to be left out and neither stands in the files nor is an argument that is known.
Status CheckLeftOut(const Imported& imported, const Reader& reader, const Options& options) {
  const Table& table = reader.dialect.table();
  for (const std::string& name : options.leave_out) {
    const auto is = [&](const Use& use) { return use.argument == name; };
    if (name == kUnknown || std::ranges::any_of(imported.uses, is) ||
        FindRow({&table, &MegatronTable()}, name) != nullptr) {
      continue;
    }
    return InvalidInput("--leave-out: {}", UnknownName("argument", Printable(name), table.Names()));
  }
  return {};
}

bool IsScript(const File& file) {
  return file.text.starts_with("#!") || file.path.ends_with(".sh") ||
         file.path.ends_with(".slurm") || file.path.ends_with(".sbatch");
}

// A script whose arguments stand in files that it takes in: known by the words of its commands.
const Reader* FindByWords(const File& file, const Options& options) {
  if (!IsScript(file)) return nullptr;
  const Result<Script> script = ReadScript(file.text, file.path, options.variables);
  if (!script.ok()) return nullptr;
  std::string words;
  for (const std::vector<Word>& command : script->commands) {
    for (const Word& word : command) words += word.text + " ";
  }
  return Find(words, file.path);
}

Result<Imported> ReadBy(const Reader& reader, const std::vector<File>& files,
                        const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(Imported imported, reader.read(files, options));
  ORRERY_RETURN_IF_ERROR(CheckLeftOut(imported, reader, options));
  return imported;
}

// A script whose command names a configuration, which is read in the script's place.
Result<std::optional<Imported>> ReadCommanded(const File& script, const std::vector<File>& files,
                                              const Options& options) {
  const auto table_of = [](const File& file) -> const Table* {
    const Reader* reader = Find(file.text, file.path);
    return reader == nullptr ? nullptr : &reader->dialect.table();
  };
  ORRERY_ASSIGN_OR_RETURN(std::optional<Commanded> found,
                          FindConfiguration(script, options, table_of));
  if (!found) return std::optional<Imported>();
  std::vector<File> read = files;
  std::erase_if(read, [&](const File& file) { return file.path == script.path; });
  const Reader* reader = Find(found->file.text, found->file.path);
  if (reader == nullptr) reader = Find("per_device_batch_size:\nbase_config:", "base.yml");
  read.insert(read.begin(), std::move(found->file));
  // A configuration that says how many GPUs there are wins over the launcher.
  Result<Imported> imported = ReadBy(*reader, read, options);
  const Launch& launch = found->launch;
  Options sized = options;
  sized.gpus = launch.gpus > 0 ? launch.gpus : launch.nodes * launch.gpus_per_node;
  const bool sizes = options.gpus == 0 && options.nodes == 0 && sized.gpus > 0;
  if (!imported.ok() && sizes) imported = ReadBy(*reader, read, sized);
  if (!imported.ok()) return std::move(imported).TakeStatus();
  return std::optional(*std::move(imported));
}

// The command that a scheduler's file wraps, in the file's place and its environment.
Result<Imported> ReadWrapped(const Wrapped& wrapped, const File& wrapper,
                             const std::vector<File>& files, const Options& options) {
  Options inside = options;
  inside.variables.insert(wrapped.variables.begin(), wrapped.variables.end());
  if (inside.gpus == 0 && inside.nodes == 0) {
    inside.gpus = wrapped.gpus > 0 ? wrapped.gpus : wrapped.nodes * wrapped.gpus_per_node;
  }
  std::vector<File> others = files;
  std::erase_if(others, [&](const File& file) { return file.path == wrapper.path; });
  std::vector<File> texts = wrapped.scripts;
  if (wrapped.configuration) texts.insert(texts.begin(), *wrapped.configuration);
  Status first;
  for (const File& text : texts) {
    std::vector<File> read = others;
    read.insert(read.begin(), text);
    Result<Imported> imported = ImportFiles(read, inside);
    if (imported.ok()) return imported;
    if (first.ok()) first = std::move(imported).TakeStatus();
  }
  if (Contains(first.message(), "is no recipe that is known")) {
    return InvalidInput(
        "{}: {}, whose command starts no training that a recipe knows, or by a file that is not "
        "here; give that file or script as another FILE, or where the command finds it",
        Printable(wrapper.path), wrapped.kind);
  }
  return Status(first.code(), fmt::format("{} ({})", first.message(), wrapped.kind));
}

}  // namespace

Result<Imported> ImportFiles(const std::vector<File>& files, const Options& options) {
  if (!options.dialect.empty()) {
    std::vector<std::string_view> names;
    for (const Reader& reader : kReaders) {
      if (reader.dialect.name == options.dialect) return ReadBy(reader, files, options);
      names.push_back(reader.dialect.name);
    }
    return InvalidInput("--from: {}",
                        UnknownName("kind of recipe", Printable(options.dialect), names));
  }
  for (const File& file : files) {
    ORRERY_ASSIGN_OR_RETURN(const std::optional<Wrapped> wrapped, Unwrap(file));
    if (wrapped) return ReadWrapped(*wrapped, file, files, options);
  }
  for (const File& file : files) {
    if (const Reader* reader = Find(file.text, file.path)) return ReadBy(*reader, files, options);
  }
  for (const File& file : files) {
    if (const Reader* reader = FindByWords(file, options)) return ReadBy(*reader, files, options);
  }
  for (const File& file : files) {
    if (!IsScript(file)) continue;
    ORRERY_ASSIGN_OR_RETURN(std::optional<Imported> imported, ReadCommanded(file, files, options));
    if (imported) return *std::move(imported);
  }
  for (const File& file : files) {
    if (!LooksLike(file.text, file.path).empty()) return UnknownRecipe(file.text, file.path);
  }
  // A file that cannot be read as what its ending says is broken before it is unknown.
  for (const File& file : files) {
    const auto ends = [&](std::string_view ending) { return file.path.ends_with(ending); };
    if (ends(".toml")) ORRERY_RETURN_IF_ERROR(formats::ParseToml(file.text, file.path).status());
    if (ends(".json")) ORRERY_RETURN_IF_ERROR(formats::ParseJson(file.text, file.path).status());
    if (ends(".yaml") || ends(".yml")) {
      ORRERY_RETURN_IF_ERROR(formats::ParseYaml(file.text, file.path).status());
    }
  }
  if (files.front().text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return InvalidInput("'{}' is empty", Printable(files.front().path));
  }
  const auto config = std::ranges::find_if(files, [](const File& file) {
    return file.path.ends_with(".json") && file.text.find("\"model_type\"") != std::string::npos;
  });
  if (config != files.end()) {
    return InvalidInput(
        "'{}' is a model's configuration, which says nothing of its training: name it in a job "
        "('model: config.json', docs/start.md), or give it beside the recipe that trains it",
        Printable(config->path));
  }
  return UnknownRecipe(files.front().text, files.front().path);
}

}  // namespace orrery::recipes
