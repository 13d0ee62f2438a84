#include "orrery/memory/memory.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/memory/block_walk.h"
#include "orrery/memory/layer_states.h"
#include "orrery/memory/library_memory.h"

namespace orrery::memory {
namespace {

constexpr std::int64_t kMaxPlaces = 1 << 24;  // chunks times micro-batches of a program
constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

using graph::Call;
using graph::Lifetime;

// Whether a block touches buffers that outlive its call.
struct Touches {
  bool known = false, micro = false, lasting = false;
};

struct WalkKey {
  std::uint32_t block = 0;
  StateId micro = kNothing, lasting = kNothing;
  friend bool operator==(const WalkKey&, const WalkKey&) = default;
};
struct WalkKeyHash {
  std::size_t operator()(const WalkKey& k) const {
    return Mix64((std::uint64_t{k.block} << 32 | k.micro) ^ Mix64(k.lasting));
  }
};

// The walk that a block did last: most calls repeat it.
struct LastWalk {
  WalkKey key;
  const Walk* walk = nullptr;
};

// One segment of a call's layers in equal states.
struct Segment {
  std::int32_t first = 0, last = 0;
  StateId micro = kNothing, lasting = kNothing;
};

class Replayer {
 public:
  Replayer(const graph::Graph& graph, const graph::Program& program, std::int64_t limit)
      : graph_(graph),
        program_(program),
        limit_(limit),
        touches_(graph.blocks.size()),
        last_(graph.blocks.size()) {
    for (const auto* calls : {&program.prologue, &program.calls}) {
      for (const Call& call : *calls) {
        chunks_ = std::max(chunks_, std::int64_t{call.chunk} + 1);
        batches_ = std::max(batches_, std::int64_t{call.microbatch} + 2);
      }
    }
  }

  Status Run(Footprint* out) {
    if (chunks_ * batches_ > kMaxPlaces) {
      return InvalidInput("program '{}': {} chunks of {} micro-batches; at most {} together",
                          program_.name, chunks_, batches_ - 1, kMaxPlaces);
    }
    micro_.resize(static_cast<std::size_t>(chunks_ * batches_));
    lasting_.resize(static_cast<std::size_t>(chunks_));
    ORRERY_RETURN_IF_ERROR(RunCalls(program_.prologue, "prologue"));
    const std::vector<LayerStates> lasting_before = lasting_;
    const bool starts_empty = live_micro_ == 0;
    ORRERY_RETURN_IF_ERROR(RunCalls(program_.calls, "iteration 0"));
    // Nothing of a micro-batch lives and nothing lasting was added: the next iteration is the same.
    const bool repeats = starts_empty && live_micro_ == 0 && lasting_ == lasting_before;
    if (!repeats) ORRERY_RETURN_IF_ERROR(RunCalls(program_.calls, "iteration 1"));
    out->peak_allocated = peak_;
    out->peak_reserved = RoundUp(peak_, kSegment);
    out->at_peak = peak_parts_;
    out->peak_op = peak_ > 0 ? Describe(*peak_call_, peak_layer_, peak_op_) : "";
    out->oom = oom_call_ != nullptr;
    if (out->oom) out->oom_op = Describe(*oom_call_, oom_layer_, oom_op_);
    return {};
  }

 private:
  Status RunCalls(const std::vector<Call>& calls, const char* where) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Call& call = calls[i];
      if (call.block.index() >= graph_.blocks.size() || call.chunk < 0 || call.microbatch < -1) {
        return InvalidInput("program '{}', {}, call {}: no such block, chunk or micro-batch",
                            program_.name, where, i);
      }
      std::int32_t layer = call.first_layer;
      if (Status status = RunCall(call, &layer); !status.ok()) {
        return std::move(status).In(fmt::format("program '{}', {}, call {} ({})", program_.name,
                                                where, i, CallName(call, layer)));
      }
    }
    return {};
  }

  const Touches& TouchesOf(const Call& call) {
    Touches& touches = touches_[call.block.index()];
    if (touches.known) return touches;
    for (const graph::Buffer& buffer : graph_.blocks[call.block.index()].buffers) {
      touches.micro |= buffer.lifetime == Lifetime::kMicrobatch;
      touches.lasting |= buffer.lifetime == Lifetime::kForever;
    }
    touches.known = true;
    return touches;
  }

  // On failure `layer` is the layer at fault.
  Status RunCall(const Call& call, std::int32_t* layer) {
    if (call.repeat == 0) return {};
    if (graph_.blocks[call.block.index()].buffers.empty()) return {};
    const Touches touches = TouchesOf(call);
    const bool down = graph_.blocks[call.block.index()].pass == graph::Pass::kBackward;
    const std::int32_t span = call.repeat - 1;
    const std::int32_t low = down ? call.first_layer - span : call.first_layer;
    LayerStates& micro =
        micro_[static_cast<std::size_t>(call.chunk * batches_ + call.microbatch + 1)];
    LayerStates& lasting = lasting_[static_cast<std::size_t>(call.chunk)];
    Split(touches, low, low + span, micro, lasting);
    if (down) std::reverse(segments_.begin(), segments_.end());
    const bool had_micro = !micro.empty();
    for (const Segment& s : segments_) {
      *layer = down ? s.last : s.first;
      Status status;
      const Walk* walk = Find(call, s, &status);
      if (walk == nullptr) return status;
      Advance(call, s, *layer, *walk);
      if (touches.micro) micro.Set({s.first, s.last, walk->micro_after});
      if (touches.lasting) lasting.Set({s.first, s.last, walk->lasting_after});
    }
    live_micro_ += static_cast<std::int64_t>(!micro.empty()) - static_cast<std::int64_t>(had_micro);
    return {};
  }

  // Fills segments_ with the layers of a call, cut where what lives on them changes.
  void Split(const Touches& touches, std::int32_t low, std::int32_t high, const LayerStates& micro,
             const LayerStates& lasting) {
    segments_.clear();
    micro_runs_.clear();
    lasting_runs_.clear();
    if (touches.micro) micro.Get(low, high, &micro_runs_);
    if (touches.lasting) lasting.Get(low, high, &lasting_runs_);
    if (!touches.micro) micro_runs_.push_back({low, high, kNothing});
    if (!touches.lasting) lasting_runs_.push_back({low, high, kNothing});
    std::size_t m = 0, l = 0;
    for (std::int32_t at = low; at <= high;) {
      const std::int32_t last = std::min(micro_runs_[m].last, lasting_runs_[l].last);
      segments_.push_back({at, last, micro_runs_[m].state, lasting_runs_[l].state});
      if (micro_runs_[m].last == last) ++m;
      if (lasting_runs_[l].last == last) ++l;
      at = last + 1;
    }
  }

  // Null, with `status` set, when the walk fails.
  const Walk* Find(const Call& call, const Segment& s, Status* status) {
    const WalkKey key{call.block.value, s.micro, s.lasting};
    LastWalk& last = last_[call.block.index()];
    if (last.walk != nullptr && last.key == key) return last.walk;
    auto it = walks_.find(key);
    if (it == walks_.end()) {
      Result<Walk> walk =
          WalkBlock(graph_, graph_.blocks[call.block.index()], s.micro, s.lasting, -1, &sets_);
      if (!walk.ok()) {
        *status = std::move(walk).TakeStatus();
        return nullptr;
      }
      it = walks_.emplace(key, *walk).first;
    }
    last = {key, &it->second};
    return last.walk;
  }

  // Runs `walk` once per layer of the segment, in O(1).
  void Advance(const Call& call, const Segment& s, std::int32_t first_layer, const Walk& walk) {
    const std::int64_t count = s.last - s.first + 1;
    const std::int64_t before = walk.net > 0 ? count - 1 : 0;  // instances before the highest one
    const std::int64_t top = used_ + before * walk.net + walk.peak;
    const std::int32_t step = s.first == first_layer ? 1 : -1;
    if (top > peak_ && walk.peak > 0) {
      peak_ = top;
      peak_call_ = &call;
      peak_layer_ = first_layer + step * static_cast<std::int32_t>(before);
      peak_op_ = walk.peak_op;
      for (std::size_t k = 0; k < kKinds; ++k) {
        peak_parts_[k] = used_parts_[k] + before * walk.net_parts[k] + walk.peak_parts[k];
      }
    }
    if (top > limit_ && oom_call_ == nullptr && walk.peak > 0) {
      // The first instance whose peak is above the limit; those before it all fit.
      std::int64_t i = 0;
      while (used_ + i * walk.net + walk.peak <= limit_) ++i;
      const std::int64_t room = std::max<std::int64_t>(limit_ - used_ - i * walk.net, 0);
      const Result<Walk> stopped =
          WalkBlock(graph_, graph_.blocks[call.block.index()], s.micro, s.lasting, room, &sets_);
      ORRERY_CHECK(stopped.ok(), "a walk that passed before passes again");
      oom_call_ = &call;
      oom_layer_ = first_layer + step * static_cast<std::int32_t>(i);
      oom_op_ = stopped->peak_op;
    }
    used_ += count * walk.net;
    for (std::size_t k = 0; k < kKinds; ++k) used_parts_[k] += count * walk.net_parts[k];
  }

  std::string CallName(const Call& call, std::int32_t layer) const {
    const NameId name = graph_.blocks[call.block.index()].name;
    std::string text = name.valid() ? graph_.name(name) : fmt::format("block {}", call.block.value);
    text += fmt::format(", layer {}", layer);
    if (call.microbatch >= 0) text += fmt::format(", micro-batch {}", call.microbatch);
    if (chunks_ > 1) text += fmt::format(", chunk {}", call.chunk);
    return text;
  }

  std::string Describe(const Call& call, std::int32_t layer, std::uint32_t index) const {
    const graph::Block& block = graph_.blocks[call.block.index()];
    const graph::Op& op = block.ops[index];
    const NameId buffer = block.buffers[op.index].name;
    std::string what = op.module.valid() ? graph_.name(op.module) : "";
    const NameId detail = buffer.valid() ? buffer : op.name;
    if (detail.valid()) what += (what.empty() ? "" : ": ") + graph_.name(detail);
    if (what.empty()) what = fmt::format("operation {}", index);
    return fmt::format("{} ({})", what, CallName(call, layer));
  }

  const graph::Graph& graph_;
  const graph::Program& program_;
  const std::int64_t limit_;
  std::int64_t chunks_ = 1, batches_ = 1;
  std::vector<Touches> touches_;              // by block
  std::vector<LayerStates> micro_, lasting_;  // by chunk and micro-batch; by chunk
  std::int64_t live_micro_ = 0;               // entries of micro_ that are not empty
  LiveSets sets_;
  std::unordered_map<WalkKey, Walk, WalkKeyHash> walks_;
  std::vector<LastWalk> last_;     // by block
  std::vector<Segment> segments_;  // of the call in hand
  std::vector<LayerRun> micro_runs_, lasting_runs_;

  std::int64_t used_ = 0, peak_ = 0;
  Parts used_parts_{}, peak_parts_{};
  const Call* peak_call_ = nullptr;
  std::int32_t peak_layer_ = 0;
  std::uint32_t peak_op_ = 0;
  const Call* oom_call_ = nullptr;
  std::int32_t oom_layer_ = 0;
  std::uint32_t oom_op_ = 0;
};

Result<Footprint> ReplayOne(const graph::Graph& graph, ProgramId id, const graph::Binding* binding,
                            const cluster::DeviceSpec& device) {
  const graph::Program& program = graph.programs[id.index()];
  Footprint out;
  out.program = id;
  out.context_bytes = ContextBytes(graph, program, binding, device);
  const std::int64_t room = std::max<std::int64_t>(device.memory_bytes - out.context_bytes, 0);
  Replayer replayer(graph, program, room / kSegment * kSegment);
  ORRERY_RETURN_IF_ERROR(replayer.Run(&out));
  return out;
}

// The most that `calls` hold above `start`; adds what they leave to `used`.
std::int64_t PeakOf(const std::vector<Call>& calls, std::span<const BlockNet> nets,
                    std::int64_t* used) {
  std::int64_t peak = 0;
  for (const Call& call : calls) {
    const BlockNet& n = nets[call.block.index()];
    if (call.repeat == 0) continue;
    const std::int64_t before = n.net > 0 ? (call.repeat - 1) * n.net : 0;
    peak = std::max(peak, *used + before + n.peak);
    *used += call.repeat * n.net;
  }
  return peak;
}

}  // namespace

Result<Footprint> Replay(const graph::Graph& graph, ProgramId program,
                         const cluster::DeviceSpec& device) {
  ORRERY_CHECK(program.index() < graph.programs.size(), "a program of this graph");
  const graph::Binding* binding = nullptr;
  for (const graph::Binding& b : graph.bindings) {
    if (b.program == program) {
      binding = &b;
      break;
    }
  }
  return ReplayOne(graph, program, binding, device);
}

Result<std::vector<Footprint>> ReplayAll(const graph::Graph& graph,
                                         const cluster::DeviceSpec& device) {
  std::vector<const graph::Binding*> first(graph.programs.size());
  for (const graph::Binding& b : graph.bindings) {
    if (first[b.program.index()] == nullptr) first[b.program.index()] = &b;
  }
  std::vector<Footprint> all;
  all.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    ORRERY_ASSIGN_OR_RETURN(Footprint one, ReplayOne(graph, ProgramId(i), first[i], device));
    all.push_back(std::move(one));
  }
  return all;
}

BlockNet NetOf(const graph::Block& block) {
  BlockNet n;
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kAlloc && op.kind != graph::OpKind::kFree) continue;
    const graph::Buffer& buffer = block.buffers[op.index];
    const std::int64_t bytes = RoundUp(buffer.bytes, kRounding);
    n.net += op.kind == graph::OpKind::kAlloc ? bytes : -bytes;
    n.peak = std::max(n.peak, n.net);
    n.lasting |= buffer.lifetime == Lifetime::kForever;
  }
  return n;
}

std::vector<BlockNet> BlockNets(const graph::Graph& graph) {
  std::vector<BlockNet> nets;
  nets.reserve(graph.blocks.size());
  for (const graph::Block& block : graph.blocks) nets.push_back(NetOf(block));
  return nets;
}

Result<std::int64_t> QuickPeak(const graph::Graph& graph, ProgramId program,
                               std::span<const BlockNet> nets) {
  ORRERY_CHECK(nets.size() == graph.blocks.size(), "one BlockNet per block");
  const graph::Program& p = graph.programs[program.index()];
  for (const Call& call : p.calls) {
    if (!nets[call.block.index()].lasting) continue;
    Footprint out;
    Replayer replayer(graph, p, kMaxBytes);
    ORRERY_RETURN_IF_ERROR(replayer.Run(&out));
    return out.peak_allocated;
  }
  std::int64_t used = 0;
  const std::int64_t prologue = PeakOf(p.prologue, nets, &used);
  return std::max(prologue, PeakOf(p.calls, nets, &used));
}

}  // namespace orrery::memory
