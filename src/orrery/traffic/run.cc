#include "orrery/traffic/run.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "orrery/base/rng.h"
#include "orrery/base/suggest.h"

namespace orrery::traffic {
namespace {

constexpr std::size_t kProgressEvery = 4096;

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](double p) {
    const auto n = static_cast<double>(values.size());
    auto i = static_cast<std::size_t>(p * n);
    if (static_cast<double>(i) < p * n) ++i;
    return values[std::max<std::size_t>(i, 1) - 1];
  };
  return {std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          rank(0.5), rank(0.99), values.back()};
}

// Slowdowns by size, in the classes that papers on flow completion times use.
std::vector<SizeClass> BySize(const std::vector<Flow>& flows, const std::vector<double>& slowdown) {
  constexpr std::array<std::int64_t, 5> kBounds = {10'000, 100'000, 1'000'000, 10'000'000,
                                                   std::int64_t{1} << 62};
  std::vector<SizeClass> classes;
  std::int64_t above = 0;
  for (const std::int64_t bound : kBounds) {
    std::vector<double> values;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].bytes > above && flows[i].bytes <= bound) values.push_back(slowdown[i]);
    }
    above = bound;
    if (values.empty()) continue;
    const std::size_t count = values.size();
    classes.push_back({bound, count, SpreadOf(std::move(values))});
  }
  return classes;
}

std::vector<SlowFlow> Slowest(const std::vector<Flow>& flows,
                              const std::vector<SimTime>& completion,
                              const std::vector<double>& slowdown) {
  constexpr std::size_t kKept = 20;
  std::vector<std::size_t> order(flows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t kept = std::min(kKept, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return slowdown[a] != slowdown[b] ? slowdown[a] > slowdown[b] : a < b;
                    });
  std::vector<SlowFlow> slowest;
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t f = order[i];
    slowest.push_back({f, flows[f].from, flows[f].to, flows[f].bytes, flows[f].start, completion[f],
                       slowdown[f]});
  }
  return slowest;
}

Status CheckBackend(std::string_view name) {
  std::vector<std::string_view> valid;
  for (const network::BackendInfo& backend : network::Backends()) {
    if (!backend.transfers) continue;
    if (backend.name == name) return {};
    valid.push_back(backend.name);
  }
  return InvalidInput("--network: {}", UnknownName("network for flows", name, valid));
}

}  // namespace

Result<FlowRun> RunFlows(const cluster::Cluster& cluster, std::string_view name,
                         const network::Parameters& parameters, std::vector<Flow> flows,
                         std::uint64_t seed,
                         const std::function<void(std::size_t, std::size_t)>& progress,
                         std::size_t queue_steps, int threads) {
  ORRERY_RETURN_IF_ERROR(CheckBackend(name));
  ORRERY_ASSIGN_OR_RETURN(const std::unique_ptr<network::Network> network,
                          network::Create(name, parameters));
  const std::vector<std::uint32_t> owner(cluster.nvlink_domains(), 0);
  ORRERY_RETURN_IF_ERROR(network->SetupLinks(cluster, owner, 0));
  if (queue_steps > 0) network->KeepQueueLog(queue_steps);
  std::stable_sort(flows.begin(), flows.end(),
                   [](const Flow& a, const Flow& b) { return a.start < b.start; });
  FlowRun run;
  run.threads_used = network->UseThreads(threads);
  run.flows = flows.size();
  run.completion.resize(flows.size());
  std::vector<network::Completion> done;
  std::vector<network::Transfer> batch;
  std::size_t next = 0, finished = 0, told = 0;
  std::vector<double> slowdown(flows.size());
  const auto transfer = [&](std::size_t i) {
    return network::Transfer{static_cast<network::FlightId>(i),
                             flows[i].from,
                             flows[i].to,
                             flows[i].bytes,
                             static_cast<std::uint32_t>(flows[i].from.index()),
                             HashCombine(seed, i)};
  };
  while (finished < flows.size()) {
    const SimTime start = next < flows.size() ? flows[next].start : kNever;
    const SimTime event = network->next_time();
    if (std::min(start, event) == kNever) {
      ORRERY_RETURN_IF_ERROR(network->status());
      return Infeasible("{} flows never end: their links are down for good",
                        flows.size() - finished);
    }
    done.clear();
    // As far as nothing starts: a network may work ahead of its next event.
    const SimTime until = start < kNever ? start : std::max(event, kMaxDuration);
    const SimTime reached = network->AdvanceUntil(until, &done);
    for (const network::Completion& c : done) {
      run.completion[c.id] = c.time - flows[c.id].start;
      run.fingerprint += HashCombine(c.id, static_cast<std::uint64_t>(c.time));
      run.finish = std::max(run.finish, c.time);
      slowdown[c.id] = static_cast<double>(run.completion[c.id]) /
                       static_cast<double>(network::Uncontended(cluster, transfer(c.id)));
    }
    finished += done.size();
    if (reached == start) {
      batch.clear();
      for (; next < flows.size() && flows[next].start == start; ++next) {
        batch.push_back(transfer(next));
      }
      network->Start(start, batch);
    }
    if (progress && finished - told >= kProgressEvery) {
      told = finished;
      progress(finished, flows.size());
    }
  }
  std::vector<double> seconds;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    run.bytes += flows[i].bytes;
    seconds.push_back(ToSeconds(run.completion[i]));
  }
  run.completion_s = SpreadOf(std::move(seconds));
  run.slowdown = SpreadOf(slowdown);
  const auto [least, most] = std::minmax_element(
      flows.begin(), flows.end(), [](const Flow& a, const Flow& b) { return a.bytes < b.bytes; });
  if (least->bytes != most->bytes) run.sizes = BySize(flows, slowdown);
  const auto statistics = network->statistics();
  run.links.assign(statistics.begin(), statistics.end());
  if (const network::PacketCounts* counts = network->packet_counts()) run.packets = *counts;
  if (const network::QueueLog* queues = network->queue_log()) run.queues = *queues;
  run.slowest = Slowest(flows, run.completion, slowdown);
  return run;
}

}  // namespace orrery::traffic
