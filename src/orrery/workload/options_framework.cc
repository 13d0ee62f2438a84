#include "orrery/workload/options.h"

namespace orrery::workload {
namespace {

using enum OptionType;

constexpr Option kFramework[] = {
    {.name = "attention",
     .type = kChoice,
     .choices = "unfused|flash1|flash2|flash3|flash4|cudnn",
     .doc = "Attention kernels; flash3 on Hopper only, flash4 on Hopper and Blackwell."},
    {.name = "overlap_grad_reduce",
     .type = kBool,
     .doc = "Gradients are reduced in buckets beside the last micro-batch's backward."},
    {.name = "overlap_param_gather",
     .type = kBool,
     .doc = "ZeRO-1 gathers parameters beside the next forward."},
    {.name = "overlap_p2p",
     .type = kBool,
     .doc = "Sends between stages run beside compute (interleaved schedule only)."},
    {.name = "overlap_p2p_warmup_flush",
     .type = kBool,
     .doc = "With overlap_p2p: they do while the pipeline fills and drains, too (Megatron's "
            "overlap_p2p_comm_warmup_flush)."},
    {.name = "tp_comm_overlap",
     .type = kBool,
     .doc = "All-gathers and reduce-scatters of tensor parallelism run in pieces beside pieces of "
            "the GEMMs (Transformer Engine's userbuffers); needs sequence_parallel."},
    {.name = "grad_reduce_fp32", .type = kBool, .doc = "Gradients are kept and reduced in fp32."},
    {.name = "bucket_elements",
     .type = kInteger,
     .min = 1,
     .max = 1099511627776.0,
     .doc = "Gradient elements a bucket, at least 1,000,000 · dp."},
    {.name = "deferred_head",
     .type = kInteger,
     .min = 0,
     .max = 1048576,
     .doc = "Weight gradients of the output layer of so many micro-batches run behind the last "
            "stage's passes (Megatron's defer_embedding_wgrad_compute, wgrad_deferral_limit)."},
    {.name = "bucket_bytes",
     .type = kInteger,
     .min = 1,
     .max = 1099511627776.0,
     .doc = "ddp: gradient bytes a bucket; the first closes at 1 MiB."},
    {.name = "bucket_views",
     .type = kBool,
     .doc = "ddp: gradients live in the buckets (gradient_as_bucket_view), else they are copied."},
    {.name = "clip_gradients",
     .type = kBool,
     .doc = "Gradients are clipped by their norm, which the host reads."},
    {.name = "fused_bias_activation", .type = kBool, .doc = "Bias and activation are one kernel."},
    {.name = "fused_weight_gradient",
     .type = kBool,
     .doc = "Weight-gradient GEMMs add to the gradient buffer (Megatron's "
            "gradient_accumulation_fusion); else a kernel adds what they wrote."},
    {.name = "converted_gradients",
     .type = kBool,
     .doc = "Every micro-batch's 16-bit gradients are converted, then added to the fp32 buffer "
            "(DeepSpeed's BF16_Optimizer)."},
    {.name = "fused_softmax", .type = kBool, .doc = "Scale, mask and softmax are one kernel."},
    {.name = "fused_adam", .type = kBool, .doc = "One kernel for many parameters."},
    {.name = "fused_cross_entropy",
     .type = kBool,
     .doc = "Megatron's native fused loss, four compiled kernels: an fp32 copy of the logits lives "
            "beside it."},
    {.name = "online_cross_entropy",
     .type = kBool,
     .doc = "The loss reads 16-bit logits twice and writes their gradients over them (Transformer "
            "Engine's parallel cross entropy, compiled losses): nothing of 32 bits, an all-gather "
            "over tp."},
    {.name = "chunked_loss",
     .type = kBool,
     .doc = "Output layer and loss a chunk of tokens after the other (Liger's fused linear cross "
            "entropy); tp 1."},
    {.name = "torch_loss",
     .type = kBool,
     .doc = "PyTorch's own cross entropy on fp32 logits: log-softmax and gradients beside each "
            "other."},
    {.name = "loss_metrics",
     .type = kBool,
     .doc = "Two training metrics compute the cross entropy of a micro-batch's logits again "
            "(Composer's), gathered over ranks after a step; tp 1."},
    {.name = "quiet_loop",
     .type = kBool,
     .doc = "Between steps nothing is logged or read, as in submissions to MLPerf: 3 of the 8 ms "
            "of the training loop of Megatron Core, NeMo and Megatron Bridge; others have none."},
    {.name = "deterministic",
     .type = kBool,
     .doc = "torch.use_deterministic_algorithms: every tensor is filled when it is allocated "
            "(Megatron's --deterministic-mode)."},
    {.name = "unpads_attention",
     .type = kBool,
     .doc = "Fused attention stands between flash-attn's unpad_input and pad_input, whose indices "
            "the host reads (LLM Foundry's attn_impl flash); cp 1."},
    {.name = "repeats_kv",
     .type = kBool,
     .doc = "Layers in plain PyTorch write keys and values once for each query head that reads "
            "them (repeat_kv before PyTorch's attention; flash-attn's needs none)."},
    {.name = "embedding_product",
     .type = kBool,
     .doc = "Word embeddings and their gradient are products of one-hot rows (MaxText's "
            "use_iota_embed, Praxis)."},
    {.name = "stacked_layers",
     .type = kBool,
     .doc = "Layers are one scanned loop: what a layer keeps is copied into a stack over the "
            "layers, and out of it where a product or another library's kernel reads it (XLA "
            "without dynamic-slice fusion)."},
    {.name = "qkv_bias_kernel",
     .type = kBool,
     .doc = "The bias of queries, keys and values is added by a kernel of its own (XLA's cuBLAS "
            "calls)."},
    {.name = "in_place_kernels",
     .type = kBool,
     .doc = "Rotary embedding and a gated activation's backward write over their inputs (Liger "
            "Kernel)."},
    {.name = "flat_step",
     .type = kBool,
     .doc = "The step makes flat copies of gradients, and torch.optim.AdamW's intermediate results "
            "(InternEvo)."},
    {.name = "contiguous_gradients",
     .type = kBool,
     .doc = "zero3: gradients pass through a buffer of bucket_elements that stays (DeepSpeed)."},
    {.name = "keeps_scores",
     .type = kBool,
     .doc =
         "Unfused attention's scores lie in one buffer that stays (Megatron Core's own layers)."},
    {.name = "moe_fused_router",
     .type = kBool,
     .doc = "Scores, top-k and auxiliary loss of a router are fused kernels, not operators."},
    {.name = "moe_fused_permute",
     .type = kBool,
     .doc = "Tokens are permuted by fused kernels, not by chains of operators."},
    {.name = "moe_separate_padding",
     .type = kBool,
     .doc = "With fp8 or fp4, each expert's rows are padded by a copy of their own (Megatron "
            "without --moe-router-padding-for-quantization); not with hybridep."},
    {.name = "moe_fused_mlp",
     .type = kBool,
     .doc = "mxfp8: grouped GEMMs apply the gated activation, its gradient and the casts "
            "(Transformer Engine's NVTE_CUTEDSL_FUSED_GROUPED_MLP)."},
    {.name = "fp8_attention",
     .type = kBool,
     .doc =
         "fp8, mxfp8 or nvfp4: attention's products are in 8 bits (Transformer Engine's fp8_dpa)."},
    {.name = "fp8_output_layer",
     .type = kBool,
     .doc = "fp8, mxfp8 or nvfp4: so are the output layer's (Megatron's fp8_output_proj)."},
    {.name = "align_grad_reduce",
     .type = kBool,
     .doc = "Stages launch gradient reductions together, in the bubble."},
    {.name = "align_param_gather",
     .type = kBool,
     .doc = "Stages gather parameters together, a chunk ahead (interleaved schedule only)."},
    {.name = "torch_layers",
     .type = kChoice,
     .choices = "fused|compiled|eager",
     .doc = "What RMSNorms, rotation and gates run: a framework's fused kernels, or a model in "
            "plain PyTorch (torchtitan's), compiled block by block or operator by operator."},
    {.name = "recompute_keeps",
     .type = kChoice,
     .choices = "nothing|last|qkv|qkv_out|products|every_other",
     .doc =
         "What a layer that is recomputed keeps all the same: nothing; last: its last product is "
         "not run again (torch's early stop); qkv, qkv_out, products: those as well (JAX's "
         "policies); every_other: core attention and every second product (torchtitan's "
         "selective)."},
    {.name = "recompute_flash",
     .type = kBool,
     .doc = "Selective recompute runs flash attention again."},
    {.name = "overlap_tp_all_reduce",
     .type = kBool,
     .doc = "Without sequence parallelism, a column-parallel layer's input gradient is reduced "
            "beside its weight gradient."},
    {.name = "scatter_gather_p2p",
     .type = kBool,
     .doc = "Without sequence parallelism, send a tp-th of the activations and gather it."},
    {.name = "batch_p2p_sync",
     .type = kBool,
     .doc = "The host waits for the GPU after batched sends and receives."},
    {.name = "batch_sync",
     .type = kBool,
     .doc =
         "The host reads the sizes of each micro-batch back from the GPU (Megatron until 2023)."},
    {.name = "cp_exchange",
     .type = kChoice,
     .choices = "ring|all-gather|all-to-all",
     .doc = "How context-parallel ranks see each other's keys and values."},
    {.name = "fp8_recipe",
     .type = kChoice,
     .choices = "delayed|current|blockwise",
     .doc = "How precision fp8 finds its scales."},
    {.name = "low_precision_gather",
     .type = kBool,
     .doc = "Parameters are gathered over data-parallel ranks in fp8, mxfp8 or nvfp4."},
    {.name = "prefetch",
     .type = kBool,
     .doc = "zero2, zero3: a layer's parameters are gathered while the one before computes."},
    {.name = "list_gathers",
     .type = kBool,
     .doc = "zero3 without prefetch: a tensor at a time, the device synchronised before, into a "
            "list of every rank's part (DeepSpeed of 2021)."},
    {.name = "unit_buffers",
     .type = kBool,
     .doc =
         "zero2, zero3: parameters and gradients live in what is gathered and reduced, shards of "
         "their type are made once a step (Megatron-FSDP)."},
    {.name = "hold_units",
     .type = kBool,
     .doc = "zero2, zero3 without stages: layers are gathered once a step and kept, gradients are "
            "summed unsharded and reduced in the last micro-batch's backward (NeMo Automodel's "
            "enable_fsdp_optimizations); over stages it is always so."},
    {.name = "model_type_states",
     .type = kBool,
     .doc =
         "zero2, zero3 without flat_parameters, adam: shards of parameters and gradients and the "
         "optimizer's state have the parameters' type, without fp32 copies (a model loaded in "
         "bf16, NeMo Automodel)."},
    {.name = "flat_parameters",
     .type = kBool,
     .doc =
         "zero2, zero3: a layer is one flat parameter (FSDP1); else tensors are copied (FSDP2)."},
    {.name = "copies_units",
     .type = kBool,
     .doc = "zero2, zero3 without flat_parameters: tensors are copied into and out of the gathered "
            "and reduced buffers (FSDP2); else they lie there (XLA)."},
    {.name = "limit_all_gathers",
     .type = kBool,
     .doc = "zero3 with flat_parameters: the host waits for the GPU before it gathers further than "
            "a layer ahead (FSDP1's rate limiter); without it memory of gathered layers comes back "
            "late."},
    {.name = "reshard",
     .type = kText,
     .doc = "zero3: what becomes of a gathered layer after its forward pass (fully_shard's "
            "reshard_after_forward): true, it is given back; false, kept for backward; a number, "
            "one part of so many is kept. true unless there are stages."},
    {.name = "adam_loop",
     .type = kBool,
     .doc = "Without fused_adam: tensor by tensor, else all tensors a kernel (foreach)."},
    {.name = "cuda_graphs",
     .type = kChoice,
     .choices = "none|layers|iteration",
     .doc =
         "What is launched as CUDA graphs: each layer's passes, or the iteration up to the first "
         "point where the host must read."},
    {.name = "cuda_graph_scope",
     .type = kText,
     .doc = "With cuda_graphs: layers, the parts captured, + between: attn, mlp, moe_router, "
            "moe_preprocess, mamba; all unless said. Dispatch, experts and combine run eagerly."},
    {.name = "reduce_whole",
     .type = kBool,
     .doc = "zero1: gradients all-reduced over all replicas (InternEvo, DeepSpeed's "
            "BF16_Optimizer), else reduce-scattered; with shard_group the shards all-reduced "
            "between groups then."},
    {.name = "broadcast_parameters",
     .type = kBool,
     .doc =
         "zero1 by whole tensors: after the step each owner broadcasts its own (InternEvo), else "
         "shards are all-gathered."},
    {.name = "log_every_step", .type = kBool, .doc = "The host reads the loss after every step."},
    {.name = "transformer_engine",
     .type = kBool,
     .doc = "Layers are Transformer Engine's, whose libraries take device memory; only what memory "
            "counts follows from it, kernels have keys of their own."},
    {.name = "host_work",
     .type = kBool,
     .doc = "The framework's Python works on the host beside the launch of kernels; false where it "
            "does not, as with layers captured by the user."},
};

constexpr OptionTable kFrameworkTable{
    .path = "framework_options",
    .doc = "How the framework behaves; what is left out is the framework version's default.",
    .options = kFramework};

}  // namespace

const OptionTable& FrameworkOptions() { return kFrameworkTable; }

}  // namespace orrery::workload
