// Requests that a graph serves, where its source has some: operations that end when somebody has an
// answer. A run's sink turns them into completion times (results/requests.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/time.h"

namespace orrery::graph {

struct Request {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  // When it is made: a time, or so long after request `after` was answered.
  SimTime begin = 0;
  std::uint32_t after = kNone;  // an earlier one
  // What is over once it is answered: an operation of known time in the only block of its rank.
  std::uint32_t rank = 0, op = 0;
  std::int64_t bytes = 0;
  std::uint32_t kind = 0;  // of Requests::kinds
};

struct Requests {
  struct Hosts {
    std::string name;  // "store"
    std::vector<std::uint32_t> ranks;
  };
  std::vector<std::string> kinds;  // "read"
  std::uint32_t served = 0;        // kinds from here on only prepare for the others: "mount"
  std::vector<Request> all;
  std::vector<Hosts> hosts;  // every rank is in one
};

}  // namespace orrery::graph
