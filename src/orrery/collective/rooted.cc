#include "orrery/collective/rooted.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "orrery/collective/p2p_rounds.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using graph::Collective;

// One part of one message, from its sender's lane to its receiver's.
struct Flow {
  int number = 0;  // in the order of rounds
  int batch = 0;
  int share = 1;                  // messages of its batch that share the root's CTA
  int place = 0;                  // at the root's channel: the lane
  bool near = true;               // stays in the domain
  int nic = -1;                   // of the root's domain, where it leaves or comes in
  bool over_nvlink = false;       // through the root's NVLink port
  double sent = 0, received = 0;  // ends of the lanes' last steps
  std::vector<double> returned;   // of the last `credits` chunks
};

class Course {
 public:
  Course(const Plan& plan, const cluster::Spec& spec)
      : plan_(plan),
        box_(model::MakeWhiteBox(plan, spec)),
        pieces_(model::Cut(plan)),
        rounds_(plan),
        gather_(plan.collective == Collective::kGather),
        nics_(static_cast<std::size_t>(std::max(1, plan.shape.nics))) {
    AddFlows();
    lanes_.resize(static_cast<std::size_t>(rounds_.channels * p2p::kBatch));
  }

  double Run() {
    // The root copies its own part first.
    const double own = Work(pieces_.share, own_share_) - box_.sync;
    for (int part = 0; part < rounds_.parts; ++part) {
      const int channel = (rounds_.Base(0) + part) % rounds_.channels;
      lanes_[static_cast<std::size_t>(channel * p2p::kBatch)] = own;
    }
    double end = own;
    for (int b = 0; b <= last_batch_; ++b) end = std::max(end, Batch(b));
    return end;
  }
  double setup() const { return box_.setup; }
  const model::WhiteBox& box() const { return box_; }
  const model::Pieces& pieces() const { return pieces_; }
  int parts() const { return rounds_.parts; }

 private:
  static constexpr std::int64_t kWindows = 4;

  void AddFlows() {
    const GroupShape& shape = plan_.shape;
    const int groups_here = std::max(1, shape.ranks_per_domain / rounds_.group);
    const int groups = rounds_.groups();
    std::vector<int> on(static_cast<std::size_t>(rounds_.channels));
    int round = 0;
    for (const int d : rounds_.GroupDistances()) {
      const int group = gather_ ? (groups - d) % groups : d;
      for (int l = 0; l < rounds_.group; ++l, ++round) {
        for (int part = 0; part < rounds_.parts; ++part) {
          const int channel = (rounds_.Base(round) + part) % rounds_.channels;
          const int number = on[static_cast<std::size_t>(channel)]++;
          if (round == 0) continue;  // the root's own part: a copy, before all others
          Flow flow;
          flow.number = static_cast<int>(flows_.size());
          flow.batch = number / p2p::kBatch;
          flow.place = channel * p2p::kBatch + number % p2p::kBatch;
          flow.near = shape.domains == 1 || group < groups_here;
          // The receiver's place in its domain is its rail; a gather's receiver is the root.
          const int rail = gather_ ? 0 : group % groups_here * rounds_.group + l;
          flow.over_nvlink = flow.near || (!gather_ && rail != 0);
          if (!flow.near) {
            flow.nic = rail * static_cast<int>(nics_.size()) / std::max(1, shape.ranks_per_domain);
          }
          flow.returned.assign(static_cast<std::size_t>(plan_.credits), 0);
          last_batch_ = std::max(last_batch_, flow.batch);
          flows_.push_back(std::move(flow));
        }
      }
    }
    // Works of a batch share the CTA; the root's own part is one of them.
    for (Flow& flow : flows_) {
      const int works = on[static_cast<std::size_t>(flow.place / p2p::kBatch)];
      flow.share = std::min(p2p::kBatch, works - flow.batch * p2p::kBatch);
    }
    for (int part = 0; part < rounds_.parts; ++part) {
      const int works = on[static_cast<std::size_t>((rounds_.Base(0) + part) % rounds_.channels)];
      own_share_ = std::max(own_share_, std::min(p2p::kBatch, works));
    }
  }

  double Work(std::int64_t data, int share) const {
    return box_.sync + static_cast<double>(data) * box_.per_byte * model::kStreams * share;
  }

  double Batch(int number) {
    std::vector<Flow*> flows;
    for (Flow& flow : flows_) {
      if (flow.batch != number) continue;
      double& lane = lanes_[static_cast<std::size_t>(flow.place)];
      // The root's lane is free; in a gather the sender has had nothing else to do.
      (gather_ ? flow.received : flow.sent) = lane;
      flows.push_back(&flow);
    }
    const std::int64_t window = plan_.credits;
    const std::int64_t most = std::min(pieces_.rounds, kWindows * window);
    double before = 0;
    for (std::int64_t k = 0; k < most; ++k) {
      if (k == (kWindows - 1) * window) before = End(flows);
      Pass(pieces_.full.bytes, static_cast<std::size_t>(k % window), &flows);
    }
    if (pieces_.rounds > most) {
      const double more = static_cast<double>(pieces_.rounds - most) * (End(flows) - before) /
                          static_cast<double>(window);
      for (Flow* flow : flows) {
        flow->sent += more;
        flow->received += more;
        for (double& at : flow->returned) at += more;
      }
      nvlink_ += more;
      for (double& nic : nics_) nic += more;
    }
    if (pieces_.tail.slices > 0) {
      Pass(pieces_.tail.bytes, static_cast<std::size_t>(pieces_.rounds % window), &flows);
    }
    for (Flow* flow : flows) {
      lanes_[static_cast<std::size_t>(flow->place)] = gather_ ? flow->received : flow->sent;
    }
    return End(flows);
  }

  static double End(const std::vector<Flow*>& flows) {
    double end = 0;
    for (const Flow* flow : flows) end = std::max(end, flow->received);
    return end;
  }

  // A chunk of every flow from lane to lane, in the order in which they reach the ports; `slot`:
  // its place in the connections' buffers.
  void Pass(std::int64_t data, std::size_t slot, std::vector<Flow*>* flows) {
    for (Flow* flow : *flows) {
      flow->sent =
          std::max(flow->sent, flow->returned[slot]) + Work(data, gather_ ? 1 : flow->share);
    }
    std::sort(flows->begin(), flows->end(), [](const Flow* a, const Flow* b) {
      return a->sent != b->sent ? a->sent < b->sent : a->number < b->number;
    });
    for (Flow* flow : *flows) Cross(data, slot, flow);
  }

  void Cross(std::int64_t data, std::size_t slot, Flow* flow) {
    const model::Edge& edge = flow->near ? box_.intra : box_.inter;
    const std::int64_t message = model::OnWire(plan_.protocol, data);
    const double crossing = edge.Delay(message) - edge.post;
    double at = flow->sent + edge.post;
    double back = edge.latency;
    if (flow->over_nvlink) {
      const double serial = flow->near
                                ? edge.Serial(message)
                                : static_cast<double>(edge.Wire(message)) * box_.intra.per_byte;
      at = std::max(at, nvlink_);
      nvlink_ = at + serial;
    }
    if (!flow->near) {
      // PXN's way over NVLink, on either side.
      const bool hop = gather_ ? plan_.shape.ranks_per_domain > 1 : flow->over_nvlink;
      if (hop) at += box_.intra.latency;
      if (hop) back += box_.intra.latency;
      double& nic = nics_[static_cast<std::size_t>(flow->nic)];
      at = std::max(at, nic);
      nic = at + edge.Serial(message);
    }
    // Over NVLink a sender writes into the receiver's buffer, which leaves nothing to copy.
    const double receive = Work(flow->near ? 0 : data, gather_ ? flow->share : 1);
    flow->received = std::max(flow->received, at + crossing) + receive;
    flow->returned[slot] = flow->received + back;
  }

  const Plan& plan_;
  model::WhiteBox box_;
  model::Pieces pieces_;
  p2p::Rounds rounds_;
  bool gather_;
  std::vector<Flow> flows_;
  std::vector<double> lanes_;  // of the root, by place: when it is free
  double nvlink_ = 0;          // when the root's port is free
  std::vector<double> nics_;   // and those of its domain
  int own_share_ = 1;          // of the copy of the root's own part
  int last_batch_ = 0;
};

}  // namespace

Cost RootedCost(const Plan& plan, const cluster::Spec& spec) {
  Cost cost;
  Course course(plan, spec);
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(course.setup());
    return cost;
  }
  const GroupShape& shape = plan.shape;
  const double total = course.Run();
  const model::Pieces& pieces = course.pieces();
  const auto wire = [&](const model::Edge& edge) {
    const auto of = [&](const model::Chunk& chunk) {
      return chunk.slices > 0
                 ? static_cast<double>(edge.Wire(model::OnWire(plan.protocol, chunk.bytes)))
                 : 0;
    };
    return course.parts() *
           (static_cast<double>(pieces.rounds) * of(pieces.full) + of(pieces.tail));
  };
  const double local = shape.ranks_per_domain - 1;
  const double remote = shape.ranks - shape.ranks_per_domain;
  const bool net = shape.domains > 1;
  const double nvlink = local * wire(course.box().intra);
  const double nic = net ? remote * wire(course.box().inter) : 0;
  // The root's ports: all of a gather's come through its own NIC.
  const double nics = plan.collective == Collective::kGather ? 1 : std::max(1, shape.nics);
  const double busy =
      std::max(nvlink * course.box().intra.per_byte, nic / nics * course.box().inter.per_byte);
  cost.transfer = RoundToPs(std::min(total, busy));
  cost.fixed = RoundToPs(course.setup() + total) - cost.transfer;
  cost.member.nvlink_out = cost.member.nvlink_in = static_cast<std::int64_t>(nvlink / shape.ranks);
  cost.member.nic_out = cost.member.nic_in = static_cast<std::int64_t>(nic / shape.ranks);
  return cost;
}

}  // namespace orrery::collective
