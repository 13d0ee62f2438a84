// Congestion control: how much a queue pair may send, and how fast.
//
// A control sees its flow's acknowledgements, losses and timeouts and sets the flow's window and
// rate. One object serves all flows of a run and keeps their states by number; a call costs O(1).
// Each control is one file in control/, with its parameters, their defaults and its source; the
// list stands in controls.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/network/packet/telemetry.h"
#include "orrery/network/parameters.h"

namespace orrery::network::packet {

struct FlowView {
  std::uint32_t flow = 0;         // numbered from 0 in order of creation
  std::int64_t line_Bps = 0;      // of its NIC
  SimTime base_rtt = 0;           // with empty queues: full packets there, acknowledgements back
  SimTime network_rtt = 0;        // the same of the longest way: between the first and the last GPU
  std::int32_t packet_bytes = 0;  // of a full packet on the wire
  int hops = 0;                   // of switches' and NICs' links, one way
  std::int64_t window = 0;        // bytes at the start, where the run names them; else 0
  const ControlParameters* parameters = nullptr;
  double bdp() const { return ToSeconds(base_rtt) * static_cast<double>(line_Bps); }
  // As Pace has it: 0 where the line's rate is no limit.
  double PacedAt(double rate_Bps) const {
    return rate_Bps < static_cast<double>(line_Bps) ? rate_Bps : 0;
  }
};

// A flow sends while what is in flight and the next packet fit into the window (one packet always
// does), and no faster than the rate.
struct Pace {
  double window = std::numeric_limits<double>::infinity();  // bytes on the wire
  double rate_Bps = 0;                                      // 0: the line's
};

struct Ack {
  SimTime now = 0, rtt = 0;
  std::int64_t bytes = 0;      // acknowledged for the first time, on the wire
  std::int64_t in_flight = 0;  // after it
  bool marked = false;
  std::uint32_t acked = 0, next = 0;  // all packets below have arrived; the next new one
  const Record* telemetry = nullptr;  // where the control asks for it
  std::uint32_t code = kNone;         // PINT's
};

struct Loss {
  SimTime now = 0;
  SimTime rtt = 0;  // of the packet that was trimmed; 0: one was found missing
  std::int64_t bytes = 0;
};

class Control {
 public:
  virtual ~Control() = default;
  virtual void Begin(const FlowView& flow, Pace* pace) = 0;
  virtual void OnAck(const FlowView& flow, const Ack& ack, Pace* pace) = 0;
  // A packet was trimmed or found missing.
  virtual void OnLoss(const FlowView&, const Loss&, Pace*) {}
  virtual void OnTimeout(const FlowView&, SimTime, Pace*) {}
  // Before a packet of so many bytes is sent.
  virtual void OnSend(const FlowView&, SimTime, std::int64_t, Pace*) {}
};

struct Thresholds {  // of ECN, in bytes at the NIC's rate
  double min = 0, max = 0, most = 0;
};

struct ControlInfo {
  std::string_view name;
  std::string_view description;  // one sentence with its source
  std::string_view parameters;   // those that it reads, by their keys in `packet`
  // What the fabric and the hosts do for it unless the run says otherwise.
  bool pfc = false, trimming = false, selective = false;
  bool trims_newest = false;  // half of the time the newest queued packet rather than the arriving
  bool credit = false;        // receivers' pulls let senders send
  // Its receivers say only that a packet came marked, where nothing is lost. While its rate is the
  // line's (0), OnSend changes nothing.
  bool only_marks = false;
  bool telemetry = false;  // every hop leaves a record
  bool codes = false;      // packets carry PINT's code in Packet::note
  bool sprays = false;     // over many ways, unless the run says otherwise
  int ack_every = 1;
  double queue_packets = 0;  // of a data queue; 0: as the buffer allows
  double queue_bdp = 0;
  double window_packets = 0, window_bdp = 0;  // credit: what goes before the first pull
  Thresholds (*ecn)(double nic_Bps, double bdp) = nullptr;  // null: no marks
  std::unique_ptr<Control> (*make)() = nullptr;
};
std::span<const ControlInfo> Controls();
// Whether its `parameters` name the key.
bool ReadsParameter(const ControlInfo& control, std::string_view key);
// An unknown name lists the nearest valid ones.
Result<const ControlInfo*> FindControl(std::string_view name);

}  // namespace orrery::network::packet
