#include "orrery/recipes/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "orrery/base/text.h"
#include "orrery/workload/plan.h"

namespace orrery::recipes {
namespace {

// A module by its names in Hugging Face's models, and the product that it is a part of.
struct LinearModule {
  std::string_view name;
  workload::LoraTarget target;
  std::uint8_t parts;  // bits, all of which make the product
};
using enum workload::LoraTarget;
constexpr std::array<LinearModule, 36> kLinearModules = {{
    {"q_proj", kLoraQkv, 1},
    {"k_proj", kLoraQkv, 2},
    {"v_proj", kLoraQkv, 4},
    {"qkv_proj", kLoraQkv, 7},
    {"c_attn", kLoraQkv, 7},
    {"query_key_value", kLoraQkv, 7},
    {"Wqkv", kLoraQkv, 7},
    {"W_pack", kLoraQkv, 7},
    {"wqkv", kLoraQkv, 7},
    {"q", kLoraQkv, 1},
    {"k", kLoraQkv, 2},
    {"v", kLoraQkv, 4},
    {"q_a_proj", kLoraQkv, 1},
    {"q_b_proj", kLoraQkv, 1},
    {"kv_a_proj_with_mqa", kLoraQkv, 2},
    {"kv_b_proj", kLoraQkv, 4},
    {"in_proj", kLoraQkv, 7},
    {"o_proj", kLoraProjection, 1},
    {"out_proj", kLoraProjection, 1},
    {"dense", kLoraProjection, 1},
    {"c_proj", kLoraProjection, 1},
    {"wo", kLoraProjection, 1},
    {"o", kLoraProjection, 1},
    {"gate_proj", kLoraFc1, 1},
    {"up_proj", kLoraFc1, 2},
    {"gate_up_proj", kLoraFc1, 3},
    {"fc1", kLoraFc1, 3},
    {"c_fc", kLoraFc1, 3},
    {"dense_h_to_4h", kLoraFc1, 3},
    {"w1", kLoraFc1, 1},
    {"w3", kLoraFc1, 2},
    {"down_proj", kLoraFc2, 1},
    {"fc2", kLoraFc2, 1},
    {"dense_4h_to_h", kLoraFc2, 1},
    {"w2", kLoraFc2, 1},
    {"output_proj", kLoraProjection, 1},
}};
const LinearModule* FindModule(std::string_view name) {
  for (const LinearModule& one : kLinearModules) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The names that stand from `at` on.
std::string_view NameAt(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && IsNameChar(text[end])) ++end;
  return text.substr(at, end - at);
}

// Of a pattern what it can match: alternatives of its innermost groups with what follows them, and
// names outside; those of no linear layer are left out.
std::vector<std::string> ModulesOfPattern(std::string_view pattern) {
  std::vector<std::string> names;
  const auto add = [&names](std::string name) {
    if (FindModule(name) != nullptr) names.push_back(std::move(name));
  };
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t end = pattern.find_first_of("()", at + 1);
    if (pattern[at] == '(' && end != std::string_view::npos && pattern[end] == ')') {
      const std::string suffix(NameAt(pattern, end + 1));
      for (++at; at < end; ++at) {
        const std::string name(NameAt(pattern, at));
        add(name + suffix);
        at += name.size();
      }
      at = end + 1 + suffix.size();
    } else if (IsNameChar(pattern[at])) {
      const std::string name(NameAt(pattern, at));
      if (name.size() > 2) add(name);
      at += name.size();
    } else {
      ++at;
    }
  }
  return names;
}

std::vector<std::string> ModulesOf(const std::string& text) {
  const auto plain = [](char c) { return IsNameChar(c) || c == '.' || c == '-'; };
  if (!std::ranges::all_of(text, plain)) return ModulesOfPattern(text);
  return {text.substr(text.rfind('.') + 1)};
}

}  // namespace

void SetLoraTargets(const std::vector<std::string>& modules, std::string_view argument,
                    Reading* reading) {
  std::uint8_t targets = 0;
  std::array<std::uint8_t, 4> parts = {};
  std::set<std::string> unknown;
  reading->draft().Set("framework_options.separate_adapters", true);
  for (const std::string& text : modules) {
    if (text == "all" || text == "all-linear") {
      return reading->draft().SetText("training.lora_targets", "all");
    }
    for (const std::string& name : ModulesOf(text)) {
      const LinearModule* const module = FindModule(name);
      if (module == nullptr) {
        unknown.insert(Printable(name, 40));
        continue;
      }
      targets |= module->target;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (module->target == 1 << i) parts[i] |= module->parts;
      }
    }
  }
  if (targets == 0) {
    return reading->Refuse(argument,
                           "adapters are modelled beside linear layers: q_proj, k_proj, v_proj, "
                           "o_proj, gate_proj, up_proj, down_proj, or all-linear");
  }
  Draft& draft = reading->draft();
  draft.SetText("training.lora_targets", workload::LoraTargetsText(targets));
  if ((parts[0] != 0 && parts[0] != 7) || (parts[2] != 0 && parts[2] != 3)) {
    draft.Assume(fmt::format("{}: all of q, k and v have adapters where one has, and gate and up",
                             argument));
  }
  if (!unknown.empty()) {
    draft.Assume(fmt::format("{}: no adapters beside {}", argument, fmt::join(unknown, ", ")));
  }
}

}  // namespace orrery::recipes
