#include "orrery/workload/generators/experts/experts.h"

#include <algorithm>
#include <numeric>

#include "orrery/workload/generators/experts/expert_host.h"
#include "orrery/workload/generators/experts/torch_experts.h"
#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/stored_inputs.h"
#include "orrery/workload/generators/layers/torch_layers.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Gemm;
using graph::GemmLayout;
using graph::Lifetime;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Of `places` that share the experts equally, those that have one of a token's experts, expected,
// in thousandths: k different experts of E, each as likely.
// Dealt out in turn, token i has the k experts from i·k on, modulo E.
std::int64_t DistinctPermille(const ExpertShape& e, std::int64_t places) {
  if (e.in_turn) {
    const std::int64_t each = e.count / places;
    const std::int64_t tokens = e.count / std::gcd(e.count, e.top_k);  // then it repeats
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t first = i * e.top_k % e.count;
      sum += std::min(places, (first + e.top_k - 1) / each - first / each + 1);
    }
    return (sum * 1000 + tokens / 2) / tokens;
  }
  double none = 1;
  for (std::int64_t i = 0; i < e.top_k; ++i) {
    none *= static_cast<double>(std::max<std::int64_t>(0, e.count - e.count / places - i)) /
            static_cast<double>(e.count - i);
  }
  return static_cast<std::int64_t>(static_cast<double>(places) * (1 - none) * 1000 + 0.5);
}

// C[m, n] of every expert on this rank.
Gemm Grouped(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
  return {.m = m,
          .n = n,
          .k = k,
          .batch = s.experts.local,
          .dtype = LinearType(s),
          .layout = layout,
          .kind = graph::GemmKind::kGrouped};
}

// Calls over the experts of a pass with `gemms` grouped GEMMs, the casts of its operand included.
std::int64_t Calls(const Shape& s, std::int64_t gemms) { return gemms + (IsLow(s) ? 1 : 0); }

constexpr std::uint32_t kUnscaledId = 69;
constexpr std::uint32_t kFirstId = 70;  // of buffers, behind those of layers and of the ends
bool RunsAgain(const Shape& s) {
  return s.recompute == Recompute::kFull || s.recomputes(kRecomputeMoe);
}

}  // namespace

ExpertLoad LoadOf(const Shape& s) {
  const ExpertShape& e = s.experts;
  ExpertLoad load;
  const std::int64_t copies = s.local_tokens() * e.top_k;
  load.sent = copies * e.sent_permille / 1000;
  load.received = (copies * e.load_permille + 999) / 1000;
  load.rows = load.received * e.etp;
  load.each = std::max<std::int64_t>(1, (load.rows + e.local - 1) / e.local);
  const bool once = e.dispatcher == Dispatcher::kDeepEp || e.dispatcher == Dispatcher::kHybridEp;
  const auto counted = [&](std::int64_t permille) {
    if (!once) return (copies * permille + 999) / 1000;
    const std::int64_t places = e.domains > 1 ? e.domains : e.ep;
    const std::int64_t n = s.local_tokens() * DistinctPermille(e, places) / 1000 * permille / 1000;
    // The all-to-all sends (domains - 1) / domains of it over NICs. What stays in the own domain
    // takes a third of the time that it would take there.
    return e.domains > 1 ? n + n / (3 * (e.domains - 1)) : n;
  };
  load.on_wire = counted(e.wire_permille);
  load.arrived = counted(e.load_permille);
  const std::int64_t tokens =
      s.local_tokens() * DistinctPermille(e, e.ep) / 1000 * e.load_permille / 1000;
  load.once = once ? std::min(tokens, load.rows) : load.rows;
  return load;
}

ExpertWriter::ExpertWriter(const Shape& s, BlockWriter* w)
    : s_(s),
      routed_(PartShape(s, kBf16Experts)),
      dense_(PartShape(s, kBf16Mlp)),
      e_(s.experts),
      w_(w),
      load_(LoadOf(s)),
      adapters_(s, {load_.rows, load_.each}, RunsAgain(s), kFirstId + 8, w) {
  std::uint32_t id = kFirstId;
  const bool again = RunsAgain(s);
  const auto make = [&](std::string_view name, std::int64_t bytes, bool within_call) {
    return w->Named(++id, name, bytes, MemoryKind::kActivation,
                    within_call ? Lifetime::kCall : Lifetime::kMicrobatch);
  };
  const bool function = again || s.recomputes(kRecomputeMoeAct);
  const std::int64_t b = s.element_bytes;
  // Scores in fp32, the map of choices in bytes.
  logits_ = make("router.scores", s.local_tokens() * e_.count * 5, again);
  latent_ = make("experts.latent", e_.latent ? s.local_tokens() * e_.width * b : 0, again);
  permuted_ = make("experts.input", LinearBytes(routed_, load_.rows * e_.width), again);
  const std::int64_t routed_fc1 = load_.rows * fc1(e_.ffn),
                     shared_fc1 = s.tokens() * fc1(e_.shared);
  fc1_out_ = make("experts.fc1.output", ActivationInputBytes(s, routed_fc1), again);
  // Only gated and squared functions are fused with the weighting of their rows; another's output
  // is kept beside the weighted one. Clamped halves are a tensor of their own.
  const bool separate = s.activation == workload::Activation::kGelu ||
                        s.activation == workload::Activation::kRelu || EagerGates(s);
  const std::int64_t before = s.clamped_activation ? fc1(e_.ffn) : separate ? e_.ffn : 0;
  unweighted_ =
      make(s.clamped_activation ? "experts.activation.clamped" : "experts.activation.unweighted",
           load_.rows * before * b, function);
  activated_ =
      make("experts.activation.output", LinearBytes(routed_, load_.rows * e_.ffn), function);
  shared_fc1_ = make("shared.fc1.output", ActivationInputBytes(s, shared_fc1), again);
  unscaled_ = w->Named(kUnscaledId, "experts.fc2.output",
                       s.framework.expert_loop ? load_.rows * e_.width * b : 0,
                       MemoryKind::kActivation, again ? Lifetime::kCall : Lifetime::kMicrobatch);
  shared_act_ =
      make("shared.activation.output", LinearBytes(dense_, s.tokens() * e_.shared), again);
  if (!s.framework.fp8_activation_input) return;
  fc1_wide_ = w->Temporary("experts.fc1.output", routed_fc1 * b);
  shared_wide_ = w->Temporary("shared.fc1.output", shared_fc1 * b);
}

void ExpertWriter::Enter(std::string_view module, Pass pass) {
  w_->Module(module);
  w_->Host("module", pass == Pass::kForward ? s_.framework.host.module_forward
                                            : s_.framework.host.module_backward);
}

std::int64_t ExpertWriter::fc1(std::int64_t width) const {
  return s_.activation == workload::Activation::kSwiglu ? 2 * width : width;
}

void ExpertWriter::Activation(Pass pass, std::int64_t rows, std::int64_t cols) {
  const bool gated = s_.activation == workload::Activation::kSwiglu;
  const std::int64_t b = s_.element_bytes;
  const std::int64_t inputs = gated ? 2 : 1;
  const bool forward = pass == Pass::kForward;
  if (EagerGates(s_)) return EagerGate(s_, w_, rows, cols, pass);
  if (forward) Clamp(pass, rows, inputs * cols);
  w_->Kernel(ActivationName(s_),
             Elementwise(s_, gated ? MemoryOp::kSwiglu : MemoryOp::kGelu, rows, cols,
                         (forward ? inputs : inputs + 1) * b, (forward ? 1 : inputs) * b, pass));
  if (!forward) Clamp(pass, rows, inputs * cols);
}

// Two halves, each by itself, put together again for the fused kernel (Megatron's
// weighted_bias_quick_geglu_impl). Backward: gradients where the input was within, put together.
void ExpertWriter::Clamp(Pass pass, std::int64_t rows, std::int64_t cols) {
  if (!s_.clamped_activation || s_.framework.moe_fused_mlp) return;
  const std::int64_t b = s_.element_bytes;
  const bool forward = pass == Pass::kForward;
  w_->Host("clamp", 4 * (forward ? s_.framework.host.operator_forward
                                 : s_.framework.host.operator_backward));
  w_->Kernel("clamp",
             Elementwise(s_, MemoryOp::kGradScale, rows, cols, forward ? b : 2 * b, b, pass));
  w_->Kernel("concatenate", Elementwise(s_, MemoryOp::kCopy, rows, cols, b, b, pass));
}

void ExpertWriter::Router(Pass pass) {
  const std::int64_t tokens = s_.local_tokens();
  Enter("layers.mlp.router", pass);
  ExpertHost(s_, w_, ExpertPiece::kRouter, pass);
  const auto gemm = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    WriteGemm(s_, w_, "router", {.m = m, .n = n, .k = k, .dtype = s_.dtype, .layout = layout});
  };
  // Bytes of a score. Without moe_router_fusion each of PyTorch's operators reads and writes fp32
  // tensors of all scores: function, bias, top-k, zeros, scatter (which copies), and the map of
  // choices as fp32, integers, scattered and as bytes; the auxiliary loss the same again and its
  // division and sums; backward the gradients of divisions, sums and functions (moe_utils.py).
  const auto kernel = [&](std::string_view name, std::int64_t read, std::int64_t written) {
    w_->Kernel(name, Elementwise(s_, MemoryOp::kRouterTopk, tokens, e_.count, read, written, pass));
  };
  const bool fused = s_.framework.moe_fused_router;
  if (pass == Pass::kForward) {
    gemm(tokens, e_.count, s_.hidden, GemmLayout::kNT);
    kernel("top_k", fused ? 4 : 28, fused ? 5 : 29);
    if (TorchExperts(s_)) return;
    kernel("auxiliary_loss", fused ? 5 : 33, fused ? 0 : 21);
    return;
  }
  kernel("top_k", fused ? 9 : 52, fused ? 4 : 36);
  gemm(tokens, s_.hidden, e_.count, GemmLayout::kNN);
  gemm(e_.count, s_.hidden, tokens, GemmLayout::kTN);
  if (e_.router_bias) AccumulateGradient(s_, w_, "bias_gradient", e_.count);
}

// The projection of tokens to the experts' width or of results from it, whole on every rank.
void ExpertWriter::Latent(std::string_view name, std::int64_t out, std::int64_t in, Pass pass) {
  const std::int64_t tokens = s_.local_tokens();
  Enter("layers.mlp.latent", pass);
  const Shape s = PartShape(s_, kBf16ExpertLatent);
  const auto gemm = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    WriteGemm(s, w_, name, {.m = m, .n = n, .k = k, .dtype = LinearType(s), .layout = layout});
  };
  if (pass == Pass::kForward) {
    CastOperand(s, w_, "cast", tokens, in, pass);
    return gemm(tokens, out, in, GemmLayout::kNT);
  }
  CastOperand(s, w_, "cast", tokens, out, pass);
  gemm(tokens, in, out, GemmLayout::kNN);
  gemm(out, in, tokens, GemmLayout::kTN);
}

// Biases behind fc2, weighted as their rows are by the router's fp32 weights: expert by expert a
// piece is cut out, the scaled bias added in fp32, and all pieces are put together and converted
// (Megatron's TEGroupedMLP._apply_bias). Backward: gradients of pieces, biases and weights.
void ExpertWriter::OutputBias(Pass pass) {
  const std::int64_t b = s_.element_bytes;
  const auto kernel = [&](std::string_view name, MemoryOp op, std::int64_t read,
                          std::int64_t written) {
    w_->Kernel(name, Elementwise(s_, op, load_.rows, e_.width, read, written, pass));
  };
  if (pass == Pass::kForward) {
    w_->Host("bias", e_.local * 3 * s_.framework.host.operator_forward);
    kernel("scale", MemoryOp::kGradScale, 0, 4);
    kernel("output_bias", MemoryOp::kAdd, b + 4, 4);
    kernel("concatenate", MemoryOp::kCopy, 4, 4);
    return kernel("cast", MemoryOp::kCast, 4, b);
  }
  w_->Host("bias", e_.local * 6 * s_.framework.host.operator_backward);
  kernel("cast", MemoryOp::kCast, b, 4);
  kernel("cast", MemoryOp::kCast, 4, b);
  for (int i = 0; i < 2; ++i) {
    kernel("scale", MemoryOp::kGradScale, 4, 4);
    kernel("bias_sum", MemoryOp::kAdd, 4, 0);
  }
  kernel("concatenate", MemoryOp::kCopy, b, b);
}

void ExpertWriter::ExpertsForward(bool keep) {
  Enter("layers.mlp.experts.fc1", Pass::kForward);
  w_->Alloc(AsMade(fc1_wide_, fc1_out_));
  Pad("pad", Pass::kForward);
  CastOperand(routed_, w_, "cast", load_.rows, e_.width, Pass::kForward);
  adapters_.InFront(ExpertProduct::kFc1);
  GroupedHost(s_, w_, Calls(routed_, 1));
  WriteGemm(s_, w_, "grouped_fc1",
            Grouped(routed_, load_.each, fc1(e_.ffn), e_.width, GemmLayout::kNT));
  adapters_.Behind(ExpertProduct::kFc1);
  if (!keep) w_->Free(permuted_);
  Enter("layers.mlp.experts.activation", Pass::kForward);
  ExpertHost(s_, w_, ExpertPiece::kActivation, Pass::kForward);
  w_->Alloc(unweighted_);
  w_->Alloc(activated_);
  if (!s_.framework.moe_fused_mlp) Activation(Pass::kForward, load_.rows, e_.ffn);
  StoreNarrow(s_, w_, fc1_wide_, fc1_out_);
  const bool keep_function = keep && !s_.recomputes(kRecomputeMoeAct);
  if (!keep) w_->Free(fc1_out_);
  if (!keep_function) w_->Free(unweighted_);
  Enter("layers.mlp.experts.fc2", Pass::kForward);
  if (!s_.framework.moe_fused_mlp)
    CastOperand(routed_, w_, "cast", load_.rows, e_.ffn, Pass::kForward);
  adapters_.InFront(ExpertProduct::kFc2);
  GroupedHost(s_, w_, Calls(routed_, 1));
  WriteGemm(s_, w_, "grouped_fc2", Grouped(routed_, load_.each, e_.width, e_.ffn, GemmLayout::kNT));
  adapters_.Behind(ExpertProduct::kFc2);
  if (s_.mlp_bias) OutputBias(Pass::kForward);
  Pad("unpad", Pass::kForward);
  if (!keep_function) w_->Free(activated_);
  if (!keep) adapters_.Drop();
}

void ExpertWriter::Forward(bool keep) {
  const Pass pass = Pass::kForward;
  const std::int64_t token = e_.width * s_.element_bytes;
  w_->Alloc(logits_);
  Router(pass);
  if (e_.latent) {
    w_->Alloc(latent_);
    Latent("down", e_.width, s_.hidden, pass);
  }
  if (s_.framework.expert_loop) {
    LoopForward(keep);
    return FinishForward(keep);
  }
  w_->Module("layers.mlp.preprocess");
  ExpertHost(s_, w_, ExpertPiece::kPreprocess, pass);
  Enter("layers.mlp.dispatch", pass);
  RoutingMap();
  ReadCounts();
  const Buffer sent =
      w_->Temporary("dispatch.tokens", load_.arrived * token, MemoryKind::kCommunication);
  w_->Alloc(sent);
  if (e_.dispatcher == Dispatcher::kAllToAll) Permute(Way::kThere, pass);
  Exchange(Way::kThere, pass, !overlaps());
  if (overlaps()) {
    SharedForward(true);
    w_->Wait("dispatch", kExpertEvent);
    w_->Module("layers.mlp.dispatch");
  }
  w_->Alloc(permuted_);
  if (permutes_received()) Permute(Way::kThere, pass);
  Sort(Way::kThere, pass);
  w_->Free(sent);
  ExpertsForward(keep);
  const Buffer out = w_->Temporary("experts.output", load_.rows * token);
  const Buffer back =
      w_->Temporary("combine.tokens", load_.arrived * token, MemoryKind::kCommunication);
  w_->Alloc(out);
  w_->Alloc(back);
  Enter("layers.mlp.combine", pass);
  Sort(Way::kBack, pass);
  if (permutes_received()) Permute(Way::kBack, pass);
  Exchange(Way::kBack, pass, !overlaps());
  if (overlaps()) {
    SharedForward(false);
    w_->Wait("combine", kExpertEvent);
    w_->Module("layers.mlp.combine");
  }
  if (e_.dispatcher == Dispatcher::kAllToAll) Permute(Way::kBack, pass);
  if (e_.latent) Latent("up", s_.hidden, e_.width, pass);
  w_->Free(back);
  w_->Free(out);
  FinishForward(keep);
}

void ExpertWriter::ExpertsBackward() {
  const std::int64_t b = s_.element_bytes;
  const Buffer act = w_->Temporary("experts.activation.gradient", load_.rows * e_.ffn * b);
  const Buffer fc = w_->Temporary("experts.fc1.gradient", load_.rows * fc1(e_.ffn) * b);
  Widen(s_, w_, fc1_wide_, fc1_out_);
  if (s_.recomputes(kRecomputeMoeAct)) {
    Enter("layers.mlp.experts.activation", Pass::kForward);
    ExpertHost(s_, w_, ExpertPiece::kActivation, Pass::kForward);
    w_->Alloc(unweighted_);
    w_->Alloc(activated_);
    Activation(Pass::kForward, load_.rows, e_.ffn);
  }
  Enter("layers.mlp.experts.fc2", Pass::kBackward);
  GroupedHost(s_, w_, Calls(routed_, 2));
  w_->Alloc(act);
  Pad("pad", Pass::kBackward);
  if (s_.mlp_bias) OutputBias(Pass::kBackward);
  CastOperand(routed_, w_, "cast", load_.rows, e_.width, Pass::kBackward);
  WriteGemm(s_, w_, "grouped_fc2", Grouped(routed_, load_.each, e_.ffn, e_.width, GemmLayout::kNN));
  WriteGemm(s_, w_, "grouped_fc2", Grouped(routed_, e_.width, e_.ffn, load_.each, GemmLayout::kTN));
  adapters_.Backward(ExpertProduct::kFc2);
  if (s_.mlp_bias) BiasGradient(s_, w_, load_.rows, e_.width);
  w_->Free(activated_);
  Enter("layers.mlp.experts.activation", Pass::kBackward);
  ExpertHost(s_, w_, ExpertPiece::kActivation, Pass::kBackward);
  w_->Alloc(fc);
  if (!s_.framework.moe_fused_mlp) Activation(Pass::kBackward, load_.rows, e_.ffn);
  w_->Free(act);
  w_->Free(fc1_wide_);
  w_->Free(unweighted_);
  w_->Free(fc1_out_);
  Enter("layers.mlp.experts.fc1", Pass::kBackward);
  GroupedHost(s_, w_, Calls(routed_, 2));
  if (s_.mlp_bias) BiasGradient(s_, w_, load_.rows, fc1(e_.ffn));
  if (!s_.framework.moe_fused_mlp)
    CastOperand(routed_, w_, "cast", load_.rows, fc1(e_.ffn), Pass::kBackward);
  WriteGemm(s_, w_, "grouped_fc1",
            Grouped(routed_, load_.each, e_.width, fc1(e_.ffn), GemmLayout::kNN));
  WriteGemm(s_, w_, "grouped_fc1",
            Grouped(routed_, fc1(e_.ffn), e_.width, load_.each, GemmLayout::kTN));
  adapters_.Backward(ExpertProduct::kFc1);
  Pad("unpad", Pass::kBackward);
  w_->Free(fc);
  w_->Free(permuted_);
}

void ExpertWriter::Backward() {
  const Pass pass = Pass::kBackward;
  if (s_.framework.expert_loop) {
    LoopBackward();
    return FinishBackward();
  }
  const std::int64_t token = e_.width * s_.element_bytes;
  const Buffer wire =
      w_->Temporary("combine.gradient", load_.arrived * token, MemoryKind::kCommunication);
  const Buffer rows = w_->Temporary("experts.gradient", load_.rows * token);
  if (e_.latent) Latent("up", s_.hidden, e_.width, pass);
  Enter("layers.mlp.combine", pass);
  w_->Alloc(wire);
  if (e_.dispatcher == Dispatcher::kAllToAll) Permute(Way::kBack, pass);
  Exchange(Way::kBack, pass, !overlaps());
  if (overlaps()) {
    SharedBackward();
    w_->Wait("combine", kExpertEvent);
    w_->Module("layers.mlp.combine");
  }
  w_->Alloc(rows);
  if (permutes_received()) Permute(Way::kBack, pass);
  Sort(Way::kBack, pass);
  w_->Free(wire);
  ExpertsBackward();
  Enter("layers.mlp.dispatch", pass);
  Sort(Way::kThere, pass);
  if (permutes_received()) Permute(Way::kThere, pass);
  Exchange(Way::kThere, pass, true);
  w_->Free(rows);
  if (e_.dispatcher == Dispatcher::kAllToAll) Permute(Way::kThere, pass);
  if (e_.latent) {
    Latent("down", e_.width, s_.hidden, pass);
    w_->Free(latent_);
  }
  FinishBackward();
}

}  // namespace orrery::workload
