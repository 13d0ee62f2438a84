#include "orrery/memory/memory.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <unordered_map>

#include "orrery/base/check.h"
#include "orrery/base/rng.h"
#include "orrery/base/threads.h"
#include "orrery/memory/allocator_replay.h"
#include "orrery/memory/block_walk.h"
#include "orrery/memory/layer_states.h"
#include "orrery/memory/library_memory.h"

namespace orrery::memory {
namespace {

constexpr std::size_t kMaxThreads = 8;        // that replay programs side by side
constexpr std::int64_t kMaxPlaces = 1 << 24;  // chunks times micro-batches of a program

using graph::Call;
using graph::Lifetime;

std::string CallName(const graph::Graph& graph, const Call& call, std::int32_t layer, bool chunks) {
  const NameId name = graph.blocks[call.block.index()].name;
  std::string text = name.valid() ? graph.name(name) : fmt::format("block {}", call.block.value);
  text += fmt::format(", layer {}", layer);
  if (call.microbatch >= 0) text += fmt::format(", micro-batch {}", call.microbatch);
  if (chunks) text += fmt::format(", chunk {}", call.chunk);
  return text;
}

std::string Describe(const graph::Graph& graph, const CallPlace& place, bool chunks) {
  if (place.call == nullptr) return "library workspaces";
  const graph::Block& block = graph.blocks[place.call->block.index()];
  const graph::Op& op = block.ops[place.op];
  const NameId buffer = block.buffers[op.index].name;
  std::string what = op.module.valid() ? graph.name(op.module) : "";
  const NameId detail = buffer.valid() ? buffer : op.name;
  if (detail.valid()) what += (what.empty() ? "" : ": ") + graph.name(detail);
  if (what.empty()) what = fmt::format("operation {}", place.op);
  return fmt::format("{} ({})", what, CallName(graph, *place.call, place.layer, chunks));
}

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

// The sum of rounded requests in use, call by call; also the check that every free has its alloc.
class Summer {
 public:
  Summer(const graph::Graph& graph, const graph::Program& program)
      : graph_(graph),
        program_(program),
        touches_(graph.blocks.size()),
        last_(graph.blocks.size()) {
    for (const auto* calls : {&program.prologue, &program.calls}) {
      for (const Call& call : *calls) {
        chunks_ = std::max(chunks_, std::int64_t{call.chunk} + 1);
        batches_ = std::max(batches_, std::int64_t{call.microbatch} + 2);
      }
    }
  }

  // The peak of the prologue and two iterations.
  Status Run(std::int64_t* peak) {
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
    *peak = peak_;
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
        const std::string name = CallName(graph_, call, layer, chunks_ > 1);
        if (status.code() == Code::kInfeasible) {
          return std::move(status).In(
              fmt::format("out of device memory: {}, {}", program_.name, name));
        }
        return std::move(status).In(
            fmt::format("program '{}', {}, call {} ({})", program_.name, where, i, name));
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
    const bool down = graph::IsBackward(graph_.blocks[call.block.index()].pass);
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
      Advance(s, *walk);
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
          WalkBlock(graph_, graph_.blocks[call.block.index()], s.micro, s.lasting, &sets_);
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
  void Advance(const Segment& s, const Walk& walk) {
    const std::int64_t count = s.last - s.first + 1;
    const std::int64_t before = walk.net > 0 ? count - 1 : 0;  // instances before the highest one
    peak_ = std::max(peak_, used_ + before * walk.net + walk.peak);
    used_ += count * walk.net;
  }

  const graph::Graph& graph_;
  const graph::Program& program_;
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
};

std::int64_t Capacity(const Footprint& footprint, const cluster::DeviceSpec& device) {
  return std::max<std::int64_t>(device.memory_bytes - footprint.context_bytes, 0);
}

// Largest first; the 32 largest.
std::vector<ModuleShare> ModuleShares(const graph::Graph& graph,
                                      const std::vector<std::int64_t>& bytes) {
  constexpr std::size_t kShown = 32;
  std::vector<ModuleShare> shares;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    const bool named = i < graph.names().size();
    const bool library = i > graph.names().size();
    shares.push_back({named ? graph.names()[i] : library ? "library workspaces" : "", bytes[i]});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const ModuleShare& a, const ModuleShare& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.module < b.module;
  });
  if (shares.size() > kShown) shares.resize(kShown);
  return shares;
}

Result<Footprint> ReplayOne(const graph::Graph& graph, ProgramId id, const graph::Binding* binding,
                            const cluster::DeviceSpec& device, const Options& options) {
  const graph::Program& program = graph.programs[id.index()];
  Footprint out;
  out.program = id;
  out.cuda_bytes = CudaContextBytes(device.arch);
  out.nccl_bytes = NcclBytes(graph, program, binding);
  const std::size_t job = binding != nullptr ? binding->job.index() : 0;
  const Libraries libraries = job < options.libraries.size() ? options.libraries[job] : Libraries();
  out.context_bytes = ContextBytes(graph, program, binding, libraries, device);
  ORRERY_RETURN_IF_ERROR(Summer(graph, program).Run(&out.peak_requested));
  ReplayResult replay = ReplayAllocator(graph, program,
                                        {.settings = options.allocator,
                                         .device_bytes = device.memory_bytes,
                                         .capacity = Capacity(out, device),
                                         .workspaces = TorchWorkspaces(libraries, device.arch),
                                         .timeline = options.timeline});
  bool chunks = false;
  for (const Call& call : program.calls) chunks |= call.chunk > 0;
  out.peak_allocated = replay.stats.peak_allocated;
  out.peak_reserved = replay.stats.peak_reserved;
  out.at_peak = replay.at_peak;
  out.modules = ModuleShares(graph, replay.modules);
  if (out.peak_allocated > 0) out.peak_op = Describe(graph, replay.peak, chunks);
  out.cached_at_peak = replay.cached_at_peak;
  out.retries = replay.stats.retries;
  out.iterations = replay.iterations;
  out.settled = replay.settled;
  out.bounded = replay.bounded;
  out.oom = replay.oom.has_value();
  if (out.oom) {
    out.oom_state = *replay.oom;
    out.oom_op = Describe(graph, replay.oom_place, chunks);
  }
  for (const MemorySample& sample : replay.timeline) {
    out.timeline.push_back({CallName(graph, *sample.call, sample.call->first_layer, chunks),
                            sample.peak_allocated, sample.allocated, sample.reserved});
  }
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
                         const cluster::DeviceSpec& device, const Options& options) {
  ORRERY_CHECK(program.index() < graph.programs.size(), "a program of this graph");
  const graph::Binding* binding = nullptr;
  for (const graph::Binding& b : graph.bindings) {
    if (b.program == program) {
      binding = &b;
      break;
    }
  }
  return ReplayOne(graph, program, binding, device, options);
}

Result<std::vector<Footprint>> ReplayAll(const graph::Graph& graph,
                                         const cluster::DeviceSpec& device,
                                         const Options& options) {
  std::vector<const graph::Binding*> first(graph.programs.size());
  for (const graph::Binding& b : graph.bindings) {
    if (first[b.program.index()] == nullptr) first[b.program.index()] = &b;
  }
  // Programs are independent: threads take them in turn, and the answer does not depend on how
  // many.
  std::vector<Result<Footprint>> all(first.size(), Result<Footprint>(Footprint{}));
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < first.size(); i = next++) {
      all[i] = ReplayOne(graph, ProgramId(i), first[i], device, options);
    }
  };
  const std::size_t threads = std::clamp<std::size_t>(
      first.size(), 1,
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads));
  {
    const auto others = StartThreads(threads - 1, [&](std::size_t) { work(); });
    work();
  }
  std::vector<Footprint> footprints;
  footprints.reserve(all.size());
  for (Result<Footprint>& one : all) {
    if (!one.ok()) return std::move(one).TakeStatus();
    footprints.push_back(*std::move(one));
  }
  return footprints;
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
    std::int64_t peak = 0;
    ORRERY_RETURN_IF_ERROR(Summer(graph, p).Run(&peak));
    return peak;
  }
  std::int64_t used = 0;
  const std::int64_t prologue = PeakOf(p.prologue, nets, &used);
  return std::max(prologue, PeakOf(p.calls, nets, &used));
}

}  // namespace orrery::memory
