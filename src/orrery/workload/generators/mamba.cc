#include "orrery/workload/generators/mamba.h"

#include "orrery/workload/generators/parts.h"
#include "orrery/workload/generators/precision.h"

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
  w_->Host("module", pass == Pass::kForward ? s_.host.module_forward : s_.host.module_backward);
}

void MambaWriter::Stream(std::string_view name, MemoryOp op, std::int64_t cols, std::int64_t read,
                         std::int64_t written, Pass pass) {
  w_->Kernel(name, Elementwise(s_, op, s_.tokens(), cols, read, written, pass));
}

void MambaWriter::Product(std::string_view name, std::int64_t each, std::int64_t m, std::int64_t n,
                          std::int64_t k) {
  const std::int64_t chunks = (s_.seq + m_.chunk - 1) / m_.chunk;
  w_->Kernel(name, Gemm{.m = m,
                        .n = n,
                        .k = k,
                        .batch = s_.batch * chunks * each,
                        .dtype = s_.dtype,
                        .layout = GemmLayout::kNT,
                        .out_dtype = s_.dtype,
                        .kind = graph::GemmKind::kScan});
}

void MambaWriter::States(std::string_view name, Pass pass) {
  const std::int64_t chunks = (s_.seq + m_.chunk - 1) / m_.chunk;
  w_->Kernel(name, Elementwise(s_, MemoryOp::kStateScan, s_.batch * chunks * m_.heads,
                               m_.head_dim * m_.state, 4, 4, pass));
}

void MambaWriter::Exchange(std::string_view name, std::int64_t cols, Pass pass) {
  if (s_.cp == 1) return;
  const std::int64_t bytes = s_.tokens() * cols * s_.element_bytes;
  const Buffer dealt = w_->Temporary(name, bytes, MemoryKind::kCommunication);
  w_->Alloc(dealt);
  w_->Host("communication", s_.host.communication);
  w_->Comm("all_to_all", {.collective = graph::Collective::kAllToAll,
                          .group = graph::GroupSlot::kCp,
                          .stream = kCpStream,
                          .dtype = s_.dtype,
                          .bytes = {.value = bytes}});
  Stream("reorder", MemoryOp::kCopy, cols, s_.element_bytes, s_.element_bytes, pass);
  w_->Free(dealt);
}

// Convolution and everything up to the output of the scan.
void MambaWriter::Scan(Pass pass) {
  const std::int64_t e = s_.element_bytes, q = m_.chunk;
  Module("layers.mamba.convolution", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.convolved() + copied(), e, e, pass);
  Module("layers.mamba.scan", pass);
  Stream("chunk_sums", MemoryOp::kStateScan, m_.heads, e, 8, pass);
  Product("chunk_state", m_.heads, m_.head_dim, m_.state, q);
  States("state_passing", pass);
  Product("chunk_products", groups(), q, q, m_.state);
}

void MambaWriter::Forward(bool keep) {
  const std::int64_t e = s_.element_bytes;
  Module("layers.mamba.in_projection", Pass::kForward);
  w_->Alloc(projected_);
  ColumnForward(s_, w_, "in_projection", s_.hidden, m_.projected());
  Exchange("projected.dealt", m_.projected() + copied(), Pass::kForward);
  const Buffer convolved = w_->Temporary("convolved", s_.tokens() * m_.convolved() * e);
  w_->Alloc(convolved);
  w_->Alloc(scanned_);
  Scan(Pass::kForward);
  Product("chunk_scan", m_.heads, m_.chunk, m_.head_dim, m_.state + m_.chunk);
  w_->Free(convolved);
  Exchange("scanned.dealt", m_.inner(), Pass::kForward);
  Exchange("gate.dealt", m_.inner(), Pass::kForward);
  Module("layers.mamba.norm", Pass::kForward);
  w_->Alloc(gated_);
  Stream("gated_norm", MemoryOp::kRmsNorm, m_.inner(), 2 * e, e, Pass::kForward);
  if (!keep) w_->Free(projected_);
  if (!keep) w_->Free(scanned_);
  Module("layers.mamba.out_projection", Pass::kForward);
  RowForward(s_, w_, "out_projection", m_.inner(), s_.hidden);
  if (!keep) w_->Free(gated_);
}

void MambaWriter::ScanBackward() {
  const std::int64_t e = s_.element_bytes, q = m_.chunk, p = m_.head_dim, n = m_.state;
  const Pass pass = Pass::kBackward;
  Scan(pass);
  Product("chunk_scan.states", m_.heads, p, n, q);
  States("state_passing", pass);
  Product("chunk_scan.input", m_.heads, q, p, n + q);
  Product("chunk_state.b", m_.heads, q, n, p);
  Product("chunk_scan.c", m_.heads, q, n, p);
  Product("chunk_scan.products", m_.heads, q, q, p);
  Product("chunk_products.c", groups(), q, n, q);
  Product("chunk_products.b", groups(), q, n, q);
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
  ColumnBackward(s_, w_, "in_projection", s_.hidden, m_.projected(), false);
  w_->Free(projected);
}

}  // namespace orrery::workload
