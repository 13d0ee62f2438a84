// What stands beside and behind the routed experts of a layer: the shared ones, and the sum of both
// (ExpertWriter).
#include "orrery/workload/generators/experts/experts.h"
#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/stored_inputs.h"

namespace orrery::workload {

using graph::Buffer;
using graph::MemoryOp;
using graph::Pass;

void ExpertWriter::SharedForward(bool first_half) {
  if (e_.shared == 0) return;
  if (first_half) {
    Enter("layers.mlp.shared_experts.fc1", Pass::kForward);
    w_->Alloc(AsMade(shared_wide_, shared_fc1_));
    ColumnForward(dense_, w_, "shared_fc1", s_.hidden, fc1(e_.shared));
    w_->Alloc(shared_act_);
    Activation(Pass::kForward, s_.tokens(), e_.shared);
    StoreNarrow(s_, w_, shared_wide_, shared_fc1_);
    return;
  }
  Enter("layers.mlp.shared_experts.fc2", Pass::kForward);
  RowForward(dense_, w_, "shared_fc2", e_.shared, s_.hidden);
}

void ExpertWriter::SharedBackward() {
  if (e_.shared == 0) return;
  Enter("layers.mlp.shared_experts.fc2", Pass::kBackward);
  const std::int64_t b = s_.element_bytes;
  const Buffer act = w_->Temporary("shared.activation.gradient", s_.tokens() * e_.shared * b);
  const Buffer fc = w_->Temporary("shared.fc1.gradient", s_.tokens() * fc1(e_.shared) * b);
  w_->Alloc(act);
  RowBackward(dense_, w_, "shared_fc2", e_.shared, s_.hidden);
  w_->Free(shared_act_);
  w_->Alloc(fc);
  Widen(s_, w_, shared_wide_, shared_fc1_);
  Activation(Pass::kBackward, s_.tokens(), e_.shared);
  w_->Free(shared_wide_);
  w_->Free(act);
  w_->Free(shared_fc1_);
  Enter("layers.mlp.shared_experts.fc1", Pass::kBackward);
  ColumnBackward(dense_, w_, "shared_fc1", s_.hidden, fc1(e_.shared), false);
  w_->Free(fc);
}

void ExpertWriter::FinishForward(bool keep) {
  const Pass pass = Pass::kForward;
  if (!keep) w_->Free(logits_);
  if (!keep && e_.latent) w_->Free(latent_);
  if (e_.shared == 0) return;
  if (!overlaps()) {
    SharedForward(true);
    SharedForward(false);
  }
  w_->Kernel("add_shared", Elementwise(s_, MemoryOp::kAdd, s_.local_tokens(), s_.hidden,
                                       2 * s_.element_bytes, s_.element_bytes, pass));
  if (keep) return;
  w_->Free(shared_fc1_);
  w_->Free(shared_act_);
}

void ExpertWriter::FinishBackward() {
  const Pass pass = Pass::kBackward;
  if (!overlaps()) SharedBackward();
  Router(pass);
  w_->Free(logits_);
  // Gradients of the norm's output: experts', router's, shared experts'.
  const std::int64_t b = s_.element_bytes;
  const std::int64_t branches = e_.shared > 0 ? 2 : 1;
  for (std::int64_t i = 0; i < branches; ++i) {
    w_->Kernel("branch_gradient",
               Elementwise(s_, MemoryOp::kAdd, s_.local_tokens(), s_.hidden, 2 * b, b, pass));
  }
}

}  // namespace orrery::workload
