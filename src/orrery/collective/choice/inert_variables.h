// NCCL's variables that change nothing here, each with the reason.
//
// A variable of groups A to C (algorithms and sizes, paths and places, fabric) has its effect
// (environment.cc), or stands here: accepted because what it chooses makes no difference to what is
// modelled, or refused at the values at which it would make one. Logging, bootstrap and
// registration (groups D, E) are taken without a word. Names and meanings: NCCL user guide of 2.30
// (env.rst) and src/ for the undocumented ones.
#pragma once

#include <span>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::collective {

struct InertVariable {
  std::string_view name;
  std::string_view why;             // it makes no difference
  std::string_view only = {};       // values at which that holds, '|' between; empty: all
  std::string_view otherwise = {};  // what it would do at others, and the remedy
};
std::span<const InertVariable> InertVariables();
// Null: none of them. NCCL_SYM_*: all of one kind.
const InertVariable* FindInert(std::string_view name);
// Refuses values at which the variable would make a difference.
Status CheckInert(const InertVariable& variable, std::string_view value);

// Names of groups D and E, and of what NCCL itself ignores.
std::span<const std::string_view> IrrelevantVariables();

}  // namespace orrery::collective
