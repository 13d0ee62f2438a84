#include "orrery/search/validate/torch_native.h"

#include <algorithm>
#include <array>
#include <vector>

#include "orrery/search/validate/config_extra.h"

namespace orrery::search {

using workload::Plan;
using workload::TorchLayers;

namespace {

// Whether a row was measured on `day` or later ("2025-04-15"; a row may name the month alone), or
// has no date.
bool Since(const Mapping& m, std::string_view day) {
  const std::string_view date = m.row.text("measured_date");
  return date.empty() || date >= day.substr(0, date.size());
}

}  // namespace

bool SaysCompiled(const Configuration& row) {
  return HasToken(row, "compile") ||
         row.text("framework").find("compile") != std::string_view::npos;
}

void MapTorchLayers(const Mapping& m) {
  Plan& plan = m.out->plan;
  if (!PlainTorch(m)) return;
  if (plan.framework.in_place_kernels) {
    return m.Assume("norms, rotation and gates are fused kernels (config_extra=liger)");
  }
  const bool compiled = SaysCompiled(m.row);
  plan.framework.torch_layers = compiled ? TorchLayers::kCompiled : TorchLayers::kEager;
  m.Assume("norms, rotation and gates: plain PyTorch, {}", compiled ? "compiled" : "eager");
  // torchtitan's attention takes keys and values as they are from that day on.
  plan.framework.repeats_kv =
      m.defaults().options.repeats_kv && !(m.row.has("measured_date") && Since(m, "2026-01-27"));
}

void CutLocalBatch(const Mapping& m, std::int64_t stated) {
  Plan& plan = m.out->plan;
  // Several passes a step that are fewer than stages: local batches, cut into samples each.
  const bool several = plan.microbatches() > 1;
  if (!TorchPipelining(m) || plan.parallel.pp == 1 ||
      (several && plan.microbatches() >= plan.parallel.pp))
    return;
  const std::int64_t parts = several                  ? plan.batch.micro_batch
                             : stated > 1             ? stated
                             : Since(m, "2025-04-07") ? plan.batch.micro_batch
                                                      : static_cast<std::int64_t>(plan.parallel.pp);
  if (parts < 2 || plan.batch.micro_batch % parts != 0) return;
  m.Assume("micro_batch={}: a replica's batch, cut into {} (torch.distributed.pipelining)",
           plan.batch.micro_batch, parts);
  plan.batch.micro_batch /= parts;
}

void CutStages(const Mapping& m) {
  Plan& plan = m.out->plan;
  const bool automodel = Automodel(m);
  if (!TorchPipelining(m) || plan.parallel.pp == 1) return;
  if (!m.row.has("vpp") && automodel) {
    const std::int64_t stages = (m.out->model.layers + 1) / 2;
    plan.parallel.vpp = std::max(1, static_cast<int>(stages / plan.parallel.pp));
    m.Assume("vpp={} (blank: chunks of two layers, the recipes')", plan.parallel.vpp);
  } else if (!m.row.has("vpp") && HasToken(m.row, "nterleaved")) {
    plan.parallel.vpp = 2;
    m.Assume("vpp=2 (blank: torchtitan's default for interleaved schedules)");
  }
  const std::int64_t layers = m.out->model.layers;
  const std::int64_t chunks = static_cast<std::int64_t>(plan.parallel.pp) * plan.parallel.vpp;
  const std::int64_t ends = !automodel && Since(m, "2025-04-15") ? 1 : 0;
  const std::int64_t each = (layers + 2 * ends) / chunks, more = (layers + 2 * ends) % chunks;
  if (each - ends < 1 || (ends == 0 && !automodel && more > chunks - 2)) return;
  std::vector<int> cut;
  std::int64_t rest = layers;
  for (std::int64_t i = 0; i + 1 < chunks; ++i) {
    const bool longer = automodel || ends == 1 ? i < more : i > 0 && i <= more;
    const std::int64_t chunk = each + (longer ? 1 : 0) - (i == 0 ? ends : 0);
    cut.push_back(static_cast<int>(chunk));
    rest -= chunk;
  }
  cut.push_back(static_cast<int>(rest));
  const auto [fewest, most] = std::minmax_element(cut.begin(), cut.end());
  if (*fewest == *most) return;
  m.Assume("layers per chunk {} to {}, {} in the last (as {} cuts them)", *fewest, *most, rest,
           automodel ? "Automodel" : "torchtitan");
  plan.parallel.layers_per_stage = std::move(cut);
}

void MapForcedRouting(const Mapping& m) {
  const bool forced = m.row.text("moe_routing") == "forced-balanced";
  const bool recipes = Automodel(m) && !m.row.has("moe_routing");
  if (!recipes && !(forced && TorchPipelining(m))) return;
  m.out->plan.experts.routing = workload::Routing::kRoundRobin;
  m.Assume("moe_routing={}: experts dealt out in turn, a token's are neighbours ({})",
           forced ? "forced-balanced" : "(blank)",
           Automodel(m) ? "fake_balanced_gate" : "moe_force_load_balance");
}

bool AsyncTp(const Mapping& m) {
  constexpr std::array<std::string_view, 5> kNames = {"async_tp", "async-tp", "asyncTP", "AsyncTP",
                                                      "asynctp"};
  return PlainTorch(m) && std::any_of(kNames.begin(), kNames.end(),
                                      [&](std::string_view name) { return HasToken(m.row, name); });
}

}  // namespace orrery::search
