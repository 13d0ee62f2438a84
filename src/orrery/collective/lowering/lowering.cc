#include "orrery/collective/lowering/lowering.h"

#include "orrery/cluster/salts.h"
#include "orrery/collective/choice/ring_order.h"

namespace orrery::collective {

using model::Chunk;

Schedule::Schedule(const Plan& plan, const cluster::Cluster& cluster,
                   std::span<const DeviceId> members)
    : plan_(plan),
      box_(model::MakeWhiteBox(plan, cluster.spec())),
      pieces_(model::Cut(plan)),
      ranks_(static_cast<std::uint32_t>(members.size())) {
  const bool all_to_all = plan.collective == graph::Collective::kAllToAll;
  const bool pair =
      plan.algorithm == Algorithm::kPointToPoint && !model::IsExchange(plan.collective);
  ORRERY_CHECK(static_cast<int>(members.size()) == (pair ? 2 : plan.shape.ranks),
               "a plan of another group");
  setup_ = plan.shape.ranks < 2 ? 0 : RoundToPs(box_.setup);
  if (ranks_ < 2 || plan.bytes == 0) return;
  if (all_to_all) {
    BuildAllToAll(cluster, members);
  } else if (model::IsExchange(plan.collective)) {
    BuildRooted(cluster, members);
  } else if (model::IsNvls(plan)) {
    BuildNvls(cluster, members);
  } else if (model::IsCollNet(plan)) {
    BuildCollNet(cluster, members);
  } else if (plan.algorithm == Algorithm::kPat) {
    BuildPat();
  } else if (plan.algorithm == Algorithm::kTree) {
    BuildTrees(cluster, members);
  } else {
    BuildRings(cluster, members);
  }
  crosses_.reserve(connections_.size());
  for (const Connection& c : connections_) {
    crosses_.push_back(cluster.nvlink_domain(members[c.from]) !=
                           cluster.nvlink_domain(members[c.to]) ||
                       cluster::InFabric(c.salt));
  }
}

// Ring connection channel * ranks + position: from that position to the next.
void Schedule::BuildRings(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  const auto channels = static_cast<std::size_t>(plan_.channels);
  connections_.reserve(channels * ranks_);
  position_.resize(channels * ranks_);
  const RingOrder layout(cluster, members, plan_.graphs);
  std::vector<std::uint32_t> order;
  for (std::size_t c = 0; c < channels; ++c) {
    if (plan_.algorithm == Algorithm::kPointToPoint) {
      order = {0, 1};
    } else {
      layout.Ring(static_cast<int>(c), &order);
    }
    for (std::uint32_t q = 0; q < ranks_; ++q) {
      const std::uint32_t from = order[q], to = order[(q + 1) % ranks_];
      position_[c * ranks_ + from] = q;
      // A file's ring leaves by the NIC that it names, whichever GPU is its last there.
      const bool named = plan_.graphs != nullptr && plan_.graphs->ring.given &&
                         cluster.nvlink_domain(members[from]) != cluster.nvlink_domain(members[to]);
      connections_.push_back(
          {static_cast<std::uint16_t>(c), from, to, named ? cluster::kByRail : 0});
    }
  }
}

// A connection each way between two members of a channel's tree.
void Schedule::ConnectTree(int channel, std::uint32_t parent, std::uint32_t child) {
  TreeNode* nodes = nodes_.data() + static_cast<std::size_t>(channel) * ranks_;
  const auto up = static_cast<std::int32_t>(connections_.size());
  connections_.push_back({static_cast<std::uint16_t>(channel), child, parent});
  connections_.push_back({static_cast<std::uint16_t>(channel), parent, child});
  nodes[child].to_parent = up;
  nodes[child].from_parent = up + 1;
  TreeNode& above = nodes[parent];
  above.from_child[above.children] = up;
  above.to_child[above.children] = up + 1;
  ++above.children;
}

void Schedule::BuildTrees(const cluster::Cluster& cluster, std::span<const DeviceId> members) {
  const RingOrder layout(cluster, members, plan_.graphs);
  const auto domains = static_cast<int>(layout.domains());
  nodes_.resize(static_cast<std::size_t>(plan_.channels) * ranks_);
  std::vector<std::vector<std::uint32_t>> chains(layout.domains());
  for (int c = 0; c < plan_.channels; ++c) {
    for (std::size_t d = 0; d < chains.size(); ++d) {
      chains[d].clear();
      layout.ChainOf(d, c, &chains[d]);
      for (std::size_t i = 1; i < chains[d].size(); ++i)
        ConnectTree(c, chains[d][i - 1], chains[d][i]);
    }
    // The first half of the channels takes the first tree, the second half the other one.
    const bool second = c >= (plan_.channels + 1) / 2;
    for (int d = 0; d < domains; ++d) {
      const BinaryNode node = second ? SecondBinaryTree(d, domains) : BinaryTree(d, domains);
      for (int child : node.child) {
        if (child < 0) continue;
        ConnectTree(c, chains[static_cast<std::size_t>(d)][0],
                    chains[static_cast<std::size_t>(child)][0]);
      }
    }
  }
}

std::int64_t Schedule::MessageBytes(std::int64_t data, std::int32_t connection) const {
  const bool crosses = crosses_[static_cast<std::size_t>(connection)] != 0;
  const model::Edge& edge = crosses ? box_.inter : box_.intra;
  const std::int64_t bytes = model::OnWire(plan_.protocol, data);
  return edge.Message(bytes) + edge.Unsent(bytes);
}

SimTime Schedule::Work(std::int64_t data, double streams, bool sync) const {
  return RoundToPs((sync ? box_.sync : 0) + static_cast<double>(data) * box_.per_byte * streams);
}

SimTime Schedule::Post(std::int32_t connection) const {
  return RoundToPs(crosses_[static_cast<std::size_t>(connection)] != 0 ? box_.inter.post
                                                                       : box_.intra.post);
}

Step Schedule::At(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  if (ranks_ < 2 || plan_.bytes == 0) {
    step.done = true;
    return step;
  }
  if (plan_.collective == graph::Collective::kAllToAll) return AllToAllStep(member, lane, index);
  if (model::IsExchange(plan_.collective)) return RootedStep(member, lane, index);
  if (plan_.algorithm == Algorithm::kTree) return TreeStep(member, lane, index);
  if (plan_.algorithm == Algorithm::kPat) return PatStep(member, lane, index);
  if (model::IsNvls(plan_)) return NvlsStep(member, lane, index);
  if (model::IsCollNet(plan_)) return CollNetStep(member, lane, index);
  if (plan_.algorithm == Algorithm::kRing && model::IsRotating(plan_.collective)) {
    return RingStep(member, lane, index);
  }
  return ChainStep(member, lane, index);
}

WaitsFor Schedule::PartnersOf(std::uint32_t member, std::int64_t credits) const {
  using enum graph::Collective;
  if (ranks_ < 2 || plan_.bytes == 0) return WaitsFor::kNobody;
  const bool first = member == 0;
  switch (plan_.collective) {
    case kBroadcast:
    case kScatter:
      return first ? WaitsFor::kNobody : WaitsFor::kFirst;
    case kGather:
      return first ? WaitsFor::kAll : WaitsFor::kNobody;
    case kAllToAll:
      return ExchangesWithAll() ? WaitsFor::kAll : WaitsFor::kNobody;
    case kSend:  // the receiver gives back what the window does not hold
      if (!first) return WaitsFor::kFirst;
      return At(0, 0, static_cast<std::uint64_t>(credits)).done ? WaitsFor::kNobody
                                                                : WaitsFor::kAll;
    default:
      return WaitsFor::kAll;
  }
}

// A round of a ring: step 0 sends, the middle ones receive and send, the last one receives; each of
// them for every slice of its chunk.
Step Schedule::RingStep(std::uint32_t member, int channel, std::uint64_t index) const {
  Step step;
  const auto steps = static_cast<std::uint64_t>(model::RingSteps(plan_));
  const auto full = static_cast<std::uint64_t>(pieces_.rounds) * steps *
                    static_cast<std::uint64_t>(pieces_.full.slices);
  const Chunk& chunk = index < full ? pieces_.full : pieces_.tail;
  const bool first = index < steps * static_cast<std::uint64_t>(chunk.slices);
  if (index >= full) index -= full;
  if (chunk.slices == 0 ||
      (&chunk == &pieces_.tail && index >= steps * static_cast<std::uint64_t>(chunk.slices))) {
    step.done = true;
    return step;
  }
  const auto slices = static_cast<std::uint64_t>(chunk.slices);
  const std::uint64_t number = index / slices % steps;
  const std::int64_t data = index % slices + 1 == slices ? chunk.last() : chunk.slice;
  const std::uint32_t base = static_cast<std::uint32_t>(channel) * ranks_;
  const std::uint32_t q = position_[base + member];
  const bool sends = number + 1 < steps;
  step.work = Work(data, model::kStreams * (first && sends ? box_.in_step : 1), true);
  if (number > 0)
    step.recv_connection = static_cast<std::int32_t>(base + (q + ranks_ - 1) % ranks_);
  if (sends) {
    step.send_connection = static_cast<std::int32_t>(base + q);
    step.bytes = MessageBytes(data, step.send_connection);
    step.post = Post(step.send_connection);
  }
  return step;
}

// Broadcast and point-to-point: the root sends, the others pass on, the last one receives.
Step Schedule::ChainStep(std::uint32_t member, int channel, std::uint64_t index) const {
  Step step;
  const auto per_round = static_cast<std::uint64_t>(pieces_.full.slices);
  const std::uint64_t full = static_cast<std::uint64_t>(pieces_.rounds) * per_round;
  const Chunk& chunk = index < full ? pieces_.full : pieces_.tail;
  const std::uint64_t slice = index < full ? index % per_round : index - full;
  if (slice >= static_cast<std::uint64_t>(chunk.slices)) {
    step.done = true;
    return step;
  }
  const std::int64_t data =
      slice + 1 == static_cast<std::uint64_t>(chunk.slices) ? chunk.last() : chunk.slice;
  const std::uint32_t base = static_cast<std::uint32_t>(channel) * ranks_;
  const std::uint32_t q = position_[base + member];
  const std::uint32_t distance =
      (q + ranks_ - position_[base]) % ranks_;  // from the root, member 0
  // Over NVLink a sender writes into the receiver's buffer, which leaves nothing to copy.
  const bool direct =
      plan_.algorithm == Algorithm::kPointToPoint && distance > 0 && crosses_[base] == 0;
  step.work = Work(data, direct ? 0 : model::kStreams, true);
  if (distance > 0)
    step.recv_connection = static_cast<std::int32_t>(base + (q + ranks_ - 1) % ranks_);
  if (distance + 1 < ranks_) {
    step.send_connection = static_cast<std::int32_t>(base + q);
    step.bytes = MessageBytes(data, step.send_connection);
    step.post = Post(step.send_connection);
  }
  return step;
}

// Up lane, per chunk: a message from each child, the last one reduced and sent on. Down lane: the
// parent's message is kept and sent to each child. The root turns round in its up lane and has no
// down lane. One source or destination more than a plain step has costs one stream more.
Step Schedule::TreeStep(std::uint32_t member, int lane, std::uint64_t index) const {
  Step step;
  const int channel = lane / 2;
  const bool down = lane % 2 == 1;
  const TreeNode& node = nodes_[static_cast<std::size_t>(channel) * ranks_ + member];
  const bool root = node.to_parent < 0;
  const auto fan = static_cast<std::uint64_t>(node.children);
  const std::uint64_t extra = fan > 0 ? fan - 1 : 0;
  const std::uint64_t per_chunk = root ? 1 + 2 * extra : 1 + extra;
  const std::uint64_t number = index / per_chunk;
  const std::uint64_t at = index % per_chunk;
  const auto rounds = static_cast<std::uint64_t>(pieces_.rounds);
  if ((root && down) || number >= rounds + (pieces_.tail.slices > 0 ? 1 : 0)) {
    step.done = true;
    return step;
  }
  const std::int64_t data = (number < rounds ? pieces_.full : pieces_.tail).bytes;
  const std::uint64_t main = down ? 0 : extra;  // the step that has all it needs
  const bool head = !root && crosses_[static_cast<std::size_t>(node.to_parent)] != 0;
  const double share = head ? model::TreeHeadShare(plan_) : 1;
  step.work = at == main ? Work(data, share * model::kStreams, true) : Work(data, share, false);
  if (!down && at <= main && fan > 0) step.recv_connection = node.from_child[at];
  if (down && at == 0) step.recv_connection = node.from_parent;
  if (at >= main) {
    // Far children first: they have the longer way.
    const std::uint64_t child = fan - 1 - (at - main);
    if (down || root)
      step.send_connection = fan > 0 ? node.to_child[child] : -1;
    else
      step.send_connection = node.to_parent;
  }
  if (step.send_connection >= 0) {
    step.bytes = MessageBytes(data, step.send_connection);
    step.post = Post(step.send_connection);
  }
  return step;
}

}  // namespace orrery::collective
