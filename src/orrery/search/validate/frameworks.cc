#include "orrery/search/validate/frameworks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "orrery/base/suggest.h"

namespace orrery::search {
namespace {

constexpr std::array<FrameworkRule, 29> kRules = {{
    {"Megatron Bridge", "megatron", "Megatron-Bridge", "", "megatron-bridge@2025.09"},
    {"Megatron-LM 2020", "megatron", "", "2020", "megatron@2020"},
    {"Megatron-LM of January 2021", "megatron", "", "Jan-2021", "megatron@2021.01"},
    {"Megatron-LM 2021", "megatron", "", "PTD-P", "megatron@2021.04"},
    {"Megatron Core 0.8", "megatron", "", "r0.8|core_r0.8|v0.8", "megatron@2024.07"},
    {"Megatron Core 0.9", "megatron", "", "r0.9|core_r0.9|v0.9", "megatron@2024.09"},
    {"Megatron Core", "megatron", "", "", "megatron@2026.08"},
    {"Megatron-DeepSpeed", "megatron-deepspeed", "", "", "megatron-deepspeed@2022"},
    {"NeMo 2023", "nemo", "", "7.|22.|23.|ngc23.", "nemo@2023"},
    {"Megatron Bridge", "nemo", "Megatron-Bridge", "", "megatron-bridge@2025.09"},
    {"NeMo Automodel", "nemo", "Automodel", "", "automodel@2025.10"},
    {"NeMo", "nemo", "", "24.0|ngc24.0", "nemo@2024.07"},
    {"NeMo", "nemo", "", "24.1|v24.|25.02|v25.02|v25.04|ngc", "nemo@2024.11"},
    {"NeMo", "nemo", "", "", "nemo@2025.04"},
    {"InternEvo", "other", "InternEvo", "", "internevo@2024"},
    {"FSDP2", "other", "torchtitan", "", "fsdp2@torch2.6"},
    {"FSDP2", "other", "TorchTitan", "", "fsdp2@torch2.6"},
    {"NeMo Automodel", "other", "Automodel", "", "automodel@2025.10"},
    {"LLM Foundry of 2024", "fsdp1", "llm-foundry", "2024.01", "composer@2024.01"},
    {"LLM Foundry of 2023", "fsdp1", "llm-foundry", "2023.10", "composer@2023.10"},
    {"LLM Foundry v0.1", "fsdp1", "llm-foundry", "", "composer@2023.05"},
    {"FSDP1 of torch 1.13", "fsdp1", "", "torch 1.", "fsdp1@torch1.13"},
    {"FSDP1", "fsdp1", "", "", "fsdp1@torch2.1"},
    {"NeMo Automodel", "fsdp2", "Automodel", "", "automodel@2025.10"},
    {"FSDP2", "fsdp2", "", "", "fsdp2@torch2.6"},
    {"DeepSpeed of 2021", "deepspeed", "", "ZeRO-3 2021", "deepspeed@2021"},
    {"DeepSpeed", "deepspeed", "", "", "deepspeed@2023"},
    {"JAX", "jax-fsdp", "", "", "jax-fsdp@2024"},
    {"PyTorch DDP", "ddp", "", "", "ddp@torch2.1"},
}};

// LLM Foundry's sweeps (scripts/train/benchmarking) say nothing of their release, but differ in
// what they ran. The first had precision bf16, which is called amp_bf16 from October 2023 on; then
// H100 up to 64 GPUs. January 2024's has 128 to 512, with flash-attn 2 but for 13B and 30B
// (sweep.py).
std::string_view FoundryRelease(const Configuration& row) {
  if (!row.text("precision").starts_with("amp_")) return "2023.05";
  const auto gpus = row.Whole("gpus", 1, 1 << 22);
  const bool large = row.text("gpu").starts_with("H100") && gpus.ok() && gpus->value_or(0) >= 128;
  const std::string_view model = row.text("model");
  return large && model != "MPT-13B" && model != "MPT-30B" ? "2024.01" : "2023.10";
}

// A container's name may be left from an older submission: a release of ngcYY.MM two calendar years
// before the measurement says nothing about what ran.
std::string_view VersionOf(const Configuration& row) {
  const std::string_view version = row.text("framework_version");
  const std::string_view date = row.text("measured_date");
  if (row.text("framework").find("llm-foundry") != std::string_view::npos) {
    return FoundryRelease(row);
  }
  if (!version.starts_with("ngc") || version.size() < 5 || !date.starts_with("20")) return version;
  const auto year = [](std::string_view digits) { return digits[0] * 10 + digits[1]; };
  return date.size() >= 4 && year(date.substr(2)) - year(version.substr(3)) >= 2 ? "" : version;
}

}  // namespace

std::span<const FrameworkRule> FrameworkRules() { return kRules; }

Result<FrameworkMatch> MatchFramework(const Configuration& row) {
  const std::string_view family = row.text("framework_family");
  if (family.empty()) {
    return InvalidInput("framework_family is blank: no framework, no defaults; name it");
  }
  for (const FrameworkRule& rule : kRules) {
    if (rule.family == family &&
        row.text("framework").find(rule.framework) != std::string_view::npos &&
        BeginsWithOneOf(VersionOf(row), rule.versions)) {
      ORRERY_ASSIGN_OR_RETURN(const job::Framework* const framework,
                              job::FrameworkTable::BuiltIn().Find(rule.row));
      return FrameworkMatch{rule.label, framework};
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
