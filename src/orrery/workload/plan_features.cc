#include "orrery/workload/plan_features.h"

#include "orrery/workload/generators/layers/tp_overlap.h"
#include "orrery/workload/plan_adapters.h"

namespace orrery::workload {
namespace {

// Every layer is attention and a feed-forward.
bool Ordinary(const Model& model) {
  return model.experts.count == 0 && model.latent.kv_rank == 0 && model.latent.q_rank == 0 &&
         model.mamba.heads == 0 && model.pattern.empty();
}

// A convolutional network is a list of units, replicated and cut into stages.
Status CheckConvNet(const Model& model, const Plan& plan) {
  if (model.net == nullptr) return {};
  const auto refuse = [&](std::string_view key, std::string_view why) {
    return InvalidInput("{}: {} is convolutional: {}", key, model.name, why);
  };
  if (plan.parallel.tp * plan.parallel.cp * plan.parallel.ep * plan.parallel.vpp > 1) {
    return refuse("parallel", "built with dp and pp; set tp, cp, ep and vpp to 1");
  }
  if (plan.parallel.schedule != Schedule::kGpipe && plan.parallel.schedule != Schedule::k1f1b) {
    return refuse("schedule", "its stages pass messages of unequal size, built for gpipe and 1f1b");
  }
  if (plan.gathers_units()) {
    return refuse("training.sharding", "its units are not gathered one by one; use none or zero1");
  }
  if (plan.batch.seq_len != 1) {
    return refuse("training.seq_len", "an image is one token; set seq_len: 1");
  }
  if (plan.memory.recompute != Recompute::kNone || plan.precision.low != LowPrecision::kNone ||
      plan.memory.offload_activations || plan.lora.rank > 0 || plan.batch.packed_len > 0) {
    return refuse("training",
                  "recompute, fp8, offloaded activations, lora_rank and packed_len are built for "
                  "transformers; leave them out");
  }
  if (plan.optimizer == Optimizer::kAdafactor || plan.optimizer == Optimizer::kMuon) {
    return refuse("training.optimizer", "use sgd or adam");
  }
  return {};
}

// Channels' states are scanned whole.
Status CheckFirstMamba(const Model& model, const Plan& plan) {
  if (model.mamba.heads == 0 || model.mamba.kind != Mixer::kMamba1) return {};
  if (plan.parallel.tp * plan.parallel.cp == 1) return {};
  return InvalidInput(
      "parallel.{}: the mixer of {} (mamba1) is not split over ranks; use tp 1 and cp 1",
      plan.parallel.tp > 1 ? "tp" : "cp", model.name);
}

// Two stacks of layers; embeddings of every layer.
Status CheckEncoderDecoder(const Model& model, const Plan& plan) {
  if (model.layer_embedding > 0 && plan.parallel.pp > 1) {
    return InvalidInput(
        "parallel.pp: every layer of {} adds an embedding of its own, which lies on the first "
        "stage; messages of it are not built: use pp 1",
        model.name);
  }
  if (model.encoder_layers == 0) return {};
  const auto refuse = [&](std::string_view key, std::string_view why, std::string_view remedy) {
    return InvalidInput("{}: {} is an encoder and a decoder, {}; {}", key, model.name, why, remedy);
  };
  if (plan.parallel.pp > 1) {
    return refuse("parallel.pp", "whose layers are not cut into stages here", "use pp 1");
  }
  if (plan.parallel.cp > 1) {
    return refuse("parallel.cp", "whose sequences are not cut here", "use cp 1");
  }
  if (plan.batch.packed_len > 0 && plan.batch.packed_len < plan.batch.seq_len) {
    return refuse("training.packed_len", "whose sequences are not packed here", "leave it out");
  }
  const std::int64_t tokens = model.encoder_tokens(plan.batch.seq_len);
  if (plan.parallel.sequence_parallel && tokens % plan.parallel.tp != 0) {
    return InvalidInput(
        "model.encoder_len: {} is not a multiple of tp ({}), which sequence parallelism needs; "
        "turn parallel.sequence_parallel off",
        tokens, plan.parallel.tp);
  }
  return {};
}

}  // namespace

Status CheckTpOverlap(const Model& model, const Plan& plan) {
  if (!plan.framework.tp_comm_overlap || plan.parallel.tp == 1) return {};
  const auto refuse = [](std::string_view why, std::string_view remedy) {
    return InvalidInput("framework_options.tp_comm_overlap: {}; {}", why, remedy);
  };
  if (!plan.parallel.sequence_parallel) {
    return refuse("its pieces are those of sequence parallelism",
                  "set parallel.sequence_parallel: true or turn it off");
  }
  if (model.net != nullptr || model.latent.kv_rank > 0 || plan.lora.rank > 0) {
    return refuse(fmt::format("{} for {}",
                              plan.framework.torch_layers == TorchLayers::kFused
                                  ? "Transformer Engine has no buffers"
                                  : "async tensor parallelism is not modelled",
                              plan.lora.rank > 0 ? "layers with adapters"
                                                 : "the projections of " + model.name),
                  "turn it off");
  }
  if (plan.framework.torch_layers == TorchLayers::kEager) {
    return refuse("async tensor parallelism is a pass of torch.compile",
                  "set framework_options.torch_layers: compiled or turn it off");
  }
  if (plan.precision.type == Precision::kFp32) {
    return refuse("its buffers are of 16 bits, or of 8", "use training.precision: bf16");
  }
  if (model.hidden % kReducePieces != 0) {
    return refuse(fmt::format("the hidden size of {} ({}) is no multiple of the {} pieces of a "
                              "reduce-scatter",
                              model.name, model.hidden, kReducePieces),
                  "turn it off");
  }
  if (plan.parallel.tp > kMostRingRanks) {
    return refuse(fmt::format("built for rings of up to {} ranks, not for tp {}", kMostRingRanks,
                              plan.parallel.tp),
                  "use a smaller tp");
  }
  if (plan.parallel.nvlink_ranks > 0 && plan.parallel.tp > plan.parallel.nvlink_ranks) {
    return refuse(fmt::format("userbuffers lie within an NVLink domain of {} GPUs, not over tp {}",
                              plan.parallel.nvlink_ranks, plan.parallel.tp),
                  "use a smaller tp or turn it off");
  }
  return {};
}

namespace {

Status CheckLoss(const Model& model, const Plan& plan) {
  if (plan.framework.loss_metrics && (plan.parallel.tp > 1 || plan.framework.chunked_loss)) {
    return InvalidInput(
        "framework_options.loss_metrics: the metrics read all logits of a token, which {}; turn it "
        "off",
        plan.parallel.tp > 1 ? "tp splits" : "chunked_loss never has");
  }
  if (!plan.framework.chunked_loss) return {};
  if (model.encoder || model.patch_values > 0 || model.net != nullptr) {
    return InvalidInput(
        "framework_options.chunked_loss: built for decoders, not for {}; leave it out", model.name);
  }
  if (plan.parallel.tp > 1) {
    return InvalidInput(
        "framework_options.chunked_loss: the whole vocabulary must lie on one rank, not on tp {}; "
        "use tp 1 or leave it out",
        plan.parallel.tp);
  }
  return {};
}

Status CheckPacked(const Plan& plan) {
  if (plan.batch.packed_len == 0 || plan.batch.packed_len == plan.batch.seq_len) return {};
  if (plan.batch.packed_len < 0 || plan.batch.seq_len % plan.batch.packed_len != 0) {
    return InvalidInput(
        "training.packed_len: {} does not divide seq_len {}; a sequence is packed from whole ones",
        plan.batch.packed_len, plan.batch.seq_len);
  }
  if (plan.framework.unfuses_some()) {
    return InvalidInput(
        "training.packed_len: unfused attention sees the whole sequence; set "
        "framework_options.attention: flash2 or leave it out");
  }
  if (plan.parallel.cp > 1) {
    return InvalidInput(
        "training.packed_len: packed sequences are not built with context parallelism (cp {}); use "
        "cp: 1",
        plan.parallel.cp);
  }
  return {};
}

// Sharded by flat pieces, or each tensor by rows.
Status CheckAdafactor(const Model& model, const Plan& plan) {
  if (plan.memory.sharding == Sharding::kNone) return {};
  if (plan.memory.sharding == Sharding::kZero1 && plan.framework.broadcast_parameters) {
    return InvalidInput(
        "training.optimizer: adafactor is not built with framework_options.broadcast_parameters, "
        "whose owners keep whole tensors; turn that off or use adam");
  }
  if (plan.shards_are_flat()) return {};
  if (!Ordinary(model) || plan.lora.rank > 0 || plan.keeps_units()) {
    return InvalidInput(
        "training.optimizer: adafactor with tensors sharded by rows (FSDP2) is built for ordinary "
        "layers on one stage, not for {}; use adam",
        plan.lora.rank > 0     ? "adapters"
        : plan.parallel.pp > 1 ? fmt::format("pp {}", plan.parallel.pp)
        : plan.keeps_units()   ? "hold_units"
                               : model.name);
  }
  return {};
}

Status CheckOptimizerStates(const Plan& plan) {
  if (plan.optimizer_states == OptimizerStates::kFull) return {};
  if (plan.optimizer_states == OptimizerStates::kBf16 &&
      (plan.optimizer != Optimizer::kAdam || !plan.framework.fused_adam)) {
    return InvalidInput(
        "training.optimizer_states: bf16 is of fused Adam (Transformer Engine's); use full, or "
        "optimizer: adam with framework_options.fused_adam: true");
  }
  if (plan.optimizer == Optimizer::kAdafactor || plan.optimizer == Optimizer::kMuon ||
      plan.optimizer == Optimizer::kLamb) {
    return InvalidInput(
        "training.optimizer_states: 8 and 4 bits are built for adam, lion and sgd; use full, or "
        "optimizer: adamw");
  }
  if (plan.optimizer == Optimizer::kSgd && !plan.momentum) {
    return InvalidInput("training.optimizer_states: sgd without momentum has none; leave it out");
  }
  if (!plan.memory.offload_optimizer) return {};
  return InvalidInput(
      "training.optimizer_states: the CPU's optimizer keeps fp32; leave it out, or "
      "training.offload");
}

Status CheckLamb(const Plan& plan) {
  if (plan.memory.sharding == Sharding::kNone && !plan.updates_in_place()) return {};
  return InvalidInput(
      "training.optimizer: lamb takes the norms of whole tensors, which {}; {}, or optimizer: adam",
      plan.updates_in_place() ? "an optimizer in the backward pass has not been built for"
                              : "shards do not have",
      plan.updates_in_place() ? "leave framework_options.optimizer_in_backward out"
                              : "set training.sharding: none");
}

Status CheckOptimizer(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckOptimizerStates(plan));
  if (plan.optimizer == Optimizer::kAdam || plan.optimizer == Optimizer::kSgd ||
      plan.optimizer == Optimizer::kLion) {
    return {};
  }
  if (plan.optimizer == Optimizer::kAdafactor) return CheckAdafactor(model, plan);
  if (plan.optimizer == Optimizer::kLamb) return CheckLamb(plan);
  const bool layer_wise = plan.memory.sharding == Sharding::kZero1 && !plan.hybrid();
  if (plan.memory.sharding != Sharding::kNone && !layer_wise) {
    return InvalidInput(
        "training.optimizer: muon needs whole matrices, which {} splits; set sharding: none, zero1 "
        "over all replicas (Megatron's layer-wise optimizer) or optimizer: adam",
        plan.hybrid() ? "a shard group" : "this sharding");
  }
  if (layer_wise && (plan.memory.offload_optimizer || plan.framework.broadcast_parameters)) {
    return InvalidInput(
        "training.optimizer: muon under zero1 is Megatron's layer-wise optimizer, which keeps its "
        "state on the GPU and gathers parameters; leave training.offload and "
        "framework_options.broadcast_parameters out");
  }
  if (plan.lora.rank > 0) {
    return InvalidInput(
        "training.optimizer: muon is built for the matrices of layers, not for adapters; use adam");
  }
  return {};
}

Status CheckDdp(const Plan& plan) {
  if (plan.framework.reducer != Reducer::kDdp) return {};
  const auto refuse = [](std::string_view key, std::string_view why, std::string_view remedy) {
    return InvalidInput("{}: DistributedDataParallel {}; {}", key, why, remedy);
  };
  if (plan.parallel.tp * plan.parallel.pp * plan.parallel.vpp * plan.parallel.cp *
          plan.parallel.ep >
      1) {
    return refuse("parallel",
                  fmt::format("replicates the model whole, but tp · pp · vpp · cp · ep is {}",
                              plan.parallel.tp * plan.parallel.pp * plan.parallel.vpp *
                                  plan.parallel.cp * plan.parallel.ep),
                  "set them to 1 or use framework: megatron");
  }
  if (plan.memory.sharding != Sharding::kNone) {
    return refuse("training.sharding", "shards nothing",
                  "set sharding: none, or use framework: fsdp");
  }
  if (plan.precision.low != LowPrecision::kNone) {
    return refuse("training.precision", "is built with bf16, fp16 and fp32", "use one of these");
  }
  if (!plan.framework.grad_reduce_fp32) {
    return refuse("framework_options.grad_reduce_fp32",
                  "reduces gradients in their type, fp32; hooks that compress are not built",
                  "leave it out");
  }
  if (plan.memory.offload_optimizer) {
    return refuse("training.offload", "keeps the optimizer on the GPU", "use none or activations");
  }
  if (plan.framework.cuda_graphs != CudaGraphs::kNone) {
    return refuse("framework_options.cuda_graphs", "is built eager", "use none");
  }
  return {};
}

// ZeRO-2 with whole parameters.
Status CheckDeepSpeed(const Model& model, const Plan& plan) {
  if (plan.framework.reducer != Reducer::kDeepSpeed) return {};
  if (plan.memory.sharding != Sharding::kZero2) {
    return InvalidInput("training.sharding: this reducer is that of DeepSpeed's zero2; use zero2");
  }
  if (plan.hybrid() || (model.experts.count > 0 && plan.parallel.ep > 1)) {
    return InvalidInput(
        "training.sharding: DeepSpeed's zero2 is built over all replicas, {}; use zero1 or "
        "framework: megatron",
        plan.hybrid() ? "not in shard groups" : "every one with all experts");
  }
  if (plan.framework.overlap_param_gather && plan.framework.overlap_grad_reduce) {
    return InvalidInput(
        "framework_options.overlap_param_gather: DeepSpeed's zero2 gathers parameters after the "
        "optimizer; turn it off");
  }
  return {};
}

Status CheckMtp(const Model& model, const Plan& plan) {
  if (model.mtp_layers == 0) return {};
  const std::string_view beside =
      SplitsUnits(plan)                            ? "sharding zero2 and zero3"
      : plan.dual()                                ? "DualPipe's two directions"
      : plan.parallel.schedule >= Schedule::kZbH1  ? "backward passes in two parts"
      : plan.lora.rank > 0                         ? "adapters"
      : plan.memory.offload_activations            ? "activations in host memory"
      : plan.framework.reducer != Reducer::kBuffer ? "gradients that are tensors of their own"
                                                   : "";
  if (beside.empty()) return {};
  return InvalidInput(
      "model.mtp_layers: {} for {}; modules that predict further tokens are not built with {}: use "
      "model.mtp_layers: 0, which leaves their layers, about {:.1f} % of the step, out",
      model.mtp_layers, model.name, beside,
      100.0 * static_cast<double>(model.mtp_layers) /
          static_cast<double>(model.layers + model.mtp_layers));
}

// Several layers that run again at once: as Megatron runs them, and where nothing stands between
// the layers of a group.
Status CheckRecompute(const Model& model, const Plan& plan) {
  if (plan.recomputed_together() == 1) return {};
  const auto refuse = [&](std::string_view why) {
    return InvalidInput(
        "training.recompute_layers: {} layers at once (recompute_method: uniform) {}; use 1, or "
        "recompute_method: block",
        plan.memory.recompute_layers, why);
  };
  if (plan.gathers_units()) {
    return refuse("are not built with sharding zero2 and zero3, which gather layer by layer");
  }
  if (plan.parallel.schedule >= Schedule::kZbH1) {
    return refuse("are built for the schedules gpipe, 1f1b and 1f1b-interleaved");
  }
  if (plan.memory.offload_activations)
    return refuse("are not built with activations in host memory");
  if (model.mtp_layers > 0) {
    return refuse("are refused by Megatron for models that predict further tokens (mtp_layers)");
  }
  if (plan.framework.recompute_keeps != RecomputeKeeps::kNothing) {
    return refuse("keep nothing else; recompute_keeps is of layers one by one");
  }
  if (plan.framework.cuda_graphs == CudaGraphs::kLayers) {
    return refuse("are not built with CUDA graphs of layers");
  }
  return {};
}

Status CheckGraphs(const Plan& plan) {
  if (plan.framework.cuda_graphs == CudaGraphs::kNone || !SplitsUnits(plan)) return {};
  return InvalidInput(
      "framework_options.cuda_graphs: gathers of zero2 and zero3 are not captured; use none");
}

// Megatron asserts stages and GEMMs that add to the gradient buffer. Its buffer of output
// gradients counts one head a micro-batch.
Status CheckDeferredHead(const Model& model, const Plan& plan) {
  if (plan.framework.deferred_head == 0) return {};
  const bool trains = plan.lora.rank == 0 && plan.framework.fused_weight_gradient;
  const bool whole = plan.parallel.schedule < Schedule::kZbH1 && model.mtp_layers == 0 &&
                     !plan.framework.chunked_loss;
  const bool buffer = plan.framework.reducer == Reducer::kBuffer && !plan.gathers_units();
  if (plan.parallel.pp > 1 && trains && whole && buffer) return {};
  return InvalidInput(
      "framework_options.deferred_head: the output layer's weight gradients wait behind the passes "
      "of the last of several stages, whole ones whose GEMMs add to the gradient buffer; not with "
      "pp 1, zero2 and zero3, adapters, split backward passes, further tokens or a chunked loss: "
      "leave it out");
}

Status CheckListGathers(const Plan& plan) {
  if (!plan.framework.list_gathers) return {};
  if (plan.memory.sharding == Sharding::kZero3 && !plan.framework.prefetch &&
      plan.memory.shard_group == 0 && !plan.memory.offload_parameters && plan.lora.rank == 0) {
    return {};
  }
  return InvalidInput(
      "framework_options.list_gathers: of zero3 with prefetch: false, without shard_group, "
      "parameters in host memory and adapters; change these or leave it out");
}

Status CheckCompressedPlan(const Model& model, const Plan& plan) {
  if (!model.compressed.any() && model.hyper_streams == 0) return {};
  const auto refuse = [&](std::string_view key, std::string_view remedy) {
    return InvalidInput("{}: is not built for the compressed keys and streams of {}; {}", key,
                        model.name, remedy);
  };
  if (plan.parallel.tp > 1) return refuse("parallel.tp", "use tp: 1");
  if (plan.parallel.cp > 1) return refuse("parallel.cp", "use cp: 1");
  if (plan.parallel.pp > 1) return refuse("parallel.pp", "use pp: 1");
  if (plan.lora.rank > 0) return refuse("training.lora_rank", "leave it out");
  if (plan.framework.attention == AttentionBackend::kUnfused) {
    return refuse("framework_options.attention", "leave unfused out");
  }
  return {};
}

Status CheckSparseAttention(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckCompressedPlan(model, plan));
  if (!model.latent.sparse()) return {};
  const auto refuse = [&](std::string_view key, std::string_view why, std::string_view remedy) {
    return InvalidInput("{}: the sparse attention of {} {}; {}", key, model.name, why, remedy);
  };
  if (plan.parallel.cp > 1) {
    return refuse("parallel.cp", "is not built over context-parallel ranks", "use cp: 1");
  }
  if (plan.framework.attention == AttentionBackend::kUnfused) {
    return refuse("framework_options.attention", "has kernels of its own",
                  "leave unfused out, or model.index_n_heads for full attention");
  }
  if (plan.lora.rank > 0) {
    return refuse("training.lora_rank", "is not built with adapters", "leave it out");
  }
  if ((plan.memory.recompute_modules & kRecomputeMlaUp) != 0 &&
      plan.memory.recompute == Recompute::kSelective) {
    return refuse("training.recompute_modules", "has no up-projections of keys and values",
                  "leave mla_up_proj out");
  }
  return {};
}

}  // namespace

Status CheckFeatures(const Model& model, const Plan& plan) {
  ORRERY_RETURN_IF_ERROR(CheckConvNet(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckPasses(plan));
  ORRERY_RETURN_IF_ERROR(CheckFirstMamba(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckEncoderDecoder(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckLora(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckTpOverlap(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckPacked(plan));
  ORRERY_RETURN_IF_ERROR(CheckLoss(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckMtp(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckRecompute(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckOffload(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckSparseAttention(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckOptimizer(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckDdp(plan));
  ORRERY_RETURN_IF_ERROR(CheckDeepSpeed(model, plan));
  ORRERY_RETURN_IF_ERROR(CheckListGathers(plan));
  ORRERY_RETURN_IF_ERROR(CheckDeferredHead(model, plan));
  return CheckGraphs(plan);
}

}  // namespace orrery::workload
