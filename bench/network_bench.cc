// How fast the networks are. Counters are exact; seconds belong to the machine.
//
//   build/release/bench/network_bench --benchmark_counters_tabular=true
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>

#include "orrery/base/rng.h"
#include "orrery/network/flow.h"
#include "orrery/network/network.h"

namespace orrery::network {
namespace {

cluster::Cluster Build(int nodes, double oversubscription) {
  auto spec = cluster::FindPreset("h100-ib-400g");
  ORRERY_CHECK(spec.ok(), "a preset");
  spec->nodes = nodes;
  spec->oversubscription = oversubscription;
  auto cluster = cluster::Cluster::Build(*spec);
  ORRERY_CHECK(cluster.ok(), "a cluster");
  return *std::move(cluster);
}

double PeakMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// `flows` random flows in flight over 8,192 GPUs, 4:1 oversubscribed; each instant `changes` of
// them come or go, one solve.
void MaxMinChanges(benchmark::State& state) {
  const cluster::Cluster cluster = Build(1024, 4);
  std::vector<std::int64_t> capacity;
  for (const cluster::Link& link : cluster.links()) capacity.push_back(link.bandwidth_Bps);
  MaxMin solver;
  solver.Setup(capacity);
  CounterRng rng(1);
  const auto flows = static_cast<std::uint32_t>(state.range(0));
  std::vector<LinkId> path;
  std::vector<MaxMin::Load> loads;
  for (std::uint32_t f = 0; f < 2 * flows; ++f) {
    const DeviceId from(rng.Below(cluster.devices()));
    DeviceId to = from;
    while (to == from) to = DeviceId(rng.Below(cluster.devices()));
    cluster.Route(from, to, f, &path);
    loads.clear();
    for (const LinkId link : path) loads.push_back({link.value, MaxMin::kWhole});
    std::sort(loads.begin(), loads.end(),
              [](const auto& a, const auto& b) { return a.link < b.link; });
    solver.AddClass(loads, 1, 0);
    if (f < flows) solver.AddMembers(f, 1);
  }
  MaxMin::Changes changed;
  solver.Solve(&changed);
  const MaxMin::Counters before = solver.counters();
  for (auto _ : state) {
    for (std::int64_t c = 0; c < state.range(1); ++c) {
      const auto f = static_cast<std::uint32_t>(rng.Below(2 * flows));
      solver.AddMembers(f, solver.members(f) > 0 ? -1 : 1);
    }
    changed.clear();
    solver.Solve(&changed);
  }
  const MaxMin::Counters after = solver.counters();
  const auto solves = static_cast<double>(after.solves - before.solves);
  state.counters["rounds"] = static_cast<double>(after.rounds - before.rounds) / solves;
  state.counters["disturbed"] = static_cast<double>(after.disturbed - before.disturbed) / solves;
  state.counters["cells"] = static_cast<double>(after.cells - before.cells) / solves;
  state.counters["levels"] = static_cast<double>(after.changed - before.changed) / solves;
  state.counters["moved"] = static_cast<double>(after.moved - before.moved) / solves;
  state.counters["MiB"] = PeakMiB();
  state.SetItemsProcessed(state.iterations() * state.range(1));
}
BENCHMARK(MaxMinChanges)
    ->Args({1'000, 2})
    ->Args({10'000, 2})
    ->Args({100'000, 2})
    ->Args({100'000, 1'000})
    ->Unit(benchmark::kMillisecond);

// Transfers of 1 MiB between random GPUs of 1,024, as many in flight as GPUs, through a back end.
void Transfers(benchmark::State& state, const char* name) {
  const cluster::Cluster cluster = Build(128, 1);
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  auto network = Create(name);
  ORRERY_CHECK(network.ok() && (*network)->SetupLinks(cluster, owner, 0).ok(), "a network");
  CounterRng rng(1);
  SimTime now = 0;
  std::uint64_t salt = 0;
  const auto start = [&](FlightId id) {
    const DeviceId from(id);
    DeviceId to = from;
    while (to == from) to = DeviceId(rng.Below(cluster.devices()));
    const Transfer transfer{id, from, to, 1 << 20, id, ++salt % 64};
    (*network)->Start(now, {&transfer, 1});
  };
  for (FlightId id = 0; id < cluster.devices(); ++id) start(id);
  std::vector<Completion> done;
  std::int64_t transfers = 0;
  for (auto _ : state) {
    done.clear();
    while (done.empty()) now = (*network)->AdvanceUntil((*network)->next_time(), &done);
    for (const Completion& c : done) start(c.id);
    transfers += static_cast<std::int64_t>(done.size());
  }
  state.SetItemsProcessed(transfers);
  state.counters["MiB"] = PeakMiB();
}
BENCHMARK_CAPTURE(Transfers, flow, "flow");
BENCHMARK_CAPTURE(Transfers, links, "links");

}  // namespace
}  // namespace orrery::network

BENCHMARK_MAIN();
