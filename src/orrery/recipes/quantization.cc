// Frozen weights in 4 and 8 bits and optimizers with small states, as bitsandbytes and torchao do
// them for Hugging Face's Trainer and the frameworks around it. Source of names and defaults:
// huggingface/transformers training_args.py, utils/quantization_config.py and trainer.py;
// huggingface/trl trainer/model_config.py; hiyouga/LLaMA-Factory hparams/model_args.py;
// axolotl-ai-cloud/axolotl loaders/model.py; modelscope/ms-swift arguments/base_args/quant_args.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {
namespace {

struct BaseFormat {
  std::string_view argument;  // that asks for it; empty: none does
  std::int64_t bits = 0;
};

BaseFormat FindBaseFormat(Reading* r) {
  const bool four = r->On("--load_in_4bit"), eight = r->On("--load_in_8bit");
  if (four) return {"--load_in_4bit", 4};
  if (eight) return {"--load_in_8bit", 8};
  for (const std::string_view argument : {"quantization_bit", "--quant_bits"}) {
    if (!r->Has(argument)) continue;
    const std::int64_t bits = r->Whole(argument).value_or(0);
    if (bits > 0) return {argument, bits};
  }
  return {};
}

// Who quantises: bitsandbytes, or another library.
bool IsBitsAndBytes(const BaseFormat& base, Reading* r) {
  const std::string_view argument =
      base.argument == "--quant_bits" ? "--quant_method" : "quantization_method";
  const std::string method = Lower(r->Text(argument));
  if (method.empty() || method == "bnb" || method == "bitsandbytes") return true;
  r->Refuse(argument, fmt::format("weights quantised by '{}' are not modelled; bitsandbytes' are",
                                  Printable(method, 20)));
  return false;
}

// An optimizer of the Trainer (OptimizerNames).
struct SmallOptimizer {
  std::string_view name;
  std::string_view optimizer, states;
  bool bitsandbytes = true;
};
constexpr std::array<SmallOptimizer, 16> kSmallOptimizers = {{
    {"adamw_bnb_8bit", "adamw", "8bit"},
    {"adamw_8bit", "adamw", "8bit"},
    {"paged_adamw_8bit", "adamw", "8bit"},
    {"paged_adamw", "adamw", "fp32"},
    {"paged_adamw_32bit", "adamw", "fp32"},
    {"lion", "lion", "fp32"},
    {"lion_32bit", "lion", "fp32"},
    {"lion_8bit", "lion", "8bit"},
    {"paged_lion", "lion", "fp32"},
    {"paged_lion_32bit", "lion", "fp32"},
    {"paged_lion_8bit", "lion", "8bit"},
    {"bitsandbytes.optim.AdamW8bit", "adamw", "8bit"},
    {"bitsandbytes.optim.PagedAdamW8bit", "adamw", "8bit"},
    {"bitsandbytes.optim.PagedAdamW", "adamw", "fp32"},
    {"adamw_torch_8bit", "adamw", "8bit", false},
    {"adamw_torch_4bit", "adamw", "4bit", false},
}};

}  // namespace

void ReadBaseQuantization(Reading* r) {
  Draft& draft = r->draft();
  const BaseFormat base = FindBaseFormat(r);
  const std::string type =
      Lower(r->Text(r->Has("quantization_type") ? "quantization_type" : "--bnb_4bit_quant_type"));
  // LLaMA-Factory and ms-swift quantise scales unless told, TRL only when told.
  const std::string_view twice = base.argument == "quantization_bit" ? "double_quantization"
                                 : base.argument == "--quant_bits"   ? "--bnb_4bit_use_double_quant"
                                                                     : "--use_bnb_nested_quant";
  const bool nested = r->Has(twice) ? r->On(twice) : twice != "--use_bnb_nested_quant";
  if (base.argument.empty() || !IsBitsAndBytes(base, r)) return;
  if (base.bits != 4 && base.bits != 8) {
    return r->Refuse(base.argument,
                     fmt::format("weights of {} bits are not modelled; 4 and 8 are", base.bits));
  }
  if (!draft.Has("training.lora_rank")) {
    return r->Refuse(base.argument,
                     "quantised weights are not trained; adapters beside them are (lora_rank)");
  }
  if (base.bits == 8) return draft.SetText("training.base_quantization", "int8");
  draft.SetText("training.base_quantization", type == "fp4" ? "fp4" : "nf4");
  draft.Set("training.double_quantization", nested);
}

bool SetSmallOptimizer(std::string_view name, Draft* draft) {
  const auto found = std::ranges::find_if(
      kSmallOptimizers, [&](const SmallOptimizer& one) { return one.name == name; });
  if (found == kSmallOptimizers.end()) return false;
  draft->SetText("training.optimizer", found->optimizer);
  draft->SetText("training.optimizer_states", found->states);
  if (Contains(Lower(std::string(name)), "paged")) {
    draft->Assume(fmt::format(
        "{}: its states are counted on the GPU; they go to host memory where that runs out", name));
  }
  return true;
}

bool IsOfBitsAndBytes(std::string_view name) {
  return std::ranges::any_of(kSmallOptimizers, [&](const SmallOptimizer& one) {
    return one.name == name && one.bitsandbytes;
  });
}

}  // namespace orrery::recipes
