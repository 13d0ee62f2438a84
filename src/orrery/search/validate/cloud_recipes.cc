#include "orrery/search/validate/cloud_recipes.h"

#include <algorithm>
#include <array>

#include "orrery/base/units.h"
#include "orrery/search/validate/bridge_recipes.h"
#include "orrery/search/validate/frameworks.h"

namespace orrery::search {
namespace {

using workload::CudaGraphs;
using workload::RecomputeKeeps;

constexpr std::string_view kNemo = "NeMo (", kMlperf = "NeMo/Megatron-Core (";

// What NeMo's scripts of DGX Cloud set of a model on a GPU; the rest is filled in below.
constexpr CloudRecipe Nemo(int from, int to, std::string_view model, std::string_view gpus) {
  return {.from = from, .to = to, .framework = kNemo, .model = model, .gpus = gpus};
}
constexpr CloudRecipe WithoutFusedAttention(CloudRecipe r, std::string_view recompute, bool drops) {
  r.fused_attention = false;
  r.recompute = recompute;
  r.drops = drops;
  return r;
}
constexpr CloudRecipe WithGraphs(CloudRecipe r, std::string_view precision) {
  r.graphs = CudaGraphs::kLayers;
  r.precision = precision;
  return r;
}
constexpr CloudRecipe WithDropout(CloudRecipe r) {
  r.gpt_dropout = 0.1;
  return r;
}
constexpr CloudRecipe WithOperators(CloudRecipe r) {
  r.squared_relu_operators = true;
  return r;
}
constexpr CloudRecipe WithWholeExperts(CloudRecipe r, std::string_view recompute) {
  r.etp = 1;
  r.recompute = recompute;
  return r;
}
constexpr CloudRecipe MaxText(int from, int to, RecomputeKeeps keeps) {
  return {.from = from,
          .to = to,
          .framework = "MaxText",
          .gpus = "H100",
          .keeps = keeps,
          .shard_hosts = 16,
          .shard_from = 64};
}

constexpr std::array kRecipes = {
    WithDropout(WithoutFusedAttention(Nemo(2411, 2501, "GPT3-175B", "H100"), "", false)),
    WithDropout(Nemo(2502, 2502, "GPT3-175B", "H100")),
    WithoutFusedAttention(Nemo(2411, 2502, "Nemotron4-340B", "H100"), "core_attn", false),
    WithoutFusedAttention(Nemo(2411, 2504, "Grok", "H100"), "", true),
    WithGraphs(Nemo(2505, 2505, "Grok", "GB200|B200"), ""),
    WithWholeExperts(Nemo(2505, 2505, "Grok", "H100"), ""),
    WithGraphs(Nemo(2505, 2505, "Nemotron4", "GB200"), ""),
    WithoutFusedAttention(Nemo(2505, 2505, "Nemotron-H", "H100"), "", false),
    WithOperators(Nemo(2504, 2504, "Nemotron4", "H100")),
    WithGraphs(Nemo(2505, 2505, "Llama4", "H100"), "fp8"),
    WithWholeExperts(Nemo(2505, 2505, "DeepSeek-V3", "GB200"), "core_attn"),
    WithWholeExperts(Nemo(2505, 2505, "DeepSeek-V3", "H100"), "mla_up_proj"),
    MaxText(2411, 2411, RecomputeKeeps::kQkvOut),
    MaxText(2501, 2502, RecomputeKeeps::kQkv),
    CloudRecipe{.from = 2511,
                .to = 2511,
                .framework = kMlperf,
                .model = "Llama3-8B",
                .gpus = "B|GB|H200",
                .graphs = CudaGraphs::kIteration,
                .current = true},
    CloudRecipe{.from = 2511,
                .to = 2511,
                .framework = kMlperf,
                .model = "Llama3.1-405B",
                .gpus = "B|GB",
                .dp_last = true,
                .current = true},
    CloudRecipe{
        .to = 9999, .framework = "Megatron-Core (dev)", .etp = 1, .overlaps_and_fuses = true},
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

struct Deferral {
  int from, to;
  std::string_view framework, model;
  std::int64_t microbatches;
};
constexpr std::array kDeferrals = {
    Deferral{2411, 2505, kNemo, "Llama3-70B", 22},
    Deferral{2411, 2505, kNemo, "Llama3.1-405B", 50},
    Deferral{2411, 2505, kNemo, "Nemotron4-340B", 22},
    Deferral{2406, 2511, kMlperf, "Llama3.1-405B", 50},
    Deferral{2509, 2510, "Megatron-Bridge", "Llama3-70B", 22},
};

}  // namespace

std::int64_t DeferredHead(const Configuration& row) {
  const int bridge = BridgeRelease(row);
  const int release = bridge > 0 ? bridge : Release(row);
  const auto found = std::find_if(kDeferrals.begin(), kDeferrals.end(), [&](const Deferral& d) {
    return d.from <= release && release <= d.to && row.text("framework").starts_with(d.framework) &&
           row.text("model").starts_with(d.model);
  });
  return found == kDeferrals.end() ? 0 : found->microbatches;
}

const CloudRecipe& FindCloudRecipe(const Configuration& row) {
  const int release = Release(row);
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), [&](const CloudRecipe& r) {
    return r.from <= release && release <= r.to && row.text("framework").starts_with(r.framework) &&
           row.text("model").starts_with(r.model) && BeginsWithOneOf(row.text("gpu"), r.gpus) &&
           row.text("compute_dtype").starts_with(r.precision);
  });
  static constexpr CloudRecipe kNothing;
  return found == kRecipes.end() ? kNothing : *found;
}

}  // namespace orrery::search
