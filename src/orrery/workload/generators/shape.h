// What one rank computes, as numbers: all that a block of the Megatron generator depends on.
//
// A Shape is derived from a model and a plan alone; two plans with equal shapes share every layer
// block. Units: elements and tokens unless a name says bytes. Sizes are those of one
// tensor-parallel rank. Source: Megatron Core's TransformerConfig and its parallel linear layers.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/graph/graph.h"
#include "orrery/workload/conv_net.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// The experts of one layer as one rank sees them. count 0: an ordinary feed-forward.
struct ExpertShape {
  std::int64_t count = 0, top_k = 0;
  std::int64_t local = 0;   // on this rank
  std::int64_t ffn = 0;     // width of one, on this rank
  std::int64_t shared = 0;  // of the shared ones, on this rank
  std::int64_t ep = 1, etp = 1;
  std::int64_t width = 0;  // of a token as experts see it
  bool latent = false;     // projected to that width before the dispatch
  // Copies of tokens over T·k, in thousandths: that the experts here get, that an exchange sends
  // (where all ranks get the same: as many), that the router of a rank sends.
  std::int64_t load_permille = 1000, wire_permille = 1000, sent_permille = 1000;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  SharesId shares;       // of the layer's exchanges, where a routing is drawn
  bool in_turn = false;  // a token's experts are neighbours (Routing::kRoundRobin)
  bool shared_overlap = false, router_bias = false;
  bool delays_weights = false;  // layers that run in step (expert_parts.h)
  bool fixed_rows = false;      // known beforehand: padded to capacity
  bool pads = false;            // by copies of their own
  bool host_reads = true;       // how many tokens every expert has
  std::int64_t domains = 1;     // of NVLink that the ranks over ep lie in
  friend bool operator==(const ExpertShape&, const ExpertShape&) = default;
};

// Products and attention that a recomputed layer need not run again (RecomputeKeeps).
struct KeptProducts {
  bool stops = false;  // before the last product
  bool qkv = false, core = false, projection = false, fc1 = false;
  bool halves = false;  // of qkv the keys are run again, of a gated fc1 one half
  friend bool operator==(const KeptProducts&, const KeptProducts&) = default;
};

// Of a layer that runs again together with its neighbours (Plan::recomputed_together), as bits.
enum GroupPlace : std::uint8_t {
  kGroupInside = 1,   // its input is its neighbour's output
  kGroupHandsOn = 2,  // its output is its neighbour's input, and nobody keeps it
  kGroupAgain = 4,    // the second run, or the backward pass behind it
};

struct Shape {
  std::int64_t tp = 1;
  std::int64_t seq = 0, batch = 0;  // of one micro-batch
  std::int64_t hidden = 0, head_dim = 0, positions = 0;
  std::int64_t heads = 0, kv_heads = 0;  // of this rank
  Heads window_heads;                    // of this rank, until OfKind has chosen
  std::vector<LayerSizes> sizes;         // the same
  std::int64_t ffn = 0, vocab = 0;       // of this rank; vocab is padded
  std::int64_t element_bytes = 2;        // of activations and parameters
  std::int64_t gradient_bytes = 4;       // of the gradient buffer
  std::int64_t state_bytes = 4;          // of FSDP's shards and the optimizer's state
  std::int64_t moment_bytes = 4;         // of Adam's moments in its fused kernel
  graph::DType dtype = graph::DType::kBf16;
  graph::DType gradient_dtype = graph::DType::kFp32;
  bool sequence_parallel = false;
  Norm norm = Norm::kLayerNorm;
  Activation activation = Activation::kGelu;
  Position position = Position::kLearned;
  bool tied = false, attention_bias = false, mlp_bias = false, dropout = false;
  Recompute recompute = Recompute::kNone;
  std::uint8_t recompute_modules = 0;  // 0 unless selective
  KeptProducts kept;                   // of a layer that is recomputed whole
  std::uint8_t group = 0;              // bits of GroupPlace
  // As the plan's, off where the shape gives a switch nothing to do (MakeShape).
  FrameworkBehaviour framework;
  bool pipelined = false;  // the model's ends lie on different stages
  std::int64_t cp = 1;     // `seq` is this rank's part
  CpExchange cp_exchange = CpExchange::kRing;
  LowPrecision low_precision = LowPrecision::kNone;
  std::uint8_t bf16_modules = 0;
  // ZeRO-2 and -3: gradients are tensors of their own in `dtype`, reduced in `gradient_dtype`.
  bool sharded = false, reshards = false;
  std::int64_t reshard_ranks = 0;  // backward gathers over so many of them; 0: over all
  // FSDP1: the host waits for the unit before, or frees what it gathered far ahead of the GPU.
  bool limits_gathers = false, gathers_linger = false;
  // Over stages (FSDP2 under torch.distributed.pipelining): units are gathered once a step and
  // reduced once; meanwhile gradients lie in the buffer.
  bool keeps_units = false;
  std::int64_t lora_rank = 0;  // above 0: the model itself is frozen
  std::uint8_t lora_targets = 0;
  ExpertAdapterKind lora_experts = ExpertAdapterKind::kNone;  // none: the model has no experts, too
  BaseWeights base_weights = BaseWeights::kModelType;
  bool double_quantization = false;
  std::int64_t packed_len = 0;
  Optimizer optimizer = Optimizer::kAdam;
  OptimizerStates optimizer_states = OptimizerStates::kFull;
  bool momentum = true;
  // Without sharding: parameters, gradients and the optimizer's state all in the model's type.
  bool updates_in_place = false;
  bool whole_moments = false;            // Adafactor's, of flat shards
  std::int64_t contiguous_elements = 0;  // of DeepSpeed's contiguous buffers, all of them together
  bool adds_gradients = false;           // under DDP, of a block: a micro-batch but the first
  // Gradients are tensors that the first micro-batch's backward pass makes and zero_grad gives back
  // behind the optimizer (set_to_none, PyTorch's default since 2.0).
  bool passing_gradients = false;
  bool offload_optimizer = false;
  bool offload_activations = false;  // of every layer, in the layers' own blocks
  std::uint8_t offload_modules = 0;  // bits of OffloadModule; 0: all that a layer keeps
  bool offload_parameters = false;
  std::int64_t cpu_adam_ps = 0;  // CPU time per parameter, where the CPU runs the optimizer
  // Ranks of a shard group; 0: all replicas.
  std::int64_t shard_ranks = 0;
  ExpertShape experts;
  Latent latent;
  Mamba mamba;  // of this rank: its heads and groups
  // What the layer has; with mamba.heads it is no attention, or both are side by side.
  bool attends = true, feeds_forward = true;
  bool mamba_beside = false, bidirectional = false, attention_pool = false;
  std::int64_t patch_values = 0;
  bool qkv_bias = true, projection_bias = true, qk_norm = false, sinks = false;
  bool qk_norm_whole = false, post_norms = false, chunked_window = false, attention_gate = false;
  bool keys_are_values = false;
  bool scaled_rotary = false, clamped_activation = false;
  bool encoder = false, parallel_block = false, shared_norm = false, embedding_norm = false;
  std::int64_t window = 0;
  // Two stacks: the encoder's tokens and what a frame of its input holds; a decoder's layer
  // attends to it, by this kernel, and begins the decoder.
  std::int64_t encoder_seq = 0, frame_values = 0, encoder_positions = 0;
  AttentionBackend cross_attention = AttentionBackend::kUnfused;
  bool crosses = false, turns = false;
  bool borrows_keys = false;                               // keys and values of an earlier layer
  std::int64_t layer_embedding = 0, layer_embeddings = 0;  // width of a layer's part, and parts
  std::int64_t altup_streams = 0, laurel_rank = 0;
  BlockIndex block_index;
  CompressedKeys compressed_keys;
  std::int64_t compress = 0, hyper_streams = 0;
  std::int64_t mtp_modules = 0;  // whose projection and norms the last stage holds

  // A convolutional network, the unit that a block is of, and the elements of one image that come
  // from and go to the neighbour stages.
  const ConvNet* net = nullptr;
  std::int64_t unit = 0;
  std::int64_t previous_elements = 0, next_elements = 0;

  bool frozen() const { return lora_rank > 0; }
  // Gradients are tensors that the kernels write, rather than a buffer that GEMMs add to.
  bool separate_gradients() const { return sharded || framework.reducer != Reducer::kBuffer; }
  // Weight-gradient GEMMs add to the buffer.
  bool gemm_adds() const { return framework.fused_weight_gradient && !separate_gradients(); }
  // Parameters in fp32, cast where they are used (torch.autocast).
  bool autocasts() const {
    return framework.reducer == Reducer::kDdp && dtype != graph::DType::kFp32 && !updates_in_place;
  }
  // Of an element of what products read and write: element_bytes but with prepared_base.
  std::int64_t product_bytes() const { return graph::SizeOf(dtype); }
  bool in_group(GroupPlace place) const { return (group & place) != 0; }
  std::int64_t tokens() const { return seq * batch; }
  // Of one sequence: those packed into one do not see each other.
  std::int64_t sequence() const { return packed_len > 0 ? packed_len : seq; }
  // Rows of the tensors between the tensor-parallel regions.
  std::int64_t local_tokens() const { return sequence_parallel ? tokens() / tp : tokens(); }
  std::int64_t query() const { return heads * head_dim; }
  std::int64_t key_value() const { return kv_heads * head_dim; }
  // Latent attention's kernels take values padded to keys.
  std::int64_t values() const { return latent.kv_rank > 0 ? key_value() : kv_heads * v_head_dim(); }
  std::int64_t parts() const { return query() + key_value() + values(); }
  // What the projection makes, with the gate of what attention puts out.
  std::int64_t qkv() const {
    return query() + (borrows_keys ? 0 : key_value() + (keys_are_values ? 0 : values())) + gate();
  }
  std::int64_t gate() const { return attention_gate ? query() : 0; }
  bool plain_torch() const { return framework.torch_layers != TorchLayers::kFused; }
  bool repeats_heads() const {
    return plain_torch() && framework.repeats_kv && flash() && kv_heads < heads;
  }
  // FSDP's units in a layer: torchtitan wraps experts that ranks share by themselves.
  std::int64_t units() const {
    return plain_torch() && !framework.flat_parameters && experts.count > 0 && experts.ep > 1 ? 2
                                                                                              : 1;
  }
  // Plain PyTorch keeps the gathered input of a linear layer for its gradient.
  bool keeps_gathered() const { return plain_torch() && sequence_parallel; }
  // Width of what attention puts out.
  std::int64_t v_head_dim() const { return latent.v_dim > 0 ? latent.v_dim : head_dim; }
  std::int64_t context() const { return heads * v_head_dim(); }
  std::int64_t other_v_head_dim() const { return v_head_dim() == head_dim ? 0 : v_head_dim(); }
  bool causal() const { return !encoder && !bidirectional; }
  // What compressed queries keep beside the other parts, before and behind their norm.
  std::int64_t compressed() const { return latent.queries_alone() ? 2 * latent.q_rank : 0; }
  // A layer with a mixer, Mamba's or attention.
  bool mixes() const { return attends || mamba.heads > 0; }
  std::int64_t fc1() const { return activation == Activation::kSwiglu ? 2 * ffn : ffn; }
  // The part runs again in backward although the layer as a whole does not.
  bool recomputes(RecomputeModule part) const { return (recompute_modules & part) != 0; }
  bool flash() const { return framework.attention != AttentionBackend::kUnfused; }
  // REQUIRES: flash().
  graph::AttentionKernel fused_attention() const {
    return framework.attention == AttentionBackend::kCudnn    ? graph::AttentionKernel::kCudnn
           : framework.attention == AttentionBackend::kFlash3 ? graph::AttentionKernel::kFlash3
           : framework.attention == AttentionBackend::kFlash1 ? graph::AttentionKernel::kFlash1
           : framework.attention == AttentionBackend::kFlash4 ? graph::AttentionKernel::kFlash4
                                                              : graph::AttentionKernel::kFlash2;
  }
  // Bytes of the residual stream on this rank, and gathered over tp.
  std::int64_t local_bytes() const { return local_tokens() * hidden * element_bytes; }
  std::int64_t full_bytes() const { return tokens() * hidden * element_bytes; }
  // Of a message to or from a neighbour stage.
  std::int64_t p2p_bytes(bool next) const {
    if (net != nullptr) return batch * (next ? next_elements : previous_elements) * element_bytes;
    return scatters_p2p() ? full_bytes() / tp : local_bytes();
  }
  bool scatters_p2p() const { return framework.scatter_gather_p2p && !sequence_parallel && tp > 1; }

  friend bool operator==(const Shape&, const Shape&) = default;
};

// REQUIRES: Validate(model, plan) is ok.
Shape MakeShape(const Model& model, const Plan& plan);
// Of what layers of a model and plans of a search differ in: enough to find a shape's bucket, where
// == decides.
std::uint64_t Hash(const Shape& shape);
// Bits of LayerKind: the model's, and whether the plan keeps the layer in bf16.
Kind KindOf(const Model& model, const Plan& plan, std::int64_t layer);
// kKeepingLayer where the plan leaves a layer out of recomputation, else 0. `of_chunk`, `of_stage`:
// its number among the layers of its chunk and of its stage, from 0.
Kind KeepingOf(const Plan& plan, std::int64_t of_chunk, std::int64_t of_stage);
std::vector<Kind> MtpKindsOf(const Model& model, const Plan& plan);
// The shape of a layer of one kind (bits of LayerKind and sizes).
Shape OfKind(const Shape& shape, std::int64_t kind);
// That of a layer at its place in a group that runs again at once (bits of GroupPlace).
Shape InGroup(const Shape& shape, std::uint8_t places);
// Megatron pads the vocabulary to a multiple of 128·tp.
std::int64_t PaddedVocab(std::int64_t vocab, std::int64_t tp);

// Elements of each parameter tensor, in the order of Megatron's named_parameters().
std::vector<std::int64_t> LayerParameters(const Shape& shape);
// Those of a layer that are trained: all, or the adapters.
std::vector<std::int64_t> TrainedParameters(const Shape& shape);
std::vector<std::int64_t> ExpertParameters(const Shape& shape);  // of the experts on this rank
std::vector<std::int64_t> EmbeddingParameters(const Shape& shape);
std::vector<std::int64_t> HeadParameters(const Shape& shape, bool owns_output);
// Those whose gradients differ between the ranks of a tensor-parallel group under SP: norms, and
// the biases added after a reduce-scatter.
std::int64_t SequenceParallelParameters(const Shape& shape);

}  // namespace orrery::workload
