// Traces of MPI programs (calls.h) as graphs.
//
// A rank's calls follow each other; the time between two is work, times a factor. A blocking call
// is over before the next begins, a nonblocking one is begun and waited for by its request's
// address. Point-to-point calls become a message's send and receive, collectives the messages of
// the library's algorithm (collectives.h). Every (communicator, tag) and every collective of a
// communicator has a tag of its own, so that they cannot meet each other; ranks of equal structure
// share a block (importers/goal).
//
// What a trace does not say: which request MPI_Waitany and MPI_Waitsome found (the oldest of theirs
// is taken), what MPI_Test found (nothing waits for it). Communicators with receives of any tag
// match in order of sending, whatever the tags.
//
// Cost: O(bytes of the traces + operations); a rank's operations at a time, and those of each
// distinct structure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/formats/section.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

// Keys below `mpi`.
const OptionTable& MpiOptions();

// Hands a rank's text to `use`.
using MpiText = std::function<Status(std::size_t rank,
                                     const std::function<Status(std::string_view text)>& use)>;

struct MpiImport {
  graph::Graph graph;
  std::vector<std::string> assumed, warnings;
};
// `names`: of the ranks' files, for errors. Texts may be asked for several times.
Result<MpiImport> ImportMpi(const std::vector<std::string>& names, const MpiText& text,
                            const formats::Section& options, const std::string& name);

// The ranks' files: as given; or, of one path, the folder's; or those whose names differ from it in
// the last number only, which counts from 0.
Result<std::vector<std::string>> MpiFiles(const std::vector<std::string>& paths);

}  // namespace orrery::workload
