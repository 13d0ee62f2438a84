// `analytic`: every port is shared equally and fluidly among the fluids in flight on it.
//
// Model. A fluid f alone takes F + T: fixed time F (latency, set-up) and T, its transfer at full
// rate. Port p, of capacity cap_p, has n_p flows: the sum of `copies` over the fluids in flight on
// it. Each flow gets cap_p / n_p, so the port alone would need bytes_fp · n_p / cap_p for f's
// bytes, and
//     D_f = F + max(T, max over p of bytes_fp · n_p / cap_p),          rounded up to a whole ps.
// While that holds, the fraction of f that remains falls by 1/D_f per ps. A fluid that alone would
// not fill a port (bytes_fp / cap_p < T) has headroom there and is not slowed until n_p eats it up.
//
// Assumptions. Ports are held from start to end, the fixed time included. Shares are equal, not
// max-min: what a fluid cannot use on one port because another port slows it is not given to
// others. A port that a fluid lists twice carries two of its flows.
//
// Exactness. D_f is an integer. What is left of f is kept in ps at the current D, with 32
// fractional bits rounded down, and only when D_f changes over a time that is not zero; an end is
// the first whole ps at which nothing is left. All starts and ends of one instant are one change:
// levels are computed once the instant is over (or its outcome is asked for), always from the state
// at the instant's beginning, so their order changes nothing.
//
// Cost. Start and end of a fluid that shares no port: O(loads) and one heap push, one heap pop; no
// division but for its D if a port bounds it; no allocation once the arrays have grown. A change of
// a shared port costs O(loads) for every fluid on it. Memory: 100 bytes a fluid, 32 a load, 48 a
// port. For one thread: next_time() and AppendState() bring internal state up to date though const.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/base/int128.h"
#include "orrery/network/finish_heap.h"
#include "orrery/network/network.h"

namespace orrery::network {

class Analytic final : public Network {
 public:
  std::string_view name() const override { return "analytic"; }
  Status SetupPorts(std::span<const std::int64_t> capacity_Bps) override;
  void Start(SimTime now, std::span<const Fluid> fluids, std::span<const PortLoad> loads) override;
  SimTime next_time() const override;
  SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done) override;
  std::span<const PortStatistics> statistics() override;

  // For a caller whose run repeats: all that decides how what is in flight goes on, times from
  // `base` on, and to take a stretch that ends now `rounds` times more at once. It took `span` and
  // began when statistics() were `before` and the state the same.
  void AppendState(SimTime base, std::vector<std::uint64_t>* out) const;
  void Repeat(std::uint32_t rounds, SimTime span, std::span<const PortStatistics> before);

  // Transfers are refused: BackendInfo::transfers is false.
  Status SetupLinks(const cluster::Cluster& cluster, std::span<const std::uint32_t>,
                    std::uint32_t) override;
  void Start(SimTime now, std::span<const Transfer> transfers) override;
  void TakeRemote(std::vector<RemoteHop>*) override {}
  void Deliver(const RemoteHop& hop) override;
  SimTime lookahead() const override { return kNever; }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  struct Port {
    std::int64_t capacity_Bps = 0;
    std::int64_t bytes = 0;         // of all fluids that have started
    SimTime busy = 0;               // less the time at which flows left 0, while flows > 0
    std::uint32_t flows : 31 = 0;   // sum of copies in flight
    std::uint32_t changed : 1 = 0;  // stands in changed_ports_
    std::uint32_t first = kNone;    // list of the loads on it
  };
  // A load of a fluid in flight, in the list of its port.
  struct Load {
    std::int64_t bytes = 0;
    std::uint32_t port = 0;
    std::uint32_t copies = 0;
    std::uint32_t next = kNone, previous = kNone;
    FlightId fluid = 0;
  };
  struct Flight {
    SimTime fixed = 0, transfer = 0;
    SimTime end = 0;
    SimTime duration = 0;  // D at the current level
    // State at the start or the last change of level that lies before now_: what was left then, in
    // 2^-32 ps at a level of base_duration.
    SimTime base_time = 0;
    SimTime base_duration = 0;
    Uint128 base_left = 0;
    std::uint32_t first_load = kNone, loads = 0;
    bool active = false;
    bool changed = false;  // stands in changed_
  };

  void Open(const Fluid& fluid, std::span<const PortLoad> loads);
  void Close(FlightId id);
  void Touch(std::uint32_t port);
  void Bound(const Load& load, const Port& port, SimTime* longest) const;
  SimTime Level(const Flight& flight) const;
  void Rate(FlightId id);
  void Settle();
  std::uint32_t TakeLoads(std::uint32_t count);
  void GiveLoads(std::uint32_t first, std::uint32_t count);

  std::vector<Port> ports_;
  std::vector<Flight> flights_;  // by FlightId
  std::vector<Load> loads_;
  std::vector<std::vector<std::uint32_t>> free_loads_;  // runs of free loads, by their length
  FinishHeap ends_;
  SimTime now_ = 0;
  std::vector<FlightId> changed_;  // fluids to rate when the instant is over
  std::vector<std::uint32_t> changed_ports_;
  std::vector<PortStatistics> statistics_;
};

}  // namespace orrery::network
