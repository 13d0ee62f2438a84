#include "orrery/job/frameworks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::job {
namespace {

using workload::AttentionBackend;
using workload::HostEra;
using workload::Plan;

// Megatron Core 0.9 with the switches of NVIDIA's large-run recipes (--overlap-grad-reduce,
// --overlap-param-gather, --use-distributed-optimizer where sharding says so). Transformer Engine
// picks fused attention; flash2 stands for it on every GPU.
void Megatron2024(Plan* plan) {
  plan->attention = AttentionBackend::kFlash2;
  plan->overlap_grad_reduce = true;
  plan->overlap_param_gather = true;
  plan->overlap_p2p = true;
  plan->grad_reduce_fp32 = true;
  plan->align_grad_reduce = true;
  plan->align_param_gather = true;
  plan->recompute_flash = true;
  plan->scatter_gather_p2p = false;
  plan->batch_p2p_sync = false;
}

// Megatron-LM of "Reducing Activation Recomputation" (Korthikanti et al. 2022): sequence
// parallelism and selective recompute, gradients all-reduced after the last backward, attention
// unfused with the fused softmax kernel, sends not overlapped.
void Megatron2022(Plan* plan) {
  plan->attention = AttentionBackend::kUnfused;
  plan->overlap_grad_reduce = false;
  plan->overlap_param_gather = false;
  plan->overlap_p2p = false;
  plan->grad_reduce_fp32 = true;
  plan->align_grad_reduce = false;
  plan->align_param_gather = false;
  plan->recompute_flash = false;
  plan->scatter_gather_p2p = true;
  plan->batch_p2p_sync = true;
}

// Megatron-LM of "Efficient Large-Scale Language Model Training" (Narayanan et al. 2021): as 2022.
void Megatron2021(Plan* plan) { Megatron2022(plan); }

// FSDP2 (fully_shard) as torchtitan runs it: parameters gathered in bf16, gradients reduced in
// fp32, layers kept as separate tensors, prefetched one ahead.
void Fsdp2(Plan* plan) {
  Megatron2024(plan);
  plan->prefetch = true;
  plan->flat_parameters = false;
}

// FSDP1 (FullyShardedDataParallel, BACKWARD_PRE): one flat parameter a layer.
void Fsdp1(Plan* plan) {
  Fsdp2(plan);
  plan->flat_parameters = true;
}

// DeepSpeed's ZeRO with overlap_comm and, in ZeRO-3, prefetch on; 16-bit reduction.
void DeepSpeed(Plan* plan) {
  Fsdp1(plan);
  plan->grad_reduce_fp32 = false;
  if (plan->sharding != workload::Sharding::kZero2) return;
  plan->reducer = workload::Reducer::kDeepSpeed;
  plan->overlap_param_gather = false;
  plan->align_grad_reduce = false;
  plan->bucket_elements = 500'000'000;  // reduce_bucket_size
}

// DistributedDataParallel around eager modules with torch.optim.AdamW (foreach), SDPA attention, no
// clipping. In fp32 attention is a product, a softmax and a product.
void Ddp(Plan* plan) {
  Megatron2024(plan);
  plan->reducer = workload::Reducer::kDdp;
  plan->align_grad_reduce = false;
  plan->fused_softmax = false;
  plan->fused_adam = false;
  plan->clip_gradients = false;
}

constexpr std::array<Framework, 7> kFrameworks = {{
    {"megatron@2024.09",
     "Megatron Core 0.9: flash attention, gradient reduction and parameter gathering overlapped",
     Megatron2024,
     {.transformer_engine = true}},
    {"megatron@2022.05",
     "Megatron-LM of Korthikanti et al. 2022: unfused attention, nothing overlapped",
     Megatron2022,
     {.cublas_in_torch = false},
     HostEra::k2021},
    {"megatron@2021.04",
     "Megatron-LM of Narayanan et al. 2021: unfused attention, nothing overlapped, scatter-gather "
     "between stages",
     Megatron2021,
     {.cublas_in_torch = false},
     HostEra::k2021},
    {"fsdp@torch2.6",
     "PyTorch FSDP2 (fully_shard): layers gathered one ahead, reduced in fp32; set sharding: zero3",
     Fsdp2,
     {},
     HostEra::kFsdp},
    {"fsdp@torch1.13",
     "PyTorch FSDP1 (FullyShardedDataParallel, BACKWARD_PRE): one flat parameter a layer",
     Fsdp1,
     {.cublas_in_torch = false},
     HostEra::kFsdp},
    {"deepspeed@2023",
     "DeepSpeed ZeRO with overlapped communication and 16-bit reduction",
     DeepSpeed,
     {},
     HostEra::kFsdp},
    {"ddp@torch2.1",
     "PyTorch DistributedDataParallel: 25 MiB buckets all-reduced beside backward, AdamW (foreach)",
     Ddp,
     {},
     HostEra::kFsdp},
}};

constexpr std::array<std::string_view, 1> kPlanned = {"nemo"};

}  // namespace

std::span<const Framework> Frameworks() { return kFrameworks; }

Result<const Framework*> FindFramework(std::string_view name) {
  std::vector<std::string_view> valid;
  for (const Framework& framework : kFrameworks) {
    const std::string_view bare = framework.name.substr(0, framework.name.find('@'));
    if (name == framework.name || name == bare) return &framework;
    if (std::find(valid.begin(), valid.end(), bare) == valid.end()) valid.push_back(bare);
  }
  for (const Framework& framework : kFrameworks) valid.push_back(framework.name);
  const std::string_view bare = name.substr(0, name.find('@'));
  if (std::find(kPlanned.begin(), kPlanned.end(), bare) != kPlanned.end()) {
    return InvalidInput("framework '{}' is not built yet; valid: {}", Printable(name),
                        fmt::join(valid, ", "));
  }
  return InvalidInput("{}", UnknownName("framework", Printable(name), valid));
}

}  // namespace orrery::job
