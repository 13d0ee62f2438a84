// A service's requests in compact form: many requests of few shapes. What a graph writes out
// operation by operation (ten or twenty of them a request) stands here once a shape; a request
// names its shape and its hosts.
//
// Meaning. A shape's nodes are operations of one request. Each belongs to one of the request's
// hosts and begins when all that it depends on, on the same host, is over; `begins` of them also
// wait for the request's time (Request::begin, Request::after) and for `mount`. The last node, on
// the first host, is over when the request is answered. Hosts serve as graph::Hold has it: work
// holds processor 0, a message processor 1. A host's operations stand in its program in the order
// of the requests, then of the nodes; before those of a request stands the delay up to its time,
// where it has one of its own (see DelayBefore). Messages meet by request, so that none takes
// another's receive.
//
// The graph that says the same: workload::WriteOut. The machine that runs it: engine/services.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/time.h"
#include "orrery/graph/requests.h"

namespace orrery::graph {

struct Shape {
  enum class Step : std::uint8_t { kSend, kReceive, kWork, kDone };
  struct Node {
    Step step = Step::kDone;
    bool begins = false;
    std::uint32_t host = 0;            // place among the request's hosts
    std::uint32_t other = 0;           // of a message: the node at its other end
    std::uint32_t part = 0;            // of a message: counts its tag from the request's first
    std::int64_t amount = 0;           // bytes, or ps
    std::vector<std::uint32_t> after;  // earlier nodes of its host
  };
  std::vector<Node> nodes;
  std::uint32_t hosts = 0;
};

struct Services {
  struct One {
    std::uint32_t shape = 0;
    std::uint32_t first_host = 0;  // in `hosts`; the first is who asks
    std::int32_t first_tag = 0;
    std::uint32_t mount = Request::kNone;  // an earlier request that it waits for, too
  };
  std::vector<Shape> shapes;
  std::vector<One> all;              // by Requests::all
  std::vector<std::uint32_t> hosts;  // ranks
  std::uint32_t ranks = 0;
  std::uint64_t operations = 0;
};

// How long the operation takes that lets a request's time pass, 0 where it has none. `at`: the time
// up to which the host's delays have come, 0 at first; moved on. A request behind another waits
// from its end.
inline SimTime DelayBefore(const Request& request, SimTime* at) {
  if (request.after != Request::kNone) return request.begin;
  const SimTime wait = request.begin - *at;
  if (wait <= 0) return 0;
  *at = request.begin;
  return wait;
}

}  // namespace orrery::graph
