// Adapters of routed experts (training.lora_experts); layers/lora.h has those of other layers.
//
//   parameters  PEFT's target_parameters: each expert has A and B of rank r beside fc1 (gate and up
//               as one matrix) and fc2. W + s·B·A of all local experts is made in front of the
//               product, kept until backward, and gets a gradient as large as itself, of which
//               those of B and A are products (peft 0.21.2, tuners/lora/layer.py: ParamWrapper)
//   modules     the same for names of modules (gate_proj, up_proj, down_proj, all-linear) of models
//               whose experts are one tensor: PEFT makes target_parameters of them, of rank 2·r
//               where gate and up are both named, and leaves dense layers and shared experts as
//               they are (peft 0.21.2, utils/transformers_weight_conversion.py); that
//               all-linear takes the router as well, r·(hidden + experts) elements, is not counted
//   grouped     each expert has A and B, run as grouped GEMMs beside the expert's own (Megatron
//               Bridge with share_expert_adapters off, ms-swift's Megatron; ScatterMoE's kernels)
//   shared      one A and B for all experts of a rank, over all their rows (Megatron Bridge's
//               default: share_expert_adapters)
//
// Cost: two kernels a product and pass beside the frozen ones, or, merged, a copy of the weights
// and two products of their size. Experts over tensor parallelism of their own are refused (plan).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

enum class ExpertProduct : std::uint8_t { kFc1, kFc2 };

// Elements on this rank: A, then B. Empty without adapters of experts.
std::vector<std::int64_t> ExpertAdapterParameters(const Shape& s);

// Rows that the experts of a rank work on, and those of one of them.
struct ExpertRows {
  std::int64_t all = 0, each = 0;
};

class ExpertAdapters {
 public:
  // Buffers have the ids behind `id`; `again`: forward runs again in backward.
  ExpertAdapters(const Shape& s, const ExpertRows& rows, bool again, std::uint32_t id,
                 BlockWriter* w);

  // Around an expert's own product, forward.
  void InFront(ExpertProduct product);
  void Behind(ExpertProduct product);
  // Behind the gradient of its input.
  void Backward(ExpertProduct product);
  // What forward does not leave to backward.
  void Drop();

 private:
  bool adapts(ExpertProduct product) const;
  bool merges() const;
  void Gradients(std::string_view name, std::int64_t in, std::int64_t out, std::int64_t rank);

  const Shape& s_;
  ExpertRows rows_;
  BlockWriter* w_;
  std::array<graph::Buffer, 2> kept_;  // merged weights, or the rows between A and B
};

}  // namespace orrery::workload
