// The program of a rank under ZeRO-2 or ZeRO-3: one stage, micro-batch by micro-batch.
//
// Order per micro-batch: root gathered; first layer's gather; embedding, layers, head forward;
// (ZeRO-3) last layer's gather beside the head; head, layers, embedding backward, each layer's
// gradients reduced when it is done; the root's gradients. Then the sharded optimizer. Cost: O(1)
// calls a micro-batch, however many layers.
#pragma once

#include "orrery/workload/generators/program_writer.h"

namespace orrery::workload {

// REQUIRES: plan.memory.sharding is zero2 or zero3, one stage.
void WriteShardedProgram(const JobContext& job, graph::Program* out);

}  // namespace orrery::workload
