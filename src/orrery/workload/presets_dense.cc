#include "orrery/workload/presets_dense.h"

#include <array>

#include "orrery/base/check.h"

namespace orrery::workload {
namespace {

// What a family has in common.
void Gpt2(Model* m) { m->dropout = 0.1; }
void Gpt3(Model*) {}
void Bert(Model* m) {
  m->encoder = true;
  m->dropout = 0.1;
}
void Opt(Model* m) {
  m->activation = Activation::kRelu;
  m->dropout = 0.1;
}
// Every other layer attends to 256 tokens; of attention's biases there is the projection's.
void GptNeo(Model* m) {
  m->window = 256;
  m->full_every = 2;
  m->qkv_bias = false;
}
void NeoX(Model* m) {
  m->position = Position::kRotary;
  m->tied_embeddings = false;
  m->parallel_block = true;
}
void Falcon(Model* m) {
  m->position = Position::kRotary;
  m->parallel_block = true;
  m->attention_bias = m->mlp_bias = false;
}
void Falcon7b(Model* m) {
  Falcon(m);
  m->shared_norm = true;
}
void Falcon180b(Model* m) {
  Falcon(m);
  m->tied_embeddings = false;
}
void Bloom(Model* m) {
  m->position = Position::kNone;  // ALiBi: a bias inside the attention kernel
  m->embedding_norm = true;
}
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
void LlamaTied(Model* m) {
  Llama(m);
  m->tied_embeddings = true;
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
void Qwen2Tied(Model* m) {
  Qwen2(m);
  m->tied_embeddings = true;
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

constexpr std::string_view kGpt2 = "Radford et al. 2019; openai-community/gpt2 config.json";
constexpr std::string_view kGpt3 =
    "Moye, Table 9 (heads, layers, hidden); ffn 4h, GPT-2 vocabulary, no dropout";
constexpr std::string_view kSimAi =
    "AICB's benchmark suite v1.1 (layers, hidden, heads, ffn); GPT-2 vocabulary, no dropout";
constexpr std::string_view kLlama2 = "Touvron et al. 2023, meta-llama/Llama-2 config.json";
constexpr std::string_view kLlama3 = "Grattafiori et al. 2024, Table 3; config.json";
constexpr std::string_view kLlama32 = "meta-llama/Llama-3.2 config.json";
constexpr std::string_view kQwen2 = "Yang et al. 2024; Qwen/Qwen2 config.json";
constexpr std::string_view kBert = "Devlin et al. 2019; google-bert config.json";
constexpr std::string_view kOpt = "Zhang et al. 2022; facebook/opt config.json (2 spare positions)";
constexpr std::string_view kNeo = "Black et al. 2021; EleutherAI/gpt-neo config.json";
constexpr std::string_view kLlama1 = "Touvron et al. 2023, Table 2; huggyllama config.json";

// clang-format off
constexpr std::array kRows = {
    Row{{"gpt2", "GPT-2 124M"}, Gpt2, 12, 768, 12, 12, 3072, 50257, 1024, kGpt2},
    Row{{"gpt2-medium", "GPT-2 355M"}, Gpt2, 24, 1024, 16, 16, 4096, 50257, 1024, kGpt2},
    Row{{"gpt2-large", "GPT-2 774M"}, Gpt2, 36, 1280, 20, 20, 5120, 50257, 1024, kGpt2},
    Row{{"gpt2-xl", "GPT-2 1.5B"}, Gpt2, 48, 1600, 25, 25, 6400, 50257, 1024, kGpt2},
    Row{{"gpt3-6.7b", "GPT-3 6.7B (Brown et al. 2020), SimAI's LLaMA-7B under Megatron"}, Gpt3, 32, 4096, 32, 32, 16384, 50257, 2048, kSimAi},
    Row{{"gpt3-22b", "GPT 22B (Korthikanti et al. 2022), of SimAI's suite"}, Gpt3, 48, 6144, 64, 64, 24576, 50257, 2048, kSimAi},
    Row{{"gpt3-13b", "GPT-3 v1 of Moye's Table 9"}, Gpt3, 40, 5120, 32, 32, 20480, 50257, 2048, kGpt3},
    Row{{"gpt3-30b", "GPT-3 v2 of Moye's Table 9"}, Gpt3, 40, 7680, 48, 48, 30720, 50257, 2048, kGpt3},
    Row{{"gpt3-40b", "GPT-3 v3 of Moye's Table 9"}, Gpt3, 40, 9216, 72, 72, 36864, 50257, 2048, kGpt3},
    Row{{"gpt3-70b", "GPT-3 v4 of Moye's Table 9"}, Gpt3, 80, 8192, 64, 64, 32768, 50257, 2048, kGpt3},
    Row{{"gpt3-175b", "GPT-3 175B (Brown et al. 2020)"}, Gpt3, 96, 12288, 96, 96, 49152, 50257, 2048, kGpt3},
    Row{{"gpt3-485b", "GPT-3 v5 of Moye's Table 9"}, Gpt3, 96, 20480, 160, 160, 81920, 50257, 2048, kGpt3},
    Row{{"llama2-7b", "Llama 2 7B"}, Llama, 32, 4096, 32, 32, 11008, 32000, 4096, kLlama2},
    Row{{"llama2-13b", "Llama 2 13B"}, Llama, 40, 5120, 40, 40, 13824, 32000, 4096, kLlama2},
    Row{{"llama2-70b", "Llama 2 70B, grouped queries"}, Llama, 80, 8192, 64, 8, 28672, 32000, 4096, kLlama2},
    Row{{"llama3-8b", "Llama 3 8B"}, Llama, 32, 4096, 32, 8, 14336, 128256, 8192, kLlama3},
    Row{{"llama3-70b", "Llama 3 70B"}, Llama, 80, 8192, 64, 8, 28672, 128256, 8192, kLlama3},
    Row{{"llama3.1-8b", "Llama 3.1 8B"}, Llama, 32, 4096, 32, 8, 14336, 128256, 131072, kLlama3},
    Row{{"llama3.1-70b", "Llama 3.1 70B"}, Llama, 80, 8192, 64, 8, 28672, 128256, 131072, kLlama3},
    Row{{"llama3.1-405b", "Llama 3.1 405B"}, Llama, 126, 16384, 128, 8, 53248, 128256, 131072, kLlama3},
    Row{{"llama3.2-1b", "Llama 3.2 1B"}, LlamaTied, 16, 2048, 32, 8, 8192, 128256, 131072, kLlama32},
    Row{{"llama3.2-3b", "Llama 3.2 3B"}, LlamaTied, 28, 3072, 24, 8, 8192, 128256, 131072, kLlama32},
    Row{{"bert-base", "BERT base, encoder, 110M"}, Bert, 12, 768, 12, 12, 3072, 30522, 512, kBert},
    Row{{"bert-large", "BERT large, encoder, 335M"}, Bert, 24, 1024, 16, 16, 4096, 30522, 512, kBert},
    Row{{"opt-125m", "OPT 125M"}, Opt, 12, 768, 12, 12, 3072, 50272, 2050, kOpt},
    Row{{"opt-1.3b", "OPT 1.3B"}, Opt, 24, 2048, 32, 32, 8192, 50272, 2050, kOpt},
    Row{{"opt-6.7b", "OPT 6.7B"}, Opt, 32, 4096, 32, 32, 16384, 50272, 2050, kOpt},
    Row{{"opt-13b", "OPT 13B"}, Opt, 40, 5120, 40, 40, 20480, 50272, 2050, kOpt},
    Row{{"opt-30b", "OPT 30B"}, Opt, 48, 7168, 56, 56, 28672, 50272, 2050, kOpt},
    Row{{"opt-66b", "OPT 66B"}, Opt, 64, 9216, 72, 72, 36864, 50272, 2050, kOpt},
    Row{{"opt-175b", "OPT 175B"}, Opt, 96, 12288, 96, 96, 49152, 50272, 2050, kOpt},
    Row{{"gpt-neo-125m", "GPT-Neo 125M, every other layer local"}, GptNeo, 12, 768, 12, 12, 3072, 50257, 2048, kNeo},
    Row{{"gpt-neo-1.3b", "GPT-Neo 1.3B, every other layer local"}, GptNeo, 24, 2048, 16, 16, 8192, 50257, 2048, kNeo},
    Row{{"gpt-neo-2.7b", "GPT-Neo 2.7B, every other layer local"}, GptNeo, 32, 2560, 20, 20, 10240, 50257, 2048, kNeo},
    Row{{"gpt-neox-20b", "GPT-NeoX 20B, parallel blocks"}, NeoX, 44, 6144, 64, 64, 24576, 50432, 2048, "Black et al. 2022; EleutherAI/gpt-neox-20b config.json"},
    Row{{"falcon-7b", "Falcon 7B, parallel blocks, one norm, one key and value head"}, Falcon7b, 32, 4544, 71, 1, 18176, 65024, 2048, "Almazrouei et al. 2023; tiiuae/falcon-7b config.json"},
    Row{{"falcon-40b", "Falcon 40B, parallel blocks"}, Falcon, 60, 8192, 128, 8, 32768, 65024, 2048, "Almazrouei et al. 2023; tiiuae/falcon-40b config.json"},
    Row{{"falcon-180b", "Falcon 180B, parallel blocks"}, Falcon180b, 80, 14848, 232, 8, 59392, 65024, 2048, "Almazrouei et al. 2023; tiiuae/falcon-180B config.json"},
    Row{{"bloom-176b", "BLOOM 176B"}, Bloom, 70, 14336, 112, 112, 57344, 250880, 2048, "Le Scao et al. 2022; bigscience/bloom config.json"},
    Row{{"mpt-7b", "MPT 7B"}, Mpt, 32, 4096, 32, 32, 16384, 50432, 2048, "MosaicML 2023; mosaicml/mpt-7b config.json"},
    Row{{"mpt-30b", "MPT 30B"}, Mpt, 48, 7168, 64, 64, 28672, 50432, 8192, "MosaicML 2023; mosaicml/mpt-30b config.json"},
    Row{{"llama-7b", "Llama 7B"}, Llama, 32, 4096, 32, 32, 11008, 32000, 2048, kLlama1},
    Row{{"llama-13b", "Llama 13B"}, Llama, 40, 5120, 40, 40, 13824, 32000, 2048, kLlama1},
    Row{{"llama-30b", "Llama 33B"}, Llama, 60, 6656, 52, 52, 17920, 32000, 2048, kLlama1},
    Row{{"llama-65b", "Llama 65B"}, Llama, 80, 8192, 64, 64, 22016, 32000, 2048, kLlama1},
    Row{{"mistral-7b", "Mistral 7B v0.1, window of 4,096"}, Mistral, 32, 4096, 32, 8, 14336, 32000, 32768, "Jiang et al. 2023; mistralai/Mistral-7B-v0.1 config.json"},
    Row{{"qwen2-0.5b", "Qwen2 0.5B"}, Qwen2Tied, 24, 896, 14, 2, 4864, 151936, 131072, kQwen2},
    Row{{"qwen2-1.5b", "Qwen2 1.5B"}, Qwen2Tied, 28, 1536, 12, 2, 8960, 151936, 131072, kQwen2},
    Row{{"qwen2-7b", "Qwen2 7B"}, Qwen2, 28, 3584, 28, 4, 18944, 152064, 131072, "Yang et al. 2024; Qwen/Qwen2-7B config.json"},
    Row{{"qwen2-72b", "Qwen2 72B"}, Qwen2, 80, 8192, 64, 8, 29568, 152064, 131072, "Yang et al. 2024; Qwen/Qwen2-72B config.json"},
    Row{{"nemotron4-15b", "Nemotron-4 15B"}, Nemotron4, 32, 6144, 48, 8, 24576, 256000, 4096, "Parmar et al. 2024, Table 1"},
    Row{{"nemotron4-340b", "Nemotron-4 340B"}, Nemotron4, 96, 18432, 96, 8, 73728, 256000, 4096, "NVIDIA 2024, Nemotron-4 340B technical report, Table 1"},
};
// clang-format on

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
