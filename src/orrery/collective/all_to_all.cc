#include "orrery/collective/all_to_all.h"

#include <algorithm>

#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

constexpr double kMessagesAtOnce = 8;  // per channel: NCCL's batch of P2P work

double CeilDiv(double a, double b) {
  return static_cast<double>((static_cast<std::int64_t>(a) + static_cast<std::int64_t>(b) - 1) /
                             static_cast<std::int64_t>(b));
}

// Messages of one rank, and what one of them costs.
struct Traffic {
  double local = 0, remote = 0;  // messages to ranks of the own domain, and to others
  double hops = 0;               // of the remote ones, those that PXN carries over NVLink first
};

Traffic TrafficOf(const GroupShape& shape) {
  Traffic t;
  const double p = shape.ranks_per_domain;
  t.local = p - 1;
  t.remote = shape.ranks - p;
  // A rail's NIC is beside one GPU of the domain: the others hand their messages over.
  if (shape.domains > 1 && p > 1) t.hops = t.remote * (p - 1) / p;
  return t;
}

}  // namespace

Cost AllToAllCost(const Plan& plan, const cluster::Spec& spec) {
  const GroupShape& shape = plan.shape;
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  Cost cost;
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(box.setup);
    return cost;
  }
  const Traffic t = TrafficOf(shape);
  const bool net = shape.domains > 1;
  const std::int64_t part = std::max<std::int64_t>(1, plan.bytes / shape.ranks);
  const std::int64_t wire = model::OnWire(plan.protocol, part);
  const double per_peer = std::max(1, plan.channels);
  const auto sharers =
      static_cast<double>(std::max(1, shape.ranks_per_domain / std::max(1, shape.nics)));
  const double nvlink = (t.local + t.hops) * box.intra.Serial(wire);
  const double nic = t.remote * sharers * (net ? box.inter.Serial(wire) : 0);
  // One CTA sends while its other half receives; its own part is one more copy.
  const double messages = shape.ranks;
  const double slices =
      CeilDiv(CeilDiv(static_cast<double>(part), per_peer), static_cast<double>(plan.slice_bytes));
  const double lanes = std::max(per_peer, static_cast<double>(plan.lanes));
  const double bytes =
      static_cast<double>(part) * messages * box.per_byte * model::kStreams / lanes;
  const double sync = messages * per_peer * slices * box.sync / lanes / kMessagesAtOnce;
  const double lane = bytes + sync;
  const double rounds = CeilDiv(messages * per_peer, lanes * kMessagesAtOnce);
  const double local_step = t.local > 0 ? box.intra.post + box.intra.latency : 0;
  const double remote_step = net ? box.inter.post + box.inter.latency : 0;
  const double hop = t.hops > 0 ? box.intra.post + box.intra.latency : 0;
  const double step = box.sync + std::max(local_step, remote_step + hop);
  const double busy = std::max({lane, nvlink, nic});
  const double bound = std::max({bytes, nvlink, nic});
  cost.transfer = RoundToPs(bound);
  cost.fixed = RoundToPs(box.setup + rounds * step + (busy - bound));
  cost.member.nvlink_out = cost.member.nvlink_in =
      static_cast<std::int64_t>((t.local + t.hops) * static_cast<double>(box.intra.Wire(wire)));
  cost.member.nic_out = cost.member.nic_in =
      static_cast<std::int64_t>(t.remote * (net ? static_cast<double>(box.inter.Wire(wire)) : 0));
  return cost;
}

}  // namespace orrery::collective
