// What a training framework does when the user does not say: one row per framework and version.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/memory/memory.h"
#include "orrery/workload/plan.h"

namespace orrery::job {

struct Framework {
  std::string_view name;         // "megatron@2024.09"
  std::string_view description;  // one sentence, with its source
  void (*defaults)(workload::Plan* plan);
  memory::Libraries libraries;
};

// Newest version of a framework first: a name without version means that one.
std::span<const Framework> Frameworks();
Result<const Framework*> FindFramework(std::string_view name);

}  // namespace orrery::job
