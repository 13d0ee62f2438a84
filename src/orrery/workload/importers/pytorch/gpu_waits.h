// Which operations of a rank's GPU belong to a step, which calls launched them, and who waits for
// whom: streams for each other, the host for streams (rank_program.h says by which rules).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "orrery/workload/importers/pytorch/communications.h"

namespace orrery::workload {

// By which the clocks of host and GPU may differ.
inline constexpr std::int64_t kClockNs = 2'000;

struct GpuWaits {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  using Targets = std::vector<std::uint32_t>;  // operations of the GPU, by event

  std::vector<bool> used;             // by event: an operation of the GPU, launched in the window
  std::vector<std::uint32_t> launch;  // by event: the call that launched it, or kNone
  std::unordered_map<std::uint32_t, Targets> stream;  // what an operation waits for
  std::map<std::uint32_t, Targets> host;              // what a call waits for
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>>
      comms;  // of a kernel: their indices
};

GpuWaits FindGpuWaits(const formats::ProfileTrace& profile, const Window& window,
                      const Communications& comms, std::set<std::string>* assumed,
                      std::set<std::string>* missing);

}  // namespace orrery::workload
