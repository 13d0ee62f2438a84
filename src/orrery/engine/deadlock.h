// The report of a run that cannot go on: who waits for whom.
#pragma once

#include <string>

#include "orrery/engine/machine.h"

namespace orrery::engine {

struct Waiting {
  std::uint32_t rank = 0;             // simulated
  const BlockPrice* block = nullptr;  // of the communication it stands in; null: see `why`
  std::uint32_t item = 0, call = 0;
  std::vector<std::uint32_t> missing;  // ranks that have not come
};

// Names up to eight ranks with the operation each stands in and the ranks that it waits for.
Status DeadlockReport(const graph::Graph& graph, const Layout& layout,
                      const std::vector<Waiting>& waiting);

}  // namespace orrery::engine
