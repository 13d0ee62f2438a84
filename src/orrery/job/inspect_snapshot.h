// What a memory snapshot of PyTorch holds: its peaks as recorded, the same events through our model
// of the allocator, with expandable segments too, and who held memory at the peak.
//
// What lived before the recording began is known by its frees and by what was left in the end; the
// replay takes it first, in the order of addresses, as its own history is not in the file.
#pragma once

#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/job/inspect_graph.h"

namespace orrery::job {

Result<GraphFacts> SnapshotFacts(std::string_view bytes, const std::string& path);

}  // namespace orrery::job
