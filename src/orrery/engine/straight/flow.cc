// The main loop at flow grain: a collective is one fluid a channel over the cluster's links, from
// its last arrival on.
//
// Who runs when. An NVLink domain with its ranks is a process of its own. A collective inside a
// domain that nobody can touch is settled there, ahead of the clock; these are nearly all. Every
// other meeting belongs to the coordinator, who owns the one network: domains post arrivals to it
// with their times, and it hands back who started and who ended when. So a domain runs through
// whole pieces of an iteration by itself, domains side by side on several threads.
//
// Who may go how far. A domain's own events are the ends of pieces of work beside a communication
// that is under way (Machine). It takes those that lie no later than its horizon: where none of its
// communications is with the coordinator there is none; else the earliest time at which one of them
// may start (not before its last known arrival) or end (not before what it takes alone), or at
// which anything at all may happen. The coordinator takes all that happens before the earliest
// arrival still to come: each domain's next event plus its Lookahead. Whoever is earliest of all
// can always go on, so that nothing waits for ever.
//
// Threads. The coordinator hands out domains that can run, goes on as far as those in hand allow,
// and takes part. At an instant it knows all arrivals up to then, in whatever order they came to
// it, and a domain takes its events in the order of time: so a result does not depend on threads.
// Where several jobs share the cluster and the short ones repeat until the longest ends, it waits
// for all that run and lets nobody run ahead, so that what repeats is the same too.
//
// Cost: as Machine; a message of 40 bytes an arrival, a start or an end of a member with the
// coordinator; a round of the coordinator O(domains), one for every 64th part of them that ran.
#include <algorithm>
#include <atomic>

#include "orrery/des/event_queue.h"
#include "orrery/engine/flow_grain.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/straight/deadlock.h"
#include "orrery/engine/straight/lookahead.h"
#include "orrery/engine/straight/machine.h"
#include "orrery/engine/thread_pool.h"

namespace orrery::engine {
namespace {

constexpr std::uint32_t kCoordinator = kNobody;

// One meeting at a time per group or pair: its members come in stream order.
struct alignas(64) FlowMeet {
  SimTime first = 0, latest = 0, start = 0;
  SimTime bound = 0;                 // before which nobody hears of it; of the coordinator's
  const CommPrice* price = nullptr;  // of the first to come, by time and rank
  std::uint32_t first_rank = 0;
  std::uint32_t domain = kCoordinator;
  std::uint32_t arrived = 0;
  std::uint8_t stream[2] = {0, 0};  // of the members; a pair: of sender and of receiver
  std::uint8_t came = 0;            // a pair: bit 0 the sender, bit 1 the receiver
  bool settles = true;              // a pair: both ends stand still in it with NICs of their own

  void Reset() {
    arrived = 0;
    came = 0;
    settles = true;
  }
};

// From a domain to the coordinator: a member arrives.
struct Arrival {
  SimTime time = 0;
  std::uint32_t meet = 0, rank = 0;
  const CommPrice* price = nullptr;
  std::uint8_t stream = 0, end = 0;
  bool settles = false;
};
// From the coordinator: the communication at the head of a stream started, or a part of it ended.
struct News {
  SimTime time = 0, start = 0;
  std::uint64_t part_key = 0;  // 0: it started
  std::uint32_t rank = 0, meet = 0;
  std::uint8_t stream = 0;
};

struct Wakeup {
  SimTime time = 0;
  std::uint32_t rank = 0, version = 0;
  friend bool operator<(const Wakeup& a, const Wakeup& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.version < b.version;
  }
};

struct alignas(64) Domain {
  std::vector<std::uint32_t> ranks;
  des::EventQueue<Wakeup> wakes;
  std::vector<News> news;
  std::size_t read = 0;  // of them
  std::vector<Arrival> arrivals;
  std::vector<std::uint32_t> starts;    // its own meets that the network must see
  std::vector<std::uint32_t> complete;  // its own meets whose members have all come
  std::vector<std::uint32_t> open;      // meets with the coordinator, once for each member
  std::vector<std::pair<SimTime, const FlowGrain::Lone*>> logged;
  SimTime horizon = 0;
  SimTime look = 0;   // from its next event or news to an arrival, at least
  SimTime floor = 0;  // while it runs: no arrival is earlier
  std::uint64_t events = 0;
  bool begun = false;
  bool runs = false;                   // is in hand; the coordinator's
  std::atomic<bool> finished = false;  // the run in hand
  Status error;

  SimTime next() const {
    return std::min(wakes.NextTime(), read < news.size() ? news[read].time : kNever);
  }
};

class FlowLoop : public Machine<FlowLoop> {
 public:
  FlowLoop(const LoopInputs& in, Tracer* tracer, network::Network* network, FlowGrain* flow)
      : Machine(*in.inputs->graph, *in.layout, OptionsOf(in), tracer),
        network_(network),
        flow_(flow),
        logs_(in.options->link_steps > 0),
        meets_(in.layout->meets.size()) {
    MakeDomains(in);
    MakeLookahead();
    if (flow_->steady()) PrepareMeets();
  }

  std::size_t domains() const { return domains_.size(); }

  Status Run(int threads) {
    ThreadPool pool(threads, domains_.size(), [this](std::uint32_t d) { RunDomain(domains_[d]); });
    const std::size_t worth =
        options_.repeat_until_stopped ? domains_.size() : domains_.size() / 64;
    for (std::uint32_t d = 0; d < domains_.size(); ++d) HandOut(&pool, d);
    for (;;) {
      Work(&pool, error_.ok() ? worth : domains_.size());
      if (error_.ok() && in_hand_.empty() && options_.repeat_until_stopped && finished()) return {};
      const SimTime until = EarliestArrival();
      if (in_hand_.empty()) {
        if (!error_.ok()) return error_;
        // A job alone runs until all is quiet: what is on its way when the last iteration ends
        // lands too.
        if (until == kNever && NextTime() == kNever) {
          return finished() ? Status() : Deadlock(*this, graph_, layout_, meets_);
        }
      }
      if (!error_.ok()) continue;
      Advance(&pool, until);
      HandOutRest(&pool, std::min(until_, NextTime()));
    }
  }

  // Machine's hooks.
  void Post(std::uint32_t r, int stream_index, SimTime arrival) {
    const StreamState& q = stream(r, stream_index);
    const Item& item = head(q);
    const SimRank& rank = layout_.ranks[r];
    Domain& d = domains_[domain_of_[r]];
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const CommPrice& comm = q.block->comms[item.first + i];
      if (comm.plan < 0) continue;
      Arrival a{arrival,
                MeetOf(rank, comm.comm),
                r,
                &comm,
                static_cast<std::uint8_t>(stream_index),
                EndOf(comm.comm)};
      if (a.meet == kNobody) {
        Mismatch(&d.error, r, comm, nullptr);
        continue;
      }
      if (meets_[a.meet].domain != kCoordinator) {
        if (Arrive(a, &d.error)) d.complete.push_back(a.meet);
        continue;
      }
      a.settles = a.end != 0 && item.blocking && item.one_way && (!comm.nic || rank.private_nic) &&
                  MaySettle(r, stream_index, comm.nic);
      d.arrivals.push_back(a);
      d.horizon = std::min(d.horizon, arrival);
    }
  }
  void Wake(std::uint32_t r, SimTime time, std::uint32_t version) {
    domains_[domain_of_[r]].wakes.Push({time, r, version});
  }

  std::uint64_t events() const {
    std::uint64_t sum = events_;
    for (const Domain& d : domains_) sum += d.events;
    return sum;
  }

 private:
  struct Event {
    SimTime time = 0;
    std::uint32_t meet = 0;
    bool ends = false;
    friend bool operator<(const Event& a, const Event& b) {
      return a.ends != b.ends ? a.ends : a.meet < b.meet;
    }
  };

  // --- Setting up.

  void MakeDomains(const LoopInputs& in) {
    const cluster::Cluster& cluster = *in.inputs->cluster;
    std::vector<std::uint32_t> number(cluster.nvlink_domains(), kNobody);
    std::uint32_t count = 0;
    for (const SimRank& rank : layout_.ranks) {
      const DeviceId device = in.inputs->placement->device[rank.rank.index()];
      std::uint32_t& d = number[cluster.nvlink_domain(device)];
      if (d == kNobody) d = count++;
      domain_of_.push_back(d);
    }
    domains_ = std::vector<Domain>(count);
    for (std::uint32_t r = 0; r < domain_of_.size(); ++r) {
      domains_[domain_of_[r]].ranks.push_back(r);
    }
    for (std::uint32_t id = 0; id < meets_.size(); ++id) {
      const auto members = layout_.members(id);
      const std::uint32_t d = domain_of_[members[0]];
      // A rank may stand for others far away.
      const auto devices = flow_->Members(id);
      const bool inside =
          std::all_of(members.begin(), members.end(),
                      [&](std::uint32_t m) { return domain_of_[m] == d; }) &&
          std::all_of(devices.begin(), devices.end(), [&](DeviceId device) {
            return cluster.nvlink_domain(device) == cluster.nvlink_domain(devices[0]);
          });
      // Over PCIe, groups of one host share its switches.
      if (inside && !layout_.meets[id].pair && !cluster.peers_over_pcie()) meets_[id].domain = d;
    }
  }

  void MakeLookahead() {
    std::vector<std::array<bool, graph::kGroupSlots>> inside(layout_.variants.size());
    for (auto& slots : inside) slots.fill(flow_->steady());
    for (const SimRank& rank : layout_.ranks) {
      for (std::size_t s = 0; s < graph::kGroupSlots; ++s) {
        if (rank.meet[s] != kNobody && meets_[rank.meet[s]].domain == kCoordinator) {
          inside[rank.variant][s] = false;
        }
      }
    }
    lookahead_ = std::make_unique<Lookahead>(graph_, layout_, inside);
  }

  void PrepareMeets() {
    for (std::uint32_t r = 0; r < layout_.ranks.size(); ++r) {
      const SimRank& rank = layout_.ranks[r];
      for (const BlockPrice* block : layout_.variants[rank.variant].blocks) {
        if (block == nullptr) continue;
        for (const CommPrice& comm : block->comms) {
          if (comm.plan < 0) continue;
          const std::uint32_t id = MeetOf(rank, comm.comm);
          if (id == kNobody || layout_.members(id)[0] != r) continue;
          if (EndOf(comm.comm) == 0 && (comm.nic || meets_[id].domain == kCoordinator)) continue;
          flow_->Prepare(id, comm.plan, comm.cost);
        }
      }
    }
  }

  // --- A domain, on any thread.

  void RunDomain(Domain& d) {
    if (!d.begun) {
      d.begun = true;
      for (const std::uint32_t r : d.ranks) {
        Step(r);
        Settle(d);
      }
    }
    while (d.error.ok()) {
      const SimTime wake = d.wakes.NextTime();
      if (d.read < d.news.size() && d.news[d.read].time < wake) {
        TakeNews(d);
      } else if (wake <= d.horizon && wake != kNever) {
        const Wakeup w = d.wakes.Top();
        d.wakes.Pop();
        ++d.events;
        OnWake(w.rank, w.version);
      } else {
        break;
      }
      Settle(d);
    }
    if (d.read == d.news.size()) {
      d.news.clear();
      d.read = 0;
    }
    d.look = LookOf(d);
    d.finished.store(true, std::memory_order_release);
  }

  // All of an instant.
  void TakeNews(Domain& d) {
    const SimTime time = d.news[d.read].time;
    for (; d.read < d.news.size() && d.news[d.read].time == time; ++d.read) {
      const News& n = d.news[d.read];
      if (n.part_key == 0) {
        OnStart(n.rank, n.stream, n.time);
      } else {
        OnPartEnd(n.rank, n.stream, n.start, n.time, n.part_key);
      }
    }
  }

  SimTime LookOf(const Domain& d) const {
    if (options_.repeat_until_stopped || options_.jitter > 0) return 0;
    SimTime look = kMaxDuration;
    for (const std::uint32_t r : d.ranks) {
      const RankState& s = states()[r];
      if (s.status == RankStatus::kDone) continue;
      if (s.busy > 0) return 0;
      for (int i = 0; i < streams(); ++i) {
        if (stream(r, i).queue_head != kNobody) return 0;
      }
      look = std::min(look, lookahead_->ToNext(layout_.ranks[r].variant, s.call, s.layer, s.item));
    }
    return look;
  }

  // Meetings whose last member has come: those that nothing can touch any more are settled at once,
  // ahead of the clock; the network sees the others when their time comes.
  void Settle(Domain& d) {
    while (!d.complete.empty()) {
      const std::uint32_t id = d.complete.back();
      d.complete.pop_back();
      FlowMeet& meet = meets_[id];
      FlowGrain::Lone* lone =
          Untouchable(id) ? flow_->Find(id, meet.price->plan, meet.price->cost) : nullptr;
      if (lone == nullptr) {
        d.starts.push_back(id);
        d.horizon = std::min(d.horizon, meet.latest);
        continue;
      }
      ++d.events;
      ++lone->times;
      if (logs_) d.logged.emplace_back(meet.latest, lone);
      const FlowMeet done = meet;
      meet.Reset();  // members may come again at once
      const auto members = layout_.members(id);
      for (const std::uint32_t m : members) OnStart(m, done.stream[0], done.latest);
      for (const std::uint32_t m : members) {
        OnPartEnd(m, done.stream[0], done.latest, done.latest + lone->time, 1);
      }
    }
  }

  // No member can do anything else meanwhile, and NVLink ports are a rank's own.
  bool Untouchable(std::uint32_t id) const {
    const FlowMeet& meet = meets_[id];
    if (meet.price->nic) return false;
    const auto members = layout_.members(id);
    return std::all_of(members.begin(), members.end(),
                       [&](std::uint32_t m) { return MaySettle(m, meet.stream[0], false); });
  }

  // True if it was the last.
  bool Arrive(const Arrival& a, Status* error) {
    FlowMeet& meet = meets_[a.meet];
    if (meet.arrived == 0) {
      meet.latest = a.time;
      meet.first = a.time;
      meet.first_rank = a.rank;
      meet.price = a.price;
    } else {
      meet.latest = std::max(meet.latest, a.time);
      if (meet.price->digest != a.price->digest) {
        Mismatch(error, a.rank, *a.price, meet.price);
        return false;
      }
      if (a.time < meet.first || (a.time == meet.first && a.rank < meet.first_rank)) {
        meet.first = a.time;
        meet.first_rank = a.rank;
        meet.price = a.price;
      }
    }
    meet.came |= a.end;
    meet.settles = meet.settles && a.settles;
    meet.stream[a.end == 2 ? 1 : 0] = a.stream;
    return ++meet.arrived == layout_.meets[a.meet].count;
  }

  void Mismatch(Status* error, std::uint32_t r, const CommPrice& comm, const CommPrice* other) {
    if (error->ok()) *error = MismatchReport(layout_.ranks[r].rank, comm, other);
  }

  // --- The coordinator.

  void HandOut(ThreadPool* pool, std::uint32_t number) {
    Domain& d = domains_[number];
    d.runs = true;
    // While something is open, no news may come to it: all news is later than its next event.
    d.floor = d.begun ? d.next() + (d.open.empty() ? d.look : 0) : 0;
    d.finished.store(false, std::memory_order_relaxed);
    in_hand_.push_back(number);
    pool->Add(number);
  }

  // Takes part until some of the domains in hand are done, or all that there are.
  void Work(ThreadPool* pool, std::size_t worth) {
    const std::size_t most = in_hand_.size();
    const auto enough = static_cast<std::uint32_t>(std::clamp<std::size_t>(worth, 1, most + 1));
    while (!in_hand_.empty() && pool->done() - collected_ < std::min<std::size_t>(enough, most)) {
      const std::uint32_t seen = pool->done();
      if (!pool->RunOne() && seen - collected_ < most) pool->WaitPast(seen);
    }
    Gather();
  }

  // What the domains that are done have to say.
  void Gather() {
    std::size_t still = 0;
    for (const std::uint32_t number : in_hand_) {
      Domain& d = domains_[number];
      if (!d.finished.load(std::memory_order_acquire)) {
        in_hand_[still++] = number;
        continue;
      }
      ++collected_;
      d.runs = false;
      if (!d.error.ok() && error_.ok()) error_ = d.error;
      for (const Arrival& a : d.arrivals) {
        d.open.push_back(a.meet);
        const bool all = Arrive(a, &error_);
        meets_[a.meet].bound = meets_[a.meet].latest;
        if (all) Schedule(a.meet);
      }
      d.arrivals.clear();
      for (const std::uint32_t id : d.starts) {
        d.open.insert(d.open.end(), layout_.meets[id].count, id);
        meets_[id].bound = meets_[id].latest;
        queue_.Push({meets_[id].latest, id, false});
      }
      d.starts.clear();
      for (const auto& [start, lone] : d.logged) flow_->LogSettled(start, *lone);
      d.logged.clear();
    }
    in_hand_.resize(still);
  }

  // Before which no domain posts to the coordinator.
  SimTime EarliestArrival() const {
    SimTime earliest = kNever;
    for (const Domain& d : domains_) {
      if (d.runs) {
        earliest = std::min(earliest, d.floor);
      } else if (const SimTime next = d.next(); next != kNever) {
        earliest = std::min(earliest, next + d.look);
      }
    }
    return earliest;
  }

  // All members have come. A pair whose path is its own, both ends standing still, needs no
  // network.
  void Schedule(std::uint32_t id) {
    FlowMeet& meet = meets_[id];
    FlowGrain::Lone* lone =
        meet.settles ? flow_->Find(id, meet.price->plan, meet.price->cost) : nullptr;
    if (lone == nullptr) return queue_.Push({meet.latest, id, false});
    ++lone->times;
    if (logs_) flow_->LogSettled(meet.latest, *lone);
    meet.start = meet.latest;
    meet.bound = meet.latest + lone->time;
    queue_.Push({meet.bound, id, true});
  }

  SimTime NextTime() const { return std::min(queue_.NextTime(), network_->next_time()); }

  // All that happens before `until`, which comes nearer as domains get news.
  void Advance(ThreadPool* pool, SimTime until) {
    until_ = until;
    for (SimTime now = NextTime(); now < until_ && error_.ok(); now = NextTime()) {
      now_ = now;
      if (network_->next_time() == now) EndFluids();
      flow_->FollowFailures(now);
      while (queue_.NextTime() == now) {
        const Event e = queue_.Top();
        queue_.Pop();
        ++events_;
        if (e.ends) {
          End(e.meet);
        } else {
          Start(e.meet);
        }
      }
      if (!flow_->status().ok() && error_.ok()) error_ = flow_->status();
      for (const std::uint32_t d : told_) {
        if (domains_[d].runs) continue;  // told twice, and handed out
        until_ = std::min(until_, now + domains_[d].look);
        // With nothing open no more news can come.
        if (!domains_[d].open.empty() || options_.repeat_until_stopped) continue;
        domains_[d].horizon = kNever;
        HandOut(pool, d);
      }
      told_.clear();
    }
  }

  // Domains that have news, or events within their horizon.
  void HandOutRest(ThreadPool* pool, SimTime now) {
    for (std::uint32_t number = 0; number < domains_.size(); ++number) {
      Domain& d = domains_[number];
      if (d.runs || d.next() == kNever) continue;
      d.horizon = options_.repeat_until_stopped ? now : kNever;
      for (const std::uint32_t id : d.open) {
        d.horizon = std::min(d.horizon, std::max(now, meets_[id].bound));
      }
      if (d.read < d.news.size() || d.next() <= d.horizon) HandOut(pool, number);
    }
  }

  void Tell(const News& news) {
    const std::uint32_t d = domain_of_[news.rank];
    domains_[d].news.push_back(news);
    if (told_.empty() || told_.back() != d) told_.push_back(d);
  }

  void Start(std::uint32_t id) {
    FlowMeet& meet = meets_[id];
    meet.start = now_;
    if (!layout_.meets[id].pair) {
      for (const std::uint32_t m : layout_.members(id)) {
        Tell({now_, now_, 0, m, id, meet.stream[0]});
      }
    }
    meet.bound = flow_->Start(now_, id, meet.price->plan, meet.price->cost);
  }

  void End(std::uint32_t id) {
    const FlowMeet done = meets_[id];
    meets_[id].Reset();
    const auto members = layout_.members(id);
    const bool pair = layout_.meets[id].pair;
    const std::uint64_t digest = done.price->digest;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::uint64_t key = pair ? Mix64(digest + i) | 1 : 1;
      Tell({now_, done.start, key, members[i], id, done.stream[pair ? i : 0]});
      auto& open = domains_[domain_of_[members[i]]].open;
      open.erase(std::find(open.begin(), open.end(), id));
    }
  }

  // Meets whose last fluid has ended, in the order of their numbers.
  void EndFluids() {
    completions_.clear();
    network_->AdvanceUntil(now_, &completions_);
    ended_.clear();
    for (const network::Completion& c : completions_) {
      ++events_;
      const std::uint32_t id = flow_->Complete(c.id);
      if (id != kNobody) ended_.push_back(id);
    }
    std::sort(ended_.begin(), ended_.end());
    for (const std::uint32_t id : ended_) End(id);
  }

  network::Network* network_;
  FlowGrain* flow_;
  const bool logs_;
  std::vector<FlowMeet> meets_;
  std::vector<Domain> domains_;
  std::vector<std::uint32_t> domain_of_;  // by simulated rank
  std::unique_ptr<Lookahead> lookahead_;
  des::EventQueue<Event> queue_;
  std::vector<std::uint32_t> in_hand_;  // domains in hand
  std::uint32_t collected_ = 0;         // of all that ever ran
  std::vector<std::uint32_t> told_;     // domains with news of this instant
  std::vector<network::Completion> completions_;
  std::vector<std::uint32_t> ended_;
  SimTime now_ = 0, until_ = 0;
  std::uint64_t events_ = 0;
  Status error_;
};

Result<LoopResult> RunOn(int threads, const LoopInputs& in, network::Network* network) {
  ORRERY_RETURN_IF_ERROR(network->SetupLinks(*in.inputs->cluster, {}, 0));
  if (in.options->link_steps > 0) {
    network->KeepUseLog(static_cast<std::size_t>(in.options->link_steps));
  }
  FlowGrain flow(in, network);
  Tracer tracer(*in.inputs->graph, *in.layout, *in.prices, in.sink);
  FlowLoop loop(in, &tracer, network, &flow);
  const auto most = static_cast<int>(std::min<std::size_t>(loop.domains(), 1024));
  threads = std::clamp(threads, 1, most);
  ORRERY_RETURN_IF_ERROR(loop.Run(threads));

  LoopResult result = loop.Collect();
  result.events = loop.events();
  result.threads_used = threads;
  const auto statistics = network->statistics();
  result.traffic.assign(statistics.begin(), statistics.end());
  flow.AddSettledTraffic(&result.traffic);
  result.use = std::move(*network->use_log());
  return result;
}

}  // namespace

Result<LoopResult> RunFlow(const LoopInputs& in, const MakeNetwork& make) {
  // A sink takes the intervals of all ranks from one thread.
  const int threads = in.sink != nullptr ? 1 : in.options->threads;
  ORRERY_ASSIGN_OR_RETURN(auto network, make());
  Result<LoopResult> run = RunOn(threads, in, network.get());
  if (run.ok() || threads <= 1) return run;
  // Which of several faults threads meet first is chance; one thread meets the same one always.
  ORRERY_ASSIGN_OR_RETURN(network, make());
  return RunOn(1, in, network.get());
}

}  // namespace orrery::engine
