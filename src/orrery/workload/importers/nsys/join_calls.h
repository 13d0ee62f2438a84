// What a log of NCCL's calls adds to a report of Nsight Systems: which kernel communicates what, in
// which group.
//
// Of each process the calls and the kernels of NCCL's are one sequence: the k-th call launched the
// k-th kernel, in the order of launches; messages of one group call share one. Ranks are numbered
// by the largest communicator.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/nccl_calls.h"
#include "orrery/formats/profile_trace.h"

namespace orrery::workload {

// Sorts `profiles` by rank. Errors name the process.
Status JoinCalls(const formats::NcclCalls& calls, const std::string& log,
                 std::vector<formats::ProfileTrace>* profiles);

}  // namespace orrery::workload
