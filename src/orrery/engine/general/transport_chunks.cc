// Communications as the steps of their lowered schedules (collective/lowering/lowering.h says how
// they run).
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "orrery/base/hash.h"
#include "orrery/cluster/salts.h"
#include "orrery/collective/lowering/lowering.h"
#include "orrery/des/event_queue.h"
#include "orrery/engine/general/transport.h"

namespace orrery::engine::general {
namespace {

// Cost: two events a step, one a message beside the network's own. 64 bytes a lane of a meeting
// under way, 56 a connection that was ever used.
class ChunkTransport final : public Transport {
 public:
  ChunkTransport(const TransportInputs& in, std::unique_ptr<network::Network> network)
      : in_(in),
        network_(std::move(network)),
        threads_(network_->UseThreads(in.options->threads)) {}

  bool Join(SimTime now, std::uint32_t id, const Meeting& m, std::uint32_t member,
            bool last) override {
    if (m.raw) {
      if (!last) return false;
      Depart(now, Flying{kNobody, 0, id}, DeviceOf(m, 0), DeviceOf(m, 1), m.bytes, 0,
             m.members[0].rank);
      return false;
    }
    if (under_way_.size() <= id) under_way_.resize(std::size_t{id} + 1);
    if (m.arrived == 1) {
      under_way_[id] = {BoundOf(m), std::vector<std::uint32_t>(m.members.size()), nullptr};
      if (m.group != kNobody) under_way_[id].turns = &turns_[m.group];
    }
    if (Turns* turns = under_way_[id].turns; turns != nullptr) {
      turns->resize(m.members.size());
      (*turns)[member].push_back(id);
      if ((*turns)[member].size() > 1) return true;
    }
    StartLanes(now, id, member);
    return true;
  }
  collective::WaitsFor PartnersOf(std::uint32_t id, std::uint32_t member) const override {
    return under_way_[id].bound->partners[member == 0 ? 0 : 1];
  }
  SimTime next_time() override { return std::min(queue_.NextTime(), network_->next_time()); }
  SimTime AdvanceUntil(SimTime t, std::vector<Ended>* ended) override {
    ended_ = ended;
    const std::size_t before = ended->size();
    for (;;) {
      const SimTime next = next_time();
      if (next > t) return t;
      now_ = next;
      if (network_->next_time() <= next) {
        TakeDeliveries(std::min(t, queue_.NextTime()));
      } else {
        const Event e = queue_.Top();
        queue_.Pop();
        ++events_;
        Take(e);
      }
      if (ended->size() > before && next_time() > now_) return now_;
    }
  }
  Status status() const override { return network_->status(); }
  std::uint64_t events() const override { return events_; }
  int threads() const override { return threads_; }
  std::vector<network::PortStatistics> statistics() const override {
    const auto s = network_->statistics();
    return {s.begin(), s.end()};
  }
  network::UseLog* use_log() override { return network_->use_log(); }
  const network::PacketCounts* packet_counts() override { return network_->packet_counts(); }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  enum class What : std::uint8_t { kTry, kWorkDone, kSend, kCredit };
  struct Event {
    SimTime time = 0;
    std::uint64_t sequence = 0;
    What what = What::kTry;
    std::uint32_t who = 0;  // a lane or a wire
    std::int64_t bytes = 0;
    friend bool operator<(const Event& a, const Event& b) { return a.sequence < b.sequence; }
  };
  // Lanes that wait for one thing, in the order in which they came: a list through Lane::next.
  struct Waiters {
    std::uint32_t first = kNone, last = kNone;
  };
  // A directed connection of a communicator; it outlives the collectives that use it.
  struct Wire {
    DeviceId from, to;
    std::uint32_t creator = 0;
    std::uint64_t salt = 0;
    SimTime credit_latency = 0;
    std::int32_t credits = 0, ready = 0;
    std::uint32_t sent = 0, landed = 0;  // messages
    std::uint32_t queue_pairs = 1;
    Waiters senders, receivers;  // several where messages of one pair overlap
  };
  struct Bound {
    std::unique_ptr<collective::Schedule> schedule;
    std::vector<std::uint32_t> wire;                 // by connection
    std::array<collective::WaitsFor, 2> partners{};  // of the first member, of the others
  };
  struct Lane {
    const Bound* bound = nullptr;
    std::uint32_t meeting = 0, member = 0;
    int number = 0;
    std::uint64_t index = 0;
    collective::Step step;
    std::uint32_t next = kNone;  // behind it among Waiters
  };
  // By member of a communicator: the collectives that it has come to and not ended, in order. It
  // runs one at a time, as NCCL does: lanes of two would hold each other's credits for ever.
  using Turns = std::vector<std::vector<std::uint32_t>>;
  struct UnderWay {
    const Bound* bound = nullptr;
    std::vector<std::uint32_t> left;  // lanes, by member
    Turns* turns = nullptr;           // null: a message
  };
  struct Flying {
    std::uint32_t wire = kNone, number = 0;  // of the wire's messages
    std::uint32_t raw = 0;                   // without a wire: the meeting
  };

  void StartLanes(SimTime now, std::uint32_t id, std::uint32_t member) {
    const Bound* bound = under_way_[id].bound;
    const SimTime begin = now + bound->schedule->setup();
    for (int lane = 0; lane < bound->schedule->lanes(); ++lane) {
      const std::uint32_t l = NewLane();
      lanes_[l] = {bound, id, member, lane, 0, bound->schedule->At(member, lane, 0), kNone};
      ++under_way_[id].left[member];
      queue_.Push({begin, sequence_++, What::kTry, l, 0});
    }
  }

  DeviceId DeviceOf(const Meeting& m, std::size_t member) const {
    return in_.inputs->placement->device[m.members[member].rank];
  }

  const Bound* BoundOf(const Meeting& m) {
    Hasher group;
    group.Add(m.group);
    if (m.group == kNobody) group.Add(m.members[0].rank).Add(m.members[1].rank);
    const std::uint64_t communicator = group.value();
    const auto key = HashCombine(communicator, static_cast<std::uint64_t>(m.price.plan));
    std::unique_ptr<Bound>& bound = bound_[key];
    if (bound != nullptr) return bound.get();
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < m.members.size(); ++i) devices.push_back(DeviceOf(m, i));
    bound = std::make_unique<Bound>();
    const collective::Plan& plan = in_.prices->plan(m.price.plan);
    bound->schedule = std::make_unique<collective::Schedule>(plan, *in_.inputs->cluster, devices);
    for (const collective::Connection& c : bound->schedule->connections()) {
      bound->wire.push_back(WireOf(communicator, m, c, plan, bound->schedule->credits()));
    }
    const std::int64_t credits = bound->schedule->credits();
    bound->partners = {bound->schedule->PartnersOf(0, credits),
                       bound->schedule->PartnersOf(1, credits)};
    return bound.get();
  }
  std::uint32_t WireOf(std::uint64_t communicator, const Meeting& m,
                       const collective::Connection& c, const collective::Plan& plan, int credits) {
    const auto key = std::make_tuple(communicator, c.channel, c.from, c.to, c.salt);
    const auto [it, fresh] = wire_ids_.emplace(key, static_cast<std::uint32_t>(wires_.size()));
    const cluster::Cluster& cluster = *in_.inputs->cluster;
    if (fresh) {
      Wire w;
      w.from = DeviceOf(m, c.from);
      w.to = DeviceOf(m, c.to);
      w.creator = m.members[c.from].rank;
      w.salt = c.salt != 0 ? c.salt : cluster::QueuePair(c.channel, 0);
      w.credits = credits;
      std::vector<LinkId> path;
      cluster.Route(w.to, w.from, w.salt, &path);
      for (const LinkId l : path) w.credit_latency += cluster.links()[l.index()].latency;
      wires_.push_back(w);
    }
    Wire& w = wires_[it->second];
    if (cluster.nvlink_domain(w.from) != cluster.nvlink_domain(w.to) && c.salt == 0) {
      w.queue_pairs = static_cast<std::uint32_t>(plan.queue_pairs);
    }
    return it->second;
  }

  std::uint32_t NewLane() {
    if (free_lanes_.empty()) {
      free_lanes_.push_back(static_cast<std::uint32_t>(lanes_.size()));
      lanes_.emplace_back();
    }
    const std::uint32_t lane = free_lanes_.back();
    free_lanes_.pop_back();
    return lane;
  }

  void Take(const Event& e) {
    switch (e.what) {
      case What::kTry:
        return TryStep(e.who);
      case What::kWorkDone:
        return EndStep(e.who);
      case What::kSend: {
        Wire& w = wires_[e.who];
        const std::uint64_t salt =
            w.queue_pairs == 1 ? w.salt : w.salt + cluster::QueuePair(0, w.sent % w.queue_pairs);
        const Flying message{e.who, w.sent++, 0};
        return Depart(now_, message, w.from, w.to, e.bytes, salt, w.creator);
      }
      case What::kCredit: {
        Wire& w = wires_[e.who];
        ++w.credits;
        while (w.credits > 0 && w.senders.first != kNone) TryStep(TakeWaiter(&w.senders));
        return;
      }
    }
  }

  void AddWaiter(std::uint32_t l, Waiters* list) {
    lanes_[l].next = kNone;
    (list->first == kNone ? list->first : lanes_[list->last].next) = l;
    list->last = l;
  }
  std::uint32_t TakeWaiter(Waiters* list) {
    return std::exchange(list->first, lanes_[list->first].next);
  }
  Wire* WireAt(const Lane& lane, std::int32_t connection) {
    if (connection < 0) return nullptr;
    return &wires_[lane.bound->wire[static_cast<std::size_t>(connection)]];
  }
  // Starts the lane's next step if its data and its credit are there; else it waits for the first
  // that is missing.
  void TryStep(std::uint32_t l) {
    Lane& lane = lanes_[l];
    if (lane.step.done) return EndLane(l);
    Wire* in = WireAt(lane, lane.step.recv_connection);
    Wire* out = WireAt(lane, lane.step.send_connection);
    if (in != nullptr && in->ready == 0) {
      return AddWaiter(l, &in->receivers);
    }
    if (out != nullptr && out->credits == 0) {
      return AddWaiter(l, &out->senders);
    }
    if (in != nullptr) --in->ready;
    if (out != nullptr) --out->credits;
    queue_.Push({now_ + lane.step.work, sequence_++, What::kWorkDone, l, 0});
  }
  void EndStep(std::uint32_t l) {
    Lane& lane = lanes_[l];
    const collective::Step step = lane.step;
    if (step.recv_connection >= 0) {
      const std::uint32_t id = lane.bound->wire[static_cast<std::size_t>(step.recv_connection)];
      queue_.Push({now_ + wires_[id].credit_latency, sequence_++, What::kCredit, id, 0});
    }
    if (step.send_connection >= 0) {
      const std::uint32_t id = lane.bound->wire[static_cast<std::size_t>(step.send_connection)];
      queue_.Push({now_ + step.post, sequence_++, What::kSend, id, step.bytes});
    }
    ++lane.index;
    lane.step = lane.bound->schedule->At(lane.member, lane.number, lane.index);
    TryStep(l);
  }
  void EndLane(std::uint32_t l) {
    const std::uint32_t id = lanes_[l].meeting, member = lanes_[l].member;
    free_lanes_.push_back(l);
    if (--under_way_[id].left[member] > 0) return;
    ended_->push_back({id, member});
    if (under_way_[id].turns == nullptr) return;
    std::vector<std::uint32_t>& turn = (*under_way_[id].turns)[member];
    turn.erase(turn.begin());
    if (!turn.empty()) StartLanes(now_, turn.front(), member);
  }

  void Depart(SimTime now, const Flying& message, DeviceId from, DeviceId to, std::int64_t bytes,
              std::uint64_t salt, std::uint32_t creator) {
    if (free_.empty()) {
      free_.push_back(static_cast<network::FlightId>(flying_.size()));
      flying_.push_back({});
    }
    const network::FlightId id = free_.back();
    free_.pop_back();
    flying_[id] = message;
    const auto& runs = in_.options->job_runs;
    const network::Transfer t{
        .id = id,
        .from = from,
        .to = to,
        .bytes = bytes,
        .creator = creator,
        .salt = salt,
        .priority = runs.empty() ? std::uint8_t{0}
                                 : runs[in_.inputs->graph->bindings[creator].job.index()].priority,
        // Of a wire one for each queue pair; raw messages of a rank to a GPU share one.
        .connection = message.wire == kNone
                          ? network::ConnectionOf(creator, to.value)
                          : network::ConnectionOfWire(
                                message.wire, message.number % wires_[message.wire].queue_pairs)};
    network_->Start(now, {&t, 1});
  }
  // Of the first time until `time` that has any.
  void TakeDeliveries(SimTime time) {
    done_.clear();
    const SimTime reached = network_->AdvanceUntil(time, &done_);
    if (done_.empty()) return;
    now_ = reached;
    arrived_.clear();
    for (const network::Completion& c : done_) {
      ++events_;
      arrived_.push_back(flying_[c.id]);
      free_.push_back(c.id);
    }
    std::sort(arrived_.begin(), arrived_.end(), [](const Flying& a, const Flying& b) {
      return std::tie(a.wire, a.number, a.raw) < std::tie(b.wire, b.number, b.raw);
    });
    for (const Flying& f : arrived_) {
      if (f.wire == kNone) {
        ended_->push_back({f.raw, kNobody});
      } else {
        Land(f);
      }
    }
  }
  // A short message may land before a longer one ahead of it, and is received after that.
  void Land(const Flying& message) {
    early_.push_back(message);
    for (;;) {
      Wire& w = wires_[message.wire];
      const auto next = std::find_if(early_.begin(), early_.end(), [&](const Flying& f) {
        return f.wire == message.wire && f.number == w.landed;
      });
      if (next == early_.end()) return;
      early_.erase(next);
      ++w.landed;
      ++w.ready;
      while (w.ready > 0 && w.receivers.first != kNone) TryStep(TakeWaiter(&w.receivers));
    }
  }

  const TransportInputs in_;
  std::unique_ptr<network::Network> network_;
  des::EventQueue<Event> queue_;
  std::uint64_t sequence_ = 0, events_ = 0;
  SimTime now_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Bound>> bound_;  // by communicator and plan
  std::map<std::tuple<std::uint64_t, std::uint16_t, std::uint32_t, std::uint32_t, std::uint64_t>,
           std::uint32_t>
      wire_ids_;
  std::vector<Wire> wires_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> free_lanes_;
  std::vector<UnderWay> under_way_;                 // by meeting
  std::unordered_map<std::uint32_t, Turns> turns_;  // by group
  std::vector<Flying> flying_;                      // by flight
  std::vector<network::FlightId> free_;
  std::vector<Flying> early_, arrived_;
  const int threads_;
  std::vector<network::Completion> done_;
  std::vector<Ended>* ended_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeChunkTransport(const TransportInputs& in) {
  ORRERY_ASSIGN_OR_RETURN(auto network,
                          network::Create(in.inputs->network, in.inputs->network_parameters));
  const cluster::Cluster& cluster = *in.inputs->cluster;
  const auto each = static_cast<std::size_t>(cluster.spec().gpus_per_nvlink_domain);
  const std::vector<std::uint32_t> alone((cluster.devices() + each - 1) / each, 0);
  ORRERY_RETURN_IF_ERROR(network->SetupLinks(cluster, alone, 0));
  if (in.options->link_steps > 0) {
    network->KeepUseLog(static_cast<std::size_t>(in.options->link_steps));
  }
  return std::unique_ptr<Transport>(new ChunkTransport(in, std::move(network)));
}

}  // namespace orrery::engine::general
