// The halves of a layer and the tensors that pass between them; used by layer.cc only.
#pragma once

#include <initializer_list>
#include <string_view>

#include "orrery/workload/generators/layers/encoder_decoder.h"

namespace orrery::workload {

// REQUIRES: s.flash(), cp 1.
graph::Attention FlashAttention(const Shape& s, graph::Pass pass);

class LayerWriter {
 public:
  LayerWriter(const Shape& s, BlockWriter* w);

  // Core attention runs again in backward although the layer as a whole does not.
  bool recomputes_core() const;

  // `keep`: tensors stay for the backward pass; `keep_core`: those inside core attention too.
  void AttentionForward(bool keep, bool keep_core);
  void CrossForward(bool keep);     // behind it, of a decoder's layer
  void MambaForward(bool keep);     // in its place where the layer's mixer is Mamba's alone
  void SkipMixer();                 // the layer is a feed-forward alone
  void SkipFeedForward(bool keep);  // or has none
  void MlpForward(bool keep);
  void ExpertsForward(bool keep);  // in its place where the layer has experts

  // Of layers that run again at once: a neighbour's output is given back with its own call, and
  // lives on as the input here.
  void BeginForward();
  void EndForward();
  void BeginBackward();
  // Forward runs again: its output stays until the layer's backward pass is over.
  void BeginRecompute() { again_ = true; }
  void MlpBackward();
  void ExpertsBackward();
  void CrossBackward();
  void AttentionBackward();
  void MambaBackward();
  void EndBackward();
  // Kept tensors into their stacks, and out of them again.
  void Stack(graph::Pass pass);

 private:
  // A module's operations follow; its host work.
  void Enter(std::string_view module);
  void EnterBackward(std::string_view module);
  void NormAndResidualBackward(std::initializer_list<graph::Buffer> inputs);
  // The norm behind a part, whose output is its `input`. Backward: the gradient of that, allocated.
  void PostNorm(std::string_view module, bool keep, const graph::Buffer& input);
  graph::Buffer PostNormBackward(std::string_view module, const graph::Buffer& input);
  graph::Buffer Scattered(const graph::Buffer& product);
  void Fc1AndFunction(bool keep, bool keep_norm);
  graph::Buffer MlpCore(bool keep, bool keep_norm);
  void NormAgain(std::string_view module, const graph::Buffer& statistics,
                 const graph::Buffer& output);
  // From the norm's output to queries, keys and values, or their gradients back to it.
  void Qkv(graph::Pass pass);
  // Mamba beside attention: from the same norm's output to what is added to attention's; backward
  // adds its gradient to that of the norm's output.
  void BesideForward(bool keep);
  void BesideBackward();
  void QkNorm(graph::Pass pass);
  void QkvBias();
  void RotaryOf(graph::Pass pass);
  void LendGradients();
  bool rotates() const { return s_.position == Position::kRotary && s_.latent.kv_rank == 0; }
  void CoreForward(bool keep_core);
  // What attention puts out times the sigmoid of its gate, where it has one.
  void Gate(graph::Pass pass);
  void UnfusedForward(bool keep_core);
  void PositionBias(graph::Pass pass);
  void CoreBackward();
  void UnfusedBackward();
  void Activation(graph::Pass pass);
  void BiasDropoutAdd();
  void BiasDropoutAddBackward(bool bias);
  void Drop(bool keep, const graph::Buffer& buffer) {
    if (!keep) w_->Free(buffer);
  }
  void FreeFc1() {
    w_->Free(fc1_out_);
    w_->Free(fc1_half_);
  }
  // Run again, the layer ends with its activation function.
  bool stops_early() const {
    return again_ && s_.kept.stops && s_.feeds_forward && s_.experts.count == 0;
  }
  // What a recomputed layer finds `kept` stays from its first run.
  bool Runs(bool kept) const { return !again_ || !kept; }
  void Hold(bool kept, const graph::Buffer& buffer) {
    if (Runs(kept)) w_->Alloc(buffer);
  }

  const Shape& s_;
  const Shape attention_, mlp_;  // of their linear layers
  BlockWriter* w_;
  bool again_ = false;
  std::int64_t kept_bytes_ = 0;  // of tensors that wait for the backward pass
  // What a layer hands on is made while its temporaries live, and is the next one's input: counted
  // here from the end of forward to the end of backward.
  graph::Buffer post1_, post2_;  // inputs of the norms behind the parts, with their statistics
  graph::Buffer output_, recomputed_, norm1_stats_, norm1_out_, qkv_, rotated_, repeated_,
      attention_stats_, probabilities_, probability_mask_, dropped_, context_, mask1_, middle_,
      norm2_stats_, norm2_out_, fc1_out_, fc1_half_, activated_, mask2_, latent_up_, gradient_,
      adapters_;
  graph::Buffer gated_;                    // the context behind its gate
  graph::Buffer fc1_wide_, context_wide_;  // where they are kept in fewer bits (stored_inputs.h)
  graph::Buffer latent_normed_;            // what the norms of compressed tensors put out
  graph::Buffer int8_inputs_;              // that stay although the layer runs again
  graph::Buffer beside_;                   // what Mamba beside attention puts out
  graph::Buffer input_, first_output_;     // of layers that run again at once
};

}  // namespace orrery::workload
