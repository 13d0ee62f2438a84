#include "orrery/network/packet/lanes.h"

#include <algorithm>

namespace orrery::network::packet {

void Lanes::Setup(const Settings& settings, Fabric* fabric, Paths* paths,
                  std::vector<SimTime>* inside, std::size_t links) {
  *this = Lanes();
  // What waits on a lane alone is a packet's bytes at most, too little to be paused for.
  const bool pauses = settings.pfc_xoff == 0 || settings.pfc_xoff > 2 * settings.packet_bytes();
  possible_ = settings.ack_every == 0 && settings.pfc && pauses && !settings.cut_through &&
              settings.window == 0 && settings.balance == Balance::kEcmp;
  packet_bytes_ = settings.packet_bytes();
  fabric_ = fabric;
  paths_ = paths;
  inside_ = inside;
  crossing_.assign(links, 0);
  owner_.assign(links, kNone);
}

std::uint32_t Lanes::LaneOf(std::uint32_t flow) {
  if (!possible_) return 0;
  Lane lane;
  const Paths::Way& way = paths_->way(flow, 0);
  for (std::uint32_t h = 0; h < way.hops; ++h) lane.links.push_back(paths_->link(way.first + h));
  lane.hops = lane.links.size();
  const auto after = paths_->after(flow), before = paths_->before(flow);
  lane.links.insert(lane.links.end(), after.begin(), after.end());
  lane.before.assign(before.begin(), before.end());
  std::vector<std::uint32_t> route = lane.before;
  route.insert(route.end(), lane.links.begin(), lane.links.end());
  const auto [at, fresh] = by_route_.emplace(route, static_cast<std::uint32_t>(lanes_.size()));
  if (!fresh) {
    lanes_[at->second].flows.push_back(flow);
    return at->second;
  }
  lane.flows.push_back(flow);
  // Packets come as fast as the NIC and the slowest link before it let them.
  const auto rate = [&](std::uint32_t link) { return fabric_->port(link).bandwidth_Bps; };
  std::int64_t pace = rate(lane.links.front());
  int slower = 0;
  for (const std::uint32_t link : lane.before) {
    slower += rate(link) < rate(lane.links.front()) ? 1 : 0;
    pace = std::min(pace, rate(link));
  }
  lane.possible = lane.links.size() <= kHops && slower <= 1 &&
                  std::ranges::all_of(lane.links, [&](auto link) { return rate(link) >= pace; });
  for (std::size_t h = 0; h + 1 < lane.hops; ++h) {
    if (fabric_->is_host(fabric_->port(lane.links[h]).to)) lane.possible = false;
    if (fabric_->unmarked(lane.links[h + 1]) < 2 * packet_bytes_) lane.possible = false;
  }
  lanes_.push_back(std::move(lane));
  return at->second;
}

// Nothing of an earlier lane is left on its links.
bool Lanes::Clean(const Lane& lane) const {
  for (std::size_t h = 0; h < lane.hops; ++h) {
    if (!fabric_->Idle(lane.links[h])) return false;
  }
  return true;
}

void Lanes::Begin(std::uint32_t number, std::vector<std::uint32_t>* disturbed) {
  if (!possible_) return;
  Lane& lane = lanes_[number];
  if (lane.messages++ > 0) return;
  bool alone = lane.possible && !fabric_->queues().on();
  for (const std::uint32_t link : lane.links) alone &= Enter(link, disturbed);
  for (const std::uint32_t link : lane.before) alone &= Enter(link, disturbed);
  if (!alone || !Clean(lane)) return;
  lane.alone = true;
  for (const std::uint32_t link : lane.links) owner_[link] = number;
  for (const std::uint32_t link : lane.before) owner_[link] = number;
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    const std::uint32_t link = lane.links[h];
    lane.freed[h] = h < lane.hops ? fabric_->port(link).free : (*inside_)[link];
  }
  lane.free = lane.freed;
}

// True if nothing else crosses the link.
bool Lanes::Enter(std::uint32_t link, std::vector<std::uint32_t>* disturbed) {
  const std::uint32_t owner = owner_[link];
  if (owner != kNone && std::ranges::find(*disturbed, owner) == disturbed->end()) {
    disturbed->push_back(owner);
  }
  return crossing_[link]++ == 0;
}

void Lanes::BeginNotice(std::uint32_t flow, std::vector<std::uint32_t>* disturbed) {
  if (!possible_) return;
  const Paths::Way& back = paths_->back(flow);
  for (std::uint32_t h = 0; h < back.hops; ++h) Enter(paths_->link(back.first + h), disturbed);
}

void Lanes::EndNotice(std::uint32_t flow) {
  if (!possible_) return;
  const Paths::Way& back = paths_->back(flow);
  for (std::uint32_t h = 0; h < back.hops; ++h) --crossing_[paths_->link(back.first + h)];
}

void Lanes::End(std::uint32_t number) {
  if (!possible_) return;
  Lane& lane = lanes_[number];
  if (--lane.messages > 0) return;
  for (const std::uint32_t link : lane.links) --crossing_[link];
  for (const std::uint32_t link : lane.before) --crossing_[link];
  if (!lane.alone) return;
  for (; !lane.runs.empty(); lane.runs.Pop()) Drop(&lane, lane.runs.front());
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    const std::uint32_t link = lane.links[h];
    (h < lane.hops ? fabric_->port(link).free : (*inside_)[link]) = lane.free[h];
  }
  Leave(number);
}

void Lanes::Leave(std::uint32_t number) {
  Lane& lane = lanes_[number];
  lane.alone = false;
  ++lane.version;
  for (const std::uint32_t link : lane.links) owner_[link] = kNone;
  for (const std::uint32_t link : lane.before) owner_[link] = kNone;
}

// ---- a lane alone ----

void Lanes::Count(const Lane& lane, std::size_t hop, SimTime first, SimTime step,
                  std::uint32_t count, std::int32_t bytes) {
  if (hop < lane.hops) {
    fabric_->Count(lane.links[hop], first, step, count, bytes);
  } else {
    fabric_->CountUse(lane.links[hop], first, step, count, bytes);
  }
}

// All of the run has landed: what its links carried is counted.
void Lanes::Drop(Lane* lane, const Run& run) {
  if (run.count == 0) return;
  for (std::size_t h = 0; h < lane->links.size(); ++h) {
    const SimTime last = run.at[h] + run.step * (run.count - 1);
    lane->freed[h] = std::max(lane->freed[h], last + Service(*lane, h, run.bytes));
    Count(*lane, h, run.at[h], run.step, run.count, run.bytes);
  }
}

void Lanes::Trim(std::uint32_t number, SimTime now) {
  Lane& lane = lanes_[number];
  while (!lane.runs.empty()) {
    const Run& run = lane.runs.front();
    if (run.count > 0 && LandingOf(lane, run, run.count - 1) >= now) return;
    Drop(&lane, run);
    lane.runs.Pop();
  }
}

void Lanes::Send(std::uint32_t number, const Packet& packet, bool ends_message) {
  Lane& lane = lanes_[number];
  Trim(number, packet.at);
  Run run{.flow = packet.flow, .number = packet.number, .bytes = packet.bytes, .cls = packet.cls};
  SimTime at = packet.at, landing = 0;
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    run.at[h] = std::max(at, lane.free[h]);
    lane.free[h] = run.at[h] + Service(lane, h, packet.bytes);
    at = lane.free[h] + fabric_->port(lane.links[h]).latency;
    if (h + 1 == lane.hops) landing = at;
  }
  lane.runs.Push(run);
  fabric_->port(lane.links.front()).free = lane.free[0];
  if (!ends_message) return;
  landings.Push({landing, at, packet.flow, packet.number, number, lane.version});
}

bool Lanes::Clear(const Lane& lane, SimTime now, std::int32_t bytes) const {
  SimTime at = now;
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    if (lane.free[h] > at) return false;
    at += Service(lane, h, bytes) + fabric_->port(lane.links[h]).latency;
  }
  return true;
}

void Lanes::SendRun(std::uint32_t number, const Packet& packet, SimTime step, std::uint32_t count) {
  Lane& lane = lanes_[number];
  Run run{.step = step,
          .flow = packet.flow,
          .number = packet.number,
          .count = count,
          .bytes = packet.bytes,
          .cls = packet.cls};
  SimTime at = packet.at;
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    run.at[h] = at;
    const SimTime service = Service(lane, h, packet.bytes);
    lane.free[h] = at + step * (count - 1) + service;
    at += service + fabric_->port(lane.links[h]).latency;
  }
  lane.runs.Push(run);
  fabric_->port(lane.links.front()).free = lane.free[0];
}

void Lanes::Cut(std::uint32_t number, std::uint32_t flows, std::uint32_t sent, SimTime step) {
  Lane& lane = lanes_[number];
  const std::size_t first = lane.runs.size() - flows;
  for (std::uint32_t j = 0; j < flows; ++j) {
    lane.runs[first + j].count = sent > j ? (sent - j + flows - 1) / flows : 0;
  }
  const Run& run = lane.runs[first];
  for (std::size_t h = 0; h < lane.links.size(); ++h) {
    lane.free[h] = run.at[h] + step * (sent - 1) + Service(lane, h, run.bytes);
  }
  fabric_->port(lane.links.front()).free = lane.free[0];
}

}  // namespace orrery::network::packet
