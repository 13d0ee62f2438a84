#include "orrery/workload/generators/layers/mamba.h"

#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Gemm;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

MambaWriter::MambaWriter(const Shape& s, BlockWriter* w) : s_(s), m_(s.mamba), w_(w) {
  std::uint32_t id = 85;  // behind those of layers, ends and experts
  const bool full = s.recompute == Recompute::kFull;
  const auto make = [&](std::string_view name, std::int64_t bytes) {
    return w->Named(++id, name, bytes, MemoryKind::kActivation,
                    full ? Lifetime::kCall : Lifetime::kMicrobatch);
  };
  const std::int64_t e = s.element_bytes;
  projected_ = make("mamba.projected", s.tokens() * m_.projected() * e);
  scanned_ = make("mamba.scanned", s.tokens() * m_.inner() * e);
  gated_ = make("mamba.gated", LinearBytes(s, s.tokens() * m_.inner()));
}

void MambaWriter::Module(std::string_view name, Pass pass) {
  w_->Module(name);
  w_->Host("module", pass == Pass::kForward ? s_.framework.host.module_forward
                                            : s_.framework.host.module_backward);
}

void MambaWriter::Stream(std::string_view name, MemoryOp op, std::int64_t cols, std::int64_t read,
                         std::int64_t written, Pass pass) {
  w_->Kernel(name, Elementwise(s_, op, s_.tokens(), cols, read, written, pass));
}

void MambaWriter::Product(std::string_view name, std::int64_t n, std::int64_t k, graph::DType out) {
  w_->Kernel(name, Gemm{.m = m_.chunk,
                        .n = n,
                        .k = k,
                        .batch = s_.batch * chunks() * groups(),
                        .dtype = s_.dtype,
                        .layout = GemmLayout::kNT,
                        .out_dtype = out,
                        .kind = graph::GemmKind::kScan});
}

void MambaWriter::Fused(std::string_view name, Bytes read, Bytes written, std::int64_t evaluations,
                        Pass pass) {
  const MemoryOp op = evaluations > 0 ? MemoryOp::kStateDecay : MemoryOp::kStateScan;
  const std::int64_t q = m_.chunk, e = s_.element_bytes, tokens = s_.batch * s_.seq;
  const auto bytes = [&](const Bytes& b) {
    return tokens * m_.heads * (b.values * m_.head_dim * e + b.scalars * 4) +
           s_.batch * chunks() * m_.heads * m_.head_dim * m_.state * b.state_bytes +
           tokens * groups() * (b.shared * m_.state * e + b.products * q * 4);
  };
  graph::MemoryBound kernel =
      Elementwise(s_, op, tokens * m_.heads, evaluations * Decays(), 0, 0, pass);
  kernel.bytes_read = bytes(read);
  kernel.bytes_written = bytes(written);
  w_->Kernel(name, kernel);
}

void MambaWriter::Exchange(std::string_view name, std::int64_t cols, Pass pass) {
  if (s_.cp == 1) return;
  const std::int64_t bytes = s_.tokens() * cols * s_.element_bytes;
  const Buffer dealt = w_->Temporary(name, bytes, MemoryKind::kCommunication);
  w_->Alloc(dealt);
  w_->Host("communication", s_.framework.host.communication);
  w_->Comm("all_to_all", {.collective = graph::Collective::kAllToAll,
                          .group = graph::GroupSlot::kCp,
                          .stream = kCpStream,
                          .dtype = s_.dtype,
                          .bytes = {.value = bytes}});
  Stream("reorder", MemoryOp::kCopy, cols, s_.element_bytes, s_.element_bytes, pass);
  w_->Free(dealt);
}

// mamba_ssm wants a sequence's tokens together, Megatron Core keeps those of a position together.
void MambaWriter::Reorder(std::int64_t cols, Pass pass) {
  const std::int64_t e = s_.element_bytes;
  if (s_.batch > 1) Stream("batch_first", MemoryOp::kCopy, cols, e, e, pass);
}

// Convolution and everything up to the output of the scan.
void MambaWriter::Scan(Pass pass) {
  const std::int64_t e = s_.element_bytes;
  Module("layers.mamba.convolution", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.convolved() + copied(), e, e, pass);
  Module("layers.mamba.scan", pass);
  Stream("chunk_sums", MemoryOp::kStateScan, m_.heads, e, 8, pass);
  Fused("chunk_state", {.values = 1, .scalars = 2, .shared = 1}, {.state_bytes = 4}, 0, pass);
  Fused("state_passing", {.state_bytes = 4}, {.state_bytes = pass == Pass::kForward ? e : 4}, 0,
        pass);
  Product("chunk_products", m_.chunk, m_.state, graph::DType::kFp32);
}

void MambaWriter::Forward(bool keep) {
  const std::int64_t e = s_.element_bytes;
  Module("layers.mamba.in_projection", Pass::kForward);
  w_->Alloc(projected_);
  ColumnForward(s_, w_, "in_projection", s_.hidden, m_.projected());
  Exchange("projected.dealt", m_.projected() + copied(), Pass::kForward);
  Reorder(m_.projected(), Pass::kForward);
  const Buffer convolved = w_->Temporary("convolved", s_.tokens() * m_.convolved() * e);
  w_->Alloc(convolved);
  w_->Alloc(scanned_);
  Scan(Pass::kForward);
  Fused("chunk_scan", {.values = 1, .scalars = 2, .state_bytes = e, .shared = 1, .products = 1},
        {.values = 1}, 1, Pass::kForward);
  w_->Free(convolved);
  Exchange("scanned.dealt", m_.inner(), Pass::kForward);
  Exchange("gate.dealt", m_.inner(), Pass::kForward);
  Module("layers.mamba.norm", Pass::kForward);
  w_->Alloc(gated_);
  Stream("gated_norm", MemoryOp::kRmsNorm, m_.inner(), 2 * e, e, Pass::kForward);
  Reorder(m_.inner(), Pass::kForward);
  if (!keep) w_->Free(projected_);
  if (!keep) w_->Free(scanned_);
  Module("layers.mamba.out_projection", Pass::kForward);
  RowForward(s_, w_, "out_projection", m_.inner(), s_.hidden);
  if (!keep) w_->Free(gated_);
}

void MambaWriter::ScanBackward() {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kBackward;
  Scan(pass);
  Fused("chunk_scan.states", {.values = 1, .scalars = 2, .shared = 1}, {.state_bytes = 4}, 0, pass);
  Fused("state_passing", {.state_bytes = 8}, {.state_bytes = 2 * e}, 0, pass);
  Fused("chunk_scan.input",
        {.values = 2, .scalars = 2, .state_bytes = e, .shared = 1, .products = 1},
        {.values = 1, .scalars = 1}, 1, pass);
  const Bytes operands = {.values = 1, .scalars = 2, .state_bytes = e, .shared = 1};
  Fused("chunk_state.b", operands, {.scalars = 1, .shared = 2}, 0, pass);
  Fused("chunk_scan.c", operands, {.scalars = 1, .shared = 2}, 0, pass);
  Fused("chunk_scan.products", {.values = 2, .scalars = 2}, {.products = 1}, 1, pass);
  Product("chunk_products.c", m_.state, m_.chunk, s_.dtype);
  Product("chunk_products.b", m_.state, m_.chunk, s_.dtype);
  Fused("chunk_scan.sums", {.values = 2, .scalars = 2, .products = 1}, {.scalars = 1}, 2, pass);
  Stream("chunk_sums.reversed", MemoryOp::kAdd, m_.heads, 24, 24, pass);
  Stream("chunk_sums", MemoryOp::kStateScan, m_.heads, 12, 8, pass);
  Module("layers.mamba.convolution", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.convolved() + copied(), 2 * e, e, pass);
  for (const auto& [name, elements] :
       {std::pair{"convolution", m_.convolved() * (m_.conv + 1)}, std::pair{"dt_bias", m_.heads},
        std::pair{"a", m_.heads}, std::pair{"d", m_.heads}}) {
    AccumulateGradient(s_, w_, name, elements);
  }
}

void MambaWriter::Backward() {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kBackward;
  const std::int64_t inner = s_.tokens() * m_.inner() * e;
  const Buffer gated = w_->Temporary("gated.gradient", inner);
  const Buffer scanned = w_->Temporary("scanned.gradient", inner);
  const Buffer projected = w_->Temporary("projected.gradient", s_.tokens() * m_.projected() * e);
  Module("layers.mamba.out_projection", pass);
  w_->Alloc(gated);
  RowBackward(s_, w_, "out_projection", m_.inner(), s_.hidden);
  w_->Free(gated_);
  Module("layers.mamba.norm", pass);
  Reorder(m_.inner(), pass);
  w_->Alloc(scanned);
  w_->Alloc(projected);
  Stream("gated_norm", MemoryOp::kRmsNorm, m_.inner(), 3 * e, 2 * e, pass);
  AccumulateGradient(s_, w_, "weight_gradient", m_.inner());
  w_->Free(gated);
  Exchange("gate.dealt", m_.inner(), pass);
  Exchange("scanned.dealt", m_.inner(), pass);
  const Buffer convolved = w_->Temporary("convolved", s_.tokens() * m_.convolved() * e);
  w_->Alloc(convolved);
  ScanBackward();
  w_->Free(convolved);
  w_->Free(scanned);
  w_->Free(scanned_);
  w_->Free(projected_);
  Exchange("projected.dealt", m_.projected() + copied(), pass);
  Module("layers.mamba.in_projection", pass);
  Reorder(m_.projected(), pass);
  ColumnBackward(s_, w_, "in_projection", s_.hidden, m_.projected(), false);
  w_->Free(projected);
}

}  // namespace orrery::workload
