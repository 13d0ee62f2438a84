// SageMaker HyperPod's fine-tuning recipes (llmft_*): FSDP1 around transformers' models. What one
// key says stands in data/recipes/hyperpod.csv, mostly as the Trainer's argument that says the
// same. Source: aws/sagemaker-hyperpod-recipes 2631995, recipes_collection/recipes/fine-tuning.
#include <fmt/format.h>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {
namespace {

constexpr std::string_view kArguments = "training_config.training_args.";

std::string Argument(std::string_view name) { return fmt::format("{}{}", kArguments, name); }

void AddHyperPodPasses(const Launch& launch, Reading* r) {
  const Options& options = r->options();
  std::int64_t gpus = Product({launch.nodes, launch.gpus_per_node});
  if (options.nodes > 0) gpus = Product({options.nodes, r->ClusterGpusPerNode()});
  if (options.gpus > 0) gpus = options.gpus;
  const auto all = r->Whole(Argument("train_batch_size"));
  const std::int64_t micro = r->Whole("--per_device_train_batch_size").value_or(1);
  const std::int64_t each = Product({micro, gpus});
  if (!all || each <= 0) return;
  if (*all % each != 0) {
    return r->Problem(fmt::format(
        "{}: train_batch_size {} is no multiple of {} GPUs times micro_train_batch_size {}; give "
        "another --gpus",
        r->Where(Argument("train_batch_size")), *all, gpus, micro));
  }
  r->AddAs("--gradient_accumulation_steps", "train_batch_size", std::to_string(*all / each),
           r->Where(Argument("train_batch_size")));
}

void HyperPodDefaults(const Script*, Sources* sources, Reading* r) {
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(name), std::move(value), r->file());
  };
  sources->launch.nodes = r->Whole("trainer.num_nodes").value_or(1);
  sources->launch.gpus_per_node = r->Whole("trainer.devices").value_or(8);
  const std::string strategy = Argument("strategy.fsdp_config.sharding_strategy");
  add("--fsdp", "fsdp_config.sharding_strategy",
      r->Has(strategy) ? Lower(r->Text(strategy)) : std::string("full_shard"));
  add("fsdp_config.version", "fsdp_config", "1");
  add("--bf16", "mixed precision", "true");
  r->draft().Assume("bf16: parameters in fp32, gathered and multiplied in bf16");
  if (r->Text("training_config.model_config.peft_config.peft_type") == "lora") {
    add("--use_peft", "peft_config", "true");
    add("--lora_target_modules", "peft_config.target_modules", "all-linear");
  }
  if (r->Has(Argument("gradient_clipping")) && !r->On(Argument("gradient_clipping"))) {
    add("--max_grad_norm", "gradient_clipping", "0");
  }
  AddHyperPodPasses(sources->launch, r);
}

}  // namespace

const Table& HyperPodTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_hyperpod.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsHyperPod(std::string_view text, const std::string& path) {
  return IsYaml(path) && HasKey(text, "training_config") && HasKey(text, "run") &&
         Contains(text, "model_type: llm_finetuning_aws");
}

const Hub& HyperPodHub() {
  static constexpr Hub kHub = {"hyperpod", HyperPodTable, IsHyperPod, HyperPodDefaults};
  return kHub;
}

}  // namespace orrery::recipes
