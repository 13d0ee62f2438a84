// What a row of a Megatron Bridge performance page leaves blank: the value of that release's own
// recipes, by model and GPU.
//
// Source: github.com/NVIDIA-NeMo/Megatron-Bridge, scripts/performance (run_script.py and the YAML
// files of v0.1.0rc4 for container 25.09, workload_base_configs.py of v0.2.0 for 25.11), later
// src/megatron/bridge/perf_recipes (v0.5.0 and v0.6.0 for 26.06 and 26.08). All of them reduce
// gradients in 16 bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/search/validate/configuration.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

// The release of the container as year and month, 2606; 0: the row is none of Megatron Bridge's or
// does not say.
int BridgeRelease(const Configuration& row);

struct BridgeRecipe {
  int from = 0, to = 0;        // releases
  std::string_view model;      // begins the row's
  std::string_view gpus;       // "a|b": one of them begins the row's
  std::string_view precision;  // "a|b": one of them begins the row's compute type; empty: any
  std::string_view recompute;  // modules of selective recompute; empty: none
  workload::CudaGraphs graphs = workload::CudaGraphs::kNone;
  bool overlap = false;  // exchanges of experts beside another micro-batch
  std::uint8_t scope = workload::kGraphAll;
  bool fused_mlp = false;  // experts' activation and casts in their GEMMs
  bool fp8_attention = false, fp8_output_layer = false;
};
// The row's recipe; null where none is known.
const BridgeRecipe* FindBridgeRecipe(const Configuration& row);
// What a release's recipes of a model keep in bf16 beside its low precision.
struct BridgeBf16 {
  std::string_view model, precision;  // begin the row's
  std::int64_t last_layers = 0;
  std::uint8_t modules = 0;  // bits of workload::Bf16Module
};
// Null where nothing stays so.
const BridgeBf16* FindBridgeBf16(const Configuration& row);
// What graphs of layers capture, as config_extra has it: "cuda_graph=HOW:attn+moe_router+…"; all
// parts where it names none.
std::uint8_t GraphScope(const Configuration& row);
// What config_extra says in "…recompute=a+b", of names that stand for modules: "a+b".
std::string RecomputeModules(const Configuration& row);

}  // namespace orrery::search
