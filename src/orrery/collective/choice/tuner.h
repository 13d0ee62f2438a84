// The configuration file of NCCL's example tuner plugin: which algorithm, protocol and channels a
// collective is to take, by size and communicator.
//
//   collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]
//
// Comma-separated, blanks around fields ignored, lines that begin with # and empty lines passed
// over; -1 is any, for channels NCCL's own number. The first row that fits and that NCCL can follow
// decides; one whose algorithm or protocol NCCL has ruled out is passed over. Source: README and
// behaviour of plugins/tuner/example in NVIDIA/nccl 2.27 to 2.30.
//
// Left of the plugin: names that it does not know mean all-reduce, ring or simple to it; here they
// are errors. Its code takes 1 channel where a row says -1 or none fits, its README NCCL's own
// number: the README is followed. Buffers are never registered here, collectives never grouped:
// regBuff 0, numPipeOps 1.
//
// Cost: O(rows) a plan; nothing without a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {

// Errors name file, line, column, value and what is valid.
Result<std::vector<TunerRow>> ParseTunerFile(std::string_view text, const std::string& name);

bool Fits(const TunerRow& row, graph::Collective collective, std::int64_t bytes, int nodes,
          int ranks);

}  // namespace orrery::collective
