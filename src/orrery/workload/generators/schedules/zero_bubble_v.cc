// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", and 2023, section 6): two
// chunks a stage in V shape, so that the first stage also ends the model, and backward passes
// split. With TF = TB = TW no stage stands idle between its first and its last pass; at most pp
// micro-batches of activations are kept, as in 1F1B.
//
// Stage s of p: 2(p − s) − 1 forwards of the first chunk; s pairs of forwards, second chunk first;
// p − s times the second chunk's forward and whole backward; then in turn first chunk's forward and
// backward, second chunk's forward and backward; at the end s pairs of data gradients of first and
// second chunk, p − s data gradients of the first with a weight gradient each, and the weight
// gradients left. Needs at least 2p micro-batches.
#include "orrery/workload/generators/schedules/passes.h"
#include "orrery/workload/generators/schedules/schedules.h"

namespace orrery::workload {

namespace {

class VStage {
 public:
  explicit VStage(int microbatches) { passes_.reserve(static_cast<std::size_t>(microbatches) * 6); }
  void Forward(int c) { Add(PipelinePass::Kind::kForward, c, &forwards[c]); }
  void Data(int c) { Add(PipelinePass::Kind::kData, c, &datas[c]); }
  void Weight(int c) { Add(PipelinePass::Kind::kWeight, c, &weights[c]); }
  void Backward(int c) {
    Data(c);
    Weight(c);
  }
  std::vector<PipelinePass> Take() { return std::move(passes_); }

  int forwards[2] = {0, 0}, datas[2] = {0, 0}, weights[2] = {0, 0};

 private:
  void Add(PipelinePass::Kind kind, int chunk, int* count) {
    passes_.push_back({kind, chunk, (*count)++});
  }
  std::vector<PipelinePass> passes_;
};

}  // namespace

std::vector<PipelinePass> ZeroBubbleVPasses(int stage, int stages, int microbatches) {
  VStage v(microbatches);
  for (int i = 0; i < 2 * (stages - stage) - 1; ++i) v.Forward(0);
  for (int i = 0; i < stage; ++i) {
    v.Forward(1);
    v.Forward(0);
  }
  for (int i = 0; i < stages - stage; ++i) {
    v.Forward(1);
    v.Backward(1);
  }
  while (v.forwards[1] < v.forwards[0] || v.forwards[0] < microbatches) {
    if (v.forwards[0] < microbatches) v.Forward(0);
    v.Backward(0);
    v.Forward(1);
    v.Backward(1);
  }
  for (int i = 0; i < stage; ++i) {
    v.Data(0);
    v.Data(1);
  }
  for (int i = 0; i < stages - stage; ++i) v.Backward(0);
  while (v.weights[1] < v.datas[1]) v.Weight(1);
  while (v.weights[0] < v.datas[0]) v.Weight(0);
  return v.Take();
}

void WriteZeroBubbleV(ProgramWriter* w) {
  WritePasses(ZeroBubbleVPasses(w->stage(), w->stages(), w->microbatches()), w);
}

}  // namespace orrery::workload
