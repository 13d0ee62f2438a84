// How a model is trained: parallelism, schedule, batch, precision, framework behaviour.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/graph/kernel.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

enum class Schedule : std::uint8_t {
  kGpipe,
  k1f1b,
  k1f1bInterleaved,
  kZbH1,
  kZbV,
  kDualPipe,
  kDualPipeV,
  kGiven
};
// One pass of a stage over one of its chunks (generators/schedules/passes.h). A backward pass is
// whole, or its data gradients, then its weight gradients.
struct PipelinePass {
  enum class Kind : std::uint8_t { kForward, kBackward, kData, kWeight };
  Kind kind = Kind::kForward;
  int chunk = 0, microbatch = 0;
  // A forward pass that runs in step with the backward pass behind it, where layers of experts may
  // (ExpertPlan::moe_comm_overlap).
  bool in_step = false;
  friend bool operator==(const PipelinePass&, const PipelinePass&) = default;
};
// A user's own schedule: the passes of each stage, in order.
struct GivenSchedule {
  std::string name;
  bool v_shape = false;  // odd chunks run backwards through the stages
  // A pass takes the message of its own micro-batch; else the next one of its kind, as NCCL matches
  // them, and neighbours must list their passes in the same order.
  bool by_microbatch = false;
  std::vector<std::vector<PipelinePass>> stages;
};
// Which degree varies faster from rank to rank; tp, then cp, are fastest in both. kDpPp is
// Megatron's default, kPpDp its --use-tp-pp-dp-mapping ("dp last").
enum class RankOrder : std::uint8_t { kDpPp, kPpDp };
enum class Recompute : std::uint8_t { kNone, kSelective, kFull };
// Which layers kFull runs again. kUniform: all, so many at once, of which only the input of the
// first is kept; kBlock: the first so many of every chunk, each by itself (Megatron's
// recompute_method, core/recompute.py); kEvery: of a stage's layers every so many-th (torchtitan's
// selective_ac_option as a number).
enum class RecomputeMethod : std::uint8_t { kUniform, kBlock, kEvery };
// What of a layer that runs again as a whole is kept all the same. kNothing: all of it runs again
// (Megatron, DeepSpeed, torch's reentrant checkpoint). Every other one leaves out the last product
// and the residual behind it, whose outputs backward does not read, where no dropout follows.
// kLast: that alone (torch's non-reentrant checkpoint with its early stop, 2.1). kQkv, kQkvOut:
// queries, keys and values, and attention's projection (MaxText's save_qkv_proj, Praxis's
// SAVE_QKV_OUT_PROJ); kProducts: every product of a weight (SAVE_DOT_ONLY); kEveryOther: core
// attention and every second product (torchtitan's selective checkpoint by operator; torchao
// calls 8-bit ones as the others).
enum class RecomputeKeeps : std::uint8_t { kNothing, kLast, kQkv, kQkvOut, kProducts, kEveryOther };
// What norms, rotation and gates run. kFused: kernels that a framework brings (Megatron,
// Transformer Engine, Liger, XLA). Else the model is written in plain PyTorch (torchtitan; rotation
// in fp32 complex numbers, keys and values repeated for their queries): kEager, operator by
// operator, or kCompiled, block by block with torch.compile, which leaves the rotation and the
// repetition as they are.
enum class TorchLayers : std::uint8_t { kFused, kCompiled, kEager };
// What selective recompute runs again, as bits (Megatron's recompute_modules).
enum RecomputeModule : std::uint8_t {
  kRecomputeCore = 1,          // core attention
  kRecomputeNorms = 2,         // norms before attention and feed-forward
  kRecomputeMoeAct = 4,        // the experts' activation function
  kRecomputeMoe = 8,           // experts whole, their exchanges included
  kRecomputeMlp = 16,          // feed-forwards of dense layers whole
  kRecomputeMlaUp = 32,        // up-projections of latent attention
  kRecomputeLatentNorms = 64,  // norms of its compressed tensors
};
// Whose inputs go to host memory, as bits: Megatron's --offload-modules.
enum OffloadModule : std::uint8_t {
  kOffloadAttnNorm = 1,    // the norm before attention: a layer's input
  kOffloadQkv = 2,         // queries', keys' and values' product
  kOffloadCore = 4,        // core attention
  kOffloadProjection = 8,  // attention's projection
  kOffloadMlpNorm = 16,    // the norm before the feed-forward
  kOffloadExpertFc1 = 32,  // the experts' first product
  kOffloadMoeAct = 64,     // their activation function
  kOffloadGroupMlp = 128,  // experts whole: all that they keep
};
// Parts of every layer that stay in bf16 beside a low precision, as bits.
enum Bf16Module : std::uint8_t {
  kBf16Attention = 1,     // queries', keys' and values' products and the projection
  kBf16ExpertLatent = 2,  // projections to the experts' width and back
  kBf16Mtp = 4,           // modules that predict further tokens
  kBf16Experts = 8,       // routed experts
  kBf16Mlp = 16,          // feed-forwards of dense layers and shared experts
};
// Over data-parallel ranks: nothing; the optimizer's state; gradients too, parameters being
// gathered in forward and kept until backward is done (FSDP's SHARD_GRAD_OP); parameters freed and
// gathered again for backward (FSDP's FULL_SHARD, ZeRO-3).
enum class Sharding : std::uint8_t { kNone, kZero1, kZero2, kZero3 };
// What bounds how far ahead gathers and their memory may be (generators/sharding/sharded_units.h):
// the GPU's order, memory being handed on there (FSDP2, Megatron-FSDP, XLA); the host, which waits
// for the GPU (FSDP1's limit_all_gathers, DeepSpeed); nothing (FSDP1 without it).
enum class GatherLimit : std::uint8_t { kOrder, kHost, kNone };
// MemorySaving::reshard: what becomes of a gathered layer after its forward pass. Above 0: every
// rank keeps a part of it for backward, so many of which make the whole.
inline constexpr int kReshardAll = 0, kKeepGathered = -1;
// How gradients come to their reduction: GEMMs add them to a buffer that is reduced in place
// (Megatron); tensors copied into buckets, as DistributedDataParallel or DeepSpeed's ZeRO-2 does
// (generators/sharding/tensor_gradients.h). FSDP's own way: generators/sharding/sharded_units.h.
enum class Reducer : std::uint8_t { kBuffer, kDdp, kDeepSpeed };
// What turns gradients into updates (generators/sharding/optimizer.h). kAdam stands for AdamW too:
// the decay is in the same kernels.
enum class Optimizer : std::uint8_t { kAdam, kAdafactor, kMuon, kSgd, kLion, kLamb };
// In what its moments are kept (generators/sharding/optimizer.h).
enum class OptimizerStates : std::uint8_t { kFull, kFp32, k8bit, k4bit, kFp8, kBf16 };
// What is captured as CUDA graphs: nothing; each layer's forward and backward; the iteration.
enum class CudaGraphs : std::uint8_t { kNone, kLayers, kIteration };
// With kLayers, the parts of a layer that are captured, as bits (Megatron's cuda_graph_scope).
enum GraphPart : std::uint8_t {
  kGraphAttention = 1,   // the norm before it included, as below
  kGraphMlp = 2,         // of dense layers
  kGraphRouter = 4,      // and the latent projections and norm around experts
  kGraphPreprocess = 8,  // counts of tokens
  kGraphMamba = 16,
  kGraphAll = 31,
};
// Linear layers that have adapters beside them (generators/layers/lora.h); a set.
enum LoraTarget : std::uint8_t { kLoraQkv = 1, kLoraProjection = 2, kLoraFc1 = 4, kLoraFc2 = 8 };
inline constexpr std::uint8_t kLoraAll = 15;
// Adapters of routed experts (generators/experts/expert_adapters.h).
enum class ExpertAdapterKind : std::uint8_t { kNone, kParameters, kModules, kGrouped, kShared };
// How the frozen weights of linear layers are kept (generators/layers/quantized.h).
enum class BaseWeights : std::uint8_t { kModelType, kInt8, kNf4, kFp4 };
enum class Precision : std::uint8_t { kBf16, kFp16, kFp32 };
// How tokens come to the ranks of their experts (generators/experts/experts.h).
enum class Dispatcher : std::uint8_t { kAllGather, kAllToAll, kDeepEp, kHybridEp };
// Even, a token's experts chosen independently; even, dealt out in turn, so that a token's experts
// are neighbours; all ranks as the busiest of a Zipf distribution, or of a router that nothing has
// evened out yet; the rest by layer and rank (routing.h).
enum class Routing : std::uint8_t {
  kBalanced,
  kRoundRobin,
  kZipf,
  kNatural,
  kDirichlet,
  kDrawnZipf,
  kGiven
};
// A user's own: the experts' shares or tokens, layer by layer, or once for all layers.
struct GivenRouting {
  std::string name;
  std::vector<std::vector<double>> layers;
};
// In what the GEMMs of linear layers run, and how their operands get there
// (generators/layers/precision.h). Everything else is in NumberFormats::type.
enum class LowPrecision : std::uint8_t { kNone, kDelayed, kCurrent, kBlockwise, kMxfp8, kNvfp4 };
// How attention sees the sequence that lies on cp ranks (generators/layers/context_parallel.h).
enum class CpExchange : std::uint8_t { kRing, kAllGather, kAllToAll };
enum class AttentionBackend : std::uint8_t { kUnfused, kFlash2, kFlash3, kCudnn, kFlash1, kFlash4 };

// Host time of one call, in ns; zero where a framework's calls are not counted.
struct CallTimes {
  std::int64_t module = 0;
  std::int64_t operator_forward = 0, operator_backward = 0;  // that no kernel stands for
  std::int64_t view_forward = 0, view_backward = 0;          // backward with its node of autograd
  std::int64_t function = 0;  // an autograd function or an operator written in Python
  bool any() const { return module > 0; }
  friend bool operator==(const CallTimes&, const CallTimes&) = default;
};

// Host time that eager Python spends beside issuing kernels, in ns; zero where the framework has
// none of it (compiled, or replayed as CUDA graphs). Which framework has which:
// docs/workload.md, "Host work".
struct HostWork {
  std::int64_t module_forward = 0;  // a module's call: Python, hooks, views, autograd's nodes
  // Its nodes in the autograd engine, Python functions among them.
  std::int64_t module_backward = 0;
  std::int64_t low_precision = 0;  // an fp8 linear layer's bookkeeping of scales, each pass
  std::int64_t rng_fork = 0;       // a tensor-parallel random state entered and left again
  std::int64_t checkpoint = 0;     // a recomputed layer: random states and a nested backward
  std::int64_t communication = 0;  // torch.distributed's Python around one collective
  std::int64_t unit = 0;           // an FSDP unit's hooks, each pass
  std::int64_t graph = 0;          // a layer's CUDA graph: the call around its launch
  // Models with experts (generators/experts/expert_host.h): a small operator of router and
  // dispatcher; an expert's share of a grouped GEMM's or a grouped cast's call.
  std::int64_t operator_forward = 0, operator_backward = 0, grouped_expert = 0;
  std::int64_t core = 0;  // core attention, forward: choosing a backend, its arguments and checks
  // A view or a copy of it, by PyTorch's dispatcher: not scaled by host_python.
  std::int64_t view = 0;
  std::int64_t ring_step = 0;  // a step of ring attention, each pass: streams, views, corrections
  // A micro-batch on a stage at the model's ends: fetched, sent, masks, loss.
  std::int64_t batch = 0;
  std::int64_t step = 0;  // the training loop around an iteration: timers, logging
  CallTimes calls;        // layers whose calls are counted one by one (data/host_calls.csv)
  friend bool operator==(const HostWork&, const HostWork&) = default;
};

// "core_attn+moe": bits of RecomputeModule. An unknown name lists the valid ones.
Result<std::uint8_t> ParseRecomputeModules(std::string_view text);
std::string RecomputeModulesText(std::uint8_t modules);
// "core_attn+moe_act": bits of OffloadModule.
Result<std::uint8_t> ParseOffloadModules(std::string_view text);
std::string OffloadModulesText(std::uint8_t modules);
// "attention+mtp", or "none": bits of Bf16Module.
Result<std::uint8_t> ParseBf16Modules(std::string_view text);
std::string Bf16ModulesText(std::uint8_t modules);
// "all", "attention", "mlp", or "qkv+fc1": bits of LoraTarget.
Result<std::uint8_t> ParseLoraTargets(std::string_view text);
std::string LoraTargetsText(std::uint8_t targets);
// What graphs of layers capture, as bits: "attn+moe_router".
Result<std::uint8_t> ParseGraphScope(std::string_view text);
std::string GraphScopeText(std::uint8_t scope);

// How ranks share the work.
struct Parallelism {
  int tp = 1, pp = 1, vpp = 1, dp = 1;
  int cp = 1;  // ranks that share each sequence
  // Ranks of experts are those of a stage, tensor-parallel ones (etp) fastest, then ep, then
  // replicas of the experts. etp 0: as tp, Megatron's default.
  int ep = 1, etp = 0;
  CpExchange cp_exchange = CpExchange::kRing;
  RankOrder rank_order = RankOrder::kDpPp;
  bool sequence_parallel = false;     // without effect when tp is 1, as in Megatron
  std::vector<int> layers_per_stage;  // pp entries, or pp·vpp in chunk order; empty: auto
  int microbatch_group = 0;           // interleaved schedule; 0: pp
  Schedule schedule = Schedule::k1f1b;
  std::shared_ptr<const GivenSchedule> given;  // of Schedule::kGiven
  int ranks_per_host = 8;                      // that share its CPU
  // GPUs of an NVLink domain; 0: all. DeepEP and HybridEP send a token once to each over NICs.
  int nvlink_ranks = 0;
};

// What a step trains on, and what reads it.
struct Batch {
  std::int64_t global_batch = 1, micro_batch = 1, seq_len = 2048;
  // Above 0: a sequence is packed from ones of this length, which do not attend to each other.
  std::int64_t packed_len = 0;
  // A rank's data loader: what one of its workers needs for a sample, beside the step.
  SimTime sample_read = 0;
  bool object_store = false;  // sample_read is a fitted constant
  int data_workers = 2;
};

struct NumberFormats {
  Precision type = Precision::kBf16;  // of parameters and activations
  LowPrecision low = LowPrecision::kNone;
  // Linear layers that stay in bf16 beside `low`: those of the first and last so many layers
  // (Megatron's num_layers_at_start_in_bf16 and num_layers_at_end_in_bf16), and bits of Bf16Module.
  std::int64_t bf16_first_layers = 0, bf16_last_layers = 0;
  std::uint8_t bf16_modules = 0;
};

// What is not kept on the GPU: sharded, computed again, or in host memory.
struct MemorySaving {
  Sharding sharding = Sharding::kNone;
  // Replicas that share one set of shards (ZeRO-1 to -3); 0: all. Fewer than all: the sets are
  // copies of one another (HSDP, Megatron's optimizer instances, InternEvo's zero1 groups).
  int shard_group = 0;
  // ZeRO-3: fully_shard's reshard_after_forward; true is kReshardAll, false kKeepGathered.
  int reshard = kReshardAll;
  Recompute recompute = Recompute::kNone;
  std::uint8_t recompute_modules = kRecomputeCore;  // with kSelective; bits of RecomputeModule
  RecomputeMethod recompute_method = RecomputeMethod::kUniform;  // with kFull, as the next
  std::int64_t recompute_layers = 1;
  // Kept in host memory: optimizer's state, updated by the CPU; what a layer keeps for backward;
  // ZeRO-3's shards too, copied before they are gathered.
  bool offload_optimizer = false, offload_activations = false, offload_parameters = false;
  std::int64_t offload_threads = 0;  // of a rank, that run the optimizer; 0: the host's cores
  // With offload_activations: of the model's first so many layers (0: of all), and the inputs of
  // these modules (bits of OffloadModule; 0: all that a layer keeps).
  std::int64_t offload_layers = 0;
  std::uint8_t offload_modules = 0;
};

// How experts get their tokens.
struct ExpertPlan {
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  bool shared_expert_overlap = false;  // beside the exchanges of tokens; not kAllGather
  Routing routing = Routing::kBalanced;
  double moe_imbalance = 1;  // tokens of the busiest rank over the mean, on top of `routing`
  double routing_alpha = 1, routing_exponent = 1;  // of kDirichlet; of kDrawnZipf
  std::uint64_t routing_seed = 1;
  std::shared_ptr<const GivenRouting> given_routing;  // of Routing::kGiven
  // Above 0: an expert takes so many times the mean at most, the rest is dropped.
  double expert_capacity = 0;
  // Every expert gets as many rows as its capacity (Megatron's moe_pad_expert_input_to_capacity):
  // the host reads no counts, and graphs capture experts as well.
  bool pad_to_capacity = false;
  // Exchanges of one micro-batch's forward beside the compute of another's backward, and the
  // reverse (generators/experts/expert_parts.h); 1f1b without stages, or interleaved.
  bool moe_comm_overlap = false;
  // With it: weight gradients behind the exchanges that need none of them (Megatron's
  // delay_wgrad_compute).
  bool moe_delayed_weights = false;
};

// Fine-tuning. rank above 0: the model's own parameters are frozen, adapters of this rank beside
// the targets are trained.
struct Adapters {
  int rank = 0;
  std::uint8_t targets = kLoraAll;
  ExpertAdapterKind experts = ExpertAdapterKind::kNone;
  BaseWeights base = BaseWeights::kModelType;
  bool double_quantization = false;  // scales of 4 bits in 8 bits themselves
};

// The widest heads of flash attention 2 and 3, and of cuDNN's kernels on Hopper (flash-attention
// issue 2427, TransformerEngine issue 3006).
inline constexpr std::int64_t kWidestFusedHead = 256;

// What the framework does, resolved from its version's defaults and the job's framework_options
// before the generator runs, which reads it where it stands (Shape::framework). What each switch
// does is said in framework_switches.inc.
struct FrameworkBehaviour {
#define ORRERY_SWITCH(name, fallback, matters, doc) bool name = fallback;
#include "orrery/workload/framework_switches.inc"
#undef ORRERY_SWITCH
  AttentionBackend attention = AttentionBackend::kFlash2;
  // Layers whose heads are wider than any fused kernel's run unfused (Transformer Engine).
  bool unfuses_wide_heads = false;
  TorchLayers torch_layers = TorchLayers::kFused;
  // Of layers that are recomputed whole: with Recompute::kFull; and where it is kEveryOther,
  // kSelective means a whole layer with that.
  RecomputeKeeps recompute_keeps = RecomputeKeeps::kNothing;
  Reducer reducer = Reducer::kBuffer;
  std::int64_t bucket_elements = 40'000'000;  // and at least 1,000,000·dp, Megatron's rule
  // DistributedDataParallel: buckets of so many bytes.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  // The output layer's weight gradients of so many micro-batches run behind the last stage's
  // passes, where it would wait for the others (Megatron's defer_embedding_wgrad_compute and
  // wgrad_deferral_limit). 0: all run in their backward pass.
  std::int64_t deferred_head = 0;
  GatherLimit gather_limit = GatherLimit::kOrder;  // ZeRO-3
  CudaGraphs cuda_graphs = CudaGraphs::kNone;
  std::uint8_t graph_scope = kGraphAll;
  HostWork host;
  bool unfuses_some() const {
    return attention == AttentionBackend::kUnfused || unfuses_wide_heads;
  }
  friend bool operator==(const FrameworkBehaviour&, const FrameworkBehaviour&) = default;
};

struct Plan {
  Parallelism parallel;
  Batch batch;
  NumberFormats precision;
  MemorySaving memory;
  ExpertPlan experts;
  Adapters lora;
  Optimizer optimizer = Optimizer::kAdam;
  OptimizerStates optimizer_states = OptimizerStates::kFull;
  bool momentum = true;  // of kSgd
  FrameworkBehaviour framework;

  // Whether chunks lie in V shape, the model's end on the first stage.
  bool v_shape() const {
    return parallel.schedule == Schedule::kZbV || parallel.schedule == Schedule::kDualPipeV ||
           (parallel.schedule == Schedule::kGiven && parallel.given && parallel.given->v_shape);
  }
  // Whether the schedule pairs forward with backward passes, to hide exchanges of tokens.
  bool pairs_passes() const {
    return parallel.schedule == Schedule::kDualPipe || parallel.schedule == Schedule::kDualPipeV;
  }
  // Whether the whole model lies on the stages twice, once in either direction.
  bool dual() const { return parallel.schedule == Schedule::kDualPipe; }
  // Whether parameters are gathered unit by unit (FSDP). DeepSpeed's ZeRO-2 keeps them whole.
  bool gathers_units() const {
    return memory.sharding >= Sharding::kZero2 && framework.reducer != Reducer::kDeepSpeed;
  }
  // Whether rows of experts are padded by copies of their own.
  bool pads_experts() const {
    return framework.moe_separate_padding && precision.low != LowPrecision::kNone &&
           (precision.bf16_modules & kBf16Experts) == 0 &&
           experts.dispatcher != Dispatcher::kHybridEp;
  }
  // Whether a rank's shard is a piece of one flat tensor, not a part of each tensor.
  bool shards_are_flat() const {
    return memory.sharding != Sharding::kNone &&
           (memory.sharding == Sharding::kZero1 || framework.reducer == Reducer::kDeepSpeed ||
            framework.flat_parameters);
  }
  // Whether parameters, gradients and optimizer's state are all of the model's type on every rank.
  bool updates_in_place() const {
    return framework.model_type_states && memory.sharding == Sharding::kNone &&
           precision.type != Precision::kFp32;
  }
  // Whether the host's calls are counted one by one: transformers' modules, run as they stand.
  bool counts_calls() const {
    return framework.transformers_modules && framework.torch_layers == TorchLayers::kEager;
  }
  // Whether the units of gathers_units stay gathered for the whole step: over stages, or as told.
  bool keeps_units() const { return gathers_units() && (parallel.pp > 1 || framework.hold_units); }
  // Whether units reduce their gradients with the last of several micro-batches alone.
  bool defers_reductions() const {
    return gathers_units() && !keeps_units() && framework.defer_grad_reduce && microbatches() > 1;
  }
  // Whether full recompute is not of all layers, one by one.
  bool recomputes_in_parts() const {
    return memory.recompute == Recompute::kFull &&
           (memory.recompute_method == RecomputeMethod::kBlock || memory.recompute_layers > 1);
  }
  // Layers of a chunk that run again at once; 1: each by itself.
  int recomputed_together() const {
    const bool groups = memory.recompute == Recompute::kFull &&
                        memory.recompute_method == RecomputeMethod::kUniform;
    return groups ? static_cast<int>(memory.recompute_layers) : 1;
  }
  int ranks() const { return parallel.tp * parallel.cp * parallel.pp * parallel.dp; }
  // Ranks that hold the same parameters.
  int replicas() const { return parallel.dp * parallel.cp; }
  int shard_ranks() const { return memory.shard_group > 0 ? memory.shard_group : replicas(); }
  // Whether shard groups are smaller than the replicas.
  bool hybrid() const { return memory.sharding != Sharding::kNone && shard_ranks() < replicas(); }
  int stage_ranks() const { return ranks() / parallel.pp; }
  int expert_tp() const { return parallel.etp > 0 ? parallel.etp : parallel.tp; }
  // Replicas of an expert.
  int expert_dp() const { return stage_ranks() / (expert_tp() * parallel.ep); }
  std::int64_t microbatches() const {
    return batch.global_batch / (batch.micro_batch * parallel.dp);
  }
  // What a rank's data loader needs for the samples of a step.
  SimTime input_time() const {
    return (batch.global_batch / parallel.dp * batch.sample_read + batch.data_workers - 1) /
           batch.data_workers;
  }
};

// Where the part of the model before, or behind, a stage's chunk lies
// (generators/schedules/passes.h).
struct Neighbour {
  bool crosses = false;  // on another stage; else it is the model's end, or a V's turn
  bool next = false;     // the stage that follows, the first behind the last
  int stage = 0, chunk = 0;
};
Neighbour NeighbourOf(const Plan& plan, int stage, int chunk, bool before);

// The list of layers on every chunk, pp·vpp entries in chunk order (chunk c of stage s at c·pp +
// s), after `auto` is resolved; refused with the rule broken and the nearest valid lists.
Result<std::vector<int>> LayersPerChunk(const Model& model, const Plan& plan);

// Every rule of Megatron that the plan must obey; the message names field, value, rule and remedy.
Status Validate(const Model& model, const Plan& plan);

struct ScheduleInfo {
  std::string_view name;  // "1f1b-interleaved"
  std::string_view description;
};
std::span<const ScheduleInfo> Schedules();
Result<Schedule> FindSchedule(std::string_view name);

}  // namespace orrery::workload
