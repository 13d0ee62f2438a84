// Models of two stacks (T5, Whisper): an encoder, and a decoder whose layers attend to what it puts
// out besides attending to themselves.
//
// Layers at the front are the encoder's: attention of all tokens to all, at the encoder's length.
// The decoder's first layer begins with the turn: the norm behind the encoder, whose output lives
// until that layer's backward pass, and the look-up of the decoder's tokens. A gradient of the same
// size, to which every decoder layer adds its own, is held as long: from forward on, where PyTorch
// makes it when backward begins.
//
// Cross attention, between self-attention and feed-forward: norm, query of the decoder's tokens,
// keys and values of the encoder's, scores and context of one length by the other (no mask), the
// projection, the residual. Backward the same in reverse; the gradient of the encoder's output is
// added to that of the layers behind. Selective recomputation leaves cross attention alone.
//
// Frames of a sound (Whisper): two convolutions of three taps, the second of stride two, priced as
// products over their taps; GeLU behind each.
// Source: transformers 5.24.0, models/t5 and models/whisper, read for their behaviour.
#pragma once

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// Of the encoder's tokens.
Shape EncoderShape(const Shape& s);

// In place of the embedding of words, of the encoder's shape. REQUIRES: s.frame_values > 0.
void FramesForward(const Shape& s, BlockWriter* w);
void FramesBackward(const Shape& s, BlockWriter* w);

void TurnForward(const Shape& s, BlockWriter* w);
void TurnBackward(const Shape& s, BlockWriter* w);

class CrossWriter {
 public:
  // REQUIRES: s.crosses.
  CrossWriter(const Shape& s, BlockWriter* w);

  // `keep`: tensors stay for the backward pass. The residual behind stays until Drop or Backward.
  void Forward(bool keep);
  void Drop() { w_->Free(residual_); }
  void Backward();

 private:
  graph::Attention Flash(graph::Pass pass) const;
  void Core(bool keep);
  void CoreBackward();
  bool flash() const { return s_.cross_attention != AttentionBackend::kUnfused; }
  std::int64_t rows() const { return s_.batch * s_.heads * s_.seq; }

  const Shape s_;        // the layer's, with the kernel of cross attention
  const Shape encoder_;  // of the encoder's tokens
  BlockWriter* w_;
  graph::Buffer statistics_, normed_, query_, key_value_, scores_, score_mask_, dropped_, context_,
      mask_, residual_;
};

}  // namespace orrery::workload
