// What eager frameworks cost the host beside issuing kernels, by family and time.
//
// compute's host model counts the launch of a kernel through an operator of PyTorch. A layer's step
// in Python does more, and small layers wait for it: the call of each nn.Module with its hooks, the
// views, transposes and checks around it, Python autograd functions in backward, random states
// saved and restored around recomputed layers and tensor-parallel dropout, torch.distributed's
// argument checks and work objects around each collective. This table holds these pieces, in ns on
// the CPU whose cpu_relative_speed is 1; a layer's sum follows from how many of them it runs.
//
// Values are a-priori, from PyTorch profiler traces of eager runs (range in brackets, in us):
//   module_forward   2021: 60 [30 … 90]; Core: 40 [20 … 60]; FSDP: 25 [15 … 40], few wrappers
//   module_backward  2021: 40 [20 … 60]; Core: 25 [15 … 40]; FSDP: 20 [10 … 30]
//   low_precision    15 [8 … 30] per cast operand: scale tensors and quantizer objects
//   rng_fork         2021: 90 [50 … 150]: three reads or writes of a CUDA random state
//   checkpoint       350 [200 … 600]: six states and a nested backward; FSDP: 150 [80 … 300]
//   communication    2021: 60 [30 … 90]; later: 25 [15 … 40]
//   graph            30 [15 … 60] per layer's CUDA graph: module hooks, inputs copied, autograd
//   node unit             250 [120 … 400]: pre- and post-hooks, stream and event calls of an FSDP
//   unit
#pragma once

#include "orrery/workload/plan.h"

namespace orrery::workload {

// Megatron-LM and Megatron-DeepSpeed of 2020 to 2022, PyTorch 1.x.
inline constexpr HostWork kHost2021 = {.module_forward = 60'000,
                                       .module_backward = 40'000,
                                       .low_precision = 15'000,
                                       .rng_fork = 90'000,
                                       .checkpoint = 350'000,
                                       .communication = 60'000,
                                       .graph = 30'000};
// Megatron Core with Transformer Engine, NeMo.
inline constexpr HostWork kHostCore = {.module_forward = 40'000,
                                       .module_backward = 25'000,
                                       .low_precision = 15'000,
                                       .rng_fork = 0,
                                       .checkpoint = 350'000,
                                       .communication = 25'000,
                                       .graph = 30'000};
// PyTorch FSDP and DeepSpeed ZeRO-3 around plain modules.
inline constexpr HostWork kHostFsdp = {.module_forward = 25'000,
                                       .module_backward = 20'000,
                                       .low_precision = 15'000,
                                       .rng_fork = 0,
                                       .checkpoint = 150'000,
                                       .communication = 25'000,
                                       .unit = 250'000,
                                       .graph = 30'000};

}  // namespace orrery::workload
