#include "orrery/workload/generators/shape.h"

#include "orrery/base/hash.h"

namespace orrery::workload {

using graph::DType;

std::int64_t PaddedVocab(std::int64_t vocab, std::int64_t tp) {
  const std::int64_t multiple = 128 * tp;
  return (vocab + multiple - 1) / multiple * multiple;
}

Shape MakeShape(const Model& model, const Plan& plan) {
  Shape s;
  s.tp = plan.tp;
  s.seq = plan.seq_len / plan.cp;
  s.batch = plan.micro_batch;
  s.hidden = model.hidden;
  s.head_dim = model.head_dim;
  s.positions = model.position == Position::kLearned ? model.max_position : 0;
  s.heads = model.heads / plan.tp;
  s.kv_heads = model.kv_heads / plan.tp;
  s.ffn = model.ffn_hidden / plan.tp;
  s.vocab = PaddedVocab(model.vocab, plan.tp) / plan.tp;
  s.dtype = plan.precision == Precision::kBf16   ? DType::kBf16
            : plan.precision == Precision::kFp16 ? DType::kFp16
                                                 : DType::kFp32;
  s.element_bytes = graph::SizeOf(s.dtype);
  s.gradient_dtype = plan.grad_reduce_fp32 ? DType::kFp32 : s.dtype;
  s.gradient_bytes = graph::SizeOf(s.gradient_dtype);
  s.sequence_parallel = plan.sequence_parallel && plan.tp > 1;
  s.norm = model.norm;
  s.activation = model.activation;
  s.position = model.position;
  s.tied = model.tied_embeddings;
  s.attention_bias = model.attention_bias;
  s.mlp_bias = model.mlp_bias;
  s.dropout = model.dropout > 0;
  s.recompute = plan.recompute;
  s.attention = plan.attention;
  s.fused_bias_activation = plan.fused_bias_activation;
  s.fused_softmax = plan.fused_softmax;
  s.fused_adam = plan.fused_adam;
  s.recompute_flash = plan.recompute_flash;
  s.scatter_gather_p2p = plan.scatter_gather_p2p;
  s.batch_p2p_sync = plan.batch_p2p_sync;
  s.cp = plan.cp;
  s.cp_exchange = plan.cp_exchange;
  s.low_precision = plan.low_precision;
  s.low_precision_gather = plan.low_precision_gather;
  s.sharded = plan.sharding >= Sharding::kZero2;
  s.reshards = plan.sharding == Sharding::kZero3;
  s.prefetch = plan.prefetch;
  s.flat_parameters = plan.flat_parameters;
  s.host = plan.host;
  return s;
}

std::uint64_t Hash(const Shape& s) {
  Hasher h;
  h.Add(s.tp).Add(s.seq).Add(s.batch).Add(s.hidden).Add(s.head_dim).Add(s.positions).Add(s.heads);
  h.Add(s.kv_heads).Add(s.ffn).Add(s.vocab).Add(s.dtype).Add(s.gradient_dtype);
  h.Add(s.sequence_parallel).Add(s.norm).Add(s.activation).Add(s.position).Add(s.tied);
  h.Add(s.attention_bias).Add(s.mlp_bias).Add(s.dropout).Add(s.recompute).Add(s.attention);
  h.Add(s.fused_bias_activation).Add(s.fused_softmax).Add(s.fused_adam).Add(s.recompute_flash);
  h.Add(s.scatter_gather_p2p).Add(s.batch_p2p_sync).Add(s.cp).Add(s.cp_exchange);
  h.Add(s.low_precision).Add(s.low_precision_gather).Add(s.sharded).Add(s.reshards);
  h.Add(s.prefetch).Add(s.flat_parameters).Add(s.host.module_forward).Add(s.host.module_backward);
  h.Add(s.host.low_precision).Add(s.host.rng_fork).Add(s.host.checkpoint);
  return h.Add(s.host.communication).Add(s.host.unit).value();
}

namespace {

void AddNorm(const Shape& s, std::vector<std::int64_t>* out) {
  out->push_back(s.hidden);
  if (s.norm == Norm::kLayerNorm) out->push_back(s.hidden);
}

}  // namespace

std::vector<std::int64_t> LayerParameters(const Shape& s) {
  std::vector<std::int64_t> p;
  p.reserve(12);
  AddNorm(s, &p);
  p.push_back(s.query() * s.hidden);  // projection
  if (s.attention_bias) p.push_back(s.hidden);
  p.push_back(s.qkv() * s.hidden);
  if (s.attention_bias) p.push_back(s.qkv());
  AddNorm(s, &p);
  p.push_back(s.fc1() * s.hidden);
  if (s.mlp_bias) p.push_back(s.fc1());
  p.push_back(s.ffn * s.hidden);
  if (s.mlp_bias) p.push_back(s.hidden);
  return p;
}

std::vector<std::int64_t> EmbeddingParameters(const Shape& s) {
  std::vector<std::int64_t> p{s.vocab * s.hidden};
  if (s.position == Position::kLearned) p.push_back(s.positions * s.hidden);
  return p;
}

std::vector<std::int64_t> HeadParameters(const Shape& s, bool owns_output) {
  std::vector<std::int64_t> p;
  AddNorm(s, &p);
  if (owns_output) p.push_back(s.vocab * s.hidden);
  return p;
}

std::int64_t SequenceParallelParameters(const Shape& s) {
  const std::int64_t norm = s.hidden * (s.norm == Norm::kLayerNorm ? 2 : 1);
  return 2 * norm + (s.attention_bias ? s.hidden : 0) + (s.mlp_bias ? s.hidden : 0);
}

}  // namespace orrery::workload
