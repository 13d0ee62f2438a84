// Gradients as tensors of their own, brought together in buckets: PyTorch's DistributedDataParallel
// and DeepSpeed's ZeRO-2.
//
// DistributedDataParallel: gradients in fp32 (the parameters' type), written by the first
// micro-batch and added to by later ones. Buckets are filled from the last parameter to the first,
// the first closing at 1 MiB, the others at `bucket_bytes` (25 MiB). When a bucket's last gradient
// is there, in the last micro-batch (no_sync before it), it is all-reduced beside backward. Each
// gradient is copied into its bucket, divided by the number of ranks on the way, and back when all
// have arrived; with bucket views (gradient_as_bucket_view) it lives there and is divided in place.
// One kernel a tensor. Under autocast (bf16, fp16) parameters stay fp32: each weight is cast once a
// micro-batch, each gradient cast back. Memory: gradients and buckets count for the whole step.
// Not modelled: communication hooks, find_unused_parameters, the first iteration's bucket order.
// Source: torch/csrc/distributed/c10d/reducer.cpp; Li et al. 2020, "PyTorch Distributed".
//
// DeepSpeed's ZeRO-2: parameters are whole on every rank, in 16 bits as the gradients; every
// micro-batch reduces. Gradients are copied into a contiguous buffer of `bucket_elements` (two of
// them, taken in turns, when reduction is overlapped), scaled and all-reduced
// (use_multi_rank_bucket_allreduce, the default; not reduce-scattered), and a rank keeps, or adds
// to, its 1/n. After the optimizer all parameters are all-gathered, blocking. Source:
// deepspeed/runtime/zero/stage_1_and_2.py and config.py.
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// kDefaultFirstBucketBytes of reducer.cpp.
inline constexpr std::int64_t kDdpFirstBucketBytes = std::int64_t{1} << 20;

struct TensorBucket {
  std::int64_t elements = 0, tensors = 0;
  std::int64_t ranks = 1;  // that keep a part each
  bool blocking = false;
  bool last = false;  // records kGradientEvent
  bool adds = false;  // to what earlier micro-batches left (ZeRO-2)
};
// Copies in, and the all-reduce.
graph::Block ReduceTensors(const Shape& s, const TensorBucket& bucket, Names* names);
// DistributedDataParallel without bucket views: all gradients back, when the last one has arrived.
graph::Block CopyOutTensors(const Shape& s, std::int64_t elements, std::int64_t tensors,
                            Names* names);
// The gradients of a layer, the tables in front of it, or of the head, where they are made in
// backward and given back behind the optimizer (Shape::passing_gradients); nothing elsewhere. A
// tied table's are made in the head.
enum class GradientsOf : std::uint8_t { kLayer, kEmbedding, kHead };
graph::Buffer PassingGradients(const Shape& s, GradientsOf part, BlockWriter* w);
// Makes them, in the first micro-batch.
void MakeGradients(const Shape& s, GradientsOf part, BlockWriter* w);
// What autograd does to a tensor's gradient after the kernel that wrote it.
void AddTensorGradient(const Shape& s, BlockWriter* w, std::string_view name,
                       std::int64_t elements);

}  // namespace orrery::workload
