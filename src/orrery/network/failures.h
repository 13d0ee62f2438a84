// Links that are down just now, and the paths round them: for back ends and for the engine, which
// maps collectives to links.
//
// A connection leaves its path when one of its links goes down and takes cluster/detour.h's; a new
// one goes by ECMP over what is up. Nobody goes back before it starts anew. Where no path is left
// it waits on its own, if every link that is down there returns; else there is none, and an error
// names the pair. Routes change at the instant of the failure: no time to detect it is modelled.
//
// Cost: nothing in a run without failing links; a change O(links), a path a look-up in a map and a
// search the first time after a change.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "orrery/cluster/detour.h"
#include "orrery/network/link_schedule.h"

namespace orrery::network {

class Failures {
 public:
  Failures() = default;
  explicit Failures(const cluster::Cluster& cluster);

  bool any() const { return !schedule_.empty(); }  // some link goes down during the run
  // The next time at which one goes down or returns.
  SimTime next() const { return next_ < schedule_.size() ? schedule_[next_].time : kNever; }
  // Goes on to `now`; true if other links are down than before.
  bool Advance(SimTime now);
  bool down(LinkId link) const { return down_[link.index()]; }
  bool blocked(std::span<const LinkId> path) const;

  // The connection's path now. Not OK where none is left and none returns.
  Status Route(DeviceId from, DeviceId to, std::uint64_t salt, std::vector<LinkId>* path);
  // The same from a vertex on the way: `path` gets the rest; unchanged where the way is to wait.
  Status RouteFrom(std::uint32_t vertex, std::span<const LinkId> rest, DeviceId from, DeviceId to,
                   std::uint64_t salt, std::vector<LinkId>* path);
  // Whether a message that stands before `rest` at `time`, now or later, has to wait there: no path
  // is left then, and all of the rest that is down returns.
  bool MustWait(SimTime time, std::uint32_t vertex, std::span<const LinkId> rest, DeviceId to,
                std::uint64_t salt);

 private:
  struct Change {
    SimTime time = 0;
    LinkId link;
    bool down = false;
  };
  Status Wait(std::span<const LinkId> path, DeviceId from, DeviceId to) const;

  const cluster::Cluster* cluster_ = nullptr;
  std::vector<Change> schedule_;  // in order of time
  std::size_t next_ = 0;
  SimTime now_ = 0;
  std::vector<bool> down_;     // by link
  std::vector<bool> returns_;  // by link: comes up again after now
  std::vector<bool> then_;     // scratch: down at a later time
  std::vector<LinkId> path_;   // scratch
  cluster::Detours detours_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::vector<LinkId>> found_;
};

}  // namespace orrery::network
