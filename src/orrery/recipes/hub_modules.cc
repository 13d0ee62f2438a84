// How transformers' modules of a release run: experts one by one or as grouped products, and what a
// quantised model's other parameters become. Source: huggingface/transformers v4.57.6 and v5.0
// (models/qwen3_moe, integrations/moe.py, modeling_utils.py); huggingface/trl v0.26 and v0.27
// (trainer/sft_trainer.py); axolotl-ai-cloud/axolotl 067b021 loaders/model.py;
// hiyouga/LLaMA-Factory ff6d4d1 model/model_utils/checkpointing.py; allenai/open-instruct e6c3044
// open_instruct/finetune.py; InternLM/xtuner v0.2 xtuner/model/sft.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {
namespace {

// An argument that only releases of transformers before 5, or of TRL before 0.27, take; empty: none
// is there.
std::string OldArgument(std::initializer_list<std::string_view> rows, Reading* r) {
  for (const std::string_view row : rows) {
    const Given* given = r->Find(row);
    if (given == nullptr) continue;
    std::string name = given->name.substr(given->name.find_first_not_of('-'));
    if (name == "evaluation_strategy" || name == "max_seq_length") return name;
  }
  return "";
}

constexpr std::string_view kExperts = "--experts_implementation";

}  // namespace

void ReadExpertModules(Reading* r) {
  Draft& draft = r->draft();
  const std::string implementation = Lower(r->Text(kExperts));
  const std::string old = OldArgument({"--evaluation_strategy", "--max_length"}, r);
  const auto model = r->Model();
  if (!model || model->experts.count == 0) return;
  const bool eager = draft.Text("framework_options.torch_layers") == "eager";
  constexpr std::array<std::string_view, 5> kGrouped = {"grouped_mm", "scattermoe", "sonicmoe",
                                                        "deepgemm", "kernels"};
  const bool grouped = std::ranges::find(kGrouped, implementation) != kGrouped.end();
  if (!implementation.empty() && implementation != "eager" && !grouped) {
    return r->Refuse(kExperts, fmt::format("experts by '{}' are not modelled; eager (one after the "
                                           "other) and grouped_mm are",
                                           Printable(implementation, 40)));
  }
  if (implementation == "eager" || (implementation.empty() && !old.empty())) {
    if (!eager) {
      return draft.Assume(
          "experts as grouped products, though they run one after the other: fused and compiled "
          "layers have no loop here");
    }
    draft.Set("framework_options.expert_loop", true);
    if (draft.Has("training.lora_experts")) draft.SetText("training.lora_experts", "grouped");
    if (!old.empty()) {
      draft.Assume(fmt::format(
          "experts run one after the other, as until transformers 4.57: {} is an argument of older "
          "releases",
          old));
    }
    return;
  }
  if (!implementation.empty() || !eager) return;
  draft.Assume(
      "experts are grouped products, as in transformers 5 with PyTorch 2.9; until 4.57 they run "
      "one after the other, several times slower: --set framework_options.expert_loop=true");
}

void ReadPreparedBase(const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  const bool applies = draft.Has("training.base_quantization") &&
                       draft.Text("framework") == "ddp" &&
                       draft.Text("training.precision") != "fp32";
  if (!applies || r->IsSet("framework_options.prepared_base")) return;
  const std::string_view hub = sources.hub == nullptr ? "" : sources.hub->name;
  const auto prepare = [&](std::string_view who) {
    draft.Set("framework_options.prepared_base", true);
    draft.Assume(
        fmt::format("norms, tables and output layer are raised to fp32: {} calls PEFT's "
                    "prepare_model_for_kbit_training",
                    who));
  };
  if (hub == "xtuner" || hub == "open-instruct") return prepare(hub);
  // axolotl turns norms and tables back to the model's type, LLaMA-Factory raises norms only with
  // upcast_layernorm, ms-swift raises nothing.
  if (!hub.empty() || sources.llama_factory) return;
  if (const std::string old = OldArgument({"--max_length", "--evaluation_strategy"}, r);
      !old.empty()) {
    return prepare(fmt::format("TRL before 0.27 ({} is an argument of older releases)", old));
  }
  draft.Assume(
      "norms, tables and output layer stay as they are loaded, as with TRL 0.27 and later; before, "
      "prepare_model_for_kbit_training raised them to fp32: --set "
      "framework_options.prepared_base=true");
}

}  // namespace orrery::recipes
