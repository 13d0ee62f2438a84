// ASTRA-sim's system layer, to the nanosecond and to the order of its events.
//
// A rank issues its trace's nodes by id as dependencies and units allow. A collective is cut into
// chunks; each visits the network's dimensions in phases; a dimension's queue lets
// active-chunks-per-dimension of them run, first those of highest priority. A running phase is an
// algorithm over a logical ring: it sends a message, receives one, hands it over to memory (10 ns
// or endpoint-delay, and three passes over local memory where it reduces), and sends the next.
//
// Where two things happen at one instant ASTRA-sim goes by the order in which they were scheduled,
// in one line for the whole system and one for each rank; so does this.
//
// Folding: where all ranks run one program of collectives over all ranks, by rings, direct
// exchanges or halving-doubling, on the unaware network, one rank stands for all: what it receives
// is what it sent. If two chunks or nodes of it then end at one instant, where the order could
// matter, the run is done anew with every rank.
//
// Source: astra-sim 518bd51 (its behaviour). Cost: three events a message, unfolded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/astra/config.h"
#include "orrery/astra/program.h"
#include "orrery/base/status.h"

namespace orrery::astra {

struct MachineInputs {
  const Workload* workload = nullptr;
  const SystemConfig* system = nullptr;
  const NetworkConfig* network = nullptr;
  const MemoryConfig* memory = nullptr;
  RunConfig run;
  std::vector<bool> watched;  // ranks whose nodes' times are kept; empty: none
  // The graph of a custom collective of `bytes` for the rank at a place of its group.
  std::function<Result<const Program*>(const std::string& prefix, std::uint32_t place,
                                       std::uint64_t bytes)>
      custom;
};

struct RankTimes {
  Tick finish = 0;
  Tick compute_ticks = 0;  // summed over GPU nodes, as ASTRA-sim counts: exposed is finish - these
  Tick compute = 0;        // some GPU node runs
  Tick communication = 0;  // some collective, send or receive is under way
  Tick exposed = 0;        // and no GPU node runs
  Tick other = 0;          // none of these, but a CPU node or remote memory
};

struct NodeTime {
  std::uint32_t rank = 0, node = 0;  // its place in the rank's program
  Tick start = 0, end = 0;
};

struct MachineResult {
  std::vector<RankTimes> ranks;
  std::vector<NodeTime> nodes;  // of watched ranks, in order of their ends; folded: of rank 0
  std::uint64_t events = 0, messages = 0, bytes = 0;
  bool folded = false;
  std::string not_folded_because;
};

// Code::kInfeasible for a deadlock and a run of more than 104 days; Code::kInvalidInput for a
// collective that its implementation or its bytes do not allow. REQUIRES: Network::Check passes.
Result<MachineResult> RunMachine(const MachineInputs& inputs, bool fold);

}  // namespace orrery::astra
