// MPI programs' traces. liballprof's: one text file a rank, a line a call of MPI,
// "MPI_Name:START:ARGUMENTS:END".
//
// Times are µs of the rank's own clock ("-" where MPI has none yet); arguments have ':' between:
// addresses as numbers, a datatype "id,size,extent", a communicator "id,rank,size", an array of
// counts as its address and then "c0,c1,…". '#' begins a comment. Which arguments a call has stands
// in data/mpi/calls.csv, a letter each:
//   p address, status, flag   o operation           c communicator      k root
//   n, t  count and type that are sent              N, T  … that are received
//   v     counts that are sent, V received (two fields), x displacements (two fields)
//   d, g  destination and tag  s, G source and tag  r request (an address), R how many
//   l, y  colour and key       * whatever follows
//
// Source: spcl/LogGOPSim, src/liballprof/gencode.py and src/Schedgen/process_trace.cpp (facts).
// Cost: O(bytes); one hash of a name a line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
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

// What data/mpi/calls.csv says of a call; the error of one that is not there.
std::optional<MpiCall> FindMpiCall(std::string_view name);
Status NoSuchCall(std::string_view name);

class DumpiReader;

// Reads either form, liballprof's or DUMPI's (dumpi.h).
class MpiTraceReader {
 public:
  // `bytes` must outlive the reader and its records' names.
  MpiTraceReader(std::string_view bytes, std::string name);
  ~MpiTraceReader();
  bool dumpi() const { return dumpi_ != nullptr; }

  // False at the end. Errors name file, line, field and remedy; a call that is not in the table is
  // refused by name.
  Result<bool> Next(MpiRecord* record);
  std::string Where(std::uint32_t line) const;

  // Of the lines up to the next call that makes a communicator, none is read; false if there is
  // none.
  Result<bool> NextCreation(MpiRecord* record);

 private:
  std::string_view Line();  // the next that is no comment; empty at the end
  Status Parse(std::string_view line, MpiRecord* record) const;

  std::string_view rest_;
  std::string name_;
  std::uint32_t line_ = 0;
  std::unique_ptr<DumpiReader> dumpi_;
};

// Whether a file begins as a rank's trace does.
bool IsMpiTrace(std::string_view start);

}  // namespace orrery::workload
