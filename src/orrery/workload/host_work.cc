#include "orrery/workload/host_work.h"

#include <algorithm>

#include "orrery/constants/constants.h"

namespace orrery::workload {
namespace {

// In ns, range in brackets, in us: the middle of what PyTorch profiler traces of eager runs show.
// Pieces whose traces differ most (step, batch, core, ring_step, grouped_expert) are constants of
// their own, which a fit moves (data/constants/constants.csv). host_python and host_python.core
// scale all but views, since one interpreter runs them all.
//   module_forward   2021: 60 [30 … 90]; Core: 50 [30 … 80]; FSDP: 25 [15 … 40], few wrappers
//   module_backward  25 [15 … 40], C++ but for Python autograd functions; Core: 35 [20 … 60],
//                    Transformer Engine's are Python; FSDP: 20 [10 … 30]
//   low_precision    15 [8 … 30] per cast operand: scale tensors and quantizer objects
//   rng_fork         90 [50 … 150]: four reads or writes of a CUDA random state, around core
//                    attention without sequence parallelism
//   checkpoint       350 [200 … 600]: six states and a nested backward; FSDP: 150 [80 … 300]
//   communication    25 [15 … 40]: the wrapper; compute's model has the enqueueing
//   graph            30 [15 … 60] a layer's CUDA graph: module hooks, inputs copied, autograd
//   unit             250 [120 … 400]: pre- and post-hooks, stream and event calls of an FSDP unit;
//                    Megatron-FSDP's, which walk parameters and buckets, are taken to be no cheaper
//   operator         8 [4 … 12] forward, 6 [3 … 10] backward: compute's host time of an operator
//   view             8 [4 … 12], C++: not scaled
// Calls of transformers' modules, measured on an H200's host as multiples of x + x on small tensors
// (data/measured/h200/host_steps.csv). tools/measure/host_fit.py finds that an operator with the
// a-priori times of launches is 2.4 of them forward and 1.7 backward, so that x + x takes 3.3 us on
// the CPU whose cpu_relative_speed is 1, and with it:
//   module           2.7, nn.Module's call; its operators apart
//   operator         8 forward, 6 backward, as above
//   view             1 forward, 2.5 backward
//   function         47, each pass: an autograd function in Python, with operators registered from
//                    Python, as bitsandbytes' products have them
//   checkpoint       150, as FSDP's
// A quiet loop's step is the lower end of the range of a step: batch and loops over parameters.
constexpr std::int64_t kQuietStep = 3'000'000;
constexpr HostWork k2021 = {.module_forward = 60'000,
                            .module_backward = 25'000,
                            .low_precision = 15'000,
                            .rng_fork = 90'000,
                            .checkpoint = 350'000,
                            .communication = 25'000,
                            .graph = 30'000};
constexpr HostWork kCore = {.module_forward = 50'000,
                            .module_backward = 35'000,
                            .low_precision = 15'000,
                            .rng_fork = 90'000,
                            .checkpoint = 350'000,
                            .communication = 25'000,
                            .unit = 250'000,
                            .graph = 30'000,
                            .operator_forward = 8'000,
                            .operator_backward = 6'000};
constexpr HostWork kFsdp = {.module_forward = 25'000,
                            .module_backward = 20'000,
                            .low_precision = 15'000,
                            .rng_fork = 0,
                            .checkpoint = 150'000,
                            .communication = 25'000,
                            .unit = 250'000,
                            .graph = 30'000,
                            .operator_forward = 8'000,
                            .operator_backward = 6'000,
                            .view = 8'000};
constexpr HostWork kTransformers = {.checkpoint = 150'000,
                                    .communication = 25'000,
                                    .unit = 250'000,
                                    .graph = 30'000,
                                    .view = 8'000,
                                    .calls = {.module = 2'700,
                                              .operator_forward = 8'000,
                                              .operator_backward = 6'000,
                                              .view_forward = 1'000,
                                              .view_backward = 2'500,
                                              .function = 47'000}};

HostWork Times(HostWork host, double factor) {
  for (std::int64_t* ns :
       {&host.module_forward, &host.module_backward, &host.low_precision, &host.rng_fork,
        &host.checkpoint, &host.communication, &host.unit, &host.graph, &host.operator_forward,
        &host.operator_backward, &host.grouped_expert, &host.core, &host.ring_step, &host.batch,
        &host.step, &host.calls.module, &host.calls.operator_forward, &host.calls.operator_backward,
        &host.calls.function}) {
    *ns = static_cast<std::int64_t>(static_cast<double>(*ns) * factor + 0.5);
  }
  return host;
}

// Adds the pieces that are constants of their own.
void AddConstants(HostEra era, const constants::Set& known, HostWork* host) {
  const auto ns = [&](constants::Id id) {
    return static_cast<std::int64_t>(known[id] * 1e9 + 0.5);
  };
  if (era == HostEra::kCore || era == HostEra::kFsdp) {
    host->grouped_expert = ns(constants::kHostGroupedExpert);
  }
  if (era == HostEra::kCore || era == HostEra::k2021) host->batch = ns(constants::kHostBatch);
  if (era != HostEra::kCore) return;
  host->core = ns(constants::kHostAttentionCore);
  host->ring_step = ns(constants::kHostRingStepCore);
  host->step = ns(constants::kHostStepCore);
}

}  // namespace

HostWork HostOf(HostEra era, const Plan& plan, const constants::Set& known) {
  const double python =
      known[era == HostEra::kCore ? constants::kHostPythonCore : constants::kHostPython];
  const bool counted = era == HostEra::kFsdp && plan.counts_calls();
  HostWork host = era == HostEra::k2021   ? k2021
                  : era == HostEra::kCore ? kCore
                  : counted               ? kTransformers
                  : era == HostEra::kFsdp ? kFsdp
                                          : HostWork();
  if (!counted) AddConstants(era, known, &host);
  if (plan.framework.quiet_loop) host.step = std::min(host.step, kQuietStep);
  host = Times(host, python);
  if (plan.framework.cuda_graphs == CudaGraphs::kIteration)
    return {.graph = host.graph, .step = host.step};
  return host;
}

}  // namespace orrery::workload
