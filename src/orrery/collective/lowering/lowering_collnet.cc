// CollNet as steps (collnet.h, lowering.h).
#include "orrery/cluster/salts.h"
#include "orrery/collective/algorithms/collnet.h"
#include "orrery/collective/choice/ring_order.h"
#include "orrery/collective/lowering/lowering.h"

namespace orrery::collective {

// The domains' members, heads first: one beside each NIC, then the others.
void Schedule::PlaceHeads(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  const RingOrder layout(cluster, members);
  domains_.resize(layout.domains());
  places_.resize(members.size());
  std::vector<std::uint32_t> order;
  for (std::uint32_t d = 0; d < domains_.size(); ++d) {
    order.clear();
    layout.ChainOf(d, 0, &order);
    std::vector<NicId> taken;
    const auto leads = [&](std::uint32_t m) {
      if (static_cast<int>(taken.size()) == plan_.heads) return false;
      const NicId nic = cluster.nic(members[m]);
      if (plan_.heads < static_cast<int>(order.size()) && std::ranges::count(taken, nic) > 0) {
        return false;
      }
      taken.push_back(nic);
      return true;
    };
    std::stable_partition(order.begin(), order.end(), leads);
    domains_[d] = order;
    for (std::uint32_t p = 0; p < order.size(); ++p) {
      places_[order[p]] = {d, p, static_cast<std::uint32_t>(order.size())};
    }
  }
}

// From every domain's head into the fabric and back out of it.
void Schedule::ConnectFabric(const cluster::Cluster& cluster, std::span<const DeviceId> members,
                             int channel, std::span<const std::uint32_t> heads) {
  const auto leaf = [&](std::uint32_t m) { return cluster.leaf(cluster.nic(members[m])); };
  std::vector<std::size_t> seen = {leaf(heads[0])};  // the first domain's leaf sends to none
  for (const std::uint32_t head : heads) {
    const bool first = std::ranges::count(seen, leaf(head)) == 0;
    if (first) seen.push_back(leaf(head));
    const auto c = static_cast<std::uint16_t>(channel);
    connections_.push_back({c, head, heads[0], first ? cluster::kIntoTop : cluster::kIntoLeaf});
    connections_.push_back({c, heads[0], head, first ? cluster::kOutOfTop : cluster::kOutOfLeaf});
  }
}

// Per channel: for each domain and head the way to the head and back of every GPU (CollNetDirect:
// every other one); then, rail by rail, the fabric's.
void Schedule::BuildCollNet(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  if (plan_.algorithm == Algorithm::kCollNetChain) return BuildCollNetChain(cluster, members);
  PlaceHeads(cluster, members);
  const bool direct = collnet::Direct(plan_);
  const auto heads = static_cast<std::uint32_t>(plan_.heads);
  for (int c = 0; c < plan_.channels; ++c) {
    const auto channel = static_cast<std::uint16_t>(c);
    for (const auto& domain : domains_) {
      if (c == 0) first_of_domain_.push_back(static_cast<std::int32_t>(connections_.size()));
      for (std::uint32_t h = 0; h < heads; ++h) {
        const std::uint32_t head = domain[h];
        for (const std::uint32_t m : domain) {
          if (direct && m == head) continue;
          const std::uint64_t up = direct      ? cluster::kToHead
                                   : m == head ? cluster::kThroughSwitch
                                               : cluster::kIntoSwitch;
          connections_.push_back({channel, m, head, up});
          connections_.push_back(
              {channel, head, m, direct ? cluster::kFromHead : cluster::kOutOfSwitch});
        }
      }
    }
    if (c == 0) fabric_connections_ = static_cast<std::int32_t>(connections_.size());
    std::vector<std::uint32_t> rail;
    for (std::uint32_t h = 0; h < heads; ++h) {
      rail.clear();
      for (const auto& domain : domains_) rail.push_back(domain[h]);
      ConnectFabric(cluster, members, c, rail);
    }
    if (c == 0) channel_connections_ = static_cast<std::int32_t>(connections_.size());
  }
}

// Per channel: each domain's chain, then the fabric's ways of its heads.
void Schedule::BuildCollNetChain(const cluster::Cluster& cluster,
                                 std::span<const DeviceId> members) {
  const RingOrder layout(cluster, members, plan_.graphs);
  places_.resize(static_cast<std::size_t>(plan_.channels) * ranks_);
  std::vector<std::uint32_t> chain, heads;
  for (int c = 0; c < plan_.channels; ++c) {
    heads.clear();
    for (std::uint32_t d = 0; d < layout.domains(); ++d) {
      chain.clear();
      layout.ChainOf(d, c, &chain);
      heads.push_back(chain[0]);
      if (c == 0) first_of_domain_.push_back(static_cast<std::int32_t>(connections_.size()));
      for (std::uint32_t q = 0; q < chain.size(); ++q) {
        places_[static_cast<std::size_t>(c) * ranks_ + chain[q]] = {
            d, q, static_cast<std::uint32_t>(chain.size())};
        if (q == 0) continue;
        const auto channel = static_cast<std::uint16_t>(c);
        connections_.push_back({channel, chain[q], chain[q - 1]});
        connections_.push_back({channel, chain[q - 1], chain[q]});
      }
    }
    if (c == 0) fabric_connections_ = static_cast<std::int32_t>(connections_.size());
    ConnectFabric(cluster, members, c, heads);
    if (c == 0) channel_connections_ = static_cast<std::int32_t>(connections_.size());
  }
}

// Into the fabric, or out of it.
std::int32_t Schedule::FabricConnection(int channel, std::uint32_t head, std::uint32_t domain,
                                        bool down) const {
  const auto domains = static_cast<std::int32_t>(first_of_domain_.size());
  return channel * channel_connections_ + fabric_connections_ +
         2 * (static_cast<std::int32_t>(head) * domains + static_cast<std::int32_t>(domain)) +
         (down ? 1 : 0);
}

// Between a head and a place of its domain.
std::int32_t Schedule::HeadConnection(int channel, const NvlsPlace& place, std::uint32_t head,
                                      std::uint32_t other, bool down) const {
  const bool direct = collnet::Direct(plan_);
  const std::uint32_t width = place.size - (direct ? 1 : 0);
  const std::uint32_t at = direct && other > head ? other - 1 : other;
  return channel * channel_connections_ + first_of_domain_[place.domain] +
         2 * static_cast<std::int32_t>(head * width + at) + (down ? 1 : 0);
}

// The sum: a message from every domain, an answer to every domain; the last receipt and the first
// answer are one step.
void Schedule::SumStep(int channel, std::uint32_t head, std::uint64_t slot, Step* step) const {
  const std::uint64_t domains = first_of_domain_.size();
  if (slot < domains) {
    step->recv_connection =
        FabricConnection(channel, head, static_cast<std::uint32_t>(slot), false);
  }
  if (slot + 1 >= domains) {
    step->send_connection =
        FabricConnection(channel, head, static_cast<std::uint32_t>(slot + 1 - domains), true);
  }
}

std::uint64_t Schedule::CollNetSlots(const NvlsPlace& place, int lane) const {
  const bool head = static_cast<int>(place.place) < plan_.heads;
  const std::uint64_t others = place.size - (collnet::Direct(plan_) ? 1 : 0);
  const auto parts = static_cast<std::uint64_t>(collnet::Parts(plan_, head));
  const bool scatters = nvls::Scatters(plan_.collective);
  const bool gathers = nvls::Gathers(plan_.collective);
  switch (lane) {
    case collnet::kScatter:
      return scatters ? parts : 0;
    case collnet::kGather:
      return gathers ? parts : 0;
    case collnet::kReduce:
    case collnet::kBroadcast: {
      const bool fans = lane == collnet::kReduce ? scatters : gathers;
      return !head ? 0 : fans ? std::max<std::uint64_t>(1, others) : 1;
    }
    default:
      return head && place.domain == 0 ? 2 * first_of_domain_.size() - 1 : 0;
  }
}

// Of an all-gather or a reduce-scatter: a step moves only the part of the domain whose turn it is.
// Who has none sends no part to a gather; to a sum all have one, and hear when it has gone.
void Schedule::TurnStep(const NvlsPlace& place, int channel, int kind, const InRound& at,
                        std::int64_t round, Step* step) const {
  const collnet::OnRail chunk = collnet::ChunkOnRail(plan_, pieces_, channel, round);
  const auto slot = static_cast<std::int64_t>(at.slot);
  const auto domains = static_cast<std::int64_t>(first_of_domain_.size());
  if (nvls::Scatters(plan_.collective)) {
    const bool gets = kind == collnet::kBroadcast, answers = kind == collnet::kSum;
    HeadsStep(place, channel, kind, at.slot, gets ? chunk.Of(place.domain) : at.data, step);
    if (answers && slot + 1 >= domains) step->bytes = chunk.Of(slot + 1 - domains);
    return;
  }
  const bool sends = kind == collnet::kReduce;
  HeadsStep(place, channel, kind, at.slot, sends ? chunk.Of(place.domain) : at.data, step);
  if (sends) step->bytes = chunk.Of(place.domain);
  if (sends && step->bytes == 0) step->send_connection = -1;
  const bool waits = kind == collnet::kSum && slot < domains;
  if (waits && chunk.Of(slot) == 0) step->recv_connection = -1;
}

Step Schedule::CollNetStep(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  const bool chain = plan_.algorithm == Algorithm::kCollNetChain;
  const int lanes = chain ? int{collnet::kChainLanes} : int{collnet::kLanes};
  const int kind = lane % lanes;
  int channel = lane / lanes;
  const bool turns = plan_.collective != graph::Collective::kAllReduce;
  const NvlsPlace& place =
      places_[chain ? static_cast<std::size_t>(channel) * ranks_ + member : member];
  const bool sums = place.domain == 0 && place.place == 0;
  std::uint64_t slots = !chain                       ? CollNetSlots(place, kind)
                        : kind != collnet::kChainSum ? 1
                        : sums                       ? 2 * first_of_domain_.size() - 1
                                                     : 0;
  // NCCL's proxy sends the chunks of a round channel by channel: one lane for all.
  const bool in_order = turns && kind == collnet::kSum;
  const std::uint64_t of_channel = std::max<std::uint64_t>(1, slots);
  if (in_order) slots *= channel == 0 ? static_cast<std::uint64_t>(plan_.channels) : 0;
  std::optional<InRound> at = RoundAt(index, slots);
  if (!at) {
    step.done = true;
    return step;
  }
  if (in_order) {
    channel = static_cast<int>(at->slot / of_channel);
    at->slot %= of_channel;
  }
  step.bytes = at->data;
  if (chain) {
    CollNetChainStep(place, channel, kind, at->slot, at->data, &step);
  } else if (turns) {
    const auto round = static_cast<std::int64_t>(index / slots);
    TurnStep(place, channel, kind, *at, round, &step);
  } else {
    HeadsStep(place, channel, kind, at->slot, at->data, &step);
  }
  if (step.send_connection >= 0) {
    const bool net = crosses_[static_cast<std::size_t>(step.send_connection)] != 0;
    const bool through_switch = !net && plan_.algorithm == Algorithm::kNvls;
    step.bytes = through_switch ? model::OnSwitch(box_, step.bytes)
                                : model::OnWire(plan_.protocol, step.bytes);
    step.post = Post(step.send_connection);
  } else {
    step.bytes = 0;
  }
  return step;
}

void Schedule::CollNetChainStep(const NvlsPlace& place, int channel, int kind, std::uint64_t slot,
                                std::int64_t data, Step* step) const {
  if (kind == collnet::kChainSum) return SumStep(channel, 0, slot, step);
  // The connection between this place and the one before it; up, then down.
  const std::int32_t before = channel * channel_connections_ + first_of_domain_[place.domain] +
                              2 * (static_cast<std::int32_t>(place.place) - 1);
  const bool down = kind == collnet::kDown;
  const bool head = place.place == 0, tail = place.place + 1 == place.size;
  const std::int32_t inner =
      head ? FabricConnection(channel, 0, place.domain, down) : before + (down ? 1 : 0);
  const std::int32_t outer = tail ? -1 : before + 2 + (down ? 1 : 0);
  step->recv_connection = down ? inner : outer;
  step->send_connection = down ? outer : inner;
  step->work = Work(data, model::kStreams, true);
}

// As NVLS between trees (lowering_nvls.cc): each a message after the other; a head's sources are
// all there when it adds them in one pass, and what it hands on leaves together.
void Schedule::HeadsStep(const NvlsPlace& place, int channel, int kind, std::uint64_t slot,
                         std::int64_t data, Step* step) const {
  const bool direct = collnet::Direct(plan_);
  const bool head = static_cast<int>(place.place) < plan_.heads;
  const auto heads = static_cast<std::uint64_t>(plan_.heads);
  const auto lane = static_cast<collnet::Lane>(kind);
  if (lane == collnet::kSum) return SumStep(channel, place.place, slot, step);
  const auto work = [&](bool sync) {
    return Work(collnet::OfWarp(plan_, lane, head, data), collnet::Streams(plan_, lane), sync);
  };
  // Own first, then those behind it; what CollNetDirect scatters meets at no head, and what is
  // handed on comes from the head before first.
  const std::uint64_t skip = direct && head ? 1 : 0;
  if (lane == collnet::kScatter) {
    const auto to = static_cast<std::uint32_t>((place.place + slot + skip) % heads);
    step->work = work(slot == 0);
    step->send_connection = HeadConnection(channel, place, to, place.place, false);
    return;
  }
  if (lane == collnet::kGather) {
    const std::uint64_t own = place.place % heads;
    const auto from =
        static_cast<std::uint32_t>(direct ? (own + 2 * heads - slot - skip) % heads : slot);
    step->work = work(slot == 0);
    step->recv_connection = HeadConnection(channel, place, from, place.place, true);
    return;
  }
  const bool fans =
      lane == collnet::kReduce ? nvls::Scatters(plan_.collective) : nvls::Gathers(plan_.collective);
  const std::uint64_t others = fans ? place.size - (direct ? 1 : 0) : 0;
  const auto other = [&](std::uint64_t number) {
    // In the order in which they come (up) or go (down): the neighbour's first.
    const std::uint64_t at = !direct ? number
                             : lane == collnet::kReduce
                                 ? (place.place + place.size - 1 - number) % place.size
                                 : (place.place + 1 + number) % place.size;
    return HeadConnection(channel, place, place.place, static_cast<std::uint32_t>(at),
                          lane == collnet::kBroadcast);
  };
  if (lane == collnet::kReduce) {
    if (others > 0) step->recv_connection = other(slot);
    if (slot + 1 < others) return;
    step->work = work(true);
    step->send_connection = FabricConnection(channel, place.place, place.domain, false);
    return;
  }
  if (slot == 0) {
    step->recv_connection = FabricConnection(channel, place.place, place.domain, true);
    step->work = work(true);
  }
  if (others > 0) step->send_connection = other(slot);
}

}  // namespace orrery::collective
