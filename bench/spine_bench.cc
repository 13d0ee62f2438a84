// How fast the spine is: events, ranks, plans. Counters are exact; seconds belong to the machine.
//
//   build/release/bench/spine_bench --benchmark_counters_tabular=true
#include <benchmark/benchmark.h>

#include "orrery/base/rng.h"
#include "orrery/des/event_queue.h"
#include "tests/spine/scenario.h"

namespace orrery::testing {
namespace {

struct Event {
  SimTime time = 0;
  std::uint64_t payload = 0;
  friend bool operator<(const Event& a, const Event& b) { return a.payload < b.payload; }
};

// Hold model: pop the first, push one a random time later.
void EventQueueHold(benchmark::State& state) {
  des::EventQueue<Event> queue;
  CounterRng rng(1);
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    queue.Push({static_cast<SimTime>(rng.Below(1'000'000'000)), static_cast<std::uint64_t>(i)});
  }
  for (auto _ : state) {
    const Event e = queue.Top();
    queue.Pop();
    queue.Push({e.time + 1 + static_cast<SimTime>(rng.Below(1'000'000'000)), e.payload});
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(EventQueueHold)->RangeMultiplier(16)->Range(16, 1 << 20);

void BuildGraph(benchmark::State& state) {
  workload::Generator generator;
  const workload::Model model = Gpt3();
  const int dp = static_cast<int>(state.range(0)) / 64;
  const workload::Plan plan = Gpt3Plan(8, 8, dp, 96L * dp);
  for (auto _ : state) {
    graph::Graph graph;
    benchmark::DoNotOptimize(generator.AddJob(model, plan, "job", &graph).ok());
  }
  state.counters["ranks"] = static_cast<double>(state.range(0));
}
BENCHMARK(BuildGraph)->Arg(1024)->Arg(8192)->Arg(131072)->Unit(benchmark::kMicrosecond);

void ClosedForm(benchmark::State& state) {
  Scenario s("h100-ib-400g", 128);
  collective::GroupShape shape;
  shape.ranks = 64;
  shape.domains = 8;
  shape.ranks_per_domain = 8;
  shape.nics = 8;
  shape.network_hops = 1;
  const auto plan =
      Scenario::Take(s.planner().MakePlan(graph::Collective::kAllReduce, 256 << 20, shape));
  for (auto _ : state) benchmark::DoNotOptimize(s.planner().ClosedForm(plan));
}
BENCHMARK(ClosedForm);

void MakePlan(benchmark::State& state) {
  Scenario s("h100-ib-400g", 128);
  collective::GroupShape shape;
  shape.ranks = 64;
  shape.domains = 8;
  shape.ranks_per_domain = 8;
  shape.nics = 8;
  shape.network_hops = 1;
  std::int64_t bytes = 1 << 10;
  for (auto _ : state) {
    benchmark::DoNotOptimize(s.planner().MakePlan(graph::Collective::kAllReduce, bytes, shape));
    bytes = bytes < (1 << 30) ? bytes * 4 : 1 << 10;
  }
}
BENCHMARK(MakePlan);

// An all-to-all over domains of eight, of shares drawn by receiver as experts have them: ranks, and
// KiB that an even one's members would send each other.
struct UnevenCase {
  Scenario scenario{"h100-ib-400g", 128};
  collective::GroupShape shape;
  graph::Shares shares;
  std::int64_t bytes = 0;

  explicit UnevenCase(const benchmark::State& state) {
    shape.ranks = static_cast<int>(state.range(0));
    shape.domains = shape.ranks / 8;
    shape.ranks_per_domain = shape.nics = 8;
    shape.network_hops = shape.domains > 1 ? 1 : 0;
    shares.ranks = static_cast<std::uint32_t>(shape.ranks);
    CounterRng rng(1);
    for (int i = 0; i < shape.ranks; ++i) {
      shares.parts.push_back(graph::Shares::kEven / 2 +
                             static_cast<std::int64_t>(rng.Below(graph::Shares::kEven)));
    }
    shares.Seal();
    bytes = state.range(0) * state.range(1) << 10;
  }
  collective::Plan Plan() {
    return Scenario::Take(scenario.planner().UnevenPlan(bytes, shape, shares, false));
  }
};

void PlanUneven(benchmark::State& state) {
  UnevenCase c(state);
  for (auto _ : state) benchmark::DoNotOptimize(c.Plan());
}
BENCHMARK(PlanUneven)
    ->ArgsProduct({{8, 16, 32, 64, 128, 256, 1024}, {16, 128, 8192}})
    ->Unit(benchmark::kMicrosecond);

void ClosedFormUneven(benchmark::State& state) {
  UnevenCase c(state);
  const collective::Plan plan = c.Plan();
  for (auto _ : state) benchmark::DoNotOptimize(c.scenario.planner().ClosedForm(plan));
}
BENCHMARK(ClosedFormUneven)->ArgsProduct({{8, 64, 256, 1024}, {128}});

// GPT-3 175B TP8 PP16, VPP 2, two iterations: ranks × fold.
void Simulate(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const bool fold = state.range(1) != 0;
  const int pp = ranks >= 1024 ? 16 : 8;
  const int dp = ranks / (8 * pp);
  Scenario s("h100-ib-400g", ranks / 8);
  workload::Plan plan = Gpt3Plan(8, pp, dp, 32L * dp);
  if (pp == 16) {
    plan.parallel.vpp = 2;
    plan.parallel.schedule = workload::Schedule::k1f1bInterleaved;
  }
  if (!s.Add(Gpt3(), plan, "job").ok()) return state.SkipWithError("plan refused");
  s.PlacePacked();
  engine::Options options;
  options.fold = fold;
  options.iterations = 2;
  options.jitter = state.range(2) != 0 ? 0.01 : 0;
  std::uint64_t events = 0;
  for (auto _ : state) {
    const auto record = s.Run(options);
    if (!record.ok()) return state.SkipWithError(record.status().message().c_str());
    events += record->events;
  }
  state.counters["events"] = static_cast<double>(events) / static_cast<double>(state.iterations());
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
  state.counters["ranks/s"] =
      benchmark::Counter(static_cast<double>(ranks) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(Simulate)
    ->ArgNames({"ranks", "fold", "jitter"})
    ->Args({64, 1, 0})
    ->Args({64, 0, 0})
    ->Args({1024, 1, 0})
    ->Args({1024, 0, 0})
    ->Args({8192, 1, 0})
    ->Args({8192, 0, 0})
    ->Args({8192, 0, 1})
    ->Args({131072, 1, 0})
    ->Args({131072, 0, 0})
    ->Unit(benchmark::kMillisecond);

// Different plans (SearchPlan): graph, engine and step time, with block and kernel caches warm and
// no result reused.
void EvaluatePlans(benchmark::State& state) {
  const workload::Model model = Gpt3();
  workload::Generator generator;
  // NIC rate is drawn too: one cluster, planner and price cache for each.
  std::vector<std::unique_ptr<Scenario>> clusters;
  for (std::string_view preset : {"h100-ib-400g", "h100-roce-400g"}) {
    clusters.push_back(std::make_unique<Scenario>(preset, 128));
  }
  engine::Options options;
  options.iterations = 2;
  std::uint64_t events = 0, evaluated = 0, draw = 0;
  const auto evaluate = [&](std::uint64_t seed) {
    CounterRng rng(seed);
    Scenario& s = *clusters[rng.Below(clusters.size())];
    s.Clear();
    if (!s.Add(model, SearchPlan(&rng), "job").ok()) return false;
    s.PlacePacked();
    const auto record = s.Run(options);
    if (!record.ok()) return false;
    events += record->events;
    benchmark::DoNotOptimize(record->jobs[0].step_time);
    return true;
  };
  for (std::uint64_t warm = 0; warm < 200; ++warm) evaluate(warm);
  events = 0;
  for (auto _ : state) evaluated += evaluate(1000 + draw++) ? 1 : 0;
  state.counters["plans/s"] =
      benchmark::Counter(static_cast<double>(evaluated), benchmark::Counter::kIsRate);
  state.counters["events/plan"] = static_cast<double>(events) / static_cast<double>(evaluated);
}
BENCHMARK(EvaluatePlans)->Unit(benchmark::kMicrosecond);

void EvaluateBasePlan(benchmark::State& state) {
  Scenario s("h100-ib-400g", 128);
  const workload::Model model = Gpt3();
  const workload::Plan plan = Gpt3Plan(8, 8, 16, 1536);
  engine::Options options;
  options.iterations = 2;
  std::uint64_t events = 0;
  for (auto _ : state) {
    s.Clear();
    if (!s.Add(model, plan, "job").ok()) return state.SkipWithError("plan refused");
    s.PlacePacked();
    const auto record = s.Run(options);
    if (!record.ok()) return state.SkipWithError(record.status().message().c_str());
    events = record->events;
  }
  state.counters["events"] = static_cast<double>(events);
}
BENCHMARK(EvaluateBasePlan)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::testing

BENCHMARK_MAIN();
