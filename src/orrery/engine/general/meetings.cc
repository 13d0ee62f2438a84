// Communications of the general machine: who meets whom, and when they are over.
#include <algorithm>

#include "orrery/base/hash.h"
#include "orrery/engine/general/loggops.h"
#include "orrery/engine/general/machine.h"
#include "orrery/engine/straight/deadlock.h"

namespace orrery::engine::general {

using graph::Comm;

void Machine::MakeGroups() {
  groups_.resize(graph_.groups.size());
  std::vector<DeviceId> devices;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupState& group = groups_[g];
    const auto members = graph_.groups.members(GroupId(g));
    group.next.assign(members.size(), 0);
    devices.clear();
    for (std::size_t i = 0; i < members.size() && !in_.joint; ++i) {
      devices.push_back(in_.inputs->placement->device[members[i].index()]);
    }
    if (in_.joint) continue;
    const cluster::Cluster& cluster = *in_.inputs->cluster;
    group.shape = in_.prices->ShapeId(collective::ShapeOf(cluster, devices));
    group.in_domain = std::ranges::all_of(devices, [&](DeviceId d) {
      return cluster.nvlink_domain(d) == cluster.nvlink_domain(devices.front());
    });
  }
}

void Machine::FailNoPeer(std::uint32_t rank, std::uint32_t node) {
  Fail(InvalidInput("rank {}: the peer of {} is no rank of its job", rank, Describe(rank, node)));
}

std::uint16_t Machine::PairShape(std::uint32_t a, std::uint32_t b) {
  if (in_.inputs->placement->device[b] < in_.inputs->placement->device[a]) std::swap(a, b);
  const DeviceId pair[2] = {in_.inputs->placement->device[a], in_.inputs->placement->device[b]};
  return in_.prices->ShapeId(collective::ShapeOf(*in_.inputs->cluster, pair));
}

std::uint32_t Machine::NewMeeting(std::uint32_t rank, const Comm& comm, std::int64_t bytes,
                                  std::uint16_t shape, std::uint16_t group_shape) {
  if (free_meetings_.empty()) {
    free_meetings_.push_back(static_cast<std::uint32_t>(meetings_.size()));
    meetings_.emplace_back();
  }
  const std::uint32_t id = free_meetings_.back();
  free_meetings_.pop_back();
  Meeting& m = meetings_[id];
  m = Meeting();
  m.bytes = bytes;
  const graph::Shares* shares = comm.shares.valid() ? &graph_.shares[comm.shares.index()] : nullptr;
  if (Measured(comm)) m.measured = MeasuredTime(rank, comm);
  if (shape != 0 && m.measured < 0) {
    Status s = in_.prices->PriceComm(comm, bytes, shape, group_shape, shares, &m.price);
    m.price.comm.bytes = {bytes, -1};
    if (s.ok()) s = CheckDuration(m.price);
    if (!s.ok()) Fail(std::move(s).In(fmt::format("rank {}", rank)));
  }
  m.price.comm = comm;
  m.price.digest = PriceCache::DigestOf(comm, bytes, shares);
  return id;
}

void Machine::PostCollective(std::uint32_t rank, std::uint32_t node, const Node& n, SimTime now) {
  const Comm& comm = comm_of(n);
  const GroupId id = graph_.group(binding(rank), comm.group);
  Started(rank, node, now);
  if (in_.joint) {
    return Fail(InvalidInput(
        "network 'loggops' with joint endpoints serves messages only, and rank {} has {}; use "
        "--set loggops.endpoints=staged or another network",
        rank, graph::Name(comm.collective)));
  }
  if (!id.valid() || graph_.groups.members(id).size() < 2) {
    if (n.stream != graph::kNoStream) LeaveStream(rank, n, now);
    return Finish(rank, node, now, now);
  }
  GroupState& group = groups_[id.index()];
  const std::uint32_t place = peers_.PlaceOf(id, rank);
  const std::uint32_t number = group.next[place]++ - group.base;
  while (group.open.size() <= number) group.open.push_back(kNobody);
  std::uint32_t& meeting = group.open[number];
  const std::int64_t bytes = AmountOf(rank, n);
  if (meeting == kNobody) {
    const std::uint32_t fresh = NewMeeting(rank, comm, bytes, group.shape, group.shape);
    meeting = fresh;
    meetings_[fresh].group = id.value;
    if (in_.closed_form_in_domains && group.in_domain && meetings_[fresh].measured < 0) {
      meetings_[fresh].measured = meetings_[fresh].price.cost.total();
    }
    for (const RankId member : graph_.groups.members(id)) {
      meetings_[fresh].members.push_back({.rank = member.value});
    }
  }
  const std::uint32_t at = meeting;
  Meeting& m = meetings_[at];
  const graph::Shares* shares = comm.shares.valid() ? &graph_.shares[comm.shares.index()] : nullptr;
  CommPrice own;
  own.comm = comm;
  own.comm.bytes = {bytes, -1};
  own.digest = PriceCache::DigestOf(comm, bytes, shares);
  if (own.digest != m.price.digest) {
    CommPrice other = m.price;
    other.comm.bytes = {m.bytes, -1};
    return Fail(MismatchReport(RankId(rank), own, &other));
  }
  m.members[place] = {.rank = rank, .node = node, .posted = now};
  if (m.arrived + 1 == m.members.size()) {
    // The meetings of a communicator become complete in their order.
    group.open.pop_front();
    ++group.base;
  }
  Join(at, place, now);
}

void Machine::Join(std::uint32_t id, std::uint32_t member, SimTime now) {
  if (!error_.ok()) return;
  Meeting& m = meetings_[id];
  ++m.arrived;
  const bool last = m.arrived == m.members.size();
  ranks_[m.members[member].rank].account.Post(now, m.group == kNobody);
  if (last) m.start = now;
  if (m.measured >= 0) {
    if (last) RunMeasured(id, now);
    return;
  }
  m.members[member].came = true;
  const bool own = transport_->Join(now, id, m, member, last);
  if (own) {
    Slow(id, member, now, +1);
    return BeginWhoCan(id, member, now);
  }
  for (std::uint32_t i = 0; last && i < m.members.size(); ++i) BeginMember(id, i, now);
}

// A member has come of those that begin by themselves: whoever waited for it waits no longer.
void Machine::BeginWhoCan(std::uint32_t id, std::uint32_t member, SimTime now) {
  Meeting& m = meetings_[id];
  const bool last = m.arrived == m.members.size();
  const auto can = [&](std::uint32_t i) {
    const Participant& p = m.members[i];
    if (!p.came || p.began) return false;
    const collective::WaitsFor partners = transport_->PartnersOf(id, i);
    if (partners == collective::WaitsFor::kFirst) return m.members[0].came;
    return last || partners == collective::WaitsFor::kNobody;
  };
  if (!last && member != 0) {
    if (can(member)) BeginAccount(id, member, now);
    return;
  }
  for (std::uint32_t i = 0; i < m.members.size(); ++i) {
    if (can(i)) BeginAccount(id, i, now);
  }
}

// All members of a measured communication have come. Each takes what was measured on it; one of
// which nothing is known, what the first takes.
void Machine::RunMeasured(std::uint32_t id, SimTime now) {
  for (std::uint32_t i = 0; i < meetings_[id].members.size(); ++i) {
    BeginMember(id, i, now);
    const Participant& p = meetings_[id].members[i];
    const Comm& own = comm_of(node_of(p.rank, p.node));
    const SimTime time = Measured(own) ? MeasuredTime(p.rank, own) : meetings_[id].measured;
    Push(Make(Step::kMember, p.rank, p.node, id, i), now + time);
  }
}

// What the time of a message counts as: its group's role, if it has one.
graph::GroupSlot Machine::RoleOf(const Comm& comm, std::uint32_t rank) const {
  if (static_cast<std::size_t>(comm.group) < graph::kGroupSlots) return comm.group;
  const GroupId id = graph_.group(binding(rank), comm.group);
  return id.valid() ? graph_.groups.slot(id) : graph::GroupSlot::kPp;
}

void Machine::BeginMember(std::uint32_t id, std::uint32_t member, SimTime now) {
  BeginAccount(id, member, now);
  Slow(id, member, now, +1);
}

void Machine::BeginAccount(std::uint32_t id, std::uint32_t member, SimTime now) {
  Meeting& m = meetings_[id];
  Participant& p = m.members[member];
  p.began = true;
  ranks_[p.rank].account.Begin(now, RoleOf(m, member), m.group == kNobody);
}

// It begins or ends to slow its member's kernels.
void Machine::Slow(std::uint32_t id, std::uint32_t member, SimTime now, int delta) {
  const Meeting& m = meetings_[id];
  if (m.price.beside != 0) ChangeClass(m.members[member].rank, now, m.price.beside, delta);
}

std::size_t Machine::RoleOf(const Meeting& m, std::uint32_t member) const {
  return static_cast<std::size_t>(m.group == kNobody ? RoleOf(m.price.comm, m.members[member].rank)
                                                     : graph_.groups.slot(GroupId(m.group)));
}

void Machine::EndMeeting(const Transport::Ended& ended, SimTime now) {
  const std::uint32_t id = ended.meeting;
  if (meetings_[id].raw) return EndRaw(id, now);
  if (ended.member != kNobody) return EndMember(id, ended.member, now);
  const auto count = static_cast<std::uint32_t>(meetings_[id].members.size());
  for (std::uint32_t i = 0; i < count; ++i) EndMember(id, i, now);
}

void Machine::EndMember(std::uint32_t id, std::uint32_t member, SimTime now) {
  Meeting& m = meetings_[id];
  const Participant p = m.members[member];
  const Node& n = node_of(p.rank, p.node);
  const SimTime start = std::max(m.start, p.posted);
  ranks_[p.rank].account.End(now, RoleOf(m, member));
  Slow(id, member, now, -1);
  Emit(p.rank, n, p.posted, now, start - p.posted, m.bytes,
       m.price.plan < 0 ? std::string_view()
                        : collective::Name(in_.prices->plan(m.price.plan).protocol));
  if (n.stream != graph::kNoStream) LeaveStream(p.rank, n, now);
  if (++m.ended == m.members.size()) free_meetings_.push_back(id);
  Finish(p.rank, p.node, start, now);
}

// The meeting of a message from `from` to `to`; `rank` is the one that comes first.
std::uint32_t Machine::NewPair(std::uint32_t rank, const Node& n, std::uint32_t from,
                               std::uint32_t to) {
  const Comm& comm = comm_of(n);
  const bool has =
      static_cast<std::size_t>(comm.group) < graph::kGroupSlots || !graph_.more_groups.empty();
  const GroupId group = has ? graph_.group(binding(rank), comm.group) : GroupId();
  const std::uint16_t group_shape = group.valid() ? groups_[group.index()].shape : 0;
  const std::uint32_t id =
      NewMeeting(rank, comm, AmountOf(rank, n), PairShape(from, to), group_shape);
  meetings_[id].members = {{.rank = from}, {.rank = to}};
  return id;
}

// One end of a message comes to its meeting.
void Machine::JoinPair(std::uint32_t id, std::uint32_t member, std::uint32_t node, SimTime now) {
  Meeting& m = meetings_[id];
  m.members[member].node = node;
  m.members[member].posted = now;
  Join(id, member, now);
}

// Both ends agree on bytes and type.
void Machine::CheckPair(std::uint32_t id, std::uint32_t rank, const Node& n) {
  const Meeting& m = meetings_[id];
  CommPrice own;
  own.comm = comm_of(n);
  own.comm.bytes = {AmountOf(rank, n), -1};
  if (own.comm.bytes.value == m.bytes && own.comm.dtype == m.price.comm.dtype) return;
  CommPrice other = m.price;
  other.comm.bytes = {m.bytes, -1};
  Fail(MismatchReport(RankId(rank), own, &other));
}

// A send or a receive of NCCL's. Where a receive names its source the meeting is known from the
// first that comes; with wildcards it is made once they have found each other.
void Machine::PostNccl(const Event& event, const Node& n, std::uint32_t peer) {
  const bool sends = n.kind == NodeKind::kSend;
  const std::uint32_t rank = event.rank;
  const std::uint32_t to = sends ? peer : rank;
  const Matching::Item own{.ready = event.time,
                           .node = event.node,
                           .source = sends ? rank : peer,
                           .tag = static_cast<std::uint32_t>(comm_of(n).tag)};
  Matching::Item other;
  const bool met = sends ? matching_.Message(to, own, &other) : matching_.Receive(to, own, &other);
  const std::uint32_t member = sends ? 0 : 1;
  if (!met) {
    if (matching_.wild(to)) return;
    const std::uint32_t id = NewPair(rank, n, sends ? rank : peer, to);
    matching_.left_waiting().set_meeting(id);
    return JoinPair(id, member, event.node, event.time);
  }
  if (other.has_meeting()) {
    CheckPair(other.meeting(), rank, n);
    return JoinPair(other.meeting(), member, event.node, event.time);
  }
  const std::uint32_t from = sends ? rank : other.source;
  const std::uint32_t send = sends ? event.node : other.node;
  const std::uint32_t receive = sends ? other.node : event.node;
  const std::uint32_t id = NewPair(from, node_of(from, send), from, to);
  CheckPair(id, to, node_of(to, receive));
  JoinPair(id, 0, send, event.time);
  JoinPair(id, 1, receive, event.time);
}

void Machine::PostSend(const Event& event, const Node& n) {
  const std::uint32_t to = PeerOf(event.rank, n);
  if (to == Peers::kNobody) return FailNoPeer(event.rank, event.node);
  const std::int64_t size = AmountOf(event.rank, n);
  if (!n.raw) {
    if (!EnterStream(event, n)) return;
    Started(event.rank, event.node, event.time);
    ++messages_;
    bytes_ += size;
    return PostNccl(event, n, to);
  }
  if (n.cpu == Node::kNone) {
    Started(event.rank, event.node, event.time);
    return PostRaw(event.rank, event.node, n, event.time);
  }
  // The processor prepares it, then the network has it.
  Cpu& c = cpu(event.rank, n.cpu);
  if (!TakeCpu(event, &c)) return;
  const SimTime held = in_.loggops.o + BytesTime(size, in_.loggops.O_as);
  Started(event.rank, event.node, event.time);
  ranks_[event.rank].held.send += held;
  ranks_[event.rank].account.HostWorks(event.time + held);
  LeaveQueue(event, &c, event.time + held);
  Push(Make(Step::kPost, event.rank, event.node), event.time + held);
}

// A message of the network's own leaves: at once if it is short, else once its receive is posted.
void Machine::PostRaw(std::uint32_t rank, std::uint32_t node, const Node& n, SimTime now) {
  const std::uint32_t to = PeerOf(rank, n);
  if (to == Peers::kNobody) return FailNoPeer(rank, node);
  const std::int64_t size = AmountOf(rank, n);
  ++messages_;
  bytes_ += size;
  const std::uint32_t id = NewRaw(rank, node, to, size, now);
  if (eager(size)) {
    Emit(rank, n, now, now, 0, size, "eager");
    Finish(rank, node, now, now);
    return StartRaw(id, now);
  }
  Matching::Item own{
      .node = node, .source = rank, .tag = static_cast<std::uint32_t>(comm_of(n).tag)};
  own.set_meeting(id);
  Matching::Item receive;
  if (!matching_.Message(to, own, &receive)) return;
  meetings_[id].members[1].node = receive.node;
  StartRaw(id, now);
}

std::uint32_t Machine::NewRaw(std::uint32_t rank, std::uint32_t node, std::uint32_t to,
                              std::int64_t size, SimTime now) {
  const std::uint32_t id = NewMeeting(rank, comm_of(node_of(rank, node)), size, 0, 0);
  Meeting& m = meetings_[id];
  m.raw = true;
  m.members = {{.rank = rank, .node = node, .posted = now},
               {.rank = to, .node = Node::kNoOp, .posted = now}};
  return id;
}

void Machine::StartRaw(std::uint32_t id, SimTime now) {
  Meeting& m = meetings_[id];
  m.arrived = 2;
  m.start = now;
  const auto role = static_cast<std::size_t>(RoleOf(m.price.comm, m.members[0].rank));
  ranks_[m.members[1].rank].account.Fly(now, role, +1);
  if (!eager(m.bytes)) ranks_[m.members[0].rank].account.Fly(now, role, +1);
  transport_->Join(now, id, m, 1, true);
}

// The network has brought a message to its receiver, whose processor takes it in.
void Machine::EndRaw(std::uint32_t id, SimTime now) {
  Meeting& m = meetings_[id];
  m.members[1].posted = now;
  const auto role = static_cast<std::size_t>(RoleOf(m.price.comm, m.members[0].rank));
  ranks_[m.members[1].rank].account.Fly(now, role, -1);
  if (!eager(m.bytes)) ranks_[m.members[0].rank].account.Fly(now, role, -1);
  Push(Make(Step::kMessage, m.members[0].rank, m.members[0].node, m.members[1].rank, id), now);
}

void Machine::ArriveRaw(const Event& event) {
  const Node& n = node_of(event.rank, event.node);
  const std::uint32_t to = event.a;
  SimTime ready = event.time;
  if (n.cpu != Node::kNone) {
    Cpu& c = cpu(to, n.cpu);
    if (!TakeCpu(event, &c)) return;
    const SimTime held = in_.loggops.o + BytesTime(meetings_[event.b].bytes, in_.loggops.O_as);
    ranks_[to].held.receive += held;
    ready = event.time + held;
    ranks_[to].account.HostWorks(ready);
    LeaveQueue(event, &c, ready);
  }
  const Meeting m = meetings_[event.b];
  free_meetings_.push_back(event.b);
  if (!eager(m.bytes)) {
    Emit(event.rank, n, m.members[0].posted, event.time, m.start - m.members[0].posted, m.bytes,
         "rendezvous");
    Finish(event.rank, event.node, m.start, event.time);
    return EndReceive(to, m.members[1].node, m.bytes, ready);
  }
  Matching::Item receive;
  const Matching::Item message{.ready = ready,
                               .node = event.node,
                               .source = event.rank,
                               .tag = static_cast<std::uint32_t>(comm_of(n).tag)};
  if (!matching_.Message(to, message, &receive)) return;
  EndReceive(to, receive.node, m.bytes, ready);
}

void Machine::PostReceive(const Event& event, const Node& n) {
  const std::uint32_t from = PeerOf(event.rank, n);
  if (from == Peers::kNobody) return FailNoPeer(event.rank, event.node);
  if (!n.raw) {
    if (!EnterStream(event, n)) return;
    Started(event.rank, event.node, event.time);
    return PostNccl(event, n, from);
  }
  Started(event.rank, event.node, event.time);
  ranks_[event.rank].account.PostReceive(event.time);
  state(event.rank, event.node).ready = event.time;
  Matching::Item message;
  const Matching::Item own{.ready = event.time,
                           .node = event.node,
                           .source = from,
                           .tag = static_cast<std::uint32_t>(comm_of(n).tag)};
  if (!matching_.Receive(event.rank, own, &message)) return;
  if (message.has_meeting()) {  // it waits at its sender for this
    meetings_[message.meeting()].members[1].node = event.node;
    return StartRaw(message.meeting(), event.time);
  }
  ++unexpected_;
  const std::int64_t size = AmountOf(message.source, node_of(message.source, message.node));
  EndReceive(event.rank, event.node, size, std::max(event.time, message.ready));
}

// A raw receive has its message at `end`, now or a little later.
void Machine::EndReceive(std::uint32_t rank, std::uint32_t node, std::int64_t bytes, SimTime end) {
  Push(Make(Step::kTakeIn, rank, node), end);
  CheckLength(rank, node, bytes);
}

void Machine::TakeInRaw(const Event& event) {
  const Node& n = node_of(event.rank, event.node);
  const SimTime posted = state(event.rank, event.node).ready;
  ranks_[event.rank].account.Receive(event.time);
  Emit(event.rank, n, posted, event.time, event.time - posted, AmountOf(event.rank, n), "message");
  Finish(event.rank, event.node, posted, event.time);
}

}  // namespace orrery::engine::general
