// What a program runs beside plain passes: heads that predict further tokens, and layers with
// experts of two micro-batches in step.
#include <algorithm>

#include "orrery/workload/generators/experts/expert_parts.h"
#include "orrery/workload/generators/program_writer.h"

namespace orrery::workload {

using graph::kNoEvent;

// The output layer and its loss, once and for every further token that is predicted. A module's own
// layers are among the chunk's; where one module repeats, they run again here.
void ProgramWriter::HeadUnit(bool forward, const Chunk& chunk, int index, int microbatch) {
  const auto depths = static_cast<int>(job_.model->mtp_layers);
  const auto kinds = depths > 0 ? MtpKindsOf(*job_.model, plan()) : std::vector<Kind>();
  const int own = static_cast<int>(kinds.size());
  const int behind = chunk.first_layer + chunk.parts.layers;  // places of what runs again
  if (!forward && defers_head(microbatch)) {
    return Call(job_.blocks->Get(BlockKind::kHeadData), index, microbatch);
  }
  const auto output = [&](int depth) {
    Call(forward ? Known(&head_forward_, BlockKind::kHeadForward) : EndBackward(true, microbatch),
         index, microbatch, depth);
  };
  if (forward) output(0);
  for (int i = 1; i <= depths; ++i) {
    const int depth = forward ? i : depths + 1 - i;
    const auto join = forward ? BlockKind::kMtpForward : BlockKind::kMtpBackward;
    if (!forward) output(depth);
    if (forward) Call(job_.blocks->Get(join), index, microbatch, depth);
    for (int l = 0; job_.model->mtp_repeats && depth > 1 && l < own; ++l) {
      const int at = forward ? l : own - 1 - l;
      const int layer = behind + (depth - 2) * own + at;
      Call(LayerBlock(forward, kinds[static_cast<std::size_t>(at)], false, layer), index,
           microbatch, layer);
    }
    if (forward) output(depth);
    if (!forward) Call(job_.blocks->Get(join), index, microbatch, depth);
  }
  if (!forward) output(0);
}

void ProgramWriter::DeferredHead() {
  const auto deferred =
      static_cast<int>(std::min<std::int64_t>(plan().framework.deferred_head, microbatches()));
  for (int i = 0; holds_head() && i < deferred; ++i) {
    Call(job_.blocks->Get(BlockKind::kHeadWeight), chunks() - 1, i);
  }
}

// One layer of a forward and one of a backward pass, both with experts, in step.
void ProgramWriter::Pair(const Chunk& f, int forward, int forward_microbatch, int forward_unit,
                         const Chunk& b, int backward, int backward_microbatch, int backward_unit) {
  const auto part = [&](BlockKind kind, int i) {
    const bool is_forward = kind == BlockKind::kForwardPart;
    const Chunk& chunk = is_forward ? f : b;
    const int unit = is_forward ? forward_unit : backward_unit;
    const bool exchanges = kind != BlockKind::kWeightPart && i + 1 < kExpertParts;
    const std::int16_t event = exchanges ? TakeEvent() : kNoEvent;
    const int layer = chunk.first_layer + unit - 1;
    const auto [load, sent] = LoadNumbers(chunk.parts.kind(unit), layer);
    Call(job_.blocks->Get(kind, chunk.parts.kind(unit), i, load, sent),
         is_forward ? forward : backward, is_forward ? forward_microbatch : backward_microbatch,
         layer, 1, event);
    return event;
  };
  const std::int16_t combined = part(BlockKind::kBackwardPart, 0);
  DelayedWeights();
  const std::int16_t tokens = part(BlockKind::kForwardPart, 0);
  Wait(combined);
  const std::int16_t gradients = part(BlockKind::kBackwardPart, 1);
  if (plan().experts.moe_delayed_weights) part(BlockKind::kWeightPart, 1);
  Wait(tokens);
  const std::int16_t results = part(BlockKind::kForwardPart, 1);
  Wait(gradients);
  part(BlockKind::kBackwardPart, 2);
  Wait(results);
  part(BlockKind::kForwardPart, 2);
  if (plan().experts.moe_delayed_weights) {
    const int layer = b.first_layer + backward_unit - 1;
    const Kind kind = b.parts.kind(backward_unit);
    const auto [load, sent] = LoadNumbers(kind, layer);
    delayed_ = DelayedCall{job_.blocks->Get(BlockKind::kWeightPart, kind, 2, load, sent), backward,
                           backward_microbatch, layer};
  }
}

// Of the pair before, if any.
void ProgramWriter::DelayedWeights() {
  if (!delayed_) return;
  Call(delayed_->block, delayed_->chunk, delayed_->microbatch, delayed_->layer);
  delayed_.reset();
}

void ProgramWriter::ForwardAndBackward(int forward, int forward_microbatch, int backward,
                                       int backward_microbatch, bool reduce) {
  const Chunk& f = chunks_[static_cast<std::size_t>(forward)];
  const Chunk& b = chunks_[static_cast<std::size_t>(backward)];
  // Passes that gather parameters or reduce gradients bucket by bucket run whole.
  if (!plan().experts.moe_comm_overlap || reduce || (overlaps_gather() && !f.forwarded)) {
    Forward(forward, forward_microbatch);
    return Backward(backward, backward_microbatch, reduce);
  }
  HoldGradients(backward);
  const int nf = f.parts.layers, nb = b.parts.layers;
  if (b.parts.head) HeadUnit(false, b, backward, backward_microbatch);
  ForwardUnits(f, forward, 0, 0, forward_microbatch);
  int unit = nb;
  for (int l = 1; l <= nf; ++l) {
    const bool routed = (f.parts.kind(l) & kExpertLayer) != 0;
    while (unit >= 1 && routed && (b.parts.kind(unit) & kExpertLayer) == 0) {
      DelayedWeights();
      Layers(false, b, backward, unit, unit, backward_microbatch);
      --unit;
    }
    if (routed && unit >= 1) {
      Pair(f, forward, forward_microbatch, l, b, backward, backward_microbatch, unit);
      --unit;
    } else {
      DelayedWeights();
      Layers(true, f, forward, l, l, forward_microbatch);
    }
  }
  DelayedWeights();
  if (unit >= 1) Layers(false, b, backward, unit, 1, backward_microbatch);
  if (f.parts.head) HeadUnit(true, f, forward, forward_microbatch);
  if (b.parts.embedding) BackwardUnits(b, backward, 0, 0, backward_microbatch);
}

}  // namespace orrery::workload
