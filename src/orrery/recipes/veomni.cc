// VeOmni's YAML (ByteDance Seed): FSDP2 around transformers' models with fused kernels. Rules that
// join several keys; what one key says alone stands in data/recipes/veomni.csv, in its names of
// 2026 and those of its first releases. Source of defaults and meaning: ByteDance-Seed/VeOmni
// d977449, veomni/arguments/arguments_types.py, distributed/torch_parallelize.py, trainer/base.py.
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/adapters.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"

namespace orrery::recipes {
namespace {

constexpr std::string_view kOps = "model.ops_implementation.";
constexpr std::string_view kAccelerator = "train.accelerator.";

std::string Implementation(std::string_view part, std::string_view fallback, Reading* r) {
  const std::string argument = fmt::format("{}{}_implementation", kOps, part);
  return r->Has(argument) ? Lower(r->Text(argument)) : std::string(fallback);
}

// A flag that is on unless the file says otherwise.
bool OnUnless(const std::string& argument, Reading* r) {
  return !r->Has(argument) || r->On(argument);
}

std::int64_t Accelerator(std::string_view name, std::int64_t fallback, Reading* r) {
  return r->Whole(fmt::format("{}{}", kAccelerator, name)).value_or(fallback);
}

void ReadVeOmniKernels(Reading* r) {
  Draft& draft = r->draft();
  const std::string attention = Implementation("attn", "flash_attention_2", r);
  if (attention.starts_with("flash_attention_")) {
    draft.SetText("framework_options.attention", "flash" + attention.substr(16));
    draft.Set("framework_options.repeats_kv", false);
  } else if (attention == "eager") {
    draft.SetText("framework_options.attention", "unfused");
  } else if (attention != "sdpa") {
    r->Refuse(fmt::format("{}attn_implementation", kOps),
              fmt::format("attention '{}' is not modelled; eager, sdpa and flash_attention_2 to 4 "
                          "are",
                          Printable(attention, 40)));
  }
  const bool eager = Implementation("rms_norm", "liger_kernel", r) == "eager" &&
                     Implementation("swiglu_mlp", "liger_kernel", r) == "eager";
  const bool rotary = Implementation("rotary_pos_emb", "liger_kernel", r) == "eager";
  const bool compiled = r->On("train.torch_compile.enable");
  draft.SetText("framework_options.torch_layers", compiled ? "compiled"
                                                  : eager  ? "eager"
                                                           : "fused");
  if (!compiled && eager) draft.Set("framework_options.transformers_modules", true);
  if (!compiled && !eager && !rotary) draft.Set("framework_options.in_place_kernels", true);
  if (Implementation("cross_entropy_loss", "liger_kernel", r) != "eager") {
    draft.Set("framework_options.chunked_loss", true);
  }
  const std::string experts = Implementation("moe", "fused_triton", r);
  const auto model = r->Model();
  if (experts != "eager" || !model || model->experts.count == 0) return;
  if (eager && !compiled && Accelerator("ep_size", 1, r) == 1) {
    draft.Set("framework_options.expert_loop", true);
  } else {
    draft.Assume(
        "experts as grouped products, though moe_implementation: eager runs them one after the "
        "other: a loop is built for eager layers whose rank holds all experts");
  }
}

void ReadVeOmniAdapters(Reading* r) {
  const auto rank = r->Whole("model.lora_config.rank");
  const std::vector<std::string> modules = r->Texts("model.lora_config.lora_modules");
  const std::vector<std::string> parameters = r->Texts("model.lora_config.target_parameters");
  const bool shared = r->On("model.lora_config.share_expert_lora");
  if (!rank) return;
  r->draft().Set("training.lora_rank", *rank);
  if (modules.empty() && parameters.empty()) {
    return r->Refuse("model.lora_config.rank", "it names no module beside which adapters stand");
  }
  const bool of_experts = !parameters.empty();
  if (modules.empty()) {
    r->draft().SetText("training.lora_targets", "none");
  } else {
    SetLoraTargets(modules, "model.lora_config.lora_modules", r, shared ? "shared" : "grouped");
  }
  if (of_experts) r->draft().SetText("training.lora_experts", shared ? "shared" : "grouped");
}

void ReadVeOmniSizes(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t ulysses = Accelerator("ulysses_size", 1, r);
  const std::int64_t experts = Accelerator("ep_size", 1, r);
  const std::int64_t copies = Accelerator("dp_replicate_size", -1, r);
  const std::int64_t shards = Accelerator("dp_shard_size", -1, r);
  if (ulysses > 1) {
    draft.Set("parallel.cp", ulysses);
    draft.SetText("framework_options.cp_exchange", "all-to-all");
  }
  if (experts > 1) {
    draft.Set("parallel.ep", experts);
    draft.SetText("training.moe_dispatcher", "alltoall");
  }
  Launch launch;
  if (copies > 0 && shards > 0) launch.gpus = Product({copies, shards, ulysses});
  r->SetSize(launch);
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  if (copies > 1 && dp > 0) {
    if (dp % copies == 0) {
      draft.Set("parallel.shard_group", Product({dp / copies, ulysses}));
    } else {
      r->Problem(
          fmt::format("{}: {} copies do not divide {} data-parallel ranks", r->file(), copies, dp));
    }
  }
  const auto micro = r->Whole("train.micro_batch_size"), all = r->Whole("train.global_batch_size");
  draft.Set("training.micro_batch", micro.value_or(1));
  if (dp < 1) return;
  const std::int64_t pass = Product({micro.value_or(1), dp});
  if (all && pass > 0 && *all % pass != 0) {
    return r->Problem(fmt::format(
        "{}: global_batch_size {} is no multiple of {} data-parallel ranks times micro_batch_size "
        "{}; give another --gpus",
        r->Where("train.global_batch_size"), *all, dp, micro.value_or(1)));
  }
  draft.Set("training.global_batch", all.value_or(pass));
  if (!r->Has("train.dyn_bsz") || r->On("train.dyn_bsz")) {
    r->Suppose("train.dyn_bsz",
               "samples are packed into micro_batch_size · max_seq_len tokens, priced as whole "
               "sequences of max_seq_len, which is the dearest",
               "training.packed_len");
  }
}

void ReadVeOmniTraining(Reading* r) {
  Draft& draft = r->draft();
  const std::string fsdp = fmt::format("{}fsdp_config.", kAccelerator);
  const std::string mode =
      r->Has(fsdp + "fsdp_mode") ? Lower(r->Text(fsdp + "fsdp_mode")) : "fsdp2";
  const bool mixed = OnUnless(fsdp + "mixed_precision.enable", r);
  const bool reshards = OnUnless(fsdp + "reshard_after_forward", r);
  const bool full = OnUnless("train.enable_full_shard", r);
  const bool offload = r->On(fsdp + "offload");
  const bool adapters = draft.Has("training.lora_rank");
  draft.SetText("training.precision", "bf16");
  if (mode == "ddp") {
    draft.SetText("framework", "ddp");
    draft.SetText("training.sharding", "none");
    if (!mixed && !adapters) draft.Set("framework_options.model_type_states", true);
    draft.Set("framework_options.clip_gradients", true);
  } else if (mode == "fsdp2" || mode == "fsdp1") {
    draft.SetText("framework", mode);
    draft.SetText("training.sharding", reshards && full ? "zero3" : "zero2");
    if (mode == "fsdp2") {
      const std::string reduce = r->Has(fsdp + "mixed_precision.reduce_dtype")
                                     ? Lower(r->Text(fsdp + "mixed_precision.reduce_dtype"))
                                     : "float32";
      draft.Set("framework_options.grad_reduce_fp32", mixed && reduce == "float32");
      if (!mixed && !adapters) draft.Set("framework_options.model_type_states", true);
    }
  } else {
    r->Refuse(fsdp + "fsdp_mode",
              fmt::format("'{}' is not modelled; fsdp2, fsdp1 and ddp are", Printable(mode, 40)));
  }
  const std::string type = r->Has(fsdp + "mixed_precision.param_dtype")
                               ? Lower(r->Text(fsdp + "mixed_precision.param_dtype"))
                               : "bfloat16";
  if (type != "bfloat16") {
    r->Refuse(fsdp + "mixed_precision.param_dtype",
              "products of another type than bfloat16 are "
              "not read");
  }
  if (offload) draft.SetText("training.offload", "parameters");
  if (r->On(fmt::format("{}offload_config.enable_activation", kAccelerator))) {
    if (offload) {
      r->Refuse(fmt::format("{}offload_config.enable_activation", kAccelerator),
                "activations in host memory beside parameters there are not modelled");
    } else {
      draft.SetText("training.offload", "activations");
    }
  }
  draft.SetText("training.recompute",
                OnUnless("train.gradient_checkpointing.enable", r) ? "full" : "none");
  const std::string optimizer =
      r->Has("train.optimizer.type") ? Lower(r->Text("train.optimizer.type")) : "adamw";
  if (optimizer == "adamw" || optimizer == "muon") {
    draft.SetText("training.optimizer", optimizer);
    draft.Set("framework_options.fused_adam", true);
  } else {
    r->Refuse("train.optimizer.type",
              fmt::format("'{}' is not modelled; adamw and muon are", Printable(optimizer, 40)));
  }
  if (r->Has("train.optimizer.max_grad_norm") && r->Real("train.optimizer.max_grad_norm", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
  draft.Set("framework_options.drops_logits", !draft.Has("framework_options.chunked_loss"));
}

// What the file names a checkpoint, without what its own scripts add to a model's name ("-merge",
// as experts' tensors are stacked).
std::string VeOmniModel(std::string name) {
  while (name.ends_with('/')) name.pop_back();
  name = name.substr(name.rfind('/') + 1);
  for (const std::string_view suffix : {"-merge", "-merged", "-moe-merge"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  }
  return name;
}

}  // namespace

const Table& VeOmniTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_veomni.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsVeOmni(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "model") && HasKey(text, "data") && HasKey(text, "train") &&
         (Contains(text, "model_path:") || Contains(text, "config_path:"));
}

Result<Imported> ReadVeOmni(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "VeOmni"));
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, ParseConfiguration(taken.file));
  const Tables tables = {&VeOmniTable()};
  Reading reading(tables, options, taken.file.path);
  AddLeaves(document, document.root, tables, &reading);
  reading.Translate();
  std::string name = reading.TextIfKnown("model.model_path");
  const std::string config = reading.TextIfKnown("model.config_path");
  std::string file = taken.model;
  if (file.empty() && !config.empty()) {
    const std::string json = config.ends_with(".json") ? config : config + "/config.json";
    ORRERY_ASSIGN_OR_RETURN(const std::optional<File> found, OpenNamed(json, taken.file.path));
    if (found) file = found->path;
    if (name.empty())
      name = config.ends_with(".json") ? config.substr(0, config.size() - 5) : config;
  }
  ReadModel("hub", file, VeOmniModel(std::move(name)), "model.model_path", &reading);
  ReadVeOmniAdapters(&reading);
  ReadVeOmniTraining(&reading);
  ReadVeOmniKernels(&reading);
  ReadVeOmniSizes(&reading);
  if (!reading.draft().Has("training.seq_len"))
    reading.draft().Set("training.seq_len", std::int64_t{2048});
  return reading.Finish("veomni");
}

}  // namespace orrery::recipes
