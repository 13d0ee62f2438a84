// Which framework and version a row of measured runs names: one table of rules, first match wins.
//
// What that framework does where a cell is blank stands in its row of job/frameworks.h. A framework
// that the simulator does not model is refused by name.
#pragma once

#include <span>
#include <string_view>

#include "orrery/job/frameworks.h"
#include "orrery/search/validate/configuration.h"

namespace orrery::search {

struct FrameworkRule {
  std::string_view label;      // what `assumed` calls it
  std::string_view family;     // framework_family, whole
  std::string_view framework;  // stands in `framework`; empty: any
  std::string_view versions;   // "a|b": one of them begins framework_version; empty: any
  std::string_view row;        // of job::FrameworkTable
};
std::span<const FrameworkRule> FrameworkRules();

struct FrameworkMatch {
  std::string_view label;
  const job::Framework* framework = nullptr;
};
// The framework of a row; an unknown family is an error that lists the known ones.
Result<FrameworkMatch> MatchFramework(const Configuration& row);

}  // namespace orrery::search
