// What collectives load on the links of hosts' PCIe trees, as ports that closed forms share.
//
// Where a cluster has such trees (cluster/pcie.h) groups of one host meet on its switches, and
// peers' traffic meets that of NICs. The closed form of a plan knows the group's own way; what
// others do to it is known from here: the edges of the plan's channels
// (collective/lowering/flow_grain.h) are mapped to links by Cluster::Route, and each PCIe link is a
// port of its rate.
//
// Cost: O(channels · edges · hops) once for each (meet, plan), O(links it uses) a start.
#pragma once

#include <unordered_map>
#include <vector>

#include "orrery/engine/loop.h"

namespace orrery::engine {

class HostPorts {
 public:
  // REQUIRES: in.layout->first_pcie_port is set; unfolded.
  explicit HostPorts(const LoopInputs& in) : in_(in) {}

  void AddLoads(std::uint32_t meet, int plan, std::vector<network::PortLoad>* loads);

 private:
  struct Range {
    std::uint32_t first = 0, count = 0;  // into loads_
  };
  Range Bind(std::uint32_t meet, int plan);

  const LoopInputs& in_;
  std::unordered_map<std::uint64_t, Range> bound_;  // by meet and plan
  std::vector<network::PortLoad> loads_;
  std::vector<LinkId> route_;                           // scratch
  std::vector<std::pair<LinkId, std::int64_t>> bytes_;  // scratch
};

}  // namespace orrery::engine
