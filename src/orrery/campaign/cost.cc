#include "orrery/campaign/cost.h"

#include <algorithm>
#include <cmath>

namespace orrery::campaign {
namespace {

constexpr double kMillion = 1e6;

}  // namespace

Cost CostOf(const CostSettings& settings, const StepTimes& step, double tokens,
            const Goodput* goodput) {
  Cost cost{.usd_per_gpu_hour = settings.usd_per_gpu_hour};
  if (step.step_s <= 0 || step.tokens <= 0) return cost;
  const double useful = goodput != nullptr ? goodput->expected : 1;
  const double gpus = static_cast<double>(step.gpus);
  const double steps_per_million = kMillion / step.tokens;
  const double hours_per_step = step.step_s / useful / kSecondsPerHour;
  cost.gpu_hours_per_million_tokens = gpus * hours_per_step * steps_per_million;
  cost.usd_per_million_tokens = cost.gpu_hours_per_million_tokens * cost.usd_per_gpu_hour;
  if (cost.usd_per_million_tokens > 0) cost.tokens_per_usd = kMillion / cost.usd_per_million_tokens;
  // While the run recovers its GPUs are idle; what is lost to a failure was trained at full power.
  const double stopped = goodput != nullptr ? goodput->stopped() : 0;
  const double busy_w =
      step.power_limit_w *
      (settings.tensor * step.tensor_s + settings.memory * step.memory_s +
       settings.communication * step.communication_s + settings.idle * step.idle_s) /
      step.step_s;
  cost.watts_per_gpu = busy_w * (1 - stopped) + step.power_limit_w * settings.idle * stopped;
  const double with_building =
      (cost.watts_per_gpu + step.power_limit_w * settings.server) * settings.pue;
  cost.facility_kw = gpus * with_building / 1000;
  cost.kwh_per_million_tokens = cost.facility_kw * hours_per_step * steps_per_million;
  cost.kg_co2e_per_million_tokens = cost.kwh_per_million_tokens * settings.g_per_kwh / 1000;
  if (tokens <= 0) return cost;
  WholeRun run{.tokens = tokens, .steps = std::ceil(tokens / step.tokens)};
  const double days = run.steps * hours_per_step / kHoursPerDay;
  run.days = days;
  run.days_low = days * step.low_s / step.step_s;
  run.days_high = days * step.high_s / step.step_s;
  if (goodput != nullptr && goodput->low > 0) {
    run.days_low *= useful / goodput->high;
    run.days_high *= useful / goodput->low;
  }
  const double millions = tokens / kMillion;
  run.gpu_hours = cost.gpu_hours_per_million_tokens * millions;
  run.usd = cost.usd_per_million_tokens * millions;
  run.mwh = cost.kwh_per_million_tokens * millions / 1000;
  run.t_co2e = cost.kg_co2e_per_million_tokens * millions / 1000;
  cost.run = run;
  return cost;
}

double LeastWatts(const CostSettings& settings, double power_limit_w, double busy_s,
                  double step_s) {
  const double idle =
      std::min({settings.idle, settings.tensor, settings.memory, settings.communication});
  const double busy = std::min({settings.tensor, settings.memory, settings.communication});
  const double share = step_s > 0 ? std::min(1.0, busy_s / step_s) : 0;
  return power_limit_w * (busy * share + idle * (1 - share) + settings.server) * settings.pue;
}

}  // namespace orrery::campaign
