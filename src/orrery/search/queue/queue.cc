#include "orrery/search/queue/queue.h"

#include <algorithm>
#include <map>

#include "orrery/base/rng.h"

namespace orrery::search {
namespace {

class Scheduler {
 public:
  Scheduler(std::span<const QueuedJob> jobs, std::span<const std::size_t> rack, QueueOrder order,
            HostChoice choice, std::uint64_t seed, const TimeOnHosts& time)
      : jobs_(jobs),
        rack_(rack),
        order_(order),
        choice_(choice),
        seed_(seed),
        time_(time),
        free_(rack.size(), 1),
        idle_(rack.size()),
        rack_sizes_(RackSizes(rack)) {
    run_.jobs.resize(jobs.size());
  }

  Result<QueueRun> Run() {
    std::size_t next = 0;
    while (next < jobs_.size() || !running_.empty()) {
      // Ends go before arrivals of the same instant: their hosts are free for them.
      const bool ends = !running_.empty() &&
                        (next == jobs_.size() || running_.begin()->first <= jobs_[next].arrival_s);
      const double now = ends ? running_.begin()->first : jobs_[next].arrival_s;
      while (!running_.empty() && running_.begin()->first <= now) Release();
      while (next < jobs_.size() && jobs_[next].arrival_s <= now) waiting_.push_back(next++);
      ORRERY_RETURN_IF_ERROR(StartJobs(now));
    }
    Sum();
    return std::move(run_);
  }

 private:
  void Release() {
    for (const std::size_t host : run_.jobs[running_.begin()->second].hosts) free_[host] = 1;
    idle_ += jobs_[running_.begin()->second].hosts;
    running_.erase(running_.begin());
  }

  Status StartJobs(double now) {
    while (!waiting_.empty() && jobs_[waiting_.front()].hosts <= idle_) {
      ORRERY_ASSIGN_OR_RETURN(const double taken, TimeOf(waiting_.front()));
      Start(waiting_.front(), now, taken);
      waiting_.erase(waiting_.begin());
    }
    if (waiting_.empty() || order_ == QueueOrder::kFifo) return {};
    // The first one starts when enough of those that run have ended, and leaves `spare` hosts.
    const std::size_t needed = jobs_[waiting_.front()].hosts;
    std::size_t then = idle_;
    double reserved = now;
    for (const auto& [end, job] : running_) {
      if (then >= needed && end > reserved) break;
      then += jobs_[job].hosts;
      reserved = end;
    }
    std::size_t spare = then - needed;
    for (std::size_t i = 1; i < waiting_.size() && idle_ > 0;) {
      const std::size_t job = waiting_[i];
      const std::size_t hosts = jobs_[job].hosts;
      if (hosts > idle_) {
        ++i;
        continue;
      }
      ORRERY_ASSIGN_OR_RETURN(const double taken, TimeOf(job));
      const bool before = now + taken <= reserved;
      if (!before && hosts > spare) {
        ++i;
        continue;
      }
      if (!before) spare -= hosts;
      Start(job, now, taken);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return {};
  }

  // On the hosts that it would get now, which stay in its row.
  Result<double> TimeOf(std::size_t job) {
    run_.jobs[job].hosts = Choose(job);
    return time_(job, run_.jobs[job].hosts);
  }
  void Start(std::size_t job, double now, double taken) {
    QueueRun::Row& row = run_.jobs[job];
    row.start_s = now;
    row.end_s = now + taken;
    for (const std::size_t host : row.hosts) free_[host] = 0;
    idle_ -= row.hosts.size();
    running_.emplace(row.end_s, job);
  }

  std::vector<std::size_t> Choose(std::size_t job) const {
    std::vector<std::size_t> hosts;
    std::map<std::size_t, std::vector<std::size_t>> racks;  // free hosts
    for (std::size_t h = 0; h < free_.size(); ++h) {
      if (free_[h] == 0) continue;
      hosts.push_back(h);
      racks[rack_[h]].push_back(h);
    }
    const std::size_t wanted = jobs_[job].hosts;
    if (choice_ == HostChoice::kRandom) {
      CounterRng(HashCombine(seed_, job)).Shuffle(&hosts);
    } else if (choice_ == HostChoice::kStriped) {
      std::stable_sort(hosts.begin(), hosts.end(), [&](std::size_t a, std::size_t b) {
        return PlaceIn(racks[rack_[a]], a) < PlaceIn(racks[rack_[b]], b);
      });
    } else if (choice_ == HostChoice::kFewestRacks) {
      const auto rank = [&](std::size_t host) {
        const std::size_t n = racks[rack_[host]].size();
        return std::pair(n < wanted, n < wanted ? rack_.size() - n : n);
      };
      std::stable_sort(hosts.begin(), hosts.end(),
                       [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    }
    hosts.resize(wanted);
    std::ranges::sort(hosts);
    return hosts;
  }
  static std::ptrdiff_t PlaceIn(const std::vector<std::size_t>& rack, std::size_t host) {
    return std::ranges::find(rack, host) - rack.begin();
  }

  void Sum() {
    std::vector<double> completions;
    double host_s = 0, spread = 0, last = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      QueueRun::Row& row = run_.jobs[j];
      std::vector<std::size_t> racks;
      for (const std::size_t host : row.hosts) racks.push_back(rack_[host]);
      std::ranges::sort(racks);
      racks.erase(std::unique(racks.begin(), racks.end()), racks.end());
      row.racks = racks.size();
      row.fewest_racks = FewestRacks(rack_sizes_, row.hosts.size());
      const double held = static_cast<double>(row.hosts.size()) * (row.end_s - row.start_s);
      host_s += held;
      spread += held * static_cast<double>(row.racks) / static_cast<double>(row.fewest_racks);
      run_.mean_wait_s += row.start_s - jobs_[j].arrival_s;
      completions.push_back(row.end_s - jobs_[j].arrival_s);
      run_.mean_completion_s += completions.back();
      last = std::max(last, row.end_s);
    }
    const auto n = static_cast<double>(jobs_.size());
    run_.mean_wait_s /= n;
    run_.mean_completion_s /= n;
    std::ranges::sort(completions);
    run_.p95_completion_s = completions[(completions.size() * 95 + 99) / 100 - 1];
    run_.makespan_s = last - jobs_.front().arrival_s;
    if (host_s <= 0) return;
    run_.utilisation = host_s / (static_cast<double>(rack_.size()) * run_.makespan_s);
    run_.racks_over_fewest = spread / host_s;
  }

  const std::span<const QueuedJob> jobs_;
  const std::span<const std::size_t> rack_;
  const QueueOrder order_;
  const HostChoice choice_;
  const std::uint64_t seed_;
  const TimeOnHosts& time_;
  std::vector<char> free_;  // by host
  std::size_t idle_;        // hosts that are
  const std::vector<std::size_t> rack_sizes_;
  std::vector<std::size_t> waiting_;            // jobs, first come first
  std::multimap<double, std::size_t> running_;  // by end
  QueueRun run_;
};

}  // namespace

std::vector<std::size_t> RackSizes(std::span<const std::size_t> rack) {
  std::map<std::size_t, std::size_t> hosts_of;
  for (const std::size_t r : rack) ++hosts_of[r];
  std::vector<std::size_t> sizes;
  for (const auto& [r, hosts] : hosts_of) sizes.push_back(hosts);
  std::ranges::sort(sizes, std::greater());
  return sizes;
}

std::size_t FewestRacks(std::span<const std::size_t> sizes, std::size_t hosts) {
  std::size_t racks = 0;
  for (std::size_t held = 0; held < hosts; held += sizes[racks++]) {
  }
  return racks;
}

Result<QueueRun> RunQueue(std::span<const QueuedJob> jobs, std::span<const std::size_t> rack,
                          QueueOrder order, HostChoice choice, std::uint64_t seed,
                          const TimeOnHosts& time) {
  return Scheduler(jobs, rack, order, choice, seed, time).Run();
}

}  // namespace orrery::search
