#include "orrery/collective/algorithms/rooted.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "orrery/collective/algorithms/p2p_rounds.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using graph::Collective;

// One part of one message, from its sender's lane to its receiver's.
struct RootedFlow {
  int share = 1;                  // messages of its batch that share the root's CTA
  int next = -1;                  // what the root's lane runs after it
  int order = 0;                  // which of those that begin together goes first
  bool near = true;               // stays in the domain
  bool over_nvlink = false;       // through the root's NVLink port
  bool hop = false;               // PXN: over NVLink to the GPU beside the rail
  int nic = 0;                    // by which it leaves its domain
  bool open = false;              // the root's lane runs it
  bool under_way = false;         // to its first port
  double sent = 0, received = 0;  // ends of the lanes' last steps
  std::int64_t sends = 0, arrivals = 0, receives = 0;  // chunks
  std::vector<double> arrived, returned;  // of the last `credits` chunks: they, and their credits
};

// All messages, chunk by chunk, in the order in which they come to the root's ports.
class Course {
 public:
  Course(const Plan& plan, const model::WhiteBox& box)
      : plan_(plan),
        box_(box),
        pieces_(model::Cut(plan)),
        gather_(plan.collective == Collective::kGather) {
    AddFlows(p2p::Rounds(plan));
  }
  std::size_t messages() const { return flows_.size(); }

  // `rounds` full chunks of each message and the last, smaller one: when all is received.
  double Run(std::int64_t rounds) {
    full_ = rounds;
    chunks_ = rounds + (pieces_.tail.slices > 0 ? 1 : 0);
    nvlink_ = end_ = 0;
    sequence_ = 0;
    nics_.assign(
        static_cast<std::size_t>(gather_ ? plan_.shape.domains : std::max(1, plan_.shape.nics)), 0);
    for (RootedFlow& flow : flows_) {
      flow.sent = flow.received = 0;
      flow.sends = flow.arrivals = flow.receives = 0;
      flow.open = false;
    }
    const std::int64_t own = rounds * pieces_.full.bytes + pieces_.tail.bytes;
    for (const Lane& lane : lanes_) {
      const double copy = lane.copies > 0 ? Work(own, lane.copies) - box_.sync : 0;
      if (lane.first >= 0) Open(lane.first, copy);
      end_ = std::max(end_, copy);
    }
    for (const int flow : order_) Send(flow);
    while (!events_.empty()) {
      const Event event = events_.front();
      std::pop_heap(events_.begin(), events_.end(), std::greater<>());
      events_.pop_back();
      if (event.at == At::kFirstPort) {
        Leave(event.flow, event.chunk, event.time);
      } else {
        Cross(event.flow, event.chunk, event.time, event.at);
      }
    }
    return end_;
  }

 private:
  // A place of a channel at the root: its messages; before them the root's own part is copied by
  // one of `copies` works that share the CTA.
  struct Lane {
    int first = -1, last = -1;
    int copies = 0;
  };
  enum class At : std::uint8_t { kFirstPort, kNic, kRootsNic };
  struct Event {
    double time;
    std::uint32_t sequence;
    std::int32_t flow, chunk;
    At at;
    bool operator>(const Event& o) const {
      return time != o.time ? time > o.time : sequence > o.sequence;
    }
  };

  RootedFlow& flow(int number) { return flows_[static_cast<std::size_t>(number)]; }

  void AddFlows(const p2p::Rounds& rounds) {
    std::vector<int> works(static_cast<std::size_t>(rounds.channels));  // of a channel, in all
    for (int round = 0; round < rounds.ranks; ++round) {
      for (int part = 0; part < rounds.parts; ++part) {
        ++works[static_cast<std::size_t>((rounds.Base(round) + part) % rounds.channels)];
      }
    }
    // Works of a batch share the CTA; the root's own part is one of them.
    const auto share = [&](int channel, int number) {
      const int first = number / p2p::kBatch * p2p::kBatch;
      return std::min(p2p::kBatch, works[static_cast<std::size_t>(channel)] - first);
    };
    lanes_.resize(static_cast<std::size_t>(rounds.channels * p2p::kBatch));
    std::vector<int> on(works.size());
    int round = 0;
    for (const int d : rounds.GroupDistances()) {
      for (int l = 0; l < rounds.group; ++l, ++round) {
        for (int part = 0; part < rounds.parts; ++part) {
          const int channel = (rounds.Base(round) + part) % rounds.channels;
          const int number = on[static_cast<std::size_t>(channel)]++;
          const int place = channel * p2p::kBatch + number % p2p::kBatch;
          Lane& lane = lanes_[static_cast<std::size_t>(place)];
          if (round == 0) {
            lane.copies = share(channel, number);
            continue;
          }
          RootedFlow added = FlowOf(rounds, d, l, place);
          added.share = share(channel, number);
          const int id = static_cast<int>(flows_.size());
          (lane.first < 0 ? lane.first : flow(lane.last).next) = id;
          lane.last = id;
          flows_.push_back(std::move(added));
        }
      }
    }
    order_.resize(flows_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return flow(a).order < flow(b).order; });
  }

  // The way of a message between the root and the rank `d` groups and `l` places from it.
  RootedFlow FlowOf(const p2p::Rounds& rounds, int d, int l, int place) const {
    const GroupShape& shape = plan_.shape;
    const int here = std::max(1, shape.ranks_per_domain / rounds.group);
    const int group = gather_ ? (rounds.groups() - d) % rounds.groups() : d;
    const int other = gather_ ? (rounds.group - l) % rounds.group : l;
    const auto nic = [&](int of) {
      return of * std::max(1, shape.nics) / std::max(1, shape.ranks_per_domain);
    };
    const int rail = plan_.pxn ? nic(group % here * rounds.group + other) : 0;
    RootedFlow flow;
    flow.near = shape.domains == 1 || group < here;
    flow.hop = !flow.near && rail != 0;
    flow.over_nvlink = flow.near || (!gather_ && flow.hop);
    // A receiver's place in its domain is its rail; a gather's receiver is the root. Without PXN a
    // scatter leaves by the root's own.
    flow.nic = gather_ ? group / here : rail;
    flow.order = place;
    if (gather_) flow.order += (group * rounds.group + other) * rounds.channels * p2p::kBatch;
    flow.arrived.assign(static_cast<std::size_t>(plan_.credits), 0);
    flow.returned = flow.arrived;
    return flow;
  }

  double Work(std::int64_t data, int share) const {
    return box_.sync + static_cast<double>(data) * box_.per_byte * model::kStreams * share;
  }
  std::int64_t Bytes(std::int64_t chunk) const {
    return (chunk < full_ ? pieces_.full : pieces_.tail).bytes;
  }
  std::int64_t Message(std::int64_t chunk) const {
    return model::OnWire(plan_.protocol, Bytes(chunk));
  }
  std::size_t Slot(std::int64_t chunk) const {
    return static_cast<std::size_t>(chunk % plan_.credits);
  }
  void Push(double time, int flow, std::int64_t chunk, At at) {
    events_.push_back({time, sequence_++, flow, static_cast<std::int32_t>(chunk), at});
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  }

  // The root's lane comes to a message; in a gather the sender has had nothing else to do.
  void Open(int number, double time) {
    flow(number).open = true;
    (gather_ ? flow(number).received : flow(number).sent) = time;
  }

  // The sender's next chunk, once a credit for it is known.
  void Send(int number) {
    RootedFlow& f = flow(number);
    if (f.under_way || (!gather_ && !f.open) || f.sends == chunks_) return;
    if (f.sends - f.receives >= plan_.credits) return;
    if (f.sends >= plan_.credits) f.sent = std::max(f.sent, f.returned[Slot(f.sends)]);
    f.sent += Work(Bytes(f.sends), gather_ ? 1 : f.share);
    ++f.sends;
    f.under_way = true;
    Push(f.sent + (f.near ? box_.intra : box_.inter).post, number, f.sends - 1, At::kFirstPort);
    if (gather_ || f.sends < chunks_ || f.next < 0) return;
    Open(f.next, f.sent);
    Send(f.next);
  }

  // At the first port.
  void Leave(int number, std::int64_t chunk, double at) {
    RootedFlow& f = flow(number);
    const std::int64_t message = Message(chunk);
    f.under_way = false;
    if (f.over_nvlink) {
      at = std::max(at, nvlink_);
      nvlink_ = at + (f.near ? box_.intra.Serial(message)
                             : static_cast<double>(box_.inter.Wire(message)) * box_.intra.per_byte);
    }
    if (f.near) {
      Arrive(number, at + box_.intra.Delay(message) - box_.intra.post, box_.intra.latency);
    } else if (f.hop) {
      Push(at + box_.intra.latency, number, chunk, At::kNic);
    } else {
      Cross(number, chunk, at, At::kNic);
    }
    Send(number);
  }

  // At a NIC: that by which it leaves, or the root's own, by which all of a gather come in.
  void Cross(int number, std::int64_t chunk, double at, At where) {
    const RootedFlow& f = flow(number);
    const std::int64_t message = Message(chunk);
    double& nic = nics_[where == At::kNic ? static_cast<std::size_t>(f.nic) : 0];
    at = std::max(at, nic);
    nic = at + box_.inter.Serial(message);
    if (gather_ && where == At::kNic) return Push(at, number, chunk, At::kRootsNic);
    Arrive(number, at + box_.inter.Delay(message) - box_.inter.post,
           box_.inter.latency + (f.hop ? box_.intra.latency : 0));
  }

  void Arrive(int number, double at, double back) {
    RootedFlow& f = flow(number);
    f.arrived[Slot(f.arrivals++)] = at;
    if (!gather_ || f.open) Receive(number, back);
  }

  // What has come; `back`: a credit's way.
  void Receive(int number, double back) {
    RootedFlow& f = flow(number);
    while (f.receives < f.arrivals) {
      // Over NVLink a sender writes into the receiver's buffer, which leaves nothing to copy.
      const std::int64_t copied = f.near ? 0 : Bytes(f.receives);
      f.received =
          std::max(f.received, f.arrived[Slot(f.receives)]) + Work(copied, gather_ ? f.share : 1);
      f.returned[Slot(f.receives++)] = f.received + back;
    }
    end_ = std::max(end_, f.received);
    Send(number);
    if (!gather_ || f.receives < chunks_ || f.next < 0) return;
    Open(f.next, f.received);
    Receive(f.next, back);
  }

  const Plan& plan_;
  const model::WhiteBox& box_;
  model::Pieces pieces_;
  bool gather_;
  std::vector<RootedFlow> flows_;
  std::vector<Lane> lanes_;      // of the root, by channel and place
  std::vector<int> order_;       // of flows
  std::vector<Event> events_;    // a heap
  std::vector<double> nics_;     // when they are free; a gather's by domain
  double nvlink_ = 0, end_ = 0;  // when the root's port is; the last receipt
  std::uint32_t sequence_ = 0;
  std::int64_t full_ = 0, chunks_ = 0;
};

// Of what is played at most: a message's chunks in windows of credits, and all messages' chunks. A
// gather meets at one NIC only.
constexpr std::int64_t kWindows = 8, kMostGathered = 600, kMostScattered = 2400;

}  // namespace

SimTime PlayRooted(const Plan& plan, const model::WhiteBox& box) {
  Course course(plan, box);
  const std::int64_t rounds = model::Cut(plan).rounds;
  const std::int64_t budget =
      plan.collective == Collective::kGather ? kMostGathered : kMostScattered;
  const auto messages = static_cast<std::int64_t>(course.messages());
  const std::int64_t most = std::clamp<std::int64_t>(budget / messages, 4, kWindows * plan.credits);
  const double time = course.Run(std::min(rounds, most));
  if (rounds <= most) return RoundToPs(time);
  // What lies between takes what the last quarter of them takes more than without it.
  const std::int64_t quarter = most / 4;
  const double pace = (time - course.Run(most - quarter)) / static_cast<double>(quarter);
  return RoundToPs(time + static_cast<double>(rounds - most) * pace);
}

Cost RootedCost(const Plan& plan, const cluster::Spec& spec) {
  Cost cost;
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(box.setup);
    return cost;
  }
  const GroupShape& shape = plan.shape;
  const auto total = static_cast<double>(plan.phases);
  const model::Pieces pieces = model::Cut(plan);
  const auto wire = [&](const model::Edge& edge) {
    const auto of = [&](const model::Chunk& chunk) {
      return chunk.slices > 0
                 ? static_cast<double>(edge.Wire(model::OnWire(plan.protocol, chunk.bytes)))
                 : 0;
    };
    return p2p::Rounds(plan).parts *
           (static_cast<double>(pieces.rounds) * of(pieces.full) + of(pieces.tail));
  };
  const double local = shape.ranks_per_domain - 1;
  const double remote = shape.ranks - shape.ranks_per_domain;
  const bool net = shape.domains > 1;
  const double nvlink = local * wire(box.intra);
  const double nic = net ? remote * wire(box.inter) : 0;
  // The root's ports: all of a gather's come through its own NIC.
  const double nics = plan.collective == Collective::kGather ? 1 : std::max(1, shape.nics);
  const double busy = std::max(nvlink * box.intra.per_byte, nic / nics * box.inter.per_byte);
  cost.transfer = RoundToPs(std::min(total, busy));
  cost.fixed = RoundToPs(box.setup + total) - cost.transfer;
  cost.member.nvlink_out = cost.member.nvlink_in = static_cast<std::int64_t>(nvlink / shape.ranks);
  cost.member.nic_out = cost.member.nic_in = static_cast<std::int64_t>(nic / shape.ranks);
  return cost;
}

}  // namespace orrery::collective
