#include "orrery/workload/generators/layers/patches.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/layer_writer.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids beside those of layers, ends and experts.
enum : std::uint32_t { kPixels = 97, kPoolKeys, kPoolNormed, kPoolHidden };

Buffer Pixels(const Shape& s, BlockWriter* w) {
  return Saved(w, kPixels, "pixels", s.tokens() * s.patch_values * s.element_bytes);
}

// Of the pool, which all ranks hold whole.
std::int64_t PoolWidth(const Shape& s) { return s.ffn * s.tp; }
std::int64_t PoolGates(const Shape& s) { return s.activation == Activation::kSwiglu ? 2 : 1; }

struct PoolBuffers {
  Buffer keys, normed, hidden;
};
PoolBuffers Pooled(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  return {
      Saved(w, kPoolKeys, "pool.keys", 2 * s.tokens() * s.hidden * e),
      Saved(w, kPoolNormed, "pool.norm.output", 3 * s.batch * s.hidden * e),
      Saved(w, kPoolHidden, "pool.fc1.output", s.batch * (PoolGates(s) + 1) * PoolWidth(s) * e)};
}

// rows × in to rows × out and back: gradients of the input, then of the weights.
void Linear(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
            std::int64_t in, std::int64_t out, Pass pass, bool bias = true) {
  const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    WriteGemm(InBf16(s), w, name, {.m = m, .n = n, .k = k, .dtype = s.dtype, .layout = layout});
  };
  if (pass == Pass::kForward) return product(rows, out, in, GemmLayout::kNT);
  product(rows, in, out, GemmLayout::kNN);
  product(out, in, rows, GemmLayout::kTN);
  if (bias) BiasGradient(s, w, rows, out);
}

graph::Attention PoolAttention(const Shape& s, Pass pass) {
  graph::Attention attention = FlashAttention(s, pass);
  attention.heads = attention.kv_heads = s.heads * s.tp;
  attention.seq_q = 1;
  attention.kernel = graph::AttentionKernel::kFlash2;
  return attention;
}

}  // namespace

void PatchesForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Module("embedding.patches");
  w->Alloc(Pixels(s, w));
  const Buffer tokens = w->Temporary("embedding.output", s.full_bytes());
  w->Alloc(tokens);
  Linear(s, w, "patches", s.tokens(), s.patch_values, s.hidden, Pass::kForward);
  if (s.position == Position::kLearned) {
    w->Module("embedding.position");
    w->Kernel("add",
              Elementwise(s, MemoryOp::kAdd, s.tokens(), s.hidden, 2 * e, e, Pass::kForward));
  }
  w->Free(tokens);
}

void PatchesBackward(const Shape& s, BlockWriter* w) {
  if (s.position == Position::kLearned) {
    w->Module("embedding.position");
    BiasGradient(s, w, s.batch, s.seq * s.hidden);  // summed over images
  }
  w->Module("embedding.patches");
  WriteGemm(s, w, "patches",
            {.m = s.hidden,
             .n = s.patch_values,
             .k = s.tokens(),
             .dtype = s.dtype,
             .layout = GemmLayout::kTN});
  BiasGradient(s, w, s.tokens(), s.hidden);
  w->Free(Pixels(s, w));
}

void PoolForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const Pass pass = Pass::kForward;
  w->Module("head.pool");
  if (!s.attention_pool) {
    return w->Kernel("first_token", Elementwise(s, MemoryOp::kCopy, s.batch, s.hidden, e, e, pass));
  }
  const PoolBuffers kept = Pooled(s, w);
  for (const Buffer& buffer : {kept.keys, kept.normed, kept.hidden}) w->Alloc(buffer);
  const std::int64_t ffn = PoolWidth(s), gates = PoolGates(s);
  Linear(s, w, "keys_and_values", s.tokens(), s.hidden, 2 * s.hidden, pass);
  Linear(s, w, "query", 1, s.hidden, s.hidden, pass);
  w->Kernel("flash_attention", PoolAttention(s, pass));
  Linear(s, w, "projection", s.batch, s.hidden, s.hidden, pass);
  w->Kernel("layer_norm", Elementwise(s, MemoryOp::kLayerNorm, s.batch, s.hidden, e, e, pass));
  Linear(s, w, "fc1", s.batch, s.hidden, gates * ffn, pass);
  w->Kernel(ActivationName(s), Elementwise(s, MemoryOp::kGelu, s.batch, gates * ffn, e, e, pass));
  Linear(s, w, "fc2", s.batch, ffn, s.hidden, pass);
  w->Kernel("add", Elementwise(s, MemoryOp::kAdd, s.batch, s.hidden, 2 * e, e, pass));
}

void PoolBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  const Pass pass = Pass::kBackward;
  w->Module("head.pool");
  if (!s.attention_pool) {  // the other tokens' gradients are zeros
    return w->Kernel("first_token",
                     Elementwise(s, MemoryOp::kZero, s.tokens(), s.hidden, 0, e, pass));
  }
  const std::int64_t ffn = PoolWidth(s), gates = PoolGates(s);
  Linear(s, w, "fc2", s.batch, ffn, s.hidden, pass, s.mlp_bias);
  w->Kernel(ActivationName(s),
            Elementwise(s, MemoryOp::kGelu, s.batch, gates * ffn, 2 * e, e, pass));
  Linear(s, w, "fc1", s.batch, s.hidden, gates * ffn, pass, s.mlp_bias);
  w->Kernel("layer_norm", Elementwise(s, MemoryOp::kLayerNorm, s.batch, s.hidden, 2 * e, e, pass));
  AccumulateGradient(s, w, "weight_gradient", s.hidden);
  if (s.norm == Norm::kLayerNorm) AccumulateGradient(s, w, "bias_gradient", s.hidden);
  Linear(s, w, "projection", s.batch, s.hidden, s.hidden, pass);
  w->Kernel("flash_attention", PoolAttention(s, pass));
  Linear(s, w, "query", 1, s.hidden, s.hidden, pass);
  AccumulateGradient(s, w, "probe", s.hidden);
  Linear(s, w, "keys_and_values", s.tokens(), s.hidden, 2 * s.hidden, pass);
  const PoolBuffers kept = Pooled(s, w);
  for (const Buffer& buffer : {kept.keys, kept.normed, kept.hidden}) w->Free(buffer);
}

Shape OfImages(const Shape& s) {
  Shape images = s;
  images.seq = 1;
  return images;
}

}  // namespace orrery::workload
