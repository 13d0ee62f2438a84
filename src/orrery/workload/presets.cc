#include <array>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/workload/conv_net.h"
#include "orrery/workload/model.h"
#include "orrery/workload/presets_dense.h"
#include "orrery/workload/presets_experts.h"
#include "orrery/workload/presets_hybrid.h"

namespace orrery::workload {

namespace {

constexpr std::string_view kGpt3Source =
    "Moye, Table 9 (heads, layers, hidden); ffn 4h, GPT-2 vocabulary, no dropout";
constexpr std::string_view kGpt2Source = "Radford et al. 2019; openai-community/gpt2 config.json";
constexpr std::string_view kLlama2Source = "Touvron et al. 2023, meta-llama/Llama-2 config.json";
constexpr std::string_view kLlama3Source = "Grattafiori et al. 2024, Table 3; config.json";

enum class Family : std::uint8_t { kGpt2, kGpt3, kLlama2, kLlama3, kLlama31 };

struct Row {
  ModelPreset preset;
  Family family;
  std::int32_t layers, hidden, heads, kv_heads, ffn;
};

constexpr std::array<Row, 18> kRows = {{
    {{"gpt2", "GPT-2 124M"}, Family::kGpt2, 12, 768, 12, 12, 3072},
    {{"gpt2-medium", "GPT-2 355M"}, Family::kGpt2, 24, 1024, 16, 16, 4096},
    {{"gpt2-large", "GPT-2 774M"}, Family::kGpt2, 36, 1280, 20, 20, 5120},
    {{"gpt2-xl", "GPT-2 1.5B"}, Family::kGpt2, 48, 1600, 25, 25, 6400},
    {{"gpt3-13b", "GPT-3 v1 of Moye's Table 9"}, Family::kGpt3, 40, 5120, 32, 32, 20480},
    {{"gpt3-30b", "GPT-3 v2 of Moye's Table 9"}, Family::kGpt3, 40, 7680, 48, 48, 30720},
    {{"gpt3-40b", "GPT-3 v3 of Moye's Table 9"}, Family::kGpt3, 40, 9216, 72, 72, 36864},
    {{"gpt3-70b", "GPT-3 v4 of Moye's Table 9"}, Family::kGpt3, 80, 8192, 64, 64, 32768},
    {{"gpt3-175b", "GPT-3 175B (Brown et al. 2020)"}, Family::kGpt3, 96, 12288, 96, 96, 49152},
    {{"gpt3-485b", "GPT-3 v5 of Moye's Table 9"}, Family::kGpt3, 96, 20480, 160, 160, 81920},
    {{"llama2-7b", "Llama 2 7B"}, Family::kLlama2, 32, 4096, 32, 32, 11008},
    {{"llama2-13b", "Llama 2 13B"}, Family::kLlama2, 40, 5120, 40, 40, 13824},
    {{"llama2-70b", "Llama 2 70B, grouped queries"}, Family::kLlama2, 80, 8192, 64, 8, 28672},
    {{"llama3-8b", "Llama 3 8B"}, Family::kLlama3, 32, 4096, 32, 8, 14336},
    {{"llama3-70b", "Llama 3 70B"}, Family::kLlama3, 80, 8192, 64, 8, 28672},
    {{"llama3.1-8b", "Llama 3.1 8B"}, Family::kLlama31, 32, 4096, 32, 8, 14336},
    {{"llama3.1-70b", "Llama 3.1 70B"}, Family::kLlama31, 80, 8192, 64, 8, 28672},
    {{"llama3.1-405b", "Llama 3.1 405B"}, Family::kLlama31, 126, 16384, 128, 8, 53248},
}};

Model Build(const Row& row) {
  Model m;
  m.name = row.preset.name;
  m.layers = row.layers;
  m.hidden = row.hidden;
  m.heads = row.heads;
  m.kv_heads = row.kv_heads;
  m.head_dim = row.hidden / row.heads;
  m.ffn_hidden = row.ffn;
  if (row.family == Family::kGpt2 || row.family == Family::kGpt3) {
    const bool gpt2 = row.family == Family::kGpt2;
    m.vocab = 50257;
    m.max_position = gpt2 ? 1024 : 2048;
    m.dropout = gpt2 ? 0.1 : 0;
    m.source = gpt2 ? kGpt2Source : kGpt3Source;
    return m;
  }
  const bool llama2 = row.family == Family::kLlama2;
  m.vocab = llama2 ? 32000 : 128256;
  m.max_position = llama2 ? 4096 : row.family == Family::kLlama3 ? 8192 : 131072;
  m.norm = Norm::kRmsNorm;
  m.activation = Activation::kSwiglu;
  m.position = Position::kRotary;
  m.tied_embeddings = false;
  m.attention_bias = false;
  m.mlp_bias = false;
  m.source = llama2 ? kLlama2Source : kLlama3Source;
  return m;
}

}  // namespace

std::span<const ModelPreset> ModelPresets() {
  static const std::vector<ModelPreset> presets = [] {
    std::vector<ModelPreset> out;
    for (const Row& row : kRows) out.push_back(row.preset);
    for (const auto& more : {DensePresets(), ExpertPresets(), HybridPresets()}) {
      out.insert(out.end(), more.begin(), more.end());
    }
    for (const ConvNet& net : ConvNets()) out.push_back({net.name, net.description});
    return out;
  }();
  return presets;
}

Result<Model> FindModel(std::string_view name) {
  std::vector<std::string_view> valid;
  for (const Row& row : kRows) {
    if (row.preset.name == name) return Build(row);
    valid.push_back(row.preset.name);
  }
  for (const auto& [presets, build] : {std::pair{DensePresets(), &BuildDensePreset},
                                       std::pair{ExpertPresets(), &BuildExpertPreset},
                                       std::pair{HybridPresets(), &BuildHybridPreset}}) {
    for (const ModelPreset& preset : presets) {
      if (preset.name == name) return build(name);
      valid.push_back(preset.name);
    }
  }
  for (const ConvNet& net : ConvNets()) {
    if (net.name == name) {
      Model m;
      m.name = net.name;
      m.source = net.source;
      m.layers = static_cast<std::int64_t>(net.order.size());
      m.hidden = m.heads = m.kv_heads = m.head_dim = m.ffn_hidden = m.vocab = m.max_position = 1;
      m.position = Position::kNone;
      m.tied_embeddings = false;
      m.net = &net;
      return m;
    }
    valid.push_back(net.name);
  }
  return InvalidInput("{}", UnknownName("model", name, valid));
}

}  // namespace orrery::workload
