// One row on its way to a run: what every part of the mapping (training.cc) reads and fills.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/names.h"
#include "orrery/search/validate/release_recipes.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {

struct Mapping {
  const Configuration& row;
  FrameworkMatch rule;
  std::vector<std::string>* assumed;
  TrainingCase* out;
  formats::Section release;  // what its scripts set (release_recipes.h)

  const job::FrameworkDefaults& defaults() const { return rule.framework->defaults; }
  const job::FrameworkRecipe& recipe() const { return rule.framework->recipe; }
  template <class... Args>
  void Assume(fmt::format_string<Args...> format, Args&&... args) const {
    assumed->push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void AssumeDefault(std::string_view column, std::string_view value) const {
    Assume("{}={} (blank: {}'s default)", column, value, rule.label);
  }
};

}  // namespace orrery::search
