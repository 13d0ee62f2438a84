#include "orrery/search/validate/frameworks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "orrery/base/suggest.h"

namespace orrery::search {
namespace {

using workload::Recompute;
using workload::Sharding;

using workload::HostEra;
using workload::LowPrecision;

// 2020 and 2021: DDP after the backward pass, fp16 gradients reduced as they are, unfused
// attention.
constexpr FrameworkDefaults kMegatron2020 = {.host = HostEra::k2021,
                                             .libraries = {.cublas_in_torch = false}};
constexpr FrameworkDefaults kMegatronJanuary2021 = {.overlap_p2p = false,
                                                    .batch_p2p_sync = true,
                                                    .host = HostEra::k2021,
                                                    .libraries = {.cublas_in_torch = false}};
constexpr FrameworkDefaults kMegatron2021 = {.overlap_p2p = false,
                                             .scatter_gather_p2p = true,
                                             .batch_p2p_sync = true,
                                             .host = HostEra::k2021,
                                             .libraries = {.cublas_in_torch = false}};

// Megatron Core with Transformer Engine; overlaps are flags that are off unless given.
constexpr FrameworkDefaults kMegatronCore = {.attention = AttentionDefault::kLibrary,
                                             .recompute_flash = true,
                                             .align_stages = true,
                                             .libraries = {.transformer_engine = true}};

// Its published runs are NVIDIA's own scaling studies, which interleave as NeMo's recipes do.
constexpr FrameworkDefaults kMegatronCore08 = {.attention = AttentionDefault::kFlash2,
                                               .interleaved = true,
                                               .recompute_flash = true,
                                               .align_stages = true,
                                               .libraries = {.transformer_engine = true}};

// NeMo's GPT recipes: distributed Adam with overlap, 16-bit gradients on the wire, stages cut into
// chunks of a layer (the launcher's gpt3/175b.yaml: interleaving "set to maximum", p2p overlapped).
constexpr FrameworkDefaults kNemo2023 = {.sequence_parallel = SequenceParallelDefault::kWithTp,
                                         .recompute = Recompute::kSelective,
                                         .sharding = Sharding::kZero1,
                                         .dp_overlap = true,
                                         .grad_reduce_fp32 = false,
                                         .interleaved = true,
                                         .align_stages = true,
                                         .libraries = {.transformer_engine = true}};
constexpr FrameworkDefaults kNemo = {.attention = AttentionDefault::kLibrary,
                                     .sequence_parallel = SequenceParallelDefault::kWithTp,
                                     .sharding = Sharding::kZero1,
                                     .dp_overlap = true,
                                     .tp_comm_overlap = true,
                                     .grad_reduce_fp32 = false,
                                     .gpt_dropout = 0,
                                     .interleaved = true,
                                     .recompute_flash = true,
                                     .align_stages = true,
                                     .low_precision_gather = true,
                                     .libraries = {.transformer_engine = true}};
constexpr FrameworkDefaults kMegatronBridge = {
    .attention = AttentionDefault::kLibrary,
    .sequence_parallel = SequenceParallelDefault::kWithTp,
    .sharding = Sharding::kZero1,
    .dp_overlap = true,
    .tp_comm_overlap = true,
    .gpt_dropout = 0,
    .recompute_flash = true,
    .align_stages = true,
    .fp8_recipe = LowPrecision::kCurrent,
    .low_precision_gather = true,
    .flat_parameters = false,
    .libraries = {.transformer_engine = true}};

// DeepSpeed's engine reduces after the last backward in buckets of 5·10^8 elements; its BF16
// optimizer keeps and reduces fp32 gradients, its fp16 path reduces fp16. Its pipeline module
// balances layers that the stages do not divide and splits what it sends over tensor-parallel ranks
// (PipelineEngine: is_pipe_partitioned where there is model parallelism).
constexpr FrameworkDefaults kMegatronDeepSpeed = {.scatter_gather_p2p = true,
                                                  .batch_p2p_sync = true,
                                                  .uneven_stages = true,
                                                  .bucket_elements = 500'000'000,
                                                  .host = HostEra::k2021,
                                                  .libraries = {.cublas_in_torch = false}};

// Hybrid ZeRO with overlapped gradient reduction, whose owners broadcast their tensors one after
// the other (hybrid_zero_optim.py); flash attention of the first generation, which its environment
// of 2023 pins.
constexpr FrameworkDefaults kInternEvo = {.attention = AttentionDefault::kFlash1,
                                          .sharding = Sharding::kZero1,
                                          .dp_overlap = true,
                                          .grad_reduce_fp32 = false,
                                          .gpt_dropout = 0,
                                          .owns_tensors = true,
                                          .uneven_stages = true};

// FSDP1 as Composer wraps it, one unit a block, BACKWARD_PRE; with torch 1.13 and 2.0 goes flash
// attention of the first generation. FSDP2 as torchtitan does.
constexpr FrameworkDefaults kFsdp1Torch1 = {.attention = AttentionDefault::kFlash1,
                                            .sharding = Sharding::kZero3,
                                            .dp_overlap = true,
                                            .gpt_dropout = 0,
                                            .host = HostEra::kFsdp};
constexpr FrameworkDefaults kFsdp1 = {.attention = AttentionDefault::kFlash2,
                                      .sharding = Sharding::kZero3,
                                      .dp_overlap = true,
                                      .gpt_dropout = 0,
                                      .host = HostEra::kFsdp,
                                      .libraries = {.cublas_in_torch = false}};
constexpr FrameworkDefaults kFsdp2 = {.attention = AttentionDefault::kFlash2,
                                      .sharding = Sharding::kZero3,
                                      .dp_overlap = true,
                                      .gpt_dropout = 0,
                                      .host = HostEra::kFsdp,
                                      .fp8_recipe = LowPrecision::kCurrent,
                                      .flat_parameters = false};
constexpr FrameworkDefaults kDeepSpeed = {.attention = AttentionDefault::kFlash2,
                                          .sharding = Sharding::kZero3,
                                          .dp_overlap = true,
                                          .grad_reduce_fp32 = false,
                                          .gpt_dropout = 0.1,
                                          .host = HostEra::kFsdp};
// MaxText and Paxml: compiled, so no Python per layer; remat of whole layers, gradients reduced in
// the compute type, gathers moved ahead by XLA's latency-hiding scheduler.
constexpr FrameworkDefaults kJax = {.attention = AttentionDefault::kLibrary,
                                    .recompute = Recompute::kFull,
                                    .sharding = Sharding::kZero3,
                                    .dp_overlap = true,
                                    .grad_reduce_fp32 = false,
                                    .gpt_dropout = 0,
                                    .host = HostEra::kNone,
                                    .flat_parameters = false};

// DistributedDataParallel around eager modules: buckets of 25 MiB beside backward.
constexpr FrameworkDefaults kDdp = {.attention = AttentionDefault::kFlash2,
                                    .dp_overlap = true,
                                    .host = HostEra::kFsdp,
                                    .ddp = true};

constexpr std::array<FrameworkRule, 17> kRules = {{
    {"Megatron Bridge", "megatron", "Megatron-Bridge", "", "", kMegatronBridge},
    {"Megatron-LM 2020", "megatron", "", "2020", "", kMegatron2020},
    {"Megatron-LM of January 2021", "megatron", "", "Jan-2021", "", kMegatronJanuary2021},
    {"Megatron-LM 2021", "megatron", "", "PTD-P", "", kMegatron2021},
    {"Megatron Core 0.8", "megatron", "", "r0.|core_r0.|v0.", "", kMegatronCore08},
    {"Megatron Core", "megatron", "", "", "", kMegatronCore},
    {"Megatron-DeepSpeed", "megatron-deepspeed", "", "", "", kMegatronDeepSpeed},
    {"NeMo 2023", "nemo", "", "7.|22.|23.|ngc23.", "", kNemo2023},
    {"Megatron Bridge", "nemo", "Megatron-Bridge", "", "", kMegatronBridge},
    {"NeMo", "nemo", "", "", "", kNemo},
    {"InternEvo", "other", "InternEvo", "", "", kInternEvo},
    {"FSDP1 of torch 1.13", "fsdp1", "", "torch 1.", "", kFsdp1Torch1},
    {"FSDP1", "fsdp1", "", "", "", kFsdp1},
    {"FSDP2", "fsdp2", "", "", "", kFsdp2},
    {"DeepSpeed", "deepspeed", "", "", "", kDeepSpeed},
    {"JAX", "jax-fsdp", "", "", "", kJax},
    {"PyTorch DDP", "ddp", "", "", "", kDdp},
}};

bool BeginsWithOneOf(std::string_view text, std::string_view choices) {
  if (choices.empty()) return true;
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    if (text.starts_with(choices.substr(0, bar))) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

// A container's name may be left from an older submission: a release of ngcYY.MM two calendar years
// before the measurement says nothing about what ran.
std::string_view VersionOf(const Configuration& row) {
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  if (!version.starts_with("ngc") || version.size() < 5 || !date.starts_with("20")) return version;
  const auto year = [](std::string_view digits) { return digits[0] * 10 + digits[1]; };
  return date.size() >= 4 && year(date.substr(2)) - year(version.substr(3)) >= 2 ? "" : version;
}

}  // namespace

std::span<const FrameworkRule> FrameworkRules() { return kRules; }

Result<const FrameworkRule*> FindFramework(const Configuration& row) {
  const std::string_view family = row.text("framework_family");
  if (family.empty()) {
    return InvalidInput("framework_family is blank: no framework, no defaults; name it");
  }
  for (const FrameworkRule& rule : kRules) {
    if (rule.family == family &&
        row.text("framework").find(rule.framework) != std::string_view::npos &&
        BeginsWithOneOf(VersionOf(row), rule.versions)) {
      return &rule;
    }
  }
  if (family == "other") {
    return InvalidInput("framework={}: this framework is not modelled", row.text("framework"));
  }
  std::vector<std::string_view> families;
  for (const FrameworkRule& rule : kRules) {
    if (families.empty() || families.back() != rule.family) families.push_back(rule.family);
  }
  return InvalidInput("{}", UnknownName("framework_family", family, families));
}

}  // namespace orrery::search
