#include "orrery/workload/generators/layers/quantized.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/prepared_base.h"
#include "orrery/workload/generators/sharding/optimizer.h"

namespace orrery::workload {

using graph::Buffer;
using graph::DType;
using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryBound;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

constexpr std::int64_t kBlock = 64, kBlockOfScales = 256;

std::int64_t Blocks(std::int64_t n, std::int64_t each) { return (n + each - 1) / each; }

PackedWeights Pack(const Shape& s, std::int64_t elements, std::int64_t rows) {
  if (s.base_weights == BaseWeights::kInt8) return {elements, elements, 4 * rows};
  const std::int64_t blocks = Blocks(elements, kBlock);
  const std::int64_t scale = s.framework.nf4_tensor ? 2 : 4;
  return {elements, Blocks(elements, 2),
          s.double_quantization ? blocks + scale * Blocks(blocks, kBlockOfScales) : 4 * blocks};
}

// Linear layers of a layer that the optimizer's list of matrices leaves out.
std::vector<Matrix> MoreMatrices(const Shape& s) {
  std::vector<Matrix> all;
  if (s.crosses) all = {{s.query() + 2 * s.key_value(), s.hidden}, {s.hidden, s.context()}};
  if (s.attends && s.latent.sparse()) {
    const Latent& l = s.latent;
    all.insert(all.end(), {{l.index_heads * l.index_dim, l.index_width(s.hidden)},
                           {l.index_dim, s.hidden},
                           {l.index_heads, s.hidden}});
  }
  if (s.mamba.selected() > 0) {
    all.insert(all.end(),
               {{s.mamba.selected(), s.mamba.inner()}, {s.mamba.inner(), s.mamba.gate_rank}});
  } else if (s.mamba.gate_rank > 0) {
    all.insert(all.end(),
               {{s.mamba.inner(), s.mamba.gate_rank}, {s.mamba.decays(), s.mamba.gate_rank}});
  }
  if (s.feeds_forward && s.layer_embedding > 0) {
    all.insert(all.end(), {{s.layer_embedding, s.hidden}, {s.hidden, s.layer_embedding}});
    if (s.laurel_rank > 0) {
      all.insert(all.end(), {{s.laurel_rank, s.hidden}, {s.hidden, s.laurel_rank}});
    }
  }
  return all;
}

MemoryBound Streamed(const Shape& s, MemoryOp op, std::int64_t n, std::int64_t read,
                     std::int64_t written, Pass pass) {
  return {.op = op,
          .rows = 1,
          .cols = n,
          .bytes_read = read,
          .bytes_written = written,
          .dtype = s.dtype,
          .pass = pass};
}

// NF4Tensor::get_original_weight, operator by operator: each half of the bytes shifted or masked,
// widened to indices, looked up and multiplied by scales that are written out; both put together.
void UnpackByOperators(const Shape& s, BlockWriter* w, std::int64_t n, Pass pass) {
  const std::int64_t half = n / 2, e = s.product_bytes();
  const Buffer indices = w->Temporary("weight.indices", 2 * half * 8);
  w->Alloc(indices);
  const auto run = [&](std::string_view name, MemoryOp op, std::int64_t read,
                       std::int64_t written) {
    for (int i = 0; i < 2; ++i) w->Kernel(name, Streamed(s, op, half, read, written, pass));
  };
  run("unpack", MemoryOp::kCopy, half, half);
  run("unpack.indices", MemoryOp::kCast, half, 8 * half);
  const Buffer values = w->Temporary("weight.values", n * e);
  w->Alloc(values);
  run("unpack.values", MemoryOp::kCopy, 8 * half, e * half);
  w->Free(indices);
  const Buffer scaled = w->Temporary("weight.scaled", n * e);
  w->Alloc(scaled);
  run("unpack.scales", MemoryOp::kCopy, e * half / kBlock, e * half);
  run("unpack.multiply", MemoryOp::kAdd, 2 * e * half, e * half);
  w->Free(values);
  w->Kernel("unpack.stack", Streamed(s, MemoryOp::kCopy, n, e * n, e * n, pass));
  w->Free(scaled);
}

void Dequantize(const Shape& s, BlockWriter* w, std::int64_t n, std::int64_t rows, Pass pass) {
  const PackedWeights packed = Pack(s, n, rows);
  if (s.base_weights == BaseWeights::kInt8) {
    const std::int64_t e = s.element_bytes;  // as the gradient that it multiplies
    w->Kernel("weight.cast", Streamed(s, MemoryOp::kCast, n, n, e * n, pass));
    return w->Kernel("weight.scale", Streamed(s, MemoryOp::kGradScale, n, e * n, e * n, pass));
  }
  if (s.double_quantization) {
    const std::int64_t blocks = Blocks(n, kBlock);
    w->Kernel("scales.dequantize",
              Streamed(s, MemoryOp::kCast, blocks, packed.scales, 4 * blocks, pass));
    w->Kernel("scales.offset", Streamed(s, MemoryOp::kAdd, blocks, 4 * blocks, 4 * blocks, pass));
  }
  if (s.framework.nf4_tensor && s.framework.torch_layers == TorchLayers::kEager) {
    return UnpackByOperators(s, w, n, pass);
  }
  // Compiled, NF4Tensor's is no kernel of bitsandbytes.
  const MemoryOp op = s.framework.nf4_tensor ? MemoryOp::kCast : MemoryOp::kDequantize;
  w->Kernel("dequantize",
            Streamed(s, op, n, packed.codes + 4 * Blocks(n, kBlock), s.product_bytes() * n, pass));
}

void Int8Product(const Shape& s, BlockWriter* w, std::string_view name, const Gemm& gemm) {
  const Pass pass = Pass::kForward;
  const std::int64_t e = s.element_bytes, in = gemm.batch * gemm.m * gemm.k;
  const std::int64_t out = gemm.batch * gemm.m * gemm.n;
  const auto run = [&](std::string_view part, MemoryOp op, std::int64_t n, std::int64_t read,
                       std::int64_t written) {
    w->Kernel(part, Streamed(s, op, n, n * read, n * written, pass));
  };
  const Buffer codes = w->Temporary("input.int8", in);
  w->Host("int8_product", 3 * s.framework.host.module_forward);  // as of a dequantised product
  w->Alloc(codes);
  if (s.dtype != DType::kFp16) run("input.cast", MemoryOp::kCast, in, e, 2);
  run("outliers.absolute", MemoryOp::kCopy, in, 2, 2);
  run("outliers.compare", MemoryOp::kCopy, in, 2, 1);
  run("outliers.any", MemoryOp::kGradNorm, in, 1, 0);
  w->HostSync("outliers.any");
  run("outliers.columns", MemoryOp::kGradNorm, in, 1, 0);
  w->HostSync("outliers.columns");
  run("input.quantize", MemoryOp::kCast, in, 2, 1);
  const Buffer sums = w->Temporary("output.int32", 4 * out);
  w->Alloc(sums);
  Gemm product = gemm;
  product.dtype = DType::kInt8;
  product.out_dtype = DType::kFp32;  // 32 bits
  w->Kernel(name, product);
  run("output.dequantize", MemoryOp::kCast, out, 4, 2);
  if (s.dtype != DType::kFp16) run("output.cast", MemoryOp::kCast, out, 2, e);
  w->Free(sums);
  w->Free(codes);
}

}  // namespace

PackedWeights operator+(const PackedWeights& a, const PackedWeights& b) {
  return {a.elements + b.elements, a.codes + b.codes, a.scales + b.scales};
}

PackedWeights PackedOf(const Shape& layer) {
  PackedWeights sum;
  if (!IsQuantized(layer)) return sum;
  for (const auto& matrices : {LayerMatrices(layer), MoreMatrices(layer)}) {
    for (const Matrix& m : matrices) sum = sum + Pack(layer, m.elements(), m.rows);
  }
  return sum;
}

PackedWeights PackedExperts(const Shape& layer) {
  PackedWeights sum;
  if (!IsQuantized(layer) || layer.experts.count == 0) return sum;
  for (const Matrix& m : ExpertMatrices(layer)) {
    const std::int64_t local = layer.experts.local;
    sum = sum + Pack(layer, local * m.elements(), local * m.rows);
  }
  return sum;
}

void MultiplyByWeight(const Shape& s, BlockWriter* w, std::string_view name, const Gemm& gemm) {
  if (!IsQuantized(s)) return w->Kernel(name, gemm);
  const bool forward = gemm.layout == GemmLayout::kNT;
  const bool int8 = s.base_weights == BaseWeights::kInt8;
  if (int8 && forward) return Int8Product(s, w, name, gemm);
  const Pass pass = forward ? Pass::kForward : Pass::kBackward;
  // Of experts, one at a time.
  const Buffer weight = w->Temporary(
      "weight.dequantized", gemm.n * gemm.k * (int8 ? s.element_bytes : s.product_bytes()));
  w->Alloc(weight);
  // bitsandbytes: a Python autograd function, whose operators (product, scales, weight) are
  // registered from Python, too.
  if (!s.framework.nf4_tensor) w->Host("dequantize", 3 * s.framework.host.module_forward);
  Dequantize(s, w, gemm.batch * gemm.n * gemm.k, gemm.batch * (forward ? gemm.n : gemm.k), pass);
  if (int8) {
    Gemm wide = gemm;
    if (s.framework.prepared_base) wide.dtype = wide.out_dtype = DType::kFp32;
    w->Kernel(name, wide);
  } else {
    ToProduct(s, w, "input.cast", gemm.batch * gemm.m, gemm.k, pass);
    w->Kernel(name, gemm);
    FromProduct(s, w, "output.cast", gemm.batch * gemm.m, gemm.n, pass);
  }
  w->Free(weight);
}

std::int64_t Int8InputBytes(const Shape& s) {
  const bool dense = s.attends && s.feeds_forward && s.experts.count == 0;
  if (s.base_weights != BaseWeights::kInt8 || s.recompute != Recompute::kFull || !dense) return 0;
  // Attention's output is in the type of products.
  return s.local_tokens() * 2 * s.hidden * s.element_bytes +
         s.tokens() * (s.context() * s.product_bytes() + s.ffn * s.element_bytes);
}

graph::Block FrozenMemory(const Shape& s, std::int64_t elements, std::int64_t codes,
                          std::int64_t scales, Names* names) {
  BlockWriter w(names, "frozen", Pass::kOptimizer);
  const auto forever = [&](std::uint32_t id, std::string_view name, std::int64_t bytes) {
    if (bytes == 0) return;
    w.Alloc(w.Named(id, name, bytes, MemoryKind::kParameter, graph::Lifetime::kForever));
  };
  forever(20, "frozen_parameters", elements * s.element_bytes);
  forever(21, "quantized_weights", codes);
  forever(22, "quantization_scales", scales);
  return w.Finish();
}

}  // namespace orrery::workload
