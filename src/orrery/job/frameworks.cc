#include "orrery/job/frameworks.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::job {
namespace {

using workload::GatherLimit;
using workload::HostEra;
using workload::LowPrecision;
using workload::Recompute;
using workload::RecomputeKeeps;
using workload::Sharding;

// 2020: DistributedDataParallel of its own after the backward pass, fp16 gradients reduced as they
// are, unfused attention with the fused softmax kernel. Tensor-parallel gradients are reduced
// beside a GEMM from September 2021 on; GEMMs add to gradients from February 2022 on, to 16-bit
// ones from September.
constexpr FrameworkDefaults kMegatron2020 = {.fused_weight_gradient = WeightGradientFusion::kNone,
                                             .overlap_tp_all_reduce = false,
                                             .batch_sync = true,
                                             .host = HostEra::k2021,
                                             .libraries = {.cublas_in_torch = false}};
constexpr FrameworkDefaults With2021Sends(FrameworkDefaults d, bool scatter_gather) {
  d.overlap_p2p = false;
  d.batch_p2p_sync = true;
  d.scatter_gather_p2p = scatter_gather;
  return d;
}

constexpr FrameworkDefaults With2022(FrameworkDefaults d) {
  d.fused_weight_gradient = WeightGradientFusion::kFp32;
  d.overlap_tp_all_reduce = true;
  return d;
}

// Megatron Core with the switches of NVIDIA's large-run recipes on (--overlap-grad-reduce,
// --overlap-param-gather, --use-distributed-optimizer where sharding says so).
constexpr FrameworkDefaults MegatronCore(AttentionDefault attention, bool permute = false,
                                         bool router = false) {
  // Transformer Engine 2.7 brought the router's kernels.
  return {.attention = attention,
          .fused_latent_blackwell = router,
          .dp_overlap = true,
          .batch_p2p_sync = true,
          .recompute_flash = true,
          .align_stages = true,
          .unit_buffers = true,
          .moe_fused_permute = permute,
          .moe_fused_router = router,
          .moe_separate_padding = true,
          .libraries = {.transformer_engine = true}};
}

// NeMo's GPT and Llama recipes on Megatron Core: gradients reduced in 16 bits, parameters gathered
// in fp8 where layers run in it, tensor-parallel communication overlapped.
constexpr FrameworkDefaults Nemo(bool permute, LossDefault loss) {
  FrameworkDefaults d = MegatronCore(AttentionDefault::kLibrary, permute);
  d.loss = loss;
  d.tp_comm_overlap = d.low_precision_gather = true;
  d.grad_reduce_fp32 = false;
  return d;
}
constexpr FrameworkDefaults Nemo2() {
  FrameworkDefaults d = Nemo(true, LossDefault::kOnline);
  d.squared_relu_operators = true;
  return d;
}
constexpr FrameworkRecipe kNemoRecipe = {
    .sequence_parallel = true, .sharding = Sharding::kZero1, .gpt_dropout = 0, .interleaved = true};

constexpr FrameworkDefaults Bridge() {
  FrameworkDefaults d = MegatronCore(AttentionDefault::kLibrary, true, true);
  d.tp_comm_overlap = d.low_precision_gather = true;
  d.fp8_recipe = LowPrecision::kCurrent;
  d.flat_parameters = false;
  d.loss = LossDefault::kOnline;
  return d;
}

// One unit a block, its parameters gathered one ahead in 16 bits, gradients reduced in fp32.
constexpr FrameworkDefaults Fsdp(AttentionDefault attention, bool flat) {
  return {.attention = attention,
          .dp_overlap = true,
          .flat_parameters = flat,
          .loss = LossDefault::kTorch,
          .torch_layers = workload::TorchLayers::kEager,
          .host = HostEra::kFsdp};
}
// torch's checkpoint as torchtitan calls it: not reentrant, with its early stop.
constexpr FrameworkDefaults Fsdp2() {
  FrameworkDefaults d = Fsdp(AttentionDefault::kTorch, false);
  d.cp_exchange = workload::CpExchange::kAllGather;
  d.full_keeps = RecomputeKeeps::kLast;
  d.selective_keeps = RecomputeKeeps::kEveryOther;
  d.fp8_recipe = LowPrecision::kCurrent;
  d.repeats_kv = true;
  return d;
}
// FSDP2 around models of its own with experts: Transformer Engine's attention, norms and rotation,
// fused permutations, units that stay gathered for the step.
constexpr FrameworkDefaults Automodel() {
  FrameworkDefaults d = Fsdp2();
  d.attention = AttentionDefault::kLibrary;
  d.fused_latent_blackwell = true;
  d.moe_fused_permute = true;
  d.hold_units = d.model_type_states = true;
  d.selective_keeps = RecomputeKeeps::kNothing;
  d.torch_layers = workload::TorchLayers::kFused;
  d.repeats_kv = false;
  d.libraries.transformer_engine = true;
  return d;
}
// limit_all_gathers is on from 2.1 on (pytorch/pytorch #104900).
constexpr FrameworkDefaults Fsdp1() {
  FrameworkDefaults d = Fsdp(AttentionDefault::kFlash2, true);
  d.gather_limit = GatherLimit::kHost;
  return d;
}
constexpr FrameworkDefaults OldTorch(FrameworkDefaults d) {
  d.libraries.cublas_in_torch = false;
  return d;
}
constexpr FrameworkDefaults OldFsdp1() {
  FrameworkDefaults d = OldTorch(Fsdp(AttentionDefault::kFlash1, true));
  d.gather_limit = GatherLimit::kNone;
  d.loss = LossDefault::kOnline;
  return d;
}
// LLM Foundry on Composer: the limiter on, flash-attn's cross entropy on 16-bit logits, two metrics
// over them (LanguageCrossEntropy, LanguagePerplexity), DecoupledAdamW's loop over flat parameters,
// and the loss read after every step.
constexpr FrameworkDefaults Composer(FrameworkDefaults d, AttentionDefault attention,
                                     RecomputeKeeps keeps) {
  d.attention = attention;
  d.gather_limit = GatherLimit::kHost;
  d.full_keeps = keeps;
  d.loss = LossDefault::kOnline;
  d.adam_loop = d.loss_metrics = d.log_every_step = true;
  return d;
}
// With attn_impl flash every sequence is unpadded, though none is padded.
constexpr FrameworkDefaults FlashComposer() {
  FrameworkDefaults d = Composer(Fsdp1(), AttentionDefault::kFlash2, RecomputeKeeps::kLast);
  d.unpads_attention = true;
  return d;
}
constexpr FrameworkRecipe kFsdpRecipe = {.sharding = Sharding::kZero3, .gpt_dropout = 0};
// Composer's FSDPConfig turns the limiter on.
constexpr FrameworkRecipe kComposer = {
    .sharding = Sharding::kZero3, .gpt_dropout = 0, .limit_all_gathers = true};
// Its run_train.sh sets expandable segments, its log prints the peak of reserved memory
// (components/metrics.py).
constexpr FrameworkRecipe kTorchtitan = {.recompute = Recompute::kSelective,
                                         .sharding = Sharding::kZero3,
                                         .gpt_dropout = 0,
                                         .allocator = "expandable_segments:True",
                                         .meter = "torch_reserved"};

// Its benchmark recipes checkpoint whole blocks.
constexpr FrameworkRecipe kAutomodel = {
    .recompute = Recompute::kFull, .sharding = Sharding::kZero3, .gpt_dropout = 0};

// ZeRO with overlap_comm and, in ZeRO-3, prefetch on; 16-bit reduction. The host waits when more
// than two fetches are under way (PartitionedParameterCoordinator).
constexpr FrameworkDefaults DeepSpeed(AttentionDefault attention) {
  FrameworkDefaults d = Fsdp(attention, true);
  d.grad_reduce_fp32 = false;
  d.tensor_buckets = true;
  d.gather_limit = GatherLimit::kHost;
  return d;
}

// Its gathers wait for the host, and nothing runs beside them.
constexpr FrameworkDefaults DeepSpeed2021() {
  FrameworkDefaults d = OldTorch(DeepSpeed(AttentionDefault::kUnfused));
  d.dp_overlap = false;
  d.list_gathers = true;
  return d;
}

constexpr std::array<Framework, 28> kFrameworks = {{
    {.name = "megatron@2026.08",
     .description = "Megatron Core 0.19: as megatron@2025.10",
     .defaults = MegatronCore(AttentionDefault::kLibrary, true, true),
     .recipe = {.says_switches = true},
     .source = "NVIDIA/Megatron-LM core_v0.19.0: megatron/training, core/transformer/moe/README.md",
     .assumes = "No difference from 0.14 in what is modelled here. Sends overlap warm-up and flush "
                "where the job says so (overlap_p2p_warmup_flush)."},
    {.name = "megatron@2025.10",
     .description = "Megatron Core 0.14: the router's fused kernels of Transformer Engine 2.7",
     .defaults = MegatronCore(AttentionDefault::kLibrary, true, true),
     .recipe = {.says_switches = true},
     .source = "NVIDIA/Megatron-LM core_v0.14.0: arguments.py, core/transformer/moe/README.md",
     .assumes = "As 2025.05, and --moe-router-fusion."},
    {.name = "megatron@2025.05",
     .description = "Megatron Core 0.12: tokens permuted by fused kernels",
     .defaults = MegatronCore(AttentionDefault::kLibrary, true),
     .recipe = {.says_switches = true},
     .source = "NVIDIA/Megatron-LM core_v0.12.0: arguments.py, core/transformer/moe/README.md",
     .assumes = "As 2024.09, and --moe-permute-fusion, as its README recommends."},
    {.name = "megatron@2024.09",
     .description = "Megatron Core 0.9: fused attention of Transformer Engine's choice, gradient "
                    "reduction and parameter gathering overlapped",
     .defaults = MegatronCore(AttentionDefault::kLibrary),
     .recipe = {.says_switches = true},
     .source = "NVIDIA/Megatron-LM core_v0.9.0; NVIDIA's recipes for large runs",
     .assumes = "Transformer Engine's layers."},
    {.name = "megatron@2024.07",
     .description = "Megatron Core 0.8: flash attention 2, else as 2024.09",
     .defaults = MegatronCore(AttentionDefault::kFlash2),
     .recipe = {.interleaved = true, .says_switches = true},
     .source = "NVIDIA/Megatron-LM core_v0.8.0; NVIDIA's scaling studies with it",
     .assumes = "Its published runs interleave as NeMo's recipes do."},
    {.name = "megatron@2023.12",
     .description = "Megatron Core 0.4: overlapped gradients and parameters are there, attention "
                    "is flash 2",
     .defaults = MegatronCore(AttentionDefault::kFlash2),
     .recipe = {.says_switches = true},
     .source = "NVIDIA/Megatron-LM core_v0.4.0: arguments.py",
     .assumes = "Transformer Engine's layers (--transformer-impl), gradient reductions launched "
                "together (--no-delay-grad-reduce turns that off)."},
    {.name = "megatron@2022.05",
     .description = "Megatron-LM of Korthikanti et al. 2022: unfused attention, nothing overlapped",
     .defaults = With2022(With2021Sends(kMegatron2020, true)),
     .recipe = {},
     .source = "Korthikanti et al. 2022; NVIDIA/Megatron-LM v3.0",
     .assumes = "Sequence parallelism and selective recompute as the job says; sends and receives "
                "block, and the host waits for them."},
    {.name = "megatron@2021.04",
     .description = "Megatron-LM of Narayanan et al. 2021: unfused attention, nothing overlapped, "
                    "scatter-gather between stages",
     .defaults = With2021Sends(kMegatron2020, true),
     .recipe = {},
     .source = "Narayanan et al. 2021; NVIDIA/Megatron-LM v2.5",
     .assumes =
         "As 2022.05. It has no sequence parallelism and no distributed optimizer: leave both "
         "off."},
    {.name = "megatron@2021.01",
     .description = "Megatron-LM of January 2021: as 2021.04, whole messages between stages",
     .defaults = With2021Sends(kMegatron2020, false),
     .recipe = {},
     .source = "NVIDIA/Megatron-LM v2.0 and README of January 2021",
     .assumes = "As 2021.04."},
    {.name = "megatron@2020",
     .description = "Megatron-LM of 2020: tensor and data parallelism, gradients after backward",
     .defaults = kMegatron2020,
     .recipe = {},
     .source = "Shoeybi et al. 2019; NVIDIA/Megatron-LM v1.1",
     .assumes = "It has no pipeline: leave pp at 1."},
    {.name = "fsdp2@torch2.6",
     .description = "PyTorch FSDP2 (fully_shard): layers gathered one ahead, reduced in fp32; set "
                    "sharding: zero3",
     .defaults = Fsdp2(),
     .recipe = kTorchtitan,
     .source = "torch/distributed/fsdp/_fully_shard; pytorch/torchtitan",
     .assumes =
         "A layer a unit, its experts another, embedding, norm and output in the root. fp32 shards "
         "of parameters, cast before a gather. Over stages a layer stays gathered for the step "
         "(reshard: false) and its gradients are reduced behind the last pass, as torchtitan has "
         "torch.distributed.pipelining do it. Selective recompute is torchtitan's, by operator. "
         "Layers are plain PyTorch, eager: torch_layers has torch.compile, and models with kernels "
         "of "
         "their own (Transformer Engine's, Liger's)."},
    {.name = "automodel@2025.10",
     .description =
         "NeMo Automodel's models with experts: FSDP2 whose layers stay gathered for the "
         "step, Transformer Engine's attention; set sharding: zero3",
     .defaults = Automodel(),
     .recipe = kAutomodel,
     .source = "NVIDIA-NeMo/Automodel, October 2025 to August 2026: components/moe "
               "(parallelizer.py, fsdp_mixin.py, experts.py, megatron/token_dispatcher.py), "
               "examples/llm_benchmark",
     .assumes =
         "As fsdp2@torch2.6. enable_fsdp_optimizations: without stages, too, layers are gathered "
         "once a step and gradients reduced in the last micro-batch's backward (hold_units; models "
         "with experts, not with adapters). DeepEP's exchange unless told: set moe_dispatcher. "
         "Models are loaded in bf16: shards and Adam's state have that type (model_type_states). "
         "Experts that nobody else holds are not sharded."},
    {.name = "fsdp1@torch2.1",
     .description =
         "PyTorch FSDP1 (FullyShardedDataParallel, BACKWARD_PRE): one flat parameter a layer",
     .defaults = Fsdp1(),
     .recipe = kFsdpRecipe,
     .source = "Zhao et al. 2023; torch/distributed/fsdp; pytorch/pytorch #104900",
     .assumes = "As FSDP2; autograd concatenates a unit's gradients. The rate limiter is on "
                "(limit_all_gathers). flash-attn's kernel needs no repeat_kv."},
    {.name = "fsdp1@torch1.13",
     .description = "As fsdp1@torch2.1 with flash attention of the first generation and its cross "
                    "entropy on 16-bit logits, as LLM Foundry has them",
     .defaults = OldFsdp1(),
     .recipe = kComposer,
     .source = "Zhao et al. 2023; torch/distributed/fsdp; mosaicml/llm-foundry; Composer's "
               "FSDPConfig",
     .assumes = "cuBLAS's workspaces lie outside PyTorch's allocator. The rate limiter is off in "
                "PyTorch before 2.1, on in Composer. Else as fsdp1@torch2.1."},
    {.name = "composer@2024.01",
     .description = "LLM Foundry on Composer in January 2024: as 2023.10, flash attention 2",
     .defaults = FlashComposer(),
     .recipe = kFsdpRecipe,
     .source = "mosaicml/llm-foundry 5e85bd6: scripts/train/benchmarking/submit_benchmarks.py, "
               "sweep.py (attn_impl flash, gpu-flash2), llmfoundry/models/layers/attention.py",
     .assumes = "As 2023.10, but each layer unpads queries, keys and values, with two reads by the "
                "host each (unpads_attention)."},
    {.name = "composer@2023.10",
     .description = "LLM Foundry v0.3 on Composer 0.16 and PyTorch 2.1: checkpoints stop early",
     .defaults = Composer(Fsdp1(), AttentionDefault::kFlash1, RecomputeKeeps::kLast),
     .recipe = kFsdpRecipe,
     .source = "mosaicml/llm-foundry b2a43a1: scripts/train/benchmarking, v0.3.0: "
               "llmfoundry/models/mpt/modeling_mpt.py; mosaicml/composer v0.16.4: "
               "trainer/trainer.py, metrics/nlp.py, optim/decoupled_weight_decay.py",
     .assumes = "Attention is Triton's kernel of the first generation (attn_impl triton), "
                "checkpoints are not reentrant. torch.compile is not modelled."},
    {.name = "composer@2023.05",
     .description = "LLM Foundry v0.1 on Composer 0.14 and PyTorch 1.13",
     .defaults = Composer(OldTorch(Fsdp1()), AttentionDefault::kFlash1, RecomputeKeeps::kNothing),
     .recipe = kFsdpRecipe,
     .source = "mosaicml/llm-foundry v0.1.0: scripts/train/benchmarking, "
               "llmfoundry/models/mpt/modeling_mpt.py; mosaicml/composer v0.14.0",
     .assumes = "As 2023.10, but PyTorch 1.13's checkpoints run a whole layer again."},
    {.name = "deepspeed@2023",
     .description = "DeepSpeed ZeRO with overlapped communication and 16-bit reduction",
     .defaults = DeepSpeed(AttentionDefault::kFlash2),
     .recipe = {.sharding = Sharding::kZero3},
     .source = "Rajbhandari et al. 2020; deepspeed/runtime/zero",
     .assumes =
         "overlap_comm is on. ZeRO-3 gathers a layer ahead, as FSDP1, without its persistence "
         "threshold and live-parameter limit. ZeRO-2 keeps parameters whole and all-reduces "
         "every micro-batch in buckets of 5e8 elements. Layers are plain PyTorch, eager (Hugging "
         "Face's): torch_layers: fused has Liger's kernels."},
    {.name = "deepspeed@2021",
     .description =
         "DeepSpeed ZeRO of 2021: unfused attention, gathers tensor by tensor into lists",
     .defaults = DeepSpeed2021(),
     .recipe = {.sharding = Sharding::kZero3},
     .source = "Rajbhandari et al. 2021 (ZeRO-Infinity); deepspeed/runtime/zero of v0.5 "
               "(partition_parameters.py, _allgather_param)",
     .assumes =
         "Flash attention came in 2022. ZeRO-3 synchronises the device before it gathers a "
         "tensor, and a view and a copy a rank cost the host, for each reduced tensor too; "
         "nothing overlaps. Tensors of up to 100,000 elements stay, what is needed again within "
         "10^9 elements stays between recomputation and backward pass. Else as deepspeed@2023."},
    {.name = "ddp@torch2.1",
     .description = "PyTorch DistributedDataParallel: 25 MiB buckets all-reduced beside backward, "
                    "AdamW (foreach)",
     .defaults = {.attention = AttentionDefault::kFlash2,
                  .dp_overlap = true,
                  .ddp = true,
                  .loss = LossDefault::kTorch,
                  .host = HostEra::kFsdp},
     .recipe = {},
     .source = "Li et al. 2020; torch/csrc/distributed/c10d/reducer.cpp",
     .assumes =
         "no_sync before the last micro-batch; autocast under bf16 and fp16. No communication "
         "hooks, no find_unused_parameters, no broadcast of buffers."},
    {.name = "nemo@2025.04",
     .description = "NeMo 25.04 to 25.09: as nemo@2024.11, Transformer Engine's cross entropy",
     .defaults = Nemo2(),
     .recipe = kNemoRecipe,
     .source = "NVIDIA/NeMo v2.3.0: scripts/performance/utils.py (cross_entropy_fusion_impl te), "
               "collections/llm/fn/activation.py",
     .assumes = "As nemo@2024.07. Squared ReLU runs as PyTorch's operators "
                "(fused_bias_activation)."},
    {.name = "nemo@2024.11",
     .description = "NeMo 24.11 to 25.02: as nemo@2024.07, tokens permuted by fused kernels",
     .defaults = Nemo(true, LossDefault::kFused),
     .recipe = kNemoRecipe,
     .source = "NVIDIA/NeMo 2.0 performance recipes",
     .assumes = "As nemo@2024.07."},
    {.name = "nemo@2024.07",
     .description =
         "NeMo 24.07 on Megatron Core: as megatron@2024.09, gradients reduced in 16 bits",
     .defaults = Nemo(false, LossDefault::kFused),
     .recipe = kNemoRecipe,
     .source = "NVIDIA/NeMo 2.0 performance recipes",
     .assumes = "The recipes use sequence parallelism with tp and ZeRO-1: say both in the job."},
    {.name = "nemo@2023",
     .description = "NeMo Megatron 22 and 23: unfused attention, distributed Adam with overlap",
     .defaults = {.dp_overlap = true,
                  .grad_reduce_fp32 = false,
                  .batch_p2p_sync = true,
                  .align_stages = true,
                  .libraries = {.transformer_engine = true}},
     .recipe = {.sequence_parallel = true,
                .recompute = Recompute::kSelective,
                .sharding = Sharding::kZero1,
                .interleaved = true},
     .source = "NVIDIA/NeMo-Megatron-Launcher: gpt3/175b.yaml (interleaving \"set to maximum\", "
               "p2p overlapped)",
     .assumes = "Stages are cut into chunks of a layer: say vpp in the job."},
    {.name = "megatron-bridge@2025.09",
     .description = "Megatron Bridge 25.09 and later: as megatron@2025.10, tensor-parallel "
                    "communication overlapped",
     .defaults = Bridge(),
     .recipe = {.sequence_parallel = true, .sharding = Sharding::kZero1, .gpt_dropout = 0},
     .source = "NVIDIA-NeMo/Megatron-Bridge performance recipes",
     .assumes = "fp8 recipes scale by the current maximum. Experts' exchanges beside another "
                "micro-batch: set training.moe_comm_overlap."},
    {.name = "megatron-deepspeed@2022",
     .description =
         "Megatron-DeepSpeed as BLOOM used it: PipelineModule's 1F1B, reduction after the "
         "last backward",
     .defaults = {.overlap_p2p = false,
                  .fused_weight_gradient = WeightGradientFusion::kNone,
                  .converted_gradients = true,
                  .overlap_tp_all_reduce = false,
                  .scatter_gather_p2p = true,
                  .batch_p2p_sync = true,
                  .batch_sync = true,
                  .reduce_whole = true,
                  .bucket_elements = 500'000'000,
                  .host = HostEra::k2021,
                  .libraries = {.cublas_in_torch = false}},
     .recipe = {.uneven_stages = UnevenStages::kFilled},
     .source = "bigscience-workshop/Megatron-DeepSpeed; deepspeed/runtime/pipe "
               "(is_pipe_partitioned where there is model parallelism)",
     .assumes = "bf16 keeps and reduces fp32 gradients, under ZeRO-1 whole, fp16 16-bit ones. "
                "PipelineModule filled stages from the first (type:transformer, until December "
                "2023): give layers_per_stage where pp does not divide layers."},
    {.name = "internevo@2024",
     .description =
         "InternEvo with hybrid ZeRO: gradients all-reduced whole, optimizer state in shard groups",
     .defaults = {.attention = AttentionDefault::kFlash1,
                  .dp_overlap = true,
                  .grad_reduce_fp32 = false,
                  .fused_weight_gradient = WeightGradientFusion::kNone,
                  .owns_tensors = true,
                  .flat_step = true},
     // Its log names no memory.
     .recipe = {.sharding = Sharding::kZero1,
                .gpt_dropout = 0,
                .uneven_stages = UnevenStages::kSpread,
                .meter = "nvidia_smi"},
     .source = "Chen et al. 2024, InternEvo; InternLM/InternEvo (hybrid_zero_optim.py)",
     .assumes = "Set sharding: zero1 and parallel.shard_group. Gradients are reduced whole. After "
                "the step each owner broadcasts its "
                "tensors. Its environment of 2023 pins flash attention 1."},
    {.name = "jax-fsdp@2024",
     .description = "MaxText on GPUs: compiled, gathers moved ahead, 16-bit reduction",
     .defaults = {.attention = AttentionDefault::kLibrary,
                  .dp_overlap = true,
                  .grad_reduce_fp32 = false,
                  .full_keeps = RecomputeKeeps::kQkv,
                  .low_precision_gather = true,
                  .flat_parameters = false,
                  .copies_units = false,
                  .loss = LossDefault::kOnline,
                  .embedding_product = true,
                  .stacked_layers = true,
                  .host = HostEra::kNone},
     .recipe = {.recompute = Recompute::kFull, .sharding = Sharding::kZero3, .gpt_dropout = 0},
     .source = "AI-Hypercomputer/maxtext; NVIDIA/JAX-Toolbox",
     .assumes =
         "Set sharding: zero3. No host work: one program a step. XLA's fusions are those of the "
         "eager fused kernels. Layers are scanned, which copies what they keep (stacked_layers); "
         "embeddings are products (use_iota_embed) and full recompute keeps queries, keys and "
         "values (save_qkv_proj), as NVIDIA's recipes set. 8-bit weights are gathered as such."},
}};

// Other names of a row: the newest of a family that has versions of another name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kAliases = {
    {{"fsdp", "fsdp2@torch2.6"},
     {"fsdp@torch2.6", "fsdp2@torch2.6"},
     {"fsdp@torch1.13", "fsdp1@torch1.13"}}};

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
