// The main loop for networks that serve transfers: every collective is lowered to chunks, each
// member starts on its own arrival and waits for data and credits, and partitions run in parallel.
//
// A partition owns whole NVLink domains with their ranks. Only messages and returned credits cross,
// and both take at least the smallest latency between partitions, so all may run that far ahead
// together (conservative windows). Ranks touch each other by these alone: within one instant the
// order of ranks is immaterial, and a rank's own events have stable keys. So the result is the same
// for any number of partitions.
#include <algorithm>
#include <atomic>
#include <thread>

#include "orrery/des/event_queue.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/straight/deadlock.h"
#include "orrery/engine/straight/machine.h"
#include "orrery/engine/straight/meeting.h"
#include "orrery/engine/straight/wiring.h"

namespace orrery::engine {
namespace {

enum class What : std::uint8_t { kCredit, kWorkDone, kSend, kLanes, kPost, kWake };

struct Event {
  SimTime time = 0;
  std::uint32_t rank = 0;
  What what = What::kWake;
  std::uint64_t key = 0;   // a lane, a stream, a wire or a wake's version
  std::int64_t bytes = 0;  // kSend
  friend bool operator<(const Event& a, const Event& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.what != b.what) return a.what < b.what;
    if (a.key != b.key) return a.key < b.key;
    return a.bytes < b.bytes;
  }
};

struct Lane {
  const Bound* bound = nullptr;
  std::uint32_t member = 0;
  int number = 0;  // within the schedule
  std::uint64_t index = 0;
  collective::Step step;
};

class LoweredLoop : public Machine<LoweredLoop> {
 public:
  LoweredLoop(const LoopInputs& in, const MachineOptions& options, Tracer* tracer, Wiring* wiring,
              std::span<const std::uint32_t> partition_of, std::uint32_t self,
              std::unique_ptr<network::Network> network)
      : Machine(*in.inputs->graph, *in.layout, options, tracer),
        wiring_(*wiring),
        partition_of_(partition_of),
        self_(self),
        network_(std::move(network)),
        lanes_(in.layout->ranks.size() * static_cast<std::size_t>(in.layout->streams)),
        left_(in.layout->ranks.size() * static_cast<std::size_t>(in.layout->streams)),
        shares_(network_->name() == "flow-chunks" || network_->name() == "packet") {
    std::uint32_t mine = 0;
    for (std::uint32_t p : partition_of_) mine += p == self_ ? 1 : 0;
    SetRunning(mine);
  }

  void Begin() {
    for (std::uint32_t r = 0; r < partition_of_.size(); ++r) {
      if (partition_of_[r] == self_) Step(r);
    }
  }

  SimTime next_time() { return std::min(queue_.NextTime(), network_->next_time()); }

  // Processes everything before `end`.
  void RunUntil(SimTime end) {
    for (SimTime next = next_time(); next < end; next = next_time()) {
      if (network_->next_time() <= next) {
        TakeDeliveries(next);
      } else {
        const Event e = queue_.Top();
        queue_.Pop();
        now_ = e.time;
        ++events_;
        Take(e);
      }
    }
  }

  // What crosses partitions; the driver carries it between windows.
  struct Credit {
    SimTime time = 0;
    std::uint32_t wire = 0;
  };
  std::vector<std::vector<Credit>> credits_out;  // by partition
  std::vector<network::RemoteHop> hops_out;
  void CollectHops() { network_->TakeRemote(&hops_out); }
  void AcceptCredit(const Credit& c) {
    queue_.Push({c.time, wiring_.wires[c.wire].from, What::kCredit, c.wire});
  }
  network::Network& network() { return *network_; }
  std::uint64_t events() const { return events_; }

  // Machine's hooks.
  void Post(std::uint32_t r, int stream_index, SimTime arrival) {
    queue_.Push({arrival, r, What::kPost, static_cast<std::uint64_t>(stream_index)});
  }
  void Wake(std::uint32_t r, SimTime time, std::uint32_t version) {
    queue_.Push({time, r, What::kWake, version});
  }

 private:
  std::vector<Lane>& lanes(std::uint32_t r, int s) { return lanes_[slot(r, s)]; }

  void Take(const Event& e) {
    switch (e.what) {
      case What::kWake:
        OnWake(e.rank, static_cast<std::uint32_t>(e.key));
        break;
      case What::kPost:
        Prepare(e.rank, static_cast<int>(e.key));
        break;
      case What::kLanes:
      case What::kWorkDone: {
        LaneRef ref{e.rank, static_cast<std::uint8_t>(e.key >> 32),
                    static_cast<std::uint8_t>(e.key >> 16), static_cast<std::uint16_t>(e.key)};
        if (e.what == What::kWorkDone) {
          EndStep(ref);
        } else {
          TryStep(ref);
        }
        break;
      }
      case What::kSend: {
        Wire& w = wiring_.wires[e.key];
        const std::uint64_t salt =
            w.queue_pairs == 1 ? w.salt : w.salt + cluster::QueuePair(0, w.sent % w.queue_pairs);
        const network::Transfer t{Depart(static_cast<std::uint32_t>(e.key)),
                                  wiring_.device(w.from),
                                  wiring_.device(w.to),
                                  e.bytes,
                                  layout_.ranks[e.rank].rank.value,
                                  salt};
        network_->Start(now_, {&t, 1});
        break;
      }
      case What::kCredit: {
        Wire& w = wiring_.wires[e.key];
        ++w.credits;
        if (w.sender_waits.rank != kNobody) TryStep(std::exchange(w.sender_waits, LaneRef{}));
        break;
      }
    }
  }

  // The communication at the head of a stream begins on this rank: lanes start after its set-up.
  void Prepare(std::uint32_t r, int s) {
    const StreamState& q = stream(r, s);
    const Item& item = head(q);
    OnStart(r, s, now_);
    auto& list = lanes(r, s);
    list.clear();
    auto& left = left_[slot(r, s)];
    left.assign(item.count, 0);
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const CommPrice& comm = q.block->comms[item.first + i];
      if (comm.plan < 0) continue;
      const std::uint32_t meet = MeetOf(layout_.ranks[r], comm.comm);
      const Bound* bound = wiring_.Find(meet, comm.plan);
      if (bound == nullptr) continue;  // nobody behind the slot: the deadlock report names it
      const bool receives = comm.comm.collective == graph::Collective::kRecv;
      const std::uint32_t member = wiring_.MemberOf(meet, r, receives);
      const SimTime begin = now_ + bound->schedule->setup();
      for (int lane = 0; lane < bound->schedule->lanes(); ++lane) {
        const LaneRef ref{r, static_cast<std::uint8_t>(s), static_cast<std::uint8_t>(i),
                          static_cast<std::uint16_t>(list.size())};
        list.push_back({bound, member, lane, 0, bound->schedule->At(member, lane, 0)});
        ++left[i];
        queue_.Push({begin, r, What::kLanes, ref.key()});
      }
    }
  }

  // Starts the lane's next step if its data and its credit are there; else it waits for the first
  // that is missing.
  void TryStep(const LaneRef& ref) {
    Lane& lane = lanes(ref.rank, ref.stream)[ref.lane];
    if (lane.step.done) return EndLane(ref);
    Wire* in =
        lane.step.recv_connection < 0
            ? nullptr
            : &wiring_.wires[lane.bound->wire[static_cast<std::size_t>(lane.step.recv_connection)]];
    Wire* out =
        lane.step.send_connection < 0
            ? nullptr
            : &wiring_.wires[lane.bound->wire[static_cast<std::size_t>(lane.step.send_connection)]];
    if (in != nullptr && in->ready == 0) {
      in->receiver_waits = ref;
      return;
    }
    if (out != nullptr && out->credits == 0) {
      out->sender_waits = ref;
      return;
    }
    if (in != nullptr) --in->ready;
    if (out != nullptr) --out->credits;
    queue_.Push({now_ + lane.step.work, ref.rank, What::kWorkDone, ref.key()});
  }

  void EndStep(const LaneRef& ref) {
    Lane& lane = lanes(ref.rank, ref.stream)[ref.lane];
    const collective::Step step = lane.step;
    if (step.recv_connection >= 0) {
      const std::uint32_t id = lane.bound->wire[static_cast<std::size_t>(step.recv_connection)];
      const Wire& w = wiring_.wires[id];
      const Credit credit{now_ + w.credit_latency, id};
      const std::uint32_t owner = partition_of_[w.from];
      if (owner == self_) {
        AcceptCredit(credit);
      } else {
        credits_out[owner].push_back(credit);
      }
    }
    if (step.send_connection >= 0) {
      const std::uint32_t id = lane.bound->wire[static_cast<std::size_t>(step.send_connection)];
      queue_.Push({now_ + step.post, ref.rank, What::kSend, id, step.bytes});
    }
    ++lane.index;
    lane.step = lane.bound->schedule->At(lane.member, lane.number, lane.index);
    TryStep(ref);
  }

  void EndLane(const LaneRef& ref) {
    auto& left = left_[slot(ref.rank, ref.stream)];
    if (--left[ref.part] > 0) return;
    const StreamState& q = stream(ref.rank, ref.stream);
    const CommPrice& comm = q.block->comms[head(q).first + ref.part];
    std::uint64_t part_key = 1;
    if (comm.comm.collective == graph::Collective::kSend) part_key = Mix64(comm.digest) | 1;
    if (comm.comm.collective == graph::Collective::kRecv) part_key = Mix64(comm.digest + 1) | 1;
    OnPartEnd(ref.rank, ref.stream, q.arrival, now_, part_key);
  }

  void TakeDeliveries(SimTime time) {
    deliveries_.clear();
    now_ = network_->AdvanceUntil(time, &deliveries_);
    std::sort(deliveries_.begin(), deliveries_.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const network::Completion& c : deliveries_) {
      ++events_;
      if (shares_) {
        Land(c.id);
      } else {
        Receive(wiring_.wires[c.id]);
      }
    }
  }

  void Receive(Wire& w) {
    ++w.ready;
    if (w.receiver_waits.rank != kNobody) TryStep(std::exchange(w.receiver_waits, LaneRef{}));
  }

  // The number of a message in the network: its wire's where links are FIFOs; one of its own where
  // several messages of a wire share a link or its queue pairs take several paths.
  network::FlightId Depart(std::uint32_t wire) {
    const std::uint32_t number = wiring_.wires[wire].sent++;
    if (!shares_) return wire;
    if (free_.empty()) {
      free_.push_back(static_cast<network::FlightId>(flying_.size()));
      flying_.push_back({});
    }
    const network::FlightId id = free_.back();
    free_.pop_back();
    flying_[id] = {wire, number};
    return id;
  }

  // A short message may land before a longer one ahead of it, and is received after that.
  void Land(network::FlightId id) {
    early_.push_back(flying_[id]);
    free_.push_back(id);
    Wire& w = wiring_.wires[flying_[id].wire];
    const std::uint32_t wire = flying_[id].wire;
    for (;;) {
      const auto next = std::find_if(early_.begin(), early_.end(), [&](const Flying& f) {
        return f.wire == wire && f.number == w.landed;
      });
      if (next == early_.end()) return;
      early_.erase(next);
      ++w.landed;
      Receive(w);
    }
  }

  Wiring& wiring_;
  std::span<const std::uint32_t> partition_of_;  // by simulated rank
  std::uint32_t self_;
  std::unique_ptr<network::Network> network_;
  des::EventQueue<Event> queue_;
  std::vector<std::vector<Lane>> lanes_;          // by rank and stream
  std::vector<std::vector<std::uint32_t>> left_;  // lanes left, by part
  std::vector<network::Completion> deliveries_;
  struct Flying {
    std::uint32_t wire = 0, number = 0;  // of the wire's messages
  };
  const bool shares_;           // the network shares links and keeps no order
  std::vector<Flying> flying_;  // by flight
  std::vector<Flying> early_;   // landed before one ahead of them; few
  std::vector<network::FlightId> free_;
  SimTime now_ = 0;
  std::uint64_t events_ = 0;
};

// Runs the partitions window by window. There are some for each thread: who is done with its own
// takes another's, since what happens in a window is seldom spread evenly over the hosts.
class Driver {
 public:
  explicit Driver(const LoopInputs& in) : in_(in), wiring_(in) {}

  Result<LoopResult> Run() {
    wiring_.Build();
    ORRERY_RETURN_IF_ERROR(MakePartitions());
    const std::size_t n = loops_.size();
    if (n == 1) {
      loops_[0]->Begin();
      for (SimTime t = loops_[0]->next_time(); t != kNever && !Stopped();
           t = loops_[0]->next_time()) {
        loops_[0]->RunUntil(repeats() ? t + 1 : kNever);
      }
    } else {
      RunWindows();
    }
    for (const auto& loop : loops_) ORRERY_RETURN_IF_ERROR(loop->network().status());
    if (!Finished()) return Deadlock();
    return Collect();
  }

 private:
  bool repeats() const { return in_.repeats; }
  bool Finished() const {
    return std::all_of(loops_.begin(), loops_.end(), [](const auto& l) { return l->finished(); });
  }
  bool Stopped() const { return repeats() && Finished(); }

  Status MakePartitions() {
    const cluster::Cluster& cluster = *in_.inputs->cluster;
    const std::size_t per_domain = static_cast<std::size_t>(cluster.spec().gpus_per_nvlink_domain);
    const std::size_t domains = (cluster.devices() + per_domain - 1) / per_domain;
    // A sink has one writer, and several jobs end at one instant, not with a window.
    const bool alone = in_.sink != nullptr || repeats();
    const auto threads = static_cast<std::size_t>(alone ? 1 : in_.options->threads);
    threads_ = std::clamp<std::size_t>(threads, 1, domains);
    const std::size_t n = threads_ == 1 ? 1 : std::min(threads_ * kPartitionsEach, domains);
    const bool reduces =
        std::ranges::any_of(wiring_.wires, [](const Wire& w) { return cluster::InFabric(w.salt); });
    if (n > 1 && reduces) {
      return InvalidInput(
          "what switches of the fabric reduce (CollNet) comes from no partition: one partition "
          "(--threads 1)");
    }
    domain_owner_.resize(domains);
    for (std::size_t d = 0; d < domains; ++d) {
      domain_owner_[d] = static_cast<std::uint32_t>(d * n / domains);
    }
    for (std::uint32_t r = 0; r < in_.layout->ranks.size(); ++r) {
      owner_.push_back(domain_owner_[cluster.nvlink_domain(wiring_.device(r))]);
    }
    const MachineOptions options = OptionsOf(in_);
    for (std::uint32_t p = 0; p < n; ++p) {
      tracers_.push_back(
          std::make_unique<Tracer>(*in_.inputs->graph, *in_.layout, *in_.prices, in_.sink));
      ORRERY_ASSIGN_OR_RETURN(auto network,
                              network::Create(in_.inputs->network, in_.inputs->network_parameters));
      ORRERY_RETURN_IF_ERROR(network->SetupLinks(cluster, domain_owner_, p));
      lookahead_ = std::min(lookahead_, network->lookahead());
      if (in_.options->link_steps > 0) {
        network->KeepUseLog(static_cast<std::size_t>(in_.options->link_steps));
      }
      loops_.push_back(std::make_unique<LoweredLoop>(in_, options, tracers_.back().get(), &wiring_,
                                                     owner_, p, std::move(network)));
      loops_.back()->credits_out.resize(n);
    }
    return {};
  }

  // Each window: everyone runs to the same end, then what crossed is carried over. Windows that
  // promise little work are run by one thread: how little is found out, by whether the threads that
  // met for the last ones slept (meeting.h).
  void RunWindows() {
    constexpr std::uint64_t kWorthMeeting = 64, kWorthWaking = 4096;  // events of the window before
    std::uint64_t worth = kWorthMeeting;
    const std::size_t n = loops_.size();
    SimTime end = 0;
    bool more = true;
    Meeting meeting(static_cast<std::uint32_t>(threads_));
    // By partition, the last window that somebody has taken it for.
    std::vector<std::atomic<std::uint64_t>> taken(n);
    std::uint64_t window = 0;
    const auto run = [&](std::size_t thread) {
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t p = (thread * n / threads_ + k) % n;
        if (taken[p].exchange(window, std::memory_order_relaxed) == window) continue;
        loops_[p]->RunUntil(end);
      }
    };
    std::vector<std::jthread> threads;
    for (std::size_t t = 1; t < threads_; ++t) {
      threads.emplace_back([&, t] {
        for (;;) {
          meeting.Arrive();
          if (!more) return;
          run(t);
          meeting.Arrive();
        }
      });
    }
    for (auto& l : loops_) l->Begin();
    std::uint64_t events = 0;
    for (;;) {
      for (auto& l : loops_) l->CollectHops();
      Exchange();
      SimTime next = kNever;
      std::uint64_t so_far = 0;
      for (auto& l : loops_) {
        next = std::min(next, l->next_time());
        so_far += l->events();
      }
      if (next == kNever || Stopped()) break;
      end = lookahead_ == kNever ? kNever : next + lookahead_;
      if (so_far - events >= worth) {
        meeting.TakeSlept();
        ++window;
        meeting.Arrive();
        run(0);
        meeting.Arrive();
        worth = meeting.TakeSlept() ? std::min(2 * worth, kWorthWaking)
                                    : std::max(worth - worth / 64, kWorthMeeting);
      } else {
        for (auto& l : loops_) l->RunUntil(end);
      }
      events = so_far;
    }
    more = false;
    meeting.Arrive();
  }

  void Exchange() {
    for (auto& from : loops_) {
      for (const network::RemoteHop& hop : from->hops_out) {
        loops_[hop.partition]->network().Deliver(hop);
      }
      from->hops_out.clear();
      for (std::size_t to = 0; to < loops_.size(); ++to) {
        for (const auto& credit : from->credits_out[to]) loops_[to]->AcceptCredit(credit);
        from->credits_out[to].clear();
      }
    }
  }

  Status Deadlock() {
    std::vector<Waiting> waiting;
    for (std::uint32_t r = 0; r < owner_.size(); ++r) {
      LoweredLoop& loop = *loops_[owner_[r]];
      if (loop.overfull() == r) return OverfullReport(*in_.inputs->graph, *in_.layout, r);
      if (loop.state(r).status == RankStatus::kDone) continue;
      Waiting w;
      w.rank = r;
      for (int s = 0; s < loop.streams(); ++s) {
        const StreamState& q = loop.stream(r, s);
        if (q.block_item == kNobody) continue;
        w.block = q.block;
        w.item = q.block_item;
        w.call = q.call;
        const std::uint32_t meet =
            MeetOf(in_.layout->ranks[r], q.block->comms[loop.head(q).first].comm);
        if (meet == kNobody) break;
        const MeetInfo& info = in_.layout->meets[meet];
        for (std::uint32_t i = 0; waiting.size() < kShownInDeadlock && i < info.count; ++i) {
          const std::uint32_t other = in_.layout->participants[info.first + i];
          if (other != r) w.missing.push_back(other);
        }
        break;
      }
      waiting.push_back(std::move(w));
    }
    return DeadlockReport(*in_.inputs->graph, *in_.layout, waiting);
  }

  LoopResult Collect() {
    LoopResult result;
    result.iterations = in_.iterations;
    result.threads_used = static_cast<int>(threads_);
    for (std::uint32_t r = 0; r < owner_.size(); ++r) {
      LoweredLoop& loop = *loops_[owner_[r]];
      for (int k = 0; k < in_.iterations; ++k) {
        result.ends.push_back(loop.end(r, k));
        result.compute_ends.push_back(loop.compute_end(r, k));
        result.finish_time = std::max(result.finish_time, loop.end(r, k));
      }
      result.parts.push_back(loop.parts(r));
      result.hashes.push_back(loop.states()[r].hash);
    }
    for (auto& loop : loops_) {
      result.events += loop->events();
      const auto statistics = loop->network().statistics();
      result.traffic.resize(std::max(result.traffic.size(), statistics.size()));
      for (std::size_t l = 0; l < statistics.size(); ++l) {
        result.traffic[l].bytes += statistics[l].bytes;
        result.traffic[l].busy += statistics[l].busy;
      }
      if (const auto* packets = loop->network().packet_counts()) result.packets = *packets;
      network::UseLog* log = loop->network().use_log();
      if (log == nullptr || !log->on()) continue;
      if (result.use.on()) {
        result.use.Merge(std::move(*log));
      } else {
        result.use = std::move(*log);
      }
    }
    return result;
  }

  static constexpr std::size_t kPartitionsEach = 2;

  const LoopInputs& in_;
  Wiring wiring_;
  std::size_t threads_ = 1;
  std::vector<std::uint32_t> domain_owner_, owner_;
  std::vector<std::unique_ptr<Tracer>> tracers_;
  std::vector<std::unique_ptr<LoweredLoop>> loops_;
  SimTime lookahead_ = kNever;
};

}  // namespace

Result<LoopResult> RunLowered(const LoopInputs& in) { return Driver(in).Run(); }

}  // namespace orrery::engine
