// Any graph as a Chakra trace, and what Chakra cannot say of it.
//
// A node an operation, a data dependency an order that streams, events and the host make. Kernels
// get the time that the cluster's GPU has for them: duration_micros, rounded, and beside it
// `duration_ps`, an attribute of Orrery's own, which its importer reads back exactly. Host work is
// a compute node with is_cpu_op, a point where orders meet a node of type INVALID. Communicators
// are numbered, and listed as ASTRA-sim's file of groups.
//
// Cost: O(operations).
#pragma once

#include <string>
#include <vector>

#include "orrery/engine/engine.h"

namespace orrery::job {

struct ChakraExport {
  std::vector<std::string> ranks;  // bytes of PREFIX.RANK.et
  std::string groups;              // JSON; empty where all collectives are of all ranks
  std::vector<std::string> lost;   // sentences
};

// `iterations` of each job that repeats. Refused: receives from any source or of any tag.
Result<ChakraExport> ExportChakra(const engine::Inputs& inputs, int iterations);

}  // namespace orrery::job
