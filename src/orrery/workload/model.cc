#include "orrery/workload/model.h"

namespace orrery::workload {

namespace {

// Weights of one layer's four matrices.
std::int64_t LayerMatrices(const Model& m) {
  const std::int64_t query = m.heads * m.head_dim;
  const std::int64_t key_value = m.kv_heads * m.head_dim;
  const std::int64_t matrices = m.activation == Activation::kSwiglu ? 3 : 2;
  return m.hidden * (query + 2 * key_value) + query * m.hidden + matrices * m.hidden * m.ffn_hidden;
}

}  // namespace

std::int64_t Model::parameters() const {
  const std::int64_t one_norm = hidden * (norm == Norm::kLayerNorm ? 2 : 1);
  std::int64_t layer = LayerMatrices(*this) + 2 * one_norm;
  if (attention_bias) layer += (heads + 2 * kv_heads) * head_dim + hidden;
  if (mlp_bias) layer += ffn_hidden * (activation == Activation::kSwiglu ? 2 : 1) + hidden;
  std::int64_t total = layers * layer + one_norm + vocab * hidden;
  if (!tied_embeddings) total += vocab * hidden;
  if (position == Position::kLearned) total += max_position * hidden;
  return total;
}

double Model::flops_per_sequence(std::int64_t seq_len) const {
  const auto s = static_cast<double>(seq_len);
  const auto matrices = static_cast<double>(layers * LayerMatrices(*this) + vocab * hidden);
  // Scores and context: 2·s²·q each, half of it under the causal mask.
  const double attention = static_cast<double>(layers * heads * head_dim) * 2.0 * s * s;
  return 3.0 * (2.0 * s * matrices + attention);
}

Status Validate(const Model& m) {
  struct Field {
    std::string_view name;
    std::int64_t value;
    std::int64_t most;
  };
  const Field fields[] = {
      {"layers", m.layers, 10'000},      {"hidden", m.hidden, 1 << 20},
      {"heads", m.heads, 1 << 16},       {"kv_heads", m.kv_heads, 1 << 16},
      {"head_dim", m.head_dim, 1 << 16}, {"ffn_hidden", m.ffn_hidden, 1 << 24},
      {"vocab", m.vocab, 1 << 26},       {"max_position", m.max_position, 1 << 26}};
  for (const Field& f : fields) {
    if (f.value < 1 || f.value > f.most) {
      return InvalidInput("model.{}: {} is outside 1 … {}; give the model's true size", f.name,
                          f.value, f.most);
    }
  }
  if (m.heads % m.kv_heads != 0) {
    return InvalidInput(
        "model.kv_heads: {} does not divide heads ({}); every key and value head serves the same "
        "number of query heads: choose a divisor of {}",
        m.kv_heads, m.heads, m.heads);
  }
  if (m.dropout < 0 || m.dropout >= 1) {
    return InvalidInput("model.dropout: {} is outside 0 … 1; 0 means that there is none",
                        m.dropout);
  }
  return {};
}

}  // namespace orrery::workload
