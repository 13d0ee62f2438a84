// Parameters of a rank's part of a layer, of the embedding and of the head.
#include "orrery/workload/generators/layers/altup.h"
#include "orrery/workload/generators/layers/block_index.h"
#include "orrery/workload/generators/layers/compressed_keys.h"
#include "orrery/workload/generators/layers/hyper_streams.h"
#include "orrery/workload/generators/layers/lora.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {
namespace {

void AddNorm(const Shape& s, std::vector<std::int64_t>* out) {
  out->push_back(s.hidden);
  if (s.norm == Norm::kLayerNorm) out->push_back(s.hidden);
}

// Down-projections and their norms are whole on every tensor-parallel rank.
void AddLatent(const Shape& s, std::vector<std::int64_t>* out) {
  const Latent& l = s.latent;
  if (l.q_rank > 0) out->insert(out->end(), {l.q_rank * s.hidden, l.q_rank, l.q_rank * s.query()});
  if (l.q_rank == 0) out->push_back(s.hidden * s.query());
  out->insert(out->end(), {(l.kv_rank + l.rope_dim) * s.hidden, l.kv_rank,
                           l.kv_rank * s.heads * (l.nope_dim + l.v_dim)});
  if (!l.sparse()) return;
  out->insert(out->end(),
              {l.index_width(s.hidden) * l.index_heads * l.index_dim, l.index_dim * s.hidden,
               l.index_dim, l.index_dim, l.index_heads * s.hidden});
  if (l.q_rank == 0) out->insert(out->end(), 2, s.hidden);
}

// All of it is split over the tensor-parallel ranks by heads.
void AddMamba(const Shape& s, std::vector<std::int64_t>* out) {
  const Mamba& m = s.mamba;
  if (m.kind == Mixer::kMamba1) {
    const std::int64_t n = m.inner();
    out->insert(out->end(), {n * m.state, n, n * m.conv, n, m.selected() * n, m.gate_rank * n, n,
                             m.projected() * s.hidden, n * s.hidden});
    return;
  }
  if (m.kind != Mixer::kMamba2) {
    if (m.delta()) {  // bias of the decay, A, convolution
      const std::int64_t biases = m.decays() > 0 ? m.decays() : m.heads;
      out->insert(out->end(), {biases, m.heads, m.convolved() * m.conv});
    }
    if (m.gate_rank > 0) {
      out->insert(out->end(), {m.gate_rank * m.inner(), m.gate_rank * m.decays()});
    }
    const std::int64_t norm = m.delta()                     ? m.head_dim
                              : m.kind == Mixer::kShortConv ? m.inner() * m.conv  // it has none
                                                            : m.inner();
    out->insert(out->end(), {m.projected() * s.hidden, norm, m.inner() * s.hidden});
    return;
  }
  out->insert(out->end(), {m.heads, m.heads, m.heads,  // bias of dt, A, D
                           m.projected() * s.hidden, m.convolved() * m.conv, m.convolved(),
                           m.inner(), m.inner() * s.hidden});
}

void AddAttention(const Shape& s, std::vector<std::int64_t>* out) {
  if (s.compressed_keys.any()) {
    for (const std::int64_t n : CompressedParameters(s)) out->push_back(n);
  } else {
    out->push_back(s.context() * s.hidden);  // projection
  }
  if (s.attention_bias && s.projection_bias) out->push_back(s.hidden);
  if (s.latent.kv_rank > 0) {
    AddLatent(s, out);
  } else if (s.latent.queries_alone()) {
    const std::int64_t rank = s.latent.q_rank;
    out->insert(out->end(), {rank * s.hidden, rank, rank * s.query()});
    out->push_back((s.qkv() - s.query()) * s.hidden);
  } else {
    out->push_back(s.qkv() * s.hidden);
  }
  if (s.latent.kv_rank == 0 && s.qkv_bias) out->push_back(s.qkv());
  if (s.qk_norm) {
    out->push_back((s.qk_norm_whole ? s.heads : 1) * s.head_dim);
    if (!s.borrows_keys) out->push_back((s.qk_norm_whole ? s.kv_heads : 1) * s.head_dim);
  }
  if (s.sinks) out->push_back(s.heads);
  for (const std::int64_t n : BlockIndexParameters(s)) out->push_back(n);
}

// Of an expert layer all but the experts.
void AddFeedForward(const Shape& s, std::vector<std::int64_t>* out) {
  const ExpertShape& e = s.experts;
  if (e.count > 0) {
    const std::int64_t gates = s.activation == Activation::kSwiglu ? 2 : 1;
    out->push_back(e.count * s.hidden);  // router
    if (e.router_bias) out->push_back(e.count);
    if (e.latent) out->insert(out->end(), 2, e.width * s.hidden);
    if (e.shared > 0) out->insert(out->end(), {gates * e.shared * s.hidden, e.shared * s.hidden});
    return;
  }
  out->push_back(s.fc1() * s.hidden);
  if (s.mlp_bias) out->push_back(s.fc1());
  out->push_back(s.ffn * s.hidden);
  if (s.mlp_bias) out->push_back(s.hidden);
}

}  // namespace

std::vector<std::int64_t> LayerParameters(const Shape& s) {
  if (s.net != nullptr) return s.net->units[static_cast<std::size_t>(s.unit)].parameters();
  std::vector<std::int64_t> p;
  p.reserve(16);
  if (s.mixes()) AddNorm(s, &p);
  if (s.mixes() && s.post_norms) AddNorm(s, &p);
  if (s.mamba.heads > 0) AddMamba(s, &p);
  if (s.attends) AddAttention(s, &p);
  if (s.turns) AddNorm(s, &p);
  if (s.crosses) {
    AddNorm(s, &p);
    AddAttention(s, &p);
  }
  for (const std::int64_t n : HyperParameters(s)) p.push_back(n);
  if (s.feeds_forward) {
    if (!s.shared_norm) AddNorm(s, &p);
    if (s.post_norms) AddNorm(s, &p);
    AddFeedForward(s, &p);
    if (s.layer_embedding > 0) {
      p.insert(p.end(), 2, s.layer_embedding * s.hidden);
      AddNorm(s, &p);
    }
    for (const std::int64_t n : AltUpParameters(s)) p.push_back(n);
  }
  return p;
}

std::vector<std::int64_t> TrainedParameters(const Shape& s) {
  return s.frozen() ? AdapterParameters(s) : LayerParameters(s);
}

std::vector<std::int64_t> ExpertParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  const ExpertShape& e = s.experts;
  const std::int64_t fc1 = s.activation == Activation::kSwiglu ? 2 * e.ffn : e.ffn;
  for (std::int64_t i = 0; e.count > 0 && i < e.local; ++i) {
    p.push_back(fc1 * e.width);
    p.push_back(e.ffn * e.width);
    if (s.mlp_bias) p.insert(p.end(), {fc1, e.width});
  }
  return p;
}

std::vector<std::int64_t> EmbeddingParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  if (s.patch_values > 0) {
    p = {s.patch_values * s.hidden, s.hidden};
  } else {
    p.push_back(s.vocab * s.hidden);
  }
  if (s.position == Position::kLearned) p.push_back(s.positions * s.hidden);
  if (s.layer_embedding > 0) {
    const std::int64_t width = s.layer_embedding * s.layer_embeddings;
    p.insert(p.end(), {s.vocab * width, s.hidden * width, s.layer_embedding});
  }
  for (std::int64_t i = 1; i < s.altup_streams; ++i) p.push_back(s.hidden * s.hidden);
  if (s.encoder_positions > 0) p.push_back(s.encoder_positions * s.hidden);
  if (s.frame_values > 0) {
    const std::int64_t first = 3 * s.frame_values * s.hidden, second = 3 * s.hidden * s.hidden;
    p.insert(p.end(), {first, s.hidden, second, s.hidden});
  }
  if (s.encoder) p.push_back(2 * s.hidden);  // token types
  if (s.embedding_norm) AddNorm(s, &p);
  return p;
}

namespace {

// Whole on every tensor-parallel rank.
void AddPool(const Shape& s, std::vector<std::int64_t>* out) {
  const std::int64_t h = s.hidden, ffn = s.ffn * s.tp;
  const std::int64_t fc1 = s.activation == Activation::kSwiglu ? 2 * ffn : ffn;
  out->insert(out->end(), {h, 3 * h * h, 3 * h, h * h, h});
  AddNorm(s, out);
  out->insert(out->end(), {fc1 * h, ffn * h});
  if (s.mlp_bias) out->insert(out->end(), {fc1, h});
}

}  // namespace

std::vector<std::int64_t> HeadParameters(const Shape& s, bool owns_output) {
  std::vector<std::int64_t> p;
  if (s.net != nullptr) return p;
  if (s.encoder) {
    p.push_back(s.hidden * s.hidden);
    p.push_back(s.hidden);
  }
  AddNorm(s, &p);
  for (std::int64_t i = 1; i < s.altup_streams; ++i) p.push_back(s.hidden * s.hidden);
  if (const std::int64_t h = s.hyper_streams; h > 0) {
    for (const std::int64_t n : {h * h * s.hidden, h, std::int64_t{1}}) p.push_back(n);
  }
  if (s.attention_pool) AddPool(s, &p);
  if (s.encoder) p.push_back(s.vocab);
  if (owns_output) p.push_back(s.vocab * s.hidden);
  // Norms of the embedding, of the state and behind the layer; the projection.
  for (std::int64_t i = 0; i < s.mtp_modules; ++i) {
    for (int norm = 0; norm < 3; ++norm) AddNorm(s, &p);
    p.push_back(2 * s.hidden * s.hidden / s.tp);
  }
  return p;
}

std::int64_t SequenceParallelParameters(const Shape& s) {
  if (s.frozen()) return WholeAdapterParameters(s);
  const std::int64_t norm = s.hidden * (s.norm == Norm::kLayerNorm ? 2 : 1);
  std::int64_t n = (s.mixes() ? norm : 0) + (s.feeds_forward && !s.shared_norm ? norm : 0);
  if (s.post_norms) n *= 2;
  if (s.turns) n += norm;
  if (s.crosses) n += norm + (s.attention_bias && s.projection_bias ? s.hidden : 0);
  if (s.attends) {
    if (s.attention_bias && s.projection_bias) n += s.hidden;
    if (s.qk_norm && !s.qk_norm_whole) n += (s.borrows_keys ? 1 : 2) * s.head_dim;
    if (s.latent.queries_alone()) n += s.latent.q_rank * (s.hidden + 1);
    for (const std::int64_t tensor : BlockIndexParameters(s)) n += tensor;
    if (s.latent.kv_rank > 0) {
      n += (s.latent.q_rank + s.latent.kv_rank + s.latent.rope_dim) * s.hidden + s.latent.q_rank +
           s.latent.kv_rank;
    }
  }
  if (!s.feeds_forward) return n;
  if (s.layer_embedding > 0) n += 2 * s.layer_embedding * s.hidden + norm;
  for (const std::int64_t tensor : AltUpParameters(s)) n += tensor;
  const ExpertShape& e = s.experts;
  if (e.count > 0) {
    n += e.count * (s.hidden + (e.router_bias ? 1 : 0)) + (e.latent ? 2 * e.width * s.hidden : 0);
    return n;
  }
  return n + (s.mlp_bias ? s.hidden : 0);
}

}  // namespace orrery::workload
