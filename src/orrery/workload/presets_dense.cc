#include "orrery/workload/presets_dense.h"

#include <array>

#include "orrery/base/check.h"

namespace orrery::workload {
namespace {

void Mpt(Model* m) {
  m->position = Position::kNone;  // ALiBi
  m->attention_bias = m->mlp_bias = false;
}
void Llama(Model* m) {
  m->norm = Norm::kRmsNorm;
  m->activation = Activation::kSwiglu;
  m->position = Position::kRotary;
  m->tied_embeddings = false;
  m->attention_bias = m->mlp_bias = false;
}
void Mistral(Model* m) {
  Llama(m);
  m->window = 4096;
}
void Qwen2(Model* m) {
  Llama(m);
  m->attention_bias = true;
  m->projection_bias = false;
}
void Nemotron4(Model* m) {
  m->activation = Activation::kSquaredRelu;
  m->position = Position::kRotary;
  m->tied_embeddings = m->attention_bias = m->mlp_bias = false;
}

struct Row {
  ModelPreset preset;
  void (*family)(Model*);
  std::int32_t layers, hidden, heads, kv_heads, ffn, vocab, positions;
  std::string_view source;
};

constexpr std::string_view kLlama1 = "Touvron et al. 2023, Table 2; huggyllama config.json";

constexpr std::array kRows = {
    Row{{"mpt-7b", "MPT 7B"},
        Mpt,
        32,
        4096,
        32,
        32,
        16384,
        50432,
        2048,
        "MosaicML 2023; mosaicml/mpt-7b config.json"},
    Row{{"llama-7b", "Llama 7B"}, Llama, 32, 4096, 32, 32, 11008, 32000, 2048, kLlama1},
    Row{{"llama-13b", "Llama 13B"}, Llama, 40, 5120, 40, 40, 13824, 32000, 2048, kLlama1},
    Row{{"llama-30b", "Llama 33B"}, Llama, 60, 6656, 52, 52, 17920, 32000, 2048, kLlama1},
    Row{{"llama-65b", "Llama 65B"}, Llama, 80, 8192, 64, 64, 22016, 32000, 2048, kLlama1},
    Row{{"mistral-7b", "Mistral 7B v0.1, window of 4,096"},
        Mistral,
        32,
        4096,
        32,
        8,
        14336,
        32000,
        32768,
        "Jiang et al. 2023; mistralai/Mistral-7B-v0.1 config.json"},
    Row{{"qwen2-7b", "Qwen2 7B"},
        Qwen2,
        28,
        3584,
        28,
        4,
        18944,
        152064,
        131072,
        "Yang et al. 2024; Qwen/Qwen2-7B config.json"},
    Row{{"qwen2-72b", "Qwen2 72B"},
        Qwen2,
        80,
        8192,
        64,
        8,
        29568,
        152064,
        131072,
        "Yang et al. 2024; Qwen/Qwen2-72B config.json"},
    Row{{"nemotron4-15b", "Nemotron-4 15B"},
        Nemotron4,
        32,
        6144,
        48,
        8,
        24576,
        256000,
        4096,
        "Parmar et al. 2024, Table 1"},
    Row{{"nemotron4-340b", "Nemotron-4 340B"},
        Nemotron4,
        96,
        18432,
        96,
        8,
        73728,
        256000,
        4096,
        "NVIDIA 2024, Nemotron-4 340B technical report, Table 1"},
};

constexpr auto kPresets = [] {
  std::array<ModelPreset, kRows.size()> out{};
  for (std::size_t i = 0; i < kRows.size(); ++i) out[i] = kRows[i].preset;
  return out;
}();

}  // namespace

std::span<const ModelPreset> DensePresets() { return kPresets; }

Model BuildDensePreset(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.preset.name != name) continue;
    Model m;
    m.name = name;
    m.layers = row.layers;
    m.hidden = row.hidden;
    m.heads = row.heads;
    m.kv_heads = row.kv_heads;
    m.head_dim = row.hidden / row.heads;
    m.ffn_hidden = row.ffn;
    m.vocab = row.vocab;
    m.max_position = row.positions;
    m.source = row.source;
    row.family(&m);
    return m;
  }
  ORRERY_CHECK(false, "the list of presets names them all");
  return {};
}

}  // namespace orrery::workload
