// The loops behind Run: collectives as fluids, over ports or over links, or lowered to chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/engine/straight/layout.h"
#include "orrery/network/network.h"

namespace orrery::engine {

class LinkSymmetry;

// What one run over a fixed number of iterations leaves behind, by simulated rank.
struct LoopResult {
  int iterations = 0;
  std::vector<SimTime> ends;          // last completion; [rank * iterations + k]
  std::vector<SimTime> compute_ends;  // of the compute stream
  std::vector<Breakdown> parts;       // of the last iteration
  std::vector<std::uint64_t> hashes;
  std::uint64_t events = 0, events_repeated = 0;
  int threads_used = 1;
  SimTime finish_time = 0;
  std::vector<network::PortStatistics> traffic;  // by port (fluids) or by link (transfers)
  network::UseLog use;                           // of links over time; off unless asked for
  std::optional<network::PacketCounts> packets;  // where the back end sees packets
};

struct LoopInputs {
  const Inputs* inputs = nullptr;
  const Options* options = nullptr;
  const Layout* layout = nullptr;
  const PriceCache* prices = nullptr;
  SimTime launch = 0;
  int iterations = 2;
  Sink* sink = nullptr;
  bool repeats = false;  // of several jobs those that have ended go on until the last one has
  const LinkSymmetry* symmetry = nullptr;  // of a folded run over links
};

// A run for which no number of iterations is asked ends once its step has settled: no rank's end
// moves by more than kSettled of the step from one iteration to the next. Or after kMostIterations.
inline constexpr int kMostIterations = 5;
inline constexpr double kSettled = 1e-4;
std::string NotSettled(const std::string& job, int iterations);  // the warning

// What a rank whose items have this hash adds to the run's fingerprint.
constexpr std::uint64_t RankFingerprint(std::uint64_t hash) { return Mix64(hash + 0x0bbe7a1e); }

// What ports or links carried, by class, into the record. REQUIRES: its finish time is set.
void FillPortUse(const cluster::Cluster& cluster, const Layout& layout,
                 std::span<const network::PortStatistics> traffic, Record* record);
void FillLinkUse(const cluster::Cluster& cluster, std::span<const network::PortStatistics> traffic,
                 Record* record);

Result<LoopResult> RunClosedForm(const LoopInputs& in, network::Network* network);
// Makes the network anew to say what is wrong: of several faults the same one for any threads.
using MakeNetwork = std::function<Result<std::unique_ptr<network::Network>>()>;
Result<LoopResult> RunFlow(const LoopInputs& in, const MakeNetwork& make);
Result<LoopResult> RunLowered(const LoopInputs& in);

}  // namespace orrery::engine
