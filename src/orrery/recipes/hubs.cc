// Frameworks around Hugging Face's Trainer: axolotl's YAML, ms-swift's command lines and YAML,
// open-instruct. What one argument says stands in data/recipes/axolotl.csv and ms_swift.csv, mostly
// as the Trainer's argument that says the same; here is what they take when nothing is said.
// Source: axolotl-ai-cloud/axolotl, src/axolotl/utils/schemas and core/builders;
// modelscope/ms-swift, swift/arguments and swift/config.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/huggingface.h"
#include "orrery/recipes/xtuner.h"

namespace orrery::recipes {
namespace {

// True or false; "offload" is its older name for activation_offloading beside it.
void ReadAxolotlCheckpoints(Reading* r) {
  if (!r->Has("gradient_checkpointing")) return;
  const std::string value = Lower(r->Text("gradient_checkpointing"));
  const std::string where = r->Where("gradient_checkpointing");
  if (value.empty() || value == "null") return;
  const bool offloads = value == "offload";
  if (!offloads && value != "true" && value != "false") {
    return r->Refuse(
        "gradient_checkpointing",
        fmt::format("'{}' is not modelled; true, false and offload are", Printable(value, 40)));
  }
  const std::string on = value == "false" ? "false" : "true";
  r->AddAs("--gradient_checkpointing", "gradient_checkpointing", on, where);
  if (offloads) r->AddAs("--activation_offloading", "gradient_checkpointing", "true", where);
}

void AxolotlDefaults(const Script*, Sources*, Reading* r) {
  ReadAxolotlCheckpoints(r);
  // fsdp_config alone turns FSDP on.
  const bool sharded = r->Has("fsdp_config.fsdp_version") || r->Has("fsdp_config.version") ||
                       r->Has("fsdp_config.reshard_after_forward") ||
                       r->Has("fsdp_config.fsdp_reshard_after_forward");
  if (!r->Has("--fsdp") && sharded) r->AddAs("--use_fsdp", "fsdp_config", "true", r->file());
  if (r->On("--load_in_4bit") && !r->Has("--use_bnb_nested_quant")) {
    r->AddAs("--use_bnb_nested_quant", "load_in_4bit", "true", r->Where("--load_in_4bit"));
  }
  const bool cuts = std::ranges::any_of(r->Texts("plugins"), [](const std::string& plugin) {
    return Contains(plugin, "cut_cross_entropy");
  });
  if (cuts && !r->Has("--loss_type")) {
    r->AddAs("--loss_type", "plugins", "chunked_nll", r->Where("plugins"));
  }
}

// DeepSpeed's files that ms-swift brings (swift/config), by the names it takes for them.
void AddBroughtDeepSpeed(Sources* sources, Reading* r) {
  const std::string name = r->Has("--deepspeed") ? r->TextIfKnown("--deepspeed") : std::string();
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kBrought = {
      {{"zero0", ""},
       {"zero1", ""},
       {"zero2", ""},
       {"zero3", ""},
       {"zero2_offload", "optimizer"},
       {"zero3_offload", "parameters"}}};
  const auto found =
      std::ranges::find_if(kBrought, [&](const auto& one) { return one.first == name; });
  if (found == kBrought.end()) return;
  const std::string where = r->Where("--deepspeed");
  const auto add = [&](std::string_view argument, std::string value) {
    r->AddAs(argument, "--deepspeed", std::move(value), where);
  };
  sources->deepspeed = true;
  add("zero_optimization.stage", name.substr(4, 1));
  if (name != "zero0") add("zero_optimization.overlap_comm", "false");
  add("zero_optimization.contiguous_gradients", "true");
  add("zero_optimization.reduce_bucket_size", name.starts_with("zero3") ? "auto" : "200000000");
  if (!found->second.empty()) add("zero_optimization.offload_optimizer.device", "cpu");
  if (found->second == "parameters") add("zero_optimization.offload_param.device", "cpu");
}

// A step takes 16 sequences where it is not said (swift/arguments/sft_args.py).
void AddSwiftPasses(const Launch& launch, Reading* r) {
  const Options& options = r->options();
  std::int64_t gpus = launch.gpus > 0 ? launch.gpus : Product({launch.nodes, launch.gpus_per_node});
  if (options.nodes > 0) gpus = Product({options.nodes, r->ClusterGpusPerNode()});
  if (options.gpus > 0) gpus = options.gpus;
  const std::int64_t micro = r->Whole("--per_device_train_batch_size").value_or(1);
  if (gpus <= 0 || micro <= 0) return;               // asked for
  const std::int64_t each = Product({micro, gpus});  // of a pass
  const std::int64_t passes = each >= 16 ? 1 : (16 + each - 1) / each;
  r->AddAs("--gradient_accumulation_steps", "gradient_accumulation_steps", std::to_string(passes),
           r->file());
  r->draft().Assume(fmt::format(
      "gradient_accumulation_steps: {}, for a step takes 16 sequences unless said", passes));
}

void SwiftDefaults(const Script* script, Sources* sources, Reading* r) {
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(name), std::move(value), r->file());
  };
  if (!r->Has("--bf16") && !r->Has("--fp16")) {
    add("--bf16", "torch_dtype", "true");
    r->draft().Assume("bf16: the type in which most checkpoints are kept, ms-swift's default");
  }
  if (r->Text("--fsdp") == "fsdp2") {  // a file that it brings
    r->AddAs("--fsdp", "--fsdp", "full_shard auto_wrap", r->Where("--fsdp"));
    add("fsdp_config.version", "--fsdp", "2");
    add("fsdp_config.activation_checkpointing", "--fsdp", "true");
  }
  add("--use_peft", "tuner_type", "true");
  if (r->On("--use_peft")) add("--lora_target_modules", "target_modules", "all-linear");
  add("--gradient_checkpointing", "gradient_checkpointing", "true");
  AddBroughtDeepSpeed(sources, r);
  if (script != nullptr) ReadSwiftLaunch(*script, &sources->launch);
  if (!r->Has("--gradient_accumulation_steps")) AddSwiftPasses(sources->launch, r);
}

// Accelerate starts it with --mixed_precision bf16 in all of its scripts; models are loaded in
// bf16.
void OpenInstructDefaults(const Script*, Sources*, Reading* r) {
  if (!r->Has("--bf16") && !r->Has("--fp16") && !r->Has("mixed_precision")) {
    r->AddAs("--bf16", "mixed_precision", "true", r->file());
    r->draft().Assume("bf16: accelerate launch --mixed_precision bf16, as open-instruct's scripts");
  }
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(name), std::move(value), r->file());
  };
  add("--attn_implementation", "use_flash_attn", "flash_attention_2");
  if (!r->On("--use_peft")) return;
  add("--lora_target_modules", "use_lora", "all-linear");
  if (r->On("--load_in_4bit")) add("--use_bnb_nested_quant", "use_qlora", "true");
}

}  // namespace

void ReadSwiftLaunch(const Script& script, Launch* launch) {
  const auto number = [&](const char* name) -> std::int64_t {
    const auto found = script.exported.find(name);
    if (found == script.exported.end()) return 0;
    if (!found->second.unknown.empty()) launch->unknown = "$" + found->second.unknown;
    const Result<std::int64_t> value = ParseInteger(found->second.text);
    return value.ok() ? *value : 0;
  };
  const std::int64_t each = number("NPROC_PER_NODE"), nodes = number("NNODES");
  const auto visible = script.exported.find("CUDA_VISIBLE_DEVICES");
  if (each > 0) {
    launch->gpus_per_node = each;
    launch->nodes = nodes > 0 ? nodes : launch->unknown.empty() ? 1 : 0;
  } else if (visible != script.exported.end() && visible->second.unknown.empty() &&
             !Contains(visible->second.text, ",")) {
    launch->gpus = 1;  // one process on the one GPU that it sees
  }
}

const Table& AxolotlTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_axolotl.inc"
  };
  static const Table table(kLines);
  return table;
}

const Table& MsSwiftTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_ms_swift.inc"
  };
  static const Table table(kLines);
  return table;
}

const Table& OpenInstructTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_open_instruct.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsOpenInstruct(std::string_view text, const std::string& path) {
  if (IsYaml(path)) {
    return HasKey(text, "per_device_train_batch_size") &&
           (HasKey(text, "with_tracking") || HasKey(text, "dataset_mix_dir") ||
            HasKey(text, "dataset_mixer_list"));
  }
  return Contains(text, "open_instruct/finetune.py") || Contains(text, "open_instruct.finetune");
}

bool IsAxolotl(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "base_model") &&
         (HasKey(text, "sequence_len") || HasKey(text, "micro_batch_size"));
}

bool IsMsSwift(std::string_view text, const std::string& path) {
  if (IsYaml(path)) {
    return HasKey(text, "model") && !HasKey(text, "tensor_model_parallel_size") &&
           (HasKey(text, "tuner_type") || HasKey(text, "train_type") || HasKey(text, "lora_rank") ||
            HasKey(text, "attn_impl"));
  }
  return Contains(text, "swift sft") || Contains(text, "swift pt") ||
         Contains(text, "swift/cli/sft.py") || Contains(text, "swift/cli/pt.py") ||
         Contains(text, "swift rlhf");
}

const Hub* FindHub(std::string_view text, const std::string& path) {
  static const Hub kHubs[] = {
      {"axolotl", AxolotlTable, IsAxolotl, AxolotlDefaults},
      {"ms-swift", MsSwiftTable, IsMsSwift, SwiftDefaults},
      {"open-instruct", OpenInstructTable, IsOpenInstruct, OpenInstructDefaults},
      {"xtuner", XtunerTable, IsXtuner, XtunerDefaults},
      LlamaFactoryV1Hub(),
      TrainerPythonHub(),
      OpenRlhfHub(),
      HyperPodHub()};
  for (const Hub& hub : kHubs) {
    if (hub.knows(text, path)) return &hub;
  }
  return nullptr;
}

}  // namespace orrery::recipes
