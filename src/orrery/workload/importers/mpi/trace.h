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
#include <optional>
#include <string>
#include <string_view>

#include "orrery/base/status.h"
#include "orrery/workload/importers/mpi/calls.h"
#include "orrery/workload/importers/mpi/dumpi.h"

namespace orrery::workload {

// Reads either form, liballprof's or DUMPI's (dumpi.h).
class MpiTraceReader {
 public:
  // `bytes` must outlive the reader and its records' names.
  MpiTraceReader(std::string_view bytes, std::string name);
  bool dumpi() const { return dumpi_.has_value(); }

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
  std::optional<DumpiReader> dumpi_;
};

// Whether a file begins as a rank's trace does.
bool IsMpiTrace(std::string_view start);

}  // namespace orrery::workload
