// Gemma 3n's residuals: several streams of them (AltUp, Baykal et al. 2023) and a low-rank product
// beside attention (LAuReL, Menghani et al. 2024).
//
// With N streams a layer first predicts each from all of them: N · N coefficients a token, from a
// router over the first stream, times the streams, which are added. The layer's attention and
// feed-forward work on the first prediction. Then all are corrected by what came out, less the
// first prediction, times N coefficients of another router; the layer's own embedding is added to
// all but the first. Before the first layer N - 1 projections make the streams of the embeddings,
// each scaled to their magnitude; behind the last as many bring them together, and their mean goes
// to the last norm. LAuReL adds to attention's output the layer's normalised input and a norm of
// its product with two matrices of a small rank.
//
// Every tensor-parallel rank runs all of this whole, on its own tokens. Kernels are PyTorch's
// operators one by one, as transformers runs them (5.24.0, models/gemma3n, read for its behaviour);
// those over N numbers a token are left out. Kept for backward besides the layer's own: N - 1
// streams more of its input, their copy for the product, N copies of the correction, LAuReL's
// rank and what its norm reads.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Of a layer, whole on every tensor-parallel rank: LAuReL's products and norm; AltUp's router,
// coefficients, scale and norm. Empty without them.
std::vector<std::int64_t> AltUpParameters(const Shape& s);

// REQUIRES: s.altup_streams > 1.
class AltUpWriter {
 public:
  AltUpWriter(const Shape& s, BlockWriter* w);
  // `keep`: tensors stay for backward; `again`: the layer's input is there from the first run.
  void Predict(bool keep, bool again);
  void Correct(bool keep);
  void CorrectBackward();
  void PredictBackward();

 private:
  void Router(graph::Pass pass);

  const Shape& s_;
  BlockWriter* w_;
  std::int64_t n_;
  graph::Buffer streams_, operand_, innovation_;
};

// REQUIRES: s.laurel_rank > 0.
class LaurelWriter {
 public:
  LaurelWriter(const Shape& s, BlockWriter* w);
  void Forward(bool keep);
  void Backward();

 private:
  const Shape& s_;
  BlockWriter* w_;
  graph::Buffer inner_, product_;
};

// The projections at the model's ends. REQUIRES: s.altup_streams > 1.
enum class Ends : std::uint8_t { kEmbedding, kHead };
void StreamsForward(const Shape& s, Ends end, BlockWriter* w);
void StreamsBackward(const Shape& s, Ends end, BlockWriter* w);

}  // namespace orrery::workload
