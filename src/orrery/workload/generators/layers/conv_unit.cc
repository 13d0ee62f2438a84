#include "orrery/workload/generators/layers/conv_unit.h"

#include <algorithm>

#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Gemm;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

using Kind = ConvOp::Kind;

class UnitWriter {
 public:
  UnitWriter(const Shape& s, BlockWriter* w)
      : s_(s), w_(*w), unit_(s.net->units[static_cast<std::size_t>(s.unit)]) {
    input_ = Saved("input", unit_.inputs() * s_.element_bytes);
    for (const ConvOp& op : unit_.ops) saved_.push_back(Saved("saved", SavedBytes(op)));
  }

  void Forward() {
    w_.Alloc(input_);
    std::int64_t passing = 0;  // bytes that leave the unit, or are not kept
    for (const ConvOp& op : unit_.ops) {
      if (op.last || op.temporary) passing += op.outputs() * s_.element_bytes;
    }
    const Buffer outputs = w_.Temporary("outputs", s_.batch * passing);
    w_.Alloc(outputs);
    for (std::size_t i = 0; i < unit_.ops.size(); ++i) {
      w_.Module(unit_.name);
      w_.Host("module", s_.framework.host.module_forward);
      w_.Alloc(saved_[i]);
      ForwardOp(unit_.ops[i]);
    }
    w_.Free(outputs);
  }

  void Backward() {
    std::int64_t largest = 0;
    for (const ConvOp& op : unit_.ops) largest = std::max({largest, op.inputs(), op.outputs()});
    // The gradient at hand and the one being made.
    const Buffer gradients = w_.Temporary("gradients", 2 * s_.batch * largest * s_.element_bytes);
    w_.Alloc(gradients);
    for (std::size_t i = unit_.ops.size(); i-- > 0;) {
      w_.Module(unit_.name);
      w_.Host("module", s_.framework.host.module_backward);
      BackwardOp(unit_.ops[i]);
      w_.Free(saved_[i]);
    }
    w_.Free(gradients);
    w_.Free(input_);
  }

 private:
  Buffer Saved(std::string_view name, std::int64_t bytes) {
    return w_.Named(++id_, name, s_.batch * bytes, MemoryKind::kActivation, Lifetime::kMicrobatch);
  }

  std::int64_t SavedBytes(const ConvOp& op) const {
    const std::int64_t output = op.last || op.temporary ? 0 : op.outputs() * s_.element_bytes;
    switch (op.kind) {
      case Kind::kRelu:
      case Kind::kAdd:
        return 0;  // in place
      case Kind::kMaxPool:
        return output + op.outputs() * 8;
      case Kind::kDropout:
        return output + op.outputs();
      case Kind::kConv:
      case Kind::kBatchNorm:
      case Kind::kAveragePool:
      case Kind::kLinear:
        return output;
    }
    return output;
  }

  // Reads and writes so many bytes per element of `elements` an image.
  void Stream(std::string_view name, MemoryOp op, std::int64_t elements, std::int64_t read,
              std::int64_t written, Pass pass) {
    w_.Kernel(name, Elementwise(s_, op, s_.batch, elements, read, written, pass));
  }

  graph::DType TypeOf(const ConvOp& op) const {
    const bool tf32 = s_.dtype == graph::DType::kFp32 && op.kind == Kind::kConv;
    return tf32 ? graph::DType::kTf32 : s_.dtype;
  }

  void Product(const ConvOp& op, std::int64_t m, std::int64_t n, std::int64_t k,
               GemmLayout layout) {
    const bool weights = layout == GemmLayout::kTN;
    w_.Kernel(op.kind == Kind::kConv ? "convolution" : "linear",
              Gemm{.m = m,
                   .n = n,
                   .k = k,
                   .dtype = TypeOf(op),
                   .layout = layout,
                   .accumulate = weights && s_.gemm_adds(),
                   .out_dtype = weights && s_.gemm_adds() ? s_.gradient_dtype : s_.dtype});
  }

  void ForwardOp(const ConvOp& op) {
    const std::int64_t e = s_.element_bytes;
    const Pass pass = Pass::kForward;
    const std::int64_t taps = std::int64_t{op.kernel} * op.kernel;
    switch (op.kind) {
      case Kind::kConv:
      case Kind::kLinear:
        if (s_.autocasts()) {
          w_.Kernel("weight.cast",
                    Elementwise(s_, MemoryOp::kCast, op.out, op.in * taps, 4, e, pass));
        }
        return Product(op, s_.batch * op.out_side * op.out_side, op.out, op.in * taps,
                       GemmLayout::kNT);
      case Kind::kBatchNorm:
        return Stream("batch_norm", MemoryOp::kLayerNorm, op.outputs(), 2 * e, e, pass);
      case Kind::kRelu:
        return Stream("relu", MemoryOp::kGelu, op.outputs(), e, e, pass);
      case Kind::kAdd:
        return Stream("add", MemoryOp::kAdd, op.outputs(), 2 * e, e, pass);
      case Kind::kDropout:
        return Stream("dropout", MemoryOp::kDropout, op.outputs(), e, e + 1, pass);
      case Kind::kMaxPool:
      case Kind::kAveragePool: {
        graph::MemoryBound k = Elementwise(s_, MemoryOp::kCopy, s_.batch, op.inputs(), e, 0, pass);
        k.bytes_written = s_.batch * op.outputs() * (op.kind == Kind::kMaxPool ? e + 8 : e);
        return w_.Kernel("pool", k);
      }
    }
  }

  void BackwardOp(const ConvOp& op) {
    const std::int64_t e = s_.element_bytes;
    const Pass pass = Pass::kBackward;
    switch (op.kind) {
      case Kind::kConv:
      case Kind::kLinear:
        return BackwardProduct(op);
      case Kind::kBatchNorm:
        Stream("batch_norm", MemoryOp::kLayerNorm, op.outputs(), 4 * e, e, pass);
        AccumulateGradient(s_, &w_, "weight_gradient", op.out);
        return AccumulateGradient(s_, &w_, "bias_gradient", op.out);
      case Kind::kRelu:
        return Stream("relu", MemoryOp::kGelu, op.outputs(), 2 * e, e, pass);
      case Kind::kAdd:  // where the two branches' gradients meet, at the unit's input
        return Stream("residual_gradient", MemoryOp::kAdd, unit_.inputs(), 2 * e, e, pass);
      case Kind::kDropout:
        return Stream("dropout", MemoryOp::kDropout, op.outputs(), e + 1, e, pass);
      case Kind::kMaxPool:
      case Kind::kAveragePool: {
        graph::MemoryBound k = Elementwise(s_, MemoryOp::kCopy, s_.batch, op.inputs(), 0, e, pass);
        k.bytes_read = s_.batch * op.outputs() * (op.kind == Kind::kMaxPool ? e + 8 : e);
        return w_.Kernel("pool", k);
      }
    }
  }

  void BackwardProduct(const ConvOp& op) {
    const std::int64_t taps = std::int64_t{op.kernel} * op.kernel;
    const std::int64_t pixels = s_.batch * op.out_side * op.out_side;
    if (!op.first) {
      const std::int64_t skipped = std::int64_t{op.stride} * op.stride;
      Product(op, s_.batch * op.in_side * op.in_side, op.in,
              std::max<std::int64_t>(1, op.out * taps / skipped), GemmLayout::kNN);
    }
    Product(op, op.out, op.in * taps, pixels, GemmLayout::kTN);
    if (!s_.gemm_adds()) {
      AccumulateGradient(s_, &w_, "weight_gradient", op.out * op.in * taps);
    }
    if (op.bias) BiasGradient(s_, &w_, pixels, op.out);
  }

  const Shape& s_;
  BlockWriter& w_;
  const ConvUnit& unit_;
  std::uint32_t id_ = 0;
  Buffer input_;
  std::vector<Buffer> saved_;
};

// The logits' logarithmic softmax, kept for backward.
Buffer LogSoftmax(const Shape& s, BlockWriter* w) {
  return w->Named(40, "loss.log_softmax", s.batch * kImageClasses * 4, MemoryKind::kActivation,
                  Lifetime::kMicrobatch);
}

}  // namespace

void WriteUnitForward(const Shape& s, BlockWriter* w) { UnitWriter(s, w).Forward(); }
void WriteUnitBackward(const Shape& s, BlockWriter* w) { UnitWriter(s, w).Backward(); }

graph::Block ImageLossForward(const Shape& s, Names* names) {
  BlockWriter w(names, "head.forward", Pass::kForward);
  w.Module("loss");
  w.Alloc(LogSoftmax(s, &w));
  w.Kernel("log_softmax", Elementwise(s, MemoryOp::kCrossEntropy, s.batch, kImageClasses,
                                      s.element_bytes, 4, Pass::kForward));
  w.Kernel("nll_loss", Elementwise(s, MemoryOp::kCrossEntropy, s.batch, 1, 12, 0, Pass::kForward));
  return w.Finish();
}

graph::Block ImageLossBackward(const Shape& s, Names* names) {
  BlockWriter w(names, "head.backward", Pass::kBackward);
  w.Module("loss");
  w.Kernel("nll_loss",
           Elementwise(s, MemoryOp::kCrossEntropy, s.batch, kImageClasses, 0, 4, Pass::kBackward));
  w.Kernel("log_softmax", Elementwise(s, MemoryOp::kCrossEntropy, s.batch, kImageClasses, 8,
                                      s.element_bytes, Pass::kBackward));
  w.Free(LogSoftmax(s, &w));
  return w.Finish();
}

}  // namespace orrery::workload
