#include "orrery/collective/ideal_executor_test.h"

#include <algorithm>
#include <bit>

#include "orrery/collective/algorithms/collnet.h"

namespace orrery::collective {

IdealExecutor::IdealExecutor(const Schedule& schedule, const cluster::Cluster& cluster,
                             std::span<const DeviceId> members)
    : schedule_(schedule),
      cluster_(cluster),
      members_(members.begin(), members.end()),
      link_free_(cluster.links().size(), 0),
      link_bytes_(cluster.links().size(), 0) {
  for (const Connection& c : schedule.connections()) {
    Wire wire;
    cluster.Route(members[c.from], members[c.to], c.salt, &wire.path);
    for (LinkId id : wire.path) wire.back += cluster.links()[id.index()].latency;
    wire.credits = schedule.credits();
    wires_.push_back(std::move(wire));
  }
  for (std::uint32_t m = 0; m < members.size(); ++m) {
    for (int l = 0; l < schedule.lanes(); ++l) {
      Lane lane;
      lane.member = m;
      lane.number = l;
      lanes_.push_back(lane);
    }
  }
}

SimTime IdealExecutor::Run() { return Execute(); }

SimTime IdealExecutor::RunPeriodic() {
  FindRounds();
  return Execute();
}

SimTime IdealExecutor::Execute() {
  now_ = schedule_.setup();
  SimTime end = now_;
  running_ = lanes_.size();
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].step = schedule_.At(lanes_[l].member, lanes_[l].number, 0);
    TryStart(l);
  }
  while (!events_.empty()) {
    const Event event = events_.front();
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    events_.pop_back();
    now_ = event.time;
    switch (event.kind) {
      case Kind::kWorkEnd:
        end = now_;
        EndWork(event.index);
        break;
      case Kind::kHop:
        Hop(event.index);
        break;
      case Kind::kCredit: {
        Wire& wire = wires_[event.index];
        ++wire.credits;
        if (wire.sender >= 0) TryStart(static_cast<std::uint32_t>(wire.sender));
        break;
      }
      case Kind::kArrive: {
        Wire& wire = wires_[messages_[event.index].connection];
        free_messages_.push_back(event.index);
        ++wire.arrived;
        if (wire.receiver >= 0) TryStart(static_cast<std::uint32_t>(wire.receiver));
        break;
      }
    }
    if (at_round_) Recur();
  }
  return running_ == 0 ? end : -1;
}

void IdealExecutor::TryStart(std::uint32_t index) {
  Lane& lane = lanes_[index];
  if (lane.busy) return;
  if (lane.step.done) {
    lane.busy = true;
    --running_;
    return;
  }
  const auto wire = [&](std::int32_t c) -> Wire& { return wires_[static_cast<std::size_t>(c)]; };
  if (lane.step.recv_connection >= 0) {
    wire(lane.step.recv_connection).receiver = static_cast<std::int32_t>(index);
    if (wire(lane.step.recv_connection).arrived == 0) return;
  }
  if (lane.step.send_connection >= 0) {
    wire(lane.step.send_connection).sender = static_cast<std::int32_t>(index);
    if (wire(lane.step.send_connection).credits == 0) return;
    --wire(lane.step.send_connection).credits;
  }
  if (lane.step.recv_connection >= 0) --wire(lane.step.recv_connection).arrived;
  lane.busy = true;
  ++steps_;
  Push(now_ + lane.step.work, Kind::kWorkEnd, index);
}

void IdealExecutor::EndWork(std::uint32_t index) {
  Lane& lane = lanes_[index];
  const Step step = lane.step;
  if (step.send_connection >= 0) {
    std::uint32_t slot = static_cast<std::uint32_t>(messages_.size());
    if (free_messages_.empty()) {
      messages_.emplace_back();
    } else {
      slot = free_messages_.back();
      free_messages_.pop_back();
    }
    const auto& spec = cluster_.spec();
    const auto c = static_cast<std::uint32_t>(step.send_connection);
    const bool nvlink =
        cluster_.links()[wires_[c].path.back().index()].kind == cluster::LinkKind::kNvlink;
    const std::int64_t payload = nvlink ? spec.nvlink_packet_bytes : spec.nic_mtu_bytes;
    const std::int64_t header = nvlink ? spec.nvlink_header_bytes : spec.nic_header_bytes;
    messages_[slot] = {c, 0, step.bytes + (step.bytes + payload - 1) / payload * header, 0};
    Push(now_ + step.post, Kind::kHop, slot);
  }
  lane.busy = false;
  lane.step = schedule_.At(lane.member, lane.number, ++lane.index);
  at_round_ = index == teller_ && !per_round_.empty() && lane.index % per_round_[index] == 0;
  if (step.recv_connection >= 0) {
    const auto c = static_cast<std::uint32_t>(step.recv_connection);
    Push(now_ + wires_[c].back, Kind::kCredit, c);
  }
  TryStart(index);
}

// Steps of a round: a lane's steps less those of the same plan without one of its full rounds.
void IdealExecutor::FindRounds() {
  Plan shorter = schedule_.plan();
  const std::int64_t rounds = model::Cut(shorter).rounds;
  if (rounds < 3 || model::IsExchange(shorter.collective)) return;
  const bool rotating =
      shorter.algorithm == Algorithm::kRing && model::IsRotating(shorter.collective);
  const std::int64_t parts = rotating || shorter.algorithm == Algorithm::kPat
                                 ? shorter.shape.ranks
                                 : std::max(1, shorter.heads);
  shorter.bytes -= shorter.channels * parts * shorter.chunk_bytes;
  ORRERY_CHECK(model::Cut(shorter).rounds == rounds - 1, "a round less");
  const Schedule less(shorter, cluster_, members_);
  const auto steps = [](const Schedule& schedule, const Lane& lane) {
    std::uint64_t low = 0, high = 1;
    if (schedule.At(lane.member, lane.number, 0).done) return low;
    while (!schedule.At(lane.member, lane.number, high).done) low = high, high *= 2;
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (schedule.At(lane.member, lane.number, middle).done ? high : low) = middle;
    }
    return high;
  };
  FindAlike(shorter.collective, static_cast<std::uint64_t>(rounds));
  for (const Lane& lane : lanes_) {
    per_round_.push_back(steps(schedule_, lane) - steps(less, lane));
    if (per_round_.back() > 0) teller_ = static_cast<std::uint32_t>(per_round_.size() - 1);
  }
  for (const Wire& wire : wires_) {
    for (LinkId id : wire.path) used_links_.push_back(id.index());
  }
  std::sort(used_links_.begin(), used_links_.end());
  used_links_.erase(std::unique(used_links_.begin(), used_links_.end()), used_links_.end());
}

// Rounds between which messages do not change: all, or where one domain's part of a rail follows
// another's (collnet.h) those that are one domain's.
void IdealExecutor::FindAlike(graph::Collective collective, std::uint64_t rounds) {
  const Plan& plan = schedule_.plan();
  alike_.clear();
  if (!model::IsCollNet(plan) || collective == graph::Collective::kAllReduce) {
    alike_.emplace_back(0, rounds);
    return;
  }
  const model::Pieces pieces = model::Cut(plan);
  const auto owner = [&](std::uint64_t round) -> std::int64_t {
    const auto chunk = [&](int channel) {
      return collnet::ChunkOnRail(plan, pieces, channel, static_cast<std::int64_t>(round));
    };
    const std::int64_t first = chunk(0).first();
    return chunk(plan.channels - 1).last() == first ? first : -1;
  };
  std::int64_t before = -1;
  for (std::uint64_t r = 0; r < rounds; ++r) {
    const std::int64_t now = owner(r);
    if (now >= 0 && now != before) alike_.emplace_back(r, r);
    if (now >= 0) alike_.back().second = r + 1;
    before = now;
  }
}

namespace {
std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}
}  // namespace

std::uint64_t IdealExecutor::EventState(std::uint64_t hash, const Event& event) const {
  hash = Mix(hash, static_cast<std::uint64_t>(event.time - now_));
  hash = Mix(hash, static_cast<std::uint64_t>(event.kind));
  if (event.kind == Kind::kWorkEnd || event.kind == Kind::kCredit) return Mix(hash, event.index);
  const Message& message = messages_[event.index];
  hash = Mix(hash, message.connection);
  hash = Mix(hash, message.hop);
  hash = Mix(hash, static_cast<std::uint64_t>(message.wire));
  return Mix(hash, message.hop == 0 ? 0 : static_cast<std::uint64_t>(message.tail - now_));
}

// All that what follows depends on, relative to now and to the teller's round.
std::uint64_t IdealExecutor::State(std::uint64_t round) const {
  std::uint64_t hash = 1;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const Lane& lane = lanes_[l];
    hash = Mix(hash, (lane.index - round * per_round_[l]) * 2 + (lane.busy ? 1 : 0));
  }
  for (const Wire& wire : wires_) {
    hash = Mix(hash, static_cast<std::uint64_t>(wire.credits) << 32 |
                         static_cast<std::uint32_t>(wire.arrived));
    hash = Mix(hash, static_cast<std::uint64_t>(wire.sender) << 32 ^
                         static_cast<std::uint32_t>(wire.receiver));
  }
  for (std::size_t id : used_links_) {
    hash = Mix(hash, static_cast<std::uint64_t>(std::max(link_free_[id], now_) - now_));
  }
  std::vector<Event> events = events_;
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return b > a; });
  for (const Event& event : events) hash = EventState(hash, event);
  return hash;
}

constexpr std::uint64_t kLooks = 128;  // from each power of two rounds on

void IdealExecutor::Recur() {
  at_round_ = false;
  const std::uint64_t round = lanes_[teller_].index / per_round_[teller_];
  std::uint64_t behind = round, ahead = 0;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (per_round_[l] == 0) continue;
    behind = std::min(behind, lanes_[l].index / per_round_[l]);
    ahead = std::max(ahead, lanes_[l].index / per_round_[l] + 1);
  }
  // The lane that is furthest ahead must not come to the tail, or to another kind of rounds.
  while (!alike_.empty() && ahead >= alike_.front().second) {
    alike_.erase(alike_.begin());
    seen_.clear();
  }
  if (alike_.empty()) return per_round_.clear();
  const auto [first, full_rounds] = alike_.front();
  if (behind < first) return;
  // Rarer the longer it takes.
  const std::uint64_t since = round - first;
  if (since - std::bit_floor(since) >= kLooks) return;
  const auto [it, is_new] = seen_.try_emplace(State(round), std::pair(round, now_));
  if (is_new) return;
  const std::uint64_t rounds = round - it->second.first;
  const SimTime period = now_ - it->second.second;
  const std::uint64_t periods = (full_rounds - ahead) / rounds;
  if (periods == 0) return;
  const SimTime time = static_cast<SimTime>(periods) * period;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].index += periods * rounds * per_round_[l];
  }
  for (Event& event : events_) event.time += time;
  for (SimTime& free : link_free_) free += time;
  for (const Event& event : events_) {
    if (event.kind == Kind::kHop || event.kind == Kind::kArrive)
      messages_[event.index].tail += time;
  }
  now_ += time;
  skipped_ += periods * rounds;
  alike_.erase(alike_.begin());  // what is left of them is less than a period
  seen_.clear();
  if (alike_.empty()) per_round_.clear();
}

// The head of the message stands before the link of its next hop.
void IdealExecutor::Hop(std::uint32_t index) {
  Message& message = messages_[index];
  const std::vector<LinkId>& path = wires_[message.connection].path;
  const std::size_t id = path[message.hop].index();
  const cluster::Link& link = cluster_.links()[id];
  const SimTime start = std::max(now_, link_free_[id]);
  const std::int64_t head = std::min<std::int64_t>(link.mtu_bytes, message.wire);
  // The tail cannot pass before it came in from a slower link.
  const SimTime tail =
      std::max(start + TransferTime(message.wire, link.bandwidth_Bps),
               message.hop == 0 ? 0 : message.tail + TransferTime(head, link.bandwidth_Bps));
  link_free_[id] = start + TransferTime(message.wire, link.bandwidth_Bps);
  link_bytes_[id] += message.wire;
  message.tail = tail + link.latency;
  ++message.hop;
  if (message.hop == path.size()) {
    Push(message.tail, Kind::kArrive, index);
  } else {
    Push(start + TransferTime(head, link.bandwidth_Bps) + link.latency, Kind::kHop, index);
  }
}

}  // namespace orrery::collective
