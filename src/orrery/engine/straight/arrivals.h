// When the members of a lowered collective came, of which each begins by itself.
//
// The breakdown counts as waiting (of a message: as bubble) the time from a rank's arrival until
// the last of those has come without whom it cannot end (collective::WaitsFor), and the rest as
// communication: what the fluid back ends count, whose collectives begin with the last arrival.
//
// An arrival that a rank could not end without lies before its end by at least one message between
// them. So a partition knows it by then: its own at once, those of others with the window before.
// What comes later is not asked for, and answers do not depend on partitions.
//
// Cost: O(1) an arrival or an end. Memory: 32 bytes a meet, 4 a member, 24 a collective that some
// have begun and not all ended; members are apart by no more than what the credits of their
// connections let them run ahead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orrery/collective/lowering/lowering.h"
#include "orrery/engine/straight/layout.h"

namespace orrery::engine {

// To partitions that have other members.
struct Arrived {
  SimTime time = 0;
  std::uint32_t meet = 0, number = 0;  // of the meet's communications
  bool first = false;                  // of the first member
};

class Arrivals {
 public:
  Arrivals(const Layout& layout, std::span<const std::uint32_t> partition_of, std::uint32_t self)
      : layout_(layout), meets_(layout.meets.size()), came_(layout.participants.size(), 0) {
    for (std::uint32_t id = 0; id < meets_.size(); ++id) {
      for (const std::uint32_t m : layout.members(id)) {
        if (partition_of[m] == self) ++meets_[id].mine;
      }
    }
  }

  // A member of this partition comes for its next communication of the meet.
  Arrived Come(std::uint32_t meet, std::uint32_t member, SimTime time) {
    const Arrived a{time, meet, came_[layout_.meets[meet].first + member]++, member == 0};
    Hear(a);
    return a;
  }
  void Hear(const Arrived& a) {
    Meet& meet = meets_[a.meet];
    if (a.number < meet.base) return;  // all of this partition have ended it
    const std::size_t at = a.number - meet.base;
    if (at >= meet.open.size()) meet.open.resize(at + 1, {0, 0, meet.mine});
    SimTime& latest = a.first ? meet.open[at].first : meet.open[at].others;
    latest = std::max(latest, a.time);
  }
  // A member ends what it came for last. When the last of its partners came; 0: it has none.
  SimTime End(std::uint32_t id, std::uint32_t member, collective::WaitsFor partners) {
    Meet& meet = meets_[id];
    Open& open = meet.open[came_[layout_.meets[id].first + member] - 1 - meet.base];
    SimTime latest = 0;
    if (partners != collective::WaitsFor::kNobody) latest = open.first;
    if (partners == collective::WaitsFor::kAll) latest = std::max(latest, open.others);
    --open.left;
    std::size_t over = 0;
    while (over < meet.open.size() && meet.open[over].left == 0) ++over;
    meet.open.erase(meet.open.begin(), meet.open.begin() + static_cast<std::ptrdiff_t>(over));
    meet.base += static_cast<std::uint32_t>(over);
    return latest;
  }

 private:
  struct Open {
    SimTime first = 0, others = 0;  // latest arrivals: of the first member, of the others
    std::uint32_t left = 0;         // members of this partition that have not ended
  };
  struct Meet {
    std::vector<Open> open;  // from number `base` on
    std::uint32_t base = 0, mine = 0;
  };

  const Layout& layout_;
  std::vector<Meet> meets_;
  std::vector<std::uint32_t> came_;  // by participant: how often
};

}  // namespace orrery::engine
