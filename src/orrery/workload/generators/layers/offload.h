// Copies between device and host, and layers whose activations live in host memory meanwhile.
//
// Forward of a layer: what it would keep is copied out when the layer ends, on a stream of its own,
// after the copy of the layer before has arrived; until then that layer's tensors stay too.
// Backward: the copy back of the layer that comes next starts with this one, and a layer waits for
// its own. So at most two layers' activations lie on the device, and copies cost time where a layer
// computes for less than they take. Under full recompute only layer inputs are kept, hence copied.
// Source: Transformer Engine's cpu_offload (double buffering), torch's save_on_cpu.
//
// Of the first n of L layers alone, the copies stand in blocks of their own and have more time, as
// Transformer Engine spreads them (its cpu_offload.py, default synchronisation): layer i is copied
// from its end on and its memory given back in front of layer L - n + i; backward its copy back
// begins in front of layer L - 1 - n + i. So L - n layers' activations lie on the device.
//
// Modules: of a layer's tensors only those that are an input of the modules named (Megatron's
// fine-grained offloading, user guide). Their copies stand where the layer's do.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// A blocking copy of so many bytes.
graph::Comm HostCopy(graph::Collective direction, std::int64_t bytes);

// Bytes that a block leaves allocated for its micro-batch, of the inputs of `modules` (bits of
// OffloadModule; 0: all).
std::int64_t KeptBytes(const graph::Block& block, std::uint8_t modules, Names* names);
// The layer's blocks with what they keep in host memory. `waits`: for the copy before;
// `prefetches`: starts the copy back of an equal layer. Both in the call's event.
graph::Block MoveOut(const graph::Block& forward, std::uint8_t modules, bool waits, Names* names);
graph::Block BringBack(const graph::Block& backward, std::uint8_t modules, std::int64_t bytes,
                       bool prefetches, Names* names);
// Starts the copy back of a layer, in the call's event.
graph::Block Reload(std::int64_t bytes, Names* names);

// Apart from a layer's blocks: the copy out of what `forward` keeps begins; has arrived, and its
// memory is given back; the copy back into new memory begins; has arrived. In the call's event.
graph::Block BeginOut(const graph::Block& forward, std::uint8_t modules, Names* names);
graph::Block EndOut(const graph::Block& forward, std::uint8_t modules, Names* names);
graph::Block BeginBack(const graph::Block& forward, std::uint8_t modules, Names* names);
graph::Block EndBack(Names* names);

}  // namespace orrery::workload
