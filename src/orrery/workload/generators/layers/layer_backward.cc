#include "orrery/workload/generators/layers/compressed_keys.h"
#include "orrery/workload/generators/layers/context_parallel.h"
#include "orrery/workload/generators/layers/latent.h"
#include "orrery/workload/generators/layers/layer_writer.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/prepared_base.h"
#include "orrery/workload/generators/layers/sparse_attention.h"
#include "orrery/workload/generators/layers/stored_inputs.h"
#include "orrery/workload/generators/layers/torch_layers.h"
#include "orrery/workload/generators/layers/unpadding.h"

namespace orrery::workload {

using graph::Buffer;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

void LayerWriter::BeginForward() {
  if (s_.in_group(kGroupAgain) && !s_.in_group(kGroupInside)) {
    w_->Host("checkpoint", s_.framework.host.checkpoint);
  }
  w_->Alloc(input_);
}

void LayerWriter::EndForward() {
  w_->Free(input_);
  if (s_.in_group(kGroupHandsOn) && !s_.in_group(kGroupAgain)) w_->Free(output_);
}

void LayerWriter::BeginBackward() {
  gradient_ = w_->Temporary("gradient", s_.local_bytes());
  w_->Alloc(gradient_);
}

void LayerWriter::EndBackward() {
  w_->Free(gradient_);
  w_->Free(int8_inputs_);
  w_->Free(adapters_);
  if (again_ && !stops_early()) w_->Free(recomputed_);
  w_->Free(output_);
  w_->Free(first_output_);
}

void LayerWriter::MlpBackward() {
  const std::int64_t e = s_.element_bytes;
  EnterBackward("layers.mlp.bias_dropout_add");
  BiasDropoutAddBackward(s_.mlp_bias);
  w_->Free(mask2_);
  const Buffer behind = PostNormBackward("layers.post_mlp_norm", post2_);
  NormAgain("layers.mlp_norm", norm2_stats_, norm2_out_);
  if (s_.recomputes(kRecomputeMlp)) w_->Free(MlpCore(true, true));
  EnterBackward("layers.mlp.fc2");
  const Buffer activated = w_->Temporary("activation.gradient", s_.tokens() * s_.ffn * e);
  const bool in_place =
      s_.framework.in_place_kernels && s_.activation == workload::Activation::kSwiglu;
  const Buffer fc1 = w_->Temporary("fc1.gradient", in_place ? 0 : s_.tokens() * s_.fc1() * e);
  w_->Alloc(activated);
  RowBackward(mlp_, w_, "fc2", s_.ffn, s_.hidden);
  w_->Free(behind);
  w_->Free(activated_);
  EnterBackward("layers.mlp.activation");
  w_->Alloc(fc1);
  Widen(s_, w_, fc1_wide_, fc1_out_);
  Activation(Pass::kBackward);
  w_->Free(fc1_wide_);
  w_->Free(activated);
  if (!in_place) FreeFc1();
  if (s_.mlp_bias) BiasGradient(s_, w_, s_.tokens(), s_.fc1());
  EnterBackward("layers.mlp.fc1");
  ColumnBackward(mlp_, w_, "fc1", s_.hidden, s_.fc1(), false);
  w_->Free(fc1);
  if (in_place) FreeFc1();
  w_->Free(norm2_out_);
  if (s_.shared_norm) return ResidualGradient(s_, w_);  // of the shared norm's output
  EnterBackward("layers.mlp_norm");
  if (s_.parallel_block) return NormAndResidualBackward({norm2_stats_});
  NormAndResidualBackward({norm2_stats_, middle_});
}

Buffer LayerWriter::PostNormBackward(std::string_view module, const Buffer& input) {
  if (!s_.post_norms) return {};
  const Buffer gradient = w_->Temporary("post_norm.gradient", s_.local_bytes());
  EnterBackward(module);
  w_->Alloc(gradient);
  NormBackward(s_, w_);
  w_->Free(input);
  return gradient;
}

// Where a norm's gradient meets the residual's; its `inputs` are not needed any more.
void LayerWriter::NormAndResidualBackward(std::initializer_list<Buffer> inputs) {
  const Buffer normed = w_->Temporary("norm.gradient", s_.local_bytes());
  w_->Alloc(normed);
  NormBackward(s_, w_);
  for (const Buffer& input : inputs) w_->Free(input);
  ResidualGradient(s_, w_);
  w_->Free(normed);
}

void LayerWriter::AttentionBackward() {
  const std::int64_t e = s_.element_bytes;
  EnterBackward("layers.self_attention.bias_dropout_add");
  BiasDropoutAddBackward(s_.attention_bias && s_.projection_bias);
  w_->Free(mask1_);
  const Buffer behind = PostNormBackward("layers.post_attention_norm", post1_);
  EnterBackward("layers.self_attention.projection");
  const Buffer context = w_->Temporary("context.gradient", s_.tokens() * s_.context() * e);
  const Buffer parts =
      w_->Temporary("qkv.parts.gradient", s_.tokens() * (s_.parts() + s_.gate()) * e);
  const Buffer qkv = w_->Temporary("qkv.gradient", s_.tokens() * s_.qkv() * e);
  w_->Alloc(context);
  Widen(s_, w_, context_wide_, context_);
  if (s_.compressed_keys.any()) {
    GroupedProjectionBackward(s_, w_);
  } else {
    RowBackward(attention_, w_, "projection", s_.context(), s_.hidden);
  }
  w_->Free(behind);
  w_->Alloc(parts);
  NormAgain("layers.input_norm", norm1_stats_, norm1_out_);
  if (latent_normed_.bytes > 0) {
    w_->Alloc(latent_normed_);
    LatentNormsAgain(s_, w_);
  }
  if (s_.latent.kv_rank > 0 && s_.recomputes(kRecomputeMlaUp)) {
    w_->Alloc(latent_up_);
    LatentUp(attention_, w_);
  }
  if (recomputes_core()) CoreForward(true);
  Gate(Pass::kBackward);
  CoreBackward();
  RepeatHeads(s_, w_, Pass::kBackward);
  LendGradients();
  if (s_.compressed_keys.any()) CompressKeysBackward(s_, w_);
  w_->Free(repeated_);
  w_->Free(context);
  w_->Free(context_wide_);
  w_->Free(context_);
  w_->Free(rotated_);
  if (rotates()) {
    EnterBackward("layers.self_attention.rotary");
    RotaryOf(Pass::kBackward);
  }
  w_->Free(qkv_);
  w_->Free(latent_up_);
  EnterBackward("layers.self_attention.qkv");
  w_->Alloc(qkv);
  w_->Kernel("concatenate",
             Elementwise(s_, MemoryOp::kCopy, s_.tokens(), s_.qkv(), e, e, Pass::kBackward));
  w_->Free(parts);
  Qkv(Pass::kBackward);
  w_->Free(latent_normed_);
  w_->Free(qkv);
  BesideBackward();
  w_->Free(norm1_out_);
  EnterBackward("layers.input_norm");
  NormAndResidualBackward({norm1_stats_});
}

void LayerWriter::CoreBackward() {
  EnterBackward("layers.self_attention.core");
  if (!s_.flash()) return UnfusedBackward();
  if (s_.latent.sparse()) {
    AbsorbBackward(s_, w_, "absorb_out", s_.latent.v_dim);
    w_->Kernel("sparse_attention", SparseAttention(s_, Pass::kBackward));
    return w_->Free(attention_stats_);
  }
  CastAttention(s_, w_, s_.context(), Pass::kBackward);
  if (s_.cp > 1) {
    ContextBackward(s_, w_);
    return w_->Free(attention_stats_);
  }
  BeforeAttention(s_, w_, Pass::kBackward);
  w_->Kernel("flash_attention", FlashAttention(s_, Pass::kBackward));
  BehindAttention(s_, w_, Pass::kBackward);
  FromProduct(s_, w_, "attention.cast", s_.tokens(), s_.parts(), Pass::kBackward);
  w_->Free(attention_stats_);
}

void LayerWriter::UnfusedBackward() {
  const std::int64_t e = s_.element_bytes;
  const std::int64_t rows = s_.batch * s_.heads * s_.seq;
  const auto product = [this](std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
                              GemmLayout layout) {
    w_->Kernel(name, Batched(s_, m, n, k, layout));
  };
  w_->Kernel("transpose", Elementwise(s_, MemoryOp::kTranspose, s_.tokens(), s_.context(), e, e,
                                      Pass::kBackward));
  const Buffer gradient = w_->Temporary("probabilities.gradient", rows * s_.seq * e);
  w_->Alloc(gradient);
  product("context.probabilities", s_.seq, s_.seq, s_.v_head_dim(), GemmLayout::kNT);
  product("context.values", s_.seq, s_.v_head_dim(), s_.seq, GemmLayout::kTN);
  w_->Free(dropped_);
  if (s_.dropout) {
    w_->Kernel("attention_dropout",
               Elementwise(s_, MemoryOp::kDropout, rows, s_.seq, e + 1, e, Pass::kBackward));
  }
  w_->Free(probability_mask_);
  WriteSoftmax(s_, w_, rows, s_.seq, Pass::kBackward);
  w_->Free(probabilities_);
  PositionBias(Pass::kBackward);
  product("scores.query", s_.seq, s_.head_dim, s_.seq, GemmLayout::kNN);
  product("scores.key", s_.seq, s_.head_dim, s_.seq, GemmLayout::kTN);
  w_->Free(gradient);
  if (s_.kv_heads < s_.heads) {  // gradients of the repeated heads are summed
    w_->Kernel("repeat_k",
               Elementwise(s_, MemoryOp::kAdd, s_.tokens(), s_.query(), e, e, Pass::kBackward));
    w_->Kernel("repeat_v",
               Elementwise(s_, MemoryOp::kAdd, s_.tokens(), s_.query(), e, e, Pass::kBackward));
  }
}

}  // namespace orrery::workload
