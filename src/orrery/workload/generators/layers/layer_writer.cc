#include "orrery/workload/generators/layers/layer_writer.h"

#include "orrery/workload/generators/layers/block_index.h"
#include "orrery/workload/generators/layers/compressed_keys.h"
#include "orrery/workload/generators/layers/context_parallel.h"
#include "orrery/workload/generators/layers/latent.h"
#include "orrery/workload/generators/layers/lora.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/prepared_base.h"
#include "orrery/workload/generators/layers/quantized.h"
#include "orrery/workload/generators/layers/sparse_attention.h"
#include "orrery/workload/generators/layers/stored_inputs.h"
#include "orrery/workload/generators/layers/torch_layers.h"
#include "orrery/workload/generators/layers/unpadding.h"

namespace orrery::workload {

using graph::Attention;
using graph::Buffer;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {
// Ids beside those that are counted: of a buffer that two runs make, of LLM.int8's inputs.
constexpr std::uint32_t kAgainOutput = 95, kInt8Inputs = 96;
}  // namespace

LayerWriter::LayerWriter(const Shape& s, BlockWriter* w)
    : s_(s), attention_(PartShape(s, kBf16Attention)), mlp_(PartShape(s, kBf16Mlp)), w_(w) {
  const bool full = s.recompute == Recompute::kFull;
  std::uint32_t id = 0;
  const auto make = [&](std::string_view name, std::int64_t bytes, bool within_call) {
    if (!within_call) kept_bytes_ += bytes;
    return w->Named(++id, name, bytes, MemoryKind::kActivation,
                    within_call ? Lifetime::kCall : Lifetime::kMicrobatch);
  };
  const std::int64_t e = s.element_bytes;
  const std::int64_t local = s.local_tokens();
  const std::int64_t statistics = EagerNorms(s) ? EagerNormBytes(s, local * s.hidden)
                                                : local * 4 * (s.norm == Norm::kLayerNorm ? 2 : 1);
  const std::int64_t inputs = s.keeps_gathered() ? s.tokens() : local;  // of qkv's and fc1's rows
  const std::int64_t mask = s.dropout ? local * s.hidden : 0;
  const std::int64_t square = s.flash() ? 0 : s.batch * s.heads * s.seq * s.seq;
  const KeptProducts& kept = s.kept;
  const bool core = (full && !kept.core) || recomputes_core();
  const bool norms = full || s.recomputes(kRecomputeNorms);
  const bool mlp = full || s.recomputes(kRecomputeMlp);
  const bool again = s.in_group(kGroupAgain), hands_on = s.in_group(kGroupHandsOn);
  output_ = make("output", s.local_bytes(), hands_on && !again);
  // The last layer's output is there from both runs.
  const bool twice = again && !hands_on;
  if (twice) {
    first_output_ = output_;
    output_ = w->Named(kAgainOutput, "output", s.local_bytes(), MemoryKind::kActivation,
                       Lifetime::kMicrobatch);
  }
  if (s.in_group(kGroupInside) && !again) input_ = w->Temporary("input", s.local_bytes());
  recomputed_ = w->Temporary("output", s.local_bytes());
  norm1_stats_ = make("input_norm.statistics", statistics, norms);
  // A router's product is in 16 bits and keeps its input so; of latent attention both
  // down-projections keep theirs, a byte each.
  const std::int64_t wide = inputs * s.hidden * e;
  const std::int64_t operand = s.experts.count > 0 ? wide : LinearBytes(mlp_, inputs * s.hidden);
  norm1_out_ =
      make("input_norm.output",
           s.latent.kv_rank > 0 ? wide : LinearBytes(attention_, inputs * s.hidden), norms);
  qkv_ = make("qkv",
              s.latent.kv_rank > 0
                  ? LatentSaved(s)
                  : s.tokens() * ((s.borrows_keys ? s.query() : s.parts()) + s.gate()) * e +
                        local * s.compressed() * e + CompressedSaved(s),
              full && !kept.qkv);
  rotated_ = make("rotated",
                  rotates() && !s.framework.in_place_kernels
                      ? s.tokens() * (s.query() + (s.borrows_keys ? 0 : s.key_value())) * e *
                            (s.qk_norm ? 2 : 1)
                      : 0,
                  full);
  repeated_ =
      make("attention.repeated", s.repeats_heads() ? 2 * s.tokens() * s.query() * e : 0, full);
  attention_stats_ = make("attention.statistics", s.flash() ? s.tokens() * s.heads * 4 : 0, core);
  // PyTorch's own softmax runs and is saved in fp32.
  probabilities_ =
      make("attention.probabilities", square * (s.framework.fused_softmax ? e : 4), core);
  probability_mask_ = make("attention.mask", s.dropout ? square : 0, core);
  dropped_ = make("attention.dropped", s.dropout ? square * e : 0, core);
  // Unpadded, the kernel keeps its own output beside the one with its padding back.
  context_ =
      make("attention.context",
           ContextBytes(s, s.tokens() * s.context()) * (s.framework.unpads_attention ? 2 : 1),
           full && !kept.core);
  if (s.framework.packed_context) {
    context_wide_ = w->Temporary("attention.context", s.tokens() * s.context() * e);
  }
  mask1_ = make("projection.mask", mask, full && !kept.projection);
  // Side by side, attention's output is only added at the end; a shared norm is norm1.
  middle_ = make("middle", s.mixes() ? s.local_bytes() : 0,
                 (full && !kept.projection) || s.parallel_block);
  norm2_stats_ = make("mlp_norm.statistics", s.shared_norm ? 0 : statistics, norms);
  norm2_out_ = make("mlp_norm.output", s.shared_norm ? 0 : operand, norms);
  const std::int64_t fc1 = ActivationInputBytes(s, s.tokens() * s.fc1());
  if (s.framework.fp8_activation_input) {
    fc1_wide_ = w->Temporary("fc1.output", s.tokens() * s.fc1() * e);
  }
  const bool half = kept.halves && !kept.fc1;
  fc1_out_ = make("fc1.output", half ? fc1 / 2 : fc1, mlp && !kept.fc1);
  const std::int64_t silu = EagerGates(s) ? s.tokens() * s.ffn * e : 0;
  activated_ = make("activation.output", LinearBytes(mlp_, s.tokens() * s.ffn) + silu, mlp);
  mask2_ = make("fc2.mask", mask, full);
  latent_up_ = make("latent.up", LatentUpSaved(s), full || s.recomputes(kRecomputeMlaUp));
  if (s.recomputes(kRecomputeLatentNorms)) {
    latent_normed_ = make("latent.norm.output", LatentNormedBytes(s), true);
  }
  adapters_ = make("adapters", AdapterSavedBytes(s), full);
  if (const std::int64_t bytes = Int8InputBytes(s); bytes > 0) {
    int8_inputs_ = Saved(w, kInt8Inputs, "int8.inputs", bytes);
  }
  fc1_half_ = make("fc1.half", half ? fc1 / 2 : 0, false);
  if (s.attention_gate) {
    gated_ = make("attention.gated", s.tokens() * s.context() * e, full);
  }
  if (!s.post_norms) return;
  const std::int64_t post = s.local_bytes() + statistics;
  post1_ = make("post_attention_norm.input", post, full && !kept.projection);
  post2_ = make("post_mlp_norm.input", post, full);
}

bool LayerWriter::recomputes_core() const {
  return s_.recomputes(kRecomputeCore) && (!s_.flash() || s_.framework.recompute_flash);
}

void LayerWriter::Enter(std::string_view module) {
  workload::Enter(s_, w_, module, Pass::kForward);
}
void LayerWriter::EnterBackward(std::string_view module) {
  workload::Enter(s_, w_, module, Pass::kBackward);
}

void LayerWriter::BiasDropoutAdd() {
  const std::int64_t e = s_.element_bytes;
  w_->Kernel("bias_dropout_add", Elementwise(s_, MemoryOp::kBiasDropoutAdd, s_.local_tokens(),
                                             s_.hidden, (s_.parallel_block ? 3 : 2) * e,
                                             e + (s_.dropout ? 1 : 0), Pass::kForward));
}

void LayerWriter::BiasDropoutAddBackward(bool bias) {
  const std::int64_t e = s_.element_bytes;
  if (s_.dropout) {
    w_->Kernel("bias_dropout_add", Elementwise(s_, MemoryOp::kBiasDropoutAdd, s_.local_tokens(),
                                               s_.hidden, e + 1, e, Pass::kBackward));
  }
  if (bias) BiasGradient(s_, w_, s_.local_tokens(), s_.hidden);
}

// A row-parallel product over all tokens is given back once its sum is scattered.
Buffer LayerWriter::Scattered(const Buffer& product) {
  if (!s_.sequence_parallel || s_.framework.tp_comm_overlap) return product;
  const Buffer scattered = w_->Temporary("scattered", s_.local_bytes());
  w_->Alloc(scattered);
  w_->Free(product);
  return scattered;
}

void LayerWriter::AttentionForward(bool keep, bool keep_core) {
  Enter("layers.input_norm");
  if (!again_) w_->Alloc(int8_inputs_);
  w_->Alloc(adapters_);
  w_->Alloc(norm1_stats_);
  w_->Alloc(norm1_out_);
  NormForward(s_, w_);
  const bool keep_norm = keep && !s_.recomputes(kRecomputeNorms);
  Drop(keep_norm, norm1_stats_);
  BesideForward(keep);
  Enter("layers.self_attention.qkv");
  Hold(s_.kept.qkv, qkv_);
  w_->Alloc(latent_normed_);
  w_->Alloc(latent_up_);
  if (Runs(s_.kept.qkv)) {
    Qkv(Pass::kForward);
  } else if (s_.kept.halves) {
    ColumnForward(attention_, w_, "qkv", s_.hidden, s_.key_value());
  }
  QkvBias();
  if (!s_.shared_norm) Drop(keep_norm, norm1_out_);
  if (rotates()) {
    Enter("layers.self_attention.rotary");
    w_->Alloc(rotated_);
    RotaryOf(Pass::kForward);
  }
  if (s_.block_index.heads > 0) BlockIndexForward(s_, w_);
  if (s_.compressed_keys.any()) CompressKeys(s_, w_);
  w_->Alloc(repeated_);
  RepeatHeads(s_, w_, Pass::kForward);
  Hold(s_.kept.core, AsMade(context_wide_, context_));
  if (Runs(s_.kept.core)) CoreForward(keep_core || s_.kept.core);
  Gate(Pass::kForward);
  Drop(keep, repeated_);
  Drop(keep || s_.kept.qkv, qkv_);
  Drop(keep && !s_.recomputes(kRecomputeMlaUp), latent_up_);
  w_->Free(latent_normed_);
  Drop(keep, rotated_);
  if (!Runs(s_.kept.projection)) return;
  Enter("layers.self_attention.projection");
  Buffer projected =
      w_->Temporary("projected", s_.framework.tp_comm_overlap ? s_.local_bytes() : s_.full_bytes());
  w_->Alloc(projected);
  if (s_.compressed_keys.any()) {
    GroupedProjection(s_, w_);
  } else {
    RowForward(attention_, w_, "projection", s_.context(), s_.hidden);
  }
  projected = Scattered(projected);
  StoreNarrow(s_, w_, context_wide_, context_);
  Drop(keep || s_.kept.core, context_);
  Drop(keep, gated_);
  PostNorm("layers.post_attention_norm", keep || s_.kept.projection, post1_);
  Enter("layers.self_attention.bias_dropout_add");
  w_->Alloc(mask1_);
  w_->Alloc(middle_);
  if (s_.mamba.heads > 0) {
    const std::int64_t e = s_.element_bytes;
    w_->Kernel("add", Elementwise(s_, MemoryOp::kAdd, s_.local_tokens(), s_.hidden, 2 * e, e,
                                  Pass::kForward));
    w_->Free(beside_);
  }
  if (!s_.parallel_block) BiasDropoutAdd();
  Drop(keep || s_.kept.projection, mask1_);
  w_->Free(projected);
}

void LayerWriter::Gate(Pass pass) {
  if (!s_.attention_gate) return;
  const std::int64_t e = s_.element_bytes;
  const bool forward = pass == Pass::kForward;
  if (forward) {
    Enter("layers.self_attention.gate");
    w_->Alloc(gated_);
  } else {
    EnterBackward("layers.self_attention.gate");
  }
  w_->Kernel("gate", Elementwise(s_, MemoryOp::kSwiglu, s_.tokens(), s_.context(),
                                 forward ? 2 * e : 3 * e, forward ? e : 2 * e, pass));
  if (!forward) w_->Free(gated_);
}

void LayerWriter::Fc1AndFunction(bool keep, bool keep_norm) {
  Enter("layers.mlp.fc1");
  const bool half = again_ && s_.kept.halves;  // the other half of a gated one is kept
  Hold(s_.kept.fc1, AsMade(fc1_wide_, fc1_out_));
  if (!half) Hold(s_.kept.fc1, fc1_half_);
  if (Runs(s_.kept.fc1)) ColumnForward(mlp_, w_, "fc1", s_.hidden, half ? s_.ffn : s_.fc1());
  Drop(keep_norm, s_.shared_norm ? norm1_out_ : norm2_out_);
  Enter("layers.mlp.activation");
  w_->Alloc(activated_);
  Activation(Pass::kForward);
  StoreNarrow(s_, w_, fc1_wide_, fc1_out_);
  Drop(keep || s_.kept.fc1, fc1_out_);
}

// Between the norm and the residual; returns what it put out, allocated.
Buffer LayerWriter::MlpCore(bool keep, bool keep_norm) {
  Fc1AndFunction(keep, keep_norm);
  Enter("layers.mlp.fc2");
  Buffer projected =
      w_->Temporary("projected", s_.framework.tp_comm_overlap ? s_.local_bytes() : s_.full_bytes());
  w_->Alloc(projected);
  RowForward(mlp_, w_, "fc2", s_.ffn, s_.hidden);
  projected = Scattered(projected);
  Drop(keep, activated_);
  return projected;
}

void LayerWriter::MlpForward(bool keep) {
  const bool keep_norm = keep && !s_.recomputes(kRecomputeNorms);
  if (!s_.shared_norm) {
    Enter("layers.mlp_norm");
    w_->Alloc(norm2_stats_);
    w_->Alloc(norm2_out_);
    NormForward(s_, w_);
    Drop(keep_norm, norm2_stats_);
  }
  if (stops_early()) {
    if (s_.parallel_block) w_->Free(middle_);
    return Fc1AndFunction(keep, keep_norm);
  }
  const Buffer projected = MlpCore(keep && !s_.recomputes(kRecomputeMlp), keep_norm);
  PostNorm("layers.post_mlp_norm", keep, post2_);
  Enter("layers.mlp.bias_dropout_add");
  w_->Alloc(mask2_);
  w_->Alloc(again_ ? recomputed_ : output_);
  BiasDropoutAdd();
  Drop(keep, mask2_);
  Drop((keep || s_.kept.projection) && !s_.parallel_block, middle_);
  if (s_.crosses && !keep) CrossWriter(s_, w_).Drop();
  Drop(keep, adapters_);
  w_->Free(projected);
}

void LayerWriter::PostNorm(std::string_view module, bool keep, const Buffer& input) {
  if (!s_.post_norms) return;
  Enter(module);
  w_->Alloc(input);
  NormForward(s_, w_);
  Drop(keep, input);
}

// A norm whose output forward did not keep.
void LayerWriter::NormAgain(std::string_view module, const Buffer& statistics,
                            const Buffer& output) {
  if (!s_.recomputes(kRecomputeNorms)) return;
  Enter(module);
  w_->Alloc(statistics);
  w_->Alloc(output);
  NormForward(s_, w_);
}

void LayerWriter::Activation(Pass pass) {
  const bool gated = s_.activation == workload::Activation::kSwiglu;
  const MemoryOp op = gated ? MemoryOp::kSwiglu : MemoryOp::kGelu;
  const std::string_view name = ActivationName(s_);
  const std::int64_t e = s_.element_bytes;
  const std::int64_t inputs = gated ? 2 : 1;  // per output element
  if (EagerGates(s_)) return EagerGate(s_, w_, s_.tokens(), s_.ffn, pass);
  if (s_.framework.fused_bias_activation) {
    const std::int64_t read = pass == Pass::kForward ? inputs * e : (inputs + 1) * e;
    const std::int64_t written = pass == Pass::kForward ? e : inputs * e;
    w_->Kernel(name, Elementwise(s_, op, s_.tokens(), s_.ffn, read, written, pass));
    return;
  }
  if (s_.activation == workload::Activation::kSquaredRelu) {
    return SquaredReluOperators(s_, w_, pass);
  }
  // Unfused: bias, then the function, then the gate's product; backward in reverse.
  if (pass == Pass::kForward && s_.mlp_bias) {
    w_->Kernel("bias", Elementwise(s_, MemoryOp::kAdd, s_.tokens(), s_.fc1(), e, e, pass));
  }
  if (gated && pass == Pass::kBackward) {
    w_->Kernel("gate", Elementwise(s_, MemoryOp::kSwiglu, s_.tokens(), s_.ffn, 3 * e, 2 * e, pass));
  }
  const std::int64_t read = pass == Pass::kForward ? e : 2 * e;
  w_->Kernel(gated ? "silu" : name, Elementwise(s_, op, s_.tokens(), s_.ffn, read, e, pass));
  if (gated && pass == Pass::kForward) {
    w_->Kernel("gate", Elementwise(s_, MemoryOp::kSwiglu, s_.tokens(), s_.ffn, 2 * e, e, pass));
  }
  if (gated && pass == Pass::kBackward) {
    w_->Kernel("concatenate", Elementwise(s_, MemoryOp::kCopy, s_.tokens(), s_.fc1(), e, e, pass));
  }
}

Attention FlashAttention(const Shape& s, Pass pass) {
  const std::int64_t len = s.sequence();
  return {.batch = s.batch * (s.seq / len),
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .seq_q = len,
          .seq_kv = len,
          .head_dim = s.head_dim,
          .dtype = AttentionType(s),
          .causal = s.causal(),
          .pass = pass,
          .kernel = s.fused_attention(),
          .v_head_dim = s.other_v_head_dim(),
          .window = s.window};
}

void LayerWriter::CoreForward(bool keep_core) {
  Enter("layers.self_attention.core");
  if (!s_.sequence_parallel) w_->Host("random_state", s_.framework.host.rng_fork);
  w_->Host("attention", s_.framework.host.core);
  if (!s_.flash()) return UnfusedForward(keep_core);
  w_->Alloc(attention_stats_);
  if (s_.latent.sparse()) {
    w_->Kernel("sparse_attention", SparseAttention(s_, Pass::kForward));
    AbsorbForward(s_, w_, "absorb_out", s_.latent.v_dim);
    IndexLoss(s_, w_);
    return Drop(keep_core, attention_stats_);
  }
  CastAttention(s_, w_, s_.query() + s_.kv_heads * (s_.head_dim + s_.v_head_dim()), Pass::kForward);
  if (s_.cp > 1) {
    ContextForward(s_, w_);
    return Drop(keep_core, attention_stats_);
  }
  ToProduct(s_, w_, "attention.cast", s_.tokens(), s_.parts(), Pass::kForward);
  BeforeAttention(s_, w_, Pass::kForward);
  w_->Kernel("flash_attention", FlashAttention(s_, Pass::kForward));
  BehindAttention(s_, w_, Pass::kForward);
  Drop(keep_core, attention_stats_);
}

// Added to the scores of every sequence alike; backward its gradient is summed over the sequences
// and added to that of the layers behind, which share it.
void LayerWriter::PositionBias(Pass pass) {
  if (s_.position != Position::kRelative) return;
  const std::int64_t e = s_.element_bytes, bias = s_.heads * s_.seq * s_.seq;
  graph::MemoryBound kernel = Elementwise(s_, MemoryOp::kAdd, s_.batch * s_.heads * s_.seq, s_.seq,
                                          e, pass == Pass::kForward ? e : 0, pass);
  kernel.bytes_read += bias * e;
  if (pass == Pass::kBackward) kernel.bytes_written += bias * e;
  w_->Kernel("position_bias", kernel);
}

void LayerWriter::UnfusedForward(bool keep_core) {
  const std::int64_t e = s_.element_bytes;
  const std::int64_t rows = s_.batch * s_.heads * s_.seq;
  if (s_.kv_heads < s_.heads) {  // keys and values are repeated for every query head
    w_->Kernel("repeat_k",
               Elementwise(s_, MemoryOp::kCopy, s_.tokens(), s_.query(), e, e, Pass::kForward));
    w_->Kernel("repeat_v",
               Elementwise(s_, MemoryOp::kCopy, s_.tokens(), s_.query(), e, e, Pass::kForward));
  }
  const Buffer scores = w_->Temporary("scores", s_.framework.keeps_scores ? 0 : rows * s_.seq * e);
  w_->Alloc(scores);
  w_->Kernel("scores", Batched(s_, s_.seq, s_.seq, s_.head_dim, GemmLayout::kNT));
  PositionBias(Pass::kForward);
  w_->Alloc(probabilities_);
  WriteSoftmax(s_, w_, rows, s_.seq, Pass::kForward);
  w_->Free(scores);
  w_->Alloc(probability_mask_);
  w_->Alloc(dropped_);
  if (s_.dropout) {
    w_->Kernel("attention_dropout",
               Elementwise(s_, MemoryOp::kDropout, rows, s_.seq, e, e + 1, Pass::kForward));
  }
  w_->Kernel("context", Batched(s_, s_.seq, s_.v_head_dim(), s_.seq, GemmLayout::kNN));
  w_->Kernel("transpose", Elementwise(s_, MemoryOp::kTranspose, s_.tokens(), s_.context(), e, e,
                                      Pass::kForward));
  Drop(keep_core, probabilities_);
  Drop(keep_core, probability_mask_);
  Drop(keep_core, dropped_);
}

}  // namespace orrery::workload
