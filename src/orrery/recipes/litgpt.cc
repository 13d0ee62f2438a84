// LitGPT: its YAML, and what a command sets in it. What one key says alone stands in
// data/recipes/litgpt.csv, its models' shapes in models.csv. Source of defaults and meaning:
// Lightning-AI/litgpt, litgpt/pretrain.py, finetune/full.py, finetune/lora.py, args.py.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

enum class Task { kPretrain, kFull, kLora };

Task LitgptTask(Reading* r) {
  if (r->Has("lora_r")) return Task::kLora;
  if (r->Has("checkpoint_dir")) return Task::kFull;
  return Task::kPretrain;
}

// Strategies of Lightning Fabric, as the three scripts choose them.
void ReadLitgptSharding(Task task, std::int64_t gpus, std::int64_t host, std::int64_t nodes,
                        Reading* r) {
  Draft& draft = r->draft();
  // Parameters and states that are all of bf16 are priced under FSDP2.
  const bool pure = Lower(r->Text("precision")) == "bf16-true";
  draft.SetText("framework", task == Task::kLora || pure ? "fsdp2" : "fsdp1");
  if (pure && task != Task::kLora) {
    draft.Assume("FSDP1 with parameters and states of bf16 is priced as FSDP2, which shards alike");
  }
  draft.SetText("training.sharding", gpus > 1 ? "zero3" : "none");
  // All three scripts accumulate within fabric.no_backward_sync.
  if (gpus > 1) draft.Set("framework_options.defer_grad_reduce", true);
  if (task == Task::kPretrain && nodes > 1 && host > 1) {
    draft.Set("parallel.shard_group", host);
    draft.Assume(fmt::format("parallel.shard_group: the {} GPUs of a host (HYBRID_SHARD)", host));
  }
  draft.SetText("training.recompute", task != Task::kPretrain && gpus > 1 ? "full" : "none");
  draft.SetText("framework_options.torch_layers", task == Task::kPretrain ? "compiled" : "eager");
  draft.Set("framework_options.repeats_kv", true);
  const bool clips = task == Task::kPretrain && r->Real("train.max_norm", 1) != 0;
  if (!clips) draft.Set("framework_options.clip_gradients", false);
}

void ReadLitgptPrecision(Reading* r) {
  Draft& draft = r->draft();
  const std::string precision = Lower(r->Text("precision"));
  if (precision.empty() || precision == "bf16-mixed" || precision == "bf16-true") {
    draft.SetText("training.precision", "bf16");
    draft.Set("framework_options.grad_reduce_fp32", false);  // FSDPPrecision's reduce_dtype
    if (precision == "bf16-true") draft.Set("framework_options.model_type_states", true);
    if (precision.empty()) draft.Assume("precision: bf16-mixed, LitGPT's default on such GPUs");
  } else if (precision == "16-mixed") {
    draft.SetText("training.precision", "fp16");
  } else if (precision == "32-true") {
    draft.SetText("training.precision", "fp32");
  } else {
    r->Refuse("precision", fmt::format("'{}' is not modelled; bf16-mixed, bf16-true, 16-mixed and "
                                       "32-true are",
                                       Printable(precision, 40)));
  }
  const std::string optimizer =
      r->Has("optimizer") ? r->Text("optimizer") : r->Text("optimizer.class_path");
  const std::string name = Lower(optimizer.substr(optimizer.rfind('.') + 1));
  if (Contains(optimizer, "bitsandbytes") || (name != "adamw" && name != "adam" && name != "sgd")) {
    return r->Refuse(r->Has("optimizer") ? "optimizer" : "optimizer.class_path",
                     fmt::format("'{}' is not modelled; Adam, AdamW and SGD of torch.optim are",
                                 Printable(optimizer, 60)));
  }
  draft.SetText("training.optimizer", name);
}

void ReadLitgptBatch(Task task, std::int64_t gpus, Reading* r) {
  Draft& draft = r->draft();
  const bool first = task == Task::kPretrain;
  const std::int64_t all = r->Whole("train.global_batch_size").value_or(first ? 512 : 16);
  const std::int64_t micro = r->Whole("train.micro_batch_size").value_or(first ? 4 : 1);
  if (gpus < 1) return;
  const std::int64_t passes = micro > 0 ? all / gpus / micro : 0;
  if (passes < 1) {
    return r->Problem(fmt::format(
        "{}: train.global_batch_size {} is less than {} GPUs of micro_batch_size {}; give another "
        "--gpus",
        r->Where("train.global_batch_size"), all, gpus, micro));
  }
  draft.Set("training.micro_batch", micro);
  draft.Set("training.global_batch", Product({micro, passes, gpus}));
}

void ReadLitgptAdapters(Reading* r) {
  const auto on = [&](std::string_view name, bool fallback) {
    const bool said = r->Has(name);
    return r->On(name) || (!said && fallback);
  };
  std::vector<std::string> modules;
  const auto add = [&](std::string_view name, bool fallback, std::vector<std::string> layers) {
    if (on(name, fallback)) modules.insert(modules.end(), layers.begin(), layers.end());
  };
  add("lora_query", true, {"q_proj"});
  add("lora_key", false, {"k_proj"});
  add("lora_value", true, {"v_proj"});
  add("lora_projection", false, {"o_proj"});
  add("lora_mlp", false, {"gate_proj", "up_proj", "down_proj"});
  if (on("lora_head", false)) {
    r->draft().Assume("lora_head: the adapter beside the output layer is not priced");
  }
  r->draft().Set("training.lora_rank", r->Whole("lora_r").value_or(8));
  const std::string base = r->Text("quantize");  // bnb.nf4-dq
  if (base.starts_with("bnb.nf4") || base.starts_with("bnb.fp4")) {
    r->draft().SetText("training.base_quantization", base.substr(4, 3));
    r->draft().Set("training.double_quantization", base.ends_with("-dq"));
  } else if (!base.empty() && base != "null") {
    r->Refuse("quantize", fmt::format("'{}' is not modelled; bnb.nf4, bnb.fp4 and these with -dq "
                                      "are",
                                      Printable(base, 40)));
  }
  SetLoraTargets(modules, r->Has("lora_query") ? "lora_query" : "lora_r", r);
}

}  // namespace

const Table& LitgptTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_litgpt.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsLitgpt(std::string_view text, const std::string& path) {
  if (!IsYaml(path) || !HasKey(text, "train") || !Contains(text, "micro_batch_size:")) return false;
  return HasKey(text, "checkpoint_dir") || HasKey(text, "model_config") ||
         (HasKey(text, "model_name") && HasKey(text, "data"));
}

Result<Imported> ReadLitgpt(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "LitGPT"));
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, ParseConfiguration(taken.file));
  const Tables tables = {&LitgptTable()};
  Reading reading(tables, options, taken.file.path);
  AddLeaves(document, document.root, tables, &reading);
  reading.Translate();
  const Task task = LitgptTask(&reading);
  std::string name = reading.Text("model_name");
  if (name.empty()) name = reading.Text("checkpoint_dir");
  while (name.ends_with('/')) name.pop_back();
  ReadModel("litgpt", taken.model, name,
            reading.Has("model_name") ? "model_name" : "checkpoint_dir", &reading);
  Launch launch;
  const std::string devices = reading.Text("devices");
  launch.nodes = reading.Whole("num_nodes").value_or(1);
  if (devices.empty() && task != Task::kPretrain) {
    launch.gpus_per_node = 1;
  } else if (devices != "auto" && !devices.empty()) {
    launch.gpus_per_node = reading.Whole("devices").value_or(0);
  }
  if (launch.gpus_per_node == 0) launch.nodes = 0;  // all that a host has: asked for
  reading.SetSize(launch);
  const std::int64_t gpus = reading.draft().Whole("parallel.dp", 0);
  const std::int64_t host =
      launch.gpus_per_node > 0 ? launch.gpus_per_node : reading.ClusterGpusPerNode();
  ReadLitgptSharding(task, gpus, host, host > 0 ? gpus / host : 0, &reading);
  ReadLitgptPrecision(&reading);
  ReadLitgptBatch(task, gpus, &reading);
  if (task == Task::kLora) ReadLitgptAdapters(&reading);
  if (reading.On("train.tie_embeddings")) reading.draft().Set("model.tied_embeddings", true);
  if (const auto length = reading.Whole("train.max_seq_length")) {
    reading.draft().Set("training.seq_len", *length);
    if (task != Task::kPretrain) {
      reading.draft().Assume(fmt::format(
          "sequences are as long as train.max_seq_length lets them be, {} tokens", *length));
    }
  } else if (!reading.IsSet("training.seq_len")) {
    reading.Missing("how long sequences are (train.max_seq_length): give --set training.seq_len=N");
  }
  return reading.Finish("litgpt");
}

}  // namespace orrery::recipes
