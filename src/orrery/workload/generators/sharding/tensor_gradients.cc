#include "orrery/workload/generators/sharding/tensor_gradients.h"

#include <vector>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::MemoryBound;
using graph::MemoryOp;
using graph::Pass;

namespace {

MemoryBound Flat(const Shape& s, MemoryOp op, std::int64_t elements, std::int64_t reads) {
  const std::int64_t g = s.gradient_bytes;
  return {.op = op,
          .rows = 1,
          .cols = elements,
          .bytes_read = elements * g * reads,
          .bytes_written = elements * g,
          .dtype = s.gradient_dtype,
          .pass = Pass::kBackward};
}

// A kernel a tensor, of equal sizes that make `elements`.
void EachTensor(const Shape& s, BlockWriter* w, std::string_view name, MemoryOp op,
                std::int64_t elements, std::int64_t tensors) {
  for (std::int64_t i = 0; i < tensors; ++i) {
    const std::int64_t n = elements * (i + 1) / tensors - elements * i / tensors;
    w->Kernel(name, Flat(s, op, n, 1));
  }
}

}  // namespace

graph::Block ReduceTensors(const Shape& s, const TensorBucket& b, Names* names) {
  BlockWriter w(names, "gradients.reduce", Pass::kBackward);
  const bool ddp = s.framework.reducer == Reducer::kDdp;
  EachTensor(s, &w, s.framework.bucket_views ? "scale" : "copy_in",
             s.framework.bucket_views ? MemoryOp::kGradScale : MemoryOp::kCopy, b.elements,
             b.tensors);
  if (!ddp) w.Kernel("scale", Flat(s, MemoryOp::kGradScale, b.elements, 1));
  w.Host("communication", s.framework.host.communication);
  w.Comm("all_reduce", {.collective = graph::Collective::kAllReduce,
                        .group = graph::GroupSlot::kDp,
                        .stream = kDpStream,
                        .blocking = b.blocking,
                        .event = b.last && !b.blocking ? kGradientEvent : graph::kNoEvent,
                        .dtype = s.gradient_dtype,
                        .bytes = {.value = b.elements * s.gradient_bytes}});
  // On the reduction's own stream there; here it does not wait for the reduction.
  if (!ddp) {
    w.Kernel(b.adds ? "shard.add" : "shard.copy", Flat(s, b.adds ? MemoryOp::kAdd : MemoryOp::kCopy,
                                                       b.elements / b.ranks, b.adds ? 2 : 1));
  }
  return w.Finish();
}

graph::Block CopyOutTensors(const Shape& s, std::int64_t elements, std::int64_t tensors,
                            Names* names) {
  BlockWriter w(names, "gradients.copy_out", Pass::kBackward);
  EachTensor(s, &w, "copy_out", MemoryOp::kCopy, elements, tensors);
  return w.Finish();
}

graph::Buffer PassingGradients(const Shape& s, GradientsOf part, BlockWriter* w) {
  constexpr std::uint32_t kFirstId = 60;  // behind those of the head
  std::int64_t elements = 0;
  const auto add = [&elements](const std::vector<std::int64_t>& tensors) {
    for (const std::int64_t n : tensors) elements += n;
  };
  const std::int64_t table = s.tied ? s.vocab * s.hidden : 0;
  if (part == GradientsOf::kLayer) {
    add(TrainedParameters(s));
    if (!s.frozen()) add(ExpertParameters(s));
  } else if (!s.frozen() && part == GradientsOf::kEmbedding) {
    add(EmbeddingParameters(s));
    elements -= table;
  } else if (!s.frozen()) {
    add(HeadParameters(s, !s.tied));
    elements += table;
  }
  return w->Named(kFirstId + static_cast<std::uint32_t>(part), "gradients",
                  s.passing_gradients ? elements * s.gradient_bytes : 0,
                  graph::MemoryKind::kGradient, graph::Lifetime::kMicrobatch);
}

void MakeGradients(const Shape& s, GradientsOf part, BlockWriter* w) {
  if (!s.adds_gradients) w->Alloc(PassingGradients(s, part, w));
}

void AddTensorGradient(const Shape& s, BlockWriter* w, std::string_view name,
                       std::int64_t elements) {
  const std::int64_t e = s.element_bytes, g = s.gradient_bytes;
  if (s.autocasts()) {
    w->Kernel(name, Elementwise(s, MemoryOp::kCast, 1, elements, e, g, Pass::kBackward));
  }
  if (s.adds_gradients) {
    w->Kernel(name, Elementwise(s, MemoryOp::kAdd, 1, elements, 2 * g, g, Pass::kBackward));
  }
}

}  // namespace orrery::workload
