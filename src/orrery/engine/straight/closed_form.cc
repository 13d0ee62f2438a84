// The main loop for networks that serve fluids over ports: a collective is one from its last
// arrival on.
#include <algorithm>

#include "orrery/des/event_queue.h"
#include "orrery/engine/host_ports.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/straight/deadlock.h"
#include "orrery/engine/straight/machine.h"
#include "orrery/network/analytic.h"

namespace orrery::engine {
namespace {

struct Due {
  SimTime time = 0;
  std::uint32_t who = 0;      // a meet to start, or a rank to wake
  std::uint32_t version = 0;  // of a wake; kStart marks a meet
  friend bool operator<(const Due& a, const Due& b) {
    return a.who != b.who ? a.who < b.who : a.version < b.version;
  }
};
constexpr std::uint32_t kStart = 0xFFFFFFFFu;

// One meeting at a time per group or pair: its members come in stream order.
struct alignas(64) Meet {
  SimTime latest = 0, start = 0;
  const CommPrice* price = nullptr;  // of the first to come
  std::uint32_t arrived = 0;
  std::uint8_t stream[2] = {0, 0};  // of the members; a pair: of sender and of receiver
  std::uint8_t came = 0;            // a pair: bit 0 the sender, bit 1 the receiver
  // Before a block that the members may take together: who waits there, and how many of them have
  // yet to pass by where they may not.
  std::uint32_t gathered = 0, passing = 0;
  // Over the whole run, out of (and into) each member where the network does not see it.
  std::int64_t nvlink_bytes = 0, nic_bytes = 0;
  SimTime busy = 0;

  void Reset() {
    arrived = 0;
    came = 0;
  }
};

class ClosedFormLoop : public Machine<ClosedFormLoop> {
 public:
  ClosedFormLoop(const LoopInputs& in, const MachineOptions& options, Tracer* tracer,
                 network::Network* network)
      : Machine(*in.inputs->graph, *in.layout, options, tracer),
        network_(network),
        meets_(in.layout->meets.size()) {
    if (in.layout->first_pcie_port != kNobody) host_ = std::make_unique<HostPorts>(in);
    FindMarks(in);
  }

  Status Run() {
    const auto ranks = static_cast<std::uint32_t>(layout_.ranks.size());
    for (std::uint32_t r = 0; r < ranks; ++r) {
      Step(r);
      Settle();
    }
    // A job alone runs until all is quiet: what is on its way when the last iteration ends lands
    // too.
    while (error_.ok() && !(options_.repeat_until_stopped && finished())) {
      if (PlaceOf(state(marked_rank_)) >= next_mark_) [[unlikely]]
        LookForRepeats();
      const SimTime queued = queue_.NextTime();
      const SimTime flying = network_->next_time();
      if (queued == kNever && flying == kNever) {
        if (finished()) return {};
        if (!LetAllPass()) return Deadlock(*this, graph_, layout_, meets_);
      } else if (flying <= queued) {
        TakeCompletions(flying);
      } else {
        TakeEvent();
      }
      Settle();
    }
    return error_;
  }

  // Machine's hooks.
  void Post(std::uint32_t r, int stream_index, SimTime arrival) {
    const StreamState& q = stream(r, stream_index);
    const Item& item = head(q);
    const SimRank& rank = layout_.ranks[r];
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const CommPrice& comm = q.block->comms[item.first + i];
      if (comm.plan < 0) continue;
      Arrive(MeetOf(rank, comm.comm), EndOf(comm.comm), r, stream_index, arrival, comm);
    }
  }
  void Wake(std::uint32_t r, SimTime time, std::uint32_t version) {
    queue_.Push({time, r, version});
  }

  // A block's course is fixed once all members are there. If one of them cannot take it (`able`),
  // all step through it.
  static constexpr bool kGathers = true;
  bool Gather(std::uint32_t r, std::uint32_t id, bool able) {
    Meet& meet = meets_[id];
    if (meet.passing > 0) {
      --meet.passing;
      return false;
    }
    if (!able) {
      LetPass(id);
      --meet.passing;
      return false;
    }
    state(r).status = RankStatus::kGathering;
    if (++meet.gathered == layout_.meets[id].count) gathered_.push_back(id);
    return true;
  }

  std::uint64_t events() const { return events_; }
  std::uint64_t events_repeated() const { return events_repeated_; }

  // Adds what the network did not see to the ports' statistics.
  void AddUnseenTraffic(std::vector<network::PortStatistics>* traffic) const {
    const auto add = [&](std::uint32_t port, std::int64_t bytes, SimTime busy) {
      if (bytes == 0) return;
      (*traffic)[port].bytes += bytes;
      (*traffic)[port].busy += busy;
    };
    for (std::size_t r = 0; r < layout_.ranks.size(); ++r) {
      const InlinedTraffic& inlined = inlined_traffic(r);
      add(layout_.ranks[r].nvlink_port, inlined.out, inlined.busy);
      add(layout_.ranks[r].nvlink_port + 1, inlined.in, inlined.busy);
    }
    for (std::size_t id = 0; id < meets_.size(); ++id) {
      const Meet& meet = meets_[id];
      const MeetInfo& info = layout_.meets[id];
      const auto members = participants(info);
      for (std::size_t i = 0; i < members.size(); ++i) {
        const SimRank& rank = layout_.ranks[members[i]];
        for (std::uint32_t side = 0; side < 2; ++side) {
          if (info.pair && side != i) continue;  // a sender's way out, a receiver's way in
          add(rank.nvlink_port + side, meet.nvlink_bytes, meet.busy);
          add(rank.nic_port + side, meet.nic_bytes * rank.nic_copies, meet.busy);
        }
      }
    }
  }

 private:
  std::span<const std::uint32_t> participants(const MeetInfo& info) const {
    return {layout_.participants.data() + info.first, info.count};
  }

  void Arrive(std::uint32_t id, std::uint8_t end, std::uint32_t r, int stream_index,
              SimTime arrival, const CommPrice& comm) {
    if (id == kNobody) return Mismatch(r, comm, nullptr);
    Meet& meet = meets_[id];
    if (meet.arrived == 0) {
      meet.latest = arrival;
      meet.price = &comm;
    } else {
      meet.latest = std::max(meet.latest, arrival);
      if (meet.price->digest != comm.digest) return Mismatch(r, comm, meet.price);
    }
    meet.came |= end;
    meet.stream[end == 2 ? 1 : 0] = static_cast<std::uint8_t>(stream_index);
    if (++meet.arrived == layout_.meets[id].count) complete_.push_back(id);
  }

  // All members step through the block before which they gather.
  void LetPass(std::uint32_t id) {
    meets_[id].passing = layout_.meets[id].count;
    if (meets_[id].gathered > 0) gathered_.push_back(id);
  }
  // Ranks that wait for one that never comes: then the report shows what they stand in.
  bool LetAllPass() {
    for (std::uint32_t r = 0; r < layout_.ranks.size(); ++r) {
      if (state(r).status != RankStatus::kGathering) continue;
      const std::uint32_t id = GatheringOf(r, block(r));
      if (meets_[id].passing == 0) LetPass(id);
    }
    return !gathered_.empty();
  }

  // Marks in the program of the rank with the most calls, where periods.h applies.
  void FindMarks(const LoopInputs& in) {
    analytic_ = dynamic_cast<network::Analytic*>(network_);
    const bool alone = !options_.repeat_until_stopped && in.sink == nullptr && host_ == nullptr;
    if (analytic_ == nullptr || !alone || options_.jitter > 0 || options_.stepwise) return;
    for (std::uint32_t r = 0; r < layout_.ranks.size(); ++r) {
      if (CallsOf(r).size() > CallsOf(marked_rank_).size()) marked_rank_ = r;
    }
    const std::optional<CallPattern::Period> found = PatternOf(marked_rank_).FindPeriod();
    if (!found) return;
    const std::size_t periods = CallsOf(marked_rank_).size() / (kMarks * found->calls) + 1;
    marks_apart_ = periods * found->calls;
    if (marks_apart_ * layout_.ranks.size() > kMostNotes) return;
    set_window(2 * marks_apart_);
    first_mark_ = found->begin;
    next_mark_ = first_mark_;
  }
  static std::uint64_t PlaceOf(const RankState& s) {
    return std::uint64_t{s.iteration} << 32 | s.call;
  }
  const std::vector<graph::Call>& CallsOf(std::uint32_t r) const {
    return graph_.programs[layout_.variants[layout_.ranks[r].variant].program.index()].calls;
  }

  void LookForRepeats() {
    const RankState& marked = state(marked_rank_);
    if (marked.iteration != mark_iteration_) misses_ = 0;
    mark_iteration_ = marked.iteration;
    next_mark_ = (std::uint64_t{marked.iteration} << 32) + first_mark_;
    if (marked.call < first_mark_) return;
    next_mark_ += ((marked.call - first_mark_) / marks_apart_ + 1) * marks_apart_;
    const SimTime base = marked.t;
    std::swap(state_before_, state_);
    state_.clear();
    AppendState(base, &state_);
    AppendLoopState(base);
    analytic_->AppendState(base, &state_);
    const SimTime span = base - mark_time_;
    mark_time_ = base;
    if (state_ != state_before_) {
      if (++misses_ == kMisses) LookNextIteration();
      return StopNotes();
    }
    if (!taking_notes()) {
      TakeNotes();
      noted_meets_ = meets_;
      noted_events_ = events_;
      const auto ports = network_->statistics();
      noted_ports_.assign(ports.begin(), ports.end());
      return;
    }
    StopNotes();
    const std::uint32_t rounds = RoundsLeft(span);
    if (rounds > 0) TakeRounds(rounds, span);
  }

  void AppendLoopState(SimTime base) {
    const auto add = [this](auto value) { state_.push_back(static_cast<std::uint64_t>(value)); };
    add(now_ - base);
    for (const Meet& meet : meets_) {
      add(std::uint64_t{meet.arrived} << 32 | meet.gathered);
      add(meet.passing);
      if (meet.arrived == 0) continue;
      add(meet.latest - base);
      add(meet.start - base);
      add(reinterpret_cast<std::uintptr_t>(meet.price));
      add(std::uint64_t{meet.stream[0]} << 16 | std::uint64_t{meet.stream[1]} << 8 | meet.came);
    }
    waiting_ = Waiting();
    for (const Due& e : waiting_) {
      const bool start = e.version == kStart;
      const bool live = start || e.version == state(e.who).version;
      add(e.time - base);
      add(std::uint64_t{e.who} << 2 | (start ? 2u : 0u) | (live ? 1u : 0u));
    }
  }
  // The events to come, in order.
  std::vector<Due> Waiting() const {
    std::vector<Due> events;
    queue_.ForEach([&](const Due& e) { events.push_back(e); });
    std::sort(events.begin(), events.end(), [](const Due& a, const Due& b) {
      return a.time != b.time ? a.time < b.time : a < b;
    });
    return events;
  }

  void TakeRounds(std::uint32_t rounds, SimTime span) {
    const SimTime by = static_cast<SimTime>(rounds) * span;
    Repeat(rounds, span);
    analytic_->Repeat(rounds, span, noted_ports_);
    now_ += by;
    const std::uint64_t repeated = rounds * (events_ - noted_events_);
    events_ += repeated;
    events_repeated_ += repeated;
    for (std::size_t id = 0; id < meets_.size(); ++id) {
      Meet& meet = meets_[id];
      const Meet& noted = noted_meets_[id];
      meet.latest += by;
      meet.start += by;
      meet.nvlink_bytes += rounds * (meet.nvlink_bytes - noted.nvlink_bytes);
      meet.nic_bytes += rounds * (meet.nic_bytes - noted.nic_bytes);
      meet.busy += rounds * (meet.busy - noted.busy);
    }
    queue_.Clear();
    for (Due e : waiting_) {
      e.time += by;
      queue_.Push(e);
    }
    LookNextIteration();  // no more than a round is left of this one
  }
  void LookNextIteration() {
    next_mark_ = (std::uint64_t{state(marked_rank_).iteration + 1u} << 32) + first_mark_;
  }

  // Members that gathered go on: over the whole block, or into it.
  void GoOn(std::uint32_t id) {
    const auto members = participants(layout_.meets[id]);
    meets_[id].gathered = 0;
    if (meets_[id].passing == 0) {
      if (TakeTogether(members)) {
        ++events_;
      } else {
        meets_[id].passing = layout_.meets[id].count;
      }
      for (const std::uint32_t m : members) Step(m);
      return;
    }
    for (const std::uint32_t m : members) {
      if (state(m).status == RankStatus::kGathering && GatheringOf(m, block(m)) == id) Step(m);
    }
  }

  // Meetings whose last member has come: those that nothing can touch any more are settled at once,
  // ahead of the clock; the others start when their time comes.
  void Settle() {
    while (!complete_.empty() || !gathered_.empty()) {
      if (!gathered_.empty()) {
        const std::uint32_t id = gathered_.back();
        gathered_.pop_back();
        GoOn(id);
        continue;
      }
      const std::uint32_t id = complete_.back();
      complete_.pop_back();
      if (Untouchable(id)) {
        ++events_;
        Meet& meet = meets_[id];
        const collective::Cost& cost = meet.price->cost;
        meet.start = meet.latest;
        const SimTime duration = cost.total();
        meet.nvlink_bytes += cost.member.nvlink_out;
        meet.nic_bytes += cost.member.nic_out;
        meet.busy += duration;
        if (!layout_.meets[id].pair) StartMembers(id);
        EndMembers(id, meet.start + duration);
      } else {
        queue_.Push({meets_[id].latest, id, kStart});
      }
    }
  }

  // No member can do anything else meanwhile, and no one else uses their ports: NVLink ports are a
  // rank's own.
  bool Untouchable(std::uint32_t id) const {
    if (host_ != nullptr) return false;  // ranks share their host's PCIe
    const MeetInfo& info = layout_.meets[id];
    const Meet& meet = meets_[id];
    if (info.pair ? !OwnPorts(info, meet) : meet.price->nic) return false;
    const auto members = participants(info);
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!MaySettle(members[i], meet.stream[info.pair ? i : 0], meet.price->nic)) return false;
    }
    return true;
  }

  // Both ends of a message block in it, and their ports are theirs alone.
  bool OwnPorts(const MeetInfo& info, const Meet& meet) const {
    const auto members = participants(info);
    for (std::size_t i = 0; i < 2; ++i) {
      const Item& item = head(stream(members[i], meet.stream[i]));
      if (!item.blocking || !item.one_way) return false;
      if (meet.price->nic && !layout_.ranks[members[i]].private_nic) return false;
    }
    return true;
  }

  void StartMembers(std::uint32_t id) {
    const Meet& meet = meets_[id];
    for (std::uint32_t m : participants(layout_.meets[id])) OnStart(m, meet.stream[0], meet.start);
  }

  void EndMembers(std::uint32_t id, SimTime end) {
    const MeetInfo& info = layout_.meets[id];
    const Meet done = meets_[id];
    const std::uint64_t digest = done.price->digest;
    meets_[id].Reset();  // members may come again at once
    const auto members = participants(info);
    if (info.pair) {
      OnPartEnd(members[0], done.stream[0], done.start, end, Mix64(digest) | 1);
      OnPartEnd(members[1], done.stream[1], done.start, end, Mix64(digest + 1) | 1);
    } else {
      for (std::uint32_t m : members) OnPartEnd(m, done.stream[0], done.start, end, 1);
    }
  }

  void TakeEvent() {
    const Due e = queue_.Top();
    queue_.Pop();
    now_ = e.time;
    ++events_;
    if (e.version == kStart) {
      Start(e.who);
    } else {
      OnWake(e.who, e.version);
    }
  }

  void Start(std::uint32_t id) {
    const MeetInfo& info = layout_.meets[id];
    Meet& meet = meets_[id];
    meet.start = now_;
    const auto members = participants(info);
    loads_.clear();
    const collective::PortBytes& bytes = meet.price->cost.member;
    if (info.pair) {
      AddLoads(layout_.ranks[members[0]], bytes.nvlink_out, 0, bytes.nic_out, 0);
      AddLoads(layout_.ranks[members[1]], 0, bytes.nvlink_in, 0, bytes.nic_in);
    } else {
      for (std::uint32_t m : members) {
        AddLoads(layout_.ranks[m], bytes.nvlink_out, bytes.nvlink_in, bytes.nic_out, bytes.nic_in);
      }
      StartMembers(id);
    }
    if (host_ != nullptr) host_->AddLoads(id, meet.price->plan, &loads_);
    const network::Fluid fluid{id, meet.price->cost.fixed, meet.price->cost.transfer, 0,
                               static_cast<std::uint32_t>(loads_.size())};
    network_->Start(now_, {&fluid, 1}, loads_);
  }

  void AddLoads(const SimRank& rank, std::int64_t nvlink_out, std::int64_t nvlink_in,
                std::int64_t nic_out, std::int64_t nic_in) {
    if (nvlink_out > 0) loads_.push_back({rank.nvlink_port, 1, nvlink_out});
    if (nvlink_in > 0) loads_.push_back({rank.nvlink_port + 1, 1, nvlink_in});
    if (nic_out > 0) loads_.push_back({rank.nic_port, rank.nic_copies, nic_out});
    if (nic_in > 0) loads_.push_back({rank.nic_port + 1, rank.nic_copies, nic_in});
  }

  void TakeCompletions(SimTime time) {
    completions_.clear();
    now_ = network_->AdvanceUntil(time, &completions_);
    for (const network::Completion& c : completions_) {
      ++events_;
      EndMembers(c.id, now_);
    }
  }

  void Mismatch(std::uint32_t r, const CommPrice& comm, const CommPrice* other) {
    if (!error_.ok()) return;
    error_ = MismatchReport(layout_.ranks[r].rank, comm, other);
  }

  network::Network* network_;
  std::unique_ptr<HostPorts> host_;  // where ranks share a PCIe tree
  des::EventQueue<Due> queue_;
  std::vector<Meet> meets_;
  std::vector<std::uint32_t> complete_;  // meets whose members have all come
  std::vector<std::uint32_t> gathered_;  // meets whose members stand before a block
  std::vector<network::PortLoad> loads_;
  std::vector<network::Completion> completions_;
  // Where the run may repeat (periods.h): iteration and call of `marked_rank_` to look next at.
  static constexpr std::size_t kMarks = 64, kMostNotes = std::size_t{1} << 18;  // bounds of cost
  static constexpr int kMisses = 24;
  static constexpr std::uint64_t kNoMark = std::numeric_limits<std::uint64_t>::max();
  network::Analytic* analytic_ = nullptr;
  std::uint32_t marked_rank_ = 0;
  std::size_t first_mark_ = 0, marks_apart_ = 0;  // calls
  std::uint64_t next_mark_ = kNoMark;
  SimTime mark_time_ = 0;
  std::uint16_t mark_iteration_ = 0;
  int misses_ = 0;  // of this iteration: states unlike the one before
  std::vector<std::uint64_t> state_, state_before_;  // at the last mark, and the one before
  std::vector<Due> waiting_;                         // at the last mark
  std::vector<Meet> noted_meets_;                    // when notes began
  std::vector<network::PortStatistics> noted_ports_;
  std::uint64_t noted_events_ = 0;
  SimTime now_ = 0;
  std::uint64_t events_ = 0, events_repeated_ = 0;
  Status error_;
};

}  // namespace

Result<LoopResult> RunClosedForm(const LoopInputs& in, network::Network* network) {
  ORRERY_RETURN_IF_ERROR(network->SetupPorts(in.layout->port_capacity_Bps));
  Tracer tracer(*in.inputs->graph, *in.layout, *in.prices, in.sink);
  ClosedFormLoop loop(in, OptionsOf(in), &tracer, network);
  ORRERY_RETURN_IF_ERROR(loop.Run());
  LoopResult result = loop.Collect();
  result.events = loop.events();
  result.events_repeated = loop.events_repeated();
  const auto statistics = network->statistics();
  result.traffic.assign(statistics.begin(), statistics.end());
  loop.AddUnseenTraffic(&result.traffic);
  return result;
}

}  // namespace orrery::engine
