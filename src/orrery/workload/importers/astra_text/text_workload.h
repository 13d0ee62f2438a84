// ASTRA-sim 1.0's text workloads as Chakra traces: what Chakra's text converter makes of them, the
// same for every rank.
//
//   MICRO              the weight gradients' communications alone, none waits for another
//   DATA               weight gradients' collectives beside the backward pass; a layer of the next
//                      pass waits for its own
//   MODEL              collectives of activations and input gradients between layers
//   HYBRID_DATA_MODEL, HYBRID_MODEL_DATA   both
//   HYBRID_DLRM[_ENHANCED] B   the embedding's all-to-all is needed by layer B, and comes back
//                      behind layer B + 1
// Times are us. NONE is an all-reduce of the bytes given, as the converter has it, but in DLRM.
#pragma once

#include <string>
#include <string_view>

#include "orrery/base/status.h"

namespace orrery::workload {

// The bytes of a rank's trace file. `passes`: forward and backward, one behind the other.
Result<std::string> ReadTextWorkload(std::string_view text, const std::string& name, int passes);

}  // namespace orrery::workload
