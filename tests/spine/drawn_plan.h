// Plans of all kinds for tests of what must hold for any: drawn from a seed, which makes one again.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "orrery/base/rng.h"
#include "orrery/workload/routing.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {

struct Drawn {
  workload::Model model;
  workload::Plan plan;
  int nodes = 1;
};

inline Drawn Draw(std::uint64_t seed) {
  CounterRng rng(seed);
  const auto pick = [&](std::initializer_list<int> from) {
    return *(from.begin() + rng.Below(from.size()));
  };
  Drawn d;
  d.model = Gpt3();
  d.model.hidden = 512L * pick({1, 2, 4});
  d.model.heads = d.model.kv_heads = 16;
  d.model.head_dim = d.model.hidden / 16;
  d.model.ffn_hidden = 4 * d.model.hidden;
  d.model.vocab = 32000;
  if (rng.Below(2) == 0) {
    d.model.norm = workload::Norm::kRmsNorm;
    d.model.activation = workload::Activation::kSwiglu;
    d.model.position = workload::Position::kRotary;
    d.model.tied_embeddings = false;
    d.model.kv_heads = 8;
  }
  workload::Plan& p = d.plan;
  p = Gpt3Plan(pick({1, 2, 4, 8}), pick({1, 2, 4}), pick({1, 2, 4}), 0);
  if (p.parallel.pp > 1 && rng.Below(2) == 0) {
    p.parallel.vpp = 2;
    p.parallel.schedule = workload::Schedule::k1f1bInterleaved;
  } else if (rng.Below(4) == 0) {
    p.parallel.schedule = workload::Schedule::kGpipe;
  }
  d.model.layers = static_cast<std::int64_t>(p.parallel.pp) * p.parallel.vpp * pick({1, 2});
  const std::int64_t chunks = std::int64_t{p.parallel.pp} * p.parallel.vpp;
  if (chunks > 2 && rng.Below(6) == 0) d.model.layers = chunks - 2;  // ends without a layer
  p.batch.seq_len = 512;
  d.model.max_position = 512;
  p.batch.micro_batch = pick({1, 2});
  p.batch.global_batch = p.batch.micro_batch * p.parallel.dp * p.parallel.pp * pick({1, 2, 3});
  p.parallel.sequence_parallel = p.parallel.tp > 1 && rng.Below(2) == 0;
  p.memory.recompute = static_cast<workload::Recompute>(rng.Below(3));
  p.memory.sharding = p.parallel.dp > 1 && rng.Below(2) == 0 ? workload::Sharding::kZero1
                                                             : workload::Sharding::kNone;
  p.framework.overlap_grad_reduce = rng.Below(2) == 0;
  p.framework.overlap_param_gather = p.framework.overlap_grad_reduce && rng.Below(2) == 0;
  p.framework.overlap_p2p = rng.Below(2) == 0;
  p.framework.bucket_elements = pick({1'000'000, 40'000'000});
  switch (rng.Below(8)) {
    case 0:
      p.parallel.cp = pick({2, 4});
      p.parallel.cp_exchange =
          pick({0, 1}) == 0 ? workload::CpExchange::kRing : workload::CpExchange::kAllGather;
      break;
    case 1:
      p.memory.sharding =
          pick({0, 1}) == 0 ? workload::Sharding::kZero2 : workload::Sharding::kZero3;
      p.parallel.pp = p.parallel.vpp = 1;
      p.parallel.schedule = workload::Schedule::k1f1b;
      p.framework.prefetch = rng.Below(4) != 0;
      p.framework.flat_parameters = rng.Below(2) == 0;
      break;
    case 2:
      p.precision.low = static_cast<workload::LowPrecision>(1 + rng.Below(5));
      p.framework.low_precision_gather = rng.Below(2) == 0;
      break;
    case 3:
      p.framework.host = {
          .module_forward = 40'000, .module_backward = 25'000, .communication = 25'000};
      break;
    case 4:
      d.model.experts = {.count = 8, .top_k = 2, .ffn_hidden = d.model.hidden};
      d.model.experts.first_dense = pick({0, 1});
      d.model.experts.every = pick({1, 2});
      p.parallel.ep = pick({1, 2, 4, 8});
      p.parallel.etp = pick({0, 1});
      p.experts.dispatcher = static_cast<workload::Dispatcher>(rng.Below(4));
      if (rng.Below(2) == 0) {
        p.experts.routing =
            pick({0, 1}) == 0 ? workload::Routing::kDirichlet : workload::Routing::kDrawnZipf;
        p.experts.routing_seed = seed;
      }
      break;
    case 5:
      d.model.experts = {.count = 8, .top_k = 2, .ffn_hidden = d.model.hidden};
      d.model.mamba = {.heads = 16, .head_dim = 64, .state = 64, .groups = 8};
      for (std::int64_t l = 0; l < d.model.layers; ++l) d.model.pattern += "M*-E"[rng.Below(4)];
      p.parallel.ep = pick({1, 2});
      break;
    default:
      break;
  }
  p.parallel.rank_order =
      rng.Below(3) == 0 ? workload::RankOrder::kPpDp : workload::RankOrder::kDpPp;
  if (p.memory.sharding != workload::Sharding::kNone && p.replicas() % 4 == 0 &&
      rng.Below(2) == 0 && d.model.experts.count == 0) {
    p.memory.shard_group = 2;
    p.framework.reduce_whole = rng.Below(2) == 0;
  }
  if (p.parallel.pp > 1 && p.parallel.vpp == 1 && rng.Below(3) == 0)
    p.parallel.schedule = workload::Schedule::kZbH1;
  if (p.parallel.vpp == 2 && rng.Below(3) == 0) {
    constexpr std::array kFolded = {workload::Schedule::kZbV, workload::Schedule::kDualPipe,
                                    workload::Schedule::kDualPipeV};
    p.parallel.schedule = kFolded[rng.Below(3)];
  }
  const bool whole_units = p.memory.sharding < workload::Sharding::kZero2;
  switch (rng.Below(8)) {
    case 0:
      p.memory.offload_activations = whole_units;
      break;
    case 1:
      p.memory.offload_optimizer = true;
      p.memory.offload_parameters =
          p.memory.sharding == workload::Sharding::kZero3 && rng.Below(2) == 0;
      p.parallel.ranks_per_host = 8;
      break;
    case 2:
      if (whole_units && d.model.experts.count == 0) p.lora.rank = 16;
      break;
    case 3:
      if (whole_units)
        p.framework.cuda_graphs = static_cast<workload::CudaGraphs>(1 + rng.Below(2));
      break;
    case 4:
      if (p.memory.sharding == workload::Sharding::kNone && d.model.experts.count == 0) {
        p.optimizer = static_cast<workload::Optimizer>(1 + rng.Below(2));
      }
      break;
    default:
      break;
  }
  p.framework.tp_comm_overlap =
      p.parallel.sequence_parallel && p.lora.rank == 0 && rng.Below(2) == 0;
  // Drawn apart, so that what is above stays as it was.
  CounterRng more(~seed);
  if (p.memory.recompute == workload::Recompute::kFull) {
    p.memory.recompute_method = static_cast<workload::RecomputeMethod>(more.Below(3));
    p.memory.recompute_layers = 1 + static_cast<std::int64_t>(more.Below(3));
    const bool groups = whole_units && p.parallel.schedule < workload::Schedule::kZbH1 &&
                        !p.memory.offload_activations &&
                        p.framework.cuda_graphs != workload::CudaGraphs::kLayers;
    if (p.memory.recompute_method == workload::RecomputeMethod::kUniform && !groups) {
      p.memory.recompute_layers = 1;
    }
  }
  p.framework.overlap_p2p_warmup_flush =
      p.framework.overlap_p2p && p.parallel.schedule == workload::Schedule::k1f1bInterleaved &&
      more.Below(2) == 0;
  d.nodes = (p.ranks() + 7) / 8;
  return d;
}

inline ::testing::Message Describe(std::uint64_t seed, const Drawn& d) {
  return ::testing::Message()
         << "seed " << seed << ": "
         << workload::Schedules()[static_cast<std::size_t>(d.plan.parallel.schedule)].name
         << (d.plan.memory.offload_activations ? ", activations offloaded" : "")
         << (d.plan.memory.offload_optimizer ? ", optimizer offloaded" : "")
         << (d.plan.memory.offload_parameters ? ", parameters offloaded" : "")
         << (d.plan.lora.rank > 0 ? ", LoRA" : "")
         << (d.plan.framework.cuda_graphs != workload::CudaGraphs::kNone ? ", CUDA graphs" : "")
         << (d.plan.framework.tp_comm_overlap ? ", tensor-parallel pieces" : "")
         << (workload::DrawsRouting(d.plan) ? ", drawn routing" : "")
         << (d.plan.hybrid() ? ", shard groups" : "")
         << (d.plan.memory.sharding >= workload::Sharding::kZero2 ? ", ZeRO-2 or -3" : "")
         << ", optimizer " << static_cast<int>(d.plan.optimizer);
}

}  // namespace orrery::testing
