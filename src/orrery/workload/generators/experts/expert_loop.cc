// Experts one after the other: ExpertWriter's LoopForward and LoopBackward.
//
// transformers' models before release 5, and its "eager" experts since: a mask of choices, and for
// each expert the tokens that it picks (torch.where, whose length the host reads), their rows
// gathered, its linear layers, the rows times their weights, and an addition at the tokens' places.
// Backward, autograd gives each gathering a gradient of all tokens (zeros, the rows added to them),
// and adds it to the sum so far. Source: huggingface/transformers v4.57.6,
// models/qwen3_moe/modeling_qwen3_moe.py; v5.0, integrations/moe.py.
#include "orrery/workload/generators/experts/experts.h"
#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Gemm;
using graph::GemmLayout;
using graph::MemoryOp;
using graph::Pass;

namespace {

// A product of one expert.
Gemm OfOne(const Shape& s, std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
  return {.m = m, .n = n, .k = k, .dtype = s.dtype, .layout = layout};
}

}  // namespace

void ExpertWriter::LoopForward(bool keep) {
  const Pass pass = Pass::kForward;
  const std::int64_t e = s_.element_bytes, width = e_.width, each = load_.each;
  const std::int64_t gates = fc1(e_.ffn) / e_.ffn;
  const auto rows = [&](std::string_view name, MemoryOp op, std::int64_t read, std::int64_t wrote) {
    w_->Kernel(name, Elementwise(s_, op, each, width, read, wrote, pass));
  };
  Enter("layers.mlp.experts", pass);
  w_->Kernel("experts.zero",
             Elementwise(s_, MemoryOp::kZero, s_.local_tokens(), width, 0, e, pass));
  w_->HostSync("experts.hit");
  for (const Buffer& kept : {permuted_, fc1_out_, unweighted_, activated_, unscaled_}) {
    w_->Alloc(kept);
  }
  adapters_.InFront(ExpertProduct::kFc1);
  adapters_.InFront(ExpertProduct::kFc2);
  for (std::int64_t i = 0; i < e_.local; ++i) {
    w_->Kernel("where",
               Elementwise(s_, MemoryOp::kRouterTopk, s_.local_tokens(), e_.top_k, 8, 0, pass));
    w_->HostSync("where");
    rows("gather", MemoryOp::kPermute, e, e);
    for (std::int64_t g = 0; g < gates; ++g) {
      WriteGemm(s_, w_, "fc1", OfOne(s_, each, e_.ffn, width, GemmLayout::kNT));
    }
    Activation(pass, each, e_.ffn);
    WriteGemm(s_, w_, "fc2", OfOne(s_, each, width, e_.ffn, GemmLayout::kNT));
    rows("scale", MemoryOp::kGradScale, e, e);
    rows("index_add", MemoryOp::kUnpermute, 2 * e, e);
  }
  adapters_.Behind(ExpertProduct::kFc1);
  adapters_.Behind(ExpertProduct::kFc2);
  if (keep) return;
  for (const Buffer& kept : {permuted_, fc1_out_, unweighted_, activated_, unscaled_}) {
    w_->Free(kept);
  }
  adapters_.Drop();
}

void ExpertWriter::LoopBackward() {
  const Pass pass = Pass::kBackward;
  const std::int64_t e = s_.element_bytes, width = e_.width, each = load_.each;
  const std::int64_t gates = fc1(e_.ffn) / e_.ffn, tokens = s_.local_tokens();
  const auto rows = [&](std::string_view name, MemoryOp op, std::int64_t read, std::int64_t wrote) {
    w_->Kernel(name, Elementwise(s_, op, each, width, read, wrote, pass));
  };
  const auto all = [&](std::string_view name, MemoryOp op, std::int64_t read, std::int64_t wrote) {
    w_->Kernel(name, Elementwise(s_, op, tokens, width, read, wrote, pass));
  };
  const Buffer gathered = w_->Temporary("gather.gradient", tokens * width * e);
  Enter("layers.mlp.experts", pass);
  for (std::int64_t i = 0; i < e_.local; ++i) {
    rows("gather", MemoryOp::kPermute, e, e);
    rows("scale", MemoryOp::kGradScale, e, e);
    rows("scores.gradient", MemoryOp::kAdd, 2 * e, e);
    rows("scores.sum", MemoryOp::kScaledMaskSoftmax, e, 0);
    WriteGemm(s_, w_, "fc2", OfOne(s_, each, e_.ffn, width, GemmLayout::kNN));
    WriteGemm(s_, w_, "fc2", OfOne(s_, width, e_.ffn, each, GemmLayout::kTN));
    Activation(pass, each, e_.ffn);
    for (std::int64_t g = 0; g < gates; ++g) {
      WriteGemm(s_, w_, "fc1", OfOne(s_, each, width, e_.ffn, GemmLayout::kNN));
      WriteGemm(s_, w_, "fc1", OfOne(s_, e_.ffn, width, each, GemmLayout::kTN));
    }
    if (gates > 1) rows("sum_of_gate_and_up", MemoryOp::kAdd, 2 * e, e);
    w_->Alloc(gathered);
    all("gather.zero", MemoryOp::kZero, 0, e);
    rows("gather.add", MemoryOp::kUnpermute, 2 * e, e);
    all("gradient.sum", MemoryOp::kAdd, 2 * e, e);
    w_->Free(gathered);
  }
  adapters_.Backward(ExpertProduct::kFc2);
  adapters_.Backward(ExpertProduct::kFc1);
  for (const Buffer& kept : {unscaled_, activated_, unweighted_, fc1_out_, permuted_}) {
    w_->Free(kept);
  }
}

}  // namespace orrery::workload
