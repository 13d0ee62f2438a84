// DUMPI's traces as dumpi2ascii writes them: one text a rank, several lines a call of MPI.
//     MPI_Isend entering at walltime 1296777956.739674000, cputime 0.008347000 seconds …
//     int count=1
//     MPI_Datatype datatype=9 (MPI_INT)
//     int dest=1
//     int tag=1337
//     MPI_Comm comm=2 (MPI_COMM_WORLD)
//     MPI_Request request=[2]
//     MPI_Isend returning at walltime 1296777956.739689000, cputime 0.008362000 seconds …
// Arguments have names, arrays their length ("int recvcounts[2]=[1, 1]"). Lines outside of a call
// are the header, and at the end ("dumpi2ascii -a") what was ignored and how long datatypes are
// ("Datatype 9 (MPI_INT) has size 4"); without these sizes MPI's own types have those of
// data/mpi/datatypes.csv. Which calls are read stands in data/mpi/calls.csv.
//
// Source: sstsimulator/sst-dumpi, dumpi/bin/dumpi2ascii.c and dumpi2ascii-callbacks.c (facts).
// Cost: O(bytes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/workload/importers/mpi/calls.h"

namespace orrery::workload {

// Whether a file begins as one.
bool IsDumpiText(std::string_view start);

class DumpiReader {
 public:
  // `bytes` must outlive the reader and its records' names.
  DumpiReader(std::string_view bytes, std::string name);

  // False at the end. Errors name file, line, field and remedy.
  Result<bool> Next(MpiRecord* record);

 private:
  Result<std::int64_t> SizeOf(std::string_view datatype) const;
  std::string_view Line();
  Status Ignored(std::string_view line) const;
  Status Call(std::string_view line, MpiRecord* record);
  class Fields;
  // Processes by their numbers in a communicator.
  struct Group {
    std::int64_t comm = 0;  // its handle
    bool all = false;
    std::vector<std::int64_t> members;  // unless all are
  };
  void MakeGroup(const Fields& fields, std::string_view name);
  void SplitByGroup(const Fields& fields, MpiRecord* record) const;

  std::string_view rest_;
  std::string name_;
  std::uint32_t line_ = 0;
  std::unordered_map<std::int64_t, std::int64_t> sizes_;  // of datatypes, where the text has them
  std::unordered_map<std::int64_t, Group> groups_;        // by handle
};

}  // namespace orrery::workload
