// One function a dialect: files in, a job or problems out. Internal to recipes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/formats/tree.h"
#include "orrery/recipes/import.h"
#include "orrery/recipes/reading.h"
#include "orrery/recipes/table.h"

namespace orrery::recipes {

inline bool Contains(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

// The leaves of a document with their dotted path, maps inside of lists left whole.
struct Leaf {
  std::string path;  // "model.hidden_size"
  const formats::Node* node = nullptr;
};
std::vector<Leaf> Leaves(const formats::Node& root);
// A leaf as an argument of the table's: true and false turn flags on and off, null is not given.
// False: the table does not know it.
bool AddLeaf(const formats::Document& document, const Leaf& leaf, const Row* row, Reading* reading);
// Every leaf under `root` as an argument of one of the tables, by its dotted path.
void AddLeaves(const formats::Document& document, const formats::Node& root, const Tables& tables,
               Reading* reading);

const Table& MegatronTable();
bool IsMegatron(std::string_view text, const std::string& path);
Result<Imported> ReadMegatron(const std::vector<File>& files, const Options& options);
// A fork's launch script: Megatron's rules between what its own arguments say.
struct MegatronFork {
  std::string_view name;
  Tables tables;  // its own before Megatron's
  // Of DeepSpeed's JSON.
  Status (*add_files)(const Script& script, std::span<const File> files,
                      Reading* reading) = nullptr;
  // What it takes when it is not said otherwise, and how many processes it starts.
  void (*defaults)(const Script& script, Launch* launch, Reading* reading) = nullptr;
  void (*before)(Reading* reading) = nullptr;  // once single arguments are translated
  void (*after)(Reading* reading) = nullptr;
  std::string_view model = {};  // the argument that names a model of the hub
};
Result<Imported> ReadMegatronScript(const std::vector<File>& files, const Options& options,
                                    const MegatronFork& fork);
const Table& MegatronDeepSpeedTable();
bool IsMegatronDeepSpeed(std::string_view text, const std::string& path);
Result<Imported> ReadMegatronDeepSpeed(const std::vector<File>& files, const Options& options);
const Table& SlimeTable();
bool IsSlime(std::string_view text, const std::string& path);
Result<Imported> ReadSlime(const std::vector<File>& files, const Options& options);
const Table& MegatronPatchTable();
bool IsMegatronPatch(std::string_view text, const std::string& path);
Result<Imported> ReadMegatronPatch(const std::vector<File>& files, const Options& options);

// Types of Adam's two moments, by the arguments that say them (torch.bfloat16, bfloat16, bf16).
// True: they are bf16, and the job says so; refused unless both are that or fp32.
bool ReadMomentTypes(std::string_view first, std::string_view second, Reading* r);

// MindSpeed-LLM (Ascend).
const Table& MindSpeedTable();
bool IsMindSpeed(std::string_view text, const std::string& path);
Result<Imported> ReadMindSpeed(const std::vector<File>& files, const Options& options);

// ms-swift's `megatron sft` and `megatron pt`.
const Table& MsSwiftMegatronTable();
bool IsMsSwiftMegatron(std::string_view text, const std::string& path);
Result<Imported> ReadMsSwiftMegatron(const std::vector<File>& files, const Options& options);

const Table& GptNeoxTable();
bool IsGptNeox(std::string_view text, const std::string& path);
Result<Imported> ReadGptNeox(const std::vector<File>& files, const Options& options);

const Table& NanotronTable();
bool IsNanotron(std::string_view text, const std::string& path);
Result<Imported> ReadNanotron(const std::vector<File>& files, const Options& options);

// The Hugging Face ecosystem: any of these beside each other, and a model's config.json.
const Table& DeepSpeedTable();
bool IsDeepSpeed(std::string_view text, const std::string& path);
const Table& AccelerateTable();
bool IsAccelerate(std::string_view text, const std::string& path);
const Table& TrainerTable();
bool IsTrainer(std::string_view text, const std::string& path);
const Table& TrainerPythonTable();
bool IsTrainerPython(std::string_view text, const std::string& path);

const Table& AwsFsdpTable();
bool IsAwsFsdp(std::string_view text, const std::string& path);
Result<Imported> ReadAwsFsdp(const std::vector<File>& files, const Options& options);

const Table& HyperPodTable();
bool IsHyperPod(std::string_view text, const std::string& path);

const Table& OpenRlhfTable();
bool IsOpenRlhf(std::string_view text, const std::string& path);

const Table& VeOmniTable();
bool IsVeOmni(std::string_view text, const std::string& path);
Result<Imported> ReadVeOmni(const std::vector<File>& files, const Options& options);

const Table& LlamaFactoryV1Table();
bool IsLlamaFactoryV1(std::string_view text, const std::string& path);

const Table& LlamaFactoryTable();
bool IsLlamaFactory(std::string_view text, const std::string& path);
// Frameworks around the Trainer (hubs.cc).
const Table& AxolotlTable();
bool IsAxolotl(std::string_view text, const std::string& path);
const Table& MsSwiftTable();
bool IsMsSwift(std::string_view text, const std::string& path);
const Table& OpenInstructTable();
bool IsOpenInstruct(std::string_view text, const std::string& path);
const Table& XtunerTable();
bool IsXtuner(std::string_view text, const std::string& path);
// How many processes ms-swift starts stands in the environment: NPROC_PER_NODE and NNODES.
void ReadSwiftLaunch(const Script& script, Launch* launch);
// ZeRO's stage, buckets and offload.
void ReadZero(Reading* r);
Result<Imported> ReadHuggingFace(const std::vector<File>& files, const Options& options);

const Table& TorchtitanTable();
bool IsTorchtitan(std::string_view text, const std::string& path);
Result<Imported> ReadTorchtitan(const std::vector<File>& files, const Options& options);
// One of the configurations in a config_registry.py, as the keys of its TOML.
Result<formats::Document> ReadTitanPython(const File& file, const Options& options);
void ReadTorchtitanRules(const std::string& model_file, Reading* r);

const Table& TorchtuneTable();
bool IsTorchtune(std::string_view text, const std::string& path);
Result<Imported> ReadTorchtune(const std::vector<File>& files, const Options& options);

const Table& LitgptTable();
bool IsLitgpt(std::string_view text, const std::string& path);
Result<Imported> ReadLitgpt(const std::vector<File>& files, const Options& options);

const Table& OlmoTable();
bool IsOlmo(std::string_view text, const std::string& path);
Result<Imported> ReadOlmo(const std::vector<File>& files, const Options& options);

const Table& OlmoCoreTable();
bool IsOlmoCore(std::string_view text, const std::string& path);
Result<Imported> ReadOlmoCore(const std::vector<File>& files, const Options& options);

const Table& NanoGptTable();
bool IsNanoGpt(std::string_view text, const std::string& path);
Result<Imported> ReadNanoGpt(const std::vector<File>& files, const Options& options);

const Table& InternEvoTable();
bool IsInternEvo(std::string_view text, const std::string& path);
Result<Imported> ReadInternEvo(const std::vector<File>& files, const Options& options);

const Table& VerlTable();
bool IsVerl(std::string_view text, const std::string& path);
Result<Imported> ReadVerl(const std::vector<File>& files, const Options& options);

// NeMo Automodel.
const Table& AutomodelTable();
bool IsAutomodel(std::string_view text, const std::string& path);
Result<Imported> ReadAutomodel(const std::vector<File>& files, const Options& options);
// Its rules once all arguments are there. `name`: of the model, which `argument` says; `model_file`
// a config.json given beside it; both may be empty.
void ReadAutomodelRules(const std::string& model_file, const std::string& name,
                        std::string_view argument, Reading* r);

// NeMo-RL: an update of its policy, or its fine-tuning, on Automodel's or Megatron's layers.
const Table& NemoRlTable();
bool IsNemoRl(std::string_view text, const std::string& path);
Result<Imported> ReadNemoRl(const std::vector<File>& files, const Options& options);

const Table& MaxTextTable();
bool IsMaxText(std::string_view text, const std::string& path);
Result<Imported> ReadMaxText(const std::vector<File>& files, const Options& options);
// What translated arguments say together; `model_file` is a model's config.json, or empty.
void ReadMaxTextRules(const std::string& model_file, Reading* r);

const Table& LlmFoundryTable();
bool IsLlmFoundry(std::string_view text, const std::string& path);
Result<Imported> ReadLlmFoundry(const std::vector<File>& files, const Options& options);

// NeMo and Megatron Bridge: Megatron's rules, behind names of their own.
const Table& NemoTable();
bool IsNemo(std::string_view text, const std::string& path);
Result<Imported> ReadNemo(const std::vector<File>& files, const Options& options);
// One file of theirs, whose arguments stand beside those that `beside` adds (Primus's own);
// `tables` has theirs behind those.
Result<Imported> ReadNemoFile(const File& file, const Options& options, const Tables& tables,
                              const std::string& dialect,
                              const std::function<void(Reading*)>& beside);
// Their LoRA.
void ReadBridgeAdapters(Reading* r);
// `hub`: the name of a model of the hub that says the shapes; empty: arguments say them.
void ReadMegatronRules(Reading* r, const Launch& launch, const Script* script,
                       const std::string& hub = "");

// A YAML with Megatron's arguments by their names with underscores, nested or not; `own`: names of
// a framework around it, which come first (null: none).
void AddMegatronLeaves(const formats::Document& document, const formats::Node& root,
                       const Table* own, Reading* r);

// AMD's Primus: Megatron's or torchtitan's arguments, in files laid over each other.
const Table& PrimusTable();
bool IsPrimus(std::string_view text, const std::string& path);
Result<Imported> ReadPrimus(const std::vector<File>& files, const Options& options);

// Parts of Megatron's rules.
// Keys of model, and of experts in training; `named`: the model is known by a name, and its
// vocabulary with it.
void ReadMegatronModel(bool named, Reading* r);
// Megatron's layers on stages: those keys of parallel and model.
void ReadMegatronStages(Reading* r);
// "([0]*3+[1]*58)", "[1,0,1]": Python's lists of numbers; nullopt: it is none.
std::optional<std::vector<std::int64_t>> ParsePythonList(std::string_view text);

}  // namespace orrery::recipes
