// What a run of packets counts, beside the bytes of each link.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orrery/base/time.h"

namespace orrery::network {

// Of a link: at its sending end, but `pauses` and `paused`, which the other end asked for.
struct alignas(64) PacketPort {
  std::int64_t longest_queue = 0;  // bytes of data
  SimTime longest_at = 0;
  std::uint64_t marks = 0, drops = 0, trims = 0, pauses = 0;
  SimTime paused = 0;
  SimTime paused_since = -1;
};

struct PacketTotals {
  std::uint64_t hops = 0;                // packets served by ports
  std::uint64_t control_hops = 0;        // of them, acknowledgements and other control messages
  std::uint64_t batches = 0, turns = 0;  // of switches, of hosts
  std::uint64_t windows = 0;             // of time that threads shared
  std::uint64_t data_packets = 0, retransmissions = 0, timeouts = 0;
  std::int64_t largest_buffer = 0;  // bytes that one switch held at most
  void Add(const PacketTotals& other);
};
// `batches`, `turns` and `windows` say how the run was worked through, and depend on its threads.
struct PacketCounts : PacketTotals {
  std::vector<PacketPort> ports;  // by link
};

// The longest data queue of each link in steps of equal width, which doubles as the run goes on
// (as UseLog's does).
class QueueLog {
 public:
  QueueLog() = default;
  QueueLog(std::size_t links, std::size_t steps) : steps_(steps), by_link_(links) {}
  bool on() const { return steps_ > 0; }
  SimTime width() const { return width_; }
  // The queue had `before` bytes since it was noted last, and has `after` from now on.
  void Note(std::size_t link, SimTime time, std::int64_t before, std::int64_t after);
  // From time 0 on; empty where the link never had a queue.
  std::span<const std::int64_t> of(std::size_t link) const { return by_link_[link]; }
  std::size_t links() const { return by_link_.size(); }

 private:
  static constexpr SimTime kFirstWidth = SimTime{1} << 18;
  std::size_t steps_ = 0;
  SimTime width_ = kFirstWidth;
  std::vector<std::vector<std::int64_t>> by_link_;
};

}  // namespace orrery::network
