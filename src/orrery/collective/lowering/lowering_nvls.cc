// NVLS and NVLSTree as steps (nvls.h, lowering.h).
#include "orrery/collective/algorithms/nvls.h"
#include "orrery/collective/choice/ring_order.h"
#include "orrery/collective/lowering/lowering.h"

namespace orrery::collective {

using graph::Collective;

// Per channel: for each domain, head and place the way up into the switch and the way down out of
// it; then the trees between heads.
void Schedule::BuildNvls(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  const RingOrder layout(cluster, members);
  domains_.resize(layout.domains());
  places_.resize(members.size());
  for (std::uint32_t d = 0; d < domains_.size(); ++d) {
    layout.ChainOf(d, 0, &domains_[d]);
    for (std::uint32_t p = 0; p < domains_[d].size(); ++p) {
      places_[domains_[d][p]] = {d, p, static_cast<std::uint32_t>(domains_[d].size())};
    }
  }
  const auto heads = static_cast<std::uint32_t>(plan_.heads);
  if (plan_.algorithm == Algorithm::kNvlsTree) {
    nodes_.resize(static_cast<std::size_t>(plan_.channels) * ranks_);
  }
  for (int c = 0; c < plan_.channels; ++c) {
    for (std::uint32_t d = 0; d < domains_.size(); ++d) {
      if (c == 0) first_of_domain_.push_back(static_cast<std::int32_t>(connections_.size()));
      for (std::uint32_t h = 0; h < heads; ++h) {
        const std::uint32_t head = domains_[d][h];
        for (std::uint32_t m : domains_[d]) {
          const std::uint64_t up = m == head ? cluster::kThroughSwitch : cluster::kIntoSwitch;
          connections_.push_back({static_cast<std::uint16_t>(c), m, head, up});
          connections_.push_back({static_cast<std::uint16_t>(c), head, m, cluster::kOutOfSwitch});
        }
      }
    }
    if (plan_.algorithm == Algorithm::kNvlsTree) ConnectHeads(c);
    if (c == 0) channel_connections_ = static_cast<std::int32_t>(connections_.size());
  }
}

// A rail's heads form the channel's tree: even channels the first of the pair, odd ones the second.
void Schedule::ConnectHeads(int channel) {
  const auto count = static_cast<int>(domains_.size());
  for (std::uint32_t h = 0; h < static_cast<std::uint32_t>(plan_.heads); ++h) {
    for (int d = 0; d < count; ++d) {
      const BinaryNode node = channel % 2 == 1 ? SecondBinaryTree(d, count) : BinaryTree(d, count);
      for (int child : node.child) {
        if (child < 0) continue;
        ConnectTree(channel, domains_[static_cast<std::size_t>(d)][h],
                    domains_[static_cast<std::size_t>(child)][h]);
      }
    }
  }
}

std::int32_t Schedule::NvlsConnection(int channel, std::uint32_t domain, std::uint32_t head,
                                      std::uint32_t place, bool down) const {
  const auto size = static_cast<std::int32_t>(domains_[domain].size());
  return channel * channel_connections_ + first_of_domain_[domain] +
         2 * (static_cast<std::int32_t>(head) * size + static_cast<std::int32_t>(place)) +
         (down ? 1 : 0);
}

// Steps per chunk on a lane; 0: the member has no such lane.
std::uint64_t Schedule::NvlsSlots(const NvlsPlace& place, int channel, int lane) const {
  const auto heads = static_cast<std::uint32_t>(plan_.heads);
  if (lane == nvls::kScatter) return nvls::Scatters(plan_.collective) ? heads : 0;
  if (lane == nvls::kGather) return nvls::Gathers(plan_.collective) ? heads : 0;
  if (place.place >= heads) return 0;
  if (plan_.algorithm == Algorithm::kNvls) {
    if (lane == nvls::kBroadcast) return 0;
    const bool both = plan_.collective == Collective::kAllReduce;
    return both ? 2 * place.size - 1 : place.size;
  }
  const TreeNode& node =
      nodes_[static_cast<std::size_t>(channel) * ranks_ + domains_[place.domain][place.place]];
  const auto all = place.size + static_cast<std::uint32_t>(node.children);
  const bool root = node.to_parent < 0;
  if (lane == nvls::kBroadcast) return root ? 0 : all;
  return root ? 2 * all - 1 : all;
}

std::optional<Schedule::InRound> Schedule::RoundAt(std::uint64_t index, std::uint64_t slots) const {
  const auto rounds = static_cast<std::uint64_t>(pieces_.rounds);
  if (slots == 0 || index / slots >= rounds + (pieces_.tail.slices > 0 ? 1 : 0)) return {};
  return InRound{index % slots, (index / slots < rounds ? pieces_.full : pieces_.tail).bytes};
}

Step Schedule::NvlsStep(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  const int channel = lane / nvls::kLanes;
  const int kind = lane % nvls::kLanes;
  const NvlsPlace& place = places_[member];
  const std::uint64_t slots = NvlsSlots(place, channel, kind);
  const std::optional<InRound> at = RoundAt(index, slots);
  if (!at) {
    step.done = true;
    return step;
  }
  const auto [slot, data] = *at;
  switch (kind) {
    case nvls::kScatter:
      ScatterStep(place, channel, slot, data, &step);
      break;
    case nvls::kGather:
      GatherStep(place, channel, slot, data, &step);
      break;
    case nvls::kReduce:
      ReduceStep(place, channel, slot, data, &step);
      break;
    default:
      BroadcastStep(place, channel, slot, data, &step);
  }
  if (step.send_connection >= 0) {
    const bool net = crosses_[static_cast<std::size_t>(step.send_connection)] != 0;
    step.bytes = net ? model::OnWire(plan_.protocol, data) : model::OnSwitch(box_, data);
    step.post = Post(step.send_connection);
  }
  return step;
}

// One wait a chunk, then a copy for each head, its own neighbour's first.
void Schedule::ScatterStep(const NvlsPlace& place, int channel, std::uint64_t slot,
                           std::int64_t data, Step* step) const {
  const auto heads = static_cast<std::uint64_t>(plan_.heads);
  const auto head = static_cast<std::uint32_t>((slot + place.place) % heads);
  step->work = Work(nvls::OfWarp(plan_, nvls::kScatter, data), nvls::kCopyStreams, slot == 0);
  step->send_connection = NvlsConnection(channel, place.domain, head, place.place, false);
}

void Schedule::GatherStep(const NvlsPlace& place, int channel, std::uint64_t slot,
                          std::int64_t data, Step* step) const {
  const auto head = static_cast<std::uint32_t>(slot);
  step->work = Work(nvls::OfWarp(plan_, nvls::kGather, data), nvls::kCopyStreams, slot == 0);
  step->recv_connection = NvlsConnection(channel, place.domain, head, place.place, true);
}

// A head's steps per chunk: a message from everyone in the domain, the last of them loaded; then
// one from each child, added; the sum to the parent, or, where there is none, down to children and
// everyone. The last receipt and the first send are one step.
void Schedule::ReduceStep(const NvlsPlace& place, int channel, std::uint64_t slot,
                          std::int64_t data, Step* step) const {
  const TreeNode* node = nullptr;
  if (plan_.algorithm == Algorithm::kNvlsTree) {
    node =
        &nodes_[static_cast<std::size_t>(channel) * ranks_ + domains_[place.domain][place.place]];
  }
  const std::uint64_t children = node == nullptr ? 0 : static_cast<std::uint64_t>(node->children);
  const bool loads = nvls::Scatters(plan_.collective);
  const std::uint64_t sources = loads ? place.size + children : 0;
  const std::uint64_t first_send = loads ? sources - 1 : 0;
  const std::int64_t moved = nvls::OfWarp(plan_, nvls::kReduce, data);
  if (slot < sources) {
    if (slot < place.size) {
      step->recv_connection = NvlsConnection(channel, place.domain, place.place,
                                             static_cast<std::uint32_t>(slot), false);
      if (slot + 1 == place.size) step->work = Work(moved, nvls::kCopyStreams, true);
    } else {
      step->recv_connection = node->from_child[slot - place.size];
      step->work = Work(moved, 1, false);
    }
  }
  if (slot < first_send || plan_.collective == Collective::kReduceScatter) return;
  if (!loads && slot == 0) step->work = Work(moved, nvls::kCopyStreams, true);
  const std::uint64_t send = slot - first_send;
  if (node != nullptr && node->to_parent >= 0) {
    step->send_connection = node->to_parent;
  } else if (send < children) {
    step->send_connection = node->to_child[send];
    if (send > 0) step->work += Work(moved, 1, false);
  } else {
    step->send_connection = NvlsConnection(channel, place.domain, place.place,
                                           static_cast<std::uint32_t>(send - children), true);
  }
}

// What the parent sends goes to the children, then to everyone.
void Schedule::BroadcastStep(const NvlsPlace& place, int channel, std::uint64_t slot,
                             std::int64_t data, Step* step) const {
  const TreeNode& node =
      nodes_[static_cast<std::size_t>(channel) * ranks_ + domains_[place.domain][place.place]];
  const auto children = static_cast<std::uint64_t>(node.children);
  const std::int64_t moved = nvls::OfWarp(plan_, nvls::kBroadcast, data);
  if (slot == 0) {
    step->recv_connection = node.from_parent;
    step->work = Work(moved, nvls::kCopyStreams, true);
  }
  if (slot < children) {
    step->send_connection = node.to_child[slot];
    if (slot > 0) step->work = Work(moved, 1, false);
  } else {
    step->send_connection = NvlsConnection(channel, place.domain, place.place,
                                           static_cast<std::uint32_t>(slot - children), true);
  }
}

}  // namespace orrery::collective
