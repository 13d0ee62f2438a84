#include "orrery/search/validate/cloud_recipes.h"

#include <algorithm>
#include <array>

#include "orrery/base/units.h"
#include "orrery/search/validate/frameworks.h"

namespace orrery::search {
namespace {

using workload::CudaGraphs;
using workload::RecomputeKeeps;

constexpr std::string_view kMlperf = "NeMo/Megatron-Core (";
constexpr std::array kRecipes = {
    CloudRecipe{2511, 2511, kMlperf, "Llama3-8B", "B|GB|H200", "", true, "",
                CudaGraphs::kIteration},
    CloudRecipe{2411, 2501, "NeMo (", "GPT3-175B", "H100", "", false},
    CloudRecipe{2411, 2502, "NeMo (", "Nemotron4-340B", "H100", "", false, "core_attn"},
    CloudRecipe{.from = 2411,
                .to = 2504,
                .framework = "NeMo (",
                .model = "Grok",
                .gpus = "H100",
                .fused_attention = false,
                .drops = true},
    CloudRecipe{2505, 2505, "NeMo (", "Grok", "GB200|B200", "", true, "", CudaGraphs::kLayers},
    CloudRecipe{2505, 2505, "NeMo (", "Grok", "H100", "", true, "", CudaGraphs::kNone, 1},
    CloudRecipe{2505, 2505, "NeMo (", "Nemotron4", "GB200", "", true, "", CudaGraphs::kLayers},
    CloudRecipe{2505, 2505, "NeMo (", "Llama4", "H100", "fp8", true, "", CudaGraphs::kLayers},
    CloudRecipe{2505, 2505, "NeMo (", "DeepSeek-V3", "GB200", "", true, "core_attn",
                CudaGraphs::kNone, 1},
    CloudRecipe{2505, 2505, "NeMo (", "DeepSeek-V3", "H100", "", true, "mla_up_proj",
                CudaGraphs::kNone, 1},
    CloudRecipe{
        .to = 9999, .framework = "Megatron-Core (dev)", .etp = 1, .overlaps_and_fuses = true},
    CloudRecipe{.from = 2411,
                .to = 2411,
                .framework = "MaxText",
                .gpus = "H100",
                .keeps = RecomputeKeeps::kQkvOut,
                .shard_hosts = 16,
                .shard_from = 64},
    CloudRecipe{.from = 2501,
                .to = 2502,
                .framework = "MaxText",
                .gpus = "H100",
                .keeps = RecomputeKeeps::kQkv,
                .shard_hosts = 16,
                .shard_from = 64},
};

// DGX Cloud's releases are called vYY.MM, with a patch behind; rounds of MLPerf have a date. 0: the
// row is of neither.
int Release(const Configuration& row) {
  const bool mlperf = row.text("framework").starts_with(kMlperf);
  std::string_view text = row.text(mlperf ? "measured_date" : "framework_version");
  const std::string_view prefix = mlperf ? "20" : "v";
  if (!text.starts_with(prefix) || text.size() < prefix.size() + 5) return 0;
  text.remove_prefix(prefix.size());
  const auto year = ParseInteger(text.substr(0, 2)), month = ParseInteger(text.substr(3, 2));
  return year.ok() && month.ok() ? static_cast<int>(*year * 100 + *month) : 0;
}

}  // namespace

const CloudRecipe* FindCloudRecipe(const Configuration& row) {
  const int release = Release(row);
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), [&](const CloudRecipe& r) {
    return r.from <= release && release <= r.to && row.text("framework").starts_with(r.framework) &&
           row.text("model").starts_with(r.model) && BeginsWithOneOf(row.text("gpu"), r.gpus) &&
           row.text("compute_dtype").starts_with(r.precision);
  });
  return found == kRecipes.end() ? nullptr : &*found;
}

}  // namespace orrery::search
