#include "orrery/search/validate/bridge_recipes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "orrery/base/units.h"
#include "orrery/search/validate/frameworks.h"

namespace orrery::search {
namespace {

using workload::CudaGraphs;

constexpr std::uint8_t kRouter = workload::kGraphRouter | workload::kGraphPreprocess;
constexpr std::uint8_t kHybrid = workload::kGraphAttention | workload::kGraphMamba;
constexpr std::array kRecipes = {
    BridgeRecipe{2509, 2510, "DeepSeek-V3", "H100", "", "mla_up_proj+mlp"},
    BridgeRecipe{2509, 2510, "DeepSeek-V3", "B200|GB200", "", "mla_up_proj"},
    BridgeRecipe{2509, 2510, "Qwen3-30B", "B200|GB200", "", "", CudaGraphs::kLayers},
    BridgeRecipe{2509, 2510, "Qwen3-235B", "GB200", "", "", CudaGraphs::kLayers},
    BridgeRecipe{2511, 2601, "DeepSeek-V3", "GB300", "", "moe_act", CudaGraphs::kLayers},
    BridgeRecipe{2511, 2601, "DeepSeek-V3", "GB200", "", "mla_up_proj", CudaGraphs::kLayers, false,
                 kRouter},
    BridgeRecipe{2511, 2601, "DeepSeek-V3", "B200", "", "mla_up_proj"},
    BridgeRecipe{2511, 2601, "DeepSeek-V3", "H100", "", "mla_up_proj+mlp", CudaGraphs::kNone, true},
    BridgeRecipe{2511, 2601, "Qwen3-30B", "GB200", "bf16|fp8", "", CudaGraphs::kLayers},
    BridgeRecipe{2511, 2601, "Qwen3-30B", "GB|B200", "", "", CudaGraphs::kLayers, false, kRouter},
    BridgeRecipe{2511, 2601, "Qwen3-30B", "H100", "bf16", "", CudaGraphs::kLayers, false, kRouter},
    BridgeRecipe{2511, 2601, "Qwen3-235B", "GB300", "", "", CudaGraphs::kLayers, false, kRouter},
    BridgeRecipe{2511, 2601, "Qwen3-235B", "GB200", "", "", CudaGraphs::kLayers},
    BridgeRecipe{2511, 2601, "Qwen3-235B", "B200|H100", "", "", CudaGraphs::kNone, true},
    BridgeRecipe{2511, 2601, "GPT-OSS", "GB300", "", "", CudaGraphs::kLayers},
    BridgeRecipe{2511, 2601, "GPT-OSS", "GB200|B200|H100", "", "layernorm+moe_act"},
    // On attention models; hybrids keep graphs of parts.
    BridgeRecipe{2606, 9999, "DeepSeek-V3", "GB300", "mxfp8", "", CudaGraphs::kIteration, true,
                 workload::kGraphAll, true, true, true},
    BridgeRecipe{2606, 9999, "DeepSeek-V3", "GB200", "mxfp8", "", CudaGraphs::kIteration, true,
                 workload::kGraphAll, true, false, true},
    BridgeRecipe{2606, 9999, "Qwen3", "GB", "mxfp8", "", CudaGraphs::kIteration, true,
                 workload::kGraphAll, true, true, false},
    BridgeRecipe{2606, 9999, "GPT-OSS", "GB", "mxfp8", "", CudaGraphs::kIteration, true,
                 workload::kGraphAll, true, true, true},
    BridgeRecipe{2606, 9999, "Kimi", "GB", "mxfp8", "", CudaGraphs::kIteration, true},
    BridgeRecipe{2608, 9999, "Nemotron-3-Super", "GB", "", "", CudaGraphs::kLayers, false,
                 kRouter | kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-3-Super", "B300", "mxfp8", "", CudaGraphs::kLayers, false,
                 kRouter | kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-3-Super", "B300", "", "layernorm+moe_act",
                 CudaGraphs::kLayers, false, kRouter | kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-3-Super", "B200", "nvfp4", "", CudaGraphs::kLayers, false,
                 kRouter | kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-3-Super", "B200", "mxfp8", "layernorm+moe_act"},
    BridgeRecipe{2608, 9999, "Nemotron-3-Super", "B200", "", "layernorm+core_attn+moe+moe_act"},
    BridgeRecipe{2608, 9999, "Nemotron-3-Nano", "B|GB", "", "", CudaGraphs::kLayers, false,
                 kRouter | kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-3-Nano", "H100", "bf16", "layernorm+moe",
                 CudaGraphs::kLayers, false, kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-3-Nano", "H100", "fp8", "layernorm+core_attn+moe+moe_act",
                 CudaGraphs::kLayers, false, workload::kGraphMamba},
    BridgeRecipe{2608, 9999, "Nemotron-H", "B|GB", "fp8", "", CudaGraphs::kLayers, false, kHybrid},
    BridgeRecipe{2608, 9999, "Nemotron-H", "H100", "fp8", "", CudaGraphs::kLayers, false,
                 workload::kGraphMamba},
};

}  // namespace

int BridgeRelease(const Configuration& row) {
  constexpr std::string_view kKey = "container ";
  const std::string_view version = row.text("framework_version");
  const std::size_t at = version.find(kKey);
  if (at == std::string_view::npos || row.text("framework").find("Bridge") == version.npos)
    return 0;
  const std::string_view number = version.substr(at + kKey.size());
  if (number.size() < 5 || number[2] != '.') return 0;
  const auto year = ParseInteger(number.substr(0, 2)), month = ParseInteger(number.substr(3, 2));
  return year.ok() && month.ok() ? static_cast<int>(*year * 100 + *month) : 0;
}

const BridgeRecipe* FindBridgeRecipe(const Configuration& row) {
  const int release = BridgeRelease(row);
  const auto found = std::find_if(kRecipes.begin(), kRecipes.end(), [&](const BridgeRecipe& r) {
    return r.from <= release && release <= r.to && row.text("model").starts_with(r.model) &&
           BeginsWithOneOf(row.text("gpu"), r.gpus) &&
           BeginsWithOneOf(row.text("compute_dtype"), r.precision);
  });
  return found == kRecipes.end() ? nullptr : &*found;
}

const BridgeBf16* FindBridgeBf16(const Configuration& row) {
  // configs/nemotronh/te_quant.cfg (v0.4.0 and later), which also has mxfp8 for Mamba's projection
  // out; gpt_oss_llm_pretrain.py.
  static constexpr std::array kKept = {
      BridgeBf16{"Nemotron-3-Super", "nvfp4", 14,
                 workload::kBf16Attention | workload::kBf16ExpertLatent | workload::kBf16Mtp},
      BridgeBf16{"Nemotron-3-Super", "mxfp8", 0, workload::kBf16Mtp},  // keep_mtp_spec_in_bf16
      BridgeBf16{"Nemotron-3-Super", "fp8", 0, workload::kBf16Mtp},
      BridgeBf16{"GPT-OSS-20B", "nvfp4", 4, 0},
  };
  if (BridgeRelease(row) == 0) return nullptr;
  const auto found = std::find_if(kKept.begin(), kKept.end(), [&](const BridgeBf16& kept) {
    return row.text("model").starts_with(kept.model) &&
           row.text("compute_dtype").starts_with(kept.precision);
  });
  return found == kKept.end() ? nullptr : &*found;
}

std::uint8_t GraphScope(const Configuration& row) {
  std::string_view extra = row.text("config_extra");
  const std::size_t key = extra.find("cuda_graph=");
  if (key == std::string_view::npos) return workload::kGraphAll;
  extra.remove_prefix(key);
  extra.remove_prefix(std::min(extra.find(':') + 1, extra.size()));
  std::uint8_t scope = 0;
  while (!extra.empty()) {
    const std::size_t end = std::min(extra.find('+'), extra.size());
    const auto part = workload::ParseGraphScope(extra.substr(0, end));
    if (!part.ok()) break;
    scope |= *part;
    extra.remove_prefix(std::min(end + 1, extra.size()));
  }
  return scope == 0 ? std::uint8_t{workload::kGraphAll} : scope;
}

std::string RecomputeModules(const Configuration& row) {
  constexpr std::string_view kKey = "recompute=";
  const std::string_view extra = row.text("config_extra");
  const std::size_t key = extra.find(kKey);
  std::string modules;
  if (key == std::string_view::npos) return modules;
  for (std::size_t at = key + kKey.size(), end = 0; at < extra.size(); at = end + 1) {
    end = std::min(extra.find('+', at), extra.size());
    std::string_view name = extra.substr(at, end - at);
    if (name == "norm") name = "layernorm";
    if (name == "act") name = "moe_act";
    if (!workload::ParseRecomputeModules(name).ok()) break;
    modules += modules.empty() ? "" : "+";
    modules += name;
  }
  return modules;
}

}  // namespace orrery::search
