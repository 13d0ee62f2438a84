// A rank's Chakra trace as the machine reads it: nodes in the order of their ids, dependents by
// node. Ranks of equal traces share a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orrery/astra/config.h"
#include "orrery/base/status.h"
#include "orrery/formats/chakra.h"

namespace orrery::astra {

// What of a rank a node has to itself while it runs (HardwareResource): receives nothing.
enum class Unit : std::uint8_t { kCpu, kGpu, kCommunication, kNone };
inline constexpr std::size_t kUnits = 4;

enum class NodeKind : std::uint8_t {
  kSkip,        // metadata, invalid, or nothing to do: over at once
  kTimed,       // `amount` ns
  kMemory,      // `amount` bytes of remote memory
  kCollective,  // `amount` bytes
  kBroadcast,   // `amount` ns: ASTRA-sim replays its duration
  kSend,        // `amount` bytes
  kReceive,
};

// What a rank's times count a node as, also where replay-only makes all of them times.
enum class Counted : std::uint8_t { kWork, kCommunication, kMemory };

struct Node {
  std::uint64_t id = 0;
  std::uint64_t amount = 0;
  std::uint32_t group = 0;  // 0: all ranks
  std::uint32_t peer = 0, tag = 0;
  std::int32_t priority = 0;
  std::uint32_t open = 0;  // nodes it waits for
  NodeKind kind = NodeKind::kSkip;
  Unit unit = Unit::kCommunication;
  Collective collective = Collective::kAllReduce;
  std::uint8_t involved = 0x0f;  // dimensions, as bits
  Counted counted = Counted::kWork;
};

struct Program {
  std::vector<Node> nodes;                       // by id
  std::vector<std::uint32_t> first_edge, edges;  // to dependents; one more first_edge
  std::vector<std::string> names;                // of the nodes, where asked for
  std::span<const std::uint32_t> dependents(std::size_t node) const {
    return {edges.data() + first_edge[node], first_edge[node + 1] - first_edge[node]};
  }
};

using GroupMembers = std::map<std::uint32_t, std::vector<std::uint32_t>>;  // by id

struct Workload {
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<std::uint32_t> program_of;  // by rank
  GroupMembers groups;
  std::vector<std::string> warnings;
  std::size_t operations = 0;
  const Program& of(std::size_t rank) const { return *programs[program_of[rank]]; }
};

struct RankFile {
  std::string name, bytes;
};
// `read`: the trace file of a rank; one that equals the last is not parsed again. Roofline times
// are computed here: they are the system's. `names`: programs keep their nodes'; ranks that share
// one have those of the first.
Result<Workload> MakeWorkload(std::size_t ranks,
                              const std::function<Result<RankFile>(std::size_t)>& read,
                              GroupMembers groups, const SystemConfig& system, bool names = false);

// A custom collective's graph of one rank: sends, receives and times.
Result<Program> MakeCustomProgram(const formats::ChakraTrace& trace, std::size_t ranks);

}  // namespace orrery::astra
