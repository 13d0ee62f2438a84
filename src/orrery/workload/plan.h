// How a model is trained: parallelism, schedule, batch, precision, framework behaviour.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/graph/kernel.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

enum class Schedule : std::uint8_t { kGpipe, k1f1b, k1f1bInterleaved };
enum class Recompute : std::uint8_t { kNone, kSelective, kFull };
enum class Sharding : std::uint8_t { kNone, kZero1 };
enum class Precision : std::uint8_t { kBf16, kFp16, kFp32 };
// How tokens come to the ranks of their experts (generators/experts.h).
enum class Dispatcher : std::uint8_t { kAllGather, kAllToAll, kDeepEp, kHybridEp };
enum class Routing : std::uint8_t { kBalanced, kZipf };
enum class AttentionBackend : std::uint8_t { kUnfused, kFlash2, kFlash3 };

struct Plan {
  int tp = 1, pp = 1, vpp = 1, dp = 1;
  bool sequence_parallel = false;     // without effect when tp is 1, as in Megatron
  std::vector<int> layers_per_stage;  // pp entries, or pp·vpp in chunk order; empty: auto
  int microbatch_group = 0;           // interleaved schedule; 0: pp
  std::int64_t global_batch = 1, micro_batch = 1, seq_len = 2048;
  Precision precision = Precision::kBf16;
  Recompute recompute = Recompute::kNone;
  Sharding sharding = Sharding::kNone;
  Schedule schedule = Schedule::k1f1b;

  // Models with experts. Their ranks are those of a stage, tensor-parallel ones (etp) fastest, then
  // ep, then replicas of the experts.
  int ep = 1, etp = 0;  // etp 0: as tp, Megatron's default
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  bool shared_expert_overlap = false;  // beside the exchanges of tokens; not kAllGather
  Routing routing = Routing::kBalanced;
  double moe_imbalance = 1;  // tokens of the busiest rank over the mean, on top of `routing`

  // Framework behaviour, resolved from `framework` before the generator runs.
  AttentionBackend attention = AttentionBackend::kFlash2;
  // Bucketed gradient reduction beside the last micro-batch's backward.
  bool overlap_grad_reduce = true;
  // ZeRO-1 parameter gathering beside the next forward. As Megatron: only with overlap_grad_reduce.
  bool overlap_param_gather = true;
  bool overlap_p2p = true;                    // interleaved schedule only, as Megatron
  bool grad_reduce_fp32 = true;               // gradients are kept and reduced in fp32
  std::int64_t bucket_elements = 40'000'000;  // and at least 1,000,000·dp, Megatron's rule
  bool fused_bias_activation = true, fused_softmax = true, fused_adam = true;
  bool align_grad_reduce = true;   // stages launch gradient reductions together, in the bubble
  bool align_param_gather = true;  // interleaved only: a chunk ahead, all stages together
  // Selective recompute runs flash attention again, as Megatron Core does when told to recompute
  // it.
  bool recompute_flash = false;
  // Without SP: send a tp-th and all-gather it, as Megatron before Core.
  bool scatter_gather_p2p = false;
  bool batch_p2p_sync = false;  // the host synchronises after batched p2p, as Megatron before 2024
  bool log_every_step = false;  // the host reads the loss after every step

  int ranks() const { return tp * pp * dp; }
  int replicas() const { return dp; }  // ranks that hold the same parameters
  int stage_ranks() const { return ranks() / pp; }
  int expert_tp() const { return etp > 0 ? etp : tp; }
  int expert_dp() const { return stage_ranks() / (expert_tp() * ep); }  // replicas of an expert
  std::int64_t microbatches() const { return global_batch / (micro_batch * dp); }
};

// The list of layers on every chunk, pp·vpp entries in chunk order (chunk c of stage s at c·pp +
// s), after `auto` is resolved; refused with the rule broken and the nearest valid lists.
Result<std::vector<int>> LayersPerChunk(const Model& model, const Plan& plan);

// Every rule of Megatron that the plan must obey; the message names field, value, rule and remedy.
Status Validate(const Model& model, const Plan& plan);

struct ScheduleInfo {
  std::string_view name;  // "1f1b-interleaved"
  std::string_view description;
};
std::span<const ScheduleInfo> Schedules();
Result<Schedule> FindSchedule(std::string_view name);

}  // namespace orrery::workload
