#include "orrery/workload/routing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "orrery/base/number_lines.h"
#include "orrery/base/rng.h"

namespace orrery::workload {
namespace {

constexpr double kLn2 = 0.6931471805599453;
constexpr std::uint64_t kRoutingSalt = 0x0e4b5e7a11ed0ULL;

// REQUIRES: x > 0, normal.
double Ln(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  // ln m = 2·(t + t³/3 + t⁵/5 + …), |t| <= 0.172.
  const double t = (m - 1) / (m + 1);
  const double square = t * t;
  double sum = 0;
  for (int n = 21; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return 2 * t * sum + static_cast<double>(exponent) * kLn2;
}

// 0 below e^-700. REQUIRES: x <= 0.
double Exp(double x) {
  if (x < -700) return 0;
  const auto halvings = static_cast<std::int64_t>(-x / kLn2 + 0.5);
  const double r = x + static_cast<double>(halvings) * kLn2;
  double sum = 1;
  for (int n = 16; n >= 1; --n) sum = 1 + r * sum / n;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(1023 - halvings) << 52);
}

// In (0, 1).
double Open(CounterRng* rng) { return (static_cast<double>(rng->Next() >> 12) + 0.5) * 0x1.0p-52; }

// Marsaglia's polar method.
double Normal(CounterRng* rng) {
  for (;;) {
    const double u = 2 * Open(rng) - 1, v = 2 * Open(rng) - 1;
    const double square = u * u + v * v;
    if (square >= 1 || square == 0) continue;
    return u * std::sqrt(-2 * Ln(square) / square);
  }
}

// Logarithm of a gamma variate. Below 1: that of alpha + 1, times u^(1/alpha).
double LogGamma(double alpha, CounterRng* rng) {
  if (alpha < 1) {
    const double scaled = Ln(Open(rng)) / alpha;
    return LogGamma(alpha + 1, rng) + scaled;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal(rng);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (Ln(Open(rng)) < 0.5 * x * x + d - d * v + d * Ln(v)) return Ln(d) + Ln(v);
  }
}

std::vector<double> Dirichlet(std::size_t experts, double alpha, std::uint64_t key) {
  std::vector<double> share(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    CounterRng rng(HashCombine(key, e));
    share[e] = LogGamma(alpha, &rng);
  }
  const double most = *std::max_element(share.begin(), share.end());
  for (double& s : share) s = Exp(s - most);
  return share;
}

std::vector<double> Zipf(std::size_t experts, double exponent, std::uint64_t key) {
  std::vector<double> share(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    share[e] = Exp(-exponent * Ln(static_cast<double>(e + 1)));
  }
  CounterRng(key).Shuffle(&share);
  return share;
}

// Sums to 1, none above `most`; what is above goes to the others in proportion.
void Normalise(double most, std::vector<double>* share) {
  std::vector<bool> full(share->size(), false);
  for (;;) {
    double free = 0, taken = 0;
    std::size_t open = 0;
    for (std::size_t e = 0; e < share->size(); ++e) {
      full[e] ? taken += most : free += (*share)[e];
      open += full[e] ? 0u : 1u;
    }
    bool more = false;
    for (std::size_t e = 0; e < share->size(); ++e) {
      if (full[e]) continue;
      const double left = 1 - taken;
      (*share)[e] = free > 0 ? (*share)[e] * (left / free) : left / static_cast<double>(open);
    }
    for (std::size_t e = 0; e < share->size(); ++e) {
      if (full[e] || (*share)[e] <= most * (1 + 1e-12)) continue;
      (*share)[e] = most;
      full[e] = more = true;
    }
    if (!more) return;
  }
}

// Of a gamma variate of shape n, the size of `ln_factorial`, whole: that it is at most x. One less
// the Poisson terms below n, from the largest on.
double GammaAtMost(const std::vector<double>& ln_factorial, double x) {
  const auto n = static_cast<std::int64_t>(ln_factorial.size());
  const auto largest = std::min(n - 1, static_cast<std::int64_t>(x));
  const double peak = Exp(std::min(0.0, static_cast<double>(largest) * Ln(x) - x -
                                            ln_factorial[static_cast<std::size_t>(largest)]));
  double sum = peak, term = peak;
  for (std::int64_t i = largest; i > 0 && term > 1e-18; --i) {
    term *= static_cast<double>(i) / x;
    sum += term;
  }
  term = peak;
  for (std::int64_t i = largest + 1; i < n && term > 1e-18; ++i) {
    term *= x / static_cast<double>(i);
    sum += term;
  }
  return std::clamp(1 - sum, 0.0, 1.0);
}

}  // namespace

double BusiestOfAnyDivision(std::int64_t experts, std::int64_t ranks) {
  std::vector<double> ln_factorial(static_cast<std::size_t>(experts), 0.0);
  for (std::size_t i = 2; i < ln_factorial.size(); ++i) {
    ln_factorial[i] = ln_factorial[i - 1] + Ln(static_cast<double>(i));
  }
  const double deviation = std::sqrt(static_cast<double>(experts)), step = deviation / 32;
  const double last = static_cast<double>(experts) + 10 * deviation + 45;
  double mean = step / 2;  // trapezoids under one less the distribution of the largest
  for (std::int64_t i = 1; static_cast<double>(i) * step < last; ++i) {
    const double one = GammaAtMost(ln_factorial, static_cast<double>(i) * step);
    double all = 1, power = one;
    for (std::int64_t n = ranks; n > 0; n >>= 1) {
      if (n & 1) all *= power;
      power *= power;
    }
    mean += step * (1 - all);
  }
  return mean / static_cast<double>(experts);
}

std::vector<double> ExpertShares(const Model& model, const Plan& plan, int layer) {
  const auto experts = static_cast<std::size_t>(model.experts.count);
  const std::uint64_t key = HashCombine(HashCombine(plan.experts.routing_seed, kRoutingSalt),
                                        static_cast<std::uint64_t>(layer));
  std::vector<double> share;
  if (plan.experts.routing == Routing::kDirichlet) {
    share = Dirichlet(experts, plan.experts.routing_alpha, key);
  } else if (plan.experts.routing == Routing::kDrawnZipf) {
    share = Zipf(experts, plan.experts.routing_exponent, key);
  } else {
    const auto& lines = plan.experts.given_routing->layers;
    share =
        lines.size() == 1 ? lines.front() : lines[static_cast<std::size_t>(layer) % lines.size()];
  }
  Normalise(1.0 / static_cast<double>(model.experts.top_k), &share);
  return share;
}

LayerLoad LoadOfLayer(const Model& model, const Plan& plan, int layer) {
  std::vector<double> share = ExpertShares(model, plan, layer);
  if (plan.experts.expert_capacity > 0) {
    const double most = plan.experts.expert_capacity / static_cast<double>(share.size());
    for (double& s : share) s = std::min(s, most);
  }
  LayerLoad load;
  const std::size_t each = share.size() / static_cast<std::size_t>(plan.parallel.ep);
  double all = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(plan.parallel.ep); ++r) {
    double sum = 0;
    for (std::size_t e = r * each; e < (r + 1) * each; ++e) sum += share[e];
    all += sum;
    load.received.push_back(static_cast<std::int64_t>(sum * plan.parallel.ep * 1000 + 0.5));
  }
  load.busiest = *std::max_element(load.received.begin(), load.received.end());
  load.sent = static_cast<std::int64_t>(all * 1000 + 0.5);
  return load;
}

Status CheckRouting(const Model& model, const Plan& plan) {
  const bool drawn = DrawsRouting(plan);
  if (!(plan.experts.expert_capacity == 0 ||
        (plan.experts.expert_capacity > 0 && plan.experts.expert_capacity <= 1000))) {
    return InvalidInput("training.moe_capacity_factor: {} is outside 0 … 1000",
                        plan.experts.expert_capacity);
  }
  if (!drawn && plan.experts.expert_capacity > 0) {
    return InvalidInput(
        "training.moe_capacity_factor: tokens are dropped by the shares of experts, which this "
        "moe_routing does not say; use dirichlet, drawn-zipf or a file");
  }
  if (plan.experts.pad_to_capacity && (plan.experts.routing > Routing::kRoundRobin ||
                                       plan.experts.dispatcher != Dispatcher::kAllToAll)) {
    return InvalidInput(
        "training.moe_pad_to_capacity: built for the alltoall dispatcher and moe_routing: "
        "balanced, every expert having the same rows; moe_imbalance says how many more than the "
        "mean");
  }
  if (!drawn) return {};
  if (plan.experts.moe_imbalance != 1) {
    return InvalidInput(
        "training.moe_imbalance: {} on top of a drawn moe_routing; leave one of them out",
        plan.experts.moe_imbalance);
  }
  if (!(plan.experts.routing_alpha >= 1e-3 && plan.experts.routing_alpha <= 1e6)) {
    return InvalidInput("training.moe_alpha: {} is outside 0.001 … 1000000",
                        plan.experts.routing_alpha);
  }
  if (!(plan.experts.routing_exponent >= 0 && plan.experts.routing_exponent <= 10)) {
    return InvalidInput("training.moe_zipf: {} is outside 0 … 10", plan.experts.routing_exponent);
  }
  if (plan.memory.offload_activations || plan.parallel.schedule >= Schedule::kZbH1 ||
      plan.memory.sharding >= Sharding::kZero2) {
    return InvalidInput(
        "training.moe_routing: layers and ranks of unequal loads are not built with activations "
        "in host memory, split backward passes, zero2 and zero3; use moe_imbalance");
  }
  if (plan.experts.routing != Routing::kGiven) return {};
  if (plan.experts.given_routing == nullptr) {
    return InvalidInput("training.moe_routing: a given routing needs a file: moe_routing: my.csv");
  }
  const auto& lines = plan.experts.given_routing->layers;
  const auto layers = static_cast<std::size_t>(model.layers);
  if (lines.size() != 1 && lines.size() != layers) {
    return InvalidInput(
        "training.moe_routing: {} has {} lines for the {} layers of {}; give one for all, or one "
        "a layer (those of layers without experts count, and are not read)",
        plan.experts.given_routing->name, lines.size(), layers, model.name);
  }
  for (std::size_t l = 0; l < lines.size(); ++l) {
    if (lines[l].size() == static_cast<std::size_t>(model.experts.count)) continue;
    return InvalidInput("training.moe_routing: {}: layer {} has {} numbers for {} experts of {}",
                        plan.experts.given_routing->name, l, lines[l].size(), model.experts.count,
                        model.name);
  }
  return {};
}

Result<GivenRouting> ParseRouting(std::string_view name, std::string_view text) {
  GivenRouting out{.name = std::string(name)};
  ORRERY_RETURN_IF_ERROR(
      ReadNumberLines(text, name, "an expert's share or tokens after the other, numbers",
                      [&](int line, std::vector<double> shares) -> Status {
                        if (!(std::accumulate(shares.begin(), shares.end(), 0.0) > 0)) {
                          return InvalidInput("{}, line {}: no expert gets anything", name, line);
                        }
                        out.layers.push_back(std::move(shares));
                        return {};
                      }));
  if (out.layers.empty()) {
    return InvalidInput("{}: empty; a line a layer, or one for all, the experts' shares on it",
                        name);
  }
  return out;
}

}  // namespace orrery::workload
