// In-band telemetry that congestion controls read: what each hop saw when a packet's service began.
//
// Records lie in a slab and are named by Packet::note; the acknowledgement carries the note back,
// and whoever reads it frees it. A packet that is lost frees its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "orrery/base/time.h"
#include "orrery/network/packet/packet.h"

namespace orrery::network::packet {

struct HopTelemetry {
  SimTime time = 0;
  std::int64_t sent = 0;   // bytes by the port, before this packet
  std::int64_t queue = 0;  // bytes left behind
  std::int64_t bandwidth_Bps = 0;
};

struct Record {
  static constexpr int kHops = 16;  // of a longer path the last ones are not recorded
  int hops = 0;
  std::array<HopTelemetry, kHops> hop;
};

class Telemetry {
 public:
  std::uint32_t New() {
    if (free_.empty()) {
      records_.emplace_back();
      return static_cast<std::uint32_t>(records_.size() - 1);
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    records_[number].hops = 0;
    return number;
  }
  // The next record moves all others.
  bool full() const { return free_.empty() && records_.size() == records_.capacity(); }
  Record& operator[](std::uint32_t number) { return records_[number]; }
  void Free(std::uint32_t number) { free_.push_back(number); }

 private:
  std::vector<Record> records_;
  std::vector<std::uint32_t> free_;
};

}  // namespace orrery::network::packet
