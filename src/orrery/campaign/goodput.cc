#include "orrery/campaign/goodput.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "orrery/base/rng.h"

namespace orrery::campaign {
namespace {

constexpr double kSecondsPerDay = kHoursPerDay * kSecondsPerHour;
constexpr double kLeastStall_s = 1e-3;  // a copy takes time; keeps intervals above 0
// Failures expected while a run is down, from which on it does not come back: e^-50 is the chance
// that it does.
constexpr double kHopeless = 50;
// At how many segments of a drawn run its speed is looked up, if there are more.
constexpr double kMostLookups = 1 << 20;

double Rate(const GoodputSettings& settings, const RunFacts& run) {
  const double hours = settings.gpu_hours_between_failures;
  return hours > 0 ? static_cast<double>(run.gpus) / (hours * kSecondsPerHour) : 0;
}

std::int64_t Nodes(const RunFacts& run) {
  return std::max<std::int64_t>(1, (run.gpus + run.gpus_per_node - 1) / run.gpus_per_node);
}

// Slow nodes a second.
double SlowRate(const GoodputSettings& settings, const RunFacts& run) {
  return settings.stragglers_per_1000_node_days / (1000 * kSecondsPerDay) *
         static_cast<double>(Nodes(run));
}

// Of the run's speed with `broken` nodes out and `spares` to stand in: a replica that lost a node
// gives its others to replicas that lost theirs.
double ElasticSpeed(const RunFacts& run, std::int64_t broken, std::int64_t spares) {
  const std::int64_t missing = std::max<std::int64_t>(0, broken - spares);
  const std::int64_t per_replica = std::max<std::int64_t>(1, run.gpus / run.replicas);
  const std::int64_t gpus = missing * run.gpus_per_node;
  const std::int64_t lost = (gpus + per_replica - 1) / per_replica;
  return static_cast<double>(std::max<std::int64_t>(0, run.replicas - lost)) /
         static_cast<double>(run.replicas);
}

// Share of the time that the queue is full: Erlang's loss formula for `servers` at load a.
double ErlangLoss(double load, int servers) {
  double loss = 1;
  for (int n = 1; n <= servers; ++n) loss = load * loss / (n + load * loss);
  return loss;
}

// Mean speed with a Poisson number of nodes out.
double MeanElasticSpeed(const RunFacts& run, double load, int spares) {
  double weight = std::exp(-load), sum = 0, all = 0;
  if (weight == 0) return ElasticSpeed(run, static_cast<std::int64_t>(load), spares);
  const auto most = static_cast<int>(load + 12 * std::sqrt(load) + 20);
  for (int n = 0; n <= most; ++n) {
    sum += weight * ElasticSpeed(run, n, spares);
    all += weight;
    weight *= load / (n + 1);
  }
  return sum / all;
}

void FillCheckpoint(const GoodputSettings& settings, const RunFacts& run, Goodput* out) {
  const double storage_Bps = settings.storage_Bps > 0
                                 ? settings.storage_Bps
                                 : kStoragePerGpu_Bps * static_cast<double>(run.gpus);
  const auto over = [](double bytes, double Bps) { return Bps > 0 ? bytes / Bps : 0; };
  const double stored = over(run.state_bytes, storage_Bps);
  const double copied = over(run.rank_state_bytes, run.host_Bps);
  const double sent = over(run.rank_state_bytes, run.node_Bps);
  out->checkpoint_bytes = run.state_bytes;
  switch (settings.mode) {
    case CheckpointMode::kSynchronous:
      out->stall_s = stored;
      out->load_s = stored;
      break;
    case CheckpointMode::kAsynchronous:
      out->stall_s = copied;
      out->lag_s = stored;
      out->load_s = stored;
      break;
    case CheckpointMode::kMemory:
      out->stall_s = copied;
      out->lag_s = sent;
      out->load_s = sent + copied;
      break;
  }
  out->stall_s = std::max(out->stall_s, kLeastStall_s);
  out->down_s = settings.detection_s + settings.restart_s + out->load_s;
}

// Exponential with the given mean, from a uniform of [0, 1).
double Exponential(double mean, double uniform) { return -mean * std::log1p(-uniform); }

}  // namespace

std::string_view Name(CheckpointMode mode) {
  switch (mode) {
    case CheckpointMode::kSynchronous:
      return "synchronous";
    case CheckpointMode::kAsynchronous:
      return "asynchronous";
    case CheckpointMode::kMemory:
      return "memory";
  }
  return "?";
}

double YoungInterval(double stall_s, double mean_s) { return std::sqrt(2 * stall_s * mean_s); }

double DalyInterval(double stall_s, double mean_s) {
  if (stall_s >= 2 * mean_s) return mean_s;
  const double ratio = stall_s / (2 * mean_s);
  return std::sqrt(2 * stall_s * mean_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - stall_s;
}

double BestInterval(double stall_s, double mean_s) {
  // d/dτ of τ / (e^(λ(τ + δ)) - 1) vanishes where e^(λ(τ + δ)) (1 - λτ) = 1; falls in τ.
  double low = 0, high = mean_s;
  for (int i = 0; i < 200; ++i) {
    const double middle = low + (high - low) / 2;
    const double value = std::exp((middle + stall_s) / mean_s) * (1 - middle / mean_s);
    (value > 1 ? low : high) = middle;
  }
  return low;
}

Goodput ExpectedGoodput(const GoodputSettings& settings, const RunFacts& run) {
  Goodput out;
  const double rate = Rate(settings, run);
  FillCheckpoint(settings, run, &out);
  const double known_s = run.training_s > 0 ? run.training_s : settings.days * kSecondsPerDay;
  // What is being stored must be stored before the next checkpoint begins.
  const double least_s = std::max(out.lag_s - out.stall_s, 0.0);
  double kept = 1;
  if (rate > 0) {
    const double mean_s = 1 / rate;
    out.failures_per_day = rate * kSecondsPerDay;
    out.hours_between_failures = mean_s / kSecondsPerHour;
    out.young_interval_s = YoungInterval(out.stall_s, mean_s);
    out.daly_interval_s = DalyInterval(out.stall_s, mean_s);
    out.best_interval_s = std::max(BestInterval(out.stall_s, mean_s), least_s);
    out.interval_s =
        settings.interval_s > 0 ? std::max(settings.interval_s, least_s) : out.best_interval_s;
    const double segment_s = out.interval_s + out.stall_s;
    const double segments =
        std::exp(-rate * out.lag_s) / std::expm1(rate * segment_s);  // kept, of a cycle
    const double cycle_s = std::exp(rate * out.down_s) / rate;
    kept = out.interval_s * segments / cycle_s;
    out.checkpoint_share = out.stall_s * segments / cycle_s;
    out.down_share = std::isinf(cycle_s) ? 1 : (cycle_s - mean_s) / cycle_s;
    out.lost_share = 1 - kept - out.checkpoint_share - out.down_share;
  } else {
    out.interval_s = settings.interval_s > 0 ? settings.interval_s : known_s;
    kept = out.interval_s / (out.interval_s + (settings.interval_s > 0 ? out.stall_s : 0));
    out.checkpoint_share = 1 - kept;
  }
  double waiting = 0, speed = 1;
  const double load = rate * settings.hardware_share * settings.repair_s;
  if (settings.spares && load > 0) {
    if (settings.elastic) {
      speed = MeanElasticSpeed(run, load, *settings.spares);
    } else {
      waiting = ErlangLoss(load, *settings.spares + 1);
    }
  }
  const double slow = -std::expm1(-SlowRate(settings, run) * settings.straggler_s);
  speed *= 1 - slow * (1 - settings.straggler_speed);
  for (double* share : {&kept, &out.checkpoint_share, &out.down_share, &out.lost_share}) {
    *share *= 1 - waiting;
  }
  out.waiting_share = waiting;
  out.slow_share = kept * (1 - speed);
  out.expected = kept * speed;
  out.mean = out.low = out.high = out.expected;
  out.days =
      (run.training_s > 0 && out.expected > 0 ? known_s / out.expected : known_s) / kSecondsPerDay;
  return out;
}

namespace {

// One drawn run.
class Drawn {
 public:
  Drawn(const GoodputSettings& settings, const RunFacts& run, const Goodput& facts, double wall_s,
        std::uint64_t trial)
      : settings_(settings),
        run_(run),
        facts_(facts),
        wall_s_(wall_s),
        rate_(Rate(settings, run)),
        segment_s_(facts.interval_s + facts.stall_s),
        stride_(1 + std::floor(wall_s / segment_s_ / kMostLookups)),
        rng_(HashCombine(HashCombine(run.seed, kStream), trial)) {
    const double slow = SlowRate(settings, run);
    slow_gap_s_ = slow > 0 ? 1 / slow : 0;
    if (slow_gap_s_ > 0) next_slow_s_ = Exponential(slow_gap_s_, rng_.Unit());
  }

  double Run() {
    while (now_s_ < wall_s_) {
      const double fails_s = rate_ > 0 ? now_s_ + Exponential(1 / rate_, rng_.Unit())
                                       : std::numeric_limits<double>::infinity();
      Train(std::min(fails_s, wall_s_), fails_s < wall_s_);
      if (now_s_ >= wall_s_) break;
      Fail();
      Recover();
    }
    return kept_s_ / wall_s_;
  }

 private:
  static constexpr std::uint64_t kStream = 0x6f0d9a7u;

  bool steady() const { return slow_gap_s_ == 0 && !(settings_.elastic && settings_.spares); }

  // Until end_s: a failure, which loses what no usable checkpoint holds, or the end of the run.
  void Train(double end_s, bool fails) {
    const double usable_s = end_s - now_s_ - (fails ? facts_.lag_s : 0);
    const double segments = std::max(0.0, usable_s / segment_s_);
    const double whole = std::floor(segments);
    if (steady()) {
      kept_s_ += facts_.interval_s * (fails ? whole : segments);
    } else {
      for (double i = 0; i < whole; i += stride_) {
        kept_s_ +=
            std::min(stride_, whole - i) * facts_.interval_s * SpeedAt(now_s_ + i * segment_s_);
      }
      if (!fails) kept_s_ += facts_.interval_s * (segments - whole) * SpeedAt(end_s);
    }
    now_s_ = end_s;
  }

  double SpeedAt(double time_s) {
    double speed = 1;
    if (slow_gap_s_ > 0) {
      while (next_slow_s_ <= time_s) {
        slow_until_s_ = next_slow_s_ + settings_.straggler_s;
        next_slow_s_ += Exponential(slow_gap_s_, rng_.Unit());
      }
      if (time_s < slow_until_s_) speed *= settings_.straggler_speed;
    }
    if (settings_.elastic && settings_.spares)
      speed *= ElasticSpeed(run_, Broken(time_s), Spares());
    return speed;
  }

  std::int64_t Spares() const { return settings_.spares.value_or(0); }

  std::int64_t Broken(double time_s) {
    std::erase_if(back_s_, [&](double back_s) { return back_s <= time_s; });
    return static_cast<std::int64_t>(back_s_.size());
  }

  void Fail() {
    if (rng_.Unit() >= settings_.hardware_share || !settings_.spares) return;
    back_s_.push_back(now_s_ + Exponential(settings_.repair_s, rng_.Unit()));
    while (!settings_.elastic && Broken(now_s_) > Spares()) {
      now_s_ = *std::min_element(back_s_.begin(), back_s_.end());
    }
  }

  void Recover() {
    double left_s = facts_.down_s;
    if (rate_ * left_s > kHopeless) now_s_ = wall_s_;
    while (left_s > 0 && now_s_ < wall_s_) {
      const double fails_s = Exponential(1 / rate_, rng_.Unit());
      if (fails_s >= left_s) {
        now_s_ += left_s;
        return;
      }
      now_s_ += fails_s;
      Fail();
      left_s = facts_.down_s;
    }
  }

  const GoodputSettings& settings_;
  const RunFacts& run_;
  const Goodput& facts_;
  const double wall_s_, rate_, segment_s_;
  const double stride_;  // segments for which one look-up of the speed stands
  CounterRng rng_;
  double now_s_ = 0, kept_s_ = 0;
  double slow_gap_s_ = 0, next_slow_s_ = 0, slow_until_s_ = 0;
  std::vector<double> back_s_;  // when nodes in repair come back
};

}  // namespace

double DrawGoodput(const GoodputSettings& settings, const RunFacts& run, const Goodput& facts,
                   double wall_s, std::uint64_t trial) {
  return Drawn(settings, run, facts, wall_s, trial).Run();
}

Goodput GoodputOf(const GoodputSettings& settings, const RunFacts& run) {
  Goodput out = ExpectedGoodput(settings, run);
  if (out.failures_per_day == 0 && settings.stragglers_per_1000_node_days == 0) return out;
  std::vector<double> drawn;
  double sum = 0;
  for (int trial = 0; trial < settings.trials; ++trial) {
    drawn.push_back(DrawGoodput(settings, run, out, out.days * kSecondsPerDay,
                                static_cast<std::uint64_t>(trial)));
    sum += drawn.back();
  }
  std::sort(drawn.begin(), drawn.end());
  const auto at = [&](double share) {
    return drawn[static_cast<std::size_t>(share * static_cast<double>(drawn.size() - 1) + 0.5)];
  };
  out.mean = sum / static_cast<double>(drawn.size());
  out.low = at(0.05);
  out.high = at(0.95);
  return out;
}

}  // namespace orrery::campaign
