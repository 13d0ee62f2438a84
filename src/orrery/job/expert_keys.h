// Keys of models with experts, latent attention and windows. Internal to `job`.
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
};
inline constexpr std::array<ModelSize, 13> kModelSizes = {{
    {"experts", [](workload::Model& m) -> std::int64_t& { return m.experts.count; }},
    {"expert_top_k", [](workload::Model& m) -> std::int64_t& { return m.experts.top_k; }},
    {"expert_ffn_hidden", [](workload::Model& m) -> std::int64_t& { return m.experts.ffn_hidden; }},
    {"shared_ffn_hidden",
     [](workload::Model& m) -> std::int64_t& { return m.experts.shared_ffn_hidden; }},
    {"first_dense_layers",
     [](workload::Model& m) -> std::int64_t& { return m.experts.first_dense; }},
    {"expert_every", [](workload::Model& m) -> std::int64_t& { return m.experts.every; }},
    {"window", [](workload::Model& m) -> std::int64_t& { return m.window; }},
    {"full_every", [](workload::Model& m) -> std::int64_t& { return m.full_every; }},
    {"kv_lora_rank", [](workload::Model& m) -> std::int64_t& { return m.latent.kv_rank; }},
    {"q_lora_rank", [](workload::Model& m) -> std::int64_t& { return m.latent.q_rank; }},
    {"qk_nope_head_dim", [](workload::Model& m) -> std::int64_t& { return m.latent.nope_dim; }},
    {"qk_rope_head_dim", [](workload::Model& m) -> std::int64_t& { return m.latent.rope_dim; }},
    {"v_head_dim", [](workload::Model& m) -> std::int64_t& { return m.latent.v_dim; }},
}};

inline constexpr std::array<Named<workload::Dispatcher>, 4> kDispatchers = {
    {{"allgather", workload::Dispatcher::kAllGather},
     {"alltoall", workload::Dispatcher::kAllToAll},
     {"deepep", workload::Dispatcher::kDeepEp},
     {"hybridep", workload::Dispatcher::kHybridEp}}};
inline constexpr std::array<Named<workload::Routing>, 2> kRoutings = {
    {{"balanced", workload::Routing::kBalanced}, {"zipf", workload::Routing::kZipf}}};

}  // namespace orrery::job
