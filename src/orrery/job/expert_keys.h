// Keys of models with experts, latent attention, windows and Mamba layers, as plan_keys.h.
#pragma once

#include <array>
#include <string_view>

#include "orrery/job/plan_keys.h"
#include "orrery/workload/model.h"

namespace orrery::job {

// A size that is left out of a resolved configuration when the model has nothing of its kind.
struct ModelSize {
  std::string_view key;
  std::int64_t& (*of)(workload::Model&);
  bool (*kept)(const workload::Model&);
};
inline bool HasExperts(const workload::Model& m) { return m.experts.count > 0; }
inline bool HasWindows(const workload::Model& m) { return m.window > 0; }
inline bool HasLatent(const workload::Model& m) { return m.latent.kv_rank > 0; }
inline bool HasMamba(const workload::Model& m) { return m.mamba.heads > 0; }
inline bool HasMtp(const workload::Model& m) { return m.mtp_layers > 0; }
inline constexpr ModelSize kModelSizes[] = {
    {"mtp_layers", [](workload::Model& m) -> std::int64_t& { return m.mtp_layers; }, HasMtp},
    {"experts", [](workload::Model& m) -> std::int64_t& { return m.experts.count; }, HasExperts},
    {"expert_top_k", [](workload::Model& m) -> std::int64_t& { return m.experts.top_k; },
     HasExperts},
    {"expert_ffn_hidden", [](workload::Model& m) -> std::int64_t& { return m.experts.ffn_hidden; },
     HasExperts},
    {"shared_ffn_hidden",
     [](workload::Model& m) -> std::int64_t& { return m.experts.shared_ffn_hidden; }, HasExperts},
    {"expert_latent", [](workload::Model& m) -> std::int64_t& { return m.experts.latent; },
     HasExperts},
    {"first_dense_layers",
     [](workload::Model& m) -> std::int64_t& { return m.experts.first_dense; }, HasExperts},
    {"expert_every", [](workload::Model& m) -> std::int64_t& { return m.experts.every; },
     HasExperts},
    {"window", [](workload::Model& m) -> std::int64_t& { return m.window; }, HasWindows},
    {"full_every", [](workload::Model& m) -> std::int64_t& { return m.full_every; }, HasWindows},
    {"kv_lora_rank", [](workload::Model& m) -> std::int64_t& { return m.latent.kv_rank; },
     HasLatent},
    {"q_lora_rank", [](workload::Model& m) -> std::int64_t& { return m.latent.q_rank; }, HasLatent},
    {"qk_nope_head_dim", [](workload::Model& m) -> std::int64_t& { return m.latent.nope_dim; },
     HasLatent},
    {"qk_rope_head_dim", [](workload::Model& m) -> std::int64_t& { return m.latent.rope_dim; },
     HasLatent},
    {"v_head_dim", [](workload::Model& m) -> std::int64_t& { return m.latent.v_dim; }, HasLatent},
    {"mamba_heads", [](workload::Model& m) -> std::int64_t& { return m.mamba.heads; }, HasMamba},
    {"mamba_head_dim", [](workload::Model& m) -> std::int64_t& { return m.mamba.head_dim; },
     HasMamba},
    {"mamba_state", [](workload::Model& m) -> std::int64_t& { return m.mamba.state; }, HasMamba},
    {"mamba_groups", [](workload::Model& m) -> std::int64_t& { return m.mamba.groups; }, HasMamba},
    {"mamba_conv", [](workload::Model& m) -> std::int64_t& { return m.mamba.conv; }, HasMamba},
    {"mamba_chunk", [](workload::Model& m) -> std::int64_t& { return m.mamba.chunk; }, HasMamba},
};

// Switches that a resolved configuration leaves out while they have their usual value.
struct ModelSwitch {
  std::string_view key;
  bool workload::Model::*member;
  bool usual;
};
inline constexpr ModelSwitch kModelSwitches[] = {
    {"qk_norm", &workload::Model::qk_norm, false},
    {"mtp_repeats", &workload::Model::mtp_repeats, false},
    {"sinks", &workload::Model::sinks, false},
    {"scaled_rotary", &workload::Model::scaled_rotary, false},
    {"clamped_activation", &workload::Model::clamped_activation, false},
    {"qkv_bias", &workload::Model::qkv_bias, true},
    {"projection_bias", &workload::Model::projection_bias, true},
    {"encoder", &workload::Model::encoder, false},
    {"parallel_block", &workload::Model::parallel_block, false},
    {"shared_norm", &workload::Model::shared_norm, false},
    {"embedding_norm", &workload::Model::embedding_norm, false},
};

inline constexpr std::array<Named<workload::Dispatcher>, 4> kDispatchers = {
    {{"allgather", workload::Dispatcher::kAllGather},
     {"alltoall", workload::Dispatcher::kAllToAll},
     {"deepep", workload::Dispatcher::kDeepEp},
     {"hybridep", workload::Dispatcher::kHybridEp}}};
inline constexpr std::array<Named<workload::Activation>, 4> kActivations = {
    {{"gelu", workload::Activation::kGelu},
     {"swiglu", workload::Activation::kSwiglu},
     {"squared_relu", workload::Activation::kSquaredRelu},
     {"relu", workload::Activation::kRelu}}};
inline constexpr std::array<Named<workload::Position>, 3> kPositions = {
    {{"learned", workload::Position::kLearned},
     {"rotary", workload::Position::kRotary},
     {"none", workload::Position::kNone}}};
inline constexpr std::array<Named<workload::Routing>, 6> kRoutings = {
    {{"balanced", workload::Routing::kBalanced},
     {"round-robin", workload::Routing::kRoundRobin},
     {"zipf", workload::Routing::kZipf},
     {"natural", workload::Routing::kNatural},
     {"dirichlet", workload::Routing::kDirichlet},
     {"drawn-zipf", workload::Routing::kDrawnZipf}}};

}  // namespace orrery::job
