#include "orrery/engine/flow_grain.h"

#include <algorithm>

#include "orrery/base/check.h"

namespace orrery::engine {
namespace {

constexpr std::int64_t kWhole = 1024;  // LinkLoad::share of a fluid's own bytes

}  // namespace

FlowGrain::FlowGrain(const LoopInputs& in, network::Network* network)
    : in_(in), network_(network), pending_(in.layout->meets.size(), 0) {
  auto alone = network::Create(network->name());
  ORRERY_CHECK(alone.ok(), "a network that runs can be made again");
  alone_ = std::move(*alone);
  ORRERY_CHECK(alone_->SetupLinks(*in.inputs->cluster, {}, 0).ok(), "its cluster is served");
}

FlowGrain::Binding& FlowGrain::Bind(std::uint32_t meet, int plan) {
  const std::uint64_t key = std::uint64_t{meet} << 32 | static_cast<std::uint32_t>(plan);
  const auto [it, fresh] = binding_of_.emplace(key, static_cast<std::uint32_t>(bindings_.size()));
  if (!fresh) return bindings_[it->second];
  const MeetInfo& info = in_.layout->meets[meet];
  std::vector<DeviceId> members;
  for (std::uint32_t i = 0; i < info.count; ++i) {
    const SimRank& rank = in_.layout->ranks[in_.layout->participants[info.first + i]];
    members.push_back(in_.inputs->placement->device[rank.rank.index()]);
  }
  bindings_.push_back(MakeBinding(in_.prices->plan(plan), members));
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
    AddTemplate(&binding);
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
  for (const collective::ChannelEdge& edge : edges) {
    in_.inputs->cluster->Route(members[edge.from], members[edge.to],
                               edge.salt != 0 ? edge.salt : channel, &route_);
    for (const LinkId link : route_) link_bytes_.emplace_back(link, edge.wire_bytes);
    channel_bytes_ = std::max(channel_bytes_, edge.wire_bytes);
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

// Adds the channel to the binding: to a fluid of equal loads if there is one.
void FlowGrain::AddTemplate(Binding* binding) {
  if (channel_.empty()) return;
  for (std::uint32_t i = 0; i < binding->fluids; ++i) {
    Template& t = templates_[binding->first + i];
    if (std::ranges::equal(std::span(loads_).subspan(t.first, t.loads), channel_)) {
      t.bytes += channel_bytes_;
      ++t.weight;
      return;
    }
  }
  templates_.push_back({channel_bytes_, 1, static_cast<std::uint32_t>(loads_.size()),
                        static_cast<std::uint32_t>(channel_.size())});
  loads_.insert(loads_.end(), channel_.begin(), channel_.end());
  ++binding->fluids;
}

bool FlowGrain::IsPrivate(const Binding& binding, std::span<const DeviceId> members) const {
  const cluster::Cluster& cluster = *in_.inputs->cluster;
  // A link that changes during the run takes another time at another hour.
  if (cluster.direct() || !cluster.link_changes().empty()) return false;
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

// Starts the binding's fluids; returns how many. A meet that moves nothing is one fluid without
// loads.
std::uint32_t FlowGrain::Launch(network::Network* network, SimTime now, const Binding& binding,
                                const collective::Cost& cost, bool own_ids) {
  batch_.clear();
  batch_loads_.clear();
  const std::uint32_t count = std::max(binding.fluids, 1u);
  for (std::uint32_t i = 0; i < count; ++i) {
    network::LinkFluid fluid;
    fluid.id = i;
    if (own_ids) {
      if (free_.empty()) {
        free_.push_back(static_cast<network::FlightId>(meet_of_.size()));
        meet_of_.push_back(kNobody);
      }
      fluid.id = free_.back();
      free_.pop_back();
    }
    if (binding.fluids == 0) {
      fluid.before = cost.total();
    } else {
      const Template& t = templates_[binding.first + i];
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
    }
    batch_.push_back(fluid);
  }
  network->Start(now, batch_, batch_loads_);
  return count;
}

SimTime FlowGrain::Alone(Binding& binding, const collective::Cost& cost) {
  if (binding.fixed == cost.fixed && binding.transfer == cost.transfer) return binding.alone;
  binding.fixed = cost.fixed;
  binding.transfer = cost.transfer;
  std::uint32_t left = Launch(alone_.get(), alone_now_, binding, cost, false);
  const SimTime start = alone_now_;
  while (left > 0) {
    done_.clear();
    const SimTime next = alone_->next_time();
    ORRERY_CHECK(next != kNever, "a meet by itself ends");
    alone_now_ = alone_->AdvanceUntil(next, &done_);
    left -= static_cast<std::uint32_t>(done_.size());
  }
  binding.alone = alone_now_ - start;
  alone_now_ = alone_now_ > kMaxDuration ? alone_now_ : alone_now_ + 1;
  return binding.alone;
}

void FlowGrain::Start(SimTime now, std::uint32_t meet, Binding& binding,
                      const collective::Cost& cost) {
  pending_[meet] = Launch(network_, now, binding, cost, true);
  for (const network::LinkFluid& fluid : batch_) meet_of_[fluid.id] = meet;
}

std::uint32_t FlowGrain::Complete(network::FlightId flight) {
  const std::uint32_t meet = meet_of_[flight];
  free_.push_back(flight);
  return --pending_[meet] == 0 ? meet : kNobody;
}

// Between its two halves of fixed time a meet by itself moves evenly.
void FlowGrain::LogSettled(SimTime start, const Binding& binding, const collective::Cost& cost) {
  const SimTime from = start + cost.fixed / 2;
  const SimTime to = start + binding.alone - (cost.fixed - cost.fixed / 2);
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
  for (const Binding& binding : bindings_) {
    if (binding.settled == 0) continue;
    seen.clear();
    for (std::uint32_t i = 0; i < binding.fluids; ++i) {
      const Template& t = templates_[binding.first + i];
      for (const network::LinkLoad& load : std::span(loads_).subspan(t.first, t.loads)) {
        const auto bytes = static_cast<Uint128>(t.bytes) * load.share / kWhole;
        (*traffic)[load.link.index()].bytes +=
            static_cast<std::int64_t>(bytes * static_cast<Uint128>(binding.settled));
        seen.push_back(load.link);
      }
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const LinkId link : seen) (*traffic)[link.index()].busy += binding.settled_busy;
  }
}

}  // namespace orrery::engine
