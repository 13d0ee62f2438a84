// Communicators of Chakra traces: ASTRA-sim's file of groups, and PyTorch's process groups.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/chakra.h"

namespace orrery::workload {

using ChakraGroups = std::map<std::int64_t, std::vector<std::uint32_t>>;  // members by id

// {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}; `ranks`: of the trace.
Result<ChakraGroups> ReadCommGroups(const std::string& path, std::size_t ranks);

// Adds what METADATA nodes of a rank's trace list: [{"pg_name": "1", "ranks": [0, 1]}]; no ranks
// are all of them.
Status AddProcessGroups(const formats::ChakraTrace& trace, std::size_t ranks, ChakraGroups* groups);

}  // namespace orrery::workload
