// What is left of a training run's time once things fail: goodput, the share of the wall time that
// makes progress which is kept.
//
// Model. Interruptions come at random with one rate a GPU (Poisson). Training runs in segments of
// `interval` of work and `stall` of waiting for the checkpoint. A checkpoint can be used `lag`
// after its segment (it is stored beside training). An interruption loses all that no usable
// checkpoint holds; then the run is down for detection, restart and reading the checkpoint, which
// an interruption starts over. Hardware failures take a node out for `repair` on average
// (exponential); with no spare left the run waits for the first node to come back, or goes on with
// fewer replicas (elastic). Slow nodes come at random and slow the run for a fixed time.
//
// Closed form, with λ the run's rate, s = interval + stall and R the time down:
//   progress a cycle = interval · e^(-λ·lag) / (e^(λs) - 1),  cycle = 1/λ + (e^(λR) - 1)/λ,
//   goodput = λ · interval · e^(-λ(lag + R)) / (e^(λs) - 1),
// which without lag is Daly's complete model (Future Generation Computer Systems 22, 2006). Waiting
// for nodes: nodes in repair are a queue without a line (M/M/∞) that stops at spares + 1: the share
// of time there is Erlang's loss formula. Elastic: nodes in repair are Poisson. The best interval
// is where the derivative vanishes; Young's and Daly's formulas stand beside it.
//
// The interval of goodput comes from drawn runs of the same model (seeded, exact in it but that
// speed changes at the borders of segments, and that a run with e^-50 of a chance to come back does
// not). Doubles and libm: this is no part of simulated time. Cost: O(failures + segments) a drawn
// run, at most 2^20 of the segments, and none of them without stragglers and elastic training.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery::campaign {

inline constexpr double kSecondsPerHour = 3600, kHoursPerDay = 24;

enum class CheckpointMode : std::uint8_t { kSynchronous, kAsynchronous, kMemory };
std::string_view Name(CheckpointMode mode);

struct GoodputSettings {
  double gpu_hours_between_failures = 0;  // of one GPU, mean; 0: nothing fails
  double hardware_share = 0;              // of them: a node goes out
  double detection_s = 0, restart_s = 0;
  CheckpointMode mode = CheckpointMode::kAsynchronous;
  double interval_s = 0;      // 0: the best
  double storage_Bps = 0;     // of all; 0: kStoragePerGpu_Bps for each GPU
  std::optional<int> spares;  // nodes; none: always one at hand
  double repair_s = 0;
  bool elastic = false;
  double stragglers_per_1000_node_days = 0, straggler_speed = 1, straggler_s = 0;
  double days = 30;  // where tokens do not give the length
  int trials = 400;  // at least 1
};

// Llama 3's 2 TB/s of sustained storage for 16,384 GPUs (arXiv 2407.21783, section 3.3.1).
inline constexpr double kStoragePerGpu_Bps = 2e12 / 16384;

// The run that fails.
struct RunFacts {
  std::int64_t gpus = 0, gpus_per_node = 1;
  std::int64_t replicas = 1;    // data-parallel
  double state_bytes = 0;       // of a checkpoint
  double rank_state_bytes = 0;  // of it, what the fullest rank holds
  double host_Bps = 0;          // from a GPU to host memory
  double node_Bps = 0;          // a GPU's share of its node's NICs
  double training_s = 0;        // without failures; 0: not known, `days` instead
  std::uint64_t seed = 1;
};

struct Goodput {
  double failures_per_day = 0, hours_between_failures = 0;  // of the run; 0: none
  double checkpoint_bytes = 0;
  double stall_s = 0, lag_s = 0, load_s = 0, down_s = 0;  // down: detection, restart and load
  double interval_s = 0;                                  // that is used
  double best_interval_s = 0, young_interval_s = 0, daly_interval_s = 0;
  double expected = 1;                 // closed form
  double mean = 1, low = 1, high = 1;  // drawn: mean, 5 and 95 %
  // Shares of the wall time; with `expected` they sum to 1.
  double checkpoint_share = 0, lost_share = 0, down_share = 0, waiting_share = 0, slow_share = 0;
  double days = 0;  // of the run, with failures

  // Of the time: GPUs stand still.
  double stopped() const { return down_share + waiting_share; }
};

// Closed form alone: low, high and mean stay at `expected`.
Goodput ExpectedGoodput(const GoodputSettings& settings, const RunFacts& run);
// With the drawn runs.
Goodput GoodputOf(const GoodputSettings& settings, const RunFacts& run);

// Of one drawn run of `wall_s`.
double DrawGoodput(const GoodputSettings& settings, const RunFacts& run, const Goodput& facts,
                   double wall_s, std::uint64_t trial);

// Young 1974, Daly 2006 (equation 37): work between checkpoints of `stall` at a mean time between
// failures.
double YoungInterval(double stall_s, double mean_s);
double DalyInterval(double stall_s, double mean_s);
// Where the closed form is largest.
double BestInterval(double stall_s, double mean_s);

}  // namespace orrery::campaign
