#include "orrery/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "orrery/base/check.h"
#include "orrery/base/hash.h"

namespace orrery::graph {
namespace {

constexpr std::uint32_t kNoName = NameId::kInvalid;  // a free place of Graph::name_slots_

}  // namespace

std::string_view Name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kSend:
      return "send";
    case Collective::kRecv:
      return "receive";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kCopyToHost:
      return "copy-to-host";
    case Collective::kCopyToDevice:
      return "copy-to-device";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kReduce:
      return "reduce";
    case Collective::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view Name(GroupSlot slot) {
  switch (slot) {
    case GroupSlot::kTp:
      return "tp";
    case GroupSlot::kDp:
      return "dp";
    case GroupSlot::kPp:
      return "pp";
    case GroupSlot::kCp:
      return "cp";
    case GroupSlot::kEp:
      return "ep";
    case GroupSlot::kEmbedding:
      return "embedding";
    case GroupSlot::kModel:
      return "model";
    case GroupSlot::kExpertTp:
      return "expert_tp";
    case GroupSlot::kExpertDp:
      return "expert_dp";
    case GroupSlot::kShard:
      return "shard";
    case GroupSlot::kReplica:
      return "replica";
    case GroupSlot::kOffload:
      return "offload";
    case GroupSlot::kCount:
      break;
  }
  return "group";
}

std::string SlotName(GroupSlot slot) {
  const auto s = static_cast<std::size_t>(slot);
  if (s < kGroupSlots) return std::string(Name(slot));
  return fmt::format("#{}", s - kGroupSlots);
}

std::string_view Name(PeerKind kind) {
  switch (kind) {
    case PeerKind::kSlot:
      return "slot";
    case PeerKind::kMember:
      return "member";
    case PeerKind::kOffset:
      return "offset";
    case PeerKind::kColumn:
      return "column";
    case PeerKind::kAny:
      return "any";
  }
  return "?";
}

std::string_view Name(StreamOrder order) {
  switch (order) {
    case StreamOrder::kInOrder:
      return "in_order";
    case StreamOrder::kReadiness:
      return "readiness";
    case StreamOrder::kLast:
      return "last";
    case StreamOrder::kPriority:
      return "priority";
  }
  return "?";
}

std::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kOther:
      return "other";
  }
  return "?";
}

std::string_view Name(Issue issue) { return issue == Issue::kHost ? "host" : "free"; }

std::string_view Name(PeerSlot slot) {
  switch (slot) {
    case PeerSlot::kPrevious:
      return "previous";
    case PeerSlot::kNext:
      return "next";
    case PeerSlot::kCpPrevious:
      return "cp_previous";
    case PeerSlot::kCpNext:
      return "cp_next";
    case PeerSlot::kTpPrevious:
      return "tp_previous";
    case PeerSlot::kTpNext:
      return "tp_next";
    case PeerSlot::kCount:
      break;
  }
  return "?";
}

std::string_view Name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kParameter:
      return "parameters";
    case MemoryKind::kGradient:
      return "gradients";
    case MemoryKind::kOptimizer:
      return "optimizer";
    case MemoryKind::kActivation:
      return "activations";
    case MemoryKind::kTemporary:
      return "temporary";
    case MemoryKind::kCommunication:
      return "communication";
    case MemoryKind::kCount:
      break;
  }
  return "?";
}

std::string_view Name(Launch launch) {
  switch (launch) {
    case Launch::kEach:
      return "each";
    case Launch::kGraph:
      return "graph";
    case Launch::kInGraph:
      return "in-graph";
  }
  return "?";
}

void Shares::Seal() {
  Hasher hash;
  hash.Add(ranks);
  for (const std::int64_t part : parts) hash.Add(part);
  content_hash = hash.value();
}

void Block::Seal() {
  Hasher hash;
  hash.Add(pass).Add(ops.size()).Add(launch);
  for (const Op& op : ops) {
    hash.Add(op.kind).Add(op.event);
    if (op.stream != kComputeStream) hash.Add(op.stream);
    if (op.hold != 0) hash.Add(op.hold);
    if (op.priority != 0) hash.Add(op.priority);
    switch (op.kind) {
      case OpKind::kKernel:
        hash.Add(ContentHash(kernels[op.index]));
        break;
      case OpKind::kComm: {
        const Comm& c = comms[op.index];
        hash.Add(c.collective).Add(c.group).Add(c.peer.kind).Add(c.peer.value).Add(c.stream);
        hash.Add(c.tag).Add(c.batch).Add(c.blocking).Add(c.event).Add(c.dtype);
        hash.Add(c.bytes.value).Add(c.bytes.slot).Add(c.reduce).Add(c.after);
        if (c.shares.valid()) hash.Add(c.shares.value).Add(c.returned);
        if (c.measured.value >= 0) hash.Add(c.measured.value).Add(c.measured.slot);
        break;
      }
      case OpKind::kHost:
        hash.Add(host_ps[op.index]);
        break;
      case OpKind::kTimed:
        hash.Add(times[op.index].value).Add(times[op.index].slot);
        break;
      case OpKind::kAlloc:
      case OpKind::kFree: {
        const Buffer& b = buffers[op.index];
        hash.Add(b.id).Add(b.kind).Add(b.lifetime).Add(b.bytes).Add(b.stream);
        break;
      }
      case OpKind::kWait:
      case OpKind::kHostSync:
      case OpKind::kHostPace:
      case OpKind::kRecord:
        break;
    }
  }
  hash.Add(issue);
  for (const Hold& h : holds) hash.Add(h.cpu).Add(h.nic);
  for (const std::uint32_t begin : dep_begin) hash.Add(begin);
  for (const Dep& d : deps) hash.Add(d.op << 1 | d.on_start);
  for (const Routed& r : routed) hash.Add(r.op).Add(r.routing);
  content_hash = hash.value();
}

GroupId Groups::Add(GroupSlot slot, std::span<const RankId> members) {
  ORRERY_CHECK(!members.empty(), "a group has members");
  slots_.push_back(slot);
  members_.insert(members_.end(), members.begin(), members.end());
  offsets_.push_back(members_.size());
  return GroupId(slots_.size() - 1);
}

void Groups::Reserve(std::size_t groups, std::size_t members) {
  slots_.reserve(groups);
  offsets_.reserve(groups + 1);
  members_.reserve(members);
}

std::size_t Graph::PlaceOf(std::string_view name) const {
  const std::size_t mask = name_slots_.size() - 1;
  // The hash only says where to look: names keep the order in which they came.
  std::size_t at = std::hash<std::string_view>()(name) & mask;
  while (name_slots_[at] != kNoName && names_[name_slots_[at]] != name) at = (at + 1) & mask;
  return at;
}

NameId Graph::Intern(std::string_view name) {
  if (2 * (names_.size() + 1) > name_slots_.size()) {
    name_slots_.assign(std::max<std::size_t>(64, 2 * name_slots_.size()), kNoName);
    for (std::uint32_t i = 0; i < names_.size(); ++i) name_slots_[PlaceOf(names_[i])] = i;
  }
  std::uint32_t& slot = name_slots_[PlaceOf(name)];
  if (slot == kNoName) {
    slot = static_cast<std::uint32_t>(names_.size());
    names_.emplace_back(name);
  }
  return NameId(slot);
}

}  // namespace orrery::graph
