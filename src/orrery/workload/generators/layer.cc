#include "orrery/workload/generators/layer.h"

#include "orrery/workload/generators/layer_writer.h"

namespace orrery::workload {

using graph::Pass;

void WriteLayerForward(const Shape& s, BlockWriter* w) {
  const bool keep = s.recompute != Recompute::kFull;
  LayerWriter layer(s, w);
  layer.BeginForward();
  layer.AttentionForward(keep, keep && !layer.recomputes_core());
  layer.MlpForward(keep);
}

void WriteLayerBackward(const Shape& s, BlockWriter* w) {
  LayerWriter layer(s, w);
  if (s.recompute == Recompute::kFull) {
    w->Host("checkpoint", s.host.checkpoint);
    layer.AttentionForward(true, true);
    layer.MlpForward(true);
  }
  layer.BeginBackward();
  layer.MlpBackward();
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
