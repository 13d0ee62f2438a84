#include "orrery/search/validate/torch_native.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "orrery/search/validate/config_extra.h"

namespace orrery::search {

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
  if (!PlainTorch(m) || m.job().Has("framework_options.torch_layers")) return;  // Liger's
  if (SaysCompiled(m.row)) m.job().Set("framework_options.torch_layers", "compiled");
  // torchtitan's attention takes keys and values as they are from that day on.
  if (m.defaults().options.repeats_kv && m.row.has("measured_date") && Since(m, "2026-01-27")) {
    m.job().Set("framework_options.repeats_kv", false);
  }
}

void CutLocalBatch(const Mapping& m, std::int64_t stated) {
  const std::int64_t pp = m.pp(), batch = m.degree("training.micro_batch");
  const std::int64_t passes = m.microbatches();
  // Several passes a step that are fewer than stages: local batches, cut into samples each.
  if (!TorchPipelining(m) || pp == 1 || (passes > 1 && passes >= pp)) return;
  const std::int64_t parts = passes > 1               ? batch
                             : stated > 1             ? stated
                             : Since(m, "2025-04-07") ? batch
                                                      : pp;
  if (parts < 2 || batch % parts != 0) return;
  m.Assume("micro_batch={}: a replica's batch, cut into {} (torch.distributed.pipelining)", batch,
           parts);
  m.job().Set("training.micro_batch", batch / parts);
}

void CutStages(const Mapping& m) {
  const bool automodel = Automodel(m);
  const std::int64_t layers = m.out->model.layers, pp = m.pp();
  if (!TorchPipelining(m) || pp == 1) return;
  if (!m.row.has("vpp") && automodel) {
    m.job().Set("parallel.vpp", std::max<std::int64_t>(1, (layers + 1) / 2 / pp));
    m.Assume("vpp={} (blank: chunks of two layers, the recipes')", m.vpp());
  } else if (!m.row.has("vpp") && HasToken(m.row, "nterleaved")) {
    m.job().Set("parallel.vpp", 2);
    m.Assume("vpp=2 (blank: torchtitan's default for interleaved schedules)");
  }
  const std::int64_t chunks = pp * m.vpp();
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
  m.job().Set("parallel.layers_per_stage", std::span<const int>(cut));
}

bool DealsExpertsOut(const Mapping& m) {
  const bool forced = m.row.text("moe_routing") == "forced-balanced";
  const bool recipes = Automodel(m) && !m.row.has("moe_routing");
  if (!recipes && !(forced && TorchPipelining(m))) return false;
  m.Assume("moe_routing={}: experts dealt out in turn, a token's are neighbours ({})",
           forced ? "forced-balanced" : "(blank)",
           Automodel(m) ? "fake_balanced_gate" : "moe_force_load_balance");
  return true;
}

bool AsyncTp(const Mapping& m) {
  constexpr std::array<std::string_view, 5> kNames = {"async_tp", "async-tp", "asyncTP", "AsyncTP",
                                                      "asynctp"};
  return PlainTorch(m) && std::any_of(kNames.begin(), kNames.end(),
                                      [&](std::string_view name) { return HasToken(m.row, name); });
}

}  // namespace orrery::search
