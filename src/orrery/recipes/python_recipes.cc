// Configurations written in Python: torchtitan's of 2026 (config_registry.py), which become the
// keys of its TOML, nanoGPT's and InternEvo's. What one key says alone stands in
// data/recipes/torchtitan.csv, nanogpt.csv and internevo.csv. Source of defaults and meaning:
// pytorch/torchtitan, torchtitan/config/configs.py and models/*/config_registry.py;
// karpathy/nanoGPT, train.py and model.py; InternLM/InternEvo, doc/en/usage.md and
// internlm/initialize/launch.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/python_document.h"
#include "orrery/recipes/python_file.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {
namespace {

using formats::Document;
using Kind = PythonValue::Kind;

// --- torchtitan ---

std::int64_t WholeAt(const PythonValue& config, std::string_view path, std::int64_t fallback) {
  const PythonValue* value = config.At(path);
  if (value == nullptr || value->kind != Kind::kNumber) return fallback;
  const Result<std::int64_t> whole = ParseInteger(value->text);
  return whole.ok() ? *whole : fallback;
}

// Converters of linear layers and experts, as the TOML's model.converters names them.
void AddConverters(const PythonValue& spec, LeafDocument* to) {
  const PythonValue* converters = spec.Find("converters");
  if (converters == nullptr || converters->kind != Kind::kList) return;
  PythonValue names{.kind = Kind::kList, .line = converters->line};
  for (const PythonValue& one : converters->items) {
    const std::string_view type = one.text;
    const bool mx = type.starts_with("MXFP8"), fp8 = type.starts_with("Float8");
    const std::string section =
        fmt::format("quantize.{}.{}", Contains(type, "GroupedExperts") ? "grouped_mm" : "linear",
                    mx ? "mx" : "float8");
    names.items.push_back(
        {.kind = Kind::kText, .text = mx || fp8 ? section : std::string(type), .line = one.line});
    if (!mx && !fp8) continue;
    for (const char* key : {"filter_fqns", "recipe_name", "enable_fsdp_float8_all_gather"}) {
      if (const PythonValue* value = one.Find(key)) to->Add(section + "." + key, *value);
    }
  }
  to->Add("model.converters", names);
}

void AddCheckpointing(const PythonValue* how, LeafDocument* to) {
  if (how == nullptr || how->kind == Kind::kNone) {
    return to->Add("activation_checkpoint.mode", "none", how == nullptr ? 0 : how->line);
  }
  if (how->text.starts_with("FullAC")) {
    to->Add("activation_checkpoint.mode", "full", how->line);
  } else if (how->text.starts_with("SelectiveAC")) {
    to->Add("activation_checkpoint.mode", "selective", how->line);
    to->Add("activation_checkpoint.selective_ac_option", "op", how->line);
  } else {  // ActivationCheckpointConfig(mode=…) of early 2026, MemoryBudgetAC
    if (how->Find("mode") == nullptr) {
      to->Add("activation_checkpoint.mode", how->text, how->line);
    }
    to->AddFields("activation_checkpoint", *how);
  }
}

// `module` is the folder of config_registry.py, which is the model's name.
Document TitanDocument(const PythonValue& config, const std::string& module,
                       const std::string& name) {
  LeafDocument to(name);
  const std::int32_t line = config.line;
  to.Add("model.name", module, line);
  if (const PythonValue* spec = config.Find("model_spec")) {
    const PythonValue* flavor = spec->items.empty() ? spec->Find("flavor") : &spec->items.front();
    if (flavor != nullptr) to.Add("model.flavor", *flavor);
    AddConverters(*spec, &to);
    const PythonValue* dispatch = spec->Find("moe_comm_backend");
    if (dispatch != nullptr) to.Add("parallelism.expert_parallel_comm_backend", *dispatch);
  }
  AddCheckpointing(config.Find("activation_checkpoint"), &to);
  const std::int64_t length =
      WholeAt(config, "training.max_context_length", WholeAt(config, "training.seq_len", 2048));
  const std::int64_t tokens =
      WholeAt(config, "training.num_tokens_per_microbatch_per_dp_rank", 16384);
  const std::int64_t all = WholeAt(config, "training.num_tokens_per_train_step", -1);
  const std::int64_t parts =
      std::max<std::int64_t>(1, WholeAt(config, "parallelism.num_pp_microbatches", 1));
  to.Add("training.seq_len", std::to_string(length), line);
  if (length > 0 && config.At("training.local_batch_size") == nullptr) {
    const std::int64_t micro = std::max<std::int64_t>(1, tokens / length);
    const bool stages = WholeAt(config, "parallelism.pipeline_parallel_degree", 1) > 1;
    to.Add("training.local_batch_size", std::to_string(stages ? micro * parts : micro), line);
    if (stages) {
      to.Add("parallelism.pipeline_parallel_microbatch_size", std::to_string(micro), line);
    }
    if (all > 0) to.Add("training.global_batch_size", std::to_string(all / length), line);
  }
  for (const char* section : {"training", "parallelism", "compile", "debug", "optimizer"}) {
    const PythonValue* given = config.Find(section);
    if (given == nullptr) continue;
    for (const auto& [key, value] : given->fields) {
      const std::string path = fmt::format("{}.{}", section, key);
      if (key == "enable_async_tensor_parallel") {
        to.Add("parallelism.enable_async_tensor_parallel", value);
      } else if (TorchtitanTable().Find(path) != nullptr && !value.unknown()) {
        to.Add(path, value);
      }
    }
  }
  return to.Take();
}

std::string FolderOf(const std::string& path) {
  const std::size_t file = path.rfind('/');
  if (file == std::string::npos) return "";
  const std::size_t folder = path.rfind('/', file - 1);
  return path.substr(folder == std::string::npos ? 0 : folder + 1,
                     file - (folder == std::string::npos ? 0 : folder + 1));
}

// The function that --env CONFIG=NAME or --args NAME says, or the only one.
Result<std::string> ChosenFunction(const PythonFile& file, const File& given,
                                   const Options& options) {
  const std::string& name = given.path;
  for (const Override& set : given.overrides) {
    if (set.path == "config") return set.value;  // --config NAME of a command
  }
  for (const char* key : {"CONFIG", "1"}) {
    const auto said = options.variables.find(key);
    if (said == options.variables.end()) continue;
    if (std::ranges::find(file.functions, said->second) != file.functions.end()) {
      return said->second;
    }
    return InvalidInput("{}: it has no configuration '{}'; it has {}", Printable(name),
                        Printable(said->second, 60), fmt::join(file.functions, ", "));
  }
  if (file.functions.size() == 1) return file.functions.front();
  return InvalidInput("{} has {} configurations: {}; give --env CONFIG=NAME", Printable(name),
                      file.functions.size(), fmt::join(file.functions, ", "));
}

// --- nanoGPT ---

void ReadNanoGptRules(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t layers = r->Whole("n_layer").value_or(12);
  const std::int64_t heads = r->Whole("n_head").value_or(12);
  const std::int64_t hidden = r->Whole("n_embd").value_or(768);
  const std::string from = r->Text("init_from");
  const bool bias = r->On("bias");
  if (from.starts_with("gpt2")) {
    draft.SetText("model", from);
  } else {
    draft.Set("model.layers", layers);
    draft.Set("model.heads", heads);
    draft.Set("model.hidden", hidden);
    draft.Set("model.ffn_hidden", 4 * hidden);
    draft.Set("model.vocab", std::int64_t{50304});
    draft.SetText("model.norm", "layernorm");
    draft.SetText("model.activation", "gelu");
    draft.SetText("model.position", "learned");
    draft.Set("model.tied_embeddings", true);
    draft.Set("model.attention_bias", bias);
    draft.Set("model.mlp_bias", bias);
    draft.SetText("model.name", "nanogpt");
    if (r->Has("dataset") && Contains(r->Text("dataset"), "char")) {
      draft.Assume("model.vocab: 50304, though a data set of characters has fewer");
    }
  }
  const double dropout = r->Real("dropout", 0);
  if (dropout > 0) draft.Set("model.dropout", fmt::format("{}", dropout));
  draft.SetText("framework", "ddp");
  draft.SetText("training.sharding", "none");
  const std::string type = r->Text("dtype");
  draft.SetText("training.precision", type == "float32"   ? "fp32"
                                      : type == "float16" ? "fp16"
                                                          : "bf16");
  const bool eager = r->Has("compile") && !r->On("compile");
  draft.SetText("framework_options.torch_layers", eager ? "eager" : "compiled");
  draft.SetText("training.optimizer", "adamw");
  draft.Set("framework_options.fused_adam", true);
  if (r->Has("grad_clip") && r->Real("grad_clip", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
  draft.Set("training.seq_len", r->Whole("block_size").value_or(1024));
  const std::int64_t micro = r->Whole("batch_size").value_or(12);
  const std::int64_t passes = r->Whole("gradient_accumulation_steps").value_or(40);
  draft.Set("training.micro_batch", micro);
  r->SetSize({});
  const std::int64_t gpus = draft.Whole("parallel.dp", 0);
  if (gpus < 1) return;
  if (passes % gpus != 0) {
    return r->Problem(
        fmt::format("{}: gradient_accumulation_steps {} is shared by the GPUs and no multiple of "
                    "{}; give another --gpus",
                    r->Where("gradient_accumulation_steps"), passes, gpus));
  }
  draft.Set("training.global_batch", Product({micro, passes}));
}

// --- InternEvo ---

void ReadInternEvoShapes(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t hidden = draft.Whole("model.hidden", 0);
  const double ratio = r->Real("model.mlp_ratio", 4);
  const auto multiple = r->Whole("model.multiple_of").value_or(256);
  const double wide = std::floor(ratio * static_cast<double>(hidden));
  if (wide >= 1 && wide < 1e8) {
    draft.Set("model.ffn_hidden", RoundUp(static_cast<std::int64_t>(wide), multiple));
  }
  draft.SetText("model.activation", "swiglu");
  draft.SetText("model.norm",
                Contains(r->Text("model.norm_type"), "rms") ? "rmsnorm" : "layernorm");
  draft.SetText("model.position", "rotary");
  // The first InternLM's attention has biases; Llama's and InternLM2's have none.
  const bool first = r->Text("model_type") == "INTERNLM" && !r->On("model.no_bias");
  draft.Set("model.attention_bias", first);
  draft.Set("model.mlp_bias", false);
  draft.Set("model.tied_embeddings", false);
  if (const auto experts = r->Whole("model.num_experts"); experts && *experts > 1) {
    draft.Set("model.experts", *experts);
    draft.Set("model.expert_ffn_hidden", draft.Whole("model.ffn_hidden", 0));
    draft.Set("model.expert_top_k",
              r->Whole("model.top_k").value_or(r->Whole("model.moe_gate_k").value_or(2)));
  }
}

void ReadInternEvoDegrees(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t tensor = r->Whole("parallel.tensor.size").value_or(1);
  const std::string mode = r->Text("parallel.tensor.mode");
  const std::int64_t pp = r->Whole("parallel.pipeline.size").value_or(1);
  const std::int64_t weights = r->Whole("parallel.weight.size").value_or(1);
  const std::int64_t chunks = r->Whole("model.num_chunks").value_or(1);
  const std::int64_t ep = r->Whole("parallel.expert.size").value_or(-1);
  if (tensor > 1 && mode == "isp") {
    draft.Set("parallel.cp", tensor);
    draft.SetText("framework_options.cp_exchange", "all-to-all");
  } else if (tensor > 1) {
    draft.Set("parallel.tp", tensor);
    if (mode == "msp" || mode == "fsp") draft.Set("parallel.sequence_parallel", true);
  }
  if (pp > 1) draft.Set("parallel.pp", pp);
  if (pp > 1 && chunks > 1) draft.Set("parallel.vpp", chunks);
  if (draft.Has("model.experts") && ep > 1) draft.Set("parallel.ep", ep);
  if (weights > 1) {
    r->Refuse("parallel.weight.size", "weights shared out over ranks (isp) are not modelled; 1 is");
  }
  r->SetSize({});
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const std::int64_t group = r->Whole("parallel.zero1.size").value_or(-1);
  draft.SetText("training.sharding", group == 1 ? "none" : "zero1");
  if (group > 1 && group < dp) draft.Set("parallel.shard_group", group);
  if (r->On("parallel.zero1.fsdp")) r->Refuse("parallel.zero1.fsdp", "FSDP here is not modelled");
}

void ReadInternEvoRules(Reading* r) {
  Draft& draft = r->draft();
  draft.SetText("framework", "internevo");
  ReadInternEvoShapes(r);
  ReadInternEvoDegrees(r);
  const std::string type = r->Text("model.dtype");
  draft.SetText("training.precision", Contains(type, "bfloat16")  ? "bf16"
                                      : Contains(type, "float16") ? "fp16"
                                                                  : "bf16");
  const std::string again = Lower(r->Text("model.checkpoint"));
  const double share = again == "true" || again == "false" ? 0 : r->Real("model.checkpoint", 0);
  const std::int64_t each =
      draft.Whole("model.layers", 0) / std::max<std::int64_t>(1, draft.Whole("parallel.pp", 1));
  if (again == "true" || share >= 1) {
    draft.SetText("training.recompute", "full");
  } else if (share > 0 && each > 0) {
    draft.SetText("training.recompute", "full");
    draft.SetText("training.recompute_method", "block");
    draft.Set("training.recompute_layers",
              std::max<std::int64_t>(1, static_cast<std::int64_t>(share * double(each))));
  } else {
    draft.SetText("training.recompute", "none");
  }
  const std::int64_t micro = r->Whole("data.micro_bsz").value_or(1);
  const std::int64_t passes = r->Whole("data.micro_num").value_or(1);
  draft.Set("training.micro_batch", micro);
  if (const std::int64_t dp = draft.Whole("parallel.dp", 0); dp > 0) {
    draft.Set("training.global_batch", Product({micro, passes, dp}));
  }
}

Result<Imported> ReadAssignments(const std::vector<File>& files, const Options& options,
                                 const Table& table, const char* dialect,
                                 void (*rules)(Reading* reading)) {
  if (files.size() != 1) {
    return InvalidInput("{}'s configuration is one file in Python; {} are given", dialect,
                        files.size());
  }
  const File& file = files.front();
  ORRERY_ASSIGN_OR_RETURN(const PythonFile python, ReadPython(file.text, file.path));
  LeafDocument leaves(file.path);
  leaves.AddFields("", python.values);
  for (const Override& set : file.overrides) leaves.Add(set.path, set.value, set.line);
  const Document document = leaves.Take();
  Reading reading({&table}, options, file.path);
  for (const Leaf& leaf : Leaves(document.root)) {
    const Row* row = table.Find(leaf.path);
    // Names of the file's own that no key of the framework has.
    if (row != nullptr) AddLeaf(document, leaf, row, &reading);
  }
  reading.Translate();
  rules(&reading);
  return reading.Finish(dialect);
}

}  // namespace

Result<Document> ReadTitanPython(const File& file, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const PythonFile python, ReadPython(file.text, file.path));
  ORRERY_ASSIGN_OR_RETURN(const std::string function, ChosenFunction(python, file, options));
  ORRERY_ASSIGN_OR_RETURN(PythonValue config, CallPython(file.text, file.path, function));
  for (const Override& set : file.overrides) {
    if (set.path != "config") SetPython(set.path, set.value, set.line, &config);
  }
  if (config.kind != Kind::kCall) {
    return InvalidInput("{}: what '{}' returns cannot be read as a configuration",
                        Printable(file.path), function);
  }
  return TitanDocument(config, FolderOf(file.path), file.path);
}

const Table& NanoGptTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_nanogpt.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsNanoGpt(std::string_view text, const std::string& path) {
  if (!path.ends_with(".py") || Contains(text, "def ") || Contains(text, "dict(")) return false;
  const auto sets = [&](std::string_view name) {
    return Contains(text, fmt::format("\n{} =", name)) ||
           Contains(text, fmt::format("\n{}=", name));
  };
  return sets("batch_size") && (sets("block_size") || sets("gradient_accumulation_steps")) &&
         (sets("max_iters") || sets("n_layer"));
}

Result<Imported> ReadNanoGpt(const std::vector<File>& files, const Options& options) {
  return ReadAssignments(files, options, NanoGptTable(), "nanogpt", ReadNanoGptRules);
}

const Table& InternEvoTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_internevo.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsInternEvo(std::string_view text, const std::string& path) {
  return path.ends_with(".py") && Contains(text, "\nparallel = dict(") &&
         Contains(text, "\nmodel = dict(") && Contains(text, "micro_num");
}

Result<Imported> ReadInternEvo(const std::vector<File>& files, const Options& options) {
  return ReadAssignments(files, options, InternEvoTable(), "internevo", ReadInternEvoRules);
}

}  // namespace orrery::recipes
