// LLaMA-Factory's version 1: a trainer of its own on FSDP2, DDP or DeepSpeed, around models of
// Hugging Face. What one key says stands in data/recipes/llama_factory_v1.csv, mostly as the
// Trainer's argument that says the same; here is what it takes when nothing is said. Source:
// hiyouga/LLaMA-Factory ff6d4d1, src/llamafactory/v1 (core/base_trainer.py, core/model_engine.py,
// core/utils/batching.py, plugins/trainer_plugins).
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {
namespace {

std::string PluginName(std::string_view argument, Reading* r) {
  std::string name = r->Has(argument) ? Lower(r->Text(argument)) : std::string();
  return name == "none" || name == "null" ? "" : name;
}

// DP ranks times micro-batch times passes.
void AddFactoryPasses(Reading* r) {
  const auto all = r->Whole("global_batch_size");
  const auto dp = r->Whole("dp_size");
  const Options& options = r->options();
  const std::int64_t shared = r->Whole("parallelism_config.sp_size").value_or(1);
  std::int64_t ranks = options.gpus > 0    ? options.gpus
                       : options.nodes > 0 ? Product({options.nodes, r->ClusterGpusPerNode()})
                                           : Product({dp.value_or(0), shared});
  const std::int64_t micro = r->Whole("--per_device_train_batch_size").value_or(1);
  const std::int64_t each = shared > 0 && micro > 0 ? Product({ranks / shared, micro}) : 0;
  if (!all || each <= 0) return;
  if (*all % each != 0) {
    return r->Problem(fmt::format(
        "{}: global_batch_size {} is no multiple of {} data-parallel ranks times micro_batch_size "
        "{}",
        r->Where("global_batch_size"), *all, ranks / shared, micro));
  }
  r->AddAs("--gradient_accumulation_steps", "global_batch_size", std::to_string(*all / each),
           r->Where("global_batch_size"));
}

void AddDistribution(Reading* r) {
  const std::string name = PluginName("dist_config.name", r);
  const std::string where = r->Where("dist_config.name");
  const std::int64_t cp = r->Whole("parallelism_config.sp_size").value_or(1);
  if (name == "fsdp2" || name == "fsdpturbo") {
    r->AddAs("--fsdp", "dist_config", "full_shard auto_wrap", where);
    r->AddAs("fsdp_config.version", "dist_config", "2", where);
    const std::int64_t experts = r->Whole("dist_config.ep_size").value_or(1);
    if (name == "fsdpturbo" && experts > 1) {
      r->draft().Set("parallel.ep", experts);
      r->draft().SetText("training.moe_dispatcher", "alltoall");
    }
  } else if (name == "deepspeed") {
    if (cp > 1) r->Refuse("cp_size", "sequences are shared out under dist_config.name fsdp2 alone");
  } else if (!name.empty()) {
    r->Refuse("dist_config.name",
              fmt::format("'{}' is not modelled; fsdp2, fsdpturbo, deepspeed and none (DDP) are",
                          Printable(name, 40)));
  }
  if (name != "deepspeed") {  // every micro-batch's backward pass reduces
    r->AddAs("accelerator_config.gradient_accumulation_kwargs.sync_each_batch", "dist_config",
             "true", r->file());
  }
}

void AddFactoryAdapters(Reading* r) {
  const std::string name = PluginName("peft_config.name", r);
  const auto add = [&](std::string_view argument, std::string_view as, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(as), std::move(value), r->file());
  };
  if (name == "lora") {
    add("--use_peft", "peft_config.name", "true");
    add("--lora_r", "peft_config.r", "8");
    add("--lora_target_modules", "peft_config.target_modules", "all");
  } else if (!name.empty()) {
    r->Refuse("peft_config.name",
              fmt::format("'{}' is not modelled; lora is", Printable(name, 40)));
  }
  const auto bits = r->Whole("quant_config.quantization_bit");
  if (bits && *bits > 0) {
    r->AddAs(*bits == 8 ? "--load_in_8bit" : "--load_in_4bit", "quant_config.quantization_bit",
             "true", r->Where("quant_config.quantization_bit"));
    add("--use_bnb_nested_quant", "quant_config.double_quantization", "true");
  }
}

void AddFactoryKernels(Reading* r) {
  const std::string names = PluginName("kernel_config.name", r) + ",";
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = names.find(',', at);
    std::string name = names.substr(at, end - at);
    std::erase(name, ' ');
    at = end + 1;
    if (name == "liger_kernel") {
      r->AddAs("--use_liger_kernel", "kernel_config.name", "true", r->Where("kernel_config.name"));
    } else if (!name.empty() && name != "auto" && name != "flash-linear-attention") {
      r->Refuse("kernel_config.name", fmt::format("the kernel '{}' is not modelled; auto, "
                                                  "liger_kernel and flash-linear-attention are",
                                                  Printable(name, 40)));
    }
  }
}

void FactoryDefaults(const Script*, Sources*, Reading* r) {
  const auto add = [&](std::string_view argument, std::string_view as, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(as), std::move(value), r->file());
  };
  add("--per_device_train_batch_size", "micro_batch_size", "1");
  add("--max_length", "cutoff_len", "2048");
  add("--bf16", "bf16", "true");
  add("--gradient_checkpointing", "enable_activation_checkpointing", "true");
  AddDistribution(r);
  AddFactoryAdapters(r);
  AddFactoryKernels(r);
  const std::string optimizer = PluginName("optim_config.name", r);
  if (optimizer == "muon") {
    r->AddAs("use_muon", "optim_config.name", "true", r->Where("optim_config.name"));
  } else if (optimizer.empty()) {
    r->AddAs("--optim", "optim_config", "adamw_torch", r->file());
  } else {
    r->Refuse("optim_config.name", fmt::format("'{}' is not modelled; muon, and AdamW where it is "
                                               "left out, are",
                                               Printable(optimizer, 40)));
  }
  const std::string batching = PluginName("batching_strategy", r);
  if (batching.starts_with("dynamic")) {
    r->draft().Assume(
        "a micro-batch has micro_batch_size sequences of cutoff_len tokens, which is what dynamic "
        "batching fills it up to");
  }
  AddFactoryPasses(r);
}

// Gradients are reduced in fp32; a model is loaded in its checkpoint's type, and trained so.
void AfterFactory(Reading* r) {
  Draft& draft = r->draft();
  const std::string_view framework = draft.Text("framework");
  if (framework != "fsdp2") return;
  draft.Set("framework_options.grad_reduce_fp32", true);
  draft.Set("framework_options.fused_adam", false);
  const bool adam = draft.Text("training.optimizer") == "adamw";
  if (draft.Text("training.precision") != "bf16" || draft.Has("training.lora_rank") || !adam) {
    return;
  }
  draft.Set("framework_options.model_type_states", true);
  draft.Assume(
      "shards and the optimizer's state are of bf16, the type in which most checkpoints are kept "
      "(it is loaded as it is)");
}

}  // namespace

const Table& LlamaFactoryV1Table() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_llama_factory_v1.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsLlamaFactoryV1(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "model") && !HasKey(text, "data") &&
         (HasKey(text, "model_class") || HasKey(text, "dist_config") ||
          HasKey(text, "kernel_config"));
}

const Hub& LlamaFactoryV1Hub() {
  static constexpr Hub kHub = {"llama-factory-v1", LlamaFactoryV1Table, IsLlamaFactoryV1,
                               FactoryDefaults, AfterFactory};
  return kHub;
}

}  // namespace orrery::recipes
