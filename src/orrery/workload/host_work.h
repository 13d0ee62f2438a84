// What eager frameworks cost the host beside issuing kernels, by family and time.
//
// compute's host model counts the launch of a kernel through an operator of PyTorch. A layer's step
// in Python does more, and small layers wait for it: the call of each nn.Module with its hooks, the
// views, transposes and checks around it, Python autograd functions in backward, random states
// saved and restored around recomputed layers and tensor-parallel dropout, torch.distributed's
// argument checks and work objects around each collective. HostOf gives these pieces, in ns on the
// CPU whose cpu_relative_speed is 1; a layer's sum follows from how many of them it runs. Their
// a-priori values stand in data/host_work.csv; the constants host_python and, for kCore,
// host_python.core scale them. Some pieces are constants of their own: host_step.core, host_batch,
// host_attention.core, host_ring_step.core and host_grouped_expert.
#pragma once

#include "orrery/constants/set.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

enum class HostEra : std::uint8_t {
  kNone,  // compiled, or replayed as CUDA graphs
  k2021,  // Megatron-LM and Megatron-DeepSpeed of 2020 to 2022, PyTorch 1.x
  kCore,  // Megatron Core with Transformer Engine, NeMo
  kFsdp,  // PyTorch FSDP and DeepSpeed ZeRO-3 around plain modules
};
// Under a graph of the iteration only its launch and the training loop are left. Graphs of layers
// take their share away when they are captured (generators/block_source.cc). Reads cuda_graphs and
// quiet_loop.
HostWork HostOf(HostEra era, const Plan& plan, const constants::Set& known);

}  // namespace orrery::workload
