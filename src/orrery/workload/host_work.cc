#include "orrery/workload/host_work.h"

#include <algorithm>

#include "orrery/constants/constants.h"

namespace orrery::workload {
namespace {

// In ns, range in brackets, in us. Read off PyTorch profiler traces of eager runs, but for
// grouped_expert, core, ring_step, batch and step, and 2021's backward and communication: estimates
// that were set with the errors of eager validation rows in sight.
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
//   grouped_expert   15 [6 … 30]: Transformer Engine's GroupedLinear makes lists of weights,
//                    workspaces and quantizers and calls cuBLASLt, expert by expert
//   core             200 [100 … 500]: Transformer Engine's DotProductAttention looks its backend
//                    up anew
//   view             8 [4 … 12], C++: not scaled
//   ring_step        200 [100 … 500]: some 25 operators, views and stream calls around a step of
//                    Transformer Engine's AttnFuncWithCPAndKVP2P
//   batch            1,500 [500 … 4,000]: the data loader's queue, tensors to the GPU and over tp,
//                    masks and positions, the loss function and its mean
//   step             8,000 [3,000 … 50,000]: batch, timers, loops over parameters, logging
//                    3,000 of a quiet loop, the range's lower end: batch and loops over parameters
constexpr std::int64_t kQuietStep = 3'000'000;
constexpr HostWork k2021 = {.module_forward = 60'000,
                            .module_backward = 25'000,
                            .low_precision = 15'000,
                            .rng_fork = 90'000,
                            .checkpoint = 350'000,
                            .communication = 25'000,
                            .graph = 30'000,
                            .batch = 1'500'000};
constexpr HostWork kCore = {.module_forward = 50'000,
                            .module_backward = 35'000,
                            .low_precision = 15'000,
                            .rng_fork = 90'000,
                            .checkpoint = 350'000,
                            .communication = 25'000,
                            .unit = 250'000,
                            .graph = 30'000,
                            .operator_forward = 8'000,
                            .operator_backward = 6'000,
                            .grouped_expert = 15'000,
                            .core = 200'000,
                            .ring_step = 200'000,
                            .batch = 1'500'000,
                            .step = 8'000'000};
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
                            .grouped_expert = 15'000,
                            .view = 8'000};

HostWork Times(HostWork host, double factor) {
  for (std::int64_t* ns :
       {&host.module_forward, &host.module_backward, &host.low_precision, &host.rng_fork,
        &host.checkpoint, &host.communication, &host.unit, &host.graph, &host.operator_forward,
        &host.operator_backward, &host.grouped_expert, &host.core, &host.ring_step, &host.batch,
        &host.step}) {
    *ns = static_cast<std::int64_t>(static_cast<double>(*ns) * factor + 0.5);
  }
  return host;
}

}  // namespace

HostWork HostOf(HostEra era, const Plan& plan, const constants::Set& known) {
  const double python =
      known[era == HostEra::kCore ? constants::kHostPythonCore : constants::kHostPython];
  HostWork host = era == HostEra::k2021   ? k2021
                  : era == HostEra::kCore ? kCore
                  : era == HostEra::kFsdp ? kFsdp
                                          : HostWork();
  if (plan.framework.quiet_loop) host.step = std::min(host.step, kQuietStep);
  host = Times(host, python);
  if (plan.framework.cuda_graphs == CudaGraphs::kIteration)
    return {.graph = host.graph, .step = host.step};
  return host;
}

}  // namespace orrery::workload
