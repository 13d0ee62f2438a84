// DeepSeek's sparse attention: an indexer scores all earlier tokens of a query, and latent
// attention sees the index_topk best of them.
//
// Scores: I(t, s) = sum over index heads of w(t, h) · ReLU(q(t, h) · k(s)), in 8 bits where the
// plan computes in 8 bits. Attention is latent attention with the up-projection of keys and values
// absorbed into queries and outputs, so that all heads of a query share the latent vectors of its
// tokens (DeepSeek-V3.2, 2025, section 2.1 and figure 2). The indexer is trained beside the model,
// its inputs detached, on the divergence between its scores and attention's over the selected
// tokens (section 2.1.1, sparse training; the dense warm-up is not modelled). Every tensor-parallel
// rank has the indexer whole and runs it on all tokens. Its queries come from the compressed ones;
// where queries are not compressed, from the layer's input behind a LayerNorm of its own (Mistral
// Large 4; transformers 5.24.0, models/mistral_large4).
//
// Kernels: scores as a product that reduces over heads and their width at once, half of the square;
// the sparse kernel as an attention kernel whose window is index_topk, the same pairs, at the rate
// of cuDNN's (FlashMLA's sparse prefill: 640 TFLOP/s on H800, 1,450 on B200; its README). Source:
// the paper; deepseek-ai/DeepSeek-V3.2-Exp, inference/model.py (Indexer), and Megatron Core's
// experimental_attention_variant (absorbed_mla.py, dsa.py), read for their behaviour.
#pragma once

#include <string_view>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

// Tokens that a query sees, in the mean over a sequence.
std::int64_t SelectedTokens(const Shape& s);

// From the norms' outputs to the indices of the selected tokens.
void IndexForward(const Shape& s, BlockWriter* w);
// Behind attention: the indexer's loss, which needs attention's own distribution.
void IndexLoss(const Shape& s, BlockWriter* w);
// Gradients of the indexer's weights; its inputs get none.
void IndexBackward(const Shape& s, BlockWriter* w);

// Queries times keys' up-projection, and outputs times values': per head, in place of the product
// that materialises keys and values.
void AbsorbForward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width);
void AbsorbBackward(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t width);
graph::Attention SparseAttention(const Shape& s, graph::Pass pass);

// Bytes that stay for the backward pass: the indexer's; queries, latent vectors and outputs of the
// sparse kernel.
std::int64_t IndexSaved(const Shape& s);
std::int64_t AbsorbedSaved(const Shape& s);

}  // namespace orrery::workload
