// How communications of the general machine proceed on a network: one implementation a kind of
// back end, and a row in MakeTransport.
//
//   fluid       one fluid over the members' ports, from the last arrival on (analytic)
//   link fluid  a fluid a channel over the cluster's links, from the last arrival on (flow)
//   chunks      steps of the lowered schedule, a member from its own arrival on (links,
//               flow-chunks, loggops, packet)
//
// A raw message (Node::raw) is one transfer of the network itself: on ports or links it takes what
// network::Uncontended says of its path, shared with what else is there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "orrery/collective/lowering/lowering.h"
#include "orrery/engine/loop.h"
#include "orrery/engine/prices.h"

namespace orrery::engine::general {

struct Participant {
  std::uint32_t rank = 0, node = 0;
  SimTime posted = 0;
  bool came = false;
  bool began = false;  // and so have those whom it waits for
};

// A communication from its first arrival to its end.
struct Meeting {
  CommPrice price;
  std::uint32_t group = kNobody;  // GroupId of a collective; kNobody: a message
  bool raw = false;
  SimTime measured = -1;  // what it took where that was measured: then no transport sees it
  std::int64_t bytes = 0;
  std::uint32_t arrived = 0, ended = 0;
  SimTime start = 0;                 // of its transmission
  std::vector<Participant> members;  // a message: sender, receiver
};

class Transport {
 public:
  struct Ended {
    std::uint32_t meeting = 0;
    std::uint32_t member = kNobody;  // kNobody: all of them
  };
  virtual ~Transport() = default;

  // A member of a meeting arrives; `last`: all are there now. True if the member's part begins with
  // it rather than with the last arrival.
  virtual bool Join(SimTime now, std::uint32_t id, const Meeting& meeting, std::uint32_t member,
                    bool last) = 0;
  // Whom a member whose part began with it cannot end without.
  virtual collective::WaitsFor PartnersOf(std::uint32_t /*id*/, std::uint32_t /*member*/) const {
    return collective::WaitsFor::kAll;
  }
  virtual SimTime next_time() = 0;
  // Advances to the first time <= t at which something ends, and returns it; or to t.
  virtual SimTime AdvanceUntil(SimTime t, std::vector<Ended>* ended) = 0;
  virtual Status status() const { return {}; }
  virtual std::uint64_t events() const = 0;
  virtual int threads() const { return 1; }
  // By port or by link, as the back end sees them.
  virtual std::vector<network::PortStatistics> statistics() const = 0;
  virtual network::UseLog* use_log() { return nullptr; }
  virtual const network::PacketCounts* packet_counts() { return nullptr; }
};

struct TransportInputs {
  const Inputs* inputs = nullptr;
  const Options* options = nullptr;
  PriceCache* prices = nullptr;
  const Layout* layout = nullptr;  // ports, and nothing else of it
};

Result<std::unique_ptr<Transport>> MakeTransport(const TransportInputs& in,
                                                 const network::BackendInfo& backend);

// Internal to MakeTransport.
Result<std::unique_ptr<Transport>> MakeFluidTransport(const TransportInputs& in);
Result<std::unique_ptr<Transport>> MakeLinkFluidTransport(const TransportInputs& in);
Result<std::unique_ptr<Transport>> MakeChunkTransport(const TransportInputs& in);

}  // namespace orrery::engine::general
