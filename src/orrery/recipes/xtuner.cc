// xtuner 0.1 and 0.2: a configuration in Python for mmengine's runner, around a model of Hugging
// Face with adapters of PEFT. What one key says stands in data/recipes/xtuner.csv, mostly as the
// Trainer's argument that says the same; here is what it takes when nothing is said. Source:
// InternLM/xtuner v0.2.0, xtuner/tools/train.py, xtuner/model/sft.py and xtuner/configs/deepspeed.
#include "orrery/recipes/xtuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "orrery/base/text.h"
#include "orrery/recipes/python_document.h"
#include "orrery/recipes/python_file.h"

namespace orrery::recipes {
namespace {

// Sections of the runner's: a key in them is known, or is refused. Others are the file's own names.
constexpr std::array<std::string_view, 5> kSections = {"model.", "train_dataloader.",
                                                       "optim_wrapper.", "strategy.", "train_cfg."};

// DeepSpeed's files that xtuner brings (xtuner/configs/deepspeed), by their names.
void AddXtunerDeepSpeed(Sources* sources, Reading* r) {
  constexpr std::string_view kPrefix = "deepspeed_zero";
  const auto said = r->options().variables.find("DEEPSPEED");
  if (said != r->options().variables.end() && !sources->deepspeed) {
    r->AddAs("--deepspeed", "--deepspeed", said->second, "--env DEEPSPEED");
  }
  std::string name = r->Has("--deepspeed") ? r->TextIfKnown("--deepspeed") : std::string();
  const bool offload = name.ends_with("_offload");
  if (offload) name.resize(name.size() - std::string_view("_offload").size());
  if (name.size() != kPrefix.size() + 1 || !name.starts_with(kPrefix)) return;
  const char stage = name.back();
  if (stage < '1' || stage > '3') return;
  const std::string where = r->Where("--deepspeed");
  const auto add = [&](std::string_view argument, std::string value) {
    r->AddAs(argument, "--deepspeed", std::move(value), where);
  };
  sources->deepspeed = true;
  add("zero_optimization.stage", std::string(1, stage));
  add("zero_optimization.overlap_comm", "true");
  if (offload) add("zero_optimization.offload_optimizer.device", "cpu");
  if (offload && stage == '3') add("zero_optimization.offload_param.device", "cpu");
}

void XtunerPrecision(bool deepspeed, Reading* r) {
  const bool adapters = r->On("--use_peft");
  const std::string type = r->Text("optim_wrapper.dtype");
  if (deepspeed) {
    r->AddAs("--bf16", "--deepspeed", "true", r->file());
    r->draft().Assume("bf16: its DeepSpeed takes it on GPUs that have it (auto)");
  } else if (adapters) {
    r->AddAs(Contains(type, "bfloat16") ? "--bf16" : "--fp16", "optim_wrapper.dtype", "true",
             r->Where("optim_wrapper.dtype"));
    if (!r->On("--load_in_4bit") && !r->On("--load_in_8bit")) {
      r->draft().Assume(
          "frozen weights are kept in 16 bits, which peft's prepare_model_for_kbit_training raises "
          "to fp32");
    }
  } else {
    r->AddAs("--bf16", "model.llm.torch_dtype", "true", r->file());
    r->draft().Assume(
        "bf16: in which xtuner loads a model for FlashAttention; casts of AmpOptimWrapper are not "
        "priced");
  }
}

}  // namespace

void AddXtunerFile(const formats::Document& document, Reading* r) {
  const Table& table = XtunerTable();
  for (const Leaf& leaf : Leaves(document.root)) {
    const Row* row = table.Find(leaf.path);
    if (row != nullptr) {
      AddLeaf(document, leaf, row, r);
    } else if (std::ranges::any_of(kSections, [&](std::string_view section) {
                 return leaf.path.starts_with(section);
               })) {
      r->AddUnknown(leaf.path, document.Where(*leaf.node), {&table});
    }
  }
}

void XtunerDefaults(const Script*, Sources* sources, Reading* r) {
  const std::string adapter = r->Text("model.lora.type");
  if (!adapter.empty() && adapter != "LoraConfig") {
    r->Refuse("model.lora.type", "modelled: LoraConfig");
  } else if (!adapter.empty()) {
    r->AddAs("--use_peft", "model.lora", "true", r->Where("model.lora.type"));
    if (!r->Has("--lora_r")) r->AddAs("--lora_r", "model.lora.r", "8", r->file());
    if (!r->Has("--lora_target_modules")) {
      r->AddAs("--lora_target_modules", "model.lora.target_modules", "all-linear", r->file());
    }
  }
  AddXtunerDeepSpeed(sources, r);
  const bool deepspeed = sources->deepspeed || r->Has("--deepspeed");
  XtunerPrecision(deepspeed, r);
  if (!deepspeed && r->Whole("parallelism_config.sp_size").value_or(1) > 1) {
    r->Missing(
        "under which DeepSpeed sequences are shared out (xtuner train --deepspeed): give --env "
        "DEEPSPEED=deepspeed_zero2, or its JSON as another FILE");
  } else if (!deepspeed) {
    r->draft().Assume(
        "DDP: the configuration names no DeepSpeed; give --env DEEPSPEED=deepspeed_zero2, or its "
        "JSON as another FILE");
  }
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(name), std::move(value), r->file());
  };
  add("--gradient_checkpointing", "model.use_activation_checkpointing", "true");
  add("--attn_implementation", "model.llm.attn_implementation", "flash_attention_2");
  if (const auto length = r->Whole("max_length"); length && !r->Has("--max_length")) {
    r->AddAs("--max_length", "max_length", std::to_string(*length), r->Where("max_length"));
  }
}

const Table& XtunerTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_xtuner.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsXtuner(std::string_view text, const std::string& path) {
  return path.ends_with(".py") && Contains(text, "\noptim_wrapper = dict(") &&
         Contains(text, "\ntrain_dataloader = dict(") && Contains(text, "xtuner");
}

}  // namespace orrery::recipes
