// What surrounds the pipeline: static memory, gradient buffers and their reduction, parameter
// gathering, gradient norm, optimizer, loss.
//
// Mixed-precision Adam as Megatron's: fp32 main parameters and two fp32 moments, all sharded over
// dp under ZeRO-1. Gradients of one chunk lie in one buffer, split into buckets.
#pragma once

#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

struct StepSizes {
  std::int64_t elements = 0;    // parameters of this rank, buckets padded
  std::int64_t shard = 0;       // those whose optimizer state lies here
  std::int64_t norm_group = 1;  // ranks that sum the gradient norm
  bool distributed = false;     // ZeRO-1
  bool fp16 = false;
  std::int64_t number = 0;  // OptimizerNumber
};

graph::Block StaticMemory(const Shape& s, const StepSizes& sizes, Names* names);
// What MakeGradients (tensor_gradients.h) made.
graph::Block FreeGradients(const Shape& s, GradientsOf part, Names* names);
graph::Block ZeroGradients(const Shape& s, std::int64_t elements, Names* names);
// FSDP2 over stages, or told to hold its units: gradients of a unit that nobody has reduced yet.
// They appear with the first backward pass of their chunk (FSDPParam's unsharded_accumulated_grad)
// and go when the unit is reduced, a copy of them being what the reduction reads. `forever`: those
// of parameters that no other rank holds, which are not reduced. Calls of both name chunk and unit.
graph::Block HoldGradients(const Shape& s, std::int64_t elements, bool experts, bool forever,
                           Names* names);
// One bucket over dp: reduce-scatter under ZeRO-1, else all-reduce. `blocking`, or started with the
// last one recording kGradientEvent.
struct BucketMode {
  bool distributed = false, blocking = false, last = false;
  bool experts = false;  // over the replicas of experts
};
graph::Block ReduceBucket(const Shape& s, std::int64_t elements, BucketMode mode, Names* names);
// Parameters of a bucket after the optimizer. kRecorded: started, its end in the call's event.
// `cast`: fp32 elements that FSDP2 brings to the parameters' type before; 0: the optimizer did.
enum class GatherMode : std::uint8_t { kBlocking, kStarted, kRecorded };
graph::Block GatherBucket(const Shape& s, std::int64_t elements, GatherMode mode, bool experts,
                          std::int64_t cast, Names* names);
// Parameters after the optimizer, from each of so many owners to all of the shard group, one owner
// after the other.
graph::Block BroadcastShards(const Shape& s, std::int64_t elements, std::int64_t owners,
                             Names* names);
// Waits for the call's event; FSDP2 copies so many elements out of what was gathered.
graph::Block WaitParameters(const Shape& s, std::int64_t elements, Names* names);
graph::Block WaitEvent(std::string_view name, std::int16_t event, Names* names);
// Under SP the gradients of norms and of some biases are partial sums: one flat all-reduce over tp.
graph::Block ReduceSequenceParallelGradients(const Shape& s, std::int64_t elements, Names* names);
// First and last stage hold copies of a tied embedding and sum its gradient.
graph::Block ReduceEmbeddingGradient(const Shape& s, Names* names);
// DualPipe: the two stages that hold the same parts of the model sum their gradients.
graph::Block ReduceMirror(const Shape& s, std::int64_t elements, Names* names);
graph::Block OptimizerStep(const Shape& s, const StepSizes& sizes, Names* names);
// The loss summed over dp ranks for the log, which the host reads (`sync`), and metrics.
graph::Block ReduceLoss(const Shape& s, std::int64_t dp, bool sync, Names* names);

}  // namespace orrery::workload
