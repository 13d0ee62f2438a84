#include "orrery/workload/model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "orrery/workload/conv_net.h"

namespace orrery::workload {

namespace {

// One projection in groups of heads to out_rank values each, one from them.
std::int64_t GroupedOutput(const Model& m) {
  const CompressedKeys& c = m.compressed;
  return c.out_rank * (m.heads * m.head_dim + c.out_groups * m.hidden);
}

// Keys, gates and their places, of two series where an indexer chooses, and its own: keys, gates,
// places, queries and weights of its heads.
std::int64_t Compressor(const Model& m) {
  const CompressedKeys& c = m.compressed;
  if (m.compress == 0) return 0;
  const bool chosen = m.compress == c.sparse_rate;
  const std::int64_t width = (chosen ? 2 : 1) * m.head_dim, index = 2 * c.index_dim;
  const std::int64_t keys = (2 * m.hidden + m.compress) * width + m.head_dim;
  if (!chosen) return keys;
  return keys + (2 * m.hidden + m.compress) * index + c.index_dim +
         c.index_heads * (m.latent.q_rank * c.index_dim + m.hidden);
}

// Weights of the matrices of one layer's attention.
std::int64_t AttentionMatrices(const Model& m) {
  const Latent& l = m.latent;
  if (l.kv_rank == 0) {
    const std::int64_t v_dim = l.v_dim > 0 ? l.v_dim : m.head_dim;
    const std::int64_t query = m.heads * m.head_dim, context = m.heads * v_dim;
    const std::int64_t gate = m.attention_gate ? query : 0;
    const std::int64_t key = m.borrows_keys ? 0 : m.kv_heads * m.head_dim;
    const std::int64_t value = m.keys_are_values || m.borrows_keys ? 0 : m.kv_heads * v_dim;
    if (m.compressed.any()) {
      return l.q_rank * (m.hidden + query) + m.hidden * key + GroupedOutput(m) + Compressor(m);
    }
    const std::int64_t asks = l.q_rank > 0 ? l.q_rank * (m.hidden + query) : m.hidden * query;
    return asks + m.hidden * (gate + key + value + context);
  }
  const std::int64_t query = m.heads * (l.nope_dim + l.rope_dim);
  const std::int64_t up = l.q_rank > 0 ? l.q_rank * (m.hidden + query) : m.hidden * query;
  const std::int64_t index = l.index_width(m.hidden) * l.index_heads * l.index_dim +
                             m.hidden * (l.index_dim * (l.sparse() ? 1 : 0) + l.index_heads);
  return up + index + m.hidden * (l.kv_rank + l.rope_dim) +
         l.kv_rank * m.heads * (l.nope_dim + l.v_dim) + m.heads * l.v_dim * m.hidden;
}

std::int64_t MlpMatrices(const Model& m, std::int64_t width) {
  return (m.activation == Activation::kSwiglu ? 3 : 2) * m.hidden * width;
}

std::int64_t MlpBiases(const Model& m, std::int64_t width) {
  if (!m.mlp_bias) return 0;
  return width * (m.activation == Activation::kSwiglu ? 2 : 1) + m.hidden;
}

// The indexer of blocks in front of attention: queries and one key, and their norms.
std::int64_t BlockIndexWeights(const Model& m, Kind kind) {
  const BlockIndex& b = m.block_index;
  if (b.heads == 0 || (kind & kExpertLayer) == 0) return 0;
  return m.hidden * (b.heads + 1) * b.dim + 2 * b.dim;
}

// What a layer has besides matrices.
std::int64_t AttentionVectors(const Model& m) {
  std::int64_t n = 0;
  if (m.attention_bias) {
    const std::int64_t queries = m.attention_gate ? 2 * m.heads : m.heads;
    const std::int64_t v_dim = m.latent.v_dim > 0 ? m.latent.v_dim : m.head_dim;
    const std::int64_t values = m.keys_are_values ? 0 : m.kv_heads * v_dim;
    n += (m.qkv_bias ? (queries + m.kv_heads) * m.head_dim + values : 0) +
         (m.projection_bias ? m.hidden : 0);
  }
  if (m.qk_norm) {
    const std::int64_t keys = m.borrows_keys ? 0 : m.qk_norm_whole ? m.kv_heads : 1;
    n += ((m.qk_norm_whole ? m.heads : 1) + keys) * m.head_dim;
  }
  if (m.sinks) n += m.heads;
  n += m.latent.q_rank + m.latent.kv_rank;  // their norms
  if (m.compressed.any()) n += m.head_dim;  // of the one key
  if (m.latent.sparse()) n += 2 * m.latent.index_dim + m.latent.index_norm(m.hidden);
  return n;
}

// All of an expert layer's feed-forward, with `experts` experts counted.
std::int64_t ExpertMlp(const Model& m, std::int64_t experts) {
  const Experts& e = m.experts;
  Model inner = m;
  if (e.latent > 0) inner.hidden = e.latent;
  return experts * (MlpMatrices(inner, e.ffn_hidden) + MlpBiases(inner, e.ffn_hidden)) +
         MlpMatrices(m, e.shared_ffn_hidden) + e.count * m.hidden + (e.router_bias ? e.count : 0) +
         2 * e.latent * m.hidden;
}

std::int64_t MambaMatrices(const Model& m) {
  return m.hidden * (m.mamba.projected() + m.mamba.inner()) +
         m.mamba.gate_rank * (m.mamba.inner() + m.mamba.decays()) +
         m.mamba.selected() * m.mamba.inner();
}

// Convolution and its bias; A, D and the bias of dt of every head; the gated norm. The delta net
// has neither the first bias nor D, and one norm for all heads; lightning attention the norm alone.
std::int64_t MambaVectors(const Model& m) {
  if (m.mamba.kind == Mixer::kLightning) return m.mamba.inner();
  if (m.mamba.kind == Mixer::kShortConv) return m.mamba.inner() * m.mamba.conv;
  // Of every channel: convolution with bias, bias of dt, A of its states, D.
  if (m.mamba.kind == Mixer::kMamba1) return m.mamba.inner() * (m.mamba.conv + m.mamba.state + 3);
  if (m.mamba.delta()) {
    const std::int64_t biases = m.mamba.decays() > 0 ? m.mamba.decays() : m.mamba.heads;
    return m.mamba.convolved() * m.mamba.conv + m.mamba.heads + biases + m.mamba.head_dim;
  }
  return m.mamba.convolved() * (m.mamba.conv + 1) + 3 * m.mamba.heads + m.mamba.inner();
}

std::int64_t LayerCount(const Model& model, Kind kind, std::int64_t experts) {
  const Model m = model.of_kind(kind);
  const std::int64_t norm = m.hidden * (m.norm == Norm::kLayerNorm ? 2 : 1);
  std::int64_t n = (kind & kTurnLayer) != 0 ? norm : 0;  // behind the encoder
  if ((kind & kCrossLayer) != 0) n += norm + AttentionMatrices(m) + AttentionVectors(m);
  const std::int64_t norms = norm * (m.post_norms ? 2 : 1);
  if ((kind & kNoMixer) == 0) {
    const bool mamba = (kind & kMambaLayer) != 0;
    n += norms + (mamba || m.mamba_beside ? MambaMatrices(m) + MambaVectors(m) : 0) +
         (mamba ? 0 : AttentionMatrices(m) + AttentionVectors(m) + BlockIndexWeights(m, kind));
  }
  // Around attention and feed-forward each: products of all streams, their biases, three scales.
  if (const std::int64_t h = m.hyper_streams; h > 0) {
    n += 2 * ((2 + h) * h * (h * m.hidden + 1) + 3);
  }
  if ((kind & kNoFeedForward) == 0) {
    n += (m.shared_norm ? 0 : norms) +
         ((kind & kExpertLayer) != 0 ? ExpertMlp(m, experts)
                                     : MlpMatrices(m, m.ffn_hidden) + MlpBiases(m, m.ffn_hidden));
    if (m.layer_embedding > 0) n += 2 * m.layer_embedding * m.hidden + norm;
    if (m.laurel_rank > 0) n += 2 * m.laurel_rank * m.hidden + norm;
    if (const std::int64_t a = m.altup_streams; a > 0) {
      n += a * m.hidden + a * a + a * a * a + m.hidden + norm;  // router, coefficients, scale
    }
  }
  return n;
}

// The learned query, products with biases, and the feed-forward with its norm.
std::int64_t PoolCount(const Model& m) {
  if (!m.attention_pool) return 0;
  const std::int64_t norm = m.hidden * (m.norm == Norm::kLayerNorm ? 2 : 1);
  return m.hidden + 4 * m.hidden * (m.hidden + 1) + norm + MlpMatrices(m, m.ffn_hidden) +
         MlpBiases(m, m.ffn_hidden);
}

std::int64_t Count(const Model& m, std::int64_t experts) {
  std::int64_t total = m.hidden * (m.norm == Norm::kLayerNorm ? 2 : 1) + m.vocab * m.hidden;
  if (m.patch_values > 0) total += m.hidden * (m.patch_values + 1) + PoolCount(m);
  std::map<Kind, std::int64_t> layers;
  for (std::int64_t l = 0; l < m.layers; ++l) ++layers[m.layer_kind(l)];
  for (const auto& [kind, n] : layers) total += n * LayerCount(m, kind, experts);
  for (std::int64_t i = 0; i < m.mtp_modules(); ++i) {
    total += 2 * m.hidden * m.hidden + 3 * m.hidden * (m.norm == Norm::kLayerNorm ? 2 : 1);
    for (const Kind kind : m.mtp_kinds()) total += LayerCount(m, kind, experts);
  }
  if (!m.tied_embeddings && m.patch_values == 0) total += m.vocab * m.hidden;
  if (m.position == Position::kLearned) {
    const std::int64_t encoder = m.encoder_layers == 0 ? 0
                                 : m.frame_values > 0  ? m.encoder_len
                                                       : m.max_position;
    total += (m.max_position + encoder) * m.hidden;
  }
  if (m.layer_embedding > 0) {
    total += m.layers * m.layer_embedding * (m.vocab + m.hidden) + m.layer_embedding;
  }
  if (const std::int64_t h = m.hyper_streams; h > 0) total += h * (h * m.hidden + 1) + 1;
  if (m.altup_streams > 0) total += 2 * (m.altup_streams - 1) * m.hidden * m.hidden;
  if (m.frame_values > 0) total += 3 * (m.frame_values + m.hidden) * m.hidden + 2 * m.hidden;
  if (m.embedding_norm || m.encoder) total += m.hidden * (m.norm == Norm::kLayerNorm ? 2 : 1);
  // BERT: two token types; before the logits a linear layer, whose norm is counted, and a bias.
  if (m.encoder) total += 2 * m.hidden + m.hidden * (m.hidden + 1) + m.vocab;
  return total;
}

// Multiply-adds of a token in the scan of one Mamba layer: C·Bᵀ of a chunk by group; by head its
// causal half times x, the state that x and B add, the state that C reads (section 6 there).
// Lightning attention the same, a group a head. The delta net has three such halves by the key
// (keys among each other, and with queries; the writes' keys) and two by the value, and reads the
// state for its writes, too.
double ScanProducts(const Mamba& m) {
  const auto chunk = static_cast<double>(m.chunk);
  const auto keys = static_cast<double>(m.heads * m.state), values = static_cast<double>(m.inner());
  if (m.kind == Mixer::kShortConv) return 0;
  // A state decays, takes x·B and is read by C.
  if (m.kind == Mixer::kMamba1) return 3 * values * static_cast<double>(m.state);
  if (m.delta()) {
    return chunk / 2 * (3 * keys + 2 * values) + 3 * values * static_cast<double>(m.state);
  }
  if (m.kind == Mixer::kLightning) {
    return chunk / 2 * (keys + values) + 2 * values * static_cast<double>(m.state);
  }
  return chunk * static_cast<double>(m.groups * m.state) +
         static_cast<double>(m.inner()) * (chunk / 2 + 2 * static_cast<double>(m.state));
}

// Keys that a query sees in the mean: its window, and compressed ones of half the sequence.
double CompressedSeen(const Model& m, double s) {
  const auto w = static_cast<double>(m.compressed.window);
  const double near = w < s ? w - w * w / (2 * s) : s / 2;
  if (m.compress == 0) return near;
  const double far = s / static_cast<double>(m.compress);  // at the end
  const auto top = static_cast<double>(m.compressed.index_topk);
  const bool chosen = m.compress == m.compressed.sparse_rate && top < far;
  return near + (chosen ? top - top * top / (2 * far) : far / 2);
}

// What a letter of Model::pattern says.
Kind KindOfLetter(char letter) {
  switch (letter) {
    case 'M':
      return kMambaLayer | kNoFeedForward;
    case 'E':
      return kExpertLayer | kNoMixer;
    case '-':
      return kNoMixer;
    case 'D':
      return kDenseLayer;
    case 'd':
      return kWindowLayer;
    case 'X':
      return kExpertLayer;
    case 'x':
      return kExpertLayer | kWindowLayer;
    case 'm':
      return kMambaLayer;
    case 'e':
      return kExpertLayer | kMambaLayer;
    default:
      return kNoFeedForward;
  }
}

}  // namespace

Kind Model::layer_kind(std::int64_t layer) const {
  if (net != nullptr) return net->order[static_cast<std::size_t>(layer)];
  const auto sized = static_cast<Kind>(
      size_of.empty() ? 0 : size_of[static_cast<std::size_t>(layer)] << kSizesShift);
  if (!pattern.empty()) return KindOfLetter(pattern[static_cast<std::size_t>(layer)]) | sized;
  Kind kind = sized;
  if (encoder_layers > 0) {
    if (layer < encoder_layers) return kind | kEncoderLayer;
    return kind | kCrossLayer | (layer == encoder_layers ? kTurnLayer : 0);
  }
  if (experts.count > 0 && layer >= experts.first_dense &&
      (layer - experts.first_dense + 1) % experts.every == 0) {
    kind |= kExpertLayer;
  }
  const bool full = full_every > 0 && (layer + 1) % full_every == 0;
  if (window > 0 && !full) kind |= kWindowLayer;
  if (window == 0 && mamba.heads > 0 && full_every > 0 && !full) kind |= kMambaLayer;
  return kind;
}

Model Model::of_kind(Kind kind) const {
  Model m = *this;
  if (const std::size_t at = net == nullptr ? SizesOf(kind) : 0; at > 0) {
    const LayerSizes& own = sizes[at - 1];
    if (own.heads.queries > 0) m.heads = own.heads.queries;
    if (own.heads.keys > 0) m.kv_heads = own.heads.keys;
    if (own.heads.dim > 0) m.head_dim = own.heads.dim;
    if (own.ffn_hidden > 0) m.ffn_hidden = own.ffn_hidden;
    m.borrows_keys = own.borrows_keys > 0;
    m.compress = own.compress;
  }
  const bool windowed = (kind & kWindowLayer) != 0;
  if (windowed && window_heads.queries > 0) m.heads = window_heads.queries;
  if (windowed && window_heads.keys > 0) m.kv_heads = window_heads.keys;
  if (windowed && window_heads.dim > 0) m.head_dim = window_heads.dim;
  m.keys_are_values &= !windowed;
  return m;
}

Status Model::SetSizes(const std::vector<LayerSizes>& of_layers) {
  sizes.clear();
  size_of.clear();
  for (LayerSizes own : of_layers) {
    if (own.heads.queries == heads) own.heads.queries = 0;
    if (own.heads.keys == kv_heads) own.heads.keys = 0;
    if (own.heads.dim == head_dim) own.heads.dim = 0;
    if (own.ffn_hidden == ffn_hidden) own.ffn_hidden = 0;
    std::size_t at = 0;
    if (own != LayerSizes{}) {
      const auto known = std::ranges::find(sizes, own);
      at = static_cast<std::size_t>(known - sizes.begin()) + 1;
      if (known == sizes.end()) sizes.push_back(own);
    }
    size_of.push_back(static_cast<std::uint16_t>(at));
  }
  if (sizes.empty()) size_of.clear();
  if (sizes.size() <= kMaxSizes) return {};
  return InvalidInput("{}: layers of {} different sizes; at most {} are modelled", name,
                      sizes.size() + 1, kMaxSizes + 1);
}

std::vector<Kind> Model::mtp_kinds() const {
  const Kind last = layer_kind(layers - 1);
  if ((last & (kNoMixer | kNoFeedForward)) == 0) return {last};
  const bool routed = experts.count > 0;
  return {kNoFeedForward, static_cast<Kind>(kNoMixer | (routed ? kExpertLayer : 0))};
}

std::int64_t Model::expert_layers() const {
  if (experts.count == 0) return 0;
  std::int64_t n = 0;
  for (std::int64_t l = 0; l < layers; ++l) n += layer_kind(l) & kExpertLayer;
  return n;
}

std::int64_t Model::parameters() const {
  return net != nullptr ? net->parameters() : Count(*this, experts.count);
}
std::int64_t Model::active_parameters() const {
  return net != nullptr ? net->parameters() : Count(*this, experts.top_k);
}

double Model::flops_per_sequence(std::int64_t seq_len) const {
  if (net != nullptr) return net->flops_per_image();
  const auto s = static_cast<double>(seq_len);
  const std::int64_t inside = experts.latent > 0 ? experts.latent : hidden;
  const std::int64_t gates = activation == Activation::kSwiglu ? 3 : 2;
  const std::int64_t routed = gates * experts.top_k * inside * experts.ffn_hidden +
                              MlpMatrices(*this, experts.shared_ffn_hidden) +
                              (experts.count + 2 * experts.latent) * hidden;
  const auto around = static_cast<double>(encoder_tokens(seq_len));
  // Scores and context: s²·q each way of two products, half of it under the causal mask.
  const auto layer = [&](Kind kind) {  // multiply-adds of a token
    const Model m = of_kind(kind);
    const std::int64_t qk = latent.kv_rank == 0 ? m.head_dim : latent.nope_dim + latent.rope_dim;
    const std::int64_t widths = qk + (latent.v_dim > 0 ? latent.v_dim : m.head_dim);
    double products = 0;
    const bool mixes = (kind & kNoMixer) == 0, scans = (kind & kMambaLayer) != 0;
    if (scans || (mixes && mamba_beside)) {
      products += static_cast<double>(MambaMatrices(*this)) + ScanProducts(mamba);
    }
    if (mixes && !scans) {
      const auto w = static_cast<double>(window);
      const bool narrow = (kind & kWindowLayer) != 0 && w < s;
      const double seen = chunked_window ? w / 2 : w - w * w / (2 * s);
      const double keys = (kind & kEncoderLayer) != 0 ? around
                          : encoder || bidirectional  ? s
                          : narrow                    ? seen
                                                      : s / 2;
      const bool blocks = block_index.heads > 0 && (kind & kExpertLayer) != 0;
      const auto top = static_cast<double>(blocks ? block_index.tokens() : latent.index_topk);
      const double chosen = compressed.any()                         ? CompressedSeen(m, s)
                            : (blocks || latent.sparse()) && top < s ? top - top * top / (2 * s)
                                                                     : keys;
      products += static_cast<double>(AttentionMatrices(m)) +
                  chosen * static_cast<double>(m.heads * widths) +
                  keys * static_cast<double>(latent.index_heads * latent.index_dim);
      if (m.compress > 0 && m.compress == compressed.sparse_rate) {
        products += s / 2 / static_cast<double>(m.compress) *
                    static_cast<double>(compressed.index_heads * compressed.index_dim);
      }
      if (blocks) {
        products += static_cast<double>(BlockIndexWeights(m, kind)) +
                    keys * static_cast<double>(block_index.heads * block_index.dim);
      }
    }
    if ((kind & kCrossLayer) != 0) {  // keys and values of the encoder's tokens
      const std::int64_t asks = 2 * m.heads * m.head_dim * hidden;
      const std::int64_t answers = 2 * m.kv_heads * m.head_dim * hidden;
      products += static_cast<double>(asks) + around * static_cast<double>(m.heads * widths) +
                  around / s * static_cast<double>(answers);
    }
    if ((kind & kNoFeedForward) != 0) return products;
    products +=
        static_cast<double>((kind & kExpertLayer) != 0 ? routed : MlpMatrices(m, m.ffn_hidden));
    // Its part is projected from the words' embedding, and the layer's output to it and back.
    products += static_cast<double>(3 * layer_embedding * hidden);
    // A product from all streams to all, beside the coefficients'.
    products +=
        static_cast<double>(2 * (2 + hyper_streams) * hyper_streams * hyper_streams * hidden);
    products += static_cast<double>(2 * laurel_rank * hidden +
                                    altup_streams * (altup_streams + 2) * hidden);
    return products;
  };
  double products = static_cast<double>(vocab * hidden);
  if (patch_values > 0) {  // of an image, its output; of a patch, what it comes from
    products = products / s + static_cast<double>(patch_values * hidden);
    if (attention_pool)
      products += static_cast<double>(2 * hidden * hidden);  // its keys and values
  }
  if (encoder) products += static_cast<double>(hidden * hidden);
  if (altup_streams > 0) {
    products += static_cast<double>(2 * (altup_streams - 1) * hidden * hidden);
  }
  if (frame_values > 0) {  // two frames a token
    products += around / s * static_cast<double>(3 * (2 * frame_values + hidden) * hidden);
  }
  std::optional<std::pair<Kind, double>> last;  // most layers are as the one before
  for (std::int64_t l = 0; l < layers; ++l) {
    const Kind kind = layer_kind(l);
    if (!last || last->first != kind) last = {kind, layer(kind)};
    products += (kind & kEncoderLayer) != 0 ? around / s * last->second : last->second;
  }
  for (std::int64_t i = 0; i < mtp_layers; ++i) {
    products += static_cast<double>((vocab + 2 * hidden) * hidden);
    for (const Kind kind : mtp_kinds()) products += layer(kind);
  }
  return 3.0 * 2.0 * s * products;
}

}  // namespace orrery::workload
