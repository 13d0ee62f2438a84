// What a training framework does when the user does not say: one row per framework and version.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/memory/memory.h"
#include "orrery/workload/host_work.h"
#include "orrery/workload/plan.h"

namespace orrery::job {

struct Framework {
  std::string_view name;         // "megatron@2024.09"
  std::string_view description;  // one sentence, with its source
  void (*defaults)(workload::Plan* plan);
  memory::Libraries libraries = {};
  workload::HostEra host = workload::HostEra::kNone;  // its Python beside kernel launches
  std::string_view source;                            // where its behaviour is written down
  std::string_view assumes;  // what else a run with it takes for granted, for docs/frameworks.md
};

// Newest version of a framework first: a name without version means that one.
std::span<const Framework> Frameworks();
Result<const Framework*> FindFramework(std::string_view name);
// docs/frameworks.md's part that follows from the table: a page a family.
std::string FrameworkPages();

}  // namespace orrery::job
