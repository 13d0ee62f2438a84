// Runs a graph on a cluster: ranks, streams, hosts, and who meets whom.
//
// In: a verified graph, a placement, prices (compute, collective), a network. Out: a Record (times
// per iteration, the breakdown of the last one, traffic, the fingerprint) and, for the ranks that a
// Sink asks for, every interval.
//
// Cost: one event when a communication starts and one when it ends; a rank's work between two
// meetings is O(1) however many kernels it has. State per simulated rank is below 1 KB.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/ids.h"
#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/cluster/cluster.h"
#include "orrery/collective/collective.h"
#include "orrery/compute/compute.h"
#include "orrery/graph/graph.h"
#include "orrery/network/packet/statistics.h"
#include "orrery/network/parameters.h"
#include "orrery/network/use_log.h"

namespace orrery::interference {
class Learned;
}

namespace orrery::engine {

// Where the time of a rank goes. Together they tile its iteration. kNoise: it waits for the slowest
// of its equals (rank_noise.h); kernels are as long as the mean rank's. Exposed communication is
// per group slot: index kExposed + slot.
enum class Part : std::uint8_t {
  kCompute,
  kOptimizer,
  kInterference,
  kHost,
  kNoise,
  kWaiting,
  kBubble,
  kExposed
};
inline constexpr std::size_t kParts = static_cast<std::size_t>(Part::kExposed) + graph::kGroupSlots;
using Breakdown = std::array<SimTime, kParts>;

struct RankPerturbation {
  RankId rank;
  double speed = 1;   // 0.9: every kernel takes 1/0.9 as long
  SimTime delay = 0;  // before its first operation
};

// How one of several jobs runs, where they begin and end apart.
struct JobRun {
  int iterations = 1;         // at most of a job in the background; 0: its ranks do nothing
  bool background = false;    // it stops once every other job has ended
  bool rank_noise = true;     // Options::rank_noise holds for it
  SimTime start = 0;          // before its first operation
  std::uint8_t priority = 0;  // of its messages (network::Transfer)
};

struct Options {
  // How kernels slow beside communication, learned; null: the constant model.
  std::shared_ptr<const interference::Learned> slowdown;
  bool fold = true;
  bool general = false;  // run a straight graph on the general machine, too (tests)
  // Step every item, also where a block's course is fixed or the run repeats itself (tests).
  bool stepwise = false;
  // Communications whose time the graph has as measured take it once all members have come, on any
  // network, and load none. False: they are priced.
  bool measured_communication = true;
  int threads = 1;     // of runs over links; results do not depend on it
  int iterations = 0;  // 0: until settled (2 to 5)
  std::uint64_t seed = 1;
  int link_steps = 0;  // of every link's use over time, at most; even; 0: not kept
  double jitter = 0;   // relative standard deviation added at the end of each stretch
  // Relative standard deviation of equal ranks' kernel times over a step. Ranks run as the slowest
  // of their stage is expected to, the stage that bounds the step as the slowest of all that it
  // waits for (rank_noise.h).
  double rank_noise = 0;
  std::vector<RankPerturbation> ranks;
  // By job; empty: jobs that have ended go on until the last one has. Given, the general machine
  // runs them, once.
  std::vector<JobRun> job_runs;
  // General machine, networks of messages: a collective inside an NVLink domain takes what the
  // planner's closed form says, from its last arrival on, and loads no link. Else each of its
  // chunks is a message.
  bool closed_form_in_domains = false;
  // By job, empty for none: what reading a step's samples takes. It runs ahead, beside the step.
  std::vector<SimTime> input_times;
};

// Receives the intervals of selected ranks, in time order per rank and stream.
class Sink {
 public:
  struct Interval {
    RankId rank;
    std::uint32_t stream = 0;    // 0 compute; a communicator's stream otherwise
    SimTime start = 0, end = 0;  // a communication's from this rank's arrival on
    NameId name;                 // of the graph
    NameId module;
    std::int32_t microbatch = -1;
    std::int16_t layer = -1;
    std::int32_t iteration = 0;
    SimTime waited = 0;       // communication: from `start` until its partners had come
    std::int64_t bytes = 0;   // communication
    std::string_view detail;  // algorithm and protocol, or provenance
    // Of the general machine: the operation's place in its block.
    std::uint32_t op = 0xFFFFFFFFu;
  };
  virtual ~Sink() = default;
  virtual bool wants(RankId rank) const = 0;
  virtual void Add(const Interval& interval) = 0;
};

struct RankClass {
  RankId representative;  // its lowest rank
  std::uint32_t size = 1;
  JobId job;
  ProgramId program;
  Breakdown breakdown{};       // of the last iteration
  SimTime iteration_time = 0;  // the breakdown's sum
  SimTime finish_time = 0;     // end of its last operation
  // How long its processors were held, where operations hold them (graph::Hold).
  SimTime held_calc = 0, held_send = 0, held_receive = 0;
};

struct JobRecord {
  std::vector<SimTime> iteration_end;  // end(k), k = 0 …
  // end(last) - end(last - 1); where reading its samples takes longer, that, and then the host's
  // wait for them is `input_wait`. Of one that was stopped: iterations that were over.
  SimTime step_time = 0;
  SimTime input_wait = 0;
  bool settled = true;
};

struct LinkClassUse {
  std::string name;        // "nvlink", "nic"
  std::int64_t bytes = 0;  // all ports together, whole run
  double busy_share = 0;   // mean over ports of busy time / finish time
};

// What one link of the cluster carried, by back ends that see links.
struct LinkTraffic {
  std::int64_t bytes = 0;  // wire bytes of all that started
  SimTime busy = 0;
};

struct Record {
  SimTime finish_time = 0;  // end of the last operation simulated
  std::vector<JobRecord> jobs;
  std::vector<RankClass> classes;  // every rank is in one
  std::vector<LinkClassUse> network;
  std::vector<LinkTraffic> links;  // by LinkId; empty where the back end sees ports only
  network::UseLog use;             // of the links over time; off unless asked for
  std::optional<network::PacketCounts> packets;            // where the back end sees packets
  std::array<double, compute::kProvenances> provenance{};  // kernel time by origin, sums to 1
  double compute_spread = 0;  // time-weighted relative spread of kernel times
  // Of graphs that are not straight.
  struct Messages {
    std::uint64_t sent = 0;
    std::int64_t bytes = 0;
    std::uint64_t unexpected = 0;  // came before their receive was posted
    std::uint64_t truncated = 0;   // longer than the receive that took them
  };
  Messages messages;
  std::string not_straight_because;  // empty: the fast machine ran it
  std::uint64_t fingerprint = 0;
  std::uint64_t events = 0;
  std::uint64_t events_repeated = 0;  // of them: repeat others and were not run (periods.h)
  std::uint32_t ranks = 0, ranks_simulated = 0;
  int iterations = 0, threads_used = 1;
  bool folded = false;
  std::string not_folded_because;  // empty when folded
  std::vector<std::string> warnings;
};

struct Inputs {
  const graph::Graph* graph = nullptr;
  const cluster::Cluster* cluster = nullptr;
  const cluster::Placement* placement = nullptr;
  const compute::CostModel* compute = nullptr;
  const collective::Planner* planner = nullptr;
  std::string_view network = "analytic";
  network::Parameters network_parameters;
  // Where the source has operation `op` of the block that a rank runs: "line 17". Reports name it;
  // may be empty.
  std::function<std::string(std::uint32_t rank, std::uint32_t op)> place;
};

// Prices of blocks and communications, kept between runs of one cluster and one cost model. Not
// thread-safe: one per thread.
class PriceCache;

// A cycle or a missing partner ends with Code::kInfeasible and a report of who waits for whom.
// A graph that is not straight (graph/verify/straight.h), or whose group calls have two messages of
// one tag with one neighbour, runs on the general machine (engine/general).
Result<Record> Run(const Inputs& inputs, const Options& options, PriceCache* cache = nullptr,
                   Sink* sink = nullptr);

}  // namespace orrery::engine
