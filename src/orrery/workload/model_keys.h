// A model's sizes and switches under the names that job files and data/models.yaml use.
#pragma once

#include <array>
#include <string_view>

#include "orrery/base/named.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

// A size that is left out of a resolved configuration when the model has nothing of its kind.
struct ModelSize {
  std::string_view key;
  std::int64_t& (*of)(Model&);
  bool (*kept)(const Model&);
};
inline bool HasExperts(const Model& m) { return m.experts.count > 0; }
inline bool HasWindows(const Model& m) { return m.window > 0; }
inline bool HasFullLayers(const Model& m) {
  return HasWindows(m) || (m.mamba.heads > 0 && m.full_every > 0);
}
inline bool HasWindowHeads(const Model& m) { return m.window_heads.any(); }
inline bool HasValueDim(const Model& m) { return m.latent.v_dim > 0; }
inline bool HasLatent(const Model& m) { return m.latent.kv_rank > 0; }
inline bool HasQueryRank(const Model& m) { return HasLatent(m) || m.latent.q_rank > 0; }
inline bool HasPatches(const Model& m) { return m.patch_values > 0; }
inline bool HasEncoder(const Model& m) { return m.encoder_layers > 0; }
inline bool HasIndex(const Model& m) { return m.latent.index_heads > 0; }
inline bool HasBlocks(const Model& m) { return m.block_index.heads > 0; }
inline bool HasCompressed(const Model& m) { return m.compressed.any(); }
inline bool HasMamba(const Model& m) { return m.mamba.heads > 0; }
inline bool HasMtp(const Model& m) { return m.mtp_layers > 0; }
inline constexpr ModelSize kModelSizes[] = {
    {"patch_values", [](Model& m) -> std::int64_t& { return m.patch_values; }, HasPatches},
    {"layer_embedding", [](Model& m) -> std::int64_t& { return m.layer_embedding; },
     [](const Model& m) { return m.layer_embedding > 0; }},
    {"altup_streams", [](Model& m) -> std::int64_t& { return m.altup_streams; },
     [](const Model& m) { return m.altup_streams > 0; }},
    {"laurel_rank", [](Model& m) -> std::int64_t& { return m.laurel_rank; },
     [](const Model& m) { return m.laurel_rank > 0; }},
    {"encoder_layers", [](Model& m) -> std::int64_t& { return m.encoder_layers; }, HasEncoder},
    {"encoder_len", [](Model& m) -> std::int64_t& { return m.encoder_len; }, HasEncoder},
    {"frame_values", [](Model& m) -> std::int64_t& { return m.frame_values; }, HasEncoder},
    {"mtp_layers", [](Model& m) -> std::int64_t& { return m.mtp_layers; }, HasMtp},
    {"experts", [](Model& m) -> std::int64_t& { return m.experts.count; }, HasExperts},
    {"expert_top_k", [](Model& m) -> std::int64_t& { return m.experts.top_k; }, HasExperts},
    {"expert_ffn_hidden", [](Model& m) -> std::int64_t& { return m.experts.ffn_hidden; },
     HasExperts},
    {"shared_ffn_hidden", [](Model& m) -> std::int64_t& { return m.experts.shared_ffn_hidden; },
     HasExperts},
    {"expert_latent", [](Model& m) -> std::int64_t& { return m.experts.latent; }, HasExperts},
    {"first_dense_layers", [](Model& m) -> std::int64_t& { return m.experts.first_dense; },
     HasExperts},
    {"expert_every", [](Model& m) -> std::int64_t& { return m.experts.every; }, HasExperts},
    {"window", [](Model& m) -> std::int64_t& { return m.window; }, HasWindows},
    {"full_every", [](Model& m) -> std::int64_t& { return m.full_every; }, HasFullLayers},
    {"window_heads", [](Model& m) -> std::int64_t& { return m.window_heads.queries; },
     HasWindowHeads},
    {"window_kv_heads", [](Model& m) -> std::int64_t& { return m.window_heads.keys; },
     HasWindowHeads},
    {"window_head_dim", [](Model& m) -> std::int64_t& { return m.window_heads.dim; },
     HasWindowHeads},
    {"kv_lora_rank", [](Model& m) -> std::int64_t& { return m.latent.kv_rank; }, HasLatent},
    {"q_lora_rank", [](Model& m) -> std::int64_t& { return m.latent.q_rank; }, HasQueryRank},
    {"qk_nope_head_dim", [](Model& m) -> std::int64_t& { return m.latent.nope_dim; }, HasLatent},
    {"qk_rope_head_dim", [](Model& m) -> std::int64_t& { return m.latent.rope_dim; }, HasLatent},
    {"v_head_dim", [](Model& m) -> std::int64_t& { return m.latent.v_dim; }, HasValueDim},
    {"index_n_heads", [](Model& m) -> std::int64_t& { return m.latent.index_heads; }, HasIndex},
    {"index_head_dim", [](Model& m) -> std::int64_t& { return m.latent.index_dim; }, HasIndex},
    {"index_topk", [](Model& m) -> std::int64_t& { return m.latent.index_topk; }, HasIndex},
    {"block_index_heads", [](Model& m) -> std::int64_t& { return m.block_index.heads; }, HasBlocks},
    {"block_index_dim", [](Model& m) -> std::int64_t& { return m.block_index.dim; }, HasBlocks},
    {"block_index_size", [](Model& m) -> std::int64_t& { return m.block_index.size; }, HasBlocks},
    {"block_index_topk", [](Model& m) -> std::int64_t& { return m.block_index.topk; }, HasBlocks},
    {"compressed_window", [](Model& m) -> std::int64_t& { return m.compressed.window; },
     HasCompressed},
    {"compressed_sparse_rate", [](Model& m) -> std::int64_t& { return m.compressed.sparse_rate; },
     HasCompressed},
    {"compressed_index_heads", [](Model& m) -> std::int64_t& { return m.compressed.index_heads; },
     HasCompressed},
    {"compressed_index_dim", [](Model& m) -> std::int64_t& { return m.compressed.index_dim; },
     HasCompressed},
    {"compressed_index_topk", [](Model& m) -> std::int64_t& { return m.compressed.index_topk; },
     HasCompressed},
    {"out_groups", [](Model& m) -> std::int64_t& { return m.compressed.out_groups; },
     HasCompressed},
    {"out_rank", [](Model& m) -> std::int64_t& { return m.compressed.out_rank; }, HasCompressed},
    {"hyper_streams", [](Model& m) -> std::int64_t& { return m.hyper_streams; },
     [](const Model& m) { return m.hyper_streams > 0; }},
    {"mamba_heads", [](Model& m) -> std::int64_t& { return m.mamba.heads; }, HasMamba},
    {"mamba_head_dim", [](Model& m) -> std::int64_t& { return m.mamba.head_dim; }, HasMamba},
    {"mamba_state", [](Model& m) -> std::int64_t& { return m.mamba.state; }, HasMamba},
    {"mamba_groups", [](Model& m) -> std::int64_t& { return m.mamba.groups; }, HasMamba},
    {"mamba_conv", [](Model& m) -> std::int64_t& { return m.mamba.conv; }, HasMamba},
    {"mamba_chunk", [](Model& m) -> std::int64_t& { return m.mamba.chunk; }, HasMamba},
    {"mamba_gate_rank", [](Model& m) -> std::int64_t& { return m.mamba.gate_rank; },
     [](const Model& m) { return m.mamba.gate_rank > 0; }},
};

// Switches that a resolved configuration leaves out while they have their usual value.
struct ModelSwitch {
  std::string_view key;
  bool Model::*member;
  bool usual;
};
inline constexpr ModelSwitch kModelSwitches[] = {
    {"qk_norm", &Model::qk_norm, false},
    {"qk_norm_whole", &Model::qk_norm_whole, false},
    {"post_norms", &Model::post_norms, false},
    {"chunked_window", &Model::chunked_window, false},
    {"keys_are_values", &Model::keys_are_values, false},
    {"mtp_repeats", &Model::mtp_repeats, false},
    {"sinks", &Model::sinks, false},
    {"mamba_beside", &Model::mamba_beside, false},
    {"bidirectional", &Model::bidirectional, false},
    {"attention_pool", &Model::attention_pool, false},
    {"attention_gate", &Model::attention_gate, false},
    {"scaled_rotary", &Model::scaled_rotary, false},
    {"clamped_activation", &Model::clamped_activation, false},
    {"qkv_bias", &Model::qkv_bias, true},
    {"projection_bias", &Model::projection_bias, true},
    {"encoder", &Model::encoder, false},
    {"parallel_block", &Model::parallel_block, false},
    {"shared_norm", &Model::shared_norm, false},
    {"embedding_norm", &Model::embedding_norm, false},
};

inline constexpr std::array<Named<Activation>, 4> kActivations = {
    {{"gelu", Activation::kGelu},
     {"swiglu", Activation::kSwiglu},
     {"squared_relu", Activation::kSquaredRelu},
     {"relu", Activation::kRelu}}};
inline constexpr std::array<Named<Mixer>, 6> kMixers = {{{"mamba2", Mixer::kMamba2},
                                                         {"delta_net", Mixer::kDeltaNet},
                                                         {"lightning", Mixer::kLightning},
                                                         {"kimi_delta", Mixer::kKimiDelta},
                                                         {"short_conv", Mixer::kShortConv},
                                                         {"mamba1", Mixer::kMamba1}}};
inline constexpr std::array<Named<Position>, 4> kPositions = {{{"learned", Position::kLearned},
                                                               {"rotary", Position::kRotary},
                                                               {"none", Position::kNone},
                                                               {"relative", Position::kRelative}}};
}  // namespace orrery::workload
