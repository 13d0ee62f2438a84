#include "orrery/collective/ideal_executor_test.h"

#include <algorithm>

namespace orrery::collective {

IdealExecutor::IdealExecutor(const Schedule& schedule, const cluster::Cluster& cluster,
                             std::span<const DeviceId> members)
    : schedule_(schedule),
      cluster_(cluster),
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

SimTime IdealExecutor::Run() {
  now_ = schedule_.setup();
  SimTime end = now_;
  running_ = lanes_.size();
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].step = schedule_.At(lanes_[l].member, lanes_[l].number, 0);
    TryStart(l);
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
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
  if (step.recv_connection >= 0) {
    const auto c = static_cast<std::uint32_t>(step.recv_connection);
    Push(now_ + wires_[c].back, Kind::kCredit, c);
  }
  TryStart(index);
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
