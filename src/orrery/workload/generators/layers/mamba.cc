#include "orrery/workload/generators/layers/mamba.h"

#include <span>

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
  const bool first = m_.kind == Mixer::kMamba1;
  const std::int64_t gates = m_.gate_rank > 0 && !first ? m_.inner() + m_.decays() : 0;
  projected_ = make("mamba.projected", s.tokens() * (m_.projected() + gates) * e);
  scanned_ = make("mamba.scanned", s.tokens() * m_.inner() * e);
  gated_ = make("mamba.gated", first ? 0 : LinearBytes(s, s.tokens() * m_.inner()));
  if (linear()) operands_ = make("mamba.operands", LinearSaved());
}

namespace {

// A product [m, k] x [k, n] a head and chunk: of the chunk's tokens Q, the keys' width K, the
// values' V.
enum class Side : std::uint8_t { kQ, kK, kV };
using enum Side;
struct ScanStep {
  std::string_view name;
  Side m, n, k;
};
// Writes: (I + strictly lower(beta K Kt))^-1 times keys and values (WY form); then chunk by chunk
// what the state already holds is taken off, the rest added to it.
constexpr ScanStep kDeltaWrites[] = {{"writes.keys", kQ, kK, kQ}, {"writes.values", kQ, kV, kQ}};
constexpr ScanStep kDeltaState[] = {{"state.read", kQ, kV, kK}, {"state.write", kK, kV, kQ}};
constexpr ScanStep kReads[] = {
    {"queries_state", kQ, kV, kK}, {"queries_keys", kQ, kQ, kK}, {"output", kQ, kV, kQ}};
constexpr ScanStep kKeys[] = {{"keys_keys", kQ, kQ, kK}};
constexpr ScanStep kDeltaBackward[] = {
    // of the values within a chunk, of the states from last to first
    {"queries_keys", kQ, kQ, kK},
    {"values.local", kQ, kV, kQ},
    {"values.state", kQ, kV, kK},
    {"state.queries", kK, kV, kQ},
    {"state.writes", kK, kV, kQ},
    // of queries, keys and writes
    {"scores", kQ, kQ, kV},
    {"queries.state", kQ, kK, kV},
    {"keys.state", kQ, kK, kV},
    {"writes.state", kQ, kK, kV},
    {"queries.scores", kQ, kK, kQ},
    {"keys.scores", kQ, kK, kQ},
    // of the inverse, which stands between writes and keys
    {"inverse.keys", kQ, kQ, kK},
    {"inverse.values", kQ, kQ, kV},
    {"writes.keys", kQ, kK, kQ},
    {"writes.values", kQ, kV, kQ},
    {"inverse.left", kQ, kQ, kQ},
    {"inverse.right", kQ, kQ, kQ},
    {"keys.left", kQ, kK, kQ},
    {"keys.right", kQ, kK, kQ}};
constexpr ScanStep kLightningState[] = {{"state.write", kK, kV, kQ}};
constexpr ScanStep kLightningBackward[] = {
    {"queries_keys", kQ, kQ, kK},  {"scores", kQ, kQ, kV},       {"queries.scores", kQ, kK, kQ},
    {"queries.state", kQ, kK, kV}, {"keys.scores", kQ, kK, kQ},  {"keys.state", kQ, kK, kV},
    {"values.local", kQ, kV, kQ},  {"values.state", kQ, kV, kK}, {"state.queries", kK, kV, kQ}};

void Write(const Shape& s, BlockWriter* w, std::span<const ScanStep> steps) {
  const Mamba& m = s.mamba;
  const auto size = [&](Side side) {
    return side == kQ ? m.chunk : side == kK ? m.state : m.head_dim;
  };
  for (const ScanStep& step : steps) {
    w->Kernel(step.name, Gemm{.m = size(step.m),
                              .n = size(step.n),
                              .k = size(step.k),
                              .batch = s.batch * ((s.seq + m.chunk - 1) / m.chunk) * m.heads,
                              .dtype = s.dtype,
                              .layout = GemmLayout::kNT,
                              .out_dtype = s.dtype,
                              .kind = graph::GemmKind::kScan});
  }
}

}  // namespace

std::int64_t MambaWriter::LinearSaved() const {
  const std::int64_t e = s_.element_bytes;
  if (m_.kind == Mixer::kShortConv) return s_.tokens() * m_.inner() * e;  // the gated values
  if (m_.kind == Mixer::kMamba1) {
    constexpr std::int64_t kTokensOfAState = 2048;
    const std::int64_t states = s_.batch * ((s_.seq + kTokensOfAState - 1) / kTokensOfAState);
    return s_.tokens() * m_.selected() * e + states * m_.inner() * m_.state * 2 * 4;
  }
  const std::int64_t operands = m_.inner() + 2 * m_.heads * m_.state;
  const std::int64_t scalars = m_.decays() > 0 ? 4 * (m_.heads + m_.decays()) : 8 * m_.heads;
  return s_.tokens() * (operands * e + (m_.delta() ? scalars + m_.heads * m_.chunk * e : 0));
}

void MambaWriter::GatesUp(Pass pass) {
  if (m_.gate_rank == 0 || m_.kind == Mixer::kMamba1) return;
  for (const auto& [name, width] :
       {std::pair{"gate_up", m_.inner()}, std::pair{"decay_up", m_.decays()}}) {
    const auto product = [&, name = name](std::int64_t m, std::int64_t n, std::int64_t k,
                                          GemmLayout layout) {
      WriteGemm(s_, w_, name, {.m = m, .n = n, .k = k, .dtype = s_.dtype, .layout = layout});
    };
    if (pass == Pass::kForward) {
      product(s_.tokens(), width, m_.gate_rank, GemmLayout::kNT);
    } else {
      product(s_.tokens(), m_.gate_rank, width, GemmLayout::kNN);
      product(width, m_.gate_rank, s_.tokens(), GemmLayout::kTN);
    }
  }
}

void MambaWriter::Decay(Pass pass) {
  if (m_.decays() == 0) return;
  const std::int64_t e = s_.element_bytes;
  const bool forward = pass == Pass::kForward;
  Stream("decays", MemoryOp::kStateScan, m_.decays(), forward ? e : 4 + e, forward ? 4 : e, pass);
  Stream("decay_sums", MemoryOp::kStateScan, m_.decays(), 4, 4, pass);
  Stream("decayed_keys_and_queries", MemoryOp::kCopy, 2 * m_.decays(), forward ? e + 4 : 2 * e + 4,
         forward ? e : e + 4, pass);
}

void MambaWriter::SelectiveScan(std::int64_t read, std::int64_t written, std::int64_t evaluations,
                                Pass pass) {
  const std::int64_t e = s_.element_bytes, elements = s_.tokens() * m_.inner();
  graph::MemoryBound scan =
      Elementwise(s_, MemoryOp::kStateDecay, elements, evaluations * m_.state, 0, 0, pass);
  const std::int64_t shared = s_.tokens() * 2 * m_.state * e;  // B and C
  scan.bytes_read = elements * read * e + shared;
  scan.bytes_written = elements * written * e + (pass == Pass::kBackward ? 2 * shared : 0);
  w_->Kernel("selective_scan", scan);
}

// dt's values, B and C of x; dt of its values. `again`: the latter alone, in backward.
void MambaWriter::Select(Pass pass, bool again) {
  const auto product = [&](std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
                           GemmLayout layout) {
    WriteGemm(s_, w_, name, {.m = m, .n = n, .k = k, .dtype = s_.dtype, .layout = layout});
  };
  const std::int64_t tokens = s_.tokens(), inner = m_.inner(), rank = m_.gate_rank;
  if (pass == Pass::kForward || again) {
    if (!again) product("x_projection", tokens, m_.selected(), inner, GemmLayout::kNT);
    return product("dt_projection", tokens, inner, rank, GemmLayout::kNT);
  }
  product("dt_projection", tokens, rank, inner, GemmLayout::kNN);
  product("dt_projection", inner, rank, tokens, GemmLayout::kTN);
  product("x_projection", tokens, inner, m_.selected(), GemmLayout::kNN);
  product("x_projection", m_.selected(), inner, tokens, GemmLayout::kTN);
}

void MambaWriter::FirstScan() {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kForward;
  w_->Alloc(operands_);
  Module("layers.mamba.convolution", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.inner(), e, e, pass);
  Module("layers.mamba.scan", pass);
  const Buffer dt = w_->Temporary("dt", s_.tokens() * m_.inner() * e);
  w_->Alloc(dt);
  Select(pass, false);
  SelectiveScan(3, 2, 1, pass);
  w_->Free(dt);
}

void MambaWriter::FirstScanBackward() {
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kBackward;
  Module("layers.mamba.scan", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.inner(), e, e, pass);
  const Buffer dt = w_->Temporary("dt", 2 * s_.tokens() * m_.inner() * e);  // and its gradient
  w_->Alloc(dt);
  Select(pass, true);
  // x, dt, z, the output and its gradient; gradients of x, dt and z, the gated output again.
  SelectiveScan(5, 4, 2, pass);
  Select(pass, false);
  w_->Free(dt);
  w_->Free(operands_);
  Module("layers.mamba.convolution", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.inner(), 2 * e, e, pass);
  for (const auto& [name, elements] :
       {std::pair{"convolution", m_.inner() * (m_.conv + 1)}, std::pair{"dt_bias", m_.inner()},
        std::pair{"a", m_.inner() * m_.state}, std::pair{"d", m_.inner()}}) {
    AccumulateGradient(s_, w_, name, elements);
  }
}

void MambaWriter::LinearScan() {
  if (m_.kind == Mixer::kMamba1) return FirstScan();
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kForward;
  w_->Alloc(operands_);
  Module("layers.mamba.convolution", pass);
  if (m_.kind == Mixer::kLightning) {
    Stream("silu", MemoryOp::kGelu, m_.convolved(), e, e, pass);
    Module("layers.mamba.scan", pass);
    Write(s_, w_, kLightningState);
    return Write(s_, w_, kReads);
  }
  if (m_.kind == Mixer::kShortConv) Stream("gate", MemoryOp::kSwiglu, m_.inner(), 2 * e, e, pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.convolved(), e, e, pass);
  if (m_.kind == Mixer::kShortConv) return;
  Module("layers.mamba.scan", pass);
  Stream("strength_and_decay", MemoryOp::kStateScan, m_.heads, 2 * e, 8, pass);
  Decay(pass);
  Stream("key_norms", MemoryOp::kRmsNorm, 2 * m_.groups * m_.state, e, e, pass);
  if (m_.heads > m_.groups) {
    Stream("repeat_keys", MemoryOp::kCopy, 2 * m_.heads * m_.state, e, e, pass);
  }
  Stream("chunk_sums", MemoryOp::kStateScan, m_.heads, 4, 4, pass);
  Write(s_, w_, kKeys);
  Stream("triangular_inverse", MemoryOp::kStateScan, m_.heads * m_.chunk, 4, e, pass);
  Write(s_, w_, kDeltaWrites);
  Write(s_, w_, kDeltaState);
  Write(s_, w_, kReads);
}

void MambaWriter::LinearScanBackward() {
  if (m_.kind == Mixer::kMamba1) return FirstScanBackward();
  const std::int64_t e = s_.element_bytes;
  const Pass pass = Pass::kBackward;
  Module("layers.mamba.scan", pass);
  if (m_.kind == Mixer::kLightning) {
    Write(s_, w_, kLightningState);  // the states, again
    Write(s_, w_, kLightningBackward);
    Module("layers.mamba.convolution", pass);
    Stream("silu", MemoryOp::kGelu, m_.convolved(), 2 * e, e, pass);
    return w_->Free(operands_);
  }
  if (m_.kind == Mixer::kShortConv) {
    Module("layers.mamba.convolution", pass);
    Stream("causal_convolution", MemoryOp::kCausalConv, m_.convolved(), 2 * e, e, pass);
    Stream("gate", MemoryOp::kSwiglu, m_.inner(), 3 * e, 2 * e, pass);
    AccumulateGradient(s_, w_, "convolution", m_.convolved() * m_.conv);
    return w_->Free(operands_);
  }
  Write(s_, w_, kDeltaWrites);  // what forward did not keep, again
  Write(s_, w_, kDeltaState);
  Write(s_, w_, kDeltaBackward);
  Stream("chunk_sums", MemoryOp::kStateScan, m_.heads, 4, 4, pass);
  if (m_.heads > m_.groups) {
    Stream("repeat_keys", MemoryOp::kCopy, 2 * m_.heads * m_.state, e, e, pass);
  }
  Stream("key_norms", MemoryOp::kRmsNorm, 2 * m_.groups * m_.state, 2 * e, e, pass);
  Decay(pass);
  Stream("strength_and_decay", MemoryOp::kStateScan, m_.heads, 8 + 2 * e, 2 * e, pass);
  w_->Free(operands_);
  Module("layers.mamba.convolution", pass);
  Stream("causal_convolution", MemoryOp::kCausalConv, m_.convolved(), 2 * e, e, pass);
  const std::int64_t biases = m_.decays() > 0 ? m_.decays() : m_.heads;
  for (const auto& [name, elements] : {std::pair{"convolution", m_.convolved() * m_.conv},
                                       std::pair{"dt_bias", biases}, std::pair{"a", m_.heads}}) {
    AccumulateGradient(s_, w_, name, elements);
  }
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
  GatesUp(Pass::kForward);
  Exchange("projected.dealt", m_.projected() + copied(), Pass::kForward);
  Reorder(m_.projected(), Pass::kForward);
  const Buffer convolved = w_->Temporary("convolved", s_.tokens() * m_.convolved() * e);
  w_->Alloc(convolved);
  w_->Alloc(scanned_);
  if (linear()) {
    LinearScan();
    if (!keep) w_->Free(operands_);
  } else {
    Scan(Pass::kForward);
    Fused("chunk_scan", {.values = 1, .scalars = 2, .state_bytes = e, .shared = 1, .products = 1},
          {.values = 1}, 1, Pass::kForward);
  }
  w_->Free(convolved);
  Exchange("scanned.dealt", m_.inner(), Pass::kForward);
  Exchange("gate.dealt", m_.inner(), Pass::kForward);
  Module("layers.mamba.norm", Pass::kForward);
  w_->Alloc(gated_);
  if (m_.kind == Mixer::kMamba1) {
    // The gate is in the scan.
  } else if (m_.kind == Mixer::kShortConv) {
    Stream("gate", MemoryOp::kSwiglu, m_.inner(), 2 * e, e, Pass::kForward);
  } else {
    Stream("gated_norm", MemoryOp::kRmsNorm, m_.inner(), 2 * e, e, Pass::kForward);
  }
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
  if (m_.kind == Mixer::kMamba1) {
    // As forward.
  } else if (m_.kind == Mixer::kShortConv) {
    Stream("gate", MemoryOp::kSwiglu, m_.inner(), 3 * e, 2 * e, pass);
  } else {
    Stream("gated_norm", MemoryOp::kRmsNorm, m_.inner(), 3 * e, 2 * e, pass);
    AccumulateGradient(s_, w_, "weight_gradient", m_.delta() ? m_.head_dim : m_.inner());
  }
  w_->Free(gated);
  Exchange("gate.dealt", m_.inner(), pass);
  Exchange("scanned.dealt", m_.inner(), pass);
  const Buffer convolved = w_->Temporary("convolved", s_.tokens() * m_.convolved() * e);
  w_->Alloc(convolved);
  if (linear()) {
    LinearScanBackward();
  } else {
    ScanBackward();
  }
  w_->Free(convolved);
  w_->Free(scanned);
  w_->Free(scanned_);
  w_->Free(projected_);
  Exchange("projected.dealt", m_.projected() + copied(), pass);
  Module("layers.mamba.in_projection", pass);
  Reorder(m_.projected(), pass);
  GatesUp(pass);
  ColumnBackward(s_, w_, "in_projection", s_.hidden, m_.projected(), false);
  w_->Free(projected);
}

}  // namespace orrery::workload
