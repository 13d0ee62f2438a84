#include "orrery/search/validate/fine_tuning.h"

#include "orrery/search/validate/torch_native.h"

#include <cstdint>
#include <string_view>

namespace orrery::search {
namespace {

constexpr std::int64_t kSquadTokens = 256;

// Fine-tuning as NVIDIA submits it to MLPerf, from a container "ngcYY.MM"
// (mlcommons/training_results_v5.1, llama2_70b_lora; v5.0's train.py: cp_comm_type, LoRA).
bool IsSubmittedLora(const Configuration& row) {
  return row.text("task") == "lora" && row.text("framework_version").starts_with("ngc");
}

}  // namespace

bool PacksSamples(const Mapping& m) {
  const std::string_view task = m.row.text("task"), framework = m.rule.framework->name;
  if ((task != "sft" && task != "lora") || IsSubmittedLora(m.row)) return false;
  return framework != "nemo@2023" &&
         (framework.starts_with("nemo@") || framework.starts_with("megatron-bridge@"));
}

void MapCpExchange(const Mapping& m) {
  workload::Plan& plan = m.out->plan;
  if (plan.parallel.cp == 1) return;
  const bool submitted = IsSubmittedLora(m.row);
  plan.parallel.cp_exchange =
      submitted ? workload::CpExchange::kAllToAll : m.defaults().cp_exchange;
  m.Assume("context parallelism: {}",
           submitted ? "all-to-all (the submission's cp_comm_type)"
           : plan.parallel.cp_exchange == workload::CpExchange::kAllGather
               ? "all-gather (PyTorch's default rotation)"
               : "ring (Transformer Engine's default)");
}

void MapTask(const Mapping& m) {
  const Configuration& row = m.row;
  workload::Plan& plan = m.out->plan;
  const std::string_view task = row.text("task");
  if (task != "sft" && task != "lora") return;
  const bool packs = PacksSamples(m) && plan.parallel.cp == 1 &&
                     plan.batch.seq_len > kSquadTokens && plan.batch.seq_len % kSquadTokens == 0 &&
                     plan.framework.attention != workload::AttentionBackend::kUnfused;
  if (packs) {
    plan.batch.packed_len = kSquadTokens;
    m.Assume("task={}: samples of {} tokens packed (SQuAD, as the recipes)", task, kSquadTokens);
  } else {
    m.Assume("task={}: full sequences, as pretraining", task);
  }
  if (task != "lora") return;
  const bool submitted = IsSubmittedLora(row);
  if (Automodel(m)) {
    plan.lora.rank = 16;
    plan.lora.targets = workload::kLoraAll;
    return m.Assume("task=lora: adapters of rank 16 beside all projections (the recipes')");
  }
  // Recipes of Llama 3 in NeMo 2 and Megatron Bridge; NeMo-Framework-Launcher 24.07, and LoRA's own
  // default in both.
  const bool llama3 = row.text("model").starts_with("Llama3");
  plan.lora.rank = submitted ? 16 : !llama3 ? 32 : m.out->model.hidden > 4096 ? 16 : 8;
  plan.lora.targets = workload::kLoraQkv;
  if (submitted) {
    plan.lora.targets |= workload::kLoraProjection;
    plan.framework.fused_cross_entropy = false;
  }
  m.Assume("task=lora: adapters of rank {} beside {}", plan.lora.rank,
           submitted ? "qkv and projection (MLPerf)" : "qkv (NeMo's performance recipes)");
}

}  // namespace orrery::search
