// The communications of one rank, found in its profile.
//
// On GPUs each is a kernel of NCCL's; what it does stands in its own arguments (torch 2.2 and
// later), else in those of the operator that launched it (record_param_comms), else in the
// execution trace, else in its name. A kernel of sends and receives stands for all messages
// recorded on its thread since the kernel before. On CPUs each is an operator of c10d's; the span
// that its back end annotates (gloo:…) says when it began and ended, and is found by its record's
// number, the first behind the operator's.
//
// Sizes are graph::Comm's. What a profile does not say is listed in `missing`.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/execution_trace.h"
#include "orrery/formats/profile_trace.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/importers/pytorch/collective_names.h"

namespace orrery::workload {

// One rank's files.
struct PyTorchRank {
  std::string path;
  formats::ProfileTrace profile;
  formats::ExecutionTrace execution;  // without operators: there is none
};

// From the start of a step to its end, on the rank's clock.
struct Window {
  std::int64_t begin_ns = 0, end_ns = 0;
  bool Has(std::int64_t ns) const { return ns >= begin_ns && ns < end_ns; }
};

// A process group as a profile names it.
struct NamedGroup {
  std::string name, description;
  std::vector<std::uint32_t> ranks;  // empty: it does not say
  std::int64_t size = -1;
};

struct Communication {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  graph::Collective collective = graph::Collective::kAllReduce;
  graph::DType type = graph::DType::kFp32;
  std::int64_t bytes = 0;
  std::int64_t peer = -1;  // of messages: a rank of the world
  std::uint32_t group = 0;
  std::string name;
  std::int64_t post_ns = 0;  // when its thread issued it
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t thread = kNone;  // a track; kNone: unknown
  std::uint32_t kernel = kNone;  // an event on a GPU; kNone: on the CPU
  std::uint32_t op = kNone;      // the operator on its thread
  bool blocking = false;         // on the CPU: its thread waits for its end at once
  std::uint32_t batch = 0;       // messages of one kernel
};

struct Communications {
  std::vector<Communication> list;  // in the order in which they were issued
  std::vector<NamedGroup> groups;
  std::set<std::string> assumed, missing;
};

// Those issued in the window. Errors name file and byte.
Result<Communications> FindCommunications(const PyTorchRank& rank, const Window& window);

}  // namespace orrery::workload
