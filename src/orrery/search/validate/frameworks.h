// What a blank cell means, framework by framework: one table of rules, first match wins.
//
// A rule names a framework family and a version and gives the value that this framework uses when
// the user says nothing. Sources: the frameworks' own argument parsers and recipe defaults of that
// version. A family that the simulator does not model is a rule with a refusal, so that breadth is
// one more line here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "orrery/memory/memory.h"
#include "orrery/search/validate/configuration.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/plan.h"

namespace orrery::search {

// kLibrary: Transformer Engine's choice on the device, cuDNN's fused attention on Hopper and later
// and flash attention 2 before.
enum class AttentionDefault : std::uint8_t { kUnfused, kFlash1, kFlash2, kLibrary };
enum class SequenceParallelDefault : std::uint8_t { kOff, kWithTp };

struct FrameworkDefaults {
  AttentionDefault attention = AttentionDefault::kUnfused;
  SequenceParallelDefault sequence_parallel = SequenceParallelDefault::kOff;
  workload::Recompute recompute = workload::Recompute::kNone;
  workload::Sharding sharding = workload::Sharding::kNone;
  bool dp_overlap = false;       // gradient reduction, and parameter gathering of ZeRO-1
  bool tp_comm_overlap = false;  // with sequence parallelism, where it can
  bool grad_reduce_fp32 = true;  // of bf16 runs
  bool fp16_grad_reduce_fp32 = false;
  double gpt_dropout = 0.1;  // of GPT-style models; Llama-style ones have none
  bool interleaved = false;  // recipes cut stages into chunks of one layer
  bool overlap_p2p = true;   // interleaved schedule only
  bool scatter_gather_p2p = false;
  bool batch_p2p_sync = false;
  bool recompute_flash = false;  // selective recompute runs fused attention again
  bool owns_tensors = false;   // ZeRO-1 by whole tensors: gradients reduced whole, owners broadcast
  bool align_stages = false;   // stages launch their DP communication together
  bool uneven_stages = false;  // layers that pp does not divide are spread, not refused
  std::int64_t bucket_elements = 40'000'000;
  workload::HostEra host = workload::HostEra::kCore;
  workload::LowPrecision fp8_recipe = workload::LowPrecision::kDelayed;
  bool low_precision_gather = false;  // of fp8 and mxfp8 parameters over data-parallel ranks
  bool flat_parameters = true;        // ZeRO-2 and -3
  bool ddp = false;                   // DistributedDataParallel and torch.optim.AdamW, no clipping
  memory::Libraries libraries;
};

struct FrameworkRule {
  std::string_view label;      // what `assumed` calls it
  std::string_view family;     // framework_family, whole
  std::string_view framework;  // stands in `framework`; empty: any
  std::string_view versions;   // "a|b": one of them begins framework_version; empty: any
  std::string_view refusal;    // not empty: why it is not predicted
  FrameworkDefaults defaults;
};
std::span<const FrameworkRule> FrameworkRules();

// The rule of a row; an unknown family is an error that lists the known ones.
Result<const FrameworkRule*> FindFramework(const Configuration& row);

}  // namespace orrery::search
