// The files of a Chakra trace: one a rank, PREFIX.0.et, PREFIX.1.et, …
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::workload {

// By rank. `path` is a prefix, one of the files, or a folder that holds the files of one prefix;
// several paths are the ranks' files in order. A rank that is missing is an error that names it.
Result<std::vector<std::string>> ChakraFiles(const std::vector<std::string>& paths);

// PREFIX.groups.json beside a rank's file, as `orrery convert` writes it; empty where there is
// none.
std::string ChakraGroupsFile(const std::string& rank_file);

}  // namespace orrery::workload
