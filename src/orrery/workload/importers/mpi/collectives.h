// Which algorithm an MPI library takes for a collective, and its messages.
//
// data/mpi/algorithms.csv has a row a choice, the first that fits is taken: by ranks, by bytes (the
// vector of bcast, reduce, allreduce, reduce_scatter and scan; the gathered whole of allgather; one
// block of gather, scatter and alltoall), by elements (at least the largest power of two of ranks;
// more than ranks), and by a line through ranks and bytes (ranks < or > slope · bytes + offset).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/workload/importers/mpi/calls.h"
#include "orrery/workload/schedules/writer.h"

namespace orrery::workload {

enum class MpiLibrary : std::uint8_t { kMpich, kOpenMpi };

struct CollectiveRun {
  Team team;
  int root = 0;
  std::int64_t bytes = 0;     // of a vector, or of one block
  std::int64_t elements = 0;  // of it
  std::int64_t segment = 0;
  std::int64_t reduce_ns = 0;             // combining `bytes`
  std::span<const std::int64_t> out, in;  // bytes by member, of calls that have them
};

class CollectiveChoices {
 public:
  // `fixed`: by call (kBarrier first), an algorithm's name, or empty: as the library chooses.
  static constexpr std::size_t kCollectives = kMpiCalls - static_cast<int>(MpiCall::kBarrier);
  CollectiveChoices(MpiLibrary library, std::array<std::string, kCollectives> fixed);

  // REQUIRES: `call` is a collective; the run has two members or more.
  Status Write(MpiCall call, CollectiveRun run, ScheduleWriter* w) const;

 private:
  MpiLibrary library_;
  std::array<std::string, kCollectives> fixed_;
};

// Names for a fixed choice, with '|' between: "auto|binomial|…".
std::string_view AlgorithmNames(MpiCall call);

}  // namespace orrery::workload
