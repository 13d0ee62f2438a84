#include "orrery/workload/generators/layer.h"

#include "orrery/workload/generators/layer_writer.h"

namespace orrery::workload {

using graph::Pass;

void WriteLayerForward(const Shape& s, BlockWriter* w) {
  const bool keep = s.recompute != Recompute::kFull;
  LayerWriter layer(s, w);
  layer.BeginForward();
  layer.AttentionForward(keep, keep && !layer.recomputes_core());
  if (s.experts.count > 0) {
    layer.ExpertsForward(keep);
  } else {
    layer.MlpForward(keep);
  }
}

void WriteLayerBackward(const Shape& s, BlockWriter* w) {
  LayerWriter layer(s, w);
  if (s.recompute == Recompute::kFull) {
    w->Host("checkpoint", s.host.checkpoint);
    layer.AttentionForward(true, true);
    if (s.experts.count > 0) {
      layer.ExpertsForward(true);
    } else {
      layer.MlpForward(true);
    }
  }
  layer.BeginBackward();
  if (s.experts.count > 0) {
    layer.ExpertsBackward();
  } else {
    layer.MlpBackward();
  }
  layer.AttentionBackward();
  layer.EndBackward();
}

graph::Block LayerForward(const Shape& s, Names* names) {
  BlockWriter w(names, "layer.forward", Pass::kForward);
  WriteLayerForward(s, &w);
  return w.Finish();
}

graph::Block LayerBackward(const Shape& s, Names* names) {
  BlockWriter w(names, "layer.backward", Pass::kBackward);
  WriteLayerBackward(s, &w);
  return w.Finish();
}

}  // namespace orrery::workload
