#include "orrery/network/packet/statistics.h"

#include <algorithm>

namespace orrery::network {

void PacketTotals::Add(const PacketTotals& other) {
  hops += other.hops;
  control_hops += other.control_hops;
  batches += other.batches;
  turns += other.turns;
  windows += other.windows;
  data_packets += other.data_packets;
  retransmissions += other.retransmissions;
  timeouts += other.timeouts;
  largest_buffer = std::max(largest_buffer, other.largest_buffer);
}

void QueueLog::Note(std::size_t link, SimTime time, std::int64_t before, std::int64_t after) {
  while (time / width_ >= static_cast<SimTime>(steps_)) {
    width_ *= 2;
    for (std::vector<std::int64_t>& steps : by_link_) {
      for (std::size_t i = 0; 2 * i < steps.size(); ++i) {
        steps[i] = std::max(steps[2 * i], 2 * i + 1 < steps.size() ? steps[2 * i + 1] : 0);
      }
      steps.resize((steps.size() + 1) / 2);
    }
  }
  std::vector<std::int64_t>& steps = by_link_[link];
  const auto step = static_cast<std::size_t>(time / width_);
  if (steps.size() <= step) steps.resize(step + 1, before);
  steps[step] = std::max({steps[step], before, after});
}

}  // namespace orrery::network
