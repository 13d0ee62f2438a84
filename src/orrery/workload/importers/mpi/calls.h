// A call of an MPI program as a rank's trace has it, in whichever form (trace.h, dumpi.h), and the
// table of those that are read: data/mpi/calls.csv.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::workload {

inline constexpr std::int64_t kMostCallBytes = std::int64_t{1} << 40;  // of one call

enum class MpiCall : std::uint8_t {
  kSend,
  kSendInit,
  kRecv,
  kRecvInit,
  kSendrecv,
  kStart,
  kWait,
  kWaitOne,
  kTest,
  kLocal,
  kCommSplit,
  kCommDup,
  kCommCart,
  kCommUnknown,
  kBarrier,  // collectives from here on
  kBcast,
  kReduce,
  kAllreduce,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAllgather,
  kAllgatherv,
  kAlltoall,
  kAlltoallv,
  kReduceScatter,
  kScan,
};
inline constexpr int kMpiCalls = 28;
std::string_view Name(MpiCall call);  // as data/mpi has it: "allreduce"

struct MpiComm {
  // How a trace says which one it is: by the rank's number in it and its size; or by the handle
  // that the call which made it has returned.
  enum class Known : std::uint8_t { kByNumbers, kByHandle, kWorld, kAlone };
  std::uint64_t id = 0;
  std::int32_t rank = 0, size = 0;
  Known known = Known::kByNumbers;
};

struct MpiRecord {
  static constexpr std::int64_t kUnknown = -1;
  // Of `source`, where the trace says so whatever the library's numbers are.
  static constexpr std::int64_t kAnySource = INT64_MIN, kNobody = INT64_MIN + 1;
  MpiCall call = MpiCall::kLocal;
  std::string_view name;
  std::uint32_t line = 0;
  std::int64_t start_ns = kUnknown, end_ns = kUnknown;
  std::int64_t count = 0, bytes = 0;  // sent: elements, bytes
  std::int64_t received_bytes = 0;
  std::int64_t dest = 0, tag = 0, source = 0, source_tag = 0, root = 0, color = 0, key = 0;
  MpiComm comm;
  bool has_comm = false, has_request = false;
  std::uint64_t request = 0;  // address; of several the first
  std::int64_t requests = 1;
  std::vector<std::uint64_t> listed;  // requests one by one, where the trace lists them
  std::uint64_t made = 0;             // handle of the communicator that the call makes
  std::vector<std::int64_t> out, in;  // bytes by member, where counts are arrays
  // Of kCommSplit, instead of colour and key: who belongs to the communicator, in its order, by
  // their numbers in the one that it comes from.
  std::vector<std::int64_t> group;
};

struct MpiCallRow {
  MpiCall call = MpiCall::kLocal;
  std::string_view arguments;  // letters, as trace.h explains them
};
// The table's row of a call; null, and the error, of one that is not there.
const MpiCallRow* FindMpiCall(std::string_view name);
Status NoSuchCall(std::string_view name);

}  // namespace orrery::workload
