#include "orrery/engine/straight/courses.h"

#include <algorithm>

namespace orrery::engine {

Courses::Courses(const LoopInputs& in, Wiring* wiring, std::unique_ptr<network::Network> network)
    : Chunks(wiring, std::move(network)),
      in_(in),
      least_setup_(wiring->least_setup()),
      traffic_(in.inputs->cluster->links().size()),
      place_(in.layout->ranks.size()) {}

const Course& Courses::Find(std::uint32_t meet, int plan, const Bound& bound,
                            const Secluded::Meet& secluded, std::vector<SimTime> after) {
  Key key{meet, plan, std::move(after)};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  if (known_.size() == kMost) known_.clear();
  Course course = Run(meet, bound, secluded, key.after);
  return known_.emplace(std::move(key), std::move(course)).first->second;
}

void Courses::Use(const Course& course) {
  for (const Course::LinkUse& use : course.traffic) {
    traffic_[use.link].bytes += use.bytes;
    traffic_[use.link].busy += use.busy;
  }
}

void Courses::EndLane(const LaneRef& ref) {
  SimTime& end = ends_[place_[ref.rank]];
  end = std::max(end, now_);
}

Course Courses::Run(std::uint32_t meet, const Bound& bound, const Secluded::Meet& secluded,
                    std::span<const SimTime> after) {
  const auto members = in_.layout->members(meet);
  const auto statistics = [&](std::uint32_t link) { return network_->statistics()[link]; };
  Course course;
  for (const std::uint32_t link : secluded.links) {
    const network::PortStatistics before = statistics(link);
    course.traffic.push_back({link, -before.bytes, -before.busy});
  }
  const SimTime begin = now_ + 1;
  lanes_.assign(members.size(), {});
  ends_.assign(members.size(), begin);
  for (std::uint32_t m = 0; m < members.size(); ++m) {
    place_[members[m]] = m;
    for (int number = 0; number < bound.schedule->lanes(); ++number) {
      const LaneRef ref{members[m], 0, 0, static_cast<std::uint16_t>(lanes_[m].size())};
      lanes_[m].push_back({&bound, m, number, 0, bound.schedule->At(m, number, 0)});
      queue_.Push(
          {begin + after[m] + bound.schedule->setup(), members[m], What::kLanes, ref.key()});
    }
  }
  RunEvents(kNever);
  for (const SimTime end : ends_) course.ends.push_back(end - begin);
  const SimTime first = *std::ranges::min_element(course.ends);
  course.usable = now_ - begin < first + least_setup_;
  for (Course::LinkUse& use : course.traffic) {
    use.bytes += statistics(use.link).bytes;
    use.busy += statistics(use.link).busy;
  }
  return course;
}

}  // namespace orrery::engine
