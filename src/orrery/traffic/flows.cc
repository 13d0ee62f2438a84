#include "orrery/traffic/flows.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "orrery/base/exp_log.h"
#include "orrery/base/rng.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::traffic {
namespace {

constexpr std::array kPatterns = {
    Pattern{"permutation", "Every GPU sends --size to one other and receives from one other."},
    Pattern{"incast", "--degree GPUs of other hosts send --size to one GPU at once."},
    Pattern{"outcast", "One GPU sends --size to --degree GPUs of other hosts at once."},
    Pattern{"all-to-all", "Every GPU sends --size to every other at once."},
    Pattern{"poisson",
            "Flows between GPUs of different hosts arrive at random: --load of the NICs' "
            "bandwidth, sizes by --sizes, for --duration."},
};

// A random cycle through all: nobody sends to itself.
std::vector<Flow> Permutation(std::size_t gpus, const PatternOptions& options) {
  std::vector<std::size_t> order(gpus);
  std::iota(order.begin(), order.end(), std::size_t{0});
  CounterRng rng(options.seed);
  rng.Shuffle(&order);
  std::vector<Flow> flows(gpus);
  for (std::size_t i = 0; i < gpus; ++i) {
    const std::size_t from = order[i];
    flows[from] = {0, DeviceId(from), DeviceId(order[(i + 1) % gpus]), options.bytes};
  }
  return flows;
}

// One GPU and `degree` of other hosts (of any other GPUs where there is one host).
Result<std::vector<Flow>> Cast(const cluster::Cluster& cluster, std::size_t gpus, bool in,
                               const PatternOptions& options) {
  CounterRng rng(options.seed);
  const DeviceId centre(rng.Below(gpus));
  std::vector<std::size_t> others;
  const bool one_host = cluster.node(DeviceId(0)) == cluster.node(DeviceId(gpus - 1));
  for (std::size_t g = 0; g < gpus; ++g) {
    const DeviceId device(g);
    if (device != centre && (one_host || cluster.node(device) != cluster.node(centre))) {
      others.push_back(g);
    }
  }
  if (options.degree > others.size()) {
    return InvalidInput(
        "--degree {}: {} GPUs are there beside the one; take more nodes or fewer "
        "flows",
        options.degree, others.size());
  }
  rng.Shuffle(&others);
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < options.degree; ++i) {
    const DeviceId other(others[i]);
    flows.push_back({0, in ? other : centre, in ? centre : other, options.bytes});
  }
  return flows;
}

Result<std::vector<Flow>> AllToAll(std::size_t gpus, const PatternOptions& options) {
  if (gpus * (gpus - 1) > kMaxFlows) {
    return InvalidInput("all-to-all of {} GPUs is {} flows; at most {} are possible (--gpus)", gpus,
                        gpus * (gpus - 1), kMaxFlows);
  }
  std::vector<Flow> flows;
  for (std::size_t from = 0; from < gpus; ++from) {
    for (std::size_t i = 1; i < gpus; ++i) {
      flows.push_back({0, DeviceId(from), DeviceId((from + i) % gpus), options.bytes});
    }
  }
  return flows;
}

Result<std::vector<Flow>> Poisson(const cluster::Cluster& cluster, std::size_t gpus,
                                  const PatternOptions& options) {
  ORRERY_ASSIGN_OR_RETURN(const SizeDistribution sizes, SizeDistribution::Find(options.sizes));
  if (cluster.node(DeviceId(0)) == cluster.node(DeviceId(gpus - 1))) {
    return InvalidInput("poisson needs GPUs of two hosts; take --nodes 2 or more");
  }
  const cluster::Spec& spec = cluster.spec();
  const double nic_Bps =
      static_cast<double>(spec.nic_Bps) * spec.nics_per_node / spec.gpus_per_node;
  const double flows_per_s = options.load * nic_Bps * static_cast<double>(gpus) / sizes.mean();
  const double expected = flows_per_s * ToSeconds(options.duration);
  if (expected > static_cast<double>(kMaxFlows)) {
    return InvalidInput(
        "--load and --duration give {} flows; at most {} are possible: take a shorter --duration",
        HumanCount(static_cast<std::int64_t>(std::min(expected, 1e18))),
        HumanCount(static_cast<std::int64_t>(kMaxFlows)));
  }
  CounterRng rng(options.seed);
  std::vector<Flow> flows;
  for (double at_s = 0;;) {
    at_s += MinusLog(1 - rng.Unit()) / flows_per_s;
    const SimTime at = FromSeconds(at_s);
    if (at > options.duration) break;
    Flow flow{at, DeviceId(rng.Below(gpus)), DeviceId(0), sizes.At(rng.Unit())};
    do {
      flow.to = DeviceId(rng.Below(gpus));
    } while (cluster.node(flow.to) == cluster.node(flow.from));
    flows.push_back(flow);
  }
  if (flows.empty()) {
    return InvalidInput("no flow arrives within --duration {}; {:.3g} were expected",
                        HumanTime(options.duration), expected);
  }
  return flows;
}

}  // namespace

std::span<const Pattern> Patterns() { return kPatterns; }

bool IsPattern(std::string_view name) {
  return std::any_of(kPatterns.begin(), kPatterns.end(),
                     [&](const Pattern& pattern) { return pattern.name == name; });
}

Result<std::vector<Flow>> MakeFlows(std::string_view pattern, const cluster::Cluster& cluster,
                                    const PatternOptions& options) {
  const std::size_t gpus = options.gpus == 0 ? cluster.devices() : options.gpus;
  if (gpus > cluster.devices()) {
    return InvalidInput("--gpus {}: the cluster has {}", gpus, cluster.devices());
  }
  if (gpus < 2) return InvalidInput("traffic needs two GPUs; the cluster has {}", gpus);
  if (pattern == "permutation") return Permutation(gpus, options);
  if (pattern == "incast") return Cast(cluster, gpus, true, options);
  if (pattern == "outcast") return Cast(cluster, gpus, false, options);
  if (pattern == "all-to-all") return AllToAll(gpus, options);
  if (pattern == "poisson") return Poisson(cluster, gpus, options);
  std::vector<std::string_view> names;
  for (const Pattern& p : kPatterns) names.push_back(p.name);
  return InvalidInput("{}", UnknownName("pattern", pattern, names));
}

}  // namespace orrery::traffic
