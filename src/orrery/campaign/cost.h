// Money, energy and carbon of training, from the time of a step.
//
// Power. A GPU draws a share of its board's limit that depends on what it runs: matrix products and
// attention, kernels bound by memory, communication (at work or waiting for partners, for NCCL's
// kernels spin), nothing. The parts of a step weigh them. Its server draws a share of the limit
// more, whatever the GPU does; the building draws PUE times both. Shares and sources:
// data/power.yaml. Clocks that fall with power are in the kernels' times already.
//
// Money is GPU-hours times the price of one. Nodes that wait as spares are not counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "orrery/campaign/goodput.h"

namespace orrery::campaign {

struct CostSettings {
  double usd_per_gpu_hour = 0;  // 0: not known
  double pue = 1, g_per_kwh = 0;
  // Shares of the board's limit.
  double idle = 0, tensor = 0, memory = 0, communication = 0, server = 0;
};

// One step of the mean rank; the parts sum to step_s.
struct StepTimes {
  double step_s = 0;
  double tensor_s = 0, memory_s = 0, communication_s = 0, idle_s = 0;
  double low_s = 0, high_s = 0;  // the step's 80 % interval
  double tokens = 0;             // of a step
  std::int64_t gpus = 0;
  double power_limit_w = 0;  // of a GPU; 0: not known
};

// To a number of tokens.
struct WholeRun {
  double tokens = 0, steps = 0;
  double days = 0, days_low = 0, days_high = 0;  // with failures where they are known
  double gpu_hours = 0;
  double usd = 0;  // 0: the price is not known
  double mwh = 0;  // 0: the power is not known, as t_co2e
  double t_co2e = 0;
};

struct Cost {
  double usd_per_gpu_hour = 0;  // 0: not known, as what follows from it
  double gpu_hours_per_million_tokens = 0;
  double usd_per_million_tokens = 0, tokens_per_usd = 0;
  double watts_per_gpu = 0;  // 0: the board's limit is not known, as what follows from it
  double facility_kw = 0;
  double kwh_per_million_tokens = 0, kg_co2e_per_million_tokens = 0;
  std::optional<WholeRun> run;
};

// `tokens`: of the whole training; 0: not known. `goodput`: null where nothing fails.
Cost CostOf(const CostSettings& settings, const StepTimes& step, double tokens,
            const Goodput* goodput);

// Power of a GPU with its share of server and building, at least, in W, where the mean rank is busy
// for `busy_s` of `step_s` at least.
double LeastWatts(const CostSettings& settings, double power_limit_w, double busy_s, double step_s);

}  // namespace orrery::campaign
