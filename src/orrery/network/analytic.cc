#include "orrery/network/analytic.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/network/backends.h"

namespace orrery::network {
namespace {

constexpr int kFractionBits = 32;
constexpr std::uint64_t kFractionMask = (std::uint64_t{1} << kFractionBits) - 1;

// floor(left · to / from) for `left` in 2^-32 ps, exact: whole and fractional part apart keep every
// product below 2^127. REQUIRES: 0 < from, 0 <= to, both at most kMaxDuration, left <= from.
Uint128 Rescale(Uint128 left, SimTime from, SimTime to) {
  const auto divisor = static_cast<Uint128>(from);
  const Uint128 whole = (left >> kFractionBits) * static_cast<Uint128>(to);
  const Uint128 fraction = (left & kFractionMask) * static_cast<Uint128>(to);
  const Uint128 quotient = whole / divisor, rest = whole % divisor;
  return (quotient << kFractionBits) + ((rest << kFractionBits) + fraction) / divisor;
}

SimTime CeilToPs(Uint128 left) {
  return static_cast<SimTime>((left + kFractionMask) >> kFractionBits);
}

}  // namespace

std::unique_ptr<Network> MakeAnalytic() { return std::make_unique<Analytic>(); }

Status Analytic::SetupPorts(std::span<const std::int64_t> capacity_Bps) {
  *this = Analytic();
  ports_.resize(capacity_Bps.size());
  for (std::size_t p = 0; p < capacity_Bps.size(); ++p) {
    if (capacity_Bps[p] <= 0) {
      return InvalidInput("port {}: a capacity of {} B/s; it must be above 0", p, capacity_Bps[p]);
    }
    ports_[p].capacity_Bps = capacity_Bps[p];
  }
  return {};
}

Status Analytic::SetupLinks(const cluster::Cluster&, std::span<const std::uint32_t>,
                            std::uint32_t) {
  return InvalidInput(
      "network 'analytic' serves closed-form collectives only; choose 'links' for transfers");
}

void Analytic::Start(SimTime, std::span<const Transfer> transfers) {
  ORRERY_CHECK(transfers.empty(), "network 'analytic' serves no transfers");
}

void Analytic::Deliver(const RemoteHop&) {
  ORRERY_CHECK(false, "network 'analytic' has one partition");
}

void Analytic::Start(SimTime now, std::span<const Fluid> fluids, std::span<const PortLoad> loads) {
  ORRERY_CHECK(now >= now_, "a start in the past");
  if (now > now_) {
    Settle();
    ORRERY_CHECK(ends_.empty() || ends_.top().time >= now, "a start after an end not yet taken");
    now_ = now;
  }
  for (const Fluid& fluid : fluids) {
    ORRERY_CHECK(fluid.first_load + std::size_t{fluid.loads} <= loads.size(),
                 "a fluid's loads lie in the batch's array");
    Flight& flight = Open(now, fluid);
    flight.loads = fluid.loads;
    flight.first_load = TakeLoads(fluid.loads);
    AddLoads(fluid.id, loads.subspan(fluid.first_load, fluid.loads));
  }
}

Analytic::Flight& Analytic::Open(SimTime now, const Fluid& fluid) {
  ORRERY_CHECK(fluid.fixed >= 0 && fluid.transfer >= 0, "a fluid's times are not negative");
  if (fluid.id >= flights_.size()) flights_.resize(std::size_t{fluid.id} + 1);
  Flight& flight = flights_[fluid.id];
  ORRERY_CHECK(!flight.active, "a flight id is unique among what is in flight");
  flight.fixed = fluid.fixed;
  flight.transfer = fluid.transfer;
  flight.base_time = now;
  flight.active = true;
  flight.mark = Mark::kNew;
  changed_.push_back(fluid.id);
  return flight;
}

void Analytic::AddLoads(FlightId id, std::span<const PortLoad> loads) {
  std::uint32_t at = flights_[id].first_load;
  for (const PortLoad& given : loads) {
    ORRERY_CHECK(given.port < ports_.size() && given.bytes >= 0 && given.copies > 0,
                 "a load names a port, bytes >= 0 and copies > 0");
    Port& port = ports_[given.port];
    if (port.flows == 0) {
      port.busy_since = now_;
    } else {
      Touch(given.port);
    }
    port.flows += given.copies;
    loads_[at] = {given.bytes, given.port, given.copies, port.first, kNone, id};
    if (port.first != kNone) loads_[port.first].previous = at;
    port.first = at++;
  }
}

void Analytic::Close(FlightId id) {
  Flight& flight = flights_[id];
  for (std::uint32_t at = flight.first_load; at < flight.first_load + flight.loads; ++at) {
    const Load& load = loads_[at];
    Port& port = ports_[load.port];
    port.bytes += load.bytes * load.copies;
    port.flows -= load.copies;
    if (load.next != kNone) loads_[load.next].previous = load.previous;
    if (load.previous != kNone) {
      loads_[load.previous].next = load.next;
    } else {
      port.first = load.next;
    }
    if (port.flows == 0) {
      port.busy += now_ - port.busy_since;
    } else {
      Touch(load.port);
    }
  }
  GiveLoads(flight.first_load, flight.loads);
  flight.active = false;
}

// The port's number of flows changed while others are on it.
void Analytic::Touch(std::uint32_t port) {
  if (ports_[port].changed) return;
  ports_[port].changed = true;
  changed_ports_.push_back(port);
}

// D of a flight with the flows that its ports have now. A quotient is taken only where the product
// says that the port takes longer than what was found so far.
SimTime Analytic::Level(const Flight& flight) const {
  SimTime longest = flight.transfer;
  for (std::uint32_t at = flight.first_load; at < flight.first_load + flight.loads; ++at) {
    const Load& load = loads_[at];
    const Port& port = ports_[load.port];
    const auto bytes = static_cast<Uint128>(load.bytes) * port.flows;
    const Uint128 need = bytes * static_cast<Uint128>(kSecond);
    const auto rate = static_cast<Uint128>(port.capacity_Bps);
    if (need > rate * static_cast<Uint128>(longest)) {
      const Uint128 time = (need + rate - 1) / rate;
      ORRERY_CHECK(time <= static_cast<Uint128>(kMaxDuration), "a transfer beyond the end of time");
      longest = static_cast<SimTime>(time);
    }
  }
  ORRERY_CHECK(longest <= kMaxDuration - flight.fixed, "a duration beyond the end of time");
  return flight.fixed + longest;
}

// Puts the flight at its level of now; what is left was settled at `base_time` or is taken from the
// old level if time has passed since.
void Analytic::Rate(FlightId id) {
  Flight& flight = flights_[id];
  const Mark mark = flight.mark;
  flight.mark = Mark::kSettled;
  if (!flight.active) return;
  const SimTime level = Level(flight);
  if (mark == Mark::kNew) {
    flight.duration = flight.base_duration = level;
    flight.base_left = static_cast<Uint128>(level) << kFractionBits;
    flight.end = now_ + level;
    ends_.Set(id, flight.end);
    return;
  }
  if (level == flight.duration) return;
  if (now_ > flight.base_time) {
    // What is left at the old level, exactly as its end was computed, less the time that passed.
    const Uint128 left = Rescale(flight.base_left, flight.base_duration, flight.duration);
    const Uint128 passed = static_cast<Uint128>(now_ - flight.base_time) << kFractionBits;
    flight.base_left = left > passed ? left - passed : 0;
    flight.base_duration = flight.duration;
    flight.base_time = now_;
  }
  flight.duration = level;
  flight.end = now_ + CeilToPs(Rescale(flight.base_left, flight.base_duration, level));
  ends_.Set(id, flight.end);
}

// Ends the instant now_: rates what started and what lies on ports whose number of flows changed.
void Analytic::Settle() {
  for (const std::uint32_t p : changed_ports_) {
    ports_[p].changed = false;
    for (std::uint32_t at = ports_[p].first; at != kNone; at = loads_[at].next) {
      Flight& flight = flights_[loads_[at].fluid];
      if (flight.mark != Mark::kSettled) continue;
      flight.mark = Mark::kChanged;
      changed_.push_back(loads_[at].fluid);
    }
  }
  changed_ports_.clear();
  for (const FlightId id : changed_) Rate(id);
  changed_.clear();
}

SimTime Analytic::next_time() const {
  // The outcome of this instant is asked for: levels are computed now, from the instant's
  // beginning.
  if (!changed_.empty() || !changed_ports_.empty()) const_cast<Analytic*>(this)->Settle();
  return ends_.empty() ? kNever : ends_.top().time;
}

SimTime Analytic::AdvanceUntil(SimTime t, std::vector<Completion>* done) {
  ORRERY_CHECK(t >= now_, "time goes forward");
  if (!changed_.empty() || !changed_ports_.empty()) Settle();
  if (ends_.empty() || ends_.top().time > t) {
    now_ = t;
    return t;
  }
  now_ = ends_.top().time;
  do {
    const FlightId id = ends_.top().id;
    ends_.Pop();
    Close(id);
    done->push_back({now_, id});
  } while (!ends_.empty() && ends_.top().time == now_);
  return now_;
}

std::span<const PortStatistics> Analytic::statistics() const {
  statistics_.resize(ports_.size());
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    const Port& port = ports_[p];
    const SimTime open = port.flows > 0 ? now_ - port.busy_since : 0;
    statistics_[p] = {port.bytes, port.busy + open};
  }
  return statistics_;
}

std::uint32_t Analytic::TakeLoads(std::uint32_t count) {
  if (count < free_loads_.size() && !free_loads_[count].empty()) {
    const std::uint32_t first = free_loads_[count].back();
    free_loads_[count].pop_back();
    return first;
  }
  const std::size_t first = loads_.size();
  loads_.resize(first + count);
  return static_cast<std::uint32_t>(first);
}

void Analytic::GiveLoads(std::uint32_t first, std::uint32_t count) {
  if (count >= free_loads_.size()) free_loads_.resize(std::size_t{count} + 1);
  free_loads_[count].push_back(first);
}

}  // namespace orrery::network
