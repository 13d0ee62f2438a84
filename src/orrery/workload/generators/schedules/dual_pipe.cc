// DualPipe (DeepSeek-AI 2024, DeepSeek-V3 technical report, section 3.2.1) and DualPipeV (Qi et
// al., Sea AI Lab 2025: the same in V shape).
//
// DualPipe: micro-batches enter at both ends of the pipeline. Stage s holds part s of the model for
// the first half of them, which travels down, and part pp − 1 − s for the second half, which
// travels up: every part lies on two stages, whose gradients are summed at the end of the step.
// With an even number of stages. DualPipeV folds the lower half back: stage s holds parts s and
// 2·pp − 1 − s once, and all micro-batches enter at the first stage.
//
// A forward and a backward in step are one unit F&B, whose layers hide each other's exchanges of
// tokens (ExpertPlan::moe_comm_overlap): both wait for their inputs, both outputs leave at the end;
// bubble (pp/2 − 1)·(TF&B + TB − 3·TW), TB a whole backward (table 2; where TF = TD). Without, they
// are two passes after one another, and each output leaves when its own pass ends: bubble (pp/2 −
// 1)·(TF + TD − TW), TD of data gradients, and (pp − 1)·(TF + TD − TW) folded. Both are one list,
// of `place` in a half of `half` stages and n micro-batches a direction, where "near" is the chunk
// whose micro-batches enter at this half's outer end, "far" the other, F&B in brackets:
//   2·(half − place − 1) near forwards; place + 1 pairs of near and far forwards;
//   half − place − 1 times far data gradients, their weights, far forward;
//   n − 2·half + place + 1 times (near forward, far backward), (far forward, near backward), of
//   which the innermost stages run the first pair one after the other;
//   half − place − 1 times far backward, (far forward, near backward);
//   place + 1 pairs of far and near backwards, the last place + 1 of which keep weights back;
//   half − place − 1 times weights and near data gradients; the weights left.
// Needs n ≥ 2·half.
#include <algorithm>
#include <deque>

#include "orrery/workload/generators/schedules/passes.h"
#include "orrery/workload/generators/schedules/schedules.h"

namespace orrery::workload {

namespace {

using Kind = PipelinePass::Kind;

class Half {
 public:
  // Micro-batches of chunk c begin at first[c].
  Half(int near, std::array<int, 2> first) : near_(near), forwards_(first), backwards_(first) {}

  void Forward(bool near, bool in_step = false) {
    const int c = Chunk(near);
    passes_.push_back({Kind::kForward, c, forwards_[c]++, in_step});
  }
  void Backward(bool near) {
    const int c = Chunk(near);
    passes_.push_back({Kind::kBackward, c, backwards_[c]++});
  }
  void Data(bool near) {
    const int c = Chunk(near);
    kept_.push_back({Kind::kWeight, c, backwards_[c]});
    passes_.push_back({Kind::kData, c, backwards_[c]++});
  }
  void Weight() {
    passes_.push_back(kept_.front());
    kept_.pop_front();
  }
  std::vector<PipelinePass> Take() {
    while (!kept_.empty()) Weight();
    return std::move(passes_);
  }

 private:
  int Chunk(bool near) const { return near ? near_ : 1 - near_; }

  int near_;
  std::array<int, 2> forwards_, backwards_;
  std::deque<PipelinePass> kept_;  // weight gradients still to come
  std::vector<PipelinePass> passes_;
};

std::vector<PipelinePass> Passes(int place, int half, int count, Half h) {
  const int outer = half - place - 1;
  for (int i = 0; i < 2 * outer; ++i) h.Forward(true);
  for (int i = 0; i < place + 1; ++i) {
    h.Forward(true);
    h.Forward(false);
  }
  for (int i = 0; i < outer; ++i) {
    h.Data(false);
    h.Weight();
    h.Forward(false);
  }
  for (int i = 0; i < count - 2 * half + place + 1; ++i) {
    h.Forward(true, outer > 0 || i > 0);
    h.Backward(false);
    h.Forward(false, true);
    h.Backward(true);
  }
  for (int i = 0; i < outer; ++i) {
    h.Backward(false);
    h.Forward(false, true);
    h.Backward(true);
  }
  for (int i = 0; i < 2 * (place + 1); ++i) {
    const bool near = i % 2 != 0;
    i < place + 1 ? h.Backward(near) : h.Data(near);
  }
  for (int i = 0; i < outer; ++i) {
    h.Weight();
    h.Data(true);
  }
  return h.Take();
}

}  // namespace

std::vector<PipelinePass> DualPipePasses(int stage, int stages, int microbatches) {
  const int half = stages / 2, count = microbatches / 2;
  const bool lower = stage >= half;
  return Passes(std::min(stage, stages - 1 - stage), half, count, Half(lower ? 1 : 0, {0, count}));
}

std::vector<PipelinePass> DualPipeVPasses(int stage, int stages, int microbatches) {
  return Passes(stage, stages, microbatches, Half(0, {0, 0}));
}

void WriteDualPipe(ProgramWriter* w) {
  WritePasses(DualPipePasses(w->stage(), w->stages(), w->microbatches()), w);
}

void WriteDualPipeV(ProgramWriter* w) {
  WritePasses(DualPipeVPasses(w->stage(), w->stages(), w->microbatches()), w);
}

}  // namespace orrery::workload
