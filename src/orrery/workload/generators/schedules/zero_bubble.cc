// ZB-H1 (Qi et al. 2023, section 2.2): 1F1B with the backward pass split. Stage s keeps the weight
// gradients of s micro-batches back, so that data gradients travel down the pipeline without
// waiting for them, and runs them where 1F1B would stand idle. No stage keeps more than pp
// micro-batches. Bubble: (pp − 1)·(TF + TB − TW), against (pp − 1)·(TF + TB + TW) of 1F1B.
#include <algorithm>

#include "orrery/workload/generators/schedules/passes.h"
#include "orrery/workload/generators/schedules/schedules.h"

namespace orrery::workload {

std::vector<PipelinePass> ZeroBubbleH1Passes(int stage, int stages, int microbatches) {
  using Kind = PipelinePass::Kind;
  std::vector<PipelinePass> passes;
  passes.reserve(static_cast<std::size_t>(microbatches) * 3);
  const int warmup = std::min(stages - 1 - stage, microbatches);
  int weights = 0;
  for (int i = 0; i < warmup; ++i) passes.push_back({Kind::kForward, 0, i});
  for (int i = 0; i < microbatches; ++i) {
    if (warmup + i < microbatches) passes.push_back({Kind::kForward, 0, warmup + i});
    passes.push_back({Kind::kData, 0, i});
    if (i >= stage) passes.push_back({Kind::kWeight, 0, weights++});
  }
  while (weights < microbatches) passes.push_back({Kind::kWeight, 0, weights++});
  return passes;
}

void WriteZeroBubbleH1(ProgramWriter* w) {
  WritePasses(ZeroBubbleH1Passes(w->stage(), w->stages(), w->microbatches()), w);
}

}  // namespace orrery::workload
