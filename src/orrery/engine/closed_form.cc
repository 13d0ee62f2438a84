// The main loop for networks that serve fluids: a collective is one fluid from its last arrival on.
#include "orrery/des/event_queue.h"
#include "orrery/engine/deadlock.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/machine.h"

namespace orrery::engine {
namespace {

struct Event {
  SimTime time = 0;
  std::uint32_t who = 0;               // a meet to start, or a rank to wake
  std::uint32_t version = 0;           // of a wake; kStart marks a meet
  friend bool operator<(const Event& a, const Event& b) {
    return a.who != b.who ? a.who < b.who : a.version < b.version;
  }
};
constexpr std::uint32_t kStart = 0xFFFFFFFFu;

// One meeting at a time per group or pair: its members come in stream order.
struct Meet {
  SimTime latest = 0, start = 0;
  const CommPrice* price = nullptr;    // of the first to come
  std::uint64_t digest = 0;
  std::uint32_t arrived = 0;
  std::uint8_t stream[2] = {0, 0};     // of the members; a pair: of sender and of receiver
  std::uint8_t came = 0;               // a pair: bit 0 the sender, bit 1 the receiver
  // Over the whole run, of each member, where the network does not see it (private_nvlink).
  std::int64_t nvlink_out = 0, nvlink_in = 0;
  SimTime nvlink_busy = 0;

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
        meets_(in.layout->meets.size()) {}

  Status Run() {
    const auto ranks = static_cast<std::uint32_t>(layout_.ranks.size());
    for (std::uint32_t r = 0; r < ranks; ++r) Step(r);
    // A job alone runs until all is quiet: what is on its way when the last iteration ends lands too.
    while (error_.ok() && !(options_.repeat_until_stopped && finished())) {
      const SimTime queued = queue_.NextTime();
      const SimTime flying = network_->next_time();
      if (queued == kNever && flying == kNever) return finished() ? Status() : Deadlock();
      if (flying <= queued) {
        TakeCompletions(flying);
      } else {
        TakeEvent();
      }
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
      const auto slot = static_cast<std::size_t>(comm.comm.peer);
      switch (comm.comm.collective) {
        case graph::Collective::kSend:
          Arrive(rank.send[slot][comm.comm.tag], 1, r, stream_index, arrival, comm);
          break;
        case graph::Collective::kRecv:
          Arrive(rank.receive[slot][comm.comm.tag], 2, r, stream_index, arrival, comm);
          break;
        default:
          Arrive(rank.meet[static_cast<std::size_t>(comm.comm.group)], 0, r, stream_index, arrival,
                 comm);
      }
    }
  }
  void Wake(std::uint32_t r, SimTime time, std::uint32_t version) {
    queue_.Push({time, r, version});
  }

  std::uint64_t events() const { return events_; }

  // Adds what the network did not see to the ports' statistics.
  void AddPrivateTraffic(std::vector<network::PortStatistics>* traffic) const {
    for (std::size_t id = 0; id < meets_.size(); ++id) {
      if (meets_[id].nvlink_out == 0) continue;
      for (std::uint32_t m : participants(layout_.meets[id])) {
        network::PortStatistics* port = &(*traffic)[layout_.ranks[m].nvlink_port];
        port[0].bytes += meets_[id].nvlink_out;
        port[1].bytes += meets_[id].nvlink_in;
        port[0].busy += meets_[id].nvlink_busy;
        port[1].busy += meets_[id].nvlink_busy;
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
      meet.digest = comm.digest;
    } else {
      meet.latest = std::max(meet.latest, arrival);
      if (meet.digest != comm.digest) return Mismatch(r, comm, meet.price);
    }
    meet.came |= end;
    meet.stream[end == 2 ? 1 : 0] = static_cast<std::uint8_t>(stream_index);
    if (++meet.arrived == layout_.meets[id].count) queue_.Push({meet.latest, id, kStart});
  }

  void TakeEvent() {
    const Event e = queue_.Top();
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
    collective::PortBytes bytes = meet.price->cost.member;
    if (info.private_nvlink) {
      meet.nvlink_out += bytes.nvlink_out;
      meet.nvlink_in += bytes.nvlink_in;
      bytes.nvlink_out = bytes.nvlink_in = 0;
    }
    if (info.pair) {
      AddLoads(layout_.ranks[members[0]], bytes.nvlink_out, 0, bytes.nic_out, 0);
      AddLoads(layout_.ranks[members[1]], 0, bytes.nvlink_in, 0, bytes.nic_in);
    } else {
      for (std::uint32_t m : members) {
        AddLoads(layout_.ranks[m], bytes.nvlink_out, bytes.nvlink_in, bytes.nic_out, bytes.nic_in);
        OnStart(m, meet.stream[0], now_);
      }
    }
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
      const MeetInfo& info = layout_.meets[c.id];
      const Meet done = meets_[c.id];
      meets_[c.id].Reset();  // members may come again at once
      if (info.private_nvlink && done.price->nvlink) {
        meets_[c.id].nvlink_busy += now_ - done.start;
      }
      const auto members = participants(info);
      if (info.pair) {
        OnPartEnd(members[0], done.stream[0], done.start, now_, Mix64(done.digest) | 1);
        OnPartEnd(members[1], done.stream[1], done.start, now_, Mix64(done.digest + 1) | 1);
      } else {
        for (std::uint32_t m : members) OnPartEnd(m, done.stream[0], done.start, now_, 1);
      }
    }
  }

  void Mismatch(std::uint32_t r, const CommPrice& comm, const CommPrice* other) {
    if (!error_.ok()) return;
    const auto say = [](const CommPrice& c) {
      return fmt::format("{} of {} bytes ({})", graph::Name(c.comm.collective), c.comm.bytes.value,
                         graph::Name(c.comm.dtype));
    };
    error_ = Infeasible(
        "rank {} comes to {} where {}", layout_.ranks[r].rank.value, say(comm),
        other == nullptr ? "nobody is bound to its slot" : "its partner is in " + say(*other));
  }

  Status Deadlock() {
    std::vector<Waiting> waiting;
    for (std::uint32_t r = 0; r < layout_.ranks.size(); ++r) {
      if (state(r).status == RankStatus::kDone) continue;
      Waiting w;
      w.rank = r;
      for (int i = 0; i < kStreams; ++i) {
        const StreamState& q = stream(r, i);
        if (q.block_item == kNobody) continue;
        w.block = q.block;
        w.item = q.block_item;
        w.call = q.call;
        AddMissing(r, q, &w.missing);
        break;
      }
      waiting.push_back(std::move(w));
    }
    return DeadlockReport(graph_, layout_, waiting);
  }

  void AddMissing(std::uint32_t r, const StreamState& q, std::vector<std::uint32_t>* missing) {
    const Item& item = head(q);
    const SimRank& rank = layout_.ranks[r];
    for (std::uint32_t i = 0; i < item.count; ++i) {
      const graph::Comm& comm = q.block->comms[item.first + i].comm;
      const auto slot = static_cast<std::size_t>(comm.peer);
      std::uint32_t id = rank.meet[static_cast<std::size_t>(comm.group)];
      if (comm.collective == graph::Collective::kSend) id = rank.send[slot][comm.tag];
      if (comm.collective == graph::Collective::kRecv) id = rank.receive[slot][comm.tag];
      if (id == kNobody || meets_[id].arrived == layout_.meets[id].count) continue;
      const auto members = participants(layout_.meets[id]);
      if (layout_.meets[id].pair) {
        missing->push_back(members[meets_[id].came & 1 ? 1 : 0]);
        continue;
      }
      for (std::uint32_t m : members) {
        if (!StandsIn(m, id)) missing->push_back(m);
      }
    }
  }

  bool StandsIn(std::uint32_t r, std::uint32_t id) {
    for (int i = 0; i < kStreams; ++i) {
      const StreamState& q = stream(r, i);
      if (q.block_item == kNobody) continue;
      const graph::Comm& comm = q.block->comms[head(q).first].comm;
      if (graph::IsPointToPoint(comm.collective)) continue;
      if (layout_.ranks[r].meet[static_cast<std::size_t>(comm.group)] == id) return true;
    }
    return false;
  }

  network::Network* network_;
  des::EventQueue<Event> queue_;
  std::vector<Meet> meets_;
  std::vector<network::PortLoad> loads_;
  std::vector<network::Completion> completions_;
  SimTime now_ = 0;
  std::uint64_t events_ = 0;
  Status error_;
};

}  // namespace

Result<LoopResult> RunClosedForm(const LoopInputs& in, network::Network* network) {
  ORRERY_RETURN_IF_ERROR(network->SetupPorts(in.layout->port_capacity_Bps));
  MachineOptions options;
  options.launch = in.launch;
  options.iterations = in.iterations;
  options.repeat_until_stopped = in.inputs->graph->jobs.size() > 1;
  options.jitter = in.options->jitter;
  options.seed = in.options->seed;
  Tracer tracer(*in.inputs->graph, *in.layout, *in.prices, in.sink);
  ClosedFormLoop loop(in, options, &tracer, network);
  ORRERY_RETURN_IF_ERROR(loop.Run());

  LoopResult result;
  result.iterations = in.iterations;
  result.events = loop.events();
  const std::size_t ranks = in.layout->ranks.size();
  for (std::size_t r = 0; r < ranks; ++r) {
    for (int k = 0; k < in.iterations; ++k) {
      result.ends.push_back(loop.end(r, k));
      result.compute_ends.push_back(loop.compute_end(r, k));
    }
    result.finish_time = std::max(result.finish_time, loop.end(r, in.iterations - 1));
    result.parts.push_back(loop.parts(r));
    result.hashes.push_back(loop.states()[r].hash);
  }
  const auto statistics = network->statistics();
  result.traffic.assign(statistics.begin(), statistics.end());
  loop.AddPrivateTraffic(&result.traffic);
  return result;
}

}  // namespace orrery::engine
