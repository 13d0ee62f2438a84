// Of a block alone: its operations, what they depend on, its group calls.
#include <algorithm>
#include <unordered_set>

#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph::verify {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 31;  // the limit of operations, streams and slots

bool NameFits(const Graph& graph, NameId name) {
  return !name.valid() || name.index() < graph.names().size();
}

const char* PeerFault(const Comm& comm) {
  const bool receives = comm.collective == Collective::kRecv;
  if (comm.tag < kAnyTag) return "a tag below -1";
  if (comm.tag == kAnyTag && !receives) return "any tag, which only a receive may take";
  switch (comm.peer.kind) {
    case PeerKind::kSlot:
      if (comm.peer.value < 0 || comm.peer.value >= static_cast<int>(kPeerSlots)) {
        return "unknown peer slot";
      }
      return nullptr;
    case PeerKind::kMember:
      return comm.peer.value < 0 ? "a peer before the group's first member" : nullptr;
    case PeerKind::kColumn:
      return comm.peer.value < 0 ? "a peer in a numeric slot below 0" : nullptr;
    case PeerKind::kAny:
      return receives ? nullptr : "any source, which only a receive may take";
    case PeerKind::kOffset:
      return nullptr;
  }
  return "unknown kind of peer";
}

// Why a communication breaks the rules of graph.h; null if it does not.
const char* Fault(const Comm& comm, Issue issue) {
  if (static_cast<int>(comm.collective) >= kCollectives) return "unknown collective";
  if (static_cast<std::size_t>(comm.group) >= kMost) return "a group slot beyond 2^31";
  if (comm.dtype > kLastDType) return "unknown element type";
  if (comm.stream == kComputeStream && issue == Issue::kHost) {
    return "a communication on stream 0, the compute stream";
  }
  if (comm.stream >= kMost && (comm.stream != kNoStream || issue == Issue::kHost)) {
    return "a stream beyond 2^31, or none where a host issues";
  }
  if (comm.after >= kMost && comm.after != kNoStream) {
    return "waits for a stream beyond 2^31";
  }
  if (comm.blocking && comm.event != kNoEvent) return "a blocking communication records an event";
  if (comm.event < kCallEvent) return "an event number below -2";
  if (comm.bytes.value < 0) return "negative bytes";
  if (comm.bytes.slot < -1 || comm.measured.slot < -1) return "a numeric slot below -1";
  if (comm.reduce > ReduceOp::kOther) return "unknown reduction";
  if (comm.shares.valid() && comm.collective != Collective::kAllToAll) {
    return "shares of what is no all-to-all";
  }
  if (comm.returned && !comm.shares.valid()) return "returned, and no shares";
  return IsPointToPoint(comm.collective) ? PeerFault(comm) : nullptr;
}

// Where an operation runs, and what it does there; null if that is sound.
const char* StreamFault(const Block& block, const Op& op) {
  const bool free = block.issue == Issue::kFree;
  const bool host = op.stream == kHostStream;
  if (op.stream >= kMost && op.stream != kNoStream && !host) return "a stream beyond 2^31";
  if (host && op.kind != OpKind::kWait) return "the host's stream, which only a wait may name";
  switch (op.kind) {
    case OpKind::kComm:
      if (op.stream != kComputeStream) return "a communication's stream stands in its entry";
      break;
    case OpKind::kWait:
    case OpKind::kRecord:
      if (op.stream == kNoStream) return "a wait or a record on no stream";
      if (host && free) return "a wait of the host, and no host issues the block";
      break;
    case OpKind::kHost:
      if (op.stream == kNoStream && !free) return "work of the host on no stream";
      break;
    case OpKind::kHostSync:
    case OpKind::kHostPace:
      if (free) return "work of the host, and no host issues the block";
      if (op.stream == kNoStream) return "the host has no stream to wait for";
      break;
    case OpKind::kKernel:
    case OpKind::kTimed:
      if (op.stream == kNoStream && !free) return "on no stream, and a host issues the block";
      break;
    case OpKind::kAlloc:
    case OpKind::kFree:
      break;
  }
  const bool may_hold =
      op.kind == OpKind::kTimed || (op.kind == OpKind::kComm && op.index < block.comms.size() &&
                                    IsPointToPoint(block.comms[op.index].collective));
  return op.hold != 0 && !may_hold
             ? "holds something, which only messages and operations of known time may"
             : nullptr;
}

Status CheckEvent(const Op& op) {
  const bool needs = op.kind == OpKind::kWait || op.kind == OpKind::kRecord;
  if (needs && (op.event < kCallEvent || op.event == kNoEvent)) {
    return InvalidInput("a {} no event", op.kind == OpKind::kWait ? "wait for" : "record of");
  }
  if (op.event == kNoEvent || needs) return {};
  if (op.kind == OpKind::kFree && op.event >= kCallEvent) return {};
  return InvalidInput("an event on an operation that is no wait, record or free");
}

Status CheckOp(const Graph& graph, const Block& block, const Op& op) {
  if (static_cast<int>(op.kind) >= kOpKinds) {
    return InvalidInput("unknown kind {}", static_cast<int>(op.kind));
  }
  if (!NameFits(graph, op.name) || !NameFits(graph, op.module)) {
    return InvalidInput("a name beyond the {} names", graph.names().size());
  }
  ORRERY_RETURN_IF_ERROR(CheckEvent(op));
  if (op.hold > block.holds.size()) {
    return InvalidInput("hold {} of {}", op.hold - 1, block.holds.size());
  }
  if (const char* fault = StreamFault(block, op)) return InvalidInput("{}", fault);
  if (!HasIndex(op.kind)) return {};
  if (op.index >= TableOf(block, op.kind)) {
    return InvalidInput("index {} of {}", op.index, TableOf(block, op.kind));
  }
  if (op.kind == OpKind::kComm) {
    const Comm& comm = block.comms[op.index];
    if (const char* fault = Fault(comm, block.issue)) return InvalidInput("{}", fault);
    if (comm.shares.valid() && comm.shares.index() >= graph.shares.size()) {
      return InvalidInput("shares {} of {}", comm.shares.value, graph.shares.size());
    }
  } else if (op.kind == OpKind::kHost && block.host_ps[op.index] < 0) {
    return InvalidInput("host work of {} ps", block.host_ps[op.index]);
  } else if (op.kind == OpKind::kTimed &&
             (block.times[op.index].value < 0 || block.times[op.index].slot < -1)) {
    return InvalidInput("a time of {} ps, numeric slot {}", block.times[op.index].value,
                        block.times[op.index].slot);
  }
  return {};
}

// What a host issues as one group call stands next to each other.
Status CheckGroupCalls(const Block& block) {
  if (block.issue != Issue::kHost) return {};
  std::unordered_set<std::uint32_t> ended;
  std::uint32_t batch = 0;
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    const std::uint32_t b = op.kind == OpKind::kComm ? block.comms[op.index].batch : 0;
    if (b == batch) continue;
    if (batch != 0) ended.insert(batch);
    batch = b;
    if (b != 0 && ended.contains(b)) {
      return InvalidInput("op {}: members of batch {} do not stand next to each other", o, b);
    }
  }
  return {};
}

// The operation that comes before each on its stream, where the stream is in order; itself if there
// is none.
std::vector<std::uint32_t> BeforeOnStream(const Graph& graph, const Block& block) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // stream, operation
  std::vector<std::uint32_t> before(block.ops.size());
  for (std::uint32_t o = 0; o < before.size(); ++o) {
    before[o] = o;
    const Op& op = block.ops[o];
    if (op.kind == OpKind::kAlloc || op.kind == OpKind::kFree) continue;
    const std::uint32_t stream = block.stream_of(op);
    if (stream < kMost && graph.order_of(stream) == StreamOrder::kInOrder) {
      order.emplace_back(stream, o);
    }
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i].first == order[i - 1].first) before[order[i].second] = order[i - 1].second;
  }
  return before;
}

// Names the operations of a cycle among those that never became ready.
Status NameCycle(const Graph& graph, const Block& block, std::span<const std::uint32_t> runnable) {
  const std::vector<std::uint32_t> before = BeforeOnStream(graph, block);
  std::vector<bool> waits(block.ops.size(), true);
  for (const std::uint32_t o : runnable) waits[o] = false;
  const auto blocker = [&](std::uint32_t o) {
    if (before[o] != o && waits[before[o]]) return before[o];
    for (const Dep& d : block.deps_of(o)) {
      if (waits[d.op]) return std::uint32_t{d.op};
    }
    return o;
  };
  std::uint32_t at = 0;
  while (!waits[at]) ++at;
  std::vector<bool> seen(block.ops.size());
  for (; !seen[at]; at = blocker(at)) seen[at] = true;
  std::string names;
  std::uint32_t o = at;
  for (int shown = 0; shown < 8; ++shown) {
    names += fmt::format("op {} '{}' waits for ", o, NameOf(graph, block.ops[o].name));
    o = blocker(o);
    if (o == at) break;
  }
  return InvalidInput("operations wait for each other: {}{}", names,
                      o == at ? fmt::format("op {}", at) : "others");
}

Status CheckDependencies(const Graph& graph, const Block& block) {
  if (block.deps.empty() && block.dep_begin.empty()) return {};
  const std::vector<std::uint32_t>& begin = block.dep_begin;
  if (begin.size() != block.ops.size() + 1 || begin.front() != 0 ||
      begin.back() != block.deps.size() || !std::is_sorted(begin.begin(), begin.end())) {
    return InvalidInput("dep_begin does not cut {} dependencies among {} operations",
                        block.deps.size(), block.ops.size());
  }
  bool backwards = true;
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    for (const Dep& d : block.deps_of(o)) {
      if (d.op >= block.ops.size()) {
        return InvalidInput("op {}: depends on op {} of {}", o, std::uint32_t{d.op},
                            block.ops.size());
      }
      for (const std::size_t end : {o, std::size_t{d.op}}) {
        const OpKind kind = block.ops[end].kind;
        const bool lasts = kind == OpKind::kKernel || kind == OpKind::kTimed ||
                           kind == OpKind::kComm ||
                           (kind == OpKind::kHost && block.issue == Issue::kFree);
        if (!lasts) {
          return InvalidInput("op {}: depends on op {}, but op {} takes no time of its own", o,
                              std::uint32_t{d.op}, end);
        }
      }
      if (d.op < o) continue;
      backwards = false;
      if (block.issue == Issue::kFree && d.op != o) continue;
      return InvalidInput("op {}: depends on op {}, {}", o, std::uint32_t{d.op},
                          d.op == o ? "itself" : "which the host issues later");
    }
  }
  if (backwards) return {};
  const std::vector<std::uint32_t> runnable = RunnableOrder(graph, block);
  return runnable.size() == block.ops.size() ? Status() : NameCycle(graph, block, runnable);
}

}  // namespace

std::size_t TableOf(const Block& block, OpKind kind) {
  switch (kind) {
    case OpKind::kKernel:
      return block.kernels.size();
    case OpKind::kComm:
      return block.comms.size();
    case OpKind::kHost:
      return block.host_ps.size();
    case OpKind::kAlloc:
    case OpKind::kFree:
      return block.buffers.size();
    case OpKind::kTimed:
      return block.times.size();
    case OpKind::kWait:
    case OpKind::kHostSync:
    case OpKind::kHostPace:
    case OpKind::kRecord:
      break;
  }
  return 0;
}

std::vector<std::uint32_t> RunnableOrder(const Graph& graph, const Block& block) {
  const auto n = static_cast<std::uint32_t>(block.ops.size());
  const std::vector<std::uint32_t> before = BeforeOnStream(graph, block);
  std::vector<std::uint32_t> waits(n), begin(n + 1), after(block.deps.size() + n);
  const auto each = [&](std::uint32_t o, const auto& act) {
    if (before[o] != o) act(before[o]);
    for (const Dep& d : block.deps_of(o)) act(std::uint32_t{d.op});
  };
  for (std::uint32_t o = 0; o < n; ++o) {
    each(o, [&](std::uint32_t on) { ++waits[o], ++begin[on + 1]; });
  }
  for (std::uint32_t o = 0; o < n; ++o) begin[o + 1] += begin[o];
  std::vector<std::uint32_t> at(begin.begin(), begin.end() - 1), ready;
  for (std::uint32_t o = 0; o < n; ++o) {
    each(o, [&](std::uint32_t on) { after[at[on]++] = o; });
    if (waits[o] == 0) ready.push_back(o);
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    for (std::uint32_t k = begin[ready[i]]; k < begin[ready[i] + 1]; ++k) {
      if (--waits[after[k]] == 0) ready.push_back(after[k]);
    }
  }
  return ready;
}

Status CheckBlock(const Graph& graph, const Block& block) {
  if (block.content_hash == 0) return InvalidInput("not sealed: call Seal after the last change");
  if (!NameFits(graph, block.name)) return InvalidInput("a name beyond the names");
  if (block.pass > kLastPass) return InvalidInput("unknown pass");
  if (block.launch > Launch::kInGraph || block.issue > Issue::kFree) {
    return InvalidInput("unknown launch or issue");
  }
  if (block.ops.size() >= kMost) return InvalidInput("more than 2^31 operations");
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    if (Status status = CheckOp(graph, block, op); !status.ok()) {
      return std::move(status).In(fmt::format("op {} '{}'", o, NameOf(graph, op.name)));
    }
  }
  ORRERY_RETURN_IF_ERROR(CheckGroupCalls(block));
  ORRERY_RETURN_IF_ERROR(CheckDependencies(graph, block));
  for (const Assumption& a : block.assumed) {
    if (a.op != Assumption::kWholeBlock && a.op >= block.ops.size()) {
      return InvalidInput("an assumption about op {} of {}", a.op, block.ops.size());
    }
    if (!a.text.valid() || !NameFits(graph, a.text))
      return InvalidInput("an assumption of no name");
  }
  for (const Routed& r : block.routed) {
    if (r.op < block.ops.size() && r.routing < graph.routings.size()) continue;
    return InvalidInput("op {} of {} is routed by {} of {}", r.op, block.ops.size(), r.routing,
                        graph.routings.size());
  }
  return {};
}

}  // namespace orrery::graph::verify
