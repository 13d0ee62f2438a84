#include "orrery/engine/flow_grain.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/hash.h"
#include "orrery/cluster/salts.h"
#include "orrery/engine/straight/symmetry.h"

namespace orrery::engine {
namespace {

constexpr std::int64_t kWhole = network::LinkLoad().share;  // a fluid's own bytes

// Of a fluid that nobody slows.
SimTime LeastTime(const network::LinkFluid& fluid) {
  const SimTime fixed = fluid.before + fluid.after;
  if (fluid.cap_Bps == 0) return fixed;
  return fixed + static_cast<SimTime>(static_cast<Uint128>(fluid.bytes) * std::uint64_t{kSecond} /
                                      static_cast<Uint128>(fluid.cap_Bps));
}

}  // namespace

FlowGrain::FlowGrain(const LoopInputs& in, network::Network* network)
    : in_(in), network_(network), pending_(in.layout->meets.size(), 0) {
  auto alone = network::Create(network->name());
  ORRERY_CHECK(alone.ok(), "a network that runs can be made again");
  alone_ = std::move(*alone);
  const cluster::Cluster& cluster = *in.inputs->cluster;
  ORRERY_CHECK(alone_->SetupLinks(cluster, {}, 0).ok(), "its cluster is served");
  failures_ = network::Failures(cluster);
  adaptive_ = cluster.spec().topology.routing == cluster::Routing::kAdaptive;
  if (adaptive_) chosen_.assign(cluster.links().size(), 0);
  steady_ = !adaptive_ && cluster.link_changes().empty();
}

std::vector<DeviceId> FlowGrain::Members(std::uint32_t meet) const {
  const MeetInfo& info = in_.layout->meets[meet];
  const auto& device = in_.inputs->placement->device;
  if (info.pair) return {device[info.from.index()], device[info.to.index()]};
  std::vector<DeviceId> members;
  for (const RankId r : in_.inputs->graph->groups.members(info.group)) {
    members.push_back(device[r.index()]);
  }
  return members;
}

FlowGrain::Binding& FlowGrain::Bind(std::uint32_t meet, int plan) {
  const std::uint64_t key = std::uint64_t{meet} << 32 | static_cast<std::uint32_t>(plan);
  const auto [it, fresh] = binding_of_.emplace(key, static_cast<std::uint32_t>(bindings_.size()));
  if (!fresh) return bindings_[it->second];
  bindings_.push_back(MakeBinding(in_.prices->plan(plan), Members(meet)));
  return bindings_.back();
}

FlowGrain::Binding FlowGrain::MakeBinding(const collective::Plan& plan,
                                          std::span<const DeviceId> members) {
  Binding binding;
  binding.first = static_cast<std::uint32_t>(templates_.size());
  const collective::FlowGrain grain =
      collective::MakeFlowGrain(plan, *in_.inputs->cluster, members);
  for (std::size_t c = 0; c < grain.channels(); ++c) {
    MapChannel(grain.channel(c), members, c);
    AddTemplate(&binding, c);
  }
  binding.private_path = graph::IsPointToPoint(plan.collective) && IsPrivate(binding, members);
  return binding;
}

// The channel's loads, into channel_ and channel_bytes_.
void FlowGrain::MapChannel(std::span<const collective::ChannelEdge> edges,
                           std::span<const DeviceId> members, std::size_t channel) {
  link_bytes_.clear();
  channel_.clear();
  channel_bytes_ = 0;
  std::int64_t connection = 0;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const collective::ChannelEdge& edge = edges[e];
    const bool queue_pair = edge.salt > 0xFFFF && edge.salt < cluster::kFirstName;  // not the first
    connection = (queue_pair ? connection : 0) + edge.wire_bytes;
    Route(members[edge.from], members[edge.to], edge.salt != 0 ? edge.salt : channel);
    for (const LinkId link : route_) link_bytes_.emplace_back(link, edge.wire_bytes);
    channel_bytes_ = std::max(channel_bytes_, connection);
  }
  std::sort(link_bytes_.begin(), link_bytes_.end());
  for (std::size_t i = 0; i < link_bytes_.size();) {
    const LinkId link = link_bytes_[i].first;
    std::int64_t bytes = 0;
    for (; i < link_bytes_.size() && link_bytes_[i].first == link; ++i) {
      bytes += link_bytes_[i].second;
    }
    const auto share = static_cast<std::int64_t>(
        (static_cast<Uint128>(bytes) * kWhole + static_cast<Uint128>(channel_bytes_ / 2)) /
        static_cast<Uint128>(channel_bytes_));
    channel_.push_back({link, static_cast<std::uint32_t>(std::max<std::int64_t>(share, 1))});
  }
}

// A connection's path, into route_.
void FlowGrain::Route(DeviceId from, DeviceId to, std::uint64_t salt) {
  if (adaptive_ && !cluster::HasOneWay(salt)) return RouteByLoad(from, to, salt);
  if (!failures_.any()) return in_.inputs->cluster->Route(from, to, salt, &route_);
  Status found = failures_.Route(from, to, salt, &route_);
  if (status_.ok()) status_ = std::move(found);
}

// The least loaded of 16 paths, the first of equals, counted from the connection's own.
void FlowGrain::RouteByLoad(DeviceId from, DeviceId to, std::uint64_t salt) {
  constexpr std::uint64_t kPaths = 16, kScale = std::uint64_t{1} << 44;
  const cluster::Cluster& cluster = *in_.inputs->cluster;
  // PXN: over NVLink to the GPU beside the rail's NIC, and on from there.
  DeviceId beside = from;
  if (salt == cluster::kByRail && !cluster.direct()) {
    cluster.Route(from, to, salt, &other_);
    if (other_.front() == cluster.nvlink_out(from)) beside = DeviceId(other_[1].index() / 2);
  }
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint64_t k = 0; k < kPaths; ++k) {
    cluster.Route(beside, to, (salt + k) % kPaths, &other_);
    std::uint64_t most = failures_.blocked(other_) ? ~std::uint64_t{0} - 1 : 0;
    for (const LinkId id : other_) {
      const std::uint64_t flights = network_->flights(id) + chosen_[id.index()];
      const auto rate = static_cast<std::uint64_t>(cluster.links()[id.index()].bandwidth_Bps);
      most = std::max(most, flights * kScale / rate);
    }
    if (most < least) {
      least = most;
      route_ = other_;
    }
  }
  if (beside != from) {
    const LinkId way[] = {cluster.nvlink_out(from), cluster.nvlink_in(beside)};
    route_.insert(route_.begin(), std::begin(way), std::end(way));
  }
  if (failures_.blocked(route_)) {
    Status found = failures_.Route(from, to, salt, &route_);
    if (status_.ok()) status_ = std::move(found);
  }
  for (const LinkId id : route_) ++chosen_[id.index()];
}

// Who crosses a link that has gone down moves to the path of the moment.
void FlowGrain::MoveFlights(SimTime now) {
  if (!failures_.Advance(now)) return;
  binding_of_.clear();
  for (network::FlightId flight = 0; flight < bound_.size(); ++flight) {
    Bound& bound = bound_[flight];
    if (bound.plan < 0 || !failures_.blocked(bound.links)) continue;
    const std::vector<DeviceId> members = Members(meet_of_[flight]);
    const collective::FlowGrain grain =
        collective::MakeFlowGrain(in_.prices->plan(bound.plan), *in_.inputs->cluster, members);
    MapChannel(grain.channel(bound.channel), members, bound.channel);
    network_->Move(now, flight, channel_);
    bound.links.clear();
    for (const network::LinkLoad& load : channel_) bound.links.push_back(load.link);
  }
  std::ranges::fill(chosen_, 0u);
}

// Adds the channel to the binding: to a fluid of equal loads if there is one. Where links may go
// down every channel is a fluid, so that each can go its own way.
void FlowGrain::AddTemplate(Binding* binding, std::size_t channel) {
  if (channel_.empty()) return;
  const std::uint32_t merge_with = failures_.any() ? 0 : binding->fluids;
  for (std::uint32_t i = 0; i < merge_with; ++i) {
    Template& t = templates_[binding->first + i];
    if (std::ranges::equal(std::span(loads_).subspan(t.first, t.loads), channel_)) {
      t.bytes += channel_bytes_;
      ++t.weight;
      return;
    }
  }
  templates_.push_back({channel_bytes_, 1, static_cast<std::uint32_t>(loads_.size()),
                        static_cast<std::uint32_t>(channel_.size()),
                        static_cast<std::uint32_t>(channel)});
  loads_.insert(loads_.end(), channel_.begin(), channel_.end());
  ++binding->fluids;
}

bool FlowGrain::IsPrivate(const Binding& binding, std::span<const DeviceId> members) const {
  const cluster::Cluster& cluster = *in_.inputs->cluster;
  if (cluster.direct()) return false;
  const DeviceId from = members[0], to = members[1];
  const auto links = cluster.links();
  const LinkId own[] = {cluster.nvlink_out(from), cluster.nvlink_in(to), cluster.pcie_out(from),
                        cluster.pcie_in(to)};
  const std::uint32_t out = links[own[2].index()].to, in = links[own[3].index()].from;  // NICs
  for (std::uint32_t i = 0; i < binding.fluids; ++i) {
    const Template& t = templates_[binding.first + i];
    for (const network::LinkLoad& load : std::span(loads_).subspan(t.first, t.loads)) {
      if (std::ranges::find(own, load.link) != std::end(own)) continue;
      const cluster::Link& link = links[load.link.index()];
      const bool up = link.kind == cluster::LinkKind::kNicUp && link.from == out;
      const bool down = link.kind == cluster::LinkKind::kNicDown && link.to == in;
      if (!up && !down) return false;
    }
  }
  return true;
}

// The binding's fluids, into batch_ and batch_loads_, numbered from 0. A meet that moves nothing is
// one fluid without loads.
void FlowGrain::MakeBatch(const Binding& binding, const collective::Cost& cost) {
  batch_.clear();
  batch_loads_.clear();
  for (std::uint32_t i = 0; i < binding.fluids; ++i) {
    const Template& t = templates_[binding.first + i];
    network::LinkFluid fluid;
    fluid.id = i;
    fluid.before = cost.fixed / 2;
    fluid.after = cost.fixed - fluid.before;
    fluid.bytes = t.bytes;
    fluid.weight = t.weight;
    if (cost.transfer > 0) {
      const Uint128 cap = static_cast<Uint128>(t.bytes) * std::uint64_t{kSecond} /
                          static_cast<Uint128>(cost.transfer);
      fluid.cap_Bps = cap > (Uint128{1} << 50) ? 0 : static_cast<std::int64_t>(cap);
      if (fluid.cap_Bps > 0) fluid.cap_Bps = std::max<std::int64_t>(fluid.cap_Bps, t.weight);
    }
    fluid.first_load = static_cast<std::uint32_t>(batch_loads_.size());
    fluid.loads = t.loads;
    batch_loads_.insert(batch_loads_.end(), loads_.begin() + t.first,
                        loads_.begin() + t.first + t.loads);
    batch_.push_back(fluid);
  }
  if (!batch_.empty()) return;
  network::LinkFluid nothing;
  nothing.before = cost.total();
  batch_.push_back(nothing);
}

// What Alone depends on: the fluids, and which of them meet on links of which speed.
std::uint64_t FlowGrain::Likeness(const Binding& binding, const collective::Cost& cost) const {
  const auto links = in_.inputs->cluster->links();
  std::unordered_map<LinkId, std::uint32_t> number;  // in order of first use
  Hasher hasher;
  hasher.Add(cost.fixed).Add(cost.transfer);
  for (std::uint32_t i = 0; i < binding.fluids; ++i) {
    const Template& t = templates_[binding.first + i];
    hasher.Add(t.bytes).Add(t.weight);
    for (const network::LinkLoad& load : std::span(loads_).subspan(t.first, t.loads)) {
      const auto next = static_cast<std::uint32_t>(number.size());
      hasher.Add(number.emplace(load.link, next).first->second)
          .Add(load.share)
          .Add(links[load.link.index()].bandwidth_Bps);
    }
  }
  return hasher.value();
}

SimTime FlowGrain::Alone(const Binding& binding, const collective::Cost& cost) {
  const auto [it, fresh] = alone_of_.try_emplace(Likeness(binding, cost), 0);
  if (!fresh) return it->second;
  MakeBatch(binding, cost);
  const SimTime start = alone_now_;
  alone_->Start(start, batch_, batch_loads_);
  std::size_t left = batch_.size();
  while (left > 0) {
    done_.clear();
    const SimTime next = alone_->next_time();
    ORRERY_CHECK(next != kNever, "a meet by itself ends");
    alone_now_ = alone_->AdvanceUntil(next, &done_);
    left -= done_.size();
  }
  it->second = alone_now_ - start;
  alone_now_ = alone_now_ > kMaxDuration ? alone_now_ : alone_now_ + 1;
  return it->second;
}

void FlowGrain::Prepare(std::uint32_t meet, int plan, const collective::Cost& cost) {
  if (Find(meet, plan, cost) != nullptr) return;
  const Binding binding = Bind(meet, plan);
  if (in_.layout->meets[meet].pair && !binding.private_path) return;
  if (lone_of_.empty()) lone_of_.assign(in_.layout->meets.size(), kNobody);
  Lone lone;
  lone.plan = plan;
  lone.meet = meet;
  lone.binding = binding_of_.at(std::uint64_t{meet} << 32 | static_cast<std::uint32_t>(plan));
  lone.next = lone_of_[meet];
  lone.fixed = cost.fixed;
  lone.transfer = cost.transfer;
  lone.time = Alone(binding, cost);
  lone_of_[meet] = static_cast<std::uint32_t>(lones_.size());
  lones_.push_back(lone);
}

network::FlightId FlowGrain::NewFlight(std::uint32_t meet) {
  if (free_.empty()) {
    free_.push_back(static_cast<network::FlightId>(meet_of_.size()));
    meet_of_.push_back(kNobody);
  }
  const network::FlightId id = free_.back();
  free_.pop_back();
  meet_of_[id] = meet;
  return id;
}

const FlowGrain::Ready& FlowGrain::FindReady(std::uint32_t meet, int plan,
                                             const collective::Cost& cost) {
  if (ready_of_.empty()) ready_of_.assign(in_.layout->meets.size(), kNobody);
  for (std::uint32_t i = ready_of_[meet]; i != kNobody; i = readies_[i].next) {
    const Ready& r = readies_[i];
    if (r.plan == plan && r.fixed == cost.fixed && r.transfer == cost.transfer) return r;
  }
  MakeBatch(Bind(meet, plan), cost);
  Ready r;
  r.plan = plan;
  r.first = static_cast<std::uint32_t>(ready_.size());
  r.next = ready_of_[meet];
  r.fixed = cost.fixed;
  r.transfer = cost.transfer;
  for (network::LinkFluid& fluid : batch_) {
    const bool folds = in_.symmetry != nullptr && fluid.loads > 0;
    if (folds && !in_.symmetry->Stands(in_.layout->meets[meet], plan, fluid.id)) continue;
    r.soonest = std::max(r.soonest, LeastTime(fluid));
    std::span<const network::LinkLoad> loads =
        std::span(batch_loads_).subspan(fluid.first_load, fluid.loads);
    std::vector<network::LinkLoad> folded;
    if (folds) {
      folded = in_.symmetry->Loads(in_.layout->meets[meet], plan, fluid.id);
      loads = folded;
    }
    fluid.known = network_->Know(loads, fluid.weight, fluid.cap_Bps);
    fluid.first_load = fluid.loads = 0;
    ready_.push_back(fluid);
  }
  r.count = static_cast<std::uint32_t>(ready_.size()) - r.first;
  ready_of_[meet] = static_cast<std::uint32_t>(readies_.size());
  readies_.push_back(r);
  return readies_.back();
}

SimTime FlowGrain::Start(SimTime now, std::uint32_t meet, int plan, const collective::Cost& cost) {
  if (steady_) {
    const Ready& ready = FindReady(meet, plan, cost);
    const auto fluids = std::span(ready_).subspan(ready.first, ready.count);
    for (network::LinkFluid& fluid : fluids) fluid.id = NewFlight(meet);
    network_->Start(now, fluids, {});
    pending_[meet] = ready.count;
    return now + ready.soonest;
  }
  const std::size_t templates = templates_.size(), loads = loads_.size();
  const Binding binding =
      adaptive_ ? MakeBinding(in_.prices->plan(plan), Members(meet)) : Bind(meet, plan);
  MakeBatch(binding, cost);
  for (network::LinkFluid& fluid : batch_) fluid.id = NewFlight(meet);
  network_->Start(now, batch_, batch_loads_);
  pending_[meet] = static_cast<std::uint32_t>(batch_.size());
  SimTime soonest = 0;
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    const network::LinkFluid& fluid = batch_[i];
    soonest = std::max(soonest, LeastTime(fluid));
    if (!failures_.any() || binding.fluids == 0) continue;
    if (fluid.id >= bound_.size()) bound_.resize(std::size_t{fluid.id} + 1);
    Bound& bound = bound_[fluid.id];
    bound.plan = plan;
    bound.channel = templates_[binding.first + i].channel;
    bound.links.clear();
    for (std::uint32_t l = 0; l < fluid.loads; ++l) {
      bound.links.push_back(batch_loads_[fluid.first_load + l].link);
    }
  }
  if (!adaptive_) return now + soonest;
  for (std::size_t l = loads; l < loads_.size(); ++l) chosen_[loads_[l].link.index()] = 0;
  templates_.resize(templates);  // they hold for this meet alone
  loads_.resize(loads);
  return now + soonest;
}

std::uint32_t FlowGrain::Complete(network::FlightId flight) {
  const std::uint32_t meet = meet_of_[flight];
  free_.push_back(flight);
  if (flight < bound_.size()) bound_[flight].plan = -1;
  return --pending_[meet] == 0 ? meet : kNobody;
}

// Between its two halves of fixed time a meet by itself moves evenly.
void FlowGrain::LogSettled(SimTime start, const Lone& lone) {
  const Binding& binding = bindings_[lone.binding];
  const SimTime from = start + lone.fixed / 2;
  const SimTime to = start + lone.time - (lone.fixed - lone.fixed / 2);
  for (std::uint32_t i = 0; i < binding.fluids; ++i) {
    const Template& t = templates_[binding.first + i];
    for (const network::LinkLoad& load : std::span(loads_).subspan(t.first, t.loads)) {
      const auto bytes = static_cast<Uint128>(t.bytes) * load.share / kWhole;
      network_->use_log()->AddBytes(load.link.index(), from, std::max(from, to),
                                    static_cast<std::int64_t>(bytes));
    }
  }
}

void FlowGrain::AddSettledTraffic(std::vector<network::PortStatistics>* traffic) const {
  std::vector<LinkId> seen;
  for (const Lone& lone : lones_) {
    if (lone.times == 0) continue;
    const Binding& binding = bindings_[lone.binding];
    const MeetInfo& info = in_.layout->meets[lone.meet];
    seen.clear();
    for (std::uint32_t i = 0; i < binding.fluids; ++i) {
      const FluidView view = fluid(binding, i);
      std::vector<network::LinkLoad> folded;
      if (in_.symmetry != nullptr) {
        if (!in_.symmetry->Stands(info, lone.plan, i)) continue;
        folded = in_.symmetry->Loads(info, lone.plan, i);
      }
      for (const network::LinkLoad& load : in_.symmetry != nullptr ? folded : view.loads) {
        const auto bytes = static_cast<Uint128>(view.bytes) * load.share / kWhole;
        (*traffic)[load.link.index()].bytes +=
            static_cast<std::int64_t>(bytes * static_cast<Uint128>(lone.times));
        seen.push_back(load.link);
      }
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const SimTime busy = (lone.time - lone.fixed) * static_cast<SimTime>(lone.times);
    for (const LinkId link : seen) {
      const std::uint32_t copies =
          in_.symmetry != nullptr ? in_.symmetry->Copies(info, lone.plan, link) : 1;
      (*traffic)[link.index()].busy += busy * copies;
    }
  }
  if (in_.symmetry == nullptr) return;
  for (std::size_t l = 0; l < traffic->size(); ++l) {
    (*traffic)[l] = (*traffic)[in_.symmetry->stands_for(LinkId(l)).index()];
  }
}

}  // namespace orrery::engine
