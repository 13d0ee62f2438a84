#include "orrery/recipes/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include "orrery/base/check.h"
#include "orrery/base/text.h"
#include "orrery/formats/data_cells.h"
#include "orrery/workload/plan.h"

namespace orrery::recipes {
namespace {

// A module by its name in Hugging Face's models, and the product that it is a part of
// (data/recipes/linear_modules.csv).
struct LinearModule {
  std::string name;
  std::uint8_t target = 0;  // one of workload::LoraTarget
  std::uint8_t parts = 0;   // bits, all of which make the product
};

const std::vector<LinearModule>& LinearModules() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_linear_modules.inc"
  };
  static const std::vector<LinearModule> modules = [] {
    constexpr std::array<std::pair<std::string_view, workload::LoraTarget>, 4> kProducts = {
        {{"qkv", workload::kLoraQkv},
         {"projection", workload::kLoraProjection},
         {"fc1", workload::kLoraFc1},
         {"fc2", workload::kLoraFc2}}};
    constexpr std::array<std::pair<std::string_view, std::uint8_t>, 8> kParts = {{{"q", 1},
                                                                                  {"k", 2},
                                                                                  {"v", 4},
                                                                                  {"q+k+v", 7},
                                                                                  {"gate", 1},
                                                                                  {"up", 2},
                                                                                  {"gate+up", 3},
                                                                                  {"all", 1}}};
    std::vector<LinearModule> read;
    for (const std::vector<std::string>& cell : formats::DataRows(kLines, 4)) {
      LinearModule module{.name = cell[0]};
      for (const auto& [name, product] : kProducts) {
        if (name == cell[1]) module.target = product;
      }
      for (const auto& [name, bits] : kParts) {
        if (name == cell[2]) module.parts = bits;
      }
      ORRERY_CHECK(module.target != 0 && module.parts != 0, "a module is a part of a product");
      read.push_back(std::move(module));
    }
    return read;
  }();
  return modules;
}

const LinearModule* FindModule(std::string_view name) {
  for (const LinearModule& one : LinearModules()) {
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
                    Reading* reading, std::string_view experts) {
  std::uint8_t targets = 0;
  std::array<std::uint8_t, 4> parts = {};
  std::set<std::string> unknown;
  reading->draft().Set("framework_options.separate_adapters", true);
  for (const std::string& text : modules) {
    if (text == "all" || text == "all-linear") {
      if (!experts.empty()) reading->draft().SetText("training.lora_experts", experts);
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
  if (!experts.empty() && (targets & (workload::kLoraFc1 | workload::kLoraFc2)) != 0) {
    draft.SetText("training.lora_experts", experts);
  }
  if ((parts[0] != 0 && parts[0] != 7) || (parts[2] != 0 && parts[2] != 3)) {
    draft.Assume(fmt::format("{}: all of q, k and v have adapters where one has, and gate and up",
                             argument));
  }
  if (!unknown.empty()) {
    draft.Assume(fmt::format("{}: no adapters beside {}", argument, fmt::join(unknown, ", ")));
  }
}

void SetLoraParameters(const std::vector<std::string>& parameters,
                       const std::vector<std::string>& modules, std::string_view argument,
                       Reading* reading) {
  const auto named = [&](std::string_view tensor) {
    return std::ranges::any_of(parameters,
                               [&](const std::string& one) { return one.ends_with(tensor); });
  };
  if (parameters.size() != 2 || !named("experts.gate_up_proj") || !named("experts.down_proj")) {
    return reading->Refuse(argument,
                           "adapters of experts are modelled beside both of their tensors, "
                           "experts.gate_up_proj and experts.down_proj");
  }
  if (modules.empty()) {
    reading->draft().SetText("training.lora_targets", "none");
  } else {
    SetLoraTargets(modules, argument, reading);
  }
  reading->draft().SetText("training.lora_experts", "parameters");
}

}  // namespace orrery::recipes
