// What a row of measured runs leaves blank, as the scripts of its own release set it: by whose
// scripts they are, release, model, GPU and precision. The table is data/release_recipes.yaml, with
// a source a row; a user's file adds rows (docs/formats/data.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/formats/rows.h"
#include "orrery/formats/section.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

// A member counts where the row's columns do not say; as it stands here, the release sets nothing
// and the framework's default holds.
struct ReleaseRecipe {
  // Passes.
  std::string recompute = {};  // modules of selective recompute
  // Of full recompute; kNothing: the framework's own.
  workload::RecomputeKeeps keeps = workload::RecomputeKeeps::kNothing;
  bool recomputes = true;     // false: layers keep everything
  bool scans = true;          // JAX: layers are a loop
  bool bias_kernels = false;  // biases of products are kernels of their own
  // JAX: what a loop's pipelined collectives carry to the next layer is copied.
  bool copies_carried = false;
  bool fused_attention = true;  // Transformer Engine may take cuDNN's; else flash attention 2
  workload::CudaGraphs graphs = workload::CudaGraphs::kNone;
  bool quiet_loop = false;              // FrameworkBehaviour::quiet_loop
  bool whole_graphs = false;            // graphs whose reach is not said are of the iteration
  bool squared_relu_operators = false;  // not compiled
  bool adds_weight_gradients = false;   // by kernels of their own: gradient_accumulation_fusion off
  bool compiles_loss = true;            // where layers are compiled
  bool plain_loss = false;              // cross_entropy_loss_fusion left off
  bool adam_operators = false;          // torch.optim.AdamW's foreach, an operator a kernel
  double gpt_dropout = 0;               // hidden and of attention
  // Gradients reduced and parameters gathered beside the passes, Transformer Engine's cross
  // entropy.
  bool overlaps_and_fuses = false;
  // Micro-batches whose weight gradients of the output layer wait for the end of the last stage's
  // passes.
  std::int64_t deferred_head = 0;

  // The machine.
  bool vboost = false;  // power steered to the SMs (enable_vboost, VBOOST_VALUE)
  int cuda = 0;         // major version of its container's CUDA; 0: not known

  std::int64_t micro_batch = 0;
  bool torch_ddp = false;  // gradients reduced beside the last backward pass (--DDP-impl torch)

  // Ranks.
  bool dp_last = false;  // ranks of a replica side by side (use_tp_pp_dp_mapping)
  int shard_hosts = 0;   // FSDP over so many neighbouring hosts; 0: over all
  int shard_from = 0;    // from so many hosts on

  // Experts.
  int etp = 0;
  bool drops = false;  // every expert padded to its mean (capacity factor 1)
  std::optional<workload::Dispatcher> dispatcher = {};
  bool router_operators = false;  // moe_router_fusion left off
  bool fused_mlp = false;         // experts' activation and casts in their GEMMs
  // Where cuda_graphs and ep_overlap are both blank: graphs of parts, and exchanges beside another
  // micro-batch.
  workload::CudaGraphs expert_graphs = workload::CudaGraphs::kNone;
  bool ep_overlap = false;
  bool delays_weights = false;  // with ep_overlap (delay_wgrad_compute)
  std::uint8_t graph_scope = workload::kGraphAll;

  // Precision.
  std::optional<bool> reduces_fp32 = {};  // gradients
  bool gathers_16_bits = false;           // parameters, beside fp8
  bool current = false;                   // fp8 by current scaling
  bool fp8_attention = false, fp8_output_layer = false;
  std::int64_t bf16_last_layers = 0;
  std::uint8_t bf16_modules = 0;  // bits of workload::Bf16Module
};

class RecipeTable {
 public:
  // data/release_recipes.yaml, embedded.
  static const RecipeTable& BuiltIn();

  // The rows of a file, which go before those that are there; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // What the row's release sets; the members' defaults where none is known.
  ReleaseRecipe Find(const Configuration& row) const;

 private:
  // A row: its recipe is that of every row of measured runs that fits.
  struct Line {
    formats::Section keys;
    int from = 0, to = 0;  // months, 2411
  };
  Result<Line> ReadLine(const formats::DataRow& row) const;

  formats::DataTable rows_{"recipe"};
  std::vector<Line> lines_;
};

}  // namespace orrery::search
