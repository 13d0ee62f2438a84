#include "orrery/workload/model.h"

namespace orrery::workload {

namespace {

// Weights of the matrices of one layer's attention.
std::int64_t AttentionMatrices(const Model& m) {
  const Latent& l = m.latent;
  if (l.kv_rank == 0) {
    const std::int64_t query = m.heads * m.head_dim;
    return m.hidden * (query + 2 * m.kv_heads * m.head_dim) + query * m.hidden;
  }
  const std::int64_t query = m.heads * (l.nope_dim + l.rope_dim);
  const std::int64_t up = l.q_rank > 0 ? l.q_rank * (m.hidden + query) : m.hidden * query;
  return up + m.hidden * (l.kv_rank + l.rope_dim) + l.kv_rank * m.heads * (l.nope_dim + l.v_dim) +
         m.heads * l.v_dim * m.hidden;
}

std::int64_t MlpMatrices(const Model& m, std::int64_t width) {
  return (m.activation == Activation::kSwiglu ? 3 : 2) * m.hidden * width;
}

std::int64_t MlpBiases(const Model& m, std::int64_t width) {
  if (!m.mlp_bias) return 0;
  return width * (m.activation == Activation::kSwiglu ? 2 : 1) + m.hidden;
}

// What a layer has besides matrices.
std::int64_t AttentionVectors(const Model& m) {
  std::int64_t n = 0;
  if (m.attention_bias) {
    n += (m.heads + 2 * m.kv_heads) * m.head_dim + (m.projection_bias ? m.hidden : 0);
  }
  if (m.qk_norm) n += 2 * m.head_dim;
  if (m.sinks) n += m.heads;
  if (m.latent.kv_rank > 0) n += m.latent.q_rank + m.latent.kv_rank;  // their norms
  return n;
}

// All of an expert layer's feed-forward, with `experts` experts counted.
std::int64_t ExpertMlp(const Model& m, std::int64_t experts) {
  const Experts& e = m.experts;
  return experts * (MlpMatrices(m, e.ffn_hidden) + MlpBiases(m, e.ffn_hidden)) +
         MlpMatrices(m, e.shared_ffn_hidden) + e.count * m.hidden + (e.router_bias ? e.count : 0);
}

std::int64_t Count(const Model& m, std::int64_t experts) {
  const std::int64_t one_norm = m.hidden * (m.norm == Norm::kLayerNorm ? 2 : 1);
  const std::int64_t layer = AttentionMatrices(m) + AttentionVectors(m) + 2 * one_norm;
  const std::int64_t sparse = m.expert_layers();
  std::int64_t total =
      m.layers * layer + sparse * ExpertMlp(m, experts) +
      (m.layers - sparse) * (MlpMatrices(m, m.ffn_hidden) + MlpBiases(m, m.ffn_hidden)) + one_norm +
      m.vocab * m.hidden;
  if (!m.tied_embeddings) total += m.vocab * m.hidden;
  if (m.position == Position::kLearned) total += m.max_position * m.hidden;
  return total;
}

}  // namespace

std::uint8_t Model::layer_kind(std::int64_t layer) const {
  std::uint8_t kind = kDenseLayer;
  if (experts.count > 0 && layer >= experts.first_dense &&
      (layer - experts.first_dense + 1) % experts.every == 0) {
    kind |= kExpertLayer;
  }
  if (window > 0 && (full_every == 0 || (layer + 1) % full_every != 0)) kind |= kWindowLayer;
  return kind;
}

std::int64_t Model::expert_layers() const {
  if (experts.count == 0 || layers <= experts.first_dense) return 0;
  return (layers - experts.first_dense) / experts.every;
}

std::int64_t Model::parameters() const { return Count(*this, experts.count); }
std::int64_t Model::active_parameters() const { return Count(*this, experts.top_k); }

double Model::flops_per_sequence(std::int64_t seq_len) const {
  const auto s = static_cast<double>(seq_len);
  const std::int64_t sparse = expert_layers();
  const std::int64_t routed = experts.top_k * MlpMatrices(*this, experts.ffn_hidden) +
                              MlpMatrices(*this, experts.shared_ffn_hidden) +
                              experts.count * hidden;
  const auto matrices =
      static_cast<double>(layers * AttentionMatrices(*this) + sparse * routed +
                          (layers - sparse) * MlpMatrices(*this, ffn_hidden) + vocab * hidden);
  // Scores and context: s²·q each way of two products, half of it under the causal mask.
  const std::int64_t widths =
      latent.kv_rank == 0 ? 2 * head_dim : latent.nope_dim + latent.rope_dim + latent.v_dim;
  double keys = 0;  // over layers, of a query on average
  for (std::int64_t l = 0; l < layers; ++l) {
    const auto w = static_cast<double>(window);
    const bool narrow = (layer_kind(l) & kWindowLayer) != 0 && w < s;
    keys += narrow ? w - w * w / (2 * s) : s / 2;
  }
  const double attention = keys * static_cast<double>(heads * widths) * 2.0 * s;
  return 3.0 * (2.0 * s * matrices + attention);
}

namespace {

struct Field {
  std::string_view name;
  std::int64_t value;
  std::int64_t least, most;
};

Status CheckFields(std::span<const Field> fields) {
  for (const Field& f : fields) {
    if (f.value < f.least || f.value > f.most) {
      return InvalidInput("model.{}: {} is outside {} … {}; give the model's true size", f.name,
                          f.value, f.least, f.most);
    }
  }
  return {};
}

Status CheckExperts(const Model& m) {
  const Experts& e = m.experts;
  if (e.count == 0) return {};
  const Field fields[] = {
      {"experts", e.count, 2, 1 << 16},
      {"expert_top_k", e.top_k, 1, e.count},
      {"expert_ffn_hidden", e.ffn_hidden, 1, 1 << 24},
      {"shared_ffn_hidden", e.shared_ffn_hidden, 0, 1 << 24},
      {"first_dense_layers", e.first_dense, 0, m.layers},
      {"expert_every", e.every, 1, 10'000},
  };
  return CheckFields(fields);
}

Status CheckLatent(const Model& m) {
  const Latent& l = m.latent;
  if (l.kv_rank == 0) return {};
  const Field fields[] = {{"kv_lora_rank", l.kv_rank, 1, 1 << 20},
                          {"q_lora_rank", l.q_rank, 0, 1 << 20},
                          {"qk_nope_head_dim", l.nope_dim, 1, 1 << 16},
                          {"qk_rope_head_dim", l.rope_dim, 1, 1 << 16},
                          {"v_head_dim", l.v_dim, 1, 1 << 16}};
  return CheckFields(fields);
}

}  // namespace

Status Validate(const Model& m) {
  const Field fields[] = {
      {"layers", m.layers, 1, 10'000},      {"hidden", m.hidden, 1, 1 << 20},
      {"heads", m.heads, 1, 1 << 16},       {"kv_heads", m.kv_heads, 1, 1 << 16},
      {"head_dim", m.head_dim, 1, 1 << 16}, {"ffn_hidden", m.ffn_hidden, 1, 1 << 24},
      {"vocab", m.vocab, 1, 1 << 26},       {"max_position", m.max_position, 1, 1 << 26},
      {"window", m.window, 0, 1 << 26},     {"full_every", m.full_every, 0, 10'000}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  ORRERY_RETURN_IF_ERROR(CheckExperts(m));
  ORRERY_RETURN_IF_ERROR(CheckLatent(m));
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
