// A model as its config describes it: shapes, not names of frameworks.
//
// The spine covers dense decoder transformers (GPT-2/3 and Llama families). A kind that is missing
// is refused, never replaced by a parameter count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::workload {

enum class Norm : std::uint8_t { kLayerNorm, kRmsNorm };
enum class Activation : std::uint8_t { kGelu, kSwiglu };
enum class Position : std::uint8_t { kLearned, kRotary };

struct Model {
  std::string name;
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t ffn_hidden = 0, vocab = 0, max_position = 0;
  Norm norm = Norm::kLayerNorm;
  Activation activation = Activation::kGelu;
  Position position = Position::kLearned;
  bool tied_embeddings = true;
  bool attention_bias = true;  // biases of qkv and projection
  bool mlp_bias = true;
  double dropout = 0;  // 0: the dropout kernels are absent
  std::string source;

  std::int64_t parameters() const;  // all of them, embeddings included once when tied
  // Forward and backward of one sequence, no recompute; attention causal (half the square).
  double flops_per_sequence(std::int64_t seq_len) const;
};

struct ModelPreset {
  std::string_view name;
  std::string_view description;
};
std::span<const ModelPreset> ModelPresets();
Result<Model> FindModel(std::string_view name);  // unknown: nearest valid names
// Reads a Hugging Face config.json (gpt2, llama, mistral without sliding window). Errors name the
// file, the field, the value and the remedy; unsupported model types are refused by name.
Result<Model> ReadHuggingFaceConfig(const std::string& path);
Status Validate(const Model& model);

}  // namespace orrery::workload
