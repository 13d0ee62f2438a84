#include "orrery/graph/verify/straight.h"

#include <fmt/format.h>

#include <limits>

#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph {
namespace {

constexpr std::size_t kMostOps = 65535;  // of a block
constexpr std::int32_t kMostEvents = std::numeric_limits<std::int16_t>::max();
constexpr std::uint32_t kMostStreams = 255, kMostBatches = 255;

bool IsMessage(const Block& block, const Op& op) {
  return op.kind == OpKind::kComm && IsPointToPoint(block.comms[op.index].collective);
}

// Why a communication is not straight; null if it is.
const char* Fault(const Comm& c) {
  if (static_cast<std::size_t>(c.group) >= kGroupSlots) return "its group is behind the roles";
  if (c.stream == kComputeStream) return "a communication on the compute stream";
  if (c.stream > kMostStreams) return "its stream is above 255";
  if (c.after != kComputeStream) return "it waits for another stream than the compute stream";
  if (c.bytes.slot >= 0) return "its size stands in a column";
  if (c.measured.value >= 0) return "its time was measured";
  if (!IsPointToPoint(c.collective)) {
    return c.batch != 0 ? "a group call of what is no message" : nullptr;
  }
  if (c.batch > kMostBatches) return "its group call has a number above 255";
  if (c.peer.kind != PeerKind::kSlot) return "its peer is no neighbour's slot";
  if (c.tag < 0 || c.tag >= kStraightTags) return "its tag is not 0 or 1";
  return nullptr;
}

const char* Fault(const Block& block, const Op& op) {
  if (op.hold != 0) return "it holds a processor or an interface";
  if (op.kind == OpKind::kTimed) return "its time is given, on a stream of any kind";
  if (op.kind == OpKind::kRecord) return "it records an event";
  if (op.kind == OpKind::kComm) return Fault(block.comms[op.index]);
  if (op.stream == kHostStream) return "the host waits for an event";
  if (op.stream != kComputeStream) return "it is not on the compute stream";
  if (op.kind == OpKind::kFree && op.event != kNoEvent) return "it frees after an event";
  return nullptr;
}

// The members of a group call stand next to each other, entries in a row, alike in what the stream
// sees of them: the engine takes these from the first.
bool JoinsGroupCall(const Block& block, const Op& before, const Op& op) {
  const Comm& a = block.comms[before.index];
  const Comm& b = block.comms[op.index];
  return op.index == before.index + 1 && a.stream == b.stream && a.blocking == b.blocking &&
         a.event == b.event;
}

std::string WhyNot(const Graph& graph, const Block& block) {
  if (block.issue != Issue::kHost) return "no host issues it";
  if (!block.deps.empty()) return "its operations depend on each other";
  if (block.ops.size() > kMostOps) {
    return fmt::format("it has {} operations, more than {}", block.ops.size(), kMostOps);
  }
  std::uint32_t batch = 0;
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    const char* fault = Fault(block, op);
    const std::uint32_t b = IsMessage(block, op) ? block.comms[op.index].batch : 0;
    if (fault == nullptr && b != 0 && b == batch && !JoinsGroupCall(block, block.ops[o - 1], op)) {
      fault =
          "members of a group call differ in stream, event or blocking, or are no entries in a row";
    }
    batch = b;
    if (fault == nullptr) continue;
    return fmt::format("op {} '{}': {}", o, verify::NameOf(graph, op.name), fault);
  }
  return {};
}

}  // namespace

std::string WhyNotStraight(const Graph& graph) {
  if (!graph.more_groups.empty()) return "groups stand behind the roles' slots";
  for (std::size_t s = 0; s < graph.streams.size(); ++s) {
    if (graph.streams[s].order == StreamOrder::kInOrder) continue;
    return fmt::format("stream {} is served in the order '{}'", s, Name(graph.streams[s].order));
  }
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    if (graph.programs[p].events <= kMostEvents) continue;
    return fmt::format("{} has {} events, more than {}", verify::Where(graph, ProgramId(p)),
                       graph.programs[p].events, kMostEvents);
  }
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    const std::string why = WhyNot(graph, graph.blocks[b]);
    if (!why.empty()) return fmt::format("{}: {}", verify::Where(graph, BlockId(b)), why);
  }
  return {};
}

}  // namespace orrery::graph
