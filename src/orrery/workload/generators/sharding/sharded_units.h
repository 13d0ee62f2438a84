// ZeRO-2 and ZeRO-3 as FSDP runs them: units whose parameters are gathered when needed.
//
// Model: a unit is one layer; the root unit is embedding, final norm and output layer. Parameters
// lie in fp32 shards of 1/n over the n data-parallel ranks (cp ranks hold the same parameters and
// count among them); a gather casts the shard to the compute type and all-gathers it; a reduction
// brings the unit's gradients to the reduce type and reduce-scatters them into fp32 shards.
//   - Experts on this rank are a unit of their own, sharded over the ranks that hold the same ones
//     (expert_dp; with one such rank they are whole, and cast). Their gather follows that of the
//     layer's rest, their reduction too. Source: torchtitan's MoE models, Megatron-FSDP.
//   - Prefetch: a unit's gather is issued before the unit before it computes and waited for at its
//     own start, in backward too (FSDP1's BACKWARD_PRE, FSDP2's implicit prefetch): never more than
//     two gathered units beside the root.
//   - FSDP1's rate limiter (limit_all_gathers) has the host wait, before it gathers a unit, until
//     the GPU is done with the unit but one before: at a unit's end until the one before is done.
//     Without it the host runs ahead, and memory of gathered units that it has freed comes back
//     only when the GPU has come so far (record_stream). On the GPU gathers are one ahead in both.
//   - Resharding to a part (fully_shard's reshard_after_forward: an integer n): after forward a
//     rank keeps 1/n of a unit in the compute type, and backward gathers over n neighbouring ranks.
//   - One process group, hence one communicator: gathers and reductions run in order of issue.
//   - Every micro-batch reduces its gradients, unless that is deferred (defer_grad_reduce): then a
//     micro-batch but the last leaves them unsharded, in the compute type (flat parameters) or that
//     of the reduction (FSDP2 casts, to_accumulated_grad_if_needed), and later ones add theirs.
//     FSDP1 keeps units that it does not reshard after forward gathered over those micro-batches
//     (_should_free_in_backward); FSDP2 does not.
//   - Flat parameters (FSDP1): views of the gathered buffer; autograd concatenates their gradients.
//     Otherwise (FSDP2) tensors are copied out of the gathered buffer and gradients into the one to
//     be reduced, which also casts.
//   - Shards in host memory (DeepSpeed's offload_param, FSDP's CPUOffload): a shard of compute-type
//     elements is copied to the device before it is gathered, over PCIe on a stream of its own, two
//     units ahead of the one that computes: the copy of one unit runs beside the gather of the one
//     before it. A gather waits for its copy; so does the unit that computes beside it, by which a
//     period is the longer of copy and unit either way. The CPU runs the optimizer on what lies
//     there.
//   - Activations in host memory (offload.h): as without sharding.
//   - Adapters (lora.h): frozen parameters lie in shards of the compute type, gathered with the
//     adapters of their unit and never cast or reduced; the root unit is frozen whole. Parameters
//     of one unit may be frozen or not where each is sharded by itself (FSDP2, DeepSpeed). A flat
//     parameter is frozen or trained as a whole: under FSDP1 each A and B is a unit of its own
//     (torchtune's lora_fsdp_wrap_policy, PEFT's fsdp_auto_wrap_policy), gathered and reduced
//     apart, behind the layer's on the same stream, with a unit's hooks.
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
  // Of one layer but its experts, padded; packed weights (quantized.h) count as the elements of the
  // model's type that take as many bytes.
  std::int64_t elements = 0;
  std::int64_t trained = 0;                            // of them; the rest is frozen
  std::int64_t adapters = 0;                           // that are units of their own (FSDP1)
  std::int64_t ranks = 1;                              // that hold a shard each
  std::int64_t expert_elements = 0, expert_ranks = 1;  // of its experts on this rank
  std::int64_t expert_trained = 0;
};
// A layer's unit. `expert_ranks`: that hold the same experts.
Unit UnitOf(const Shape& layer, std::int64_t ranks, std::int64_t expert_ranks);
// Elements of a unit that lie here, and those of them that are trained.
inline std::int64_t ShardOf(const Unit& u) {
  return u.elements / u.ranks + u.expert_elements / u.expert_ranks;
}
inline std::int64_t TrainedShardOf(const Unit& u) {
  return u.trained / u.ranks + u.expert_trained / u.expert_ranks;
}

// What a call does with parameters and gradients.
struct UnitMode {
  bool accumulates = false;  // gradient shards of earlier micro-batches are added to
  bool records = false;      // its reduction is recorded in kGradientEvent
  bool defers = false;       // gradients stay unsharded in what HoldUnit holds
  bool adds = false;         // those of earlier micro-batches are there
  bool gathered = false;     // parameters of an earlier micro-batch's gather are there
  bool own_group = false;    // of shard groups: copies are reduced over later (defer_all_reduce)
};

// A layer's unit and those that come after it, in the pass's order.
struct UnitCall {
  Unit own;
  Unit next;   // gathered while this one computes; none: no elements
  Unit after;  // shards in host memory: copied meanwhile; none: no elements
  UnitMode mode;
};

graph::Block ShardedLayerForward(const Shape& s, const UnitCall& call, Names* names);
graph::Block ShardedLayerBackward(const Shape& s, const UnitCall& call, Names* names);
// Starts the gather of `own`; its end in kUnitEvent. Without prefetch: nothing, the layer gathers.
// `next`: shards in host memory, copied meanwhile.
graph::Block StartUnit(const Shape& s, const UnitCall& call, graph::Pass pass, Names* names);
// The root unit at either end of a micro-batch.
graph::Block GatherRoot(const Shape& s, const Unit& root, bool gathered, Names* names);
graph::Block ReduceRoot(const Shape& s, const Unit& root, const UnitMode& mode, Names* names);
// Of deferred reductions, memory alone: a unit's unsharded gradients, from the first micro-batch's
// backward pass on; its shards in their place, behind the last one's; both given back (zero_grad).
graph::Block HoldUnit(const Shape& s, const Unit& unit, Names* names);
graph::Block ShardUnit(const Shape& s, const Unit& unit, Names* names);
graph::Block FreeShards(const Shape& s, const Unit& unit, Names* names);
// Shards for ever: parameters, gradients, optimizer state of the trained elements, and the frozen
// ones. Of parameters in host memory the shards of two layers.
struct ShardSizes {
  std::int64_t trained = 0, frozen = 0;  // elements of this rank
  std::int64_t layer = 0;                // of the largest layer
  std::int64_t number = 0;               // OptimizerNumber
};
graph::Block ShardedMemory(const Shape& s, const ShardSizes& sizes, Names* names);

// Elements of the root unit, padded so that `ranks` have equal shards.
std::int64_t RootUnit(const Shape& s, std::int64_t ranks);

}  // namespace orrery::workload
