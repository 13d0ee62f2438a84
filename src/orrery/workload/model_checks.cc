// Which models are sound: sizes in range, parts that fit each other.
#include <algorithm>
#include <span>

#include "orrery/workload/conv_net.h"
#include "orrery/workload/model.h"

namespace orrery::workload {
namespace {

struct BoundedField {
  std::string_view name;
  std::int64_t value;
  std::int64_t least, most;
};

Status CheckFields(std::span<const BoundedField> fields) {
  for (const BoundedField& f : fields) {
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
  const BoundedField fields[] = {
      {"experts", e.count, 2, 1 << 16},
      {"expert_top_k", e.top_k, 1, e.count},
      {"expert_ffn_hidden", e.ffn_hidden, 1, 1 << 24},
      {"shared_ffn_hidden", e.shared_ffn_hidden, 0, 1 << 24},
      {"first_dense_layers", e.first_dense, 0, m.layers},
      {"expert_every", e.every, 1, 10'000},
      {"expert_latent", e.latent, 0, 1 << 20},
  };
  return CheckFields(fields);
}

Status CheckLatent(const Model& m) {
  const Latent& l = m.latent;
  if (l.kv_rank == 0) {
    if (l.index_heads + l.index_dim + l.index_topk == 0) return {};
    return InvalidInput(
        "model.index_n_heads: an indexer is built before latent attention; set model.kv_lora_rank "
        "or leave index_n_heads, index_head_dim and index_topk out");
  }
  if (l.nope_dim == 0 || l.rope_dim == 0 || l.v_dim == 0) {
    return InvalidInput(
        "model.kv_lora_rank: latent attention needs qk_nope_head_dim, qk_rope_head_dim and "
        "v_head_dim, too");
  }
  const BoundedField fields[] = {{"kv_lora_rank", l.kv_rank, 1, 1 << 20},
                                 {"q_lora_rank", l.q_rank, 0, 1 << 20},
                                 {"qk_nope_head_dim", l.nope_dim, 1, 1 << 16},
                                 {"qk_rope_head_dim", l.rope_dim, 1, 1 << 16},
                                 {"v_head_dim", l.v_dim, 1, 1 << 16}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  if (l.index_heads == 0 && l.index_dim == 0 && l.index_topk == 0) return {};
  const BoundedField index[] = {{"index_n_heads", l.index_heads, 1, 1 << 16},
                                {"index_head_dim", l.index_dim, 1, 1 << 16},
                                {"index_topk", l.index_topk, 1, 1 << 26}};
  return CheckFields(index);
}

Status CheckHeads(const Model& m) {
  const Heads& w = m.window_heads;
  const std::string_view key = w.queries > 0 ? "window_heads"
                               : w.keys > 0  ? "window_kv_heads"
                               : w.dim > 0   ? "window_head_dim"
                                             : "keys_are_values";
  const bool special = w.any() || m.keys_are_values;
  if (special && (m.latent.kv_rank > 0 || m.encoder)) {
    return InvalidInput("model.{}: built for decoders of ordinary attention", key);
  }
  if (w.any() && m.window == 0) {
    return InvalidInput("model.{}: says how windowed layers attend, but model.window is 0", key);
  }
  if (m.keys_are_values && m.latent.v_dim > 0) {
    return InvalidInput("model.keys_are_values: values are as wide as keys then; v_head_dim is {}",
                        m.latent.v_dim);
  }
  if (m.attention_gate && m.latent.v_dim > 0 && m.latent.kv_rank == 0) {
    return InvalidInput("model.v_head_dim: not built beside attention_gate");
  }
  const BoundedField fields[] = {{"window_heads", w.queries, 0, 1 << 16},
                                 {"window_kv_heads", w.keys, 0, 1 << 16},
                                 {"window_head_dim", w.dim, 0, 1 << 16},
                                 {"v_head_dim", m.latent.v_dim, 0, 1 << 16}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  const Model windowed = m.of_kind(kWindowLayer);
  if (w.any() && windowed.heads % windowed.kv_heads != 0) {
    return InvalidInput("model.window_kv_heads: {} does not divide {} heads of windowed layers",
                        windowed.kv_heads, windowed.heads);
  }
  return {};
}

Status CheckPattern(const Model& m) {
  if (m.pattern.empty()) return {};
  if (static_cast<std::int64_t>(m.pattern.size()) != m.layers) {
    return InvalidInput("model.pattern: {} letters for {} layers; give one a layer",
                        m.pattern.size(), m.layers);
  }
  const std::size_t odd = m.pattern.find_first_not_of("M*-EDdXxme");
  if (odd != std::string::npos) {
    return InvalidInput(
        "model.pattern: letter {} is '{}'; valid: M (Mamba), * (attention), - (feed-forward), E "
        "(experts), D (attention and feed-forward), X (attention and experts), d and x (the same "
        "with a window), m (Mamba and feed-forward), e (Mamba and experts)",
        odd + 1, m.pattern[odd]);
  }
  if (m.pattern.find_first_of("EXxe") != std::string::npos && m.experts.count == 0) {
    return InvalidInput("model.pattern: layers of experts (E, X, x, e), but model.experts is 0");
  }
  if (m.pattern.find_first_of("dx") != std::string::npos && m.window == 0) {
    return InvalidInput("model.pattern: layers with a window (d, x), but model.window is 0");
  }
  return {};
}

// Sizes that layers have of their own.
Status CheckSizes(const Model& m) {
  if (m.sizes.empty()) return {};
  if (static_cast<std::int64_t>(m.size_of.size()) != m.layers) {
    return InvalidInput("model.layer_sizes: says {} layers of {}; say each", m.size_of.size(),
                        m.layers);
  }
  const bool of_heads =
      std::ranges::any_of(m.sizes, [](const LayerSizes& own) { return own.heads.any(); });
  if (m.latent.kv_rank > 0 || (m.window_heads.any() && of_heads) || m.encoder) {
    return InvalidInput(
        "model.layer_sizes: built for decoders of ordinary attention, not beside latent attention "
        "or heads of windowed layers");
  }
  const bool borrows =
      std::ranges::any_of(m.sizes, [](const LayerSizes& own) { return own.borrows_keys > 0; });
  if (borrows && (m.attention_bias || m.keys_are_values || m.latent.v_dim > 0)) {
    return InvalidInput(
        "model.layer_sizes: borrows_keys is built for attention without biases, with values as "
        "wide as keys");
  }
  for (std::size_t at = 1; at <= m.sizes.size(); ++at) {
    const Model own = m.of_kind(static_cast<Kind>(at << kSizesShift));
    const BoundedField fields[] = {{"layer_sizes: heads", own.heads, 1, 1 << 16},
                                   {"layer_sizes: kv_heads", own.kv_heads, 1, 1 << 16},
                                   {"layer_sizes: head_dim", own.head_dim, 1, 1 << 16},
                                   {"layer_sizes: ffn_hidden", own.ffn_hidden, 1, 1 << 24}};
    ORRERY_RETURN_IF_ERROR(CheckFields(fields));
    if (own.heads % own.kv_heads != 0) {
      return InvalidInput("model.layer_sizes: {} key and value heads do not divide {} heads",
                          own.kv_heads, own.heads);
    }
  }
  return {};
}

Status CheckMixer(const Model& m) {
  const bool mixes =
      m.mamba_beside || (m.pattern.empty() ? m.mamba.heads > 0 && m.full_every > 0
                                           : m.pattern.find_first_of("Mme") != std::string::npos);
  if (!mixes) return {};
  if (m.mamba.groups > 0 && m.mamba.heads % m.mamba.groups != 0 && m.mamba.kind != Mixer::kMamba2) {
    return InvalidInput("model.mamba_groups: {} heads of keys do not divide {} of values",
                        m.mamba.groups, m.mamba.heads);
  }
  const BoundedField fields[] = {
      {"mamba_heads", m.mamba.heads, 1, 1 << 16},
      {"mamba_head_dim", m.mamba.head_dim, 1, 1 << 16},
      {"mamba_state", m.mamba.state, 1, 1 << 16},
      {"mamba_groups", m.mamba.groups, 1, m.mamba.heads},
      {"mamba_conv", m.mamba.conv, m.mamba.kind == Mixer::kLightning ? 0 : 1, 64},
      {"mamba_chunk", m.mamba.chunk, 1, 1 << 16},
      {"mamba_gate_rank", m.mamba.gate_rank, 0, 1 << 16}};
  if (m.mamba.kind == Mixer::kMamba1) {
    if (m.mamba.head_dim != 1 || m.mamba.groups != 1 || m.mamba.gate_rank == 0) {
      return InvalidInput(
          "model.mixer: mamba1 has heads of mamba_head_dim 1, mamba_groups 1, and dt of "
          "mamba_gate_rank values; set these");
    }
  } else if (m.mamba.gate_rank > 0 && m.mamba.kind != Mixer::kKimiDelta) {
    return InvalidInput("model.mamba_gate_rank: of model.mixer: kimi_delta or mamba1");
  }
  return CheckFields(fields);
}

Status CheckEncoderDecoder(const Model& m) {
  if (m.position == Position::kRelative && (m.latent.kv_rank > 0 || m.window > 0)) {
    return InvalidInput("model.position: relative is built for ordinary attention of all tokens");
  }
  if (m.encoder_layers == 0) {
    if (m.encoder_len == 0 && m.frame_values == 0) return {};
    return InvalidInput("model.{}: says what the encoder reads, but model.encoder_layers is 0",
                        m.encoder_len > 0 ? "encoder_len" : "frame_values");
  }
  const BoundedField fields[] = {{"encoder_layers", m.encoder_layers, 1, m.layers - 1},
                                 {"encoder_len", m.encoder_len, 0, 1 << 26},
                                 {"frame_values", m.frame_values, 0, 1 << 16}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  if (m.frame_values > 0 && m.encoder_len == 0) {
    return InvalidInput("model.encoder_len: the tokens that frames become are missing; add them");
  }
  const bool plain = m.experts.count == 0 && m.latent.kv_rank == 0 && m.latent.v_dim == 0 &&
                     m.window == 0 && m.mamba.heads == 0 && m.pattern.empty() &&
                     m.mtp_layers == 0 && m.sizes.empty();
  if (plain && !m.encoder && !m.parallel_block && !m.bidirectional && !m.post_norms &&
      !m.attention_gate && !m.qk_norm && !m.sinks && m.patch_values == 0) {
    return {};
  }
  return InvalidInput(
      "model.encoder_layers: built for two stacks of ordinary attention and dense feed-forward, "
      "not for experts, windows, latent attention, Mamba, norms of queries or parallel blocks");
}

Status CheckBlockIndex(const Model& m) {
  const BlockIndex& b = m.block_index;
  if (b.heads + b.dim + b.size + b.topk == 0) return {};
  if (b.heads == 0 || b.dim == 0 || b.size == 0 || b.topk == 0) {
    return InvalidInput(
        "model.block_index_heads: an indexer of blocks needs block_index_dim, block_index_size and "
        "block_index_topk, too");
  }
  const BoundedField fields[] = {{"block_index_heads", b.heads, 1, 1024},
                                 {"block_index_dim", b.dim, 1, 1 << 16},
                                 {"block_index_size", b.size, 1, 1 << 20},
                                 {"block_index_topk", b.topk, 1, 1 << 20}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  const bool plain = m.latent.kv_rank == 0 && m.latent.q_rank == 0 && m.window == 0 &&
                     m.mamba.heads == 0 && m.pattern.empty() && !m.encoder && !m.bidirectional &&
                     m.encoder_layers == 0;
  if (plain && m.experts.count > 0) return {};
  return InvalidInput(
      "model.block_index_heads: built for decoders with experts and ordinary attention, not for "
      "windows, latent attention, Mamba or encoders");
}

Status CheckCompressedKeys(const Model& m) {
  const CompressedKeys& c = m.compressed;
  const BoundedField streams[] = {{"hyper_streams", m.hyper_streams, 0, 16}};
  ORRERY_RETURN_IF_ERROR(CheckFields(streams));
  const bool plain = m.latent.kv_rank == 0 && m.window == 0 && m.mamba.heads == 0 &&
                     m.pattern.empty() && !m.encoder && !m.bidirectional && m.encoder_layers == 0 &&
                     m.layer_embedding == 0 && m.mtp_layers == 0;
  if ((c.any() || m.hyper_streams > 0) && !plain) {
    return InvalidInput(
        "model.out_groups, hyper_streams: built for decoders without windows, latent attention, "
        "Mamba, embeddings of layers and modules that predict further tokens");
  }
  if (!c.any()) {
    if (c == CompressedKeys{}) return {};
    return InvalidInput("model.out_groups: compressed keys need it; set it or leave the rest out");
  }
  const BoundedField fields[] = {{"out_groups", c.out_groups, 1, 1 << 16},
                                 {"out_rank", c.out_rank, 1, 1 << 20},
                                 {"compressed_window", c.window, 1, 1 << 26},
                                 {"compressed_sparse_rate", c.sparse_rate, 1, 1 << 20},
                                 {"compressed_index_heads", c.index_heads, 1, 1 << 16},
                                 {"compressed_index_dim", c.index_dim, 1, 1 << 16},
                                 {"compressed_index_topk", c.index_topk, 1, 1 << 26}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  if (m.latent.q_rank > 0 && m.keys_are_values && m.heads % c.out_groups == 0) return {};
  return InvalidInput(
      "model.out_groups: needs q_lora_rank, keys_are_values and heads that it divides ({} of {})",
      m.heads, c.out_groups);
}

Status CheckLayerEmbedding(const Model& m) {
  const BoundedField field[] = {{"layer_embedding", m.layer_embedding, 0, 1 << 16},
                                {"altup_streams", m.altup_streams, 0, 16},
                                {"laurel_rank", m.laurel_rank, 0, 1 << 16}};
  ORRERY_RETURN_IF_ERROR(CheckFields(field));
  if (m.altup_streams == 1) {
    return InvalidInput("model.altup_streams: 1 stream is what other models have; leave it out");
  }
  if ((m.altup_streams > 0 || m.laurel_rank > 0) &&
      (m.layer_embedding == 0 || m.experts.count > 0)) {
    return InvalidInput(
        "model.altup_streams, laurel_rank: built for layers with embeddings of their own "
        "(layer_embedding) and dense feed-forwards");
  }
  const bool plain = m.mamba.heads == 0 && m.encoder_layers == 0 && m.pattern.empty() &&
                     m.mtp_layers == 0 && !m.encoder && !m.parallel_block && m.patch_values == 0;
  if (m.layer_embedding == 0 || plain) return {};
  return InvalidInput(
      "model.layer_embedding: built for decoders whose layers are attention and a feed-forward");
}

Status CheckBeside(const Model& m) {
  const bool plain = m.latent.kv_rank == 0 && m.window == 0 && m.full_every == 0;
  if (!m.mamba_beside || (plain && !m.encoder && !m.parallel_block && !m.bidirectional)) return {};
  return InvalidInput(
      "model.mamba_beside: built for decoders of ordinary attention in every layer, not for latent "
      "attention, windows, encoders or parallel blocks");
}

Status CheckImages(const Model& m) {
  const bool plain = m.latent.kv_rank == 0 && m.window == 0 && m.mamba.heads == 0 &&
                     m.experts.count == 0 && m.mtp_layers == 0 && !m.encoder && !m.parallel_block;
  if (m.bidirectional && !plain) {
    return InvalidInput(
        "model.bidirectional: built for encoders of ordinary attention and a dense feed-forward, "
        "not for windows, latent attention, Mamba, experts or parallel blocks");
  }
  if (m.patch_values > 0 && (!m.bidirectional || m.tied_embeddings)) {
    return InvalidInput(
        "model.patch_values: built for encoders, which have no table of words to share; set "
        "bidirectional: true and tied_embeddings: false");
  }
  if (m.attention_pool && m.patch_values == 0) {
    return InvalidInput(
        "model.attention_pool: says how patches become an image's value, but "
        "model.patch_values is 0");
  }
  return {};
}

}  // namespace

Status Validate(const Model& m) {
  if (m.net != nullptr) {
    if (m.layers == static_cast<std::int64_t>(m.net->order.size())) return {};
    return InvalidInput("model.layers: {} has {} units; leave it out", m.net->name,
                        m.net->order.size());
  }
  if (m.head_dim == 0 && m.hidden > 0 && m.heads > m.hidden) {
    return InvalidInput(
        "model.hidden: {} is less than a dimension a head ({} heads); give a larger hidden, fewer "
        "heads, or head_dim",
        m.hidden, m.heads);
  }
  const BoundedField fields[] = {
      {"layers", m.layers, 1, 10'000},      {"hidden", m.hidden, 1, 1 << 20},
      {"heads", m.heads, 1, 1 << 16},       {"kv_heads", m.kv_heads, 1, 1 << 16},
      {"head_dim", m.head_dim, 1, 1 << 16}, {"ffn_hidden", m.ffn_hidden, 1, 1 << 24},
      {"vocab", m.vocab, 1, 1 << 26},       {"max_position", m.max_position, 1, 1 << 26},
      {"window", m.window, 0, 1 << 26},     {"full_every", m.full_every, 0, 10'000},
      {"mtp_layers", m.mtp_layers, 0, 16}};
  ORRERY_RETURN_IF_ERROR(CheckFields(fields));
  ORRERY_RETURN_IF_ERROR(CheckExperts(m));
  ORRERY_RETURN_IF_ERROR(CheckLatent(m));
  ORRERY_RETURN_IF_ERROR(CheckPattern(m));
  ORRERY_RETURN_IF_ERROR(CheckHeads(m));
  ORRERY_RETURN_IF_ERROR(CheckSizes(m));
  ORRERY_RETURN_IF_ERROR(CheckMixer(m));
  if (m.heads % m.kv_heads != 0) {
    return InvalidInput(
        "model.kv_heads: {} does not divide heads ({}); every key and value head serves the same "
        "number of query heads: choose a divisor of {}",
        m.kv_heads, m.heads, m.heads);
  }
  if (m.attention_gate && (m.latent.kv_rank > 0 || m.encoder || m.parallel_block)) {
    return InvalidInput("model.attention_gate: built for decoders of ordinary attention");
  }
  if (m.qk_norm_whole && !m.qk_norm) {
    return InvalidInput("model.qk_norm_whole: says how qk_norm is taken; set qk_norm: true");
  }
  if (m.chunked_window && m.window == 0) {
    return InvalidInput("model.chunked_window: says how windows lie, but model.window is 0");
  }
  if (m.post_norms && (m.encoder || m.parallel_block || m.mamba_beside)) {
    return InvalidInput(
        "model.post_norms: built for decoders of attention or Mamba and a feed-forward that follow "
        "each other, not for encoders and parallel blocks");
  }
  if (m.shared_norm && !m.parallel_block) {
    return InvalidInput(
        "model.shared_norm: attention and feed-forward share a norm only side by side; set "
        "parallel_block: true");
  }
  const bool plain = m.experts.count == 0 && m.latent.kv_rank == 0 && m.pattern.empty();
  if ((m.encoder || m.parallel_block) && !plain) {
    return InvalidInput("model.{}: built for ordinary layers, not for experts, latent or Mamba",
                        m.encoder ? "encoder" : "parallel_block");
  }
  if (m.encoder && (m.window > 0 || m.parallel_block || m.position != Position::kLearned)) {
    return InvalidInput(
        "model.encoder: as BERT, with learned positions, without windows or parallel blocks");
  }
  ORRERY_RETURN_IF_ERROR(CheckBeside(m));
  ORRERY_RETURN_IF_ERROR(CheckEncoderDecoder(m));
  ORRERY_RETURN_IF_ERROR(CheckBlockIndex(m));
  ORRERY_RETURN_IF_ERROR(CheckCompressedKeys(m));
  ORRERY_RETURN_IF_ERROR(CheckLayerEmbedding(m));
  ORRERY_RETURN_IF_ERROR(CheckImages(m));
  if (m.dropout < 0 || m.dropout >= 1) {
    return InvalidInput("model.dropout: {} is outside 0 … 1; 0 means that there is none",
                        m.dropout);
  }
  return {};
}

}  // namespace orrery::workload
