// Traffic without a job: who sends how much to whom, and when.
//
// Every pattern is drawn from a counter-based generator keyed by the seed: the same seed gives the
// same flows everywhere. O(flows).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"

namespace orrery::traffic {

inline constexpr std::size_t kMaxFlows = 20'000'000;

struct Flow {
  SimTime start = 0;
  DeviceId from, to;
  std::int64_t bytes = 0;
};

struct PatternOptions {
  std::int64_t bytes = 1 << 20;  // of a flow
  std::size_t gpus = 0;          // the first so many; 0: all
  std::size_t degree = 8;        // incast, outcast
  std::uint64_t seed = 1;
  // poisson
  std::string sizes = "web-search";  // a distribution's name or a file
  double load = 0.5;                 // of the GPUs' share of NIC bandwidth
  SimTime duration = 10 * kMillisecond;
};

// permutation: every GPU sends to one other and receives from one other.
// incast: `degree` GPUs of other hosts send to one; outcast: one sends to them.
// all-to-all: every ordered pair.
// poisson: flows arrive at random, sizes by a distribution, between GPUs of different hosts.
struct Pattern {
  std::string_view name;
  std::string_view description;
};
std::span<const Pattern> Patterns();
bool IsPattern(std::string_view name);
Result<std::vector<Flow>> MakeFlows(std::string_view pattern, const cluster::Cluster& cluster,
                                    const PatternOptions& options);

// A connection matrix as htsim reads it: "Nodes N", "Connections C", then lines
// "FROM->TO [id I] start MICROSECONDS size BYTES". Triggers, failures and priorities are refused.
Result<std::vector<Flow>> ParseConnectionMatrix(std::string_view text, const std::string& name,
                                                const cluster::Cluster& cluster);

// A distribution of flow sizes: points (bytes, cumulative share), linear between.
class SizeDistribution {
 public:
  // A name that is known, or a file of lines "BYTES PERCENT" that end at 100.
  static Result<SizeDistribution> Find(const std::string& name);
  static Result<SizeDistribution> Parse(std::string_view text, const std::string& name);
  std::int64_t At(double u) const;  // the size below which a share u of flows lies; at least 1
  double mean() const;

 private:
  struct Point {
    double bytes = 0, share = 0;
  };
  std::vector<Point> points_;
};
std::span<const Pattern> SizeDistributions();

}  // namespace orrery::traffic
