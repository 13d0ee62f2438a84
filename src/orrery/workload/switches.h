// The switches of a framework's behaviour (framework_switches.inc) as a table.
#pragma once

#include <span>
#include <string_view>

#include "orrery/workload/plan.h"

namespace orrery::workload {

struct Switch {
  std::string_view key;  // among framework_options
  bool FrameworkBehaviour::*member;
  bool (*matters)(const Plan&);  // else `assumed` and the resolved configuration leave it out
  std::string_view doc;
};
std::span<const Switch> Switches();

}  // namespace orrery::workload
