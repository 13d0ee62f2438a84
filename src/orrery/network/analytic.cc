#include "orrery/network/analytic.h"

#include <algorithm>

#include "orrery/base/check.h"
#include "orrery/network/backends.h"

namespace orrery::network {
namespace {

constexpr int kFractionBits = 32;
constexpr std::uint32_t kMaxFlows = 1u << 24;  // flows x 10^12 stays below 2^64
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
    Open(fluid, loads.subspan(fluid.first_load, fluid.loads));
  }
}

// Starts a fluid at the level that its ports have so far: final if nobody else changes them within
// this instant; else Settle rates it again, from its beginning.
void Analytic::Open(const Fluid& fluid, std::span<const PortLoad> loads) {
  ORRERY_CHECK(fluid.fixed >= 0 && fluid.transfer >= 0, "a fluid's times are not negative");
  if (fluid.id >= flights_.size()) flights_.resize(std::size_t{fluid.id} + 1);
  Flight& flight = flights_[fluid.id];
  ORRERY_CHECK(!flight.active, "a flight id is unique among what is in flight");
  flight.first_load = TakeLoads(fluid.loads);
  flight.loads = fluid.loads;
  SimTime longest = fluid.transfer;
  std::uint32_t at = flight.first_load;
  for (const PortLoad& given : loads) {
    ORRERY_CHECK(given.port < ports_.size() && given.bytes >= 0 && given.copies > 0,
                 "a load names a port, bytes >= 0 and copies > 0");
    Port& port = ports_[given.port];
    Load& load = loads_[at];
    load = {given.bytes, given.port, given.copies, port.first, kNone, fluid.id};
    if (port.flows == 0) {
      port.busy -= now_;
    } else {
      Touch(given.port);
      loads_[port.first].previous = at;
    }
    ORRERY_CHECK(given.copies < kMaxFlows - port.flows, "more flows on a port than can be counted");
    port.flows += given.copies;
    port.bytes += given.bytes * given.copies;
    port.first = at++;
    Bound(load, port, &longest);
  }
  ORRERY_CHECK(longest <= kMaxDuration - fluid.fixed, "a duration beyond the end of time");
  flight.fixed = fluid.fixed;
  flight.transfer = fluid.transfer;
  flight.duration = flight.base_duration = fluid.fixed + longest;
  flight.base_left = static_cast<Uint128>(flight.duration) << kFractionBits;
  flight.base_time = now_;
  flight.end = now_ + flight.duration;
  flight.active = true;
  ends_.Set(fluid.id, flight.end);
}

void Analytic::Close(FlightId id) {
  Flight& flight = flights_[id];
  for (std::uint32_t at = flight.first_load; at < flight.first_load + flight.loads; ++at) {
    const Load& load = loads_[at];
    Port& port = ports_[load.port];
    port.flows -= load.copies;
    if (load.next != kNone) loads_[load.next].previous = load.previous;
    if (load.previous != kNone) {
      loads_[load.previous].next = load.next;
    } else {
      port.first = load.next;
    }
    if (port.flows == 0) {
      port.busy += now_;
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
  ports_[port].changed = 1;
  changed_ports_.push_back(port);
}

// Raises `longest` to the time that the port needs for the load's bytes at the port's number of
// flows. A quotient is taken only where the product says that this is longer than what was found so
// far.
inline void Analytic::Bound(const Load& load, const Port& port, SimTime* longest) const {
  const Uint128 need = static_cast<Uint128>(load.bytes) * (port.flows * std::uint64_t{kSecond});
  const auto rate = static_cast<Uint128>(port.capacity_Bps);
  if (need <= rate * static_cast<Uint128>(*longest)) [[likely]]
    return;
  const Uint128 time = (need + rate - 1) / rate;
  ORRERY_CHECK(time <= static_cast<Uint128>(kMaxDuration), "a transfer beyond the end of time");
  *longest = static_cast<SimTime>(time);
}

// D of a flight with the flows that its ports have now.
SimTime Analytic::Level(const Flight& flight) const {
  SimTime longest = flight.transfer;
  for (std::uint32_t at = flight.first_load; at < flight.first_load + flight.loads; ++at) {
    Bound(loads_[at], ports_[loads_[at].port], &longest);
  }
  ORRERY_CHECK(longest <= kMaxDuration - flight.fixed, "a duration beyond the end of time");
  return flight.fixed + longest;
}

// Puts the flight at its level of now.
void Analytic::Rate(FlightId id) {
  Flight& flight = flights_[id];
  flight.changed = false;
  const SimTime level = Level(flight);
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

// Ends the instant now_: rates the fluids on ports whose number of flows changed.
void Analytic::Settle() {
  for (const std::uint32_t p : changed_ports_) {
    ports_[p].changed = 0;
    for (std::uint32_t at = ports_[p].first; at != kNone; at = loads_[at].next) {
      Flight& flight = flights_[loads_[at].fluid];
      if (flight.changed) continue;
      flight.changed = true;
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
  if (!changed_ports_.empty()) const_cast<Analytic*>(this)->Settle();
  return ends_.empty() ? kNever : ends_.top().time;
}

SimTime Analytic::AdvanceUntil(SimTime t, std::vector<Completion>* done) {
  ORRERY_CHECK(t >= now_, "time goes forward");
  if (!changed_ports_.empty()) Settle();
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

std::span<const PortStatistics> Analytic::statistics() {
  statistics_.resize(ports_.size());
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    const Port& port = ports_[p];
    statistics_[p] = {port.bytes, port.busy + (port.flows > 0 ? now_ : 0)};
  }
  return statistics_;
}

void Analytic::AppendState(SimTime base, std::vector<std::uint64_t>* out) const {
  const auto add = [out](auto value) { out->push_back(static_cast<std::uint64_t>(value)); };
  if (!changed_ports_.empty()) const_cast<Analytic*>(this)->Settle();
  add(now_ - base);
  for (std::size_t id = 0; id < flights_.size(); ++id) {
    const Flight& flight = flights_[id];
    if (!flight.active) continue;
    add(id);
    for (const SimTime time : {flight.end, flight.base_time}) add(time - base);
    for (const SimTime span :
         {flight.fixed, flight.transfer, flight.duration, flight.base_duration}) {
      add(span);
    }
    add(flight.base_left >> 64);
    add(flight.base_left);
    for (std::uint32_t at = flight.first_load; at < flight.first_load + flight.loads; ++at) {
      add(loads_[at].bytes);
      add(std::uint64_t{loads_[at].port} << 32 | loads_[at].copies);
    }
  }
}

void Analytic::Repeat(std::uint32_t rounds, SimTime span, std::span<const PortStatistics> before) {
  const std::vector<PortStatistics> after(statistics().begin(), statistics().end());
  const SimTime by = static_cast<SimTime>(rounds) * span;
  now_ += by;
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    ports_[p].bytes += rounds * (after[p].bytes - before[p].bytes);
    ports_[p].busy = after[p].busy + rounds * (after[p].busy - before[p].busy) -
                     (ports_[p].flows > 0 ? now_ : 0);
  }
  for (Flight& flight : flights_) {
    if (!flight.active) continue;
    flight.end += by;
    flight.base_time += by;
  }
  ends_.Shift(by);
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
