// A whole rehearsal in one value, for tests and benchmarks that cross stages.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/engine/engine.h"
#include "orrery/engine/prices.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/generator.h"

namespace orrery::testing {

// Cluster, prices and placement that several jobs or plans share. Not movable: planner points to
// it.
class Scenario {
 public:
  // Fails the process on a bad preset: tests and benchmarks name their own.
  // `sharp`: switches reduce, where the fabric is InfiniBand.
  Scenario(std::string_view preset, int nodes, bool sharp = false,
           const collective::Environment& environment = {})
      : Scenario(MakeSpec(preset, nodes, sharp), environment) {}
  explicit Scenario(const cluster::Spec& spec, const collective::Environment& environment = {})
      : cluster_(Take(cluster::Cluster::Build(spec))),
        compute_(Take(compute::CostModel::Create(cluster_.spec().device, {}))),
        planner_(cluster_, environment),
        prices_(compute_, planner_) {}
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  Status Add(const workload::Model& model, const workload::Plan& plan, const std::string& name) {
    return generator_.AddJob(model, plan, name, &graph_);
  }
  // Ranks on devices in order, or in the order given.
  void PlacePacked() {
    placement_.device.clear();
    for (std::size_t r = 0; r < graph_.bindings.size(); ++r) placement_.device.emplace_back(r);
  }
  void Clear() {
    graph_ = graph::Graph();
    placement_.device.clear();
  }

  Result<engine::Record> Run(const engine::Options& options,
                             std::string_view network = "analytic") {
    const engine::Inputs inputs{&graph_, &cluster_, &placement_, &compute_, &planner_, network};
    return engine::Run(inputs, options, &prices_);
  }

  graph::Graph& graph() { return graph_; }
  cluster::Placement& placement() { return placement_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  const collective::Planner& planner() const { return planner_; }
  const compute::CostModel& compute() const { return compute_; }

  template <class T>
  static T Take(Result<T> result) {
    if (!result.ok()) fmt::print(stderr, "{}\n", result.status().message());
    ORRERY_CHECK(result.ok(), "a scenario is valid");
    return *std::move(result);
  }

 private:
  static cluster::Spec MakeSpec(std::string_view preset, int nodes, bool sharp) {
    cluster::Spec spec = Take(cluster::FindPreset(preset));
    spec.nodes = nodes;
    spec.sharp = sharp && spec.fabric == cluster::Fabric::kInfiniBand;
    return spec;
  }

  cluster::Cluster cluster_;
  compute::CostModel compute_;
  collective::Planner planner_;
  engine::PriceCache prices_;
  workload::Generator generator_;
  graph::Graph graph_;
  cluster::Placement placement_;
};

inline workload::Model Gpt3() { return Scenario::Take(workload::FindModel("gpt3-175b")); }

// GPT-3's shape at a size that tests can lower to chunks.
inline workload::Model SmallGpt() {
  workload::Model m = Gpt3();
  m.name = "small";
  m.layers = 8;
  m.hidden = 2048;
  m.heads = m.kv_heads = 16;
  m.head_dim = 128;
  m.ffn_hidden = 8192;
  m.vocab = 51200;
  return m;
}

// GPT-3 175B as the peers run it: TP8 PP8 DP16, 96 micro-batches.
inline workload::Plan Gpt3Plan(int tp, int pp, int dp, std::int64_t global_batch) {
  workload::Plan plan;
  plan.parallel.tp = tp;
  plan.parallel.pp = pp;
  plan.parallel.dp = dp;
  plan.batch.global_batch = global_batch;
  plan.batch.micro_batch = 1;
  plan.batch.seq_len = 2048;
  plan.parallel.sequence_parallel = tp > 1;
  plan.memory.recompute = workload::Recompute::kSelective;
  plan.memory.sharding = dp > 1 ? workload::Sharding::kZero1 : workload::Sharding::kNone;
  return plan;
}

// Different plans around GPT-3 175B TP8 PP8 DP16, 1F1B, 96 micro-batches at the base plan.
inline workload::Plan SearchPlan(CounterRng* rng) {
  constexpr int kTp[] = {2, 4, 8}, kPp[] = {4, 8, 12, 16};
  const int tp = kTp[rng->Below(3)];
  const int pp = kPp[rng->Below(4)];
  const int dp = std::max(1, 1024 / (tp * pp));
  workload::Plan plan = Gpt3Plan(tp, pp, dp, 0);
  plan.batch.micro_batch = 1 + static_cast<std::int64_t>(rng->Below(2));
  const std::int64_t microbatches = 80 + static_cast<std::int64_t>(rng->Below(33));
  plan.batch.global_batch = microbatches * plan.batch.micro_batch * dp;
  constexpr workload::Recompute kRecompute[] = {
      workload::Recompute::kNone, workload::Recompute::kSelective, workload::Recompute::kFull};
  plan.memory.recompute = kRecompute[rng->Below(3)];
  return plan;
}

}  // namespace orrery::testing
