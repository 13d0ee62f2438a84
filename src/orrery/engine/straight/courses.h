// The course of a secluded group's collective, found once for each way in which its members come.
//
// While a secluded group (secluded.h) stands still in a collective and nothing is under way on its
// links, what happens depends on the plan and on how much later than the first each member comes:
// nothing else. Tensor parallelism asks for the same few courses thousands of times a step. A
// course is found by running the chunks on links of their own, by the same rules (chunks.h), and
// is then used for every collective that comes the same way: the same ends to the picosecond, the
// same bytes on the same links, without their events.
//
// A course may be used if all is quiet again, the last credit at home, before anybody can begin the
// next collective there: before the first member's end and the least set-up of all.
//
// Cost: a course is found at the price of its chunks; used in O(members). Memory: 24 bytes a link
// and 16 a member of each course kept, of which there are at most kMost.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "orrery/engine/straight/chunks.h"
#include "orrery/engine/straight/secluded.h"

namespace orrery::engine {

struct Course {
  struct LinkUse {
    std::uint32_t link = 0;
    std::int64_t bytes = 0;
    SimTime busy = 0;
  };
  bool usable = false;
  std::vector<SimTime> ends;  // by member, from the first arrival on
  std::vector<LinkUse> traffic;
};

class Courses : public Chunks<Courses> {
 public:
  // `network` is a `links` of their own.
  Courses(const LoopInputs& in, Wiring* wiring, std::unique_ptr<network::Network> network);

  // `after`: by member, how much later than the first it comes. REQUIRES: the group's wires have
  // all their credits and nothing is under way on them; they are left like that. The course stands
  // until the next call.
  const Course& Find(std::uint32_t meet, int plan, const Bound& bound,
                     const Secluded::Meet& secluded, std::vector<SimTime> after);
  // The course was taken by a collective: what it carried counts.
  void Use(const Course& course);
  std::span<const network::PortStatistics> traffic() const { return traffic_; }

 private:
  friend class Chunks<Courses>;
  struct Key {
    std::uint32_t meet = 0;
    int plan = 0;
    std::vector<SimTime> after;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  void Take(const Event& e) { TakeChunk(e); }
  Lane& lane(const LaneRef& ref) { return lanes_[place_[ref.rank]][ref.lane]; }
  void EndLane(const LaneRef& ref);
  void GiveBack(const Credit& credit) { AcceptCredit(credit); }
  Course Run(std::uint32_t meet, const Bound& bound, const Secluded::Meet& secluded,
             std::span<const SimTime> after);

  static constexpr std::size_t kMost = 65536;
  const LoopInputs& in_;
  const SimTime least_setup_;
  std::map<Key, Course> known_;
  std::vector<network::PortStatistics> traffic_;  // by link, of courses used
  // Of the run under way, by member; place_ is by rank.
  std::vector<std::uint32_t> place_;
  std::vector<std::vector<Lane>> lanes_;
  std::vector<SimTime> ends_;
};

}  // namespace orrery::engine
