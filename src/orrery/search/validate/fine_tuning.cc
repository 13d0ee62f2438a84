#include "orrery/search/validate/fine_tuning.h"

#include <string>
#include <string_view>

#include "orrery/job/plan_keys.h"

namespace orrery::search {

void MapCpExchange(const Mapping& m) {
  workload::Plan& plan = m.out->plan;
  if (plan.parallel.cp == 1) return;
  const bool said = m.release.Has("cp_exchange");
  plan.parallel.cp_exchange = said ? job::Choose(job::kCpExchanges, m.release.Text("cp_exchange"))
                                   : m.defaults().cp_exchange;
  m.Assume("context parallelism: {} ({})",
           job::NameOf(job::kCpExchanges, plan.parallel.cp_exchange),
           said ? "the release's scripts" : fmt::format("{}'s default", m.rule.label));
}

void MapTask(const Mapping& m) {
  workload::Plan& plan = m.out->plan;
  const std::string_view task = m.row.text("task");
  if (task != "sft" && task != "lora") return;
  const std::int64_t tokens = m.release.Integer("packed_len");
  if (tokens > 0 && plan.parallel.cp == 1 && plan.batch.seq_len > tokens &&
      plan.batch.seq_len % tokens == 0 &&
      plan.framework.attention != workload::AttentionBackend::kUnfused) {
    plan.batch.packed_len = tokens;
    m.Assume("task={}: samples of {} tokens packed (the recipes')", task, tokens);
  } else {
    m.Assume("task={}: full sequences, as pretraining", task);
  }
  if (task != "lora") return;
  const std::string targets = m.release.Text("lora_targets");
  plan.lora.rank = static_cast<int>(m.release.Integer("lora_rank"));
  plan.lora.targets = *workload::ParseLoraTargets(targets);
  if (!m.release.Bool("fused_cross_entropy")) plan.framework.fused_cross_entropy = false;
  m.Assume("task=lora: adapters of rank {} beside {} (the recipes')", plan.lora.rank, targets);
}

}  // namespace orrery::search
