#include "orrery/memory/block_walk.h"

#include <algorithm>
#include <string>

#include "orrery/base/text.h"

namespace orrery::memory {
namespace {

using graph::Buffer;
using graph::Lifetime;
using graph::OpKind;

// Beyond any device, and sums over the layers of a call stay in 64 bits.
constexpr std::int64_t kMaxBuffer = std::int64_t{1} << 42;

LiveSet::iterator Find(LiveSet& set, std::uint32_t id) {
  return std::lower_bound(set.begin(), set.end(), id,
                          [](const Live& live, std::uint32_t key) { return live.id < key; });
}

std::string BufferName(const graph::Graph& graph, const Buffer& buffer) {
  if (buffer.name.valid()) return fmt::format("'{}' (id {})", graph.name(buffer.name), buffer.id);
  return fmt::format("{}", buffer.id);
}

Status CheckSize(const graph::Graph& graph, const Buffer& buffer) {
  if (buffer.bytes < 0) {
    return InvalidInput("buffer {} has {} bytes", BufferName(graph, buffer), buffer.bytes);
  }
  if (buffer.bytes <= kMaxBuffer) return {};
  return Infeasible(
      "buffer {} takes {}, more than any device has; lower micro_batch, seq_len or "
      "hidden",
      BufferName(graph, buffer), HumanBytes(buffer.bytes));
}

}  // namespace

StateId LiveSets::Intern(const LiveSet& set) {
  if (set.empty()) return kNothing;
  const auto [at, added] = ids_.emplace(set, static_cast<StateId>(sets_.size()));
  if (added) sets_.push_back(set);
  return at->second;
}

Result<Walk> WalkBlock(const graph::Graph& graph, const graph::Block& block, StateId micro,
                       StateId lasting, LiveSets* sets) {
  LiveSet live[4];  // by Lifetime
  live[static_cast<std::size_t>(Lifetime::kMicrobatch)] = (*sets)[micro];
  live[static_cast<std::size_t>(Lifetime::kForever)] = (*sets)[lasting];
  Walk walk;
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    const graph::Op& op = block.ops[i];
    if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
    const Buffer& buffer = block.buffers[op.index];
    LiveSet& set = live[static_cast<std::size_t>(buffer.lifetime)];
    const auto at = Find(set, buffer.id);
    const bool lives = at != set.end() && at->id == buffer.id;
    if (op.kind == OpKind::kAlloc) {
      if (lives && buffer.lifetime == Lifetime::kForever) continue;
      if (lives) {
        return InvalidInput(
            "alloc of buffer {} that still lives; free it first, or give the buffer its own id",
            BufferName(graph, buffer));
      }
      ORRERY_RETURN_IF_ERROR(CheckSize(graph, buffer));
      const std::int64_t bytes = RoundUp(buffer.bytes, kRounding);
      set.insert(at, {.id = buffer.id, .bytes = bytes});
      walk.net += bytes;
      walk.peak = std::max(walk.peak, walk.net);
    } else {
      if (!lives) {
        return InvalidInput(
            "free of buffer {} that is not allocated; allocate it in this call, or for a "
            "micro-batch in an earlier call of the same layer, micro-batch and chunk",
            BufferName(graph, buffer));
      }
      walk.net -= at->bytes;
      set.erase(at);
    }
  }
  for (const Lifetime within : {Lifetime::kCall, Lifetime::kLingering}) {
    const LiveSet& leaked = live[static_cast<std::size_t>(within)];
    if (leaked.empty()) continue;
    return InvalidInput(
        "buffer {} lives for a call but is not freed in it; free it, or let it live "
        "for the micro-batch",
        leaked.front().id);
  }
  walk.micro_after = sets->Intern(live[static_cast<std::size_t>(Lifetime::kMicrobatch)]);
  walk.lasting_after = sets->Intern(live[static_cast<std::size_t>(Lifetime::kForever)]);
  return walk;
}

}  // namespace orrery::memory
