// Copies between device and host, and layers whose activations live in host memory meanwhile.
//
// Forward of a layer: what it would keep is copied out when the layer ends, on a stream of its own,
// after the copy of the layer before has arrived; until then that layer's tensors stay too.
// Backward: the copy back of the layer that comes next starts with this one, and a layer waits for
// its own. So at most two layers' activations lie on the device, and copies cost time where a layer
// computes for less than they take. Under full recompute only layer inputs are kept, hence copied.
// Source: Transformer Engine's cpu_offload (double buffering), torch's save_on_cpu.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// A blocking copy of so many bytes.
graph::Comm HostCopy(graph::Collective direction, std::int64_t bytes);

// Bytes that a block leaves allocated for its micro-batch.
std::int64_t KeptBytes(const graph::Block& block);
// The layer's blocks with what they keep in host memory. `waits`: for the copy before;
// `prefetches`: starts the copy back of an equal layer. Both in the call's event.
graph::Block MoveOut(const graph::Block& forward, bool waits, Names* names);
graph::Block BringBack(const graph::Block& backward, std::int64_t bytes, bool prefetches,
                       Names* names);
// Starts the copy back of a layer, in the call's event.
graph::Block Reload(std::int64_t bytes, Names* names);

}  // namespace orrery::workload
