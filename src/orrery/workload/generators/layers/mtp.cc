#include "orrery/workload/generators/layers/mtp.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Collective;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// The two tensors before their norms and the operand of the projection.
Buffer Joined(const Shape& s, BlockWriter* w) {
  return w->Named(92, "mtp.joined", 4 * s.local_bytes(), MemoryKind::kActivation,
                  Lifetime::kMicrobatch);
}

void Join(const Shape& s, BlockWriter* w, Pass pass) {
  const std::int64_t b = s.element_bytes;
  w->Kernel("concatenate",
            Elementwise(s, MemoryOp::kCopy, s.local_tokens(), 2 * s.hidden, b, b, pass));
}

}  // namespace

graph::Block MtpForward(const Shape& s, Names* names) {
  BlockWriter w(names, "mtp.forward", Pass::kForward);
  const std::int64_t b = s.element_bytes;
  Enter(s, &w, "mtp.embedding", Pass::kForward);
  w.Alloc(Joined(s, &w));
  w.Kernel("embedding",
           Elementwise(s, MemoryOp::kEmbedding, s.tokens(), s.hidden, b, b, Pass::kForward));
  if (s.tp > 1) {
    TpCollective(s, &w, s.sequence_parallel ? "reduce_scatter" : "all_reduce",
                 s.sequence_parallel ? Collective::kReduceScatter : Collective::kAllReduce,
                 s.full_bytes(), s.dtype);
  }
  Enter(s, &w, "mtp.norms", Pass::kForward);
  NormForward(s, &w);
  NormForward(s, &w);
  Join(s, &w, Pass::kForward);
  Enter(s, &w, "mtp.projection", Pass::kForward);
  ColumnForward(PartShape(s, kBf16Mtp), &w, "mtp_projection", 2 * s.hidden, s.hidden / s.tp);
  TpCollective(s, &w, "all_gather", Collective::kAllGather, s.full_bytes(), s.dtype);
  return w.Finish();
}

graph::Block MtpBackward(const Shape& s, Names* names) {
  BlockWriter w(names, "mtp.backward", Pass::kBackward);
  const std::int64_t b = s.element_bytes;
  Enter(s, &w, "mtp.projection", Pass::kBackward);
  ColumnBackward(PartShape(s, kBf16Mtp), &w, "mtp_projection", 2 * s.hidden, s.hidden / s.tp,
                 false);
  Join(s, &w, Pass::kBackward);
  Enter(s, &w, "mtp.norms", Pass::kBackward);
  NormBackward(s, &w);
  NormBackward(s, &w);
  w.Free(Joined(s, &w));
  Enter(s, &w, "mtp.embedding", Pass::kBackward);
  if (s.sequence_parallel) {
    TpCollective(s, &w, "all_gather", Collective::kAllGather, s.full_bytes(), s.dtype);
  }
  // The gradient of a table is dense: zeroed, scattered into, then added to the gradient buffer.
  const Buffer dense = w.Temporary("table.gradient", s.vocab * s.hidden * b);
  w.Alloc(dense);
  w.Kernel("zero", Elementwise(s, MemoryOp::kZero, s.vocab, s.hidden, 0, b, Pass::kBackward));
  w.Kernel("embedding",
           Elementwise(s, MemoryOp::kEmbedding, s.tokens(), s.hidden, 2 * b, b, Pass::kBackward));
  AccumulateGradient(s, &w, "table_gradient", s.vocab * s.hidden);
  w.Free(dense);
  return w.Finish();
}

}  // namespace orrery::workload
