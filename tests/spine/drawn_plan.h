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
  if (p.pp > 1 && rng.Below(2) == 0) {
    p.vpp = 2;
    p.schedule = workload::Schedule::k1f1bInterleaved;
  } else if (rng.Below(4) == 0) {
    p.schedule = workload::Schedule::kGpipe;
  }
  d.model.layers = static_cast<std::int64_t>(p.pp) * p.vpp * pick({1, 2});
  const std::int64_t chunks = std::int64_t{p.pp} * p.vpp;
  if (chunks > 2 && rng.Below(6) == 0) d.model.layers = chunks - 2;  // ends without a layer
  p.seq_len = 512;
  d.model.max_position = 512;
  p.micro_batch = pick({1, 2});
  p.global_batch = p.micro_batch * p.dp * p.pp * pick({1, 2, 3});
  p.sequence_parallel = p.tp > 1 && rng.Below(2) == 0;
  p.recompute = static_cast<workload::Recompute>(rng.Below(3));
  p.sharding =
      p.dp > 1 && rng.Below(2) == 0 ? workload::Sharding::kZero1 : workload::Sharding::kNone;
  p.overlap_grad_reduce = rng.Below(2) == 0;
  p.overlap_param_gather = p.overlap_grad_reduce && rng.Below(2) == 0;
  p.overlap_p2p = rng.Below(2) == 0;
  p.bucket_elements = pick({1'000'000, 40'000'000});
  switch (rng.Below(8)) {
    case 0:
      p.cp = pick({2, 4});
      p.cp_exchange =
          pick({0, 1}) == 0 ? workload::CpExchange::kRing : workload::CpExchange::kAllGather;
      break;
    case 1:
      p.sharding = pick({0, 1}) == 0 ? workload::Sharding::kZero2 : workload::Sharding::kZero3;
      p.pp = p.vpp = 1;
      p.schedule = workload::Schedule::k1f1b;
      p.prefetch = rng.Below(4) != 0;
      p.flat_parameters = rng.Below(2) == 0;
      break;
    case 2:
      p.low_precision = static_cast<workload::LowPrecision>(1 + rng.Below(5));
      p.low_precision_gather = rng.Below(2) == 0;
      break;
    case 3:
      p.host = {.module_forward = 40'000, .module_backward = 25'000, .communication = 25'000};
      break;
    case 4:
      d.model.experts = {.count = 8, .top_k = 2, .ffn_hidden = d.model.hidden};
      d.model.experts.first_dense = pick({0, 1});
      d.model.experts.every = pick({1, 2});
      p.ep = pick({1, 2, 4, 8});
      p.etp = pick({0, 1});
      p.dispatcher = static_cast<workload::Dispatcher>(rng.Below(4));
      if (rng.Below(2) == 0) {
        p.routing =
            pick({0, 1}) == 0 ? workload::Routing::kDirichlet : workload::Routing::kDrawnZipf;
        p.routing_seed = seed;
      }
      break;
    case 5:
      d.model.experts = {.count = 8, .top_k = 2, .ffn_hidden = d.model.hidden};
      d.model.mamba = {.heads = 16, .head_dim = 64, .state = 64, .groups = 8};
      for (std::int64_t l = 0; l < d.model.layers; ++l) d.model.pattern += "M*-E"[rng.Below(4)];
      p.ep = pick({1, 2});
      break;
    default:
      break;
  }
  p.rank_order = rng.Below(3) == 0 ? workload::RankOrder::kPpDp : workload::RankOrder::kDpPp;
  if (p.sharding != workload::Sharding::kNone && p.replicas() % 4 == 0 && rng.Below(2) == 0 &&
      d.model.experts.count == 0) {
    p.shard_group = 2;
    p.reduce_whole = rng.Below(2) == 0;
  }
  if (p.pp > 1 && p.vpp == 1 && rng.Below(3) == 0) p.schedule = workload::Schedule::kZbH1;
  if (p.vpp == 2 && rng.Below(3) == 0) {
    constexpr std::array kFolded = {workload::Schedule::kZbV, workload::Schedule::kDualPipe,
                                    workload::Schedule::kDualPipeV};
    p.schedule = kFolded[rng.Below(3)];
  }
  const bool whole_units = p.sharding < workload::Sharding::kZero2;
  switch (rng.Below(8)) {
    case 0:
      p.offload_activations = whole_units;
      break;
    case 1:
      p.offload_optimizer = true;
      p.offload_parameters = p.sharding == workload::Sharding::kZero3 && rng.Below(2) == 0;
      p.ranks_per_host = 8;
      break;
    case 2:
      if (whole_units && d.model.experts.count == 0) p.lora_rank = 16;
      break;
    case 3:
      if (whole_units) p.cuda_graphs = static_cast<workload::CudaGraphs>(1 + rng.Below(2));
      break;
    case 4:
      if (p.sharding == workload::Sharding::kNone && d.model.experts.count == 0) {
        p.optimizer = static_cast<workload::Optimizer>(1 + rng.Below(2));
      }
      break;
    default:
      break;
  }
  p.tp_comm_overlap = p.sequence_parallel && p.lora_rank == 0 && rng.Below(2) == 0;
  // Drawn apart, so that what is above stays as it was.
  CounterRng more(~seed);
  if (p.recompute == workload::Recompute::kFull) {
    p.recompute_method = static_cast<workload::RecomputeMethod>(more.Below(3));
    p.recompute_layers = 1 + static_cast<std::int64_t>(more.Below(3));
    const bool groups = whole_units && p.schedule < workload::Schedule::kZbH1 &&
                        !p.offload_activations && p.cuda_graphs != workload::CudaGraphs::kLayers;
    if (p.recompute_method == workload::RecomputeMethod::kUniform && !groups) {
      p.recompute_layers = 1;
    }
  }
  p.overlap_p2p_warmup_flush =
      p.overlap_p2p && p.schedule == workload::Schedule::k1f1bInterleaved && more.Below(2) == 0;
  d.nodes = (p.ranks() + 7) / 8;
  return d;
}

inline ::testing::Message Describe(std::uint64_t seed, const Drawn& d) {
  return ::testing::Message()
         << "seed " << seed << ": "
         << workload::Schedules()[static_cast<std::size_t>(d.plan.schedule)].name
         << (d.plan.offload_activations ? ", activations offloaded" : "")
         << (d.plan.offload_optimizer ? ", optimizer offloaded" : "")
         << (d.plan.offload_parameters ? ", parameters offloaded" : "")
         << (d.plan.lora_rank > 0 ? ", LoRA" : "")
         << (d.plan.cuda_graphs != workload::CudaGraphs::kNone ? ", CUDA graphs" : "")
         << (d.plan.tp_comm_overlap ? ", tensor-parallel pieces" : "")
         << (workload::DrawsRouting(d.plan) ? ", drawn routing" : "")
         << (d.plan.hybrid() ? ", shard groups" : "")
         << (d.plan.sharding >= workload::Sharding::kZero2 ? ", ZeRO-2 or -3" : "")
         << ", optimizer " << static_cast<int>(d.plan.optimizer);
}

}  // namespace orrery::testing
