#include "orrery/workload/generators/layers/layer.h"

#include "orrery/workload/generators/layers/altup.h"
#include "orrery/workload/generators/layers/conv_unit.h"
#include "orrery/workload/generators/layers/host_calls.h"
#include "orrery/workload/generators/layers/hyper_streams.h"
#include "orrery/workload/generators/layers/layer_embedding.h"
#include "orrery/workload/generators/layers/layer_writer.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

using graph::Pass;

namespace {

void MixerForward(const Shape& s, bool keep, bool keep_core, LayerWriter* layer) {
  if (s.attends) return layer->AttentionForward(keep, keep_core);
  if (s.mamba.heads > 0) layer->MambaForward(keep);
  if (!s.mixes()) layer->SkipMixer();
}

void FeedForward(const Shape& s, bool keep, BlockWriter* w, LayerWriter* layer) {
  layer->CrossForward(keep);
  if (s.laurel_rank > 0) LaurelWriter(s, w).Forward(keep);
  if (s.hyper_streams > 0) {
    SpreadStreams(s, w);
    GatherStreams(s, HyperPart::kFeedForward, false, w);
  }
  if (!s.feeds_forward) return layer->SkipFeedForward(keep);
  if (s.experts.count > 0) return layer->ExpertsForward(keep);
  layer->MlpForward(keep);
}

}  // namespace

void WriteLayerForward(const Shape& s, BlockWriter* w) {
  if (s.net != nullptr) return WriteUnitForward(s, w);
  const bool keep = s.recompute != Recompute::kFull;
  const std::size_t first = w->kernels();
  if (s.turns) TurnForward(s, w);
  LayerWriter layer(s, w);
  layer.BeginForward();
  if (s.hyper_streams > 0) GatherStreams(s, HyperPart::kAttention, false, w);
  if (s.altup_streams > 0) AltUpWriter(s, w).Predict(keep, false);
  MixerForward(s, keep, keep && !layer.recomputes_core(), &layer);
  FeedForward(s, keep, w, &layer);
  if (s.altup_streams > 0) AltUpWriter(s, w).Correct(keep);
  if (s.layer_embedding > 0) LayerEmbeddingWriter(s, w).Forward(keep);
  if (s.hyper_streams > 0) {
    SpreadStreams(s, w);
    DropStreams(s, w);
  }
  layer.EndForward();
  layer.Stack(Pass::kForward);
  WriteLayerCalls(s, w, first, Pass::kForward);
}

void WriteLayerBackward(const Shape& s, BlockWriter* w) {
  if (s.net != nullptr) return WriteUnitBackward(s, w);
  const std::size_t first = w->kernels();
  LayerWriter layer(s, w);
  layer.BeginBackward();
  layer.Stack(Pass::kBackward);
  if (s.recompute == Recompute::kFull) {
    layer.BeginRecompute();
    w->Host("checkpoint", s.framework.host.checkpoint);
    if (s.altup_streams > 0) AltUpWriter(s, w).Predict(true, true);
    if (s.hyper_streams > 0) GatherStreams(s, HyperPart::kAttention, true, w);
    MixerForward(s, true, true, &layer);
    FeedForward(s, true, w, &layer);
    if (s.altup_streams > 0) AltUpWriter(s, w).Correct(true);
    if (s.layer_embedding > 0) LayerEmbeddingWriter(s, w).Forward(true);
  }
  if (s.layer_embedding > 0) LayerEmbeddingWriter(s, w).Backward();
  if (s.altup_streams > 0) AltUpWriter(s, w).CorrectBackward();
  if (s.hyper_streams > 0) SpreadStreamsBackward(s, w);
  if (s.experts.count > 0) {
    layer.ExpertsBackward();
  } else if (s.feeds_forward) {
    layer.MlpBackward();
  }
  if (s.hyper_streams > 0) {
    GatherStreamsBackward(s, HyperPart::kFeedForward, w);
    SpreadStreamsBackward(s, w);
  }
  if (s.laurel_rank > 0) LaurelWriter(s, w).Backward();
  layer.CrossBackward();
  if (s.attends) {
    layer.AttentionBackward();
  } else if (s.mamba.heads > 0) {
    layer.MambaBackward();
  }
  if (s.hyper_streams > 0) GatherStreamsBackward(s, HyperPart::kAttention, w);
  if (s.altup_streams > 0) AltUpWriter(s, w).PredictBackward();
  layer.EndBackward();
  if (s.turns) TurnBackward(s, w);
  WriteLayerCalls(s, w, first, Pass::kBackward);
}

graph::Block LayerForward(const Shape& s, Names* names) {
  const bool again = s.in_group(kGroupAgain);
  BlockWriter w(names, again ? "layer.recompute" : "layer.forward", Pass::kForward);
  if (s.keeps_units) w.Host("fsdp", s.units() * s.framework.host.unit);
  WriteLayerForward(s, &w);
  return w.Finish();
}

graph::Block LayerBackward(const Shape& s, Names* names) {
  BlockWriter w(names, "layer.backward", Pass::kBackward);
  if (s.keeps_units) w.Host("fsdp", s.units() * s.framework.host.unit);
  MakeGradients(s, GradientsOf::kLayer, &w);
  WriteLayerBackward(s, &w);
  return w.Finish();
}

}  // namespace orrery::workload
