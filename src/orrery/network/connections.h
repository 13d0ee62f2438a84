// The order of messages on their connections: the next one competes for links when the one before
// it has no byte left to send.
//
// Messages of a queue pair or of a TCP connection are a stream of bytes: the second does not begin
// before the first has left, and does not arrive before it. Messages of different connections know
// nothing of each other.
//
// Cost: a look-up by hash and O(1) a message. Memory: 12 bytes a flight, some 60 a connection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "orrery/base/time.h"
#include "orrery/network/network.h"

namespace orrery::network {

class Connections {
 public:
  // The flight comes after all of its connection that were added before. REQUIRES: connection != 0.
  void Add(std::uint64_t connection, FlightId id) {
    const auto [it, fresh] =
        numbers_.try_emplace(connection, static_cast<std::uint32_t>(lines_.size()));
    if (fresh) lines_.emplace_back();
    if (id >= places_.size()) places_.resize(std::size_t{id} + 1);
    Line& line = lines_[it->second];
    places_[id] = {.line = it->second};
    if (line.first == kNone) {
      line.first = id;
    } else {
      places_[line.last].next = id;
    }
    line.last = id;
  }

  // Whether the flight may compete. If not, it is handed out by TakeFreed when it may.
  bool MayEnter(FlightId id) {
    if (!ordered(id) || lines_[places_[id].line].first == id) return true;
    places_[id].held = true;
    return false;
  }
  bool held(FlightId id) const { return id < places_.size() && places_[id].held; }

  // The flight has sent its last byte and would arrive at `time`. When it does: after what its
  // connection sent before it.
  SimTime Leave(FlightId id, SimTime time) {
    if (!ordered(id)) return time;
    Place& place = places_[id];
    Line& line = lines_[place.line];
    line.arrival = std::max(time, line.arrival + 1);
    line.first = place.next;
    if (place.next != kNone && places_[place.next].held) freed_.push_back(place.next);
    place = Place();
    return line.arrival;
  }

  // Flights that were held and may compete now.
  bool TakeFreed(FlightId* id) {
    if (freed_.empty()) return false;
    *id = freed_.back();
    freed_.pop_back();
    places_[*id].held = false;
    return true;
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  struct Place {
    std::uint32_t line = kNone;
    FlightId next = kNone;  // of its connection
    bool held = false;
  };
  struct Line {
    FlightId first = kNone, last = kNone;
    SimTime arrival = -1;  // of the last that left
  };
  bool ordered(FlightId id) const { return id < places_.size() && places_[id].line != kNone; }

  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // by connection
  std::vector<Line> lines_;
  std::vector<Place> places_;  // by flight
  std::vector<FlightId> freed_;
};

}  // namespace orrery::network
