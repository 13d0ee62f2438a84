#include "orrery/workload/options.h"

namespace orrery::workload {
namespace {

using enum OptionType;

constexpr Option kParallel[] = {
    {.name = "tp",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .doc = "Tensor-parallel ranks."},
    {.name = "pp",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .doc = "Pipeline stages."},
    {.name = "vpp",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 1024,
     .doc = "Chunks a stage (virtual pipeline); above 1 the schedule must interleave."},
    {.name = "dp",
     .type = kInteger,
     .min = 1,
     .max = 1 << 20,
     .doc = "Data-parallel replicas; what tp · pp leave of the cluster when left out."},
    {.name = "cp",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 127,
     .doc = "Context-parallel ranks: they share each sequence."},
    {.name = "ep",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .doc = "Expert-parallel ranks: each keeps experts / ep experts."},
    {.name = "etp",
     .type = kInteger,
     .min = 1,
     .max = 4096,
     .doc = "Tensor-parallel ranks of experts; tp when left out."},
    {.name = "rank_order",
     .type = kChoice,
     .fallback = "tp-cp-dp-pp",
     .choices = "tp-cp-dp-pp|tp-cp-pp-dp",
     .doc = "Which degree varies fastest from rank to rank; tp-cp-pp-dp is Megatron's "
            "use-tp-pp-dp-mapping."},
    {.name = "shard_group",
     .type = kInteger,
     .min = 2,
     .max = 1 << 20,
     .doc = "Data-parallel ranks over which one copy is sharded; groups are replicas of each other "
            "(HSDP). Left out: all ranks."},
    {.name = "sequence_parallel",
     .type = kBool,
     .fallback = "false",
     .doc = "Split norms and dropout over the tensor-parallel ranks (Korthikanti et al. 2022)."},
    {.name = "layers_per_stage",
     .type = kIntegers,
     .fallback = "auto",
     .min = 0,
     .max = 10000,
     .choices = "auto|spread|filled|counted|inner|short|thin_ends",
     .doc =
         "auto (even if divisible, else embedding and loss count as one layer each), a rule, or pp "
         "entries (pp · vpp in chunk order), of which the first and the last may be 0. Rules: "
         "spread, the first have one more; filled, each as many as the largest must, the last what "
         "is left; counted, embedding and head a layer each, then spread; inner, one more behind "
         "the first; short, as filled with a layer each; thin_ends, fewer in the first and last."},
    {.name = "microbatch_group",
     .type = kInteger,
     .min = 1,
     .max = 1 << 20,
     .doc = "Micro-batches a chunk runs in a row when interleaved; pp when left out."},
};

constexpr Option kTraining[] = {
    {.name = "global_batch",
     .type = kInteger,
     .min = 1,
     .max = 2147483648.0,
     .doc = "Sequences a step, over all replicas. Required."},
    {.name = "micro_batch",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 65536,
     .doc = "Sequences a micro-batch."},
    {.name = "seq_len",
     .type = kInteger,
     .min = 1,
     .max = 1 << 26,
     .doc = "Tokens a sequence. Required."},
    {.name = "precision",
     .type = kChoice,
     .fallback = "bf16",
     .choices = "bf16|fp16|fp32|fp8|mxfp8|nvfp4",
     .doc = "Type of parameters and activations; the optimizer keeps fp32. fp8, mxfp8 and nvfp4: "
            "of the GEMMs of linear layers, everything else is in bf16.",
     .words = "bfloat16=bf16|float16=fp16|half=fp16|float32=fp32"},
    {.name = "param_dtype",
     .type = kChoice,
     .fallback = "bf16",
     .choices = "bf16|fp16|fp32",
     .doc =
         "With fp8, mxfp8 or nvfp4: type of parameters and of everything that these leave alone.",
     .words = "bfloat16=bf16|float16=fp16|float32=fp32"},
    {.name = "bf16_first_layers",
     .type = kInteger,
     .fallback = "0",
     .min = 0,
     .max = 1 << 20,
     .doc =
         "So many layers from the first on keep their linear layers in bf16 beside fp8, mxfp8 or "
         "nvfp4 (Megatron's num_layers_at_start_in_bf16)."},
    {.name = "bf16_last_layers",
     .type = kInteger,
     .fallback = "0",
     .min = 0,
     .max = 1 << 20,
     .doc = "So many layers before the output keep theirs in bf16 (num_layers_at_end_in_bf16)."},
    {.name = "bf16_modules",
     .type = kText,
     .fallback = "none",
     .doc = "Parts that keep theirs in bf16 in all layers, joined by +: attention, expert_latent, "
            "mtp, experts, mlp (shared experts' too); none."},
    {.name = "recompute_modules",
     .type = kText,
     .fallback = "core_attn",
     .doc = "What selective recompute runs again, joined by +: core_attn, layernorm, moe_act, moe, "
            "mlp, mla_up_proj, latent_norm (norms of latent attention's compressed tensors)."},
    {.name = "recompute",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|selective|full",
     .doc = "Activations computed again in the backward pass. none; selective: the attention core; "
            "full: whole layers."},
    {.name = "recompute_method",
     .type = kChoice,
     .fallback = "uniform",
     .choices = "uniform|block|every",
     .doc = "Which layers recompute: full runs again. uniform: all, recompute_layers of them at "
            "once, which keep one input. block: the first recompute_layers of every chunk, each by "
            "itself (both as Megatron's). every: of a stage's layers every recompute_layers-th "
            "(torchtitan's selective_ac_option: 2)."},
    {.name = "recompute_layers",
     .type = kInteger,
     .fallback = "1",
     .min = 1,
     .max = 32767,
     .doc = "How many layers recompute_method counts (Megatron's recompute_num_layers)."},
    {.name = "moe_dispatcher",
     .type = kChoice,
     .fallback = "alltoall",
     .choices = "allgather|alltoall|deepep|hybridep",
     .doc = "How tokens are sent to the ranks of their experts.",
     .words = "all-to-all=alltoall|all-gather=allgather"},
    {.name = "moe_routing",
     .type = kText,
     .fallback = "balanced",
     .doc = "Load of the experts. balanced; round-robin: balanced, a token's experts are "
            "neighbours. All ranks run as the busiest: zipf, in proportion to 1/i; natural, as in "
            "a router's first hundreds of steps. Drawn layer by layer: dirichlet, drawn-zipf. Or a "
            "file NAME.csv, a line a layer."},
    {.name = "moe_alpha",
     .type = kNumber,
     .fallback = "1",
     .min = 1e-3,
     .max = 1e6,
     .doc = "Concentration of moe_routing: dirichlet; large is even."},
    {.name = "moe_zipf",
     .type = kNumber,
     .fallback = "1",
     .min = 0,
     .max = 10,
     .doc = "Exponent of moe_routing: drawn-zipf; 0 is even."},
    {.name = "moe_seed",
     .type = kInteger,
     .fallback = "1",
     .min = 0,
     .max = 9007199254740992.0,
     .doc = "Seed of a drawn moe_routing."},
    {.name = "moe_capacity_factor",
     .type = kNumber,
     .min = 0,
     .max = 1000,
     .doc = "An expert takes so many times the mean at most, the rest is dropped; with a drawn or "
            "given moe_routing."},
    {.name = "moe_pad_to_capacity",
     .type = kBool,
     .doc = "Every expert gets exactly its capacity, tokens dropped or rows padded: the host reads "
            "no counts, and graphs of layers capture experts as well."},
    {.name = "moe_imbalance",
     .type = kNumber,
     .fallback = "1",
     .min = 1,
     .max = 1000,
     .doc = "Tokens of the busiest expert-parallel rank over the mean, on top of moe_routing."},
    {.name = "moe_shared_overlap",
     .type = kBool,
     .fallback = "false",
     .doc = "Shared experts run beside the dispatch of tokens to the others."},
    {.name = "moe_comm_overlap",
     .type = kBool,
     .doc = "Exchanges of tokens of one micro-batch run beside compute of another; false when left "
            "out, but for the schedules dualpipe and dualpipe-v, which pair passes for it."},
    {.name = "moe_delayed_weights",
     .type = kBool,
     .fallback = "false",
     .doc = "With moe_comm_overlap: a layer's weight gradients run after the exchange that its "
            "data gradients allow has been launched (Megatron's delay_wgrad_compute)."},
    {.name = "optimizer",
     .type = kChoice,
     .fallback = "adam",
     .choices = "adam|adamw|adafactor|muon|sgd|lion|lamb",
     .doc =
         "The optimizer, with fp32 main parameters. adamw costs what adam does; sgd has momentum."},
    {.name = "optimizer_states",
     .type = kChoice,
     .fallback = "full",
     .choices = "full|fp32|bf16|8bit|4bit|fp8",
     .doc = "Type of the optimizer's moments. full: fp32, or the parameters' type under "
            "model_type_states; fp32: fp32 in any case, a kernel for each tensor (bitsandbytes); "
            "bf16: of fused Adam (Megatron's precision-aware optimizer); in blocks with a scale "
            "each: 8bit (bitsandbytes, torchao), 4bit and fp8 (torchao)."},
    {.name = "momentum", .type = kBool, .fallback = "true", .doc = "Whether sgd keeps a momentum."},
    {.name = "offload",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|optimizer|activations|all|parameters",
     .doc = "What is kept in host memory. optimizer: its state, updated by the CPU; activations: "
            "what layers keep for their backward pass; all: both; parameters: the optimizer's "
            "state and ZeRO-3's parameter shards."},
    {.name = "offload_threads",
     .type = kInteger,
     .min = 1,
     .max = 1024,
     .doc = "With offload: optimizer, parameters or all: threads of a rank that run the optimizer "
            "(OMP_NUM_THREADS; torchrun and accelerate launch set 1 where it is not set); all "
            "cores of the host when left out."},
    {.name = "offload_layers",
     .type = kInteger,
     .min = 1,
     .max = 10000,
     .doc = "With offload: activations: how many of the first layers (Transformer Engine's and "
            "Megatron's cpu_offloading_num_layers); all when left out. Copies are spread over the "
            "layers that stay."},
    {.name = "offload_modules",
     .type = kText,
     .doc =
         "With offload: activations: the inputs of these modules alone (Megatron's "
         "--offload-modules), joined by +: attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, "
         "expert_fc1, moe_act, fused_group_mlp; all that a layer keeps when left out."},
    {.name = "lora_rank",
     .type = kInteger,
     .min = 1,
     .max = 65536,
     .doc = "LoRA: the model is frozen, adapters of this rank are trained."},
    {.name = "lora_targets",
     .type = kText,
     .fallback = "all",
     .doc =
         "Linear layers with adapters: qkv, projection, fc1 and fc2, joined by +; attention, the "
         "first two; mlp, the last two; all; none, beside lora_experts: parameters."},
    {.name = "lora_experts",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|parameters|modules|grouped|shared",
     .doc =
         "Adapters of routed experts. parameters: PEFT's target_parameters, of every expert's fc1 "
         "and fc2, merged into the weights in every pass; modules: what PEFT makes of the names "
         "of experts' modules among lora_targets, the same of twice the rank beside gate and up, "
         "and none beside dense layers and shared experts; grouped: products beside the experts', "
         "one adapter an expert; shared: one for all experts of a rank (Megatron Bridge)."},
    {.name = "base_quantization",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|nf4|fp4|int8",
     .doc = "With lora_rank: type of the frozen weights of linear layers. nf4, fp4: 4 bits and a "
            "scale per 64, dequantised before each product (QLoRA); int8: 8 bits and a scale a row "
            "(LLM.int8)."},
    {.name = "double_quantization",
     .type = kBool,
     .fallback = "false",
     .doc = "With nf4 and fp4: a scale takes 8 bits, and each 256 of them have one in fp32."},
    {.name = "packed_len",
     .type = kInteger,
     .min = 1,
     .max = 1 << 26,
     .doc =
         "Tokens of the sequences that one of seq_len is packed from; they do not attend to each "
         "other."},
    {.name = "tokens",
     .type = kNumber,
     .max = 1e18,
     .doc = "Tokens of the whole training, such as 15.6e12: for its days, cost and goodput."},
    {.name = "sample_read",
     .type = kTime,
     .unit = "ms",
     .fallback = "0ms",
     .max = 60'000,
     .doc = "Time that a worker of a rank's data loader needs to read and tokenise a sample (a "
            "sequence). Workers read ahead, so it costs nothing unless they need longer for a "
            "step's samples than the step takes."},
    {.name = "data_storage",
     .type = kChoice,
     .fallback = "local",
     .choices = "local|object_store",
     .doc = "Where samples are stored. With object_store, sample_read is the constant "
            "sample_read.object_store when left out."},
    {.name = "data_workers",
     .type = kInteger,
     .fallback = "2",
     .min = 1,
     .max = 1024,
     .doc = "Workers of a rank's data loader (Megatron: --num-workers, 2)."},
    {.name = "sharding",
     .type = kChoice,
     .fallback = "none",
     .choices = "none|zero1|zero2|zero3",
     .doc = "What data-parallel ranks shard. none: nothing; zero1: the optimizer's state; zero2: "
            "gradients too, parameters kept from forward to backward (FSDP's SHARD_GRAD_OP); "
            "zero3: parameters too, gathered for each pass (FSDP's FULL_SHARD).",
     .words = "fsdp=zero3|full_shard=zero3|optim_grads_params=zero3|3=zero3|shard_grad_op=zero2|"
              "optim_grads=zero2|2=zero2|optim=zero1|1=zero1|no_shard=none|ddp=none|0=none"},
};

constexpr OptionTable kParallelTable{
    .path = "parallel", .doc = "How the model is split over GPUs.", .options = kParallel};
constexpr OptionTable kTrainingTable{
    .path = "training", .doc = "Batch, sequence, precision, memory.", .options = kTraining};

}  // namespace

const OptionTable& ParallelOptions() { return kParallelTable; }
const OptionTable& TrainingOptions() { return kTrainingTable; }

}  // namespace orrery::workload
