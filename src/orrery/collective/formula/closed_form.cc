// The price of a plan: which formula, and what its ports carry (formula.h).
#include <algorithm>

#include "orrery/collective/algorithms/all_to_all.h"
#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/algorithms/pat.h"
#include "orrery/collective/algorithms/rooted.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/formula/formula.h"
#include "orrery/collective/formula/moye.h"
#include "orrery/collective/playback/playback.h"

namespace orrery::collective {

using graph::Collective;

PortBytes Formula::Ports() const {
  const double ranks = plan_.shape.ranks;
  const double domains = plan_.shape.domains;
  const std::int64_t message = model::OnWire(plan_.protocol, pieces_.share);
  const double nvlink = static_cast<double>(box_.intra.Wire(message)) * plan_.channels;
  const double nic = net() ? static_cast<double>(box_.inter.Packed(message)) * plan_.channels : 0;
  PortBytes ports;
  if (plan_.algorithm == Algorithm::kPointToPoint) {
    ports.nvlink_out = ports.nvlink_in = net() ? 0 : static_cast<std::int64_t>(nvlink);
    ports.nic_out = ports.nic_in = static_cast<std::int64_t>(nic);
    return ports;
  }
  if (model::IsNvls(plan_)) {
    const double parts =
        static_cast<double>(box_.intra.Wire(model::OnSwitch(box_, pieces_.share)) * plan_.channels);
    const bool scatters = nvls::Scatters(plan_.collective);
    const bool gathers = nvls::Gathers(plan_.collective);
    ports.nvlink_out =
        static_cast<std::int64_t>(parts * ((scatters ? 1 : 0) + (gathers ? 1.0 / ppn() : 0)));
    ports.nvlink_in =
        static_cast<std::int64_t>(parts * ((gathers ? 1 : 0) + (scatters ? 1.0 / ppn() : 0)));
    ports.nic_out = ports.nic_in = static_cast<std::int64_t>(nic * 2 * (domains - 1) / ranks);
    return ports;
  }
  if (model::IsCollNet(plan_)) {
    const bool through_switch = plan_.algorithm == Algorithm::kNvls;
    const std::int64_t near = through_switch ? model::OnSwitch(box_, pieces_.share) : pieces_.share;
    const double parts = static_cast<double>(box_.intra.Wire(near)) * plan_.channels;
    // Towards the heads, and from them.
    const bool scatters = nvls::Scatters(plan_.collective);
    const bool gathers = nvls::Gathers(plan_.collective);
    const double some = through_switch ? 1 : 1 - 1.0 / ppn();
    const double up = scatters ? some : 0, down = gathers ? some : 0;
    const double turns = through_switch ? 1.0 / ppn() : 1;
    ports.nvlink_out = static_cast<std::int64_t>(parts * (up + down * turns));
    ports.nvlink_in = static_cast<std::int64_t>(parts * (down + up * turns));
    const double rail = nic / ppn();
    ports.nic_out = static_cast<std::int64_t>(rail / (scatters ? 1 : domains));
    ports.nic_in = static_cast<std::int64_t>(rail / (gathers ? 1 : domains));
    return ports;
  }
  if (plan_.algorithm == Algorithm::kPat) {
    ports.nic_out = ports.nic_in = static_cast<std::int64_t>(nic * (ranks - 1));
    return ports;
  }
  double intra = 0, inter = 0;  // copies of the share that a member sends on average
  if (plan_.algorithm == Algorithm::kTree) {
    intra = 2 * (ranks - domains) / ranks;
    inter = 2 * (domains - 1) / ranks;
  } else {
    // Rotating: R edges, each of which carries `copies`; a broadcast is a chain of R - 1.
    const bool rotating = model::IsRotating(plan_.collective);
    const double copies = rotating ? static_cast<double>(model::RingSteps(plan_) - 1) / ranks : 1;
    const double crossings = !net() ? 0 : rotating ? domains : ChainCrossings();
    const double edges = ranks - (rotating ? 0 : 1);
    intra = copies * (edges - crossings) / ranks;
    inter = copies * crossings / ranks;
  }
  ports.nvlink_out = ports.nvlink_in = static_cast<std::int64_t>(nvlink * intra);
  ports.nic_out = ports.nic_in = static_cast<std::int64_t>(nic * inter);
  return ports;
}

namespace {

// A port that works for less than this of a lane's time makes nobody wait long enough to matter. On
// the ideal executor, within 3 % of it: trees up to 0.9, NVLS up to 0.7.
constexpr double kQuiet = 0.7;

// What is not played goes at the pace of the slowest lane, port or window.
SimTime PhasesOfCollNet(const Plan& plan, const cluster::Spec& spec) {
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  const Formula formula(plan, box);
  const Playback played = PlayCollNet(plan, box);
  const auto rest = static_cast<double>(model::Cut(plan).rounds - played.rounds);
  return played.time + RoundToPs(rest * formula.PaceOfCollNet()) -
         RoundToPs(formula.CollNet().total);
}

}  // namespace

SimTime PhasesOf(const Plan& plan, const cluster::Spec& spec) {
  if (plan.shape.ranks < 2 || plan.bytes == 0) return 0;
  if (model::IsCollNet(plan)) return PhasesOfCollNet(plan, spec);
  const bool nvls = model::IsNvls(plan), tree = plan.algorithm == Algorithm::kTree;
  const bool pat = plan.algorithm == Algorithm::kPat;
  const bool rooted =
      plan.collective == Collective::kGather || plan.collective == Collective::kScatter;
  if (!nvls && !tree && !pat && !rooted) return 0;
  const model::WhiteBox box = model::MakeWhiteBox(plan, spec);
  if (pat) return pat::Play(plan, box);
  if (rooted) return PlayRooted(plan, box);
  if (Formula(plan, box).PortsOverLanes() < kQuiet) return 0;
  const Playback played = nvls ? PlayNvls(plan, box) : PlayTree(plan, box);
  if (played.time == 0) return 0;
  const std::int64_t rest = model::Cut(plan).rounds - played.rounds;
  if (!nvls) {
    Plan full = plan;  // without the smaller last chunk
    full.bytes = (played.rounds + rest) * plan.channels * plan.chunk_bytes;
    const double pace = rest > 0 ? Formula(full, box).PaceOfTree() : 0;
    return played.time + RoundToPs(static_cast<double>(rest) * pace) -
           RoundToPs(Formula(plan, box).Tree().total);
  }
  Plan first = plan;
  first.phases = 0;
  first.bytes -= rest * plan.channels * plan.chunk_bytes * plan.heads;
  const Formula formula(first, box);  // the same steps, fewer of them
  return played.time - RoundToPs(formula.Nvls().total);
}

Cost Planner::ClosedForm(const Plan& plan) const {
  Cost cost;
  if (plan.shape.ranks < 2) return cost;
  if (plan.collective == Collective::kAllToAll) return AllToAllCost(plan, cluster_->spec());
  if (model::IsExchange(plan.collective)) return RootedCost(plan, cluster_->spec());
  const Formula formula(plan, cluster_->spec());
  if (plan.bytes == 0) {
    cost.fixed = RoundToPs(formula.setup());
    return cost;
  }
  if (plan.priced_by == PriceModel::kMoye) {
    return MoyeCost(plan, pricing_.setup, formula.Ports(), cluster_->spec());
  }
  const bool rotating = plan.algorithm == Algorithm::kRing && model::IsRotating(plan.collective);
  const Terms terms = plan.algorithm == Algorithm::kTree           ? formula.Tree()
                      : plan.algorithm == Algorithm::kPat          ? formula.Pat()
                      : model::IsNvls(plan)                        ? formula.Nvls()
                      : model::IsCollNet(plan)                     ? formula.CollNet()
                      : plan.algorithm == Algorithm::kPointToPoint ? formula.PointToPoint()
                      : rotating                                   ? formula.Ring()
                                                                   : formula.Chain();
  cost.transfer = RoundToPs(terms.transfer);
  cost.fixed = RoundToPs(formula.setup() + terms.total) - cost.transfer;
  cost.member = formula.Ports();
  return cost;
}

}  // namespace orrery::collective
