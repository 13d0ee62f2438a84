// Parts of a layer that differ by kind of model: queries, keys and values; the flash kernel;
// Mamba in place of attention; experts in place of the feed-forward.
#include "orrery/workload/generators/experts/experts.h"
#include "orrery/workload/generators/layers/latent.h"
#include "orrery/workload/generators/layers/layer_writer.h"
#include "orrery/workload/generators/layers/mamba.h"
#include "orrery/workload/generators/layers/torch_layers.h"

namespace orrery::workload {

using graph::Buffer;
using graph::MemoryOp;
using graph::Pass;

void LayerWriter::QkNorm(Pass pass) {
  if (!s_.qk_norm) return;
  const std::int64_t read = pass == Pass::kForward ? s_.element_bytes : 2 * s_.element_bytes;
  for (const auto& [name, heads] :
       {std::pair{"q_norm", s_.heads}, std::pair{"k_norm", s_.kv_heads}}) {
    if (s_.borrows_keys && name[0] == 'k') continue;
    if (EagerNorms(s_)) {
      EagerRmsNorm(s_, w_, s_.tokens() * heads, s_.head_dim, pass);
    } else {
      w_->Kernel(name, Elementwise(s_, MemoryOp::kRmsNorm, s_.tokens() * heads, s_.head_dim, read,
                                   s_.element_bytes, pass));
    }
    if (pass == Pass::kBackward) {
      AccumulateGradient(s_, w_, "weight_gradient", (s_.qk_norm_whole ? heads : 1) * s_.head_dim);
    }
  }
}

// Run again with its product kept, the bias is added to the kept one.
void LayerWriter::QkvBias() {
  if (!s_.framework.qkv_bias_kernel || !s_.qkv_bias) return;
  w_->Kernel("bias", Elementwise(s_, MemoryOp::kAdd, s_.tokens(), s_.qkv(), s_.element_bytes,
                                 s_.element_bytes, Pass::kForward));
}

// XLA's own kernels read a slice of a stack where it lies: those that rotate queries and keys or
// add biases, and activation functions.
void LayerWriter::Stack(Pass pass) {
  if (!s_.framework.stacked_layers) return;
  const std::int64_t e = s_.element_bytes;
  std::int64_t bytes = kept_bytes_;
  if (pass == Pass::kBackward) {
    if (fc1_out_.lifetime == graph::Lifetime::kMicrobatch) bytes -= fc1_out_.bytes;
    if (qkv_.lifetime == graph::Lifetime::kMicrobatch) {
      bytes -= s_.framework.qkv_bias_kernel ? qkv_.bytes
               : rotates()                  ? s_.tokens() * (s_.query() + s_.key_value() / 2) * e
                                            : 0;
    }
  }
  w_->Module("layers.stack");
  w_->Kernel(pass == Pass::kForward ? "copy_in" : "copy_out",
             Elementwise(s_, MemoryOp::kCopy, 1, bytes / e, e, e, pass));
}

void LayerWriter::Qkv(Pass pass) {
  if (s_.latent.kv_rank > 0) {
    return pass == Pass::kForward ? LatentForward(attention_, w_) : LatentBackward(attention_, w_);
  }
  if (pass == Pass::kBackward) {
    QkNorm(pass);
    if (s_.latent.queries_alone()) return CompressedBackward(attention_, w_);
    return ColumnBackward(attention_, w_, "qkv", s_.hidden, s_.qkv(), s_.qkv_bias);
  }
  if (s_.latent.queries_alone()) {
    CompressedForward(attention_, w_);
  } else {
    ColumnForward(attention_, w_, "qkv", s_.hidden, s_.qkv());
  }
  QkNorm(pass);
}

// Rotated keys lie where they were made. Gradients of borrowed keys and values are added to those
// of the layers behind.
void LayerWriter::RotaryOf(Pass pass) {
  Rotary(s_, w_, "rotary_q", s_.query(), pass);
  if (!s_.borrows_keys) return Rotary(s_, w_, "rotary_k", s_.key_value(), pass);
}
void LayerWriter::LendGradients() {
  if (!s_.borrows_keys) return;
  const std::int64_t e = s_.element_bytes;
  w_->Kernel("borrowed_gradient",
             Elementwise(s_, MemoryOp::kAdd, s_.tokens(), s_.key_value() + s_.values(), 2 * e, e,
                         Pass::kBackward));
}

// Selective recomputation keeps all of it.
void LayerWriter::CrossForward(bool keep) {
  if (s_.crosses) CrossWriter(s_, w_).Forward(keep);
}
void LayerWriter::CrossBackward() {
  if (s_.crosses) CrossWriter(s_, w_).Backward();
}

// A layer of one part: what stands between its halves is its input, or its output.
void LayerWriter::SkipMixer() {
  w_->Alloc(adapters_);
  w_->Alloc(middle_);
}
void LayerWriter::SkipFeedForward(bool keep) {
  w_->Free(middle_);
  w_->Alloc(again_ ? recomputed_ : output_);
  Drop(keep, adapters_);
}

void LayerWriter::MambaForward(bool keep) {
  Enter("layers.input_norm");
  w_->Alloc(adapters_);
  w_->Alloc(norm1_stats_);
  w_->Alloc(norm1_out_);
  NormForward(s_, w_);
  const bool keep_norm = keep && !s_.recomputes(kRecomputeNorms);
  Drop(keep_norm, norm1_stats_);
  const Buffer projected =
      w_->Temporary("projected", s_.framework.tp_comm_overlap ? s_.local_bytes() : s_.full_bytes());
  w_->Alloc(projected);
  MambaWriter(s_, w_).Forward(keep);
  Drop(keep_norm, norm1_out_);
  PostNorm("layers.post_mamba_norm", keep, post1_);
  Enter("layers.mamba.bias_dropout_add");
  w_->Alloc(mask1_);
  w_->Alloc(middle_);
  BiasDropoutAdd();
  Drop(keep, mask1_);
  w_->Free(projected);
}

void LayerWriter::MambaBackward() {
  EnterBackward("layers.mamba.bias_dropout_add");
  BiasDropoutAddBackward(false);
  w_->Free(mask1_);
  const Buffer behind = PostNormBackward("layers.post_mamba_norm", post1_);
  NormAgain("layers.input_norm", norm1_stats_, norm1_out_);
  MambaWriter(s_, w_).Backward();
  w_->Free(behind);
  w_->Free(norm1_out_);
  EnterBackward("layers.input_norm");
  NormAndResidualBackward({norm1_stats_});
}

void LayerWriter::BesideForward(bool keep) {
  if (s_.mamba.heads == 0) return;
  beside_ = w_->Temporary("mamba.output",
                          s_.framework.tp_comm_overlap ? s_.local_bytes() : s_.full_bytes());
  w_->Alloc(beside_);
  MambaWriter(s_, w_).Forward(keep);
  beside_ = Scattered(beside_);
}

void LayerWriter::BesideBackward() {
  if (s_.mamba.heads == 0) return;
  MambaWriter(s_, w_).Backward();
  ResidualGradient(s_, w_);
}

void LayerWriter::ExpertsForward(bool keep) {
  Enter("layers.mlp_norm");
  w_->Alloc(norm2_stats_);
  w_->Alloc(norm2_out_);
  NormForward(s_, w_);
  const bool keep_norm = keep && !s_.recomputes(kRecomputeNorms);
  Drop(keep_norm, norm2_stats_);
  const Buffer projected = w_->Temporary("projected", s_.local_bytes());
  w_->Alloc(projected);
  ExpertWriter(s_, w_).Forward(keep && !s_.recomputes(kRecomputeMoe));
  Drop(keep_norm, norm2_out_);
  PostNorm("layers.post_mlp_norm", keep, post2_);
  Enter("layers.mlp.bias_dropout_add");
  w_->Alloc(mask2_);
  w_->Alloc(again_ ? recomputed_ : output_);
  BiasDropoutAdd();
  Drop(keep, mask2_);
  Drop(keep || s_.kept.projection, middle_);
  Drop(keep, adapters_);
  w_->Free(projected);
}

void LayerWriter::ExpertsBackward() {
  EnterBackward("layers.mlp.bias_dropout_add");
  BiasDropoutAddBackward(false);
  w_->Free(mask2_);
  const Buffer behind = PostNormBackward("layers.post_mlp_norm", post2_);
  NormAgain("layers.mlp_norm", norm2_stats_, norm2_out_);
  if (s_.recomputes(kRecomputeMoe)) ExpertWriter(s_, w_).Forward(true);
  ExpertWriter(s_, w_).Backward();
  w_->Free(behind);
  w_->Free(norm2_out_);
  EnterBackward("layers.mlp_norm");
  NormAndResidualBackward({norm2_stats_, middle_});
}

}  // namespace orrery::workload
