#include "orrery/job/frameworks.h"

#include <algorithm>
#include <array>
#include <utility>
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
// unfused with the fused softmax kernel, sends not overlapped. That of "Efficient Large-Scale
// Language Model Training" (Narayanan et al. 2021) has the same defaults.
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

// NeMo's GPT and Llama recipes on Megatron Core: as there, gradients reduced in 16 bits, parameters
// gathered in fp8 where layers run in it.
void Nemo(Plan* plan) {
  Megatron2024(plan);
  plan->grad_reduce_fp32 = false;
  plan->low_precision_gather = plan->low_precision != workload::LowPrecision::kNone;
  plan->tp_comm_overlap = true;
}

// Megatron Bridge's performance recipes: Transformer Engine chooses cuDNN's attention.
void Bridge(Plan* plan) {
  Megatron2024(plan);
  plan->attention = AttentionBackend::kCudnn;
  plan->low_precision_gather = plan->low_precision != workload::LowPrecision::kNone;
  plan->tp_comm_overlap = plan->low_precision != workload::LowPrecision::kNvfp4;
}

// Megatron-DeepSpeed as BLOOM was trained with: DeepSpeed's PipelineModule (1F1B, each message
// split over tensor-parallel ranks and waited for by the host), all gradients reduced after the
// last backward in buckets of 5·10^8.
void MegatronDeepSpeed(Plan* plan) {
  Megatron2022(plan);
  plan->bucket_elements = 500'000'000;
}

// InternEvo with hybrid ZeRO: gradients all-reduced whole beside backward, optimizer state in shard
// groups, flash attention of the first generation.
void InternEvo(Plan* plan) {
  Megatron2024(plan);
  plan->attention = AttentionBackend::kFlash1;
  plan->grad_reduce_fp32 = false;
  plan->align_grad_reduce = false;
  plan->recompute_flash = false;
  plan->reduce_whole = true;
  plan->broadcast_parameters = plan->sharding == workload::Sharding::kZero1;
}

// MaxText: compiled, parameters gathered a layer ahead by XLA's latency-hiding scheduler, gradients
// reduced in the compute type.
void JaxFsdp(Plan* plan) {
  Fsdp2(plan);
  plan->attention = AttentionBackend::kCudnn;
  plan->grad_reduce_fp32 = false;
}

constexpr memory::Libraries kOldTorch = {.cublas_in_torch = false};
constexpr memory::Libraries kTransformerEngine = {.transformer_engine = true};

constexpr std::array<Framework, 12> kFrameworks = {{
    {.name = "megatron@2024.09",
     .description = "Megatron Core 0.9: flash attention, gradient reduction and parameter "
                    "gathering overlapped",
     .defaults = Megatron2024,
     .libraries = kTransformerEngine,
     .host = HostEra::kCore,
     .source = "NVIDIA/Megatron-LM core_r0.9.0; NVIDIA's recipes for large runs",
     .assumes =
         "Transformer Engine's layers; its choice of attention kernel is flash 2 unless said."},
    {.name = "megatron@2022.05",
     .description = "Megatron-LM of Korthikanti et al. 2022: unfused attention, nothing overlapped",
     .defaults = Megatron2022,
     .libraries = kOldTorch,
     .host = HostEra::k2021,
     .source = "Korthikanti et al. 2022; NVIDIA/Megatron-LM v3.0",
     .assumes = "Sequence parallelism and selective recompute as the job says; sends and receives "
                "block, and the host waits for them."},
    {.name = "megatron@2021.04",
     .description = "Megatron-LM of Narayanan et al. 2021: unfused attention, nothing overlapped, "
                    "scatter-gather between stages",
     .defaults = Megatron2022,
     .libraries = kOldTorch,
     .host = HostEra::k2021,
     .source = "Narayanan et al. 2021; NVIDIA/Megatron-LM v2.5",
     .assumes =
         "As 2022.05. It has no sequence parallelism and no distributed optimizer: leave both "
         "off."},
    {.name = "fsdp@torch2.6",
     .description = "PyTorch FSDP2 (fully_shard): layers gathered one ahead, reduced in fp32; set "
                    "sharding: zero3",
     .defaults = Fsdp2,
     .host = HostEra::kFsdp,
     .source = "torch/distributed/fsdp/_fully_shard; pytorch/torchtitan",
     .assumes =
         "A layer a unit, embedding, norm and output in the root. fp32 shards of parameters, "
         "cast before a gather. torch.compile is not modelled."},
    {.name = "fsdp@torch1.13",
     .description =
         "PyTorch FSDP1 (FullyShardedDataParallel, BACKWARD_PRE): one flat parameter a layer",
     .defaults = Fsdp1,
     .libraries = kOldTorch,
     .host = HostEra::kFsdp,
     .source = "Zhao et al. 2023; torch/distributed/fsdp",
     .assumes =
         "As above; autograd concatenates a unit's gradients. The rate limiter's wait of the "
         "host is not modelled."},
    {.name = "deepspeed@2023",
     .description = "DeepSpeed ZeRO with overlapped communication and 16-bit reduction",
     .defaults = DeepSpeed,
     .host = HostEra::kFsdp,
     .source = "Rajbhandari et al. 2020; deepspeed/runtime/zero",
     .assumes =
         "overlap_comm is on. ZeRO-3 gathers a layer ahead, as FSDP1, without its persistence "
         "threshold and live-parameter limit. ZeRO-2 keeps parameters whole and all-reduces "
         "every micro-batch in buckets of 5e8 elements."},
    {.name = "ddp@torch2.1",
     .description = "PyTorch DistributedDataParallel: 25 MiB buckets all-reduced beside backward, "
                    "AdamW (foreach)",
     .defaults = Ddp,
     .host = HostEra::kFsdp,
     .source = "Li et al. 2020; torch/csrc/distributed/c10d/reducer.cpp",
     .assumes =
         "no_sync before the last micro-batch; autocast under bf16 and fp16. No communication "
         "hooks, no find_unused_parameters, no broadcast of buffers."},
    {.name = "nemo@2024.07",
     .description =
         "NeMo 24.07 on Megatron Core: as megatron@2024.09, gradients reduced in 16 bits",
     .defaults = Nemo,
     .libraries = kTransformerEngine,
     .host = HostEra::kCore,
     .source = "NVIDIA/NeMo 2.0 performance recipes",
     .assumes = "The recipes use sequence parallelism with tp and ZeRO-1: say both in the job."},
    {.name = "megatron-bridge@2025.09",
     .description = "Megatron Bridge 25.09: as megatron@2024.09 with cuDNN's attention",
     .defaults = Bridge,
     .libraries = kTransformerEngine,
     .host = HostEra::kCore,
     .source = "NVIDIA-NeMo/Megatron-Bridge performance recipes",
     .assumes = "fp8 recipes scale by the current maximum: set fp8_recipe: current. "
                "Experts' exchanges beside another micro-batch: set training.moe_comm_overlap."},
    {.name = "megatron-deepspeed@2022",
     .description =
         "Megatron-DeepSpeed as BLOOM used it: PipelineModule's 1F1B, reduction after the "
         "last backward",
     .defaults = MegatronDeepSpeed,
     .libraries = kOldTorch,
     .host = HostEra::k2021,
     .source = "bigscience-workshop/Megatron-DeepSpeed; deepspeed/runtime/pipe",
     .assumes = "bf16 keeps and reduces fp32 gradients; for fp16 set grad_reduce_fp32: false. "
                "PipelineModule balances layers by itself: give layers_per_stage where pp does not "
                "divide them."},
    {.name = "internevo@2024",
     .description =
         "InternEvo with hybrid ZeRO: gradients all-reduced whole, optimizer state in shard groups",
     .defaults = InternEvo,
     .host = HostEra::kCore,
     .source = "Chen et al. 2024, InternEvo; InternLM/InternEvo",
     .assumes =
         "Set sharding: zero1 and parallel.shard_group. After the step each owner broadcasts its "
         "tensors."},
    {.name = "jax-fsdp@2024",
     .description = "MaxText on GPUs: compiled, gathers moved ahead, 16-bit reduction",
     .defaults = JaxFsdp,
     .libraries = {},
     .source = "AI-Hypercomputer/maxtext; NVIDIA/JAX-Toolbox",
     .assumes =
         "Set sharding: zero3. No host work: one program a step. XLA's fusions are those of the "
         "eager fused kernels; a layer is scanned, its recompute as the job says."},
}};

// Other names of a row: the newest of a family that has versions of another name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kAliases = {
    {{"fsdp2", "fsdp@torch2.6"}, {"fsdp1", "fsdp@torch1.13"}}};

}  // namespace

std::span<const Framework> Frameworks() { return kFrameworks; }

Result<const Framework*> FindFramework(std::string_view name) {
  std::vector<std::string_view> valid;
  for (const Framework& framework : kFrameworks) {
    const std::string_view bare = framework.name.substr(0, framework.name.find('@'));
    if (name == framework.name || name == bare) return &framework;
    if (std::find(valid.begin(), valid.end(), bare) == valid.end()) valid.push_back(bare);
  }
  for (const auto& [alias, row] : kAliases) {
    if (name == alias) return FindFramework(row);
    valid.push_back(alias);
  }
  for (const Framework& framework : kFrameworks) valid.push_back(framework.name);
  return InvalidInput("{}", UnknownName("framework", Printable(name), valid));
}

}  // namespace orrery::job
