// OpenRLHF's supervised fine-tuning (openrlhf.cli.train_sft): its arguments, of 2026 and those with
// underscores before, become the Trainer's and DeepSpeed's; here is what it takes when nothing is
// said. Source: OpenRLHF/OpenRLHF 3c3be62, openrlhf/cli/train_sft.py,
// openrlhf/utils/deepspeed/deepspeed_utils.py (get_train_ds_config).
#include <fmt/format.h>

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {
namespace {

// Passes of a step from its sequences, where the GPUs are known.
void AddRlhfPasses(const Launch& launch, Reading* r) {
  const Options& options = r->options();
  std::int64_t gpus =
      launch.gpus > 0 ? launch.gpus
                      : Product({launch.nodes, launch.gpus_per_node > 0 ? launch.gpus_per_node
                                                                        : r->ClusterGpusPerNode()});
  if (options.nodes > 0) gpus = Product({options.nodes, r->ClusterGpusPerNode()});
  if (options.gpus > 0) gpus = options.gpus;
  const std::int64_t all = r->Whole("--train.batch_size").value_or(128);
  const std::int64_t micro = r->Whole("--per_device_train_batch_size").value_or(8);
  // 0 of the latter is none.
  const std::int64_t shared =
      Product({r->Whole("--ds.ring_attn_size").value_or(1),
               std::max<std::int64_t>(r->Whole("tensor_parallel.autotp_size").value_or(1), 1)});
  if (gpus <= 0 || micro <= 0 || shared <= 0) return;  // asked for
  const std::int64_t each = Product({micro, gpus / shared});
  if (each <= 0 || all % each != 0) {
    return r->Problem(fmt::format(
        "{}: a step's {} sequences are no multiple of {} data-parallel ranks times {} of a pass",
        r->file(), all, gpus / shared, micro));
  }
  r->AddAs("--gradient_accumulation_steps", "train.batch_size", std::to_string(all / each),
           r->file());
}

void OpenRlhfDefaults(const Script*, Sources* sources, Reading* r) {
  const auto add = [&](std::string_view argument, std::string_view name, std::string value) {
    if (!r->Has(argument)) r->AddAs(argument, std::string(name), std::move(value), r->file());
  };
  sources->deepspeed = true;
  add("zero_optimization.stage", "--ds.zero_stage", "2");
  add("--per_device_train_batch_size", "--train.micro_batch_size", "8");
  add("--max_length", "--data.max_len", "2048");
  const std::string type = r->Has("--ds.param_dtype") ? Lower(r->Text("--ds.param_dtype")) : "bf16";
  const bool half = type == "fp16";
  add(half ? "--fp16" : "--bf16", "--ds.param_dtype", "true");
  add(half ? "fp16.enabled" : "bf16.enabled", "--ds.param_dtype", "true");
  const bool flash = r->On("--flash_attn");
  if (flash || !r->Has("--attn_implementation")) {
    add("--attn_implementation", "--ds.attn_implementation", "flash_attention_2");
  }
  if (r->On("--ds.adam_offload")) {
    add("zero_optimization.offload_optimizer.device", "--ds.adam_offload", "cpu");
  }
  if (r->Has("--lora_r") && r->Whole("--lora_r").value_or(0) > 0) {
    add("--use_peft", "--ds.lora.rank", "true");
    add("--lora_target_modules", "--ds.lora.target_modules", "all-linear");
  }
  const std::int64_t ring = r->Whole("--ds.ring_attn_size").value_or(1);
  if (ring > 1) add("parallelism_config.cp_size", "--ds.ring_attn_size", std::to_string(ring));
  add("--max_grad_norm", "--max_norm", "1.0");
  add("--optim", "--optim", "adam");
  AddRlhfPasses(sources->launch, r);
}

}  // namespace

const Table& OpenRlhfTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_openrlhf.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsOpenRlhf(std::string_view text, const std::string& path) {
  return !IsYaml(path) && Contains(text, "openrlhf.cli.train_sft");
}

const Hub& OpenRlhfHub() {
  static constexpr Hub kHub = {"openrlhf", OpenRlhfTable, IsOpenRlhf, OpenRlhfDefaults};
  return kHub;
}

}  // namespace orrery::recipes
