#include "orrery/workload/generators/layers/embedding_and_head.h"

#include "orrery/workload/generators/layers/altup.h"
#include "orrery/workload/generators/layers/chunked_loss.h"
#include "orrery/workload/generators/layers/conv_unit.h"
#include "orrery/workload/generators/layers/encoder_decoder.h"
#include "orrery/workload/generators/layers/host_calls.h"
#include "orrery/workload/generators/layers/hyper_streams.h"
#include "orrery/workload/generators/layers/layer_embedding.h"
#include "orrery/workload/generators/layers/layer_ops.h"
#include "orrery/workload/generators/layers/patches.h"
#include "orrery/workload/generators/layers/precision.h"
#include "orrery/workload/generators/layers/prepared_base.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

using graph::Buffer;
using graph::Collective;
using graph::DType;
using graph::MemoryBound;
using graph::MemoryKind;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Buffer ids beside those of layers (1 to 17).
enum : std::uint32_t {
  kTokens = 40,
  kEmbeddingMask,
  kDropoutMask,
  kInput,
  kStats,
  kNormed,
  kLogits,
  kEmbeddingInput = 52,  // behind those of chunked_loss.cc
  kTransformInput,
  kTransformOutput,
  kHeldLogits,
  kMetricLogits,
  kOneHot
};

Buffer Tokens(const Shape& s, BlockWriter* w) {
  return Saved(w, kTokens, "tokens", s.tokens() * 8);
}
Buffer EmbeddingMask(const Shape& s, BlockWriter* w) {
  return Saved(w, kEmbeddingMask, "embedding.mask", s.tp > 1 ? s.tokens() * 9 : 0);
}
Buffer DropoutMask(const Shape& s, BlockWriter* w) {
  return Saved(w, kDropoutMask, "embedding.dropout_mask",
               s.dropout ? s.local_tokens() * s.hidden : 0);
}
// A row a token, which the table's gradient reads again.
Buffer OneHot(const Shape& s, BlockWriter* w) {
  return Saved(w, kOneHot, "embedding.one_hot",
               s.framework.embedding_product ? s.tokens() * s.vocab * s.element_bytes : 0);
}
// What a norm of the embeddings keeps: its input and statistics.
Buffer EmbeddingInput(const Shape& s, BlockWriter* w) {
  return Saved(w, kEmbeddingInput, "embedding.sum", s.local_bytes() + s.local_tokens() * 8);
}
// BERT's linear layer before the logits, and its GeLU.
Buffer TransformInput(const Shape& s, BlockWriter* w) {
  return Saved(w, kTransformInput, "head.transform.input", s.encoder ? s.local_bytes() : 0);
}
Buffer TransformOutput(const Shape& s, BlockWriter* w) {
  return Saved(w, kTransformOutput, "head.transform.output", s.encoder ? s.local_bytes() : 0);
}
Buffer Input(const Shape& s, BlockWriter* w) {
  return Saved(w, kInput, "head.input", s.local_bytes());
}
Buffer Statistics(const Shape& s, BlockWriter* w) {
  return Saved(w, kStats, "final_norm.statistics",
               s.local_tokens() * 4 * (s.norm == Norm::kLayerNorm ? 2 : 1));
}
Buffer Normed(const Shape& s, BlockWriter* w) {
  return Saved(w, kNormed, "final_norm.output", s.local_bytes());
}
// The 16-bit logits, which the caller of PyTorch's own loss holds until backward is over unless it
// drops them, that of Megatron's until the loss returns.
Buffer Logits(const Shape& s, BlockWriter* w) {
  const std::int64_t bytes = s.tokens() * s.vocab * s.element_bytes;
  return s.framework.torch_loss && !s.framework.drops_logits
             ? Saved(w, kHeldLogits, "logits", bytes)
             : w->Temporary("logits", bytes);
}
// Metrics read the 16-bit logits after the loss, which writes its gradients beside them.
Buffer MetricLogits(const Shape& s, BlockWriter* w) {
  return Saved(w, kMetricLogits, "metrics.logits",
               s.framework.loss_metrics ? s.tokens() * s.vocab * s.element_bytes : 0);
}
// The fp32 logits become the softmax in place; PyTorch's own log-softmax is a tensor beside them.
// The online loss makes the 16-bit logits their gradients.
Buffer Softmax(const Shape& s, BlockWriter* w) {
  const std::int64_t logits = s.tokens() * s.vocab;
  return s.framework.online_cross_entropy
             ? Saved(w, kLogits, "cross_entropy.gradient", logits * s.element_bytes)
             : Saved(w, kLogits, "cross_entropy.softmax", logits * 4);
}

// A pass over the fp32 logits.
MemoryBound OverLogits(const Shape& s, std::int64_t read, std::int64_t written, Pass pass) {
  MemoryBound k = Elementwise(s, MemoryOp::kCrossEntropy, s.tokens(), s.vocab, read, written, pass);
  k.dtype = DType::kFp32;
  return k;
}
MemoryBound OverTokens(const Shape& s, std::int64_t read, std::int64_t written, Pass pass) {
  MemoryBound k = Elementwise(s, MemoryOp::kCrossEntropy, s.tokens(), 1, read, written, pass);
  k.dtype = DType::kFp32;
  return k;
}

// A pass over the 16-bit logits.
MemoryBound OverShortLogits(const Shape& s, std::int64_t read, std::int64_t written, Pass pass) {
  return Elementwise(s, MemoryOp::kCrossEntropy, s.tokens(), s.vocab, read, written, pass);
}

// Maxima and sums in one pass, gathered over tp with the predicted logits; then the gradients,
// written over the logits; backward multiplies them by the loss's own gradient (Transformer Engine,
// triton/cross_entropy.py).
void OnlineLossForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Module("output_layer");
  w->Alloc(Softmax(s, w));
  ColumnForward(OutputShape(s), w, "logits", s.hidden, s.vocab);
  w->Module("loss");
  w->Kernel("online_softmax", OverShortLogits(s, e, 0, Pass::kForward));
  TpCollective(s, w, "all_gather.softmax", Collective::kAllGather, s.tokens() * 3 * 4 * s.tp,
               DType::kFp32);
  w->Kernel("cross_entropy", OverShortLogits(s, e, e, Pass::kForward));
  w->Kernel("mean", OverTokens(s, 8, 0, Pass::kForward));
}
void OnlineLossBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Module("loss");
  w->Kernel("mean", OverTokens(s, 4, 4, Pass::kBackward));
  w->Kernel("scale", OverShortLogits(s, e, e, Pass::kBackward));
  w->Module("output_layer");
  if (s.encoder) BiasGradient(s, w, s.tokens(), s.vocab);
  ColumnBackward(OutputShape(s), w, "logits", s.hidden, s.vocab, false);
  w->Free(Softmax(s, w));
}

// From the loss to the gradient of the output layer's input.
void LossBackward(const Shape& s, BlockWriter* w) {
  if (s.framework.online_cross_entropy) return OnlineLossBackward(s, w);
  const std::int64_t e = s.element_bytes;
  w->Module("loss");
  w->Kernel("mean", OverTokens(s, 4, 4, Pass::kBackward));
  w->Kernel("one_hot", OverTokens(s, 12, 4, Pass::kBackward));
  // Compiled, scaling and cast are one kernel. Gradients of the log-softmax and of the fp32 logits;
  // in place without PyTorch's own loss.
  const std::int64_t wide = s.framework.torch_loss ? s.tokens() * s.vocab * 4 : 0;
  const Buffer of_softmax = w->Temporary("log_softmax.gradient", wide);
  const Buffer of_logits = w->Temporary("logits.fp32.gradient", wide);
  w->Alloc(of_softmax);
  w->Alloc(of_logits);
  if (!s.framework.fused_cross_entropy) w->Kernel("scale", OverLogits(s, 4, 4, Pass::kBackward));
  w->Free(of_softmax);
  const Buffer logits = w->Temporary("logits.gradient", s.tokens() * s.vocab * e);
  w->Alloc(logits);
  w->Kernel("cast", Elementwise(s, MemoryOp::kCast, s.tokens(), s.vocab, 4, e, Pass::kBackward));
  w->Free(of_logits);
  w->Free(Softmax(s, w));
  w->Module("output_layer");
  if (s.encoder) BiasGradient(s, w, s.tokens(), s.vocab);
  ColumnBackward(OutputShape(s), w, "logits", s.hidden, s.vocab, false);
  w->Free(logits);
  if (s.framework.torch_loss && !s.framework.drops_logits) w->Free(Logits(s, w));
}

// Composer updates LanguageCrossEntropy and LanguagePerplexity behind each micro-batch's backward
// pass: torch's cross entropy of the logits. Autocast leaves its log-softmax in their type, which
// it is given, and makes the log-probabilities fp32 for nll_loss. By then the layers have given
// back more than these temporaries take.
void LossMetrics(const Shape& s, BlockWriter* w) {
  if (!s.framework.loss_metrics) return;
  const std::int64_t e = s.element_bytes;
  w->Module("metrics");
  for (const std::string_view metric : {"cross_entropy", "perplexity"}) {
    const std::string name(metric);
    w->Kernel(name + ".log_softmax", OverShortLogits(s, e, e, Pass::kBackward));
    w->Kernel(name + ".cast",
              Elementwise(s, MemoryOp::kCast, s.tokens(), s.vocab, e, 4, Pass::kBackward));
    w->Kernel(name + ".sum", OverTokens(s, 12, 0, Pass::kBackward));
  }
  w->Free(MetricLogits(s, w));
}

// A micro-batch's tensors. Where their sizes are read back the GPU has run dry by then.
void FetchBatch(const Shape& s, BlockWriter* w) {
  w->Host("batch", s.framework.host.batch / 2);
  if (s.framework.batch_sync) w->HostSync("sizes");
  w->Host("batch", s.framework.host.batch - s.framework.host.batch / 2);
}

}  // namespace

graph::Block EnterChunk(const Shape& s, Names* names) {
  constexpr std::int64_t kAround = 4;  // data-parallel and 16-bit wrappers, model, stack of layers
  BlockWriter w(names, "chunk.enter", Pass::kForward);
  w.Host("modules", kAround * s.framework.host.module_forward);
  return w.Finish();
}

namespace {

// Words are looked up, or chosen by a product with one-hot rows, which needs no masks.
void LookUp(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Alloc(OneHot(s, w));
  if (s.framework.embedding_product) {
    w->Kernel("one_hot",
              Elementwise(s, MemoryOp::kZero, s.tokens(), s.vocab, 0, e, Pass::kForward));
    w->Kernel("embedding", graph::Gemm{.m = s.tokens(),
                                       .n = s.hidden,
                                       .k = s.vocab,
                                       .dtype = s.dtype,
                                       .layout = graph::GemmLayout::kNN,
                                       .out_dtype = s.dtype});
    return;
  }
  if (s.tp > 1) {
    w->Kernel("vocab_mask", Elementwise(s, MemoryOp::kCopy, s.tokens(), 1, 8, 9, Pass::kForward));
  }
  w->Kernel("embedding",
            Elementwise(s, MemoryOp::kEmbedding, s.tokens(), s.hidden, e, e, Pass::kForward));
  if (s.tp > 1) {
    w->Kernel("zero_masked",
              Elementwise(s, MemoryOp::kZero, s.tokens(), s.hidden, 0, e, Pass::kForward));
  }
}

// Behind the words or patches: norm and dropout.
void SumForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  if (s.embedding_norm) {
    w->Module("embedding.norm");
    w->Alloc(EmbeddingInput(s, w));
    NormForward(s, w);
  }
  w->Alloc(DropoutMask(s, w));
  if (s.dropout) {
    w->Kernel("dropout", Elementwise(s, MemoryOp::kDropout, s.local_tokens(), s.hidden, e, e + 1,
                                     Pass::kForward));
  }
}

void SumBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  if (s.dropout) {
    w->Kernel("dropout", Elementwise(s, MemoryOp::kDropout, s.local_tokens(), s.hidden, e + 1, e,
                                     Pass::kBackward));
  }
  w->Free(DropoutMask(s, w));
  if (!s.embedding_norm) return;
  w->Module("embedding.norm");
  NormBackward(s, w);
  w->Free(EmbeddingInput(s, w));
  w->Module("embedding.word");
}

}  // namespace

void WriteEmbeddingForward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Module("embedding.word");
  w->Alloc(Tokens(s, w));
  w->Alloc(EmbeddingMask(s, w));
  const Buffer looked_up = w->Temporary("embedding.output", s.full_bytes());
  w->Alloc(looked_up);
  LookUp(s, w);
  if (s.position != Position::kLearned) {
    w->Kernel("transpose",
              Elementwise(s, MemoryOp::kTranspose, s.tokens(), s.hidden, e, e, Pass::kForward));
    TpCollective(s, w, s.sequence_parallel ? "reduce_scatter" : "all_reduce",
                 s.sequence_parallel ? Collective::kReduceScatter : Collective::kAllReduce,
                 s.full_bytes(), s.dtype);
  } else {
    TpCollective(s, w, "all_reduce", Collective::kAllReduce, s.full_bytes(), s.dtype);
    w->Module("embedding.position");
    w->Kernel("embedding",
              Elementwise(s, MemoryOp::kEmbedding, s.tokens(), s.hidden, e, e, Pass::kForward));
    w->Kernel("add",
              Elementwise(s, MemoryOp::kAdd, s.tokens(), s.hidden, 2 * e, e, Pass::kForward));
    w->Kernel("transpose",
              Elementwise(s, MemoryOp::kTranspose, s.tokens(), s.hidden, e, e, Pass::kForward));
    if (s.sequence_parallel) {
      w->Kernel("split",
                Elementwise(s, MemoryOp::kCopy, s.local_tokens(), s.hidden, e, e, Pass::kForward));
    }
  }
  if (s.encoder) {
    w->Module("embedding.token_type");
    w->Kernel("embedding",
              Elementwise(s, MemoryOp::kEmbedding, s.tokens(), s.hidden, e, e, Pass::kForward));
    w->Kernel("add",
              Elementwise(s, MemoryOp::kAdd, s.tokens(), s.hidden, 2 * e, e, Pass::kForward));
  }
  SumForward(s, w);
  w->Free(looked_up);
}

graph::Block EmbeddingForward(const Shape& s, Names* names) {
  BlockWriter w(names, "embedding.forward", Pass::kForward);
  FetchBatch(s, &w);
  if (s.patch_values > 0 || s.frame_values > 0) {
    s.patch_values > 0 ? PatchesForward(s, &w) : FramesForward(EncoderShape(s), &w);
    SumForward(s.patch_values > 0 ? s : EncoderShape(s), &w);
  } else {
    WriteEmbeddingForward(s.encoder_seq > 0 ? EncoderShape(s) : s, &w);
  }
  if (s.layer_embedding > 0) LayerEmbeddingsForward(s, &w);
  if (s.altup_streams > 0) StreamsForward(s, Ends::kEmbedding, &w);
  return w.Finish();
}

void WriteEmbeddingBackward(const Shape& s, BlockWriter* w) {
  const std::int64_t e = s.element_bytes;
  w->Module("embedding.word");
  SumBackward(s, w);
  if (s.patch_values > 0) return PatchesBackward(s, w);
  const Buffer gathered = w->Temporary("gathered", s.full_bytes(), MemoryKind::kCommunication);
  w->Alloc(gathered);
  if (s.sequence_parallel) {
    TpCollective(s, w, "all_gather", Collective::kAllGather, s.full_bytes(), s.dtype);
  }
  w->Kernel("transpose",
            Elementwise(s, MemoryOp::kTranspose, s.tokens(), s.hidden, e, e, Pass::kBackward));
  // The gradient of a table is dense: zeroed, scattered into, then added to the gradient buffer, or
  // where none is there yet it is the gradient.
  const bool is_first = s.passing_gradients && !s.adds_gradients && !s.tied;
  const auto table = [&](std::int64_t rows, std::int64_t read_per_row_element) {
    if (s.frozen()) return;
    const Buffer dense = w->Temporary("table.gradient", is_first ? 0 : rows * s.hidden * e);
    w->Alloc(dense);
    w->Kernel("zero", Elementwise(s, MemoryOp::kZero, rows, s.hidden, 0, e, Pass::kBackward));
    w->Kernel("embedding", Elementwise(s, MemoryOp::kEmbedding, s.tokens(), s.hidden,
                                       read_per_row_element, e, Pass::kBackward));
    AccumulateGradient(s, w, "table_gradient", rows * s.hidden);
    w->Free(dense);
  };
  if (s.encoder) {
    w->Module("embedding.token_type");
    table(2, 2 * e);
  }
  if (s.position == Position::kLearned) {
    w->Module("embedding.position");
    table(s.positions, 2 * e);
    w->Module("embedding.word");
  }
  if (s.framework.embedding_product) {
    WriteGemm(s, w, "embedding",
              {.m = s.vocab,
               .n = s.hidden,
               .k = s.tokens(),
               .dtype = s.dtype,
               .layout = graph::GemmLayout::kTN});
    w->Free(OneHot(s, w));
  } else {
    if (s.tp > 1) {
      w->Kernel("zero_masked",
                Elementwise(s, MemoryOp::kZero, s.tokens(), s.hidden, 0, e, Pass::kBackward));
    }
    table(s.vocab, 2 * e);
  }
  w->Free(gathered);
  w->Free(EmbeddingMask(s, w));
  w->Free(Tokens(s, w));
}

graph::Block EmbeddingBackward(const Shape& s, Names* names) {
  BlockWriter w(names, "embedding.backward", Pass::kBackward);
  const Shape read = s.encoder_seq > 0 ? EncoderShape(s) : s;
  MakeGradients(s, GradientsOf::kEmbedding, &w);
  if (s.altup_streams > 0) StreamsBackward(s, Ends::kEmbedding, &w);
  if (s.layer_embedding > 0) LayerEmbeddingsBackward(s, &w);
  if (s.frame_values > 0) {
    w.Module("embedding.frames");
    SumBackward(read, &w);
    FramesBackward(read, &w);
  } else {
    WriteEmbeddingBackward(read, &w);
  }
  return w.Finish();
}

namespace {

// From the output layer's input to the loss.
void LossForward(const Shape& s, BlockWriter* w) {
  if (s.framework.loss_metrics) w->Alloc(MetricLogits(s, w));
  if (s.framework.chunked_loss) return ChunkedLossForward(s, w);
  if (s.framework.online_cross_entropy) return OnlineLossForward(s, w);
  const std::int64_t e = s.element_bytes;
  const DType fp32 = DType::kFp32;
  const std::int64_t per_token = s.tokens() * 4;
  w->Module("output_layer");
  const Buffer logits = Logits(s, w);
  w->Alloc(logits);
  ColumnForward(OutputShape(s), w, "logits", s.hidden, s.vocab);
  w->Module("loss");
  const Buffer softmax = Softmax(s, w);
  w->Alloc(softmax);
  w->Kernel("cast", Elementwise(s, MemoryOp::kCast, s.tokens(), s.vocab, e, 4, Pass::kForward));
  // Compiled, the maximum is found beside the cast, and one kernel subtracts, exponentiates and
  // sums; it makes the exponentials of a tensor that lives on, else they are made in place.
  const bool fused = s.framework.fused_cross_entropy;
  const bool beside = fused || s.framework.torch_loss;  // fp32 logits beside what becomes of them
  const Buffer wide = w->Temporary("logits.fp32", s.tokens() * s.vocab * 4);
  if (beside) w->Alloc(wide);
  if (!fused) w->Kernel("maximum", OverLogits(s, 4, 0, Pass::kForward));
  TpCollective(s, w, "all_reduce.maximum", Collective::kAllReduce, per_token, fp32);
  if (!fused) w->Kernel("subtract", OverLogits(s, 4, 4, Pass::kForward));
  w->Kernel("predicted", OverTokens(s, 12, 4, Pass::kForward));
  w->Kernel("exponential", OverLogits(s, 4, 4, Pass::kForward));
  if (!fused) w->Kernel("sum", OverLogits(s, 4, 0, Pass::kForward));
  TpCollective(s, w, fused ? "all_reduce.predicted_and_sum" : "all_reduce.predicted",
               Collective::kAllReduce, fused ? 2 * per_token : per_token, fp32);
  if (!fused) TpCollective(s, w, "all_reduce.sum", Collective::kAllReduce, per_token, fp32);
  w->Kernel("loss", OverTokens(s, 8, 4, Pass::kForward));
  w->Kernel("normalise", OverLogits(s, 4, 4, Pass::kForward));
  w->Kernel("mean", OverTokens(s, 8, 0, Pass::kForward));
  if (beside) w->Free(wide);
  if (!s.framework.torch_loss || s.framework.drops_logits) w->Free(logits);
}

}  // namespace

graph::Block HeadForward(const Shape& s, Names* names) {
  if (s.net != nullptr) return ImageLossForward(s, names);
  BlockWriter w(names, "head.forward", Pass::kForward);
  if (s.pipelined) FetchBatch(s, &w);
  const std::int64_t e = s.element_bytes;
  w.Alloc(Input(s, &w));
  if (s.encoder) {
    w.Module("head.transform");
    w.Alloc(TransformInput(s, &w));
    w.Alloc(TransformOutput(s, &w));
    DenseForward(InBf16(s), &w, "transform", s.hidden, s.hidden);
    w.Kernel("gelu",
             Elementwise(s, MemoryOp::kGelu, s.local_tokens(), s.hidden, e, e, Pass::kForward));
  }
  if (s.altup_streams > 0) StreamsForward(s, Ends::kHead, &w);
  if (s.hyper_streams > 0) SumStreams(s, &w);
  w.Module("final_norm");
  w.Alloc(Statistics(s, &w));
  w.Alloc(Normed(s, &w));
  NormForward(s, &w);
  if (s.patch_values > 0) {
    PoolForward(s, &w);
    LossForward(OfImages(s), &w);
  } else {
    w.Alloc(CastOutputWeight(s, &w));
    ToProduct(s, &w, "weight.cast", s.vocab, s.hidden, Pass::kForward);
    LossForward(InProductType(s), &w);
  }
  WriteEndCalls(s, &w, Pass::kForward);
  return w.Finish();
}

graph::Block HeadBackward(const Shape& s, Names* names) {
  if (s.net != nullptr) return ImageLossBackward(s, names);
  BlockWriter w(names, "head.backward", Pass::kBackward);
  const std::int64_t e = s.element_bytes;
  MakeGradients(s, GradientsOf::kHead, &w);
  if (s.framework.chunked_loss) {
    ChunkedLossBackward(InProductType(s), &w);
  } else if (s.patch_values > 0) {
    LossBackward(OfImages(s), &w);
    PoolBackward(s, &w);
  } else {
    LossBackward(InProductType(s), &w);
  }
  w.Free(CastOutputWeight(s, &w));
  w.Free(Normed(s, &w));
  w.Module("final_norm");
  const Buffer gradient = w.Temporary("gradient", s.local_bytes());
  w.Alloc(gradient);
  NormBackward(s, &w);
  if (s.altup_streams > 0) StreamsBackward(s, Ends::kHead, &w);
  if (s.hyper_streams > 0) SumStreamsBackward(s, &w);
  if (s.encoder) {
    w.Module("head.transform");
    w.Kernel("gelu", Elementwise(s, MemoryOp::kGelu, s.local_tokens(), s.hidden, 2 * e, e,
                                 Pass::kBackward));
    DenseBackward(InBf16(s), &w, "transform", s.hidden, s.hidden);
    BiasGradient(s, &w, s.local_tokens(), s.hidden);
    w.Free(TransformOutput(s, &w));
    w.Free(TransformInput(s, &w));
  }
  w.Free(gradient);
  w.Free(Statistics(s, &w));
  w.Free(Input(s, &w));
  LossMetrics(s, &w);
  WriteEndCalls(s, &w, Pass::kBackward);
  return w.Finish();
}

}  // namespace orrery::workload
