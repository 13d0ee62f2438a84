#include "orrery/workload/generators/shape.h"

#include "orrery/base/hash.h"
#include "orrery/workload/generators/layers/compressed_keys.h"
#include "orrery/workload/plan_experts.h"

namespace orrery::workload {

using graph::DType;

std::int64_t PaddedVocab(std::int64_t vocab, std::int64_t tp) {
  const std::int64_t multiple = 128 * tp;
  return (vocab + multiple - 1) / multiple * multiple;
}

namespace {

// One CPU-Adam step of a parameter on a whole host of two sockets: 0.22 to 0.26 s per billion (Ren
// et al. 2021, "ZeRO-Offload", table 4, two Xeon 8168 of 24 cores). Ranks of a host share it, and
// threads of a rank do not pass what as many of those cores did.
constexpr std::int64_t kCpuAdamPs = 250, kCpuAdamCores = 48;

std::int64_t CpuAdamPs(const Plan& plan) {
  if (!plan.memory.offload_optimizer) return 0;
  const std::int64_t shared = kCpuAdamPs * plan.parallel.ranks_per_host;
  if (plan.memory.offload_threads == 0) return shared;
  return std::max(shared, kCpuAdamPs * kCpuAdamCores / plan.memory.offload_threads);
}

void SetExperts(const Model& model, const Plan& plan, ExpertShape* e) {
  e->count = model.experts.count;
  e->top_k = model.experts.top_k;
  e->in_turn = plan.experts.routing == Routing::kRoundRobin;
  e->local = model.experts.count / plan.parallel.ep;
  e->ffn = model.experts.ffn_hidden / plan.expert_tp();
  e->shared = model.experts.shared_ffn_hidden / plan.parallel.tp;
  e->ep = plan.parallel.ep;
  e->etp = plan.expert_tp();
  e->load_permille = static_cast<std::int64_t>(BusiestLoad(model, plan) * 1000 + 0.5);
  e->wire_permille = e->load_permille;
  e->dispatcher = plan.experts.dispatcher;
  e->shared_overlap = plan.experts.shared_expert_overlap && e->shared > 0;
  e->delays_weights = plan.experts.moe_delayed_weights;
  e->router_bias = model.experts.router_bias;
  e->pads = plan.pads_experts();
  e->fixed_rows = plan.experts.pad_to_capacity;
  // transformers' grouped products read their rows' ends on the GPU (integrations/moe.py).
  const bool ends = plan.framework.transformers_modules && plan.parallel.ep == 1 &&
                    plan.framework.torch_layers == TorchLayers::kEager;
  e->host_reads = !ends && !e->fixed_rows &&
                  (plan.experts.dispatcher != Dispatcher::kHybridEp ||
                   plan.framework.cuda_graphs != CudaGraphs::kIteration);
  // Ranks over ep are etp apart and lie together (expert_groups.h).
  const int each = plan.parallel.nvlink_ranks > 0 ? plan.parallel.nvlink_ranks / plan.expert_tp()
                                                  : plan.parallel.ep;
  e->domains = each > 0 && each < plan.parallel.ep ? (plan.parallel.ep + each - 1) / each
               : each > 0                          ? 1
                                                   : plan.parallel.ep;
  e->latent = model.experts.latent > 0;
  e->width = e->latent ? model.experts.latent : model.hidden;
}

// Latent attention runs its projections again whole.
KeptProducts KeptBy(const Plan& plan, const Shape& s) {
  const RecomputeKeeps keeps = plan.framework.recompute_keeps;
  if (keeps == RecomputeKeeps::kNothing) return {};
  if (s.mamba_beside) return {.stops = !s.dropout};
  const bool latent = s.latent.kv_rank > 0 || s.latent.q_rank > 0;
  const bool saves = keeps == RecomputeKeeps::kProducts;
  const bool every_other = keeps == RecomputeKeeps::kEveryOther;
  const bool out = saves || keeps == RecomputeKeeps::kQkvOut;
  return {.stops = !s.dropout && !s.post_norms,
          .qkv = !latent && (every_other || out || keeps == RecomputeKeeps::kQkv),
          .core = every_other,
          .projection = out,
          .fc1 = saves || (every_other && s.activation != Activation::kSwiglu),
          .halves = every_other && !latent};
}

// What the model says; tp's share of it.
void SetModel(const Model& model, const Plan& plan, Shape* s) {
  s->hidden = model.hidden;
  s->head_dim = model.head_dim;
  s->positions = model.position == Position::kLearned ? model.max_position : 0;
  s->heads = model.heads / plan.parallel.tp;
  s->kv_heads = model.kv_heads / plan.parallel.tp;
  s->ffn = model.ffn_hidden / plan.parallel.tp;
  s->vocab = PaddedVocab(model.vocab, plan.parallel.tp) / plan.parallel.tp;
  s->norm = model.norm;
  s->activation = model.activation;
  s->position = model.position;
  s->tied = model.tied_embeddings;
  s->attention_bias = model.attention_bias;
  s->mlp_bias = model.mlp_bias;
  s->dropout = model.dropout > 0;
  s->mtp_modules = model.mtp_modules();
  s->net = model.net;
  s->qkv_bias = model.attention_bias && model.qkv_bias;
  s->projection_bias = model.projection_bias;
  s->encoder = model.encoder;
  s->parallel_block = model.parallel_block;
  s->shared_norm = model.shared_norm;
  s->embedding_norm = model.embedding_norm || model.encoder;
  s->qk_norm = model.qk_norm;
  s->qk_norm_whole = model.qk_norm_whole;
  s->post_norms = model.post_norms;
  s->chunked_window = model.chunked_window;
  s->sinks = model.sinks;
  s->mamba_beside = model.mamba_beside;
  s->bidirectional = model.bidirectional;
  s->patch_values = model.patch_values;
  s->attention_pool = model.attention_pool;
  s->encoder_seq = model.encoder_tokens(plan.batch.seq_len);
  s->frame_values = model.frame_values;
  s->layer_embedding = model.layer_embedding;
  s->altup_streams = model.altup_streams;
  s->block_index = model.block_index;
  s->compressed_keys = model.compressed;
  s->hyper_streams = model.hyper_streams;
  s->laurel_rank = model.laurel_rank;
  s->layer_embeddings = model.layer_embedding > 0 ? model.layers : 0;
  if (model.encoder_layers > 0) {
    s->cross_attention = plan.framework.attention;
    if (model.position == Position::kLearned) {
      s->encoder_positions = model.frame_values > 0 ? model.encoder_len : model.max_position;
    }
  }
  s->attention_gate = model.attention_gate;
  s->scaled_rotary = model.scaled_rotary;
  s->clamped_activation = model.clamped_activation;
  s->window = model.window;
  s->window_heads = {model.window_heads.queries / plan.parallel.tp,
                     model.window_heads.keys / plan.parallel.tp, model.window_heads.dim};
  s->sizes = model.sizes;
  for (LayerSizes& own : s->sizes) {
    own.heads.queries /= plan.parallel.tp;
    own.heads.keys /= plan.parallel.tp;
    own.ffn_hidden /= plan.parallel.tp;
  }
  s->keys_are_values = model.keys_are_values;
  s->latent = model.latent;
  if (s->latent.kv_rank > 0) {
    s->head_dim = s->latent.nope_dim + s->latent.rope_dim;
    s->kv_heads = s->heads;
  }
  s->mamba = model.mamba;
  s->mamba.heads /= plan.parallel.tp;
  s->mamba.groups /= plan.parallel.tp;
  if (model.experts.count > 0) SetExperts(model, plan, &s->experts);
}

// Types of activations and gradients, low precision.
void SetPrecision(const Plan& plan, Shape* s) {
  s->dtype = plan.precision.type == Precision::kBf16   ? DType::kBf16
             : plan.precision.type == Precision::kFp16 ? DType::kFp16
                                                       : DType::kFp32;
  s->element_bytes =
      plan.framework.prepared_base ? graph::SizeOf(DType::kFp32) : graph::SizeOf(s->dtype);
  s->gradient_dtype = plan.framework.grad_reduce_fp32 ? DType::kFp32 : s->dtype;
  s->gradient_bytes = graph::SizeOf(s->gradient_dtype);
  s->low_precision = plan.precision.low;
  s->bf16_modules = plan.precision.bf16_modules;
}

void SetRecompute(const Plan& plan, Shape* s) {
  s->recompute = plan.memory.recompute;
  if (plan.memory.recompute == Recompute::kSelective) {
    const bool layers = plan.framework.recompute_keeps == RecomputeKeeps::kEveryOther;
    s->recompute = layers ? Recompute::kFull : Recompute::kSelective;
    s->recompute_modules = layers ? std::uint8_t{0} : plan.memory.recompute_modules;
  }
}

// Sharded units and their gathers.
void SetSharding(const Plan& plan, Shape* s) {
  const FrameworkBehaviour& framework = plan.framework;
  s->keeps_units = plan.keeps_units();
  s->sharded = plan.gathers_units() && !s->keeps_units;
  s->reshards = plan.memory.sharding == Sharding::kZero3 && plan.memory.reshard != kKeepGathered;
  if (framework.model_type_states && plan.gathers_units()) s->state_bytes = s->element_bytes;
  if (plan.updates_in_place()) {
    s->updates_in_place = true;
    s->state_bytes = s->gradient_bytes = s->element_bytes;
    s->gradient_dtype = s->dtype;
  }
  s->reshard_ranks = s->sharded && s->reshards ? plan.memory.reshard : 0;
  const bool ahead = s->sharded && s->reshards && framework.prefetch;
  s->limits_gathers = ahead && framework.gather_limit == GatherLimit::kHost;
  s->gathers_linger = ahead && framework.gather_limit == GatherLimit::kNone;
  if (plan.hybrid()) s->shard_ranks = plan.shard_ranks();
}

// Optimizer, gradients and offloading.
void SetStep(const Plan& plan, Shape* s) {
  const FrameworkBehaviour& framework = plan.framework;
  s->optimizer = plan.optimizer;
  const bool half = plan.optimizer_states == OptimizerStates::kBf16;  // else as in full
  s->optimizer_states = half ? OptimizerStates::kFull : plan.optimizer_states;
  s->moment_bytes = half ? 2 : s->state_bytes;
  s->momentum = plan.momentum;
  s->whole_moments = plan.optimizer == Optimizer::kAdafactor && plan.shards_are_flat();
  if (framework.reducer == Reducer::kDeepSpeed) {
    s->contiguous_elements = framework.bucket_elements * (framework.overlap_grad_reduce ? 2 : 1);
  }
  if (plan.gathers_units() && framework.contiguous_gradients) {
    s->contiguous_elements = framework.bucket_elements;
  }
  s->offload_optimizer = plan.memory.offload_optimizer;
  s->offload_parameters = plan.memory.offload_parameters;
  s->offload_activations = plan.memory.offload_activations && plan.memory.offload_layers == 0;
  s->offload_modules = plan.memory.offload_modules;
  s->cpu_adam_ps = CpuAdamPs(plan);
}

// Turns off the switches that have nothing to do here. REQUIRES: all else of the shape is set.
void SetFramework(const Plan& plan, Shape* s) {
  FrameworkBehaviour& f = s->framework;
  f.tp_comm_overlap &= s->sequence_parallel;
  // Not while an iteration is captured.
  f.batch_p2p_sync &= f.cuda_graphs != CudaGraphs::kIteration;
  // Megatron's kernel takes four rows of different heads or sequences a block (fused_softmax.py,
  // is_kernel_available: attn_batches % 4).
  f.fused_softmax &= s->batch * s->heads % 4 == 0;
  f.unpads_attention &= s->flash() && s->cp == 1;
  f.torch_loss &= !f.fused_cross_entropy && !f.online_cross_entropy && !f.chunked_loss;
  f.flat_step &= s->optimizer == Optimizer::kAdam && !s->offload_optimizer;
  f.keeps_scores &= !s->flash();
  f.unit_buffers &= plan.gathers_units();
  f.list_gathers &= plan.gathers_units();
  f.reduce_whole &= plan.memory.sharding == Sharding::kZero1;
  f.fused_weight_gradient &= !s->keeps_units;
  f.defer_grad_reduce = plan.defers_reductions();
  f.converted_gradients &= !s->separate_gradients() && s->gradient_dtype != s->dtype;
  f.bucket_views &= f.reducer == Reducer::kDdp;
  // A replica alone whose gradients lie in no buckets of their own is not wrapped at all.
  s->passing_gradients = f.reducer == Reducer::kDdp && (!f.bucket_views || plan.replicas() == 1) &&
                         !f.optimizer_in_backward && !s->offload_activations && s->net == nullptr;
  f.adam_loop &= !f.fused_adam;
  f.nf4_tensor &= s->base_weights == BaseWeights::kNf4;
  f.fp32_embedding_states &= s->optimizer_states != OptimizerStates::kFull && !s->frozen();
}

// Nothing of the layer runs again.
void KeepAll(Shape* s) {
  s->recompute = Recompute::kNone;
  s->kept = {};
}

}  // namespace

Shape OfKind(const Shape& shape, std::int64_t kind) {
  Shape s = shape;
  if (s.net != nullptr) {
    s.unit = kind;
    return s;
  }
  if (const std::size_t at = SizesOf(static_cast<Kind>(kind)); at > 0) {
    const LayerSizes& own = shape.sizes[at - 1];
    if (own.heads.queries > 0) s.heads = own.heads.queries;
    if (own.heads.keys > 0) s.kv_heads = own.heads.keys;
    if (own.heads.dim > 0) s.head_dim = own.heads.dim;
    if (own.ffn_hidden > 0) s.ffn = own.ffn_hidden;
    s.borrows_keys = own.borrows_keys > 0;
    s.compress = own.compress;
  }
  s.sizes.clear();
  if ((kind & kExpertLayer) == 0) {
    s.experts = {};
    s.block_index = {};
  }
  if ((kind & kWindowLayer) == 0) {
    s.window = 0;
  } else {
    const Heads& windowed = s.window_heads;
    if (windowed.queries > 0) s.heads = windowed.queries;
    if (windowed.keys > 0) s.kv_heads = windowed.keys;
    if (windowed.dim > 0) s.head_dim = windowed.dim;
    s.keys_are_values = false;
  }
  s.window_heads = {};
  if (s.compressed_keys.any()) s.window = CompressedWindow(s);
  if (s.block_index.heads > 0) s.window = s.block_index.tokens();  // as many pairs
  if (s.chunked_window && s.window > 0) {  // chunks do not see each other, as packed sequences
    if (s.window < s.sequence()) s.packed_len = s.window;
    s.window = 0;
  }
  if (s.framework.unfuses_wide_heads && s.head_dim > kWidestFusedHead) {
    s.framework.attention = AttentionBackend::kUnfused;
    s.framework.unpads_attention = false;
  }
  s.crosses = (kind & kCrossLayer) != 0;
  s.turns = (kind & kTurnLayer) != 0;
  if ((kind & kEncoderLayer) != 0) {
    s.seq = s.encoder_seq;
    s.bidirectional = true;
  }
  if (s.position == Position::kRelative) {  // no fused kernel learns what it adds to the scores
    s.framework.attention = AttentionBackend::kUnfused;
    s.framework.unpads_attention = false;
  }
  if ((kind & kMambaLayer) == 0 && !(s.mamba_beside && (kind & kNoMixer) == 0)) s.mamba = {};
  s.attends = (kind & (kMambaLayer | kNoMixer)) == 0;
  s.feeds_forward = (kind & kNoFeedForward) == 0;
  if (!s.attends || !s.feeds_forward) s.kept.projection = false;
  if ((kind & kBf16Layer) != 0) s.low_precision = LowPrecision::kNone;
  if ((kind & kKeepingLayer) != 0) KeepAll(&s);
  return s;
}

Shape InGroup(const Shape& shape, std::uint8_t places) {
  Shape s = shape;
  s.group = places;
  if ((places & kGroupAgain) != 0) KeepAll(&s);
  return s;
}

Kind KindOf(const Model& model, const Plan& plan, std::int64_t layer) {
  const bool plain = layer < plan.precision.bf16_first_layers ||
                     layer >= model.layers - plan.precision.bf16_last_layers;
  return static_cast<Kind>(model.layer_kind(layer) | (plain ? kBf16Layer : 0));
}

Kind KeepingOf(const Plan& plan, std::int64_t of_chunk, std::int64_t of_stage) {
  if (plan.memory.recompute != Recompute::kFull) return 0;
  const std::int64_t n = plan.memory.recompute_layers;
  const bool keeps = plan.memory.recompute_method == RecomputeMethod::kBlock ? of_chunk >= n
                     : plan.memory.recompute_method == RecomputeMethod::kEvery
                         ? (of_stage + 1) % n != 0
                         : false;
  return static_cast<Kind>(keeps ? kKeepingLayer : 0);
}

// Megatron's block method leaves these modules out (multi_token_prediction.py,
// _checkpointed_forward).
std::vector<Kind> MtpKindsOf(const Model& model, const Plan& plan) {
  std::vector<Kind> kinds = model.mtp_kinds();
  const bool keeps = plan.memory.recompute == Recompute::kFull &&
                     plan.memory.recompute_method == RecomputeMethod::kBlock;
  for (Kind& kind : kinds) {
    if (keeps) kind |= kKeepingLayer;
    if ((plan.precision.bf16_modules & kBf16Mtp) != 0) kind |= kBf16Layer;
  }
  return kinds;
}

Shape MakeShape(const Model& model, const Plan& plan) {
  Shape s;
  s.framework = plan.framework;
  s.tp = plan.parallel.tp;
  s.seq = plan.batch.seq_len / plan.parallel.cp;
  s.batch = plan.batch.micro_batch;
  s.sequence_parallel = plan.parallel.sequence_parallel && plan.parallel.tp > 1;
  s.pipelined = plan.parallel.pp > 1;
  s.cp = plan.parallel.cp;
  s.cp_exchange = plan.parallel.cp_exchange;
  SetModel(model, plan, &s);
  SetPrecision(plan, &s);
  SetRecompute(plan, &s);
  SetSharding(plan, &s);
  SetStep(plan, &s);
  s.lora_rank = plan.lora.rank;
  s.lora_targets = plan.lora.rank > 0 ? plan.lora.targets : std::uint8_t{0};
  if (s.lora_rank > 0 && model.experts.count > 0) s.lora_experts = plan.lora.experts;
  s.base_weights = plan.lora.base;
  s.double_quantization = plan.lora.double_quantization ||
                          (s.base_weights == BaseWeights::kNf4 && plan.framework.nf4_tensor);
  s.packed_len = plan.batch.packed_len < plan.batch.seq_len ? plan.batch.packed_len : 0;
  SetFramework(plan, &s);
  if (s.recompute == Recompute::kFull) s.kept = KeptBy(plan, s);
  return s;
}

std::uint64_t Hash(const Shape& s) {
  Hasher h;
  h.Add(s.tp).Add(s.cp).Add(s.seq).Add(s.batch).Add(s.hidden).Add(s.heads).Add(s.kv_heads);
  h.Add(s.ffn).Add(s.vocab).Add(s.dtype).Add(s.gradient_dtype).Add(s.low_precision);
  h.Add(s.sequence_parallel).Add(s.recompute).Add(s.recompute_modules).Add(s.pipelined);
  h.Add(s.sharded).Add(s.reshards).Add(s.shard_ranks).Add(s.adds_gradients);
  h.Add(s.passing_gradients);
  h.Add(s.framework.cuda_graphs)
      .Add(s.offload_optimizer)
      .Add(s.offload_activations)
      .Add(s.offload_modules)
      .Add(s.framework.attention)
      .Add(s.window);
  h.Add(s.attends)
      .Add(s.feeds_forward)
      .Add(s.mamba.heads)
      .Add(s.bidirectional)
      .Add(s.mamba.kind)
      .Add(s.unit)
      .Add(s.mtp_modules)
      .Add(s.encoder_seq)
      .Add(s.crosses)
      .Add(s.turns)
      .Add(s.borrows_keys)
      .Add(s.layer_embedding)
      .Add(s.altup_streams)
      .Add(s.block_index.heads)
      .Add(s.compress)
      .Add(s.hyper_streams)
      .Add(s.laurel_rank)
      .Add(s.base_weights)
      .Add(s.lora_experts)
      .Add(s.optimizer_states)
      .Add(s.moment_bytes)
      .Add(s.sizes.size());
  for (const LayerSizes& own : s.sizes) {
    h.Add(own.heads.queries).Add(own.heads.keys).Add(own.heads.dim).Add(own.ffn_hidden);
  }
  const ExpertShape& e = s.experts;
  h.Add(e.count).Add(e.local).Add(e.ep).Add(e.etp).Add(e.load_permille).Add(e.shares.value);
  return h.value();
}

}  // namespace orrery::workload
