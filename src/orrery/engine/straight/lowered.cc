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

#include "orrery/base/threads.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/straight/arrivals.h"
#include "orrery/engine/straight/chunks.h"
#include "orrery/engine/straight/courses.h"
#include "orrery/engine/straight/deadlock.h"
#include "orrery/engine/straight/machine.h"
#include "orrery/engine/straight/meeting.h"
#include "orrery/engine/straight/secluded.h"
#include "orrery/engine/straight/wiring.h"

namespace orrery::engine {
namespace {

class LoweredLoop : public Machine<LoweredLoop>, public Chunks<LoweredLoop> {
 public:
  LoweredLoop(const LoopInputs& in, const MachineOptions& options, Tracer* tracer, Wiring* wiring,
              const Secluded* secluded, std::span<const std::uint32_t> partition_of,
              std::uint32_t self, std::span<const std::vector<std::uint32_t>> partitions_of,
              std::unique_ptr<network::Network> network, std::unique_ptr<network::Network> links)
      : Machine(*in.inputs->graph, *in.layout, options, tracer),
        Chunks(wiring, std::move(network)),
        partition_of_(partition_of),
        self_(self),
        partitions_of_(partitions_of),
        arrivals_(*in.layout, partition_of, self),
        lanes_(in.layout->ranks.size() * static_cast<std::size_t>(in.layout->streams)),
        left_(in.layout->ranks.size() * static_cast<std::size_t>(in.layout->streams)),
        secluded_(*secluded) {
    std::uint32_t mine = 0;
    for (std::uint32_t p : partition_of_) mine += p == self_ ? 1 : 0;
    SetRunning(mine);
    if (links == nullptr) return;
    courses_ = std::make_unique<Courses>(in, wiring, std::move(links));
    gatherings_.resize(in.layout->meets.size());
  }

  void Begin() {
    for (std::uint32_t r = 0; r < partition_of_.size(); ++r) {
      if (partition_of_[r] == self_) Step(r);
    }
  }

  // Processes everything before `end`.
  void RunUntil(SimTime end) { RunEvents(end); }

  // What crosses partitions; the driver carries it between windows.
  std::vector<std::vector<Credit>> credits_out;  // by partition
  std::vector<network::RemoteHop> hops_out;
  std::vector<std::vector<Arrived>> arrivals_out;  // by partition
  void Hear(const Arrived& a) { arrivals_.Hear(a); }
  void CollectHops() { network_->TakeRemote(&hops_out); }
  std::uint64_t events() const {
    return events_run_ + (courses_ != nullptr ? courses_->events() : 0);
  }
  // By link, of collectives that took a course.
  std::span<const network::PortStatistics> course_traffic() const {
    return courses_ == nullptr ? std::span<const network::PortStatistics>() : courses_->traffic();
  }

  // Machine's hooks.
  void Post(std::uint32_t r, int stream_index, SimTime arrival) {
    queue_.Push({arrival, r, What::kPost, static_cast<std::uint64_t>(stream_index)});
  }
  void Wake(std::uint32_t r, SimTime time, std::uint32_t version) {
    queue_.Push({time, r, What::kWake, version});
  }

 private:
  friend class Chunks<LoweredLoop>;
  // Members of a secluded group that have come for a collective, before any of them begins.
  struct Gathering {
    SimTime decide = 0;
    int plan = -1, stream = 0;
    std::vector<std::uint32_t> ranks;
    std::vector<SimTime> arrivals;
    std::uint32_t late = 0;  // of the last one, which went chunk by chunk, still to come
    bool off = false;        // members come in ways that are not followed here
  };

  std::vector<Lane>& lanes(std::uint32_t r, int s) { return lanes_[slot(r, s)]; }
  Lane& lane(const LaneRef& ref) { return lanes(ref.rank, ref.stream)[ref.lane]; }

  void Take(const Event& e) {
    switch (e.what) {
      case What::kWake:
        return OnWake(e.rank, static_cast<std::uint32_t>(e.key));
      case What::kPost:
        return Prepare(e.rank, static_cast<int>(e.key));
      case What::kGather:
        return Decide(static_cast<std::uint32_t>(e.key));
      case What::kCourseEnd: {
        return EndPart(e.rank, static_cast<int>(e.key), 0);
      }
      default:
        return TakeChunk(e);
    }
  }

  // The communication at the head of a stream begins on this rank.
  void Prepare(std::uint32_t r, int s) {
    OnStart(r, s, now_);
    NoteArrivals(r, s);
    if (!Gather(r, s)) Expand(r, s, now_);
  }

  void NoteArrivals(std::uint32_t r, int s) {
    const StreamState& q = stream(r, s);
    const Item& item = head(q);
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const Place at = PlaceOf(r, q.block->comms[item.first + i]);
      if (at.bound == nullptr) continue;
      const Arrived a = arrivals_.Come(at.meet, at.member, now_);
      if (partitions_of_.empty()) continue;
      for (const std::uint32_t p : partitions_of_[at.meet]) {
        if (p != self_) arrivals_out[p].push_back(a);
      }
    }
  }

  // Where the rank stands in a communication.
  struct Place {
    std::uint32_t meet = kNobody, member = 0;
    const Bound* bound = nullptr;  // null: nobody is behind the slot
  };
  Place PlaceOf(std::uint32_t r, const CommPrice& comm) const {
    if (comm.plan < 0) return {};
    const std::uint32_t meet = MeetOf(layout_.ranks[r], comm.comm);
    const Bound* bound = wiring_.Find(meet, comm.plan);
    if (bound == nullptr) return {};
    const bool receives = comm.comm.collective == graph::Collective::kRecv;
    return {meet, wiring_.MemberOf(meet, r, receives), bound};
  }

  // Its lanes start after its set-up.
  void Expand(std::uint32_t r, int s, SimTime arrival) {
    const StreamState& q = stream(r, s);
    const Item& item = head(q);
    auto& list = lanes(r, s);
    list.clear();
    auto& left = left_[slot(r, s)];
    left.assign(item.count, 0);
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const auto [meet, member, bound] = PlaceOf(r, q.block->comms[item.first + i]);
      if (bound == nullptr) continue;  // the deadlock report names it
      const SimTime begin = arrival + bound->schedule->setup();
      for (int lane = 0; lane < bound->schedule->lanes(); ++lane) {
        const LaneRef ref{r, static_cast<std::uint8_t>(s), static_cast<std::uint8_t>(i),
                          static_cast<std::uint16_t>(list.size())};
        list.push_back({bound, member, lane, 0, bound->schedule->At(member, lane, 0)});
        ++left[i];
        queue_.Push({begin, r, What::kLanes, ref.key()});
      }
    }
  }

  // ---- courses ----

  // Whether nobody of the group ends before all have come.
  static bool NeedsAll(graph::Collective c) {
    using enum graph::Collective;
    return c == kAllReduce || c == kAllGather || c == kReduceScatter || c == kAllToAll;
  }

  // True: the rank waits for what Decide finds.
  bool Gather(std::uint32_t r, int s) {
    if (courses_ == nullptr) return false;
    const StreamState& q = stream(r, s);
    const CommPrice& comm = q.block->comms[head(q).first];
    if (head(q).count != 1 || comm.plan < 0 || !NeedsAll(comm.comm.collective)) return false;
    const std::uint32_t meet = MeetOf(layout_.ranks[r], comm.comm);
    if (meet == kNobody || secluded_.Find(meet) == nullptr) return false;
    Gathering& g = gatherings_[meet];
    const Bound* bound = wiring_.Find(meet, comm.plan);
    if (g.off || bound == nullptr || bound->schedule->setup() < 1) return false;
    if (g.late > 0) {
      --g.late;
      return false;
    }
    if (g.ranks.empty()) {
      g.plan = comm.plan;
      g.stream = s;
      g.decide = now_ + bound->schedule->setup() - 1;  // before anybody's first step
      queue_.Push({g.decide, r, What::kGather, meet});
    } else if (g.plan != comm.plan || g.stream != s ||
               std::ranges::find(g.ranks, r) != g.ranks.end()) {
      ExpandAll(&g);
      g.off = true;
      return false;
    }
    g.ranks.push_back(r);
    g.arrivals.push_back(now_);
    return true;
  }

  void ExpandAll(Gathering* g) {
    for (std::size_t i = 0; i < g->ranks.size(); ++i) {
      Expand(g->ranks[i], g->stream, g->arrivals[i]);
    }
    g->ranks.clear();
    g->arrivals.clear();
  }

  // The group takes its course if all members have come and nothing can come between; else it goes
  // chunk by chunk.
  void Decide(std::uint32_t meet) {
    Gathering& g = gatherings_[meet];
    if (g.ranks.empty()) return;  // went chunk by chunk already
    const auto members = layout_.members(meet);
    const Course* course = nullptr;
    if (g.ranks.size() == members.size() && MayTakeCourse(meet, g)) {
      std::vector<SimTime> after(members.size());
      for (std::size_t i = 0; i < g.ranks.size(); ++i) {
        after[wiring_.MemberOf(meet, g.ranks[i], false)] = g.arrivals[i] - g.arrivals[0];
      }
      course = &courses_->Find(meet, g.plan, *wiring_.Find(meet, g.plan), *secluded_.Find(meet),
                               std::move(after));
    }
    if (course == nullptr || !course->usable) {
      g.late = static_cast<std::uint32_t>(members.size() - g.ranks.size());
      return ExpandAll(&g);
    }
    courses_->Use(*course);
    for (std::size_t m = 0; m < members.size(); ++m) {
      queue_.Push({g.arrivals[0] + course->ends[m], members[m], What::kCourseEnd,
                   static_cast<std::uint64_t>(g.stream)});
    }
    g.ranks.clear();
    g.arrivals.clear();
  }

  // All members stand still in it, with nothing else of theirs on its links, and these are quiet.
  bool MayTakeCourse(std::uint32_t meet, const Gathering& g) const {
    const Secluded::Meet& group = *secluded_.Find(meet);
    for (const std::uint32_t r : g.ranks) {
      const auto apart = [&](const BlockPrice& block, const Item& item) {
        for (std::uint32_t i = 0; i < item.count; ++i) {
          const std::uint32_t other = MeetOf(layout_.ranks[r], block.comms[item.first + i].comm);
          if (std::ranges::binary_search(group.meets, other)) return false;
        }
        return true;
      };
      if (!StandsIn(r, g.stream) || !AllOthers(r, g.stream, apart)) return false;
    }
    return std::ranges::all_of(group.wires, [&](std::uint32_t id) {
      return wiring_.wires[id].credits == wiring_.wires[id].all_credits;
    });
  }

  void GiveBack(const Credit& credit) {
    const std::uint32_t owner = partition_of_[wiring_.wires[credit.wire].from];
    if (owner == self_) {
      AcceptCredit(credit);
    } else {
      credits_out[owner].push_back(credit);
    }
  }

  void EndLane(const LaneRef& ref) {
    auto& left = left_[slot(ref.rank, ref.stream)];
    if (--left[ref.part] == 0) EndPart(ref.rank, ref.stream, ref.part);
  }

  // The rank's own part of a communication is over.
  void EndPart(std::uint32_t r, int s, std::uint32_t part) {
    const StreamState& q = stream(r, s);
    const CommPrice& comm = q.block->comms[head(q).first + part];
    std::uint64_t part_key = 1;
    if (comm.comm.collective == graph::Collective::kSend) part_key = Mix64(comm.digest) | 1;
    if (comm.comm.collective == graph::Collective::kRecv) part_key = Mix64(comm.digest + 1) | 1;
    const Place at = PlaceOf(r, comm);
    const SimTime met =
        arrivals_.End(at.meet, at.member, at.bound->partners[at.member == 0 ? 0 : 1]);
    OnPartEnd(r, s, q.arrival, std::max(q.arrival, met), now_, part_key);
  }

  std::span<const std::uint32_t> partition_of_;  // by simulated rank
  std::uint32_t self_;
  std::span<const std::vector<std::uint32_t>> partitions_of_;  // by meet; empty: there is one
  Arrivals arrivals_;
  std::vector<std::vector<Lane>> lanes_;          // by rank and stream
  std::vector<std::vector<std::uint32_t>> left_;  // lanes left, by part
  const Secluded& secluded_;
  std::unique_ptr<Courses> courses_;   // null: every chunk is an event
  std::vector<Gathering> gatherings_;  // by meet
};

// Runs the partitions window by window. There are some for each thread: who is done with its own
// takes another's, since what happens in a window is seldom spread evenly over the hosts.
class Driver {
 public:
  explicit Driver(const LoopInputs& in) : in_(in), wiring_(in) {}

  Result<LoopResult> Run() {
    wiring_.Build();
    if (takes_courses()) secluded_ = Secluded(in_, wiring_);
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
  // Courses say what happens on links inside hosts, and not when in between.
  bool takes_courses() const {
    const Inputs& inputs = *in_.inputs;
    const bool links = inputs.network == "links" || inputs.network == "packet";
    return links && !in_.options->stepwise && in_.options->jitter == 0 &&
           in_.options->link_steps == 0 && !repeats() && inputs.cluster->link_changes().empty();
  }
  bool Finished() const {
    return std::all_of(loops_.begin(), loops_.end(), [](const auto& l) { return l->finished(); });
  }
  bool Stopped() const { return repeats() && Finished(); }

  Status MakePartitions() {
    const cluster::Cluster& cluster = *in_.inputs->cluster;
    const std::size_t per_domain = static_cast<std::size_t>(cluster.spec().gpus_per_nvlink_domain);
    const std::size_t domains = (cluster.devices() + per_domain - 1) / per_domain;
    // A sink has one writer, several jobs end at one instant, not with a window, all packets are in
    // one fabric, and a program of the user's is one.
    const std::string_view name = in_.inputs->network;
    const bool alone = in_.sink != nullptr || repeats() || name == "packet" || name == "external";
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
    if (n > 1) FindPartitionsOfMeets();
    const std::vector<std::uint32_t> one_owner(domains, 0);
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
      if (n == 1) network_threads_ = network->UseThreads(in_.options->threads);
      std::unique_ptr<network::Network> links;
      if (takes_courses()) {
        ORRERY_ASSIGN_OR_RETURN(links, network::Create("links"));
        ORRERY_RETURN_IF_ERROR(links->SetupLinks(cluster, one_owner, 0));
      }
      loops_.push_back(std::make_unique<LoweredLoop>(in_, options, tracers_.back().get(), &wiring_,
                                                     &secluded_, owner_, p, partitions_of_,
                                                     std::move(network), std::move(links)));
      loops_.back()->credits_out.resize(n);
      loops_.back()->arrivals_out.resize(n);
    }
    return {};
  }

  void FindPartitionsOfMeets() {
    for (std::uint32_t id = 0; id < in_.layout->meets.size(); ++id) {
      auto& list = partitions_of_.emplace_back();
      for (const std::uint32_t m : in_.layout->members(id)) list.push_back(owner_[m]);
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
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
    const auto others = StartThreads(threads_ - 1, [&](std::size_t thread) {
      for (;;) {
        meeting.Arrive();
        if (!more) return;
        run(thread);
        meeting.Arrive();
      }
    });
    threads_ = others.size() + 1;
    meeting.Expect(static_cast<std::uint32_t>(threads_));
    bool inside = false;  // this thread, of a window that the others run, too
    struct LetGo {        // the others end with this thread, an exception's way too
      ~LetGo() {
        if (*inside) meeting->Arrive();
        *more = false;
        meeting->Arrive();
      }
      Meeting* meeting;
      bool *inside, *more;
    } const let_go{&meeting, &inside, &more};
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
        inside = true;
        run(0);
        inside = false;
        meeting.Arrive();
        worth = meeting.TakeSlept() ? std::min(2 * worth, kWorthWaking)
                                    : std::max(worth - worth / 64, kWorthMeeting);
      } else {
        for (auto& l : loops_) l->RunUntil(end);
      }
      events = so_far;
    }
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
        for (const Arrived& a : from->arrivals_out[to]) loops_[to]->Hear(a);
        from->arrivals_out[to].clear();
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
    result.threads_used = std::max(static_cast<int>(threads_), network_threads_);
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
      const auto courses = loop->course_traffic();
      for (std::size_t l = 0; l < courses.size(); ++l) {
        result.traffic[l].bytes += courses[l].bytes;
        result.traffic[l].busy += courses[l].busy;
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
  Secluded secluded_;
  std::size_t threads_ = 1;
  int network_threads_ = 1;
  std::vector<std::uint32_t> domain_owner_, owner_;
  std::vector<std::vector<std::uint32_t>> partitions_of_;  // by meet; empty where there is one
  std::vector<std::unique_ptr<Tracer>> tracers_;
  std::vector<std::unique_ptr<LoweredLoop>> loops_;
  SimTime lookahead_ = kNever;
};

}  // namespace

Result<LoopResult> RunLowered(const LoopInputs& in) { return Driver(in).Run(); }

}  // namespace orrery::engine
