// Device memory of traced ranks: the storages of a trace directory through the allocator's model.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/cluster/cluster.h"
#include "orrery/formats/rank_trace.h"
#include "orrery/graph/graph.h"
#include "orrery/memory/storage_replay.h"
#include "orrery/results/trace.h"

namespace orrery::job {

// Of one program of a graph.
struct ProgramStorages {
  ProgramId program;
  std::uint32_t rank = 0;  // that was traced
  std::vector<memory::StorageEvent> events;
  std::size_t measured = 0;  // events before the step
  // Of library workspaces that stand among them; 0: the trace has none, and the model adds them.
  std::int64_t library_bytes = 0;
  std::uint32_t step_line = 0;  // where the step begins in the file
  // What ran, by line of the file: into `texts`.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> work;
  std::vector<std::string> texts;
};

// Storages of the GPU; program p of the directory is ProgramId p.
std::vector<ProgramStorages> StoragesOf(const formats::TraceDirectory& directory);

// Every program's memory on the device, less what CUDA, NCCL and other libraries hold.
Result<std::vector<results::TraceMemory>> ReplayTraceMemory(
    const std::vector<ProgramStorages>& programs, const graph::Graph& graph,
    const cluster::DeviceSpec& device, const memory::AllocatorSettings& allocator);

}  // namespace orrery::job
