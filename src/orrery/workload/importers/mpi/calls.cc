#include "orrery/workload/importers/mpi/calls.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>

#include "orrery/base/check.h"
#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

constexpr std::string_view kCallLines[] = {
#include "orrery_data_mpi_calls.inc"
};
constexpr std::array<std::string_view, kMpiCalls> kNames = {
    "send",      "send-init",    "recv",           "recv-init", "sendrecv",   "start",
    "wait",      "wait-one",     "test",           "local",     "comm-split", "comm-dup",
    "comm-cart", "comm-unknown", "barrier",        "bcast",     "reduce",     "allreduce",
    "gather",    "gatherv",      "scatter",        "scatterv",  "allgather",  "allgatherv",
    "alltoall",  "alltoallv",    "reduce_scatter", "scan",
};

std::unordered_map<std::string_view, MpiCallRow> ReadCalls() {
  std::unordered_map<std::string_view, MpiCallRow> rows;
  for (std::size_t i = 1; i < std::size(kCallLines); ++i) {
    const std::string_view line = kCallLines[i];
    const std::size_t call_at = line.find(',') + 1, args_at = line.find(',', call_at) + 1;
    const std::string_view name = line.substr(0, call_at - 1),
                           call = line.substr(call_at, args_at - 1 - call_at),
                           args = line.substr(args_at, line.find(',', args_at) - args_at);
    const auto known = std::find(kNames.begin(), kNames.end(), call);
    ORRERY_CHECK(known != kNames.end(), "calls.csv names an unknown call");
    rows[name] = MpiCallRow{static_cast<MpiCall>(known - kNames.begin()), args};
  }
  return rows;
}

}  // namespace

std::string_view Name(MpiCall call) { return kNames[static_cast<std::size_t>(call)]; }

const MpiCallRow* FindMpiCall(std::string_view name) {
  static const std::unordered_map<std::string_view, MpiCallRow> rows = ReadCalls();
  const auto row = rows.find(name);
  return row == rows.end() ? nullptr : &row->second;
}

Status NoSuchCall(std::string_view name) {
  return InvalidInput(
      "'{}' is not among the calls that are read (data/mpi/calls.csv); one-sided communication, "
      "files, MPI_Alltoallw, neighbourhood collectives and processes that start later are not",
      Printable(name, 60));
}

}  // namespace orrery::workload
