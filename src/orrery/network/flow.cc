#include "orrery/network/flow.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/base/hash.h"
#include "orrery/network/backends.h"
#include "orrery/network/wire.h"

namespace orrery::network {
namespace {

// A byte, in what a rate of MaxMin (256ths of a byte/s) serves in a picosecond.
constexpr std::uint64_t kServed = std::uint64_t{kSecond} * MaxMin::kFine;

}  // namespace

std::unique_ptr<Network> MakeFlow(std::string_view name) { return std::make_unique<Flow>(name); }

Status Flow::SetupPorts(std::span<const std::int64_t>) {
  return InvalidInput(
      "network 'flow' serves fluids over links; choose 'analytic' for closed-form collectives");
}

void Flow::Start(SimTime, std::span<const Fluid> fluids, std::span<const PortLoad>) {
  ORRERY_CHECK(fluids.empty(), "network 'flow' serves no fluids over ports");
}

void Flow::Deliver(const RemoteHop&) { ORRERY_CHECK(false, "network 'flow' has one partition"); }

Status Flow::SetupLinks(const cluster::Cluster& cluster,
                        std::span<const std::uint32_t> partition_of_domain, std::uint32_t) {
  *this = Flow(name_);
  for (const std::uint32_t p : partition_of_domain) {
    if (p != 0)
      return InvalidInput("fair shares are of the whole network: one partition (--threads 1)");
  }
  cluster_ = &cluster;
  std::vector<std::int64_t> capacity;
  capacity.reserve(cluster.links().size());
  for (const cluster::Link& link : cluster.links()) {
    if (link.bandwidth_Bps <= 0 || link.bandwidth_Bps > MaxMin::kMaxCapacity_Bps) {
      return InvalidInput("a link of {} B/s: network 'flow' serves 1 to {}", link.bandwidth_Bps,
                          MaxMin::kMaxCapacity_Bps);
    }
    capacity.push_back(link.bandwidth_Bps);
  }
  solver_.Setup(capacity);
  use_.resize(capacity.size());
  schedule_ = LinkSchedule(cluster);
  failures_ = Failures(cluster);
  alone_ = schedule_.changes().empty();
  adaptive_ = cluster.spec().topology.routing == cluster::Routing::kAdaptive;
  ApplyChanges();
  return {};
}

// An instant that is over is settled before the next one begins.
void Flow::Advance(SimTime now) {
  ORRERY_CHECK(now >= now_, "a start in the past");
  ORRERY_CHECK(cluster_ != nullptr, "SetupLinks comes first");
  if (now == now_) return;
  ORRERY_CHECK(next_time() >= now, "a start after an end not yet taken");
  now_ = now;
  ApplyChanges();
}

// Links whose capacity is another from now_ on. While nothing is in flight nobody asks for them in
// time, so several changes of one link may be due.
void Flow::ApplyChanges() {
  const auto changes = schedule_.changes();
  while (next_change_ < changes.size() && changes[next_change_].time <= now_) {
    const LinkSchedule::Change& change = changes[next_change_++];
    solver_.SetCapacity(change.link.value, change.capacity_Bps);
  }
  if (failures_.any() && failures_.Advance(now_)) MoveTransfers();
}

void Flow::Start(SimTime now, std::span<const Transfer> transfers) {
  Advance(now);
  for (const Transfer& transfer : transfers) {
    ORRERY_CHECK(transfer.bytes >= 0, "a transfer moves bytes >= 0");
    const std::int64_t wire =
        WireBytes(*cluster_, transfer.from, transfer.to, transfer.bytes, transfer.salt);
    const std::uint32_t number = PathOf(transfer);
    SetFixedTime(number, wire);
    const Path& path = path_[number];
    const SimTime fixed = path.fixed;
    if (failures_.any()) {
      if (transfer.id >= transfers_.size()) transfers_.resize(std::size_t{transfer.id} + 1);
      transfers_[transfer.id] = transfer;
    }
    Wait(transfer.id, fixed / 2, fixed - fixed / 2, path.group == kNone ? 0 : wire, path.group,
         transfer.connection);
  }
}

void Flow::Start(SimTime now, std::span<const LinkFluid> fluids, std::span<const LinkLoad> loads) {
  Advance(now);
  for (const LinkFluid& fluid : fluids) {
    ORRERY_CHECK(fluid.bytes >= 0 && fluid.before >= 0 && fluid.after >= 0,
                 "a fluid's bytes and times are not negative");
    ORRERY_CHECK(fluid.first_load + std::size_t{fluid.loads} <= loads.size(),
                 "a fluid's loads lie in the batch's array");
    const std::uint32_t group =
        fluid.known != LinkFluid::kUnknown
            ? fluid.known
            : Know(loads.subspan(fluid.first_load, fluid.loads), fluid.weight, fluid.cap_Bps);
    if (fluid.id < transfers_.size()) transfers_[fluid.id].bytes = 0;  // its caller moves it
    Wait(fluid.id, fluid.before, fluid.after, group == kNone ? 0 : fluid.bytes, group,
         fluid.connection);
  }
}

// Its class.
std::uint32_t Flow::Know(std::span<const LinkLoad> loads, std::uint32_t weight,
                         std::int64_t cap_Bps) {
  static_assert(kNone == LinkFluid::kUnknown);
  if (loads.empty()) return kNone;
  scratch_.clear();
  for (const LinkLoad& load : loads) scratch_.push_back({load.link.value, load.share});
  return FindGroup(scratch_, weight, cap_Bps);
}

// The number of the transfer's path; its entry is made at the first call.
std::uint32_t Flow::PathOf(const Transfer& transfer) {
  std::uint32_t number = 0;
  if (adaptive_) {
    number = paths_.FindLeast(
        *cluster_, transfer.from, transfer.to, transfer.salt, [&](std::span<const LinkId> path) {
          std::uint64_t most = 0;
          for (const LinkId id : path) {
            constexpr std::uint64_t kScale = std::uint64_t{1} << 44;
            constexpr std::uint64_t kMostFlights = ~std::uint64_t{0} / kScale;
            const auto rate =
                static_cast<std::uint64_t>(cluster_->links()[id.index()].bandwidth_Bps);
            const std::uint64_t flights = use_[id.index()].flights;
            most = std::max(most, std::min(flights, kMostFlights) * kScale / rate);
          }
          return most;
        });
  } else {
    number = paths_.Find(*cluster_, transfer.from, transfer.to, transfer.salt);
  }
  if (failures_.blocked(paths_.path(number))) number = RoundFailures(transfer, number);
  MakePath(number);
  return number;
}

// The path that the transfer takes while `number` is blocked; `number` where it has to wait.
std::uint32_t Flow::RoundFailures(const Transfer& transfer, std::uint32_t number) {
  const auto [at, fresh] = detours_.try_emplace(number, number);
  if (!fresh) return at->second;
  const Status status = failures_.Route(transfer.from, transfer.to, transfer.salt, &route_);
  if (status_.ok()) status_ = status;
  if (!std::ranges::equal(route_, paths_.path(number))) at->second = paths_.Add(route_);
  return at->second;
}

void Flow::MakePath(std::uint32_t number) {
  if (number >= path_.size()) path_.resize(std::size_t{number} + 1);
  if (path_[number].least_Bps > 0) return;
  Path& path = path_[number];
  path.least_Bps = MaxMin::kMaxCapacity_Bps;
  scratch_.clear();
  for (const LinkId id : paths_.path(number)) {
    const cluster::Link& link = cluster_->links()[id.index()];
    path.least_Bps = std::min(path.least_Bps, link.bandwidth_Bps);
    scratch_.push_back({id.value, MaxMin::kWhole});
  }
  std::sort(scratch_.begin(), scratch_.end(),
            [](const auto& a, const auto& b) { return a.link < b.link; });
  if (!scratch_.empty()) path.group = FindGroup(scratch_, 1, 0);
}

// Other links are down than before: who crosses one that is takes another path.
void Flow::MoveTransfers() {
  detours_.clear();
  for (FlightId id = 0; id < transfers_.size(); ++id) {
    const Flight& flight = flights_[id];
    if (!flight.active || flight.group == kNone || transfers_[id].bytes == 0) continue;
    const auto loads = solver_.loads(flight.group);
    const bool blocked = std::ranges::any_of(
        loads, [&](const MaxMin::Load& load) { return failures_.down(LinkId(load.link)); });
    if (!blocked || leaving_.contains(id)) continue;
    const std::uint32_t group = path_[PathOf(transfers_[id])].group;
    MoveTo(id, group);
  }
}

void Flow::Move(SimTime now, FlightId id, std::span<const LinkLoad> loads) {
  Advance(now);
  ORRERY_CHECK(id < flights_.size() && flights_[id].active, "a flight that moves is in flight");
  ORRERY_CHECK(!loads.empty(), "a fluid that moves has links");
  const std::uint32_t from = flights_[id].group;
  if (from == kNone || leaving_.contains(id)) return;
  scratch_.clear();
  for (const LinkLoad& load : loads) scratch_.push_back({load.link.value, load.share});
  MoveTo(id, FindGroup(scratch_, solver_.weight(from), solver_.cap_Bps(from)));
}

// REQUIRES: the flight waits or competes.
void Flow::MoveTo(FlightId id, std::uint32_t group) {
  Flight& flight = flights_[id];
  if (group == flight.group) return;
  const bool competes = !waiting_.contains(id) && !order_.held(id);
  if (competes && !HasLeft(id)) return;  // it ends at this instant
  // What is left over whole bytes of a byte begun has passed.
  const Uint128 left = competes ? TakeOut(id) : static_cast<Uint128>(flight.bytes) * kServed;
  const auto bytes = static_cast<std::int64_t>(left / kServed);
  CountUse(flight.group, -bytes, -1);
  flight.group = group;
  CountUse(group, bytes, 1);
  if (competes) Join(id, left);
}

bool Flow::HasLeft(FlightId id) {
  const Group& group = groups_[flights_[id].group];
  Serve(flights_[id].group);
  return std::ranges::find(group.members, id, &Member::id)->end > group.served;
}

// Takes a competing flight out of its class; what it has left, in byte / kServed.
Uint128 Flow::TakeOut(FlightId id) {
  const std::uint32_t number = flights_[id].group;
  Group& group = groups_[number];
  if (group.lone) Meet(number);
  Serve(number);
  const auto at = std::ranges::find(group.members, id, &Member::id);
  ORRERY_CHECK(at != group.members.end(), "a competing flight is a member of its class");
  const Uint128 left = at->end - group.served;
  *at = group.members.back();
  group.members.pop_back();
  std::make_heap(group.members.begin(), group.members.end());
  solver_.AddMembers(number, -1);
  if (group.members.empty()) {
    Withdraw(number);
    Vacate(number);
  } else {
    PlaceEnd(number);
  }
  return left;
}

// What a path adds to a transfer: Uncontended() less the wire bytes at the least bandwidth.
void Flow::SetFixedTime(std::uint32_t number, std::int64_t wire) {
  Path& path = path_[number];
  if (path.wire == wire) return;
  path.wire = wire;
  path.fixed = 0;
  if (path.group == kNone) return;
  path.fixed = PathTime(*cluster_, paths_.path(number), wire) - TransferTime(wire, path.least_Bps);
}

std::uint32_t Flow::FindGroup(std::span<const MaxMin::Load> loads, std::uint32_t weight,
                              std::int64_t cap_Bps) {
  Hasher hasher;
  hasher.Add(weight).Add(cap_Bps);
  for (const MaxMin::Load& load : loads) {
    hasher.Add(std::uint64_t{load.link} << 32 | load.share);
  }
  const auto [it, fresh] = group_of_.emplace(hasher.value(), kNone);
  for (std::uint32_t g = it->second; g != kNone; g = groups_[g].next_same_hash) {
    if (solver_.weight(g) == weight && solver_.cap_Bps(g) == cap_Bps &&
        std::ranges::equal(solver_.loads(g), loads)) {
      return g;
    }
  }
  const std::uint32_t g = solver_.AddClass(loads, weight, cap_Bps);
  groups_.resize(std::size_t{g} + 1);
  places_.resize(std::size_t{g} + 1, Meter::kAbsent);
  groups_[g].next_same_hash = it->second;
  groups_[g].whole = std::ranges::all_of(
      loads, [](const MaxMin::Load& load) { return load.share == MaxMin::kWhole; });
  if (alone_ && groups_[g].whole && weight == 1 && cap_Bps == 0) {
    std::int64_t least_Bps = MaxMin::kMaxCapacity_Bps;
    for (const MaxMin::Load& load : loads) {
      least_Bps = std::min(least_Bps, cluster_->links()[load.link].bandwidth_Bps);
    }
    groups_[g].alone = least_Bps * MaxMin::kFine;
  }
  it->second = g;
  return g;
}

void Flow::Wait(FlightId id, SimTime before, SimTime after, std::int64_t bytes, std::uint32_t group,
                std::uint64_t connection) {
  if (id >= flights_.size()) flights_.resize(std::size_t{id} + 1);
  Flight& flight = flights_[id];
  ORRERY_CHECK(!flight.active, "a flight id is unique among what is in flight");
  flight = {bytes, after, group, true};
  ++in_flight_;
  if (group != kNone) CountUse(group, bytes, bytes > 0 ? 1 : 0);
  if (connection != 0) order_.Add(connection, id);
  if (before > 0) {
    waiting_.Set(id, now_ + before);
  } else {
    Enter(id);
  }
}

void Flow::CountUse(std::uint32_t group, std::int64_t bytes, int flights) {
  if (groups_[group].whole && !adaptive_) {
    groups_[group].bytes += bytes;  // statistics() has them on the links
    return;
  }
  for (const MaxMin::Load& load : solver_.loads(group)) {
    LinkUse& use = use_[load.link];
    const auto moved =
        load.share == MaxMin::kWhole
            ? (bytes < 0 ? -bytes : bytes)
            : static_cast<std::int64_t>(static_cast<Uint128>(bytes < 0 ? -bytes : bytes) *
                                        load.share / MaxMin::kWhole);
    use.bytes += bytes < 0 ? -moved : moved;
    if (adaptive_) use.flights += static_cast<std::uint32_t>(flights);
  }
}

// The flight competes from now on, if those ahead on its connection are through.
void Flow::Enter(FlightId id) {
  if (!order_.MayEnter(id)) return;
  const Flight& flight = flights_[id];
  if (flight.bytes == 0) return Depart(id);
  Join(id, static_cast<Uint128>(flight.bytes) * kServed);
}

// Those whose turn it is, now that others have left.
void Flow::EnterFreed() {
  for (FlightId id = 0; order_.TakeFreed(&id);) Enter(id);
}

// The flight becomes a member of its class with so much left.
void Flow::Join(FlightId id, Uint128 left) {
  const std::uint32_t number = flights_[id].group;
  Group& group = groups_[number];
  if (group.lone) Meet(number);
  if (group.members.empty()) {
    group.served = 0;
    group.at = now_;
    group.lone = Occupy(number);
  }
  Serve(number);
  group.members.push_back({group.served + left, id});
  std::push_heap(group.members.begin(), group.members.end());
  if (!group.lone) solver_.AddMembers(number, 1);
  PlaceEnd(number);
}

// The class has flows on its links; true if it needs no solver, for it has them to itself.
bool Flow::Occupy(std::uint32_t id) {
  bool alone = groups_[id].alone > 0;
  for (const MaxMin::Load& load : solver_.loads(id)) {
    LinkUse& use = use_[load.link];
    if (use.lone != kNone) Meet(use.lone);
    if (use.classes++ == 0) {
      use.busy -= now_;
    } else {
      alone = false;
    }
  }
  if (!alone) return false;
  for (const MaxMin::Load& load : solver_.loads(id)) use_[load.link].lone = id;
  return true;
}

// The class has no flow any more.
void Flow::Vacate(std::uint32_t id) {
  groups_[id].lone = false;
  for (const MaxMin::Load& load : solver_.loads(id)) {
    LinkUse& use = use_[load.link];
    if (--use.classes == 0) use.busy += now_;
    use.lone = kNone;
  }
}

// The class is alone no longer: the solver has it from now on.
void Flow::Meet(std::uint32_t id) {
  Group& group = groups_[id];
  for (const MaxMin::Load& load : solver_.loads(id)) use_[load.link].lone = kNone;
  Serve(id);
  lone_ends_.Remove(id);
  group.lone = false;
  solver_.AddMembers(id, static_cast<std::int32_t>(group.members.size()));
}

// No class is left to itself, now or later.
void Flow::MeetAll() {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].lone) Meet(g);
    groups_[g].alone = 0;
  }
  alone_ = false;
}

// Brings what the members were served up to now_.
void Flow::Serve(std::uint32_t id) {
  Group& group = groups_[id];
  if (group.lone) {
    group.served += static_cast<Uint128>(group.alone) * static_cast<Uint128>(now_ - group.at);
  } else if (group.meter != kNone) {
    Meter& meter = meters_[group.meter];
    meter.Serve(now_);
    group.served += (meter.served() - group.base) * solver_.weight(id);
    group.base = meter.served();
  }
  Log(id);
  group.at = now_;
}

// What the members carried since `at`, at the level that held until now_.
void Flow::Log(std::uint32_t id) {
  if (!log_.on()) return;
  Group& group = groups_[id];
  std::int64_t rate = group.lone ? group.alone : 0;
  if (group.meter != kNone) rate = meters_[group.meter].level() * solver_.weight(id);
  const std::int64_t rate_Bps =
      rate * static_cast<std::int64_t>(group.members.size()) / MaxMin::kFine;
  for (const MaxMin::Load& load : solver_.loads(id)) {
    log_.AddRate(load.link, group.at, now_, rate_Bps, load.share);
  }
  group.at = now_;
}

// The class's first member may be another one. REQUIRES: served until now_.
void Flow::PlaceEnd(std::uint32_t id) {
  Group& group = groups_[id];
  const Uint128 left = group.members.front().end - group.served;
  if (group.lone) {
    lone_ends_.Set(id, EndAt(now_, left, group.alone));
    return;
  }
  if (group.meter == kNone) return;  // the next solve says where it belongs
  const std::uint32_t weight = solver_.weight(id);
  const Uint128 each = weight == 1 ? left : (left + weight - 1) / weight;
  meters_[group.meter].Place(id, group.base + each, &places_);
  MarkStale(group.meter);
}

// The class is in no meter any more.
void Flow::Withdraw(std::uint32_t id) {
  Group& group = groups_[id];
  if (group.meter == kNone) return;
  meters_[group.meter].Remove(id, &places_);
  MarkStale(group.meter);
  group.meter = kNone;
}

// The members of the class that have nothing left.
void Flow::Leave(std::uint32_t id) {
  Group& group = groups_[id];
  Serve(id);
  std::int32_t gone = 0;
  while (!group.members.empty() && group.members.front().end <= group.served) {
    const FlightId flight = group.members.front().id;
    Depart(flight);
    std::pop_heap(group.members.begin(), group.members.end());
    group.members.pop_back();
    ++gone;
    if (!adaptive_) continue;
    for (const MaxMin::Load& load : solver_.loads(id)) --use_[load.link].flights;
  }
  if (!group.lone) solver_.AddMembers(id, -gone);
  if (!group.members.empty()) {
    PlaceEnd(id);
    return;
  }
  if (group.lone) lone_ends_.Remove(id);
  Withdraw(id);
  Vacate(id);
}

void Flow::MarkStale(std::uint32_t meter) {
  if (is_stale_[meter]) return;
  is_stale_[meter] = true;
  stale_.push_back(meter);
}

// Ends the instant now_: new levels and new ends.
void Flow::Settle() {
  changes_.clear();
  solver_.Solve(&changes_);
  if (meters_.size() < solver_.bottlenecks()) {
    meters_.resize(solver_.bottlenecks());
    is_stale_.resize(solver_.bottlenecks());
  }
  for (const std::uint32_t id : changes_.moved) {
    Serve(id);
    Withdraw(id);
  }
  for (const std::uint32_t b : changes_.bottlenecks) {
    Meter& meter = meters_[b];
    if (log_.on()) meter.ForEach([&](std::uint32_t id) { Log(id); });
    meter.Serve(now_);
    meter.set_level(solver_.bottleneck_level(b));
    MarkStale(b);
  }
  for (const std::uint32_t id : changes_.moved) {
    Group& group = groups_[id];
    group.meter = solver_.bottleneck(id);
    meters_[group.meter].Serve(now_);
    group.base = meters_[group.meter].served();
    PlaceEnd(id);
  }
  for (const std::uint32_t meter : stale_) SetEnd(meter);
  stale_.clear();
}

// When `left` is served.
SimTime Flow::EndAt(SimTime from, const Uint128& left, std::int64_t level) {
  if (left == 0) return from;
  if (level == 0) return kNever;
  const auto rate = static_cast<std::uint64_t>(level);
  const Uint128 time = left >> 64 == 0 ? (static_cast<std::uint64_t>(left) - 1) / rate + 1
                                       : (left + rate - 1) / rate;
  return time <= static_cast<Uint128>(kMaxDuration) ? from + static_cast<SimTime>(time) : kNever;
}

void Flow::SetEnd(std::uint32_t number) {
  is_stale_[number] = false;
  const Meter& meter = meters_[number];
  if (!meter.empty()) {
    ends_.Set(number, EndAt(meter.at(), meter.first_end() - meter.served(), meter.level()));
  } else if (ends_.contains(number)) {
    ends_.Remove(number);
  }
}

// The flows that end at now_.
void Flow::TakeEnds() {
  while (!lone_ends_.empty() && lone_ends_.top().time == now_) Leave(lone_ends_.top().id);
  while (!ends_.empty() && ends_.top().time == now_) {
    const std::uint32_t number = ends_.top().id;
    ends_.Pop();
    Meter& meter = meters_[number];
    meter.Serve(now_);
    while (!meter.empty() && meter.first_end() <= meter.served()) Leave(meter.first());
    MarkStale(number);
  }
}

void Flow::SetCapacity(SimTime now, LinkId link, std::int64_t bandwidth_Bps) {
  Advance(now);
  MeetAll();
  solver_.SetCapacity(link.value, bandwidth_Bps);
}

SimTime Flow::next_time() const {
  // The outcome of this instant is asked for.
  if (solver_.dirty() || !stale_.empty()) const_cast<Flow*>(this)->Settle();
  SimTime next = kNever;
  for (const FinishHeap* heap : {&waiting_, &ends_, &lone_ends_, &leaving_}) {
    if (!heap->empty()) next = std::min(next, heap->top().time);
  }
  if (in_flight_ > 0 && next_change_ < schedule_.changes().size()) {
    next = std::min(next, schedule_.changes()[next_change_].time);
  }
  return next;
}

// All that happens at now_; true if there were completions.
bool Flow::TakeInstant(std::vector<Completion>* done) {
  ApplyChanges();
  TakeEnds();
  while (!waiting_.empty() && waiting_.top().time == now_) {
    const FlightId id = waiting_.top().id;
    waiting_.Pop();
    Enter(id);
  }
  EnterFreed();
  const std::size_t before = done->size();
  while (!leaving_.empty() && leaving_.top().time == now_) {
    const FlightId id = leaving_.top().id;
    leaving_.Pop();
    flights_[id].active = false;
    --in_flight_;
    done->push_back({now_, id});
  }
  return done->size() > before;
}

SimTime Flow::AdvanceUntil(SimTime t, std::vector<Completion>* done) {
  ORRERY_CHECK(t >= now_, "time goes forward");
  for (SimTime next = next_time(); next <= t && next != kNever; next = next_time()) {
    now_ = next;
    if (TakeInstant(done)) return now_;
  }
  now_ = t;
  return t;
}

std::span<const PortStatistics> Flow::statistics() {
  statistics_.resize(use_.size());
  for (std::size_t l = 0; l < use_.size(); ++l) {
    statistics_[l] = {use_[l].bytes, use_[l].busy + (use_[l].classes > 0 ? now_ : 0)};
  }
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].bytes == 0) continue;
    for (const MaxMin::Load& load : solver_.loads(g)) {
      statistics_[load.link].bytes += groups_[g].bytes;
    }
  }
  return statistics_;
}

}  // namespace orrery::network
