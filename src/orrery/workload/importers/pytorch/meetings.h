// Which communications of which ranks are one: process groups by their members, clocks made equal,
// and what each communication took once its last member had come.
//
// Groups are one if name and members agree. A group whose members a profile does not list (long
// lists are cut) has them from another rank's profile, from the world's size, or is the ranks that
// name it. Within a group the k-th of one rank meets the k-th of the others.
//
// Ranks on one host share a clock. Of others the offset is the median difference between the ends
// of communications that they share: all members of one end nearly at once.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/workload/importers/pytorch/communications.h"

namespace orrery::workload {

struct MetRank {
  const PyTorchRank* files = nullptr;
  std::uint32_t number = 0;
  Window window;
  Communications comms;
};

struct MetGroup {
  std::string name, description;
  std::vector<std::uint32_t> members;  // ranks, in the group's order
};

struct Meetings {
  std::vector<MetGroup> groups;
  // By rank (its place in the list given), of each of its communications.
  std::vector<std::vector<std::uint32_t>> group;
  std::vector<std::vector<std::int64_t>> measured_ns;
  std::vector<std::int64_t> clock_ns;  // what is added to a rank's clock
  std::set<std::string> assumed, missing;
};

// REQUIRES: ranks are in the order of their numbers, 0 to the last without a gap.
Result<Meetings> Meet(std::span<const MetRank> ranks);

}  // namespace orrery::workload
