// Embeddings of every layer's own (Gemma 4 E2B and E4B, Gemma 3n before them): a table as wide as
// all layers' parts together beside that of the words, whose rows are added to a projection of the
// words' embeddings, behind a norm of every part. Behind its feed-forward a layer projects its
// output to a part's width, multiplies a function of it by its part, projects back, and adds the
// result, behind a norm. Every tensor-parallel rank runs these projections whole; the table is
// split by words. Its look-up moves memory, and its gradient is as dense as the words'.
// Source: transformers 5.24.0, models/gemma4, read for its behaviour.
#pragma once

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// REQUIRES: s.layer_embedding > 0.
void LayerEmbeddingsForward(const Shape& s, BlockWriter* w);
void LayerEmbeddingsBackward(const Shape& s, BlockWriter* w);

class LayerEmbeddingWriter {
 public:
  LayerEmbeddingWriter(const Shape& s, BlockWriter* w);
  void Forward(bool keep);
  void Backward();

 private:
  const Shape& s_;
  BlockWriter* w_;
  graph::Buffer input_, gate_, gated_, projected_;
};

}  // namespace orrery::workload
