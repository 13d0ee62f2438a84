// Arguments of Hugging Face's Trainer (TrainingArguments), of TRL and LLaMA-Factory, and
// Accelerate's YAML: rules that join several. Source of defaults and meaning:
// huggingface/transformers training_args.py, huggingface/accelerate utils/dataclasses.py,
// huggingface/trl trainer/sft_config.py, hiyouga/LLaMA-Factory hparams and model/.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/huggingface.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

// The first of these that is given, as text; empty: none is.
std::string FirstText(std::initializer_list<std::string_view> arguments, Reading* r) {
  std::string text;
  for (const std::string_view argument : arguments) {
    if (r->Has(argument) && text.empty()) text = r->Text(argument);
  }
  return text;
}

bool AnyOn(std::initializer_list<std::string_view> arguments, Reading* r) {
  bool on = false;
  for (const std::string_view argument : arguments) on = r->On(argument) || on;
  return on;
}

// How parameters are spread: FSDP's version and strategy, from Accelerate or the Trainer.
struct Fsdp {
  bool on = false;
  std::int64_t version = 1;
  std::string strategy = "full_shard";  // lower case
  bool offload = false, reshard = true;
};

// "full_shard auto_wrap", a list, or true.
void ReadTrainersFsdp(Fsdp* fsdp, Reading* r) {
  std::string words;
  for (const std::string& text : r->Texts("--fsdp")) words += Lower(text) + " ";
  if (words.find_first_not_of(' ') == std::string::npos || words == "false ") return;
  fsdp->on = true;
  fsdp->version = words.starts_with("true") ? 2 : 1;
  std::ranges::replace(words, ',', ' ');
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = words.find(' ', at);
    const std::string word = words.substr(at, end - at);
    at = end == std::string::npos ? words.size() : end + 1;
    if (word.empty() || word == "auto_wrap" || word == "true") continue;
    if (word == "offload") {
      fsdp->offload = true;
    } else {
      fsdp->strategy = word;
    }
  }
  r->draft().Assume(fmt::format(
      "FSDP version {}: the default of the releases that take --fsdp as it is written here",
      fsdp->version));
}

Fsdp ReadFsdp(Reading* r) {
  Fsdp fsdp;
  const std::string type = Lower(r->Text("distributed_type"));
  if (type == "fsdp" || r->On("--use_fsdp")) fsdp.on = true;
  ReadTrainersFsdp(&fsdp, r);
  const std::string version = FirstText({"fsdp_config.fsdp_version", "fsdp_config.version"}, r);
  if (version == "1" || version == "2") {
    fsdp.version = version == "2" ? 2 : 1;
  } else if (!version.empty()) {
    r->Problem(fmt::format("{}: FSDP has versions 1 and 2, not '{}'",
                           r->Where("fsdp_config.fsdp_version"), Printable(version, 20)));
  }
  const std::string strategy = Lower(r->Text("fsdp_config.fsdp_sharding_strategy"));
  constexpr std::array<std::string_view, 5> kNumbers = {"full_shard", "shard_grad_op", "no_shard",
                                                        "hybrid_shard", "hybrid_shard_zero2"};
  if (strategy.size() == 1 && strategy[0] >= '1' && strategy[0] <= '5') {
    fsdp.strategy = kNumbers[static_cast<std::size_t>(strategy[0] - '1')];
  } else if (!strategy.empty()) {
    fsdp.strategy = strategy;
  }
  const std::string reshard = Lower(FirstText(
      {"fsdp_config.fsdp_reshard_after_forward", "fsdp_config.reshard_after_forward"}, r));
  if (reshard == "false") {
    fsdp.reshard = false;
  } else if (!reshard.empty() && reshard != "true") {
    fsdp.strategy = reshard;  // version 1 takes a strategy there
  }
  fsdp.offload =
      AnyOn({"fsdp_config.fsdp_offload_params", "fsdp_config.cpu_offload"}, r) || fsdp.offload;
  return fsdp;
}

// Trainer and Accelerate's accumulate() leave the reductions of a step's micro-batches but the last
// out (Accelerator.no_sync).
void SetDeferredReduction(Reading* r) {
  Draft& draft = r->draft();
  const bool each = r->On("accelerator_config.gradient_accumulation_kwargs.sync_each_batch");
  draft.Set("framework_options.defer_grad_reduce", !each);
  if (each) {
    draft.Assume(
        "sync_each_batch: every micro-batch reduces its gradients, as with Transformers 5 and "
        "Accelerate's accumulate(); the Trainer of 4.46 to 4.56 does not read it");
  } else if (r->Whole("--gradient_accumulation_steps").value_or(1) > 1) {
    draft.Assume(
        "gradients stay unsharded on every GPU until a step's last micro-batch reduces them "
        "(Accelerate's no_sync); with sync_each_batch: true each micro-batch does, in less memory: "
        "--set framework_options.defer_grad_reduce=false");
  }
}

void SetFsdp(const Fsdp& fsdp, const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  draft.SetText("framework", fsdp.version == 2 ? "fsdp2" : "fsdp1");
  const bool two =
      fsdp.strategy.ends_with("shard_grad_op") || fsdp.strategy.ends_with("zero2") || !fsdp.reshard;
  const bool hybrid = fsdp.strategy.starts_with("hybrid_shard");
  const bool none = fsdp.strategy == "no_shard";
  if (!two && !hybrid && !none && fsdp.strategy != "full_shard") {
    r->Refuse(r->Has("--fsdp") ? "--fsdp" : "fsdp_config.fsdp_sharding_strategy",
              fmt::format("'{}' is no sharding strategy; valid: FULL_SHARD, SHARD_GRAD_OP, "
                          "NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2",
                          Printable(fsdp.strategy, 40)));
  }
  draft.Set("training.sharding", std::string(none ? "none" : two ? "zero2" : "zero3"));
  if (hybrid && !draft.Has("parallel.shard_group")) {
    const std::int64_t host =
        sources.launch.gpus_per_node > 0 ? sources.launch.gpus_per_node : r->ClusterGpusPerNode();
    if (host > 1) {
      draft.Set("parallel.shard_group", host);
      draft.Assume(fmt::format("parallel.shard_group: the {} GPUs of a host (HYBRID_SHARD)", host));
    }
  }
  draft.Set("framework_options.grad_reduce_fp32",
            draft.Text("training.precision") == "fp32");  // reduce_dtype is mixed_precision's
  if (!none) SetDeferredReduction(r);
  if (fsdp.offload) {
    if (two || none) {
      r->Refuse("fsdp_config.fsdp_offload_params",
                "parameters in host memory are modelled under FULL_SHARD");
    }
    draft.Set("training.offload", std::string("parameters"));
  }
  const std::string prefetch =
      Lower(FirstText({"fsdp_config.fsdp_backward_prefetch", "fsdp_config.backward_prefetch"}, r));
  if (prefetch == "no_prefetch" || prefetch == "none") {
    draft.Set("framework_options.prefetch", false);
  } else if (prefetch == "backward_post" || prefetch == "2") {
    r->Refuse(r->Has("fsdp_config.fsdp_backward_prefetch") ? "fsdp_config.fsdp_backward_prefetch"
                                                           : "fsdp_config.backward_prefetch",
              "gathers behind a layer's backward pass are not modelled; BACKWARD_PRE and "
              "NO_PREFETCH are");
  }
  const std::string wrap =
      Lower(FirstText({"fsdp_config.fsdp_auto_wrap_policy", "fsdp_config.auto_wrap_policy"}, r));
  if (wrap == "no_wrap") {
    r->Refuse("fsdp_config.fsdp_auto_wrap_policy",
              "the whole model as one unit is not modelled; a layer a unit is");
  } else if (wrap == "size_based_wrap") {
    draft.Assume("a layer is a unit of FSDP, where SIZE_BASED_WRAP cuts by size");
  }
  if (r->Has("fsdp_config.limit_all_gathers") && fsdp.version == 1 && !two && !none) {
    draft.Set("framework_options.limit_all_gathers", r->On("fsdp_config.limit_all_gathers"));
  }
}

// Accelerate's and the Trainer's ParallelismConfig.
void ReadTrainerDegrees(Reading* r) {
  Draft& draft = r->draft();
  const auto degree = [&](std::string_view name) {
    const std::string a = fmt::format("parallelism_config.parallelism_config_{}", name);
    const std::string b = fmt::format("parallelism_config.{}", name);
    const std::int64_t first = r->Whole(a).value_or(1), second = r->Whole(b).value_or(1);
    return std::max(first, second);
  };
  const std::int64_t replicas = degree("dp_replicate_size"), shards = degree("dp_shard_size");
  const std::int64_t tp = degree("tp_size"), cp = degree("cp_size"), sp = degree("sp_size");
  const std::string exchange = r->Text("parallelism_config.parallelism_config_cp_comm_strategy");
  if (tp > 1) draft.Set("parallel.tp", tp);
  if (cp > 1 && sp > 1) {
    r->Problem(fmt::format("{}: cp_size {} and sp_size {} together are not modelled; keep one",
                           r->file(), cp, sp));
  }
  if (cp > 1) {
    draft.Set("parallel.cp", cp);
    draft.Set("framework_options.cp_exchange",
              std::string(exchange == "alltoall" ? "all-to-all" : "all-gather"));
  } else if (sp > 1) {
    draft.Set("parallel.cp", sp);
    draft.Set("framework_options.cp_exchange", std::string("all-to-all"));
  }
  if (replicas > 1 && shards > 1) draft.Set("parallel.shard_group", shards * std::max(cp, sp));
}

void ReadTrainerPrecision(Reading* r) {
  Draft& draft = r->draft();
  const std::string mixed = Lower(r->Text("mixed_precision"));
  const bool bf16 = r->On("--bf16") || mixed == "bf16", fp16 = r->On("--fp16") || mixed == "fp16";
  const bool tf32 = r->On("--tf32"), pure = r->On("pure_bf16");
  const bool fp8 = mixed == "fp8" || r->On("fp8");
  std::string backend = Lower(FirstText({"fp8_config.backend", "fp8_backend"}, r));
  const bool gathers =
      AnyOn({"fp8_config.enable_fsdp_float8_all_gather", "fp8_enable_fsdp_float8_all_gather"}, r);
  if (pure) {
    r->Refuse("pure_bf16",
              "parameters, gradients and states all of bf16 are not modelled here; --leave-out and "
              "--set framework_options.model_type_states=true under fsdp2 come near");
  }
  if (!fp8) {
    if (bf16 || fp16 || pure || !draft.Has("training.precision")) {
      draft.Set("training.precision", std::string(bf16 || pure ? "bf16" : fp16 ? "fp16" : "fp32"));
    }
    if (tf32 && !bf16 && !fp16) {
      r->Refuse("--tf32", "GEMMs of tf32 are not modelled; bf16 and fp32 are");
    }
    return;
  }
  draft.Set("training.precision", std::string("fp8"));
  if (backend == "msamp") {
    r->Refuse("fp8_config.backend", "MS-AMP is not modelled; AO and TE are");
  }
  draft.SetText("framework_options.fp8_recipe", backend == "te" ? "delayed" : "current");
  draft.Set("framework_options.low_precision_gather", gathers);
}

// "q_proj,v_proj", a list, "all"
void ReadAdapters(const Sources& sources, Reading* r) {
  const std::string type = sources.llama_factory ? r->Text("finetuning_type") : "full";
  const bool peft = r->On("--use_peft");
  const auto rank = sources.llama_factory ? r->Whole("lora_rank") : r->Whole("--lora_r");
  const std::string_view argument = sources.llama_factory ? "lora_target" : "--lora_target_modules";
  std::vector<std::string> targets;
  for (std::string text : r->Texts(argument)) {
    std::ranges::replace(text, ',', ' ');
    for (std::size_t at = text.find_first_not_of(' '); at != std::string::npos;) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      targets.push_back(text.substr(at, end - at));
      at = text.find_first_not_of(' ', end);
    }
  }
  if (type != "full" && type != "lora") {
    r->Refuse("finetuning_type",
              fmt::format("'{}' is not modelled; full and lora are", Printable(type, 40)));
  }
  if (type != "lora" && !peft) return;
  r->draft().Set("training.lora_rank", rank.value_or(8));
  if (targets.empty() && sources.llama_factory) {
    targets = {"all"};
  }
  const std::vector<std::string> parameters = r->Texts("--lora_target_parameters");
  if (!parameters.empty()) {
    return SetLoraParameters(parameters, targets, "--lora_target_parameters", r);
  }
  SetLoraTargets(targets, argument, r, "modules");
}

void ReadTrainerOptimizer(const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  const std::string name = Lower(r->Text("--optim"));
  const bool adafactor = r->On("--adafactor"), muon = r->On("use_muon");
  if (draft.Has("training.optimizer") && !r->Has("--optim")) return;  // DeepSpeed's own
  if (adafactor || name == "adafactor") {
    draft.Set("training.optimizer", std::string("adafactor"));
  } else if (muon) {
    draft.Set("training.optimizer", std::string("muon"));
  } else if (name == "adam" && sources.hub != nullptr && sources.hub->name == "openrlhf") {
    draft.Set("training.optimizer", std::string("adamw"));  // DeepSpeed's FusedAdam
    draft.Set("framework_options.fused_adam", true);
  } else if (name == "sgd") {
    draft.Set("training.optimizer", std::string("sgd"));
    draft.Set("training.momentum", false);
  } else if (name == "adamw_torch" || name == "adamw_torch_fused" || name == "adamw_apex_fused" ||
             name == "adamw_hf") {
    draft.Set("training.optimizer", std::string("adamw"));
    const bool loop = name == "adamw_hf";
    draft.Set("framework_options.fused_adam", name != "adamw_torch" && !loop);
    if (loop) draft.Set("framework_options.adam_loop", true);
    if (!r->Has("--optim") && !sources.deepspeed) {
      draft.Assume("--optim adamw_torch_fused: the Trainer's default since PyTorch 2.8");
    }
  } else if (SetSmallOptimizer(name, &draft)) {
    // The Trainer registers embeddings for 32 bits (create_optimizer).
    if (IsOfBitsAndBytes(name) && name.ends_with("8bit") && !draft.Has("training.lora_rank")) {
      draft.Set("framework_options.fp32_embedding_states", true);
    }
  } else {
    r->Refuse("--optim",
              fmt::format("'{}' is not modelled; modelled: adamw_torch, adamw_torch_fused, "
                          "adamw_apex_fused, adamw_torch_8bit, adamw_torch_4bit, bitsandbytes' "
                          "adamw and lion (adamw_8bit, paged_adamw_32bit, lion_8bit …), adafactor, "
                          "sgd",
                          Printable(name, 40)));
  }
}

// axolotl and ms-swift load models in bf16 and train them so (LLaMA-Factory raises what it trains
// to fp32, FSDP and DeepSpeed do, too).
void ReadLoadedType(Reading* r) {
  Draft& draft = r->draft();
  const auto is = [&](std::string_view key, std::string_view value) {
    return draft.Text(key) == value;
  };
  const bool whole = is("framework", "ddp") && !draft.Has("training.lora_rank");
  const bool factors = is("training.optimizer", "adafactor") || is("training.optimizer", "muon");
  if (!whole || factors || !is("training.precision", "bf16")) return;
  draft.Set("framework_options.model_type_states", true);
  draft.Assume(
      "parameters, gradients and the optimizer's state are of bf16, as the model is loaded");
}

void ReadTrainerKernels(const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  const bool liger = AnyOn({"--use_liger_kernel", "enable_liger_kernel"}, r);
  const std::string backend = Lower(r->Text("dynamo_config.dynamo_backend"));
  const bool compiled = r->On("--torch_compile") || r->Has("--torch_compile_backend") ||
                        r->Has("--torch_compile_mode") || backend == "inductor";
  if (!compiled && backend != "no" && !backend.empty()) {
    r->Refuse("dynamo_config.dynamo_backend", "compilers other than inductor are not modelled");
  }
  if (liger) {
    draft.SetText("framework_options.torch_layers", "fused");
    draft.Set("framework_options.in_place_kernels", true);
    if (draft.Whole("parallel.tp", 1) == 1) draft.Set("framework_options.chunked_loss", true);
  } else {
    draft.SetText("framework_options.torch_layers", compiled ? "compiled" : "eager");
    if (!compiled) draft.Set("framework_options.transformers_modules", true);
  }
  const std::string loss = r->Text("--loss_type");
  if (loss == "chunked_nll") {
    draft.Set("framework_options.chunked_loss", true);
  } else if (!loss.empty() && loss != "nll") {
    r->Refuse("--loss_type", "another loss than the likelihood is not modelled");
  }
  const std::string_view argument = sources.llama_factory ? "flash_attn" : "--attn_implementation";
  const std::string attention = Lower(r->Text(argument));
  if (attention == "fa2" || attention == "flash_attention_2" ||
      attention == "kernels-community/flash-attn" || attention == "kernels-community/flash-attn2") {
    draft.SetText("framework_options.attention", "flash2");
    draft.Set("framework_options.repeats_kv", false);
  } else if (attention == "fa3" || attention == "flash_attention_3" ||
             attention == "kernels-community/flash-attn3" ||
             attention == "kernels-community/vllm-flash-attn3") {
    draft.SetText("framework_options.attention", "flash3");
    draft.Set("framework_options.repeats_kv", false);
  } else if (attention == "disabled" || attention == "eager") {
    draft.SetText("framework_options.attention", "unfused");
  } else if (!attention.empty() && attention != "sdpa" && attention != "auto") {
    r->Refuse(argument, fmt::format("attention '{}' is not modelled", Printable(attention, 40)));
  }
  if (!liger && loss != "chunked_nll") draft.Set("framework_options.drops_logits", true);
  // 1.0 unless told; DistributedDataParallel itself clips nothing.
  if (r->Has("--max_grad_norm") && r->Real("--max_grad_norm", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  } else if (draft.Text("framework") == "ddp") {
    draft.Set("framework_options.clip_gradients", true);
  }
}

void ReadTrainerRecompute(const Sources& sources, const Fsdp& fsdp, Reading* r) {
  Draft& draft = r->draft();
  const bool plugin = AnyOn(
      {"fsdp_config.fsdp_activation_checkpointing", "fsdp_config.activation_checkpointing"}, r);
  const bool trainer = r->On("--gradient_checkpointing");
  const bool without = r->On("disable_gradient_checkpointing");
  // LLaMA-Factory checkpoints unless told (model/model_utils/checkpointing.py).
  const bool on = (plugin && fsdp.on) || trainer || (sources.llama_factory && !without);
  if (sources.trainer || on) {
    draft.Set("training.recompute", std::string(on ? "full" : "none"));
  }
  const bool host = r->On("--activation_offloading");
  if (!host) return;
  if (draft.Has("training.offload")) {
    return r->Refuse("--activation_offloading",
                     "activations in host memory beside parameters there are not modelled");
  }
  draft.Set("training.offload", std::string("activations"));
}

void ReadStage(Reading* r) {
  const std::string stage = r->Text("stage");
  if (stage == "pt" || stage == "sft") return;
  r->Refuse("stage", fmt::format("'{}' is not modelled; pt and sft are", Printable(stage, 40)));
}

}  // namespace

void ReadLengths(const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  const std::string_view arguments[] = {"cutoff_len", "--max_length", "--block_size",
                                        "--model_max_length"};
  for (const std::string_view argument : arguments) {
    const bool factory = argument == "cutoff_len" && sources.llama_factory;
    if (!r->Has(argument) && !factory) continue;
    if (const auto length = r->Whole(argument)) {
      draft.Set("training.seq_len", *length);
      const Given* given = r->Find(argument);
      draft.Assume(fmt::format("sequences are as long as {} lets them be, {} tokens",
                               given == nullptr ? argument : given->name, *length));
    }
    break;
  }
  if (r->IsSet("training.seq_len") || draft.Has("training.seq_len")) return;
  r->Missing("how long sequences are: give --set training.seq_len=N");
}

void ReadTrainerRules(const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  const Fsdp fsdp = ReadFsdp(r);
  r->On("--use_deepspeed");
  const std::string type = Lower(r->Text("distributed_type"));
  constexpr std::array<std::string_view, 6> kTypes = {"",     "no",        "multi_gpu",
                                                      "fsdp", "deepspeed", "megatron_lm"};
  if (std::ranges::find(kTypes, type) == kTypes.end()) {
    r->Refuse("distributed_type",
              fmt::format("'{}' runs on no cluster with GPUs of ours; valid: NO, MULTI_GPU, FSDP, "
                          "DEEPSPEED",
                          Printable(type, 40)));
  } else if (type == "deepspeed" && !sources.deepspeed) {
    // Accelerate's own few keys in place of a JSON.
    const std::string stage = r->Text("deepspeed_config.zero_stage");
    draft.SetText("framework", "deepspeed");
    draft.SetText("training.sharding", stage == "0" ? "none" : "zero" + stage);
  }
  if (sources.trainer || sources.accelerate) ReadTrainerPrecision(r);
  ReadTrainerDegrees(r);
  if (sources.llama_factory) ReadStage(r);
  if (fsdp.on) {
    SetFsdp(fsdp, sources, r);
  } else if (!sources.deepspeed && type != "deepspeed") {
    draft.SetText("framework", "ddp");
    if (const auto bucket = r->Whole("--ddp_bucket_cap_mb"); bucket && *bucket > 0) {
      draft.Set("framework_options.bucket_bytes", *bucket << 20);
    }
  }
  const std::string optimizer = Lower(r->Text("deepspeed_config.offload_optimizer_device"));
  const std::string parameters = Lower(r->Text("deepspeed_config.offload_param_device"));
  if (optimizer == "nvme" || parameters == "nvme") {
    r->Refuse("deepspeed_config.offload_optimizer_device",
              "offload to 'nvme' is not modelled; cpu is");
  } else if (optimizer == "cpu") {
    draft.Set("training.offload", std::string(parameters == "cpu" ? "parameters" : "optimizer"));
  }
  ReadAdapters(sources, r);
  ReadBaseQuantization(r);
  if (sources.trainer) ReadTrainerOptimizer(sources, r);
  const std::string loaded =
      r->Has("from_pretrained.dtype") ? r->Text("from_pretrained.dtype") : "";
  const bool as_kept = loaded == "auto" || loaded.ends_with("bfloat16");
  if (sources.hub != nullptr && (!sources.python() || as_kept)) ReadLoadedType(r);
  ReadTrainerKernels(sources, r);
  ReadTrainerRecompute(sources, fsdp, r);
  ReadExpertModules(r);
  ReadPreparedBase(sources, r);
}

}  // namespace orrery::recipes
