#include "orrery/workload/generators/layer.h"

#include "orrery/workload/generators/layer_writer.h"

namespace orrery::workload {

using graph::Pass;

graph::Block LayerForward(const Shape& s, Names* names) {
  BlockWriter w(names, "layer.forward", Pass::kForward);
  const bool keep = s.recompute != Recompute::kFull;
  LayerWriter layer(s, &w);
  layer.BeginForward();
  layer.AttentionForward(keep, keep && !layer.recomputes_core());
  layer.MlpForward(keep);
  return w.Finish();
}

graph::Block LayerBackward(const Shape& s, Names* names) {
  BlockWriter w(names, "layer.backward", Pass::kBackward);
  LayerWriter layer(s, &w);
  if (s.recompute == Recompute::kFull) {
    layer.AttentionForward(true, true);
    layer.MlpForward(true);
  }
  layer.BeginBackward();
  layer.MlpBackward();
  layer.AttentionBackward();
  layer.EndBackward();
  return w.Finish();
}

}  // namespace orrery::workload
