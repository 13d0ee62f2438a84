#include "orrery/workload/presets_hybrid.h"

#include <array>

#include "orrery/base/check.h"

namespace orrery::workload {
namespace {

struct Row {
  ModelPreset preset;
  std::int64_t hidden, heads, kv_heads, ffn;
  Experts experts;
  Mamba mamba;
  std::string_view pattern;
  std::string_view source;
};

constexpr std::array kRows = {
    Row{{"nemotron-h-8b", "Nemotron-H 8B: Mamba-2, attention and feed-forward layers"},
        4096,
        32,
        8,
        21504,
        {},
        {.heads = 128, .head_dim = 64, .state = 128, .groups = 8},
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "NVIDIA 2025, Nemotron-H; nvidia/Nemotron-H-8B-Base-8K config.json"},
    Row{{"nemotron-h-47b", "Nemotron-H 47B"},
        8192,
        64,
        8,
        30720,
        {},
        {.heads = 256, .head_dim = 64, .state = 256, .groups = 8},
        "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
        "M-M---MM---M-M*-M-M-M-M-M-",
        "NVIDIA 2025, Nemotron-H; nvidia/Nemotron-H-47B-Base-8K config.json"},
    Row{{"nemotron-h-56b", "Nemotron-H 56B"},
        8192,
        64,
        8,
        32768,
        {},
        {.heads = 256, .head_dim = 64, .state = 256, .groups = 8},
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-"
        "M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "NVIDIA 2025, Nemotron-H; nvidia/Nemotron-H-56B-Base-8K config.json"},
    Row{{"nemotron-3-nano", "Nemotron 3 Nano 30B, 3B active: Mamba-2, attention and experts"},
        2688,
        32,
        2,
        1856,
        {.count = 128, .top_k = 6, .ffn_hidden = 1856, .shared_ffn_hidden = 3712},
        {.heads = 64, .head_dim = 64, .state = 128, .groups = 8},
        "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "NVIDIA 2025; nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 config.json"},
    Row{{"nemotron-3-super",
         "Nemotron 3 Super 120B, 12B active, without the prediction of further tokens"},
        4096,
        32,
        2,
        5376,
        {.count = 512, .top_k = 22, .ffn_hidden = 2688, .shared_ffn_hidden = 5376, .latent = 1024},
        {.heads = 128, .head_dim = 64, .state = 128, .groups = 8},
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EM"
        "EMEMEM*EMEMEMEME",
        "NVIDIA 2026; nvidia/NVIDIA-Nemotron-3-Super-120B-A12B config.json"},
};

constexpr auto kPresets = [] {
  std::array<ModelPreset, kRows.size()> out{};
  for (std::size_t i = 0; i < kRows.size(); ++i) out[i] = kRows[i].preset;
  return out;
}();

}  // namespace

std::span<const ModelPreset> HybridPresets() { return kPresets; }

Model BuildHybridPreset(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.preset.name != name) continue;
    Model m;
    m.name = name;
    m.layers = static_cast<std::int64_t>(row.pattern.size());
    m.hidden = row.hidden;
    m.heads = row.heads;
    m.kv_heads = row.kv_heads;
    m.head_dim = 128;
    m.ffn_hidden = row.ffn;
    m.vocab = 131072;
    m.max_position = name.starts_with("nemotron-h") ? 8192 : 262144;
    m.norm = Norm::kRmsNorm;
    m.activation = Activation::kSquaredRelu;
    m.position = Position::kNone;
    m.tied_embeddings = m.attention_bias = m.mlp_bias = false;
    m.experts = row.experts;
    m.mamba = row.mamba;
    m.pattern = row.pattern;
    m.source = row.source;
    return m;
  }
  ORRERY_CHECK(false, "the list of presets names them all");
  return {};
}

}  // namespace orrery::workload
