// A queue of jobs on one cluster: who starts when, and on which hosts.
//
// Model. A job has whole hosts for itself from its start to its end. Jobs start in order of arrival
// (fifo), or a later one may go ahead where that does not delay the first that waits (easy:
// EASY backfilling, Lifka 1995): the first one's start is known from the ends of those that run,
// and a later job starts now if it ends before that, or needs only hosts that the first one leaves.
// How long a job takes may depend on the hosts it gets; it is known when it starts. Jobs that run
// beside each other do not slow each other.
//
// Times are seconds: this is a calendar of days, not of picoseconds. Ties go by place in the list.
// O(jobs² + jobs · hosts).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::search {

inline constexpr std::size_t kMostQueuedJobs = 20'000;

enum class QueueOrder : std::uint8_t { kFifo, kEasy };
// packed        the lowest free hosts
// random        drawn from those that are free
// striped       a free host of each rack in turn
// fewest-racks  the fullest rack that holds the job; where none does, the emptiest racks
enum class HostChoice : std::uint8_t { kPacked, kRandom, kStriped, kFewestRacks };

struct QueuedJob {
  std::string name;
  double arrival_s = 0;
  std::size_t hosts = 1;
};
// How long a job takes on these hosts, which rise, in seconds.
using TimeOnHosts =
    std::function<Result<double>(std::size_t job, std::span<const std::size_t> hosts)>;

struct QueueRun {
  struct Row {
    double start_s = 0, end_s = 0;
    std::vector<std::size_t> hosts;
    std::size_t racks = 0, fewest_racks = 0;
  };
  std::vector<Row> jobs;  // in the order of the list
  double mean_wait_s = 0;
  double mean_completion_s = 0, p95_completion_s = 0;  // from arrival to end
  double makespan_s = 0;                               // from the first arrival to the last end
  double utilisation = 0;                              // of all hosts' time over the makespan
  // Fragmentation: racks that jobs had over the fewest that would hold them, by host-time.
  double racks_over_fewest = 1;
};

// How many hosts each rack has, the largest first, and the fewest racks that hold so many hosts.
std::vector<std::size_t> RackSizes(std::span<const std::size_t> rack);
std::size_t FewestRacks(std::span<const std::size_t> sizes, std::size_t hosts);

// REQUIRES: jobs by arrival; each fits the cluster. `rack`: of each host.
Result<QueueRun> RunQueue(std::span<const QueuedJob> jobs, std::span<const std::size_t> rack,
                          QueueOrder order, HostChoice choice, std::uint64_t seed,
                          const TimeOnHosts& time);

}  // namespace orrery::search
