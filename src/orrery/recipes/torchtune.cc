// torchtune's YAML: rules that join several keys; what one key says alone stands in
// data/recipes/torchtune.csv. Source of defaults and meaning: pytorch/torchtune,
// recipes/full_finetune_distributed.py and lora_finetune_distributed.py, torchtune/training.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/huggingface.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

// "torchtune.models.llama3_1.lora_llama3_1_8b" is "llama3_1_8b" with adapters.
struct Component {
  std::string model;
  bool adapters = false, quantized = false;
};

Component ParseComponent(const std::string& path) {
  Component component{.model = path.substr(path.rfind('.') + 1)};
  const auto takes = [&](std::string_view prefix) {
    const bool there = component.model.starts_with(prefix);
    if (there) component.model.erase(0, prefix.size());
    return there;
  };
  component.quantized = takes("qlora_");
  component.adapters = takes("lora_") || component.quantized;
  for (const std::string_view suffix : {"_instruct", "_base"}) {
    if (component.model.ends_with(suffix)) {
      component.model.resize(component.model.size() - suffix.size());
    }
  }
  return component;
}

void ReadAdapters(const Component& component, Reading* r) {
  const auto rank = r->Whole("model.lora_rank");
  std::vector<std::string> attention = r->Texts("model.lora_attn_modules");
  const bool mlp = r->On("model.apply_lora_to_mlp"), head = r->On("model.apply_lora_to_output");
  const bool quantized = r->On("model.quantize_base") || component.quantized;
  if (!component.adapters) return;
  if (quantized) {
    r->draft().SetText("training.base_quantization", "nf4");
    r->draft().Set("framework_options.nf4_tensor", true);
  }
  if (head) {
    r->Refuse("model.apply_lora_to_output", "adapters beside the output layer are not modelled");
  }
  if (mlp) attention.insert(attention.end(), {"gate_proj", "up_proj", "down_proj"});
  r->draft().Set("training.lora_rank", rank.value_or(8));
  SetLoraTargets(attention, "model.lora_attn_modules", r);
}

void ReadTuneSizes(bool single, Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t tp = r->Whole("tensor_parallel_dim").value_or(1);
  const std::int64_t cp = r->Whole("context_parallel_dim").value_or(1);
  const std::int64_t copies = r->Whole("data_parallel_replicate_dim").value_or(1);
  const std::int64_t shards = r->Whole("data_parallel_shard_dim").value_or(-1);
  const auto batch = r->Whole("batch_size"), passes = r->Whole("gradient_accumulation_steps");
  if (tp > 1) draft.Set("parallel.tp", tp);
  if (cp > 1) {
    const std::string rotate = r->Text("context_parallel_rotate_method");
    draft.Set("parallel.cp", cp);
    draft.SetText("framework_options.cp_exchange", rotate == "alltoall" ? "ring" : "all-gather");
  }
  Launch launch;
  if (single) launch.gpus = 1;
  if (shards > 0) launch.gpus = Product({shards, std::max<std::int64_t>(copies, 1), tp, cp});
  r->SetSize(launch);
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  if (copies > 1 && dp > 0 && dp % copies == 0) {
    draft.Set("parallel.shard_group", Product({dp / copies, cp}));
    r->SayNodes(0);
  } else if (copies > 1 && dp > 0) {
    r->Problem(
        fmt::format("{}: {} copies do not divide {} data-parallel ranks", r->file(), copies, dp));
  }
  if (dp == 1 && cp == 1) draft.SetText("training.sharding", "none");  // nothing to shard over
  if (!batch) return r->Missing("batch_size: give --set training.micro_batch=N");
  draft.Set("training.micro_batch", *batch);
  if (dp > 0) draft.Set("training.global_batch", Product({*batch, passes.value_or(1), dp}));
}

void ReadTuneTraining(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = r->Text("dtype");
  draft.SetText("framework", "fsdp2");
  draft.SetText("training.sharding", "zero3");
  if (type == "bf16" || type == "fp32") {
    draft.SetText("training.precision", type);
  } else {
    r->Refuse("dtype", fmt::format("'{}' is not modelled; bf16 and fp32 are", Printable(type, 40)));
  }
  const bool fp8 = r->On("enable_fp8_training");
  const std::string recipe = r->Text("fp8_recipe_name");
  if (fp8) {
    draft.SetText("training.precision", "fp8");
    draft.SetText("framework_options.fp8_recipe", "current");
    if (recipe.starts_with("rowwise")) {
      r->Refuse("fp8_recipe_name", "scales a row are not modelled; tensorwise is");
    }
  }
  // Parameters, gradients and states are all of dtype.
  if (type == "bf16") draft.Set("framework_options.model_type_states", true);
  if (r->Has("fsdp_reshard_after_forward")) {
    draft.Set("framework_options.reshard", r->On("fsdp_reshard_after_forward"));
  }
  if (r->On("fsdp_cpu_offload")) draft.SetText("training.offload", "parameters");
  const bool recomputes = r->On("enable_activation_checkpointing");
  const std::string mode = r->Text("ac_mode");
  draft.SetText("training.recompute", recomputes ? "full" : "none");
  if (!mode.empty()) r->Refuse("ac_mode", "checkpoints of some layers or operators are not read");
  if (r->On("enable_activation_offloading")) {
    if (draft.Has("training.offload")) {
      r->Refuse("enable_activation_offloading",
                "activations in host memory beside parameters there are not modelled");
    } else {
      draft.SetText("training.offload", "activations");
    }
  }
  draft.SetText("framework_options.torch_layers", r->On("compile") ? "compiled" : "eager");
  const std::string optimizer = r->Text("optimizer._component_");
  if (optimizer == "torch.optim.AdamW" || optimizer == "torch.optim.Adam") {
    draft.SetText("training.optimizer", optimizer.ends_with("W") ? "adamw" : "adam");
    draft.Set("framework_options.fused_adam", r->On("optimizer.fused"));
  } else if (optimizer == "torch.optim.SGD") {
    draft.SetText("training.optimizer", "sgd");
    draft.Set("training.momentum", r->Real("optimizer.momentum", 0) > 0);
  } else if (!SetSmallOptimizer(optimizer, &draft)) {
    r->Refuse("optimizer._component_",
              fmt::format("'{}' is not modelled; Adam, AdamW and SGD of torch.optim, AdamW8bit, "
                          "PagedAdamW and PagedAdamW8bit of bitsandbytes.optim are",
                          Printable(optimizer, 60)));
  }
  draft.Set("framework_options.drops_logits", true);
  if (r->On("optimizer_in_bwd")) draft.Set("framework_options.optimizer_in_backward", true);
  const std::string loss = r->Text("loss._component_");
  if (loss.ends_with("LinearCrossEntropyLoss")) {
    draft.Set("framework_options.chunked_loss", true);
  } else if (!loss.ends_with("CEWithChunkedOutputLoss") && !loss.ends_with("CrossEntropyLoss")) {
    r->Refuse("loss._component_", "another loss than the likelihood is not modelled");
  }
  if (!r->Has("clip_grad_norm")) draft.Set("framework_options.clip_gradients", false);
}

}  // namespace

const Table& TorchtuneTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_torchtune.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsTorchtune(std::string_view text, const std::string& path) {
  return IsYaml(path) && Contains(text, "_component_:") && Contains(text, "torchtune.");
}

Result<Imported> ReadTorchtune(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "torchtune"));
  ORRERY_ASSIGN_OR_RETURN(formats::Document document, ParseConfiguration(taken.file));
  ResolveExpressions(&document);
  const Tables tables = {&TorchtuneTable()};
  Reading reading(tables, options, taken.file.path);
  AddLeaves(document, document.root, tables, &reading);
  reading.Translate();
  const Component component = ParseComponent(reading.Text("model._component_"));
  ReadModel("torchtune", taken.model, component.model, "model._component_", &reading);
  ReadTuneTraining(&reading);
  ReadAdapters(component, &reading);
  // Recipes for one GPU carry it in their name.
  ReadTuneSizes(Contains(taken.file.path, "single_device"), &reading);
  if (const auto length = reading.Whole("tokenizer.max_seq_len")) {
    reading.draft().Set("training.seq_len", *length);
    reading.draft().Assume(fmt::format(
        "sequences are as long as tokenizer.max_seq_len lets them be, {} tokens", *length));
  } else if (!reading.IsSet("training.seq_len")) {
    reading.Missing("how long sequences are: give --set training.seq_len=N");
  }
  return reading.Finish("torchtune");
}

}  // namespace orrery::recipes
