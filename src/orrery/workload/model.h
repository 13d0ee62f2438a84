// A model as its config describes it: shapes, not names of frameworks.
//
// Transformers: dense (GPT, OPT, BLOOM, Falcon, Llama, Qwen families; BERT as encoder) and mixtures
// of experts (Mixtral, Qwen3, DeepSeek, GPT-OSS, Grok, Llama 4, Kimi), with grouped or latent
// attention; hybrids of Mamba-2, attention and feed-forward layers (Nemotron-H, Nemotron 3),
// also side by side (Falcon-H1); encoders of images (ViT, SigLIP, CLIP). A kind that is missing is
// refused, never replaced by a parameter count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::workload {

struct ConvNet;  // conv_net.h

enum class Norm : std::uint8_t { kLayerNorm, kRmsNorm };
enum class Activation : std::uint8_t { kGelu, kSwiglu, kSquaredRelu, kRelu };
// Relative: a learned number a head and distance, added to the scores (T5).
enum class Position : std::uint8_t { kLearned, kRotary, kNone, kRelative };

// A mixture of experts in place of the feed-forward layer. count 0: there is none.
struct Experts {
  std::int64_t count = 0, top_k = 0;
  std::int64_t ffn_hidden = 0;         // of one expert
  std::int64_t shared_ffn_hidden = 0;  // of all shared experts together; 0: none
  std::int64_t first_dense = 0;        // layers at the front that keep the dense feed-forward
  std::int64_t every = 1;              // of the rest, the last of every so many has experts
  bool router_bias = false;
  // Experts work on tokens projected to this width (Nemotron 3's LatentMoE); 0: on the hidden
  // state.
  std::int64_t latent = 0;
  friend bool operator==(const Experts&, const Experts&) = default;
};

// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1). kv_rank 0: ordinary attention, of
// which v_dim counts, where 0 says that values' heads are as wide as keys', and q_rank: queries are
// projected by way of so many values, behind a norm (Step-3's matrix factorisation attention).
struct Latent {
  std::int64_t q_rank = 0;   // 0: queries are projected from the hidden state directly
  std::int64_t kv_rank = 0;  // width of the compressed keys and values
  std::int64_t nope_dim = 0, rope_dim = 0;  // of a query's and key's head: without and with rotary
  std::int64_t v_dim = 0;                   // of a value's head
  // An indexer in front that chooses the tokens a query sees (DeepSeek-V3.2, 2025); 0: there is
  // none.
  std::int64_t index_heads = 0, index_dim = 0, index_topk = 0;
  bool sparse() const { return index_heads > 0; }
  // What its queries are projected from: the compressed ones, else the layer's input behind a
  // LayerNorm (Mistral Large 4).
  std::int64_t index_width(std::int64_t hidden) const { return q_rank > 0 ? q_rank : hidden; }
  std::int64_t index_norm(std::int64_t hidden) const {
    return sparse() && q_rank == 0 ? 2 * hidden : 0;
  }
  bool queries_alone() const { return kv_rank == 0 && q_rank > 0; }
  friend bool operator==(const Latent&, const Latent&) = default;
};

// Blocks of keys that a query of ordinary attention sees, chosen by a small indexer in layers with
// experts (MiniMax-M3): the `topk` best of blocks of `size` keys, by its largest score over their
// tokens, one choice a head of it. heads 0: there is none.
struct BlockIndex {
  std::int64_t heads = 0, dim = 0, size = 0, topk = 0;
  std::int64_t tokens() const { return size * topk; }  // that a query sees
  friend bool operator==(const BlockIndex&, const BlockIndex&) = default;
};

// Attention to the last `window` keys and to compressed ones (DeepSeek-V4, 2026, section 2.3): a
// layer whose sizes say `compress` makes one of so many keys. Where that is `sparse_rate` an
// indexer chooses the index_topk best (compressed sparse attention), else all are seen (heavily
// compressed attention); layers without `compress` see the window alone. The output is projected in
// out_groups groups of heads to out_rank values each, then to the hidden size. out_groups 0: none
// of this.
struct CompressedKeys {
  std::int64_t window = 0, sparse_rate = 0;
  std::int64_t index_heads = 0, index_dim = 0, index_topk = 0;
  std::int64_t out_groups = 0, out_rank = 0;
  bool any() const { return out_groups > 0; }
  friend bool operator==(const CompressedKeys&, const CompressedKeys&) = default;
};

// What mixes tokens with a state a head in place of attention. Mamba-2 (Dao and Gu 2024,
// "Transformers are SSMs"); the gated delta net (Yang et al. 2025, Qwen3-Next); lightning attention
// (Qin et al. 2024, MiniMax-01); Kimi delta attention (Kimi Linear, arXiv 2510.26692), a delta net
// whose keys' channels decay each by itself; a short convolution between two gates, without a state
// (LFM2); the first Mamba (Gu and Dao 2023), whose channels decay each by itself: heads of width 1.
enum class Mixer : std::uint8_t { kMamba2, kDeltaNet, kLightning, kKimiDelta, kShortConv, kMamba1 };

// Such a mixer. x, B and C of Mamba are values, keys and queries of the others, z their gate. heads
// 0: the model has none.
struct Mamba {
  Mixer kind = Mixer::kMamba2;
  std::int64_t heads = 0, head_dim = 0;  // inner width: heads · head_dim
  std::int64_t state = 0;                // of a head and channel: the width of a key
  std::int64_t groups = 0;               // of heads that share B and C
  std::int64_t conv = 4;                 // taps of the causal convolution; lightning: none
  std::int64_t chunk = 128;              // tokens of a chunk of the scan
  // Kimi: gate and decays, the first Mamba: dt, by way of so many values; 0: not.
  std::int64_t gate_rank = 0;

  // Numbers a head: dt; the delta net's write strength and decay; lightning decays by the head.
  std::int64_t scalars() const {
    return kind == Mixer::kMamba2 || kind == Mixer::kKimiDelta ? 1
           : kind == Mixer::kDeltaNet                          ? 2
                                                               : 0;
  }
  std::int64_t inner() const { return heads * head_dim; }
  // Channels: x, B, C.
  std::int64_t convolved() const {
    return kind == Mixer::kShortConv || kind == Mixer::kMamba1 ? inner()
                                                               : inner() + 2 * groups * state;
  }
  std::int64_t decays() const { return kind == Mixer::kKimiDelta ? heads * state : 0; }
  std::int64_t gates() const { return gate_rank > 0 ? 2 * gate_rank : inner() + decays(); }
  std::int64_t projected() const {
    return kind == Mixer::kMamba1      ? 2 * inner()
           : kind == Mixer::kShortConv ? 3 * inner()
                                       : gates() + convolved() + scalars() * heads;
  }
  // The first Mamba: what x is projected to for the scan, dt by way of so many values, B and C.
  std::int64_t selected() const { return kind == Mixer::kMamba1 ? gate_rank + 2 * state : 0; }
  // The delta nets: one norm for all heads, no bias of the convolution.
  bool delta() const { return kind == Mixer::kDeltaNet || kind == Mixer::kKimiDelta; }
  friend bool operator==(const Mamba&, const Mamba&) = default;
};

// What tells one layer of a model from another, as bits; above them stands which sizes of
// Model::sizes the layer has.
using Kind = std::uint16_t;
enum LayerKind : Kind {
  kDenseLayer = 0,
  kExpertLayer = 1,
  kWindowLayer = 2,
  kMambaLayer = 4,      // in place of attention
  kNoMixer = 8,         // a feed-forward alone
  kNoFeedForward = 16,  // attention or Mamba alone
  kBf16Layer = 32,      // linear layers in bf16 though the plan has a low precision
  kKeepingLayer = 64,   // runs nothing again though the plan recomputes layers
  kEncoderLayer = 128,  // of the encoder in front of a decoder
  kCrossLayer = 256,    // attends to the encoder's output, too
  kTurnLayer = 512,     // the decoder's first
};
inline constexpr int kSizesShift = 10;
inline constexpr std::size_t kMaxSizes = 63;
// Which of Model::sizes, from 1; 0: the model's own.
constexpr std::size_t SizesOf(Kind kind) { return kind >> kSizesShift; }

// Heads of attention. 0: as those of the other layers.
struct Heads {
  std::int64_t queries = 0, keys = 0, dim = 0;
  bool any() const { return queries > 0 || keys > 0 || dim > 0; }
  friend bool operator==(const Heads&, const Heads&) = default;
};

// Sizes that some layers have in place of the model's own. 0: as the model's.
struct LayerSizes {
  Heads heads;
  std::int64_t ffn_hidden = 0;
  std::int64_t compress = 0;      // CompressedKeys: keys of a compressed one
  std::int64_t borrows_keys = 0;  // 1: keys and values are those of an earlier layer
  friend bool operator==(const LayerSizes&, const LayerSizes&) = default;
};

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
  double dropout = 0;                            // 0: the dropout kernels are absent
  bool qkv_bias = true, projection_bias = true;  // either may be absent; only with attention_bias
  bool encoder = false;  // BERT: no causal mask, norms after the residual, masked-token head
  // Attention and feed-forward read the same input and are added to it together (Falcon, GPT-NeoX);
  // shared_norm: after one norm, else each has its own.
  bool parallel_block = false, shared_norm = false;
  bool embedding_norm = false;  // of the embeddings' sum
  bool qk_norm = false;         // queries and keys are normalised head by head
  bool qk_norm_whole = false;   // with qk_norm: each over all of its heads (OLMo 2)
  bool post_norms = false;      // norms behind attention and feed-forward, too (Gemma 2, GLM-4)
  bool sinks = false;           // a learned logit a head in the softmax
  // The context is times the sigmoid of a gate as wide as the queries (Qwen3-Next).
  bool attention_gate = false;
  // Rotary angles are times a factor (YaRN's), which Transformer Engine's fused kernel does not
  // take; a gated activation's halves are clamped before it (GPT-OSS).
  bool scaled_rotary = false, clamped_activation = false;
  std::int64_t window = 0;  // sliding window; 0: none
  // With a window, or a mixer and no pattern: the last of every so many layers is full attention.
  std::int64_t full_every = 0;
  // Windows begin at multiples of their length (Llama 4's chunks), in place of following a query.
  bool chunked_window = false;
  Heads window_heads;  // of layers with a window (Gemma 4, MiMo-V2, Step-3.5)
  // In layers without a window keys are the values, too: one projection for both (Gemma 4).
  bool keys_are_values = false;
  // Layers of attention have Mamba, too, side by side behind one norm (Falcon-H1).
  bool mamba_beside = false;
  // Attention sees all tokens; norms stand before the parts (encoders of images).
  bool bidirectional = false;
  // Values of a patch, which a linear layer takes in place of words (a channel's pixels times
  // channels); the output layer then makes `vocab` values of each image. 0: words.
  std::int64_t patch_values = 0;
  // Of patches: the image is what attention from one learned query and a feed-forward make of them
  // (SigLIP); else the first token.
  bool attention_pool = false;
  Experts experts;
  Latent latent;
  BlockIndex block_index;
  CompressedKeys compressed;
  std::int64_t compress = 0;  // of a layer (of_kind)
  // Streams of residuals that attention's and the feed-forward's input is made of, and that their
  // output is spread over (manifold-constrained hyper-connections, Xie et al. 2026). 0: one.
  std::int64_t hyper_streams = 0;
  Mamba mamba;
  // Modules that predict one further token each (DeepSeek-V3, 2024, section 2.2): embedding, a
  // projection from twice the width, a layer, the output layer and its loss. Repeats: all of them
  // are one module, run again (Nemotron 3 Super).
  std::int64_t mtp_layers = 0;
  bool mtp_repeats = false;
  // A letter a layer, as Nemotron-H's hybrid_override_pattern: M Mamba, * attention, -
  // feed-forward, E experts. Layers of two parts: D attention and a feed-forward, X attention and
  // experts, d and x the same with a window, m Mamba and a feed-forward, e Mamba and experts.
  // Empty: every layer is attention and a feed-forward, by the numbers above.
  std::string pattern;
  // Layers whose sizes differ (Nemotron's searched ones, OpenELM): the distinct sizes, and for each
  // layer which of them it has, from 1, or 0. Empty: all layers have the model's own.
  std::vector<LayerSizes> sizes;
  std::vector<std::uint16_t> size_of;
  bool borrows_keys = false;  // of a layer (of_kind)
  // Width of an embedding of its own that every layer adds behind its feed-forward (Gemma 4 E2B and
  // E4B); 0: there are none.
  std::int64_t layer_embedding = 0;
  // Streams of residuals: a layer predicts all from all, works on the first and corrects all by its
  // output (AltUp, Gemma 3n). 0: one.
  std::int64_t altup_streams = 0;
  // Rank of a product of a layer's normalised input that is added beside attention (LAuReL, Gemma
  // 3n); 0: there is none.
  std::int64_t laurel_rank = 0;
  // Of the layers so many at the front are an encoder's, to whose output each of the others
  // attends besides (T5, Whisper). 0: all are one stack.
  std::int64_t encoder_layers = 0;
  std::int64_t encoder_len = 0;  // the encoder's tokens; 0: as many as the sequence has
  // Values of a frame of sound; two convolutions make a token of two frames. 0: words.
  std::int64_t frame_values = 0;
  // A convolutional network's units are the layers; nothing else above counts. Null: a transformer.
  const ConvNet* net = nullptr;
  std::string source;

  Kind layer_kind(std::int64_t layer) const;  // bits of LayerKind and sizes; a network's unit
  Model of_kind(Kind kind) const;             // sizes as layers of this kind have them
  std::int64_t encoder_tokens(std::int64_t seq_len) const {
    return encoder_layers == 0 ? 0 : encoder_len > 0 ? encoder_len : seq_len;
  }
  // Gives layers sizes, one a layer; sizes that say the model's own are none.
  Status SetSizes(const std::vector<LayerSizes>& layers);
  std::int64_t expert_layers() const;  // how many layers have experts
  // Layers of a module that predicts a further token: as the model's last; in hybrids attention,
  // then experts or a feed-forward.
  std::vector<Kind> mtp_kinds() const;
  std::int64_t mtp_modules() const { return mtp_repeats && mtp_layers > 0 ? 1 : mtp_layers; }

  std::int64_t parameters() const;         // all of them, embeddings included once when tied
  std::int64_t active_parameters() const;  // those that one token meets
  // Forward and backward of one sequence, no recompute; attention causal (half the square).
  double flops_per_sequence(std::int64_t seq_len) const;
};

struct ModelPreset {
  std::string name, description;
};
// What is built in (models.h).
std::span<const ModelPreset> ModelPresets();
Result<Model> FindModel(std::string_view name);  // unknown: nearest valid names
Status Validate(const Model& model);

}  // namespace orrery::workload
