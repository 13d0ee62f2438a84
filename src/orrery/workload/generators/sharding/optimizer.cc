#include "orrery/workload/generators/sharding/optimizer.h"

#include <algorithm>
#include <functional>

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/offload.h"

namespace orrery::workload {

using graph::DType;
using graph::Gemm;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryBound;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

MemoryBound Flat(MemoryOp op, std::int64_t elements, std::int64_t read, std::int64_t written,
                 DType dtype) {
  return {.op = op,
          .rows = 1,
          .cols = elements,
          .bytes_read = elements * read,
          .bytes_written = elements * written,
          .dtype = dtype,
          .pass = Pass::kOptimizer};
}

namespace {

void AddFeedForward(const Shape& s, std::vector<Matrix>* all) {
  const ExpertShape& e = s.experts;
  if (e.count == 0) {
    all->insert(all->end(), {{s.fc1(), s.hidden}, {s.hidden, s.ffn}});
    return;
  }
  all->push_back({e.count, s.hidden});
  if (e.latent) all->insert(all->end(), {{e.width, s.hidden}, {s.hidden, e.width}});
  const std::int64_t gates = s.activation == Activation::kSwiglu ? 2 : 1;
  if (e.shared > 0) {
    all->insert(all->end(), {{gates * e.shared, s.hidden}, {s.hidden, e.shared}});
  }
}

}  // namespace

std::vector<Matrix> LayerMatrices(const Shape& s) {
  std::vector<Matrix> all;
  if (s.mamba.heads > 0) {
    all = {{s.mamba.projected(), s.hidden}, {s.hidden, s.mamba.inner()}};
  }
  if (s.attends) {
    const Latent& l = s.latent;
    if (l.queries_alone()) {
      all.insert(all.end(),
                 {{l.q_rank, s.hidden}, {s.query(), l.q_rank}, {s.qkv() - s.query(), s.hidden}});
    } else if (l.kv_rank == 0) {
      all.push_back({s.qkv(), s.hidden});
    } else {
      if (l.q_rank > 0) all.push_back({l.q_rank, s.hidden});
      all.push_back({s.query(), l.q_rank > 0 ? l.q_rank : s.hidden});
      all.push_back({l.kv_rank + l.rope_dim, s.hidden});
      all.push_back({s.heads * (l.nope_dim + l.v_dim), l.kv_rank});
    }
    all.push_back({s.hidden, s.context()});
  }
  if (s.feeds_forward) AddFeedForward(s, &all);
  return all;
}

std::array<Matrix, 2> ExpertMatrices(const Shape& s) {
  const ExpertShape& e = s.experts;
  const std::int64_t gates = s.activation == Activation::kSwiglu ? 2 : 1;
  return {{{gates * e.ffn, e.width}, {e.width, e.ffn}}};
}

namespace {

// n elements spread over so many tensors, one by one.
template <class F>
void ForEachTensor(std::int64_t n, std::int64_t tensors, F kernels) {
  for (std::int64_t i = 0; i < tensors; ++i) kernels(n * (i + 1) / tensors - n * i / tensors);
}

void Adam(const Shape& s, std::int64_t n, std::int64_t tensors, BlockWriter* w) {
  const std::int64_t b = s.state_bytes;
  if (s.framework
          .fused_adam) {  // reads parameter, gradient, two moments; writes all but the gradient
    const std::int64_t moments = 2 * s.moment_bytes;
    w->Kernel("adam", Flat(MemoryOp::kAdam, n, 2 * b + moments, b + moments));
    return;
  }
  if (!s.framework.adam_loop) {
    w->Kernel("exp_avg", Flat(MemoryOp::kAdam, n, 2 * b, b));
    w->Kernel("exp_avg_sq", Flat(MemoryOp::kAdam, n, 2 * b, b));
    w->Kernel("denominator.sqrt", Flat(MemoryOp::kAdam, n, b, b));
    w->Kernel("denominator.add", Flat(MemoryOp::kAdam, n, b, b));
    w->Kernel("update", Flat(MemoryOp::kAdam, n, 3 * b, b));
    return;
  }
  ForEachTensor(n, tensors, [w, b](std::int64_t each) {
    w->Kernel("decay", Flat(MemoryOp::kAdam, each, b, b));
    w->Kernel("exp_avg", Flat(MemoryOp::kAdam, each, 2 * b, b));
    w->Kernel("exp_avg_sq.scale", Flat(MemoryOp::kAdam, each, b, b));
    w->Kernel("exp_avg_sq.add", Flat(MemoryOp::kAdam, each, 2 * b, b));
    w->Kernel("denominator.sqrt", Flat(MemoryOp::kAdam, each, b, b));
    w->Kernel("denominator.scale", Flat(MemoryOp::kAdam, each, b, b));
    w->Kernel("denominator.add", Flat(MemoryOp::kAdam, each, b, b));
    w->Kernel("update", Flat(MemoryOp::kAdam, each, 3 * b, b));
  });
}

void Sgd(const Shape& s, std::int64_t n, BlockWriter* w) {
  const std::int64_t b = s.state_bytes, moments = s.momentum ? 1 : 0;
  if (s.framework.fused_adam) {
    return w->Kernel("sgd", Flat(MemoryOp::kAdam, n, (2 + moments) * b, (1 + moments) * b));
  }
  w->Kernel("decay", Flat(MemoryOp::kAdam, n, 2 * b, b));
  if (s.momentum) {
    w->Kernel("momentum.scale", Flat(MemoryOp::kAdam, n, b, b));
    w->Kernel("momentum.add", Flat(MemoryOp::kAdam, n, 2 * b, b));
  }
  w->Kernel("update", Flat(MemoryOp::kAdam, n, 2 * b, b));
}

void Lamb(const Shape& s, std::int64_t n, BlockWriter* w) {
  const std::int64_t b = s.state_bytes;
  w->Kernel("parameter.norm", Flat(MemoryOp::kGradNorm, n, b, 0));
  w->Kernel("direction", Flat(MemoryOp::kAdam, n, 4 * b, 3 * b));
  w->Kernel("direction.norm", Flat(MemoryOp::kGradNorm, n, b, 0));
  w->Kernel("update", Flat(MemoryOp::kAdam, n, 2 * b, b));
}

// Adafactor's update: clipped by its own norm.
void ClippedUpdate(std::int64_t n, BlockWriter* w) {
  w->Kernel("update", Flat(MemoryOp::kAdam, n, 8, 4));
  w->Kernel("update.norm", Flat(MemoryOp::kAdam, n, 4, 0));
  w->Kernel("update.scale", Flat(MemoryOp::kAdam, n, 4, 4));
  w->Kernel("parameter", Flat(MemoryOp::kAdam, n, 8, 4));
}

void Adafactor(std::int64_t n, std::int64_t tensors, BlockWriter* w) {
  ForEachTensor(n, tensors, [w](std::int64_t each) {
    w->Kernel("square", Flat(MemoryOp::kAdam, each, 4, 4));
    w->Kernel("row_means", Flat(MemoryOp::kAdam, each, 4, 0));
    w->Kernel("column_means", Flat(MemoryOp::kAdam, each, 4, 0));
    w->Kernel("outer", Flat(MemoryOp::kAdam, each, 0, 4));
    ClippedUpdate(each, w);
  });
}

// Of flat shards, which have no rows and columns.
void FlatAdafactor(std::int64_t n, std::int64_t tensors, BlockWriter* w) {
  ForEachTensor(n, tensors, [w](std::int64_t each) {
    w->Kernel("square", Flat(MemoryOp::kAdam, each, 4, 4));
    w->Kernel("exp_avg_sq", Flat(MemoryOp::kAdam, each, 8, 4));
    ClippedUpdate(each, w);
  });
}

// Adafactor's number holds tensors and factors, that of moments by blocks tensors and full
// elements.
constexpr std::int64_t kTensorBits = 20;
constexpr std::int64_t TensorCount(std::int64_t number) {
  return number & ((std::int64_t{1} << kTensorBits) - 1);
}

// Bytes of n moments kept by blocks, scales included.
std::int64_t BlockwiseBytes(OptimizerStates states, std::int64_t n) {
  if (states == OptimizerStates::kFp32) return 4 * n;
  const bool half = states == OptimizerStates::k4bit;
  const std::int64_t block = half ? 128 : 256;
  return (half ? (n + 1) / 2 : n) + 4 * ((n + block - 1) / block);
}

std::int64_t Moments(const Shape& s) {
  return s.optimizer == Optimizer::kAdam                 ? 2
         : s.optimizer == Optimizer::kSgd && !s.momentum ? 0
                                                         : 1;
}

// Parameter and gradient in full, each moment's codes and scales read and written, tensor by
// tensor.
void Blockwise(const Shape& s, std::int64_t n, std::int64_t number, BlockWriter* w) {
  const std::int64_t b = s.state_bytes, moments = Moments(s);
  const std::int64_t full = number >> kTensorBits;
  ForEachTensor(n - full, TensorCount(number), [&](std::int64_t each) {
    const std::int64_t states = moments * BlockwiseBytes(s.optimizer_states, each);
    MemoryBound update = Flat(MemoryOp::kAdam, each, 2 * b, b);
    if (s.optimizer_states == OptimizerStates::k8bit) {
      update.op = MemoryOp::kBlockwiseUpdate;
      update.rows = moments;
    }
    update.bytes_read += states;
    update.bytes_written += states;
    // An operator registered from Python, about half of what such a product takes with autograd.
    w->Host("update", s.framework.host.calls.function / 2);
    w->Kernel("update.blockwise", update);
  });
  if (full == 0) return;
  w->Kernel("update", Flat(MemoryOp::kAdam, full, 2 * b + 4 * moments, b + 4 * moments));
}

// Parameters travel in the model's type; gradients as clipped, in fp32.
void OnTheCpu(const Shape& s, std::int64_t n, BlockWriter* w) {
  w->Comm("gradients.to_host", HostCopy(graph::Collective::kCopyToHost, n * 4));
  w->HostSync("gradients.wait");
  w->Host("cpu_adam", n * s.cpu_adam_ps / 1000);
  if (s.offload_parameters) return;  // they stay
  w->Comm("parameters.to_device", HostCopy(graph::Collective::kCopyToDevice, n * s.element_bytes));
}

}  // namespace

void CountTensors(const Shape& s, const std::vector<std::int64_t>& tensors,
                  OptimizerCounts* counts) {
  counts->tensors += static_cast<std::int64_t>(tensors.size());
  for (const std::int64_t n : tensors) {
    // One side of every matrix of a transformer is the hidden size.
    counts->factors += n > 4 * s.hidden ? n / s.hidden + s.hidden : n;
    counts->outside += n;
  }
}

void CountLayer(const Shape& s, OptimizerCounts* counts) {
  CountTensors(s, TrainedParameters(s), counts);
  if (s.framework.reducer != Reducer::kBuffer && !s.frozen()) {
    CountTensors(s, ExpertParameters(s), counts);
  }
  if (s.optimizer != Optimizer::kMuon) return;
  for (const Matrix& matrix : LayerMatrices(s)) counts->outside -= matrix.elements();
}

namespace {

std::int64_t PartOf(std::int64_t n, std::int64_t ranks) { return (n + ranks - 1) / ranks; }

// What else a unit has are vectors.
std::vector<Matrix> FactorsOf(const Shape& s, bool root) {
  if (!root) return LayerMatrices(s);
  std::vector<Matrix> all = {{s.patch_values > 0 ? s.patch_values : s.vocab, s.hidden}};
  if (s.attention_pool) {
    const std::int64_t ffn = s.ffn * s.tp, h = s.hidden;
    const std::int64_t gates = s.activation == Activation::kSwiglu ? 2 : 1;
    all.insert(all.end(), {{3 * h, h}, {h, h}, {gates * ffn, h}, {h, ffn}});
  }
  if (s.positions > 0) all.push_back({s.positions, s.hidden});
  if (!s.tied) all.push_back({s.vocab, s.hidden});
  return all;
}
std::vector<std::int64_t> TensorsOf(const Shape& s, bool root) {
  if (!root) return LayerParameters(s);
  std::vector<std::int64_t> all = EmbeddingParameters(s);
  for (const std::int64_t n : HeadParameters(s, !s.tied)) all.push_back(n);
  return all;
}

void CountSharded(const Shape& s, bool root, std::int64_t ranks, OptimizerCounts* counts) {
  std::int64_t vectors = 0;
  for (const std::int64_t n : TensorsOf(s, root)) vectors += n;
  counts->tensors += static_cast<std::int64_t>(TensorsOf(s, root).size());
  for (const Matrix& matrix : FactorsOf(s, root)) {
    vectors -= matrix.rows * matrix.columns;
    counts->factors += PartOf(matrix.rows, ranks) + matrix.columns;
  }
  counts->factors += PartOf(vectors, ranks);
}

}  // namespace

void CountShardedLayer(const Shape& s, std::int64_t ranks, OptimizerCounts* counts) {
  CountSharded(s, false, ranks, counts);
}

void CountShardedRoot(const Shape& s, std::int64_t ranks, OptimizerCounts* counts) {
  CountSharded(s, true, ranks, counts);
}

graph::Block FactorMeans(const Shape& s, bool root, Names* names) {
  BlockWriter w(names, "optimizer.adafactor", Pass::kOptimizer);
  w.Module("optimizer.adafactor");
  const auto sum = [&](std::string_view name, std::int64_t elements) {
    w.Comm(name, {.collective = graph::Collective::kAllReduce,
                  .group = s.shard_ranks > 0 ? graph::GroupSlot::kShard : graph::GroupSlot::kDp,
                  .stream = kDpStream,
                  .dtype = DType::kFp32,
                  .bytes = {.value = elements * 4}});
  };
  const std::vector<Matrix> matrices = FactorsOf(s, root);
  for (const Matrix& matrix : matrices) {
    sum("column_means", matrix.columns);
    sum("row_mean", 1);
    sum("update.norm", 1);
  }
  for (std::size_t i = matrices.size(); i < TensorsOf(s, root).size(); ++i) sum("update.norm", 1);
  return w.Finish();
}

std::int64_t OptimizerNumber(const Shape& s, const OptimizerCounts& counts) {
  if (s.optimizer_states != OptimizerStates::kFull) {
    return counts.tensors + (counts.full << kTensorBits);
  }
  switch (s.optimizer) {
    case Optimizer::kAdam:
      return s.framework.adam_loop && !s.framework.fused_adam ? counts.tensors : 0;
    case Optimizer::kAdafactor:
      return counts.tensors + (counts.factors << kTensorBits);
    case Optimizer::kMuon:
      return counts.outside;
    case Optimizer::kSgd:
    case Optimizer::kLion:
    case Optimizer::kLamb:
      return 0;
  }
  return 0;
}

void WriteOptimizerState(const Shape& s, std::int64_t shard, std::int64_t number, BlockWriter* w) {
  const auto forever = [&](std::uint32_t id, std::string_view name, std::int64_t bytes) {
    w->Alloc(w->Named(id, name, bytes, MemoryKind::kOptimizer, Lifetime::kForever));
  };
  if (s.offload_optimizer) return;
  if ((s.dtype != DType::kFp32 || s.keeps_units) && !s.sharded && !s.updates_in_place)
    forever(3, "main_parameters", shard * s.state_bytes);
  if (s.optimizer_states != OptimizerStates::kFull) {
    const std::int64_t full = number >> kTensorBits;
    const std::int64_t bytes = BlockwiseBytes(s.optimizer_states, shard - full) + full * 4;
    if (Moments(s) > 0) forever(4, "exp_avg", bytes);
    if (Moments(s) > 1) forever(5, "exp_avg_sq", bytes);
    return;
  }
  switch (s.optimizer) {
    case Optimizer::kAdam:
    case Optimizer::kLamb:
      forever(4, "exp_avg", shard * s.moment_bytes);
      return forever(5, "exp_avg_sq", shard * s.moment_bytes);
    case Optimizer::kAdafactor:
      if (s.whole_moments) return forever(5, "exp_avg_sq", shard * 4);
      return forever(5, "exp_avg_sq.factors", (number >> kTensorBits) * 4);
    case Optimizer::kMuon:
      forever(4, "momentum", shard * 4);
      return forever(5, "exp_avg_sq", number * 4);
    case Optimizer::kSgd:
      if (!s.momentum) return;
      return forever(4, "momentum", shard * s.state_bytes);
    case Optimizer::kLion:
      return forever(4, "exp_avg", shard * s.state_bytes);
  }
}

std::int64_t AdamTemporaries(const Shape& s, std::int64_t n) {
  const bool all = s.framework.flat_step || (!s.framework.fused_adam && !s.framework.adam_loop);
  return s.optimizer == Optimizer::kAdam && s.optimizer_states == OptimizerStates::kFull &&
                 !s.offload_optimizer && all
             ? n * s.state_bytes
             : 0;
}

void WriteUpdate(const Shape& s, std::int64_t shard, std::int64_t number, BlockWriter* w) {
  if (s.offload_optimizer) return OnTheCpu(s, shard, w);
  if (s.optimizer_states != OptimizerStates::kFull) return Blockwise(s, shard, number, w);
  const std::int64_t b = s.state_bytes;
  switch (s.optimizer) {
    case Optimizer::kAdam:
      return Adam(s, shard, number, w);
    case Optimizer::kAdafactor:
      number = TensorCount(number);
      return s.whole_moments ? FlatAdafactor(shard, number, w) : Adafactor(shard, number, w);
    case Optimizer::kMuon:  // the matrices' update follows their orthogonalisation
      w->Kernel("momentum", Flat(MemoryOp::kAdam, shard - number, 8, 4));
      return w->Kernel("adam", Flat(MemoryOp::kAdam, number, 16, 12));
    case Optimizer::kSgd:
      return Sgd(s, shard, w);
    case Optimizer::kLion:
      return w->Kernel("lion", Flat(MemoryOp::kAdam, shard, 3 * b, 2 * b));
    case Optimizer::kLamb:
      return Lamb(s, shard, w);
  }
}

namespace {

void Orthogonalise(const Shape& s, const Matrix& matrix, BlockWriter* w) {
  const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    return Gemm{
        .m = m, .n = n, .k = k, .dtype = DType::kBf16, .layout = layout, .out_dtype = DType::kBf16};
  };
  constexpr int kIterations = 5;
  const std::int64_t m = std::min(matrix.rows, matrix.columns);
  const std::int64_t n = std::max(matrix.rows, matrix.columns);
  // Nesterov's momentum to bf16, divided by its norm.
  w->Kernel("nesterov", Flat(MemoryOp::kCast, m * n, 8, 2));
  w->Kernel("norm", Flat(MemoryOp::kGradNorm, m * n, 2, 0, DType::kBf16));
  w->Kernel("scale", Flat(MemoryOp::kGradScale, m * n, 2, 2, DType::kBf16));
  for (int i = 0; i < kIterations; ++i) {
    w->Kernel("gram", product(m, m, n, GemmLayout::kNT));
    w->Kernel("gram.square", product(m, m, m, GemmLayout::kNN));
    w->Kernel("newton_schulz", product(m, n, m, GemmLayout::kNN));
  }
  w->Kernel("update", Flat(MemoryOp::kAdam, m * n, 6, 4));
  if (s.dtype != DType::kFp32) {
    w->Kernel("copy_to_model", Flat(MemoryOp::kCast, m * n, 4, s.element_bytes, s.dtype));
  }
}

}  // namespace

MatrixCounts CountMatrices(const Shape& layer) {
  return {.own = static_cast<std::int64_t>(LayerMatrices(layer).size()),
          .experts = layer.experts.count > 0 ? 2 * layer.experts.local : 0};
}

graph::Block OrthogonaliseLayer(const Shape& layer, const MatrixCounts& counts, Names* names) {
  BlockWriter w(names, "optimizer.muon", Pass::kOptimizer);
  w.Module("optimizer.muon");
  std::vector<Matrix> own = LayerMatrices(layer);
  if (counts.own >= 0) {
    std::ranges::stable_sort(own, std::ranges::greater(), &Matrix::elements);
    own.resize(static_cast<std::size_t>(counts.own), Matrix{});
  }
  for (const Matrix& matrix : own) Orthogonalise(layer, matrix, &w);
  const std::int64_t experts = counts.experts < 0 ? CountMatrices(layer).experts : counts.experts;
  for (std::int64_t i = 0; i < experts; ++i) {
    Orthogonalise(layer, ExpertMatrices(layer)[static_cast<std::size_t>(i % 2)], &w);
  }
  return w.Finish();
}

}  // namespace orrery::workload
