// ZeRO-2 and ZeRO-3 as FSDP runs them: units whose parameters are gathered when needed.
//
// Model: a unit is one layer; the root unit is embedding, final norm and output layer. Parameters
// lie in fp32 shards of 1/n over the n data-parallel ranks (cp ranks hold the same parameters and
// count among them); a gather casts the shard to the compute type and all-gathers it; a reduction
// brings the unit's gradients to the reduce type and reduce-scatters them into fp32 shards.
//   - Prefetch: a unit's gather is issued before the unit before it computes and waited for at its
//     own start, in backward too (FSDP1's BACKWARD_PRE, FSDP2's implicit prefetch): never more than
//     two gathered units beside the root. This is what FSDP's rate limiter allows; the host's own
//     wait for it is not modelled.
//   - One process group, hence one communicator: gathers and reductions run in order of issue.
//   - Every micro-batch reduces its gradients (no `no_sync`).
//   - Flat parameters (FSDP1): views of the gathered buffer; autograd concatenates their gradients.
//     Otherwise (FSDP2) tensors are copied out of the gathered buffer and gradients into the one to
//     be reduced, which also casts.
//   - Shards in host memory (DeepSpeed's offload_param, FSDP's CPUOffload): a shard of compute-type
//     elements is copied to the device before it is gathered, over PCIe on a stream of its own, two
//     units ahead of the one that computes: the copy of one unit runs beside the gather of the one
//     before it. A gather waits for its copy; so does the unit that computes beside it, by which a
//     period is the longer of copy and unit either way. The CPU runs the optimizer on what lies
//     there.
// Memory: a gathered layer lives within the call that uses it, the prefetched one beside it; under
// ZeRO-2 it lives from its forward to its backward; the root from the micro-batch's start to its
// end.
// Units: elements of this tensor-parallel rank, padded to a multiple of n.
// Source: torch/distributed/fsdp (behaviour), Zhao et al. 2023, "PyTorch FSDP".
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

struct Unit {
  std::int64_t elements = 0;  // of one layer, padded
  std::int64_t ranks = 1;     // that hold a shard each
  // A neighbour of equal size is gathered while this one computes.
  bool prefetches = false;
  bool accumulates = false;  // gradient shards of earlier micro-batches are added to
  bool copies = false;       // shards in host memory: and the one behind that neighbour comes
};

graph::Block ShardedLayerForward(const Shape& s, const Unit& unit, Names* names);
graph::Block ShardedLayerBackward(const Shape& s, const Unit& unit, Names* names);
// Starts a layer's gather; its end in kUnitEvent. Without prefetch: nothing, the layer gathers.
graph::Block StartUnit(const Shape& s, const Unit& unit, Names* names);
// The root unit at either end of a micro-batch. `last`: the iteration's last reduction, recorded in
// kGradientEvent.
graph::Block GatherRoot(const Shape& s, const Unit& root, Names* names);
graph::Block ReduceRoot(const Shape& s, const Unit& root, bool last, Names* names);
// Shards for ever: parameters, gradients, optimizer state. Of parameters in host memory the shards
// of two layers, of `layer_shard` elements each.
graph::Block ShardedMemory(const Shape& s, std::int64_t shard, std::int64_t layer_shard,
                           Names* names);

// Elements of a unit, padded so that `ranks` have equal shards.
std::int64_t LayerUnit(const Shape& s, std::int64_t ranks);
std::int64_t RootUnit(const Shape& s, std::int64_t ranks);

}  // namespace orrery::workload
