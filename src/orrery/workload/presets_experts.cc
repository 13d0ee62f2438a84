#include "orrery/workload/presets_experts.h"

#include <array>

#include "orrery/base/check.h"

namespace orrery::workload {
namespace {

// Shapes, in the order: layers, hidden, heads, kv_heads, head_dim, ffn_hidden, vocab, max_position.
struct Shapes {
  std::int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, positions;
};
constexpr Latent kNone{};
constexpr Latent kDeepSeek = {
    .q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};
constexpr Latent kDeepSeekLite = {.kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};

struct Row {
  ModelPreset preset;
  Shapes shapes;
  Experts experts;
  Latent latent;
  bool qk_norm;
  std::string_view source;
};

constexpr std::array kRows = {
    Row{{"mixtral-8x7b", "Mixtral 8x7B"},
        {32, 4096, 32, 8, 128, 14336, 32000, 32768},
        {.count = 8, .top_k = 2, .ffn_hidden = 14336},
        kNone,
        false,
        "Jiang et al. 2024; mistralai/Mixtral-8x7B-v0.1 config.json"},
    Row{{"mixtral-8x22b", "Mixtral 8x22B"},
        {56, 6144, 48, 8, 128, 16384, 32000, 65536},
        {.count = 8, .top_k = 2, .ffn_hidden = 16384},
        kNone,
        false,
        "mistralai/Mixtral-8x22B-v0.1 config.json"},
    Row{{"mixtral-8x1.75b", "Mixtral of 8 layers (Moye, Table 10)"},
        {8, 4096, 32, 8, 128, 14336, 32000, 32768},
        {.count = 8, .top_k = 2, .ffn_hidden = 14336},
        kNone,
        false,
        "Moye, Table 10; else as Mixtral 8x7B"},
    Row{{"mixtral-16x7b", "Mixtral of 16 experts (Moye, Table 10)"},
        {32, 4096, 32, 8, 128, 14336, 32000, 32768},
        {.count = 16, .top_k = 2, .ffn_hidden = 14336},
        kNone,
        false,
        "Moye, Table 10; else as Mixtral 8x7B"},
    Row{{"mixtral-32x7b", "Mixtral of 32 experts (Moye, Table 10)"},
        {32, 4096, 32, 8, 128, 14336, 32000, 32768},
        {.count = 32, .top_k = 2, .ffn_hidden = 14336},
        kNone,
        false,
        "Moye, Table 10; else as Mixtral 8x7B"},
    Row{{"qwen2-57b-a14b", "Qwen2 57B, 14B active"},
        {28, 3584, 28, 4, 128, 18944, 151936, 131072},
        {.count = 64, .top_k = 8, .ffn_hidden = 2560, .shared_ffn_hidden = 20480},
        kNone,
        false,
        "Yang et al. 2024; Qwen/Qwen2-57B-A14B config.json (a gate of the shared expert there)"},
    Row{{"qwen3-8b", "Qwen3 8B, dense"},
        {36, 4096, 32, 8, 128, 12288, 151936, 40960},
        {},
        kNone,
        true,
        "Yang et al. 2025; Qwen/Qwen3-8B config.json"},
    Row{{"qwen3-14b", "Qwen3 14B, dense"},
        {40, 5120, 40, 8, 128, 17408, 151936, 40960},
        {},
        kNone,
        true,
        "Yang et al. 2025; Qwen/Qwen3-14B config.json"},
    Row{{"qwen3-32b", "Qwen3 32B, dense"},
        {64, 5120, 64, 8, 128, 25600, 151936, 40960},
        {},
        kNone,
        true,
        "Yang et al. 2025; Qwen/Qwen3-32B config.json"},
    Row{{"qwen3-30b-a3b", "Qwen3 30B, 3B active"},
        {48, 2048, 32, 4, 128, 6144, 151936, 40960},
        {.count = 128, .top_k = 8, .ffn_hidden = 768},
        kNone,
        true,
        "Yang et al. 2025; Qwen/Qwen3-30B-A3B config.json"},
    Row{{"qwen3-235b-a22b", "Qwen3 235B, 22B active"},
        {94, 4096, 64, 4, 128, 12288, 151936, 40960},
        {.count = 128, .top_k = 8, .ffn_hidden = 1536},
        kNone,
        true,
        "Yang et al. 2025; Qwen/Qwen3-235B-A22B config.json"},
    Row{{"deepseek-v2-lite", "DeepSeek-V2-Lite 16B"},
        {27, 2048, 16, 16, 192, 10944, 102400, 163840},
        {.count = 64, .top_k = 6, .ffn_hidden = 1408, .shared_ffn_hidden = 2816, .first_dense = 1},
        kDeepSeekLite,
        false,
        "DeepSeek-AI 2024; deepseek-ai/DeepSeek-V2-Lite config.json"},
    Row{{"deepseek-v2", "DeepSeek-V2 236B, 21B active"},
        {60, 5120, 128, 128, 192, 12288, 102400, 163840},
        {.count = 160, .top_k = 6, .ffn_hidden = 1536, .shared_ffn_hidden = 3072, .first_dense = 1},
        kDeepSeek,
        false,
        "DeepSeek-AI 2024; deepseek-ai/DeepSeek-V2 config.json"},
    Row{{"deepseek-v3", "DeepSeek-V3 671B, 37B active, without the prediction of further tokens"},
        {61, 7168, 128, 128, 192, 18432, 129280, 163840},
        {.count = 256, .top_k = 8, .ffn_hidden = 2048, .shared_ffn_hidden = 2048, .first_dense = 3},
        kDeepSeek,
        false,
        "DeepSeek-AI 2024; deepseek-ai/DeepSeek-V3 config.json"},
    Row{{"kimi-k2", "Kimi K2 1T, 32B active"},
        {61, 7168, 64, 64, 192, 18432, 163840, 131072},
        {.count = 384, .top_k = 8, .ffn_hidden = 2048, .shared_ffn_hidden = 2048, .first_dense = 1},
        kDeepSeek,
        false,
        "Moonshot 2025; moonshotai/Kimi-K2-Base config.json"},
    Row{{"moonlight-16b-a3b", "Moonlight 16B, 3B active"},
        {27, 2048, 16, 16, 192, 11264, 163840, 8192},
        {.count = 64, .top_k = 6, .ffn_hidden = 1408, .shared_ffn_hidden = 2816, .first_dense = 1},
        kDeepSeekLite,
        false,
        "Moonshot 2025; moonshotai/Moonlight-16B-A3B config.json"},
    Row{{"glm-4.5-air", "GLM-4.5-Air 106B, 12B active"},
        {46, 4096, 96, 8, 128, 10944, 151552, 131072},
        {.count = 128, .top_k = 8, .ffn_hidden = 1408, .shared_ffn_hidden = 1408, .first_dense = 1},
        kNone,
        false,
        "Zhipu 2025; zai-org/GLM-4.5-Air config.json (rotary on half a head there)"},
    Row{{"glm-4.5", "GLM-4.5 355B, 32B active, without the prediction of further tokens"},
        {92, 5120, 96, 8, 128, 12288, 151552, 131072},
        {.count = 160, .top_k = 8, .ffn_hidden = 1536, .shared_ffn_hidden = 1536, .first_dense = 3},
        kNone,
        true,
        "Zhipu 2025; zai-org/GLM-4.5 config.json (rotary on half a head there)"},
    Row{{"gpt-oss-20b", "GPT-OSS 20B: sinks, every other layer a window of 128"},
        {24, 2880, 64, 8, 64, 2880, 201088, 131072},
        {.count = 32, .top_k = 4, .ffn_hidden = 2880, .router_bias = true},
        kNone,
        false,
        "OpenAI 2025; openai/gpt-oss-20b config.json"},
    Row{{"gpt-oss-120b", "GPT-OSS 120B: sinks, every other layer a window of 128"},
        {36, 2880, 64, 8, 64, 2880, 201088, 131072},
        {.count = 128, .top_k = 4, .ffn_hidden = 2880, .router_bias = true},
        kNone,
        false,
        "OpenAI 2025; openai/gpt-oss-120b config.json"},
    Row{{"grok-1", "Grok-1 314B"},
        {64, 6144, 48, 8, 128, 32768, 131072, 8192},
        {.count = 8, .top_k = 2, .ffn_hidden = 32768},
        kNone,
        false,
        "xai-org/grok-1 run.py (four norms a layer there, two here); gated GeLU priced as SwiGLU"},
    Row{{"llama4-scout", "Llama 4 Scout, text only: 109B, 17B active"},
        {48, 5120, 40, 8, 128, 16384, 202048, 131072},
        {.count = 16, .top_k = 1, .ffn_hidden = 8192, .shared_ffn_hidden = 8192},
        kNone,
        false,
        "meta-llama/Llama-4-Scout-17B-16E config.json; full attention in all layers"},
    Row{{"llama4-maverick", "Llama 4 Maverick, text only: 400B, 17B active"},
        {48, 5120, 40, 8, 128, 16384, 202048, 131072},
        {.count = 128, .top_k = 1, .ffn_hidden = 8192, .shared_ffn_hidden = 8192, .every = 2},
        kNone,
        false,
        "meta-llama/Llama-4-Maverick-17B-128E config.json; full attention in all layers"},
};

constexpr auto kPresets = [] {
  std::array<ModelPreset, kRows.size()> out{};
  for (std::size_t i = 0; i < kRows.size(); ++i) out[i] = kRows[i].preset;
  return out;
}();

}  // namespace

std::span<const ModelPreset> ExpertPresets() { return kPresets; }

Model BuildExpertPreset(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.preset.name != name) continue;
    Model m;
    m.name = name;
    m.layers = row.shapes.layers;
    m.hidden = row.shapes.hidden;
    m.heads = row.shapes.heads;
    m.kv_heads = row.shapes.kv_heads;
    m.head_dim = row.shapes.head_dim;
    m.ffn_hidden = row.shapes.ffn;
    m.vocab = row.shapes.vocab;
    m.max_position = row.shapes.positions;
    m.norm = Norm::kRmsNorm;
    m.activation = Activation::kSwiglu;
    m.position = Position::kRotary;
    m.tied_embeddings = name == "grok-1";
    const bool gpt_oss = name.starts_with("gpt-oss");
    const bool qkv_bias = name.starts_with("qwen2") || name.starts_with("glm");
    m.mlp_bias = m.sinks = m.scaled_rotary = m.clamped_activation = gpt_oss;
    m.attention_bias = gpt_oss || qkv_bias;
    m.projection_bias = !qkv_bias;
    m.window = gpt_oss ? 128 : 0;
    m.full_every = gpt_oss ? 2 : 0;
    m.qk_norm = row.qk_norm;
    m.experts = row.experts;
    m.latent = row.latent;
    m.source = row.source;
    return m;
  }
  ORRERY_CHECK(false, "the list of presets names them all");
  return {};
}

}  // namespace orrery::workload
