#include <iterator>
#include <vector>

#include "orrery/workload/options.h"
#include "orrery/workload/switches.h"

namespace orrery::workload {
namespace {

using enum OptionType;

// Those that are no switches.
constexpr Option kFramework[] = {
    {.name = "attention",
     .type = kChoice,
     .choices = "unfused|flash1|flash2|flash3|flash4|cudnn|flash|sdpa|te|flex",
     .doc = "Attention kernels; flash3 on Hopper only, flash4 on Hopper and Blackwell. flash: the "
            "framework's generation of them; sdpa: PyTorch's choice on the GPU; te: Transformer "
            "Engine's; flex: FlexAttention, priced as flash2."},
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
    {.name = "cp_exchange",
     .type = kChoice,
     .choices = "ring|all-gather|all-to-all",
     .doc = "How context-parallel ranks see each other's keys and values.",
     .words =
         "p2p=ring|allgather=all-gather|a2a=all-to-all|alltoall=all-to-all|ulysses=all-to-all"},
    {.name = "fp8_recipe",
     .type = kChoice,
     .choices = "delayed|current|blockwise",
     .doc = "How precision fp8 finds its scales.",
     .words = "tensorwise=current"},
    {.name = "limit_all_gathers",
     .type = kBool,
     .doc = "zero3 with flat_parameters: the host waits for the GPU before it gathers further than "
            "a layer ahead (FSDP1's rate limiter); without it memory of gathered layers comes back "
            "late."},
    {.name = "reshard",
     .type = kText,
     .doc = "zero3, after a layer's forward pass (fully_shard's reshard_after_forward): true frees "
            "the gathered parameters, false keeps them for backward, N reshards over groups of N. "
            "Default: true without pipeline stages."},
    {.name = "cuda_graphs",
     .type = kChoice,
     .choices = "none|layers|iteration",
     .doc =
         "What is launched as CUDA graphs: each layer's passes, or the iteration up to the first "
         "point where the host must read."},
    {.name = "cuda_graph_scope",
     .type = kText,
     .doc = "With cuda_graphs: layers: the parts captured, joined by +: attn, mlp, moe_router, "
            "moe_preprocess, mamba; all when left out. Dispatch, experts and combine run eagerly."},
    {.name = "transformer_engine",
     .type = kBool,
     .doc = "Layers are Transformer Engine's, whose libraries take device memory; only what memory "
            "counts follows from it, kernels have keys of their own."},
    {.name = "host_work",
     .type = kBool,
     .doc = "The framework's Python works on the host beside the launch of kernels; false where it "
            "does not, as with layers captured by the user."},
};

std::vector<Option> AllOptions() {
  std::vector<Option> all(std::begin(kFramework), std::end(kFramework));
  for (const Switch& s : Switches()) all.push_back({.name = s.key, .type = kBool, .doc = s.doc});
  return all;
}

}  // namespace

const OptionTable& FrameworkOptions() {
  static const std::vector<Option> options = AllOptions();
  static const OptionTable table{
      .path = "framework_options",
      .doc = "How the framework behaves; what is left out is the framework version's default.",
      .options = options};
  return table;
}

}  // namespace orrery::workload
