#include "orrery/memory/memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <limits>
#include <map>
#include <tuple>

#include "orrery/memory/allocator_replay.h"
#include "orrery/memory/layer_states.h"
#include "orrery/memory/library_memory.h"
#include "orrery/memory/repeats.h"
#include "orrery/memory/test_graphs.h"

namespace orrery::memory {
namespace {

constexpr std::int64_t kSegment = 2 << 20;  // of the small pool

// Libraries outside PyTorch's allocator, so that programs are all that it sees.
const Options kBare{.libraries = {{.cublas_in_torch = false}}};

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

cluster::DeviceSpec Device(std::int64_t memory_bytes = 80 * kGiB) {
  cluster::DeviceSpec d;
  d.name = "test";
  d.arch = cluster::Arch::kHopper;
  d.memory_bytes = memory_bytes;
  return d;
}

std::int64_t Part(const Footprint& f, MemoryKind kind) {
  return f.at_peak[static_cast<std::size_t>(kind)];
}

// Two layers: 1,000 B of weights each (1,024 rounded), forward keeps 600 (1,024) and needs 3,000
// (3,072) meanwhile.
graph::Graph TwoLayers() {
  graph::Graph g;
  BlockBuilder weights(&g, "weights", graph::Pass::kForward);
  weights.Alloc(0, Lifetime::kForever, 1000, MemoryKind::kParameter);
  BlockBuilder forward(&g, "layer.forward", graph::Pass::kForward);
  forward.Alloc(0, Lifetime::kMicrobatch, 600, MemoryKind::kActivation, "layers.attention");
  forward.Alloc(1, Lifetime::kCall, 3000, MemoryKind::kTemporary, "layers.mlp");
  forward.Free(1, Lifetime::kCall, 3000);
  BlockBuilder backward(&g, "layer.backward", graph::Pass::kBackward);
  backward.Free(0, Lifetime::kMicrobatch, 600);
  const BlockId w = weights.Done(), f = forward.Done(), b = backward.Done();
  graph::Program p;
  p.name = "stage 0";
  p.prologue = {CallOf(w, 0, 2, -1)};
  p.calls = {CallOf(f, 0, 2, 0), CallOf(b, 1, 2, 0)};
  g.programs.push_back(p);
  return g;
}

// Eight layers gather 30 MiB each and free it. On one stream one block serves all of them. Where
// another stream reads it, it comes back when the GPU has come to the free, 1,088 launches later at
// the latest: with 10 launches a layer never within the iteration, with 600 two layers later, with
// 1,100 at once. Allocated bytes are the same.
TEST(Memory, FreesThatLingerTakeNewSegments) {
  constexpr std::int64_t kGathered = 30 << 20;
  const auto reserved = [&](Lifetime lifetime, int kernels) {
    graph::Graph g;
    BlockBuilder layer(&g, "layer.forward", graph::Pass::kForward);
    layer.Alloc(0, lifetime, kGathered, MemoryKind::kParameter);
    layer.Free(0, lifetime, kGathered);
    const BlockId block = layer.Done();
    graph::Block& b = g.blocks[block.index()];
    for (int i = 0; i < kernels; ++i) {
      b.kernels.push_back(graph::Timed{1});
      b.ops.push_back({graph::OpKind::kKernel,
                       graph::kNoEvent,
                       static_cast<std::uint32_t>(i),
                       g.Intern("kernel"),
                       {}});
    }
    graph::Program p;
    p.calls = {CallOf(block, 0, 8, 0)};
    graph::Block sync;
    sync.name = g.Intern("sync");
    sync.ops.push_back({graph::OpKind::kHostSync, graph::kNoEvent, 0, g.Intern("sync"), {}});
    sync.Seal();
    g.blocks.push_back(sync);
    p.calls.push_back(CallOf(BlockId(g.blocks.size() - 1), 0, 1, -1));
    g.programs.push_back(p);
    const auto f = Replay(g, ProgramId(0), Device(), kBare);
    EXPECT_TRUE(f.ok()) << f.status().message();
    EXPECT_EQ(f->peak_allocated, kGathered);
    return f->peak_reserved;
  };
  EXPECT_EQ(reserved(Lifetime::kCall, 10), kGathered);
  EXPECT_EQ(reserved(Lifetime::kLingering, 10), 8 * kGathered);
  EXPECT_EQ(reserved(Lifetime::kLingering, 600), 2 * kGathered);
  EXPECT_EQ(reserved(Lifetime::kLingering, 1100), kGathered);
}

// 2·1,024 of weights, both layers' 1,024, and the second layer's 3,072.
TEST(Memory, PeakHasPartsAndNamesItsOperation) {
  const auto f = Replay(TwoLayers(), ProgramId(0), Device(), kBare);
  ASSERT_TRUE(f.ok()) << f.status().message();
  EXPECT_EQ(f->peak_allocated, 2 * 1024 + 2 * 1024 + 3072);
  EXPECT_EQ(Part(*f, MemoryKind::kParameter), 2048);
  EXPECT_EQ(Part(*f, MemoryKind::kActivation), 2048);
  EXPECT_EQ(Part(*f, MemoryKind::kTemporary), 3072);
  EXPECT_EQ(f->peak_op, "layers.mlp: b1 (layer.forward, layer 1, micro-batch 0)");
  EXPECT_EQ(f->peak_reserved, kSegment);
  EXPECT_FALSE(f->oom);
  EXPECT_EQ(f->oom_op, "");
  // Hopper context, cuBLAS workspaces of two threads; no communication.
  EXPECT_EQ(f->context_bytes, (530 + 2 * 32) << 20);
}

// Room for one segment of 2 MiB beside the context, and 3 MiB wanted by the third layer.
TEST(Memory, OutOfMemoryNamesTheFirstOperationThatDoesNotFit) {
  graph::Graph g;
  BlockBuilder forward(&g, "layer.forward", graph::Pass::kForward);
  forward.Alloc(0, Lifetime::kMicrobatch, 500'000, MemoryKind::kActivation, "layers.norm");
  forward.Alloc(1, Lifetime::kMicrobatch, 500'000, MemoryKind::kActivation, "layers.mlp");
  const BlockId f = forward.Done();
  BlockBuilder backward(&g, "layer.backward", graph::Pass::kBackward);
  backward.Free(0, Lifetime::kMicrobatch, 500'000).Free(1, Lifetime::kMicrobatch, 500'000);
  const BlockId b = backward.Done();
  graph::Program p;
  p.calls = {CallOf(f, 0, 8, 3), CallOf(b, 7, 8, 3)};
  g.programs.push_back(p);
  const std::int64_t context = CudaContextBytes(cluster::Arch::kHopper) + 2 * (32 << 20);
  const auto fits = Replay(g, ProgramId(0), Device(context + 4 * kSegment), kBare);
  ASSERT_TRUE(fits.ok());
  EXPECT_FALSE(fits->oom);
  // 2,097,152 B hold four times 500,224 B; the fifth is layer 2's first.
  const auto small = Replay(g, ProgramId(0), Device(context + 2 * kSegment - 1), kBare);
  ASSERT_TRUE(small.ok());
  EXPECT_TRUE(small->oom);
  EXPECT_EQ(small->oom_op, "layers.norm: b0 (layer.forward, layer 2, micro-batch 3)");
  EXPECT_EQ(small->peak_allocated,
            16 * 500'224);  // the replay goes on, to say what would be needed
  // Less than the context itself: the very first operation.
  const auto none = Replay(g, ProgramId(0), Device(1), kBare);
  EXPECT_EQ(none->oom_op, "layers.norm: b0 (layer.forward, layer 0, micro-batch 3)");
}

TEST(Memory, FreeWithoutAllocNamesBlockBufferAndCall) {
  graph::Graph g = TwoLayers();
  g.programs[0].calls = {CallOf(BlockId(1), 0, 1, 0), CallOf(BlockId(2), 1, 2, 0)};
  const auto f = Replay(g, ProgramId(0), Device(), kBare);
  ASSERT_FALSE(f.ok());
  EXPECT_EQ(f.status().message(),
            "program 'stage 0', iteration 0, call 1 (layer.backward, layer 1, micro-batch 0): free "
            "of buffer 'b0' (id 0) that is not allocated; allocate it in this call, or for a "
            "micro-batch in an earlier call of the same layer, micro-batch and chunk");
}

TEST(Memory, WhatAMicrobatchLeavesBehindFailsInTheNextIteration) {
  graph::Graph g = TwoLayers();
  g.programs[0].calls.pop_back();
  const auto f = Replay(g, ProgramId(0), Device(), kBare);
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.status().message().find("iteration 1, call 0"), std::string::npos);
  EXPECT_NE(f.status().message().find("still lives"), std::string::npos);
}

TEST(Memory, ACallFreesItsOwn) {
  graph::Graph g;
  BlockBuilder leak(&g, "leak", graph::Pass::kForward);
  leak.Alloc(7, Lifetime::kCall, 10);
  graph::Program p;
  p.calls = {CallOf(leak.Done(), 0, 1, -1)};
  g.programs.push_back(p);
  const auto f = Replay(g, ProgramId(0), Device(), kBare);
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.status().message().find("buffer 7 lives for a call"), std::string::npos);
}

TEST(Memory, DamagedNumbersAreErrors) {
  graph::Graph g = TwoLayers();
  g.programs[0].calls[0].microbatch = 2'000'000'000;
  EXPECT_FALSE(Replay(g, ProgramId(0), Device(), kBare).ok());
  g.programs[0].calls[0].microbatch = -2;
  EXPECT_FALSE(Replay(g, ProgramId(0), Device(), kBare).ok());
  g = TwoLayers();
  g.programs[0].calls[0].chunk = -1;
  EXPECT_FALSE(Replay(g, ProgramId(0), Device(), kBare).ok());
  g = TwoLayers();
  g.programs[0].calls[0].block = BlockId(99);
  EXPECT_FALSE(Replay(g, ProgramId(0), Device(), kBare).ok());
  g = TwoLayers();
  for (const std::int64_t bytes : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    g.blocks[1].buffers[0].bytes = bytes;
    EXPECT_FALSE(Replay(g, ProgramId(0), Device(), kBare).ok());
  }
}

// Once "buffer has 4398046511105 bytes; sizes are from 0 to 4 TiB", as if the graph were broken.
TEST(Memory, MoreThanAnyDeviceHasDoesNotFit) {
  graph::Graph g = TwoLayers();
  g.blocks[1].buffers[0].bytes = (std::int64_t{1} << 42) + 1;
  const auto f = Replay(g, ProgramId(0), Device(), kBare);
  ASSERT_FALSE(f.ok());
  EXPECT_EQ(f.status().code(), Code::kInfeasible);
  EXPECT_NE(f.status().message().find("out of device memory: stage 0, layer.forward, layer 0, "),
            std::string::npos);
}

// State created at first use (Adam's moments, gradients) counts once, from then on.
TEST(Memory, LastingStateIsCreatedOnce) {
  graph::Graph g = TwoLayers();
  BlockBuilder adam(&g, "adam", graph::Pass::kOptimizer);
  adam.Alloc(5, Lifetime::kForever, 8192, MemoryKind::kOptimizer);
  g.programs[0].calls.push_back(CallOf(adam.Done(), 0, 2, -1));
  const auto f = Replay(g, ProgramId(0), Device(), kBare);
  ASSERT_TRUE(f.ok()) << f.status().message();
  // The peak moves into the second iteration, where the moments are there from the start.
  EXPECT_EQ(f->peak_allocated, 2 * 8192 + 2 * 1024 + 2 * 1024 + 3072);
  EXPECT_EQ(Part(*f, MemoryKind::kOptimizer), 2 * 8192);
  const auto quick = QuickPeak(g, ProgramId(0), BlockNets(g));
  ASSERT_TRUE(quick.ok());
  EXPECT_EQ(*quick, f->peak_allocated);
}

TEST(Memory, CommunicatorsHoldBuffers) {
  graph::Graph g = TwoLayers();
  graph::Comm all_reduce;
  all_reduce.group = graph::GroupSlot::kTp;
  graph::Comm send;
  send.collective = graph::Collective::kSend;
  send.group = graph::GroupSlot::kPp;
  send.peer = graph::PeerSlot::kNext;
  g.blocks[1].comms = {all_reduce, send};
  EXPECT_EQ(NcclBytes(g, g.programs[0], nullptr), (16 + 4) * kNcclConnectionBytes);
  graph::Binding binding;
  binding.program = ProgramId(0);
  EXPECT_EQ(NcclBytes(g, g.programs[0], &binding), 0);  // its slots are empty
  const RankId members[] = {RankId(0), RankId(1)};
  binding.groups[0] = g.groups.Add(graph::GroupSlot::kTp, members);
  EXPECT_EQ(NcclBytes(g, g.programs[0], &binding), 16 * kNcclConnectionBytes);
  g.bindings.push_back(binding);
  const auto all = ReplayAll(g, Device(), kBare);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1u);
  const auto one = Replay(g, ProgramId(0), Device(), kBare);
  EXPECT_EQ((*all)[0].context_bytes, one->context_bytes);
  EXPECT_EQ((*all)[0].peak_allocated, one->peak_allocated);
}

// The slow and obvious replay: every operation, two iterations.
std::int64_t NaivePeak(const graph::Graph& g) {
  using Key = std::tuple<int, int, int, int, std::uint32_t>;
  std::map<Key, std::int64_t> live;
  std::int64_t used = 0, peak = 0;
  const auto run = [&](const std::vector<graph::Call>& calls) {
    for (const graph::Call& call : calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      for (int i = 0; i < call.repeat; ++i) {
        const int layer = call.first_layer + (block.pass == graph::Pass::kBackward ? -i : i);
        for (const graph::Op& op : block.ops) {
          const Buffer& b = block.buffers[op.index];
          const Key key{static_cast<int>(b.lifetime), layer, call.microbatch, call.chunk, b.id};
          if (op.kind == OpKind::kAlloc) {
            live[key] = RoundUp(b.bytes, kRounding);
            used += live[key];
          } else {
            used -= live.at(key);
            live.erase(key);
          }
          peak = std::max(peak, used);
        }
      }
    }
  };
  run(g.programs[0].prologue);
  run(g.programs[0].calls);
  run(g.programs[0].calls);
  return peak;
}

TEST(MemoryProperty, ReplayQuickAndNaivePeaksAreEqual) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const graph::Graph g = RandomGraph(seed);
    const auto f = Replay(g, ProgramId(0), Device(), kBare);
    ASSERT_TRUE(f.ok()) << seed << ": " << f.status().message();
    const auto quick = QuickPeak(g, ProgramId(0), BlockNets(g));
    ASSERT_TRUE(quick.ok());
    EXPECT_EQ(f->peak_allocated, NaivePeak(g)) << seed;
    EXPECT_EQ(f->peak_allocated, *quick) << seed;
    EXPECT_EQ(f->peak_requested, *quick) << seed;
    std::int64_t sum = 0;
    for (const std::int64_t part : f->at_peak) sum += part;
    EXPECT_EQ(sum, f->peak_allocated) << seed;
  }
}

// Large buffers: the allocator's sum of rounded requests peaks where the sum of blocks' nets does,
// and what it counts as allocated adds less than 1 MiB a block.
TEST(MemoryProperty, AllocatorAndQuickPeakAgreeOnRequests) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    graph::Graph g = RandomGraph(seed);
    for (graph::Block& block : g.blocks) {
      for (Buffer& buffer : block.buffers) buffer.bytes *= 7001;
    }
    const auto f = Replay(g, ProgramId(0), Device(std::int64_t{1} << 40), kBare);
    ASSERT_TRUE(f.ok()) << seed << ": " << f.status().message();
    const auto quick = QuickPeak(g, ProgramId(0), BlockNets(g));
    ASSERT_TRUE(quick.ok());
    EXPECT_EQ(f->peak_requested, *quick) << seed;
    const ReplayResult r =
        ReplayAllocator(g, g.programs[0], {.device_bytes = std::int64_t{1} << 40});
    EXPECT_EQ(r.stats.peak_rounded, *quick) << seed;
    EXPECT_GE(f->peak_allocated, *quick) << seed;
    EXPECT_LE(f->peak_allocated, f->peak_reserved) << seed;
    std::int64_t sum = 0;
    for (const std::int64_t part : f->at_peak) sum += part;
    EXPECT_EQ(sum, f->peak_allocated) << seed;
    sum = 0;
    for (const ModuleShare& share : f->modules) sum += share.bytes;
    EXPECT_EQ(sum, f->peak_allocated) << seed;
    EXPECT_TRUE(f->settled) << seed;
  }
}

// Leaving out what repeats changes no number, and leaves out most of a pipeline's steady phase.
TEST(MemoryProperty, SkippingRepeatsChangesNothing) {
  std::vector<graph::Graph> graphs;
  for (const int warmup : {1, 2, 3}) graphs.push_back(PipelineStage(warmup, warmup == 2));
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    graphs.push_back(RandomGraph(seed));
    for (graph::Block& block : graphs.back().blocks) {
      for (Buffer& buffer : block.buffers) buffer.bytes *= 1 + static_cast<int>(seed % 5) * 900;
    }
  }
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    for (const bool expandable : {false, true}) {
      ReplayOptions options{.settings = {.expandable_segments = expandable},
                            .device_bytes = std::int64_t{1} << 38};
      const ReplayResult quick = ReplayAllocator(graphs[i], graphs[i].programs[0], options);
      options.skip = false;
      const ReplayResult full = ReplayAllocator(graphs[i], graphs[i].programs[0], options);
      EXPECT_EQ(quick.stats.peak_allocated, full.stats.peak_allocated) << i;
      EXPECT_EQ(quick.stats.peak_reserved, full.stats.peak_reserved) << i;
      EXPECT_EQ(quick.stats.allocated, full.stats.allocated) << i;
      EXPECT_EQ(quick.at_peak, full.at_peak) << i;
      EXPECT_EQ(quick.cached_at_peak, full.cached_at_peak) << i;
      EXPECT_EQ(quick.iterations, full.iterations) << i;
      EXPECT_EQ(full.skipped_calls, 0);
      skipped += quick.skipped_calls;
      if (i != 1 && i < 3) {  // with three in flight their places rotate for longer than this
        EXPECT_LT(quick.events, full.events / 2) << i;
      }
    }
  }
  EXPECT_GT(skipped, 1000);
}

// GPipe's halves only fill and only empty: however long and quiet, nothing of them repeats. Buffers
// of micro-batches that were skipped were then freed without an alloc.
TEST(Memory, LongHalvesOfGpipeAreNotSkipped) {
  graph::Graph g = TwoLayers();
  const graph::Call forward = g.programs[0].calls[0], backward = g.programs[0].calls[1];
  g.programs[0].calls.clear();
  for (const graph::Call& half : {forward, backward}) {
    for (int m = 0; m < 3 * static_cast<int>(kMaxPeriods); ++m) {
      g.programs[0].calls.push_back(half);
      g.programs[0].calls.back().microbatch = m;
    }
  }
  const ReplayResult r = ReplayAllocator(g, g.programs[0], {.device_bytes = kGiB});
  EXPECT_FALSE(r.bounded);
  EXPECT_TRUE(r.settled);
  EXPECT_EQ(r.stats.allocated, 2 * 1024);
}

TEST(Memory, LibrariesHoldWorkspacesInTorch) {
  const std::int64_t mib = 1 << 20;
  const auto bytes = [&](const Libraries& libraries, cluster::Arch arch) {
    std::int64_t sum = 0;
    for (const std::int64_t one : TorchWorkspaces(libraries, arch)) sum += one;
    return sum;
  };
  EXPECT_EQ(bytes({}, cluster::Arch::kAmpere), 2 * (8 * mib + 128 * 1024));
  EXPECT_EQ(bytes({.deterministic = true}, cluster::Arch::kAmpere), 2 * 32 * mib);
  EXPECT_EQ(bytes({.transformer_engine = true}, cluster::Arch::kAmpere),
            2 * (8 * mib + 128 * 1024) + 4 * mib);
  EXPECT_EQ(bytes({.transformer_engine = true, .userbuffers = true}, cluster::Arch::kHopper),
            (2 + 3) * 32 * mib);
  EXPECT_EQ(bytes({.cublas_in_torch = false}, cluster::Arch::kHopper), 0);
  const graph::Graph g = TwoLayers();
  const auto bare = Replay(g, ProgramId(0), Device(), kBare);
  const auto full =
      Replay(g, ProgramId(0), Device(), {.libraries = {{.transformer_engine = true}}});
  ASSERT_TRUE(bare.ok() && full.ok());
  EXPECT_EQ(full->peak_allocated, bare->peak_allocated + 3 * 32 * mib);
  EXPECT_EQ(full->modules[0].module, "library workspaces");
  EXPECT_EQ(full->modules[0].bytes, 3 * 32 * mib);
  EXPECT_EQ(full->context_bytes, bare->context_bytes - 2 * 32 * mib);
}

TEST(Memory, TimelineHasEveryCallOfAnIteration) {
  const graph::Graph g = TwoLayers();
  const auto f =
      Replay(g, ProgramId(0), Device(), {.libraries = kBare.libraries, .timeline = true});
  ASSERT_TRUE(f.ok());
  ASSERT_EQ(f->timeline.size(), 2u);
  EXPECT_EQ(f->timeline[0].call, "layer.forward, layer 0, micro-batch 0");
  EXPECT_EQ(f->timeline[0].peak_allocated, f->peak_allocated);
  EXPECT_EQ(f->timeline[0].allocated, 2048 + 2048);
  EXPECT_EQ(f->timeline[1].allocated, 2048);
  EXPECT_EQ(f->timeline[1].reserved, kSegment);
}

TEST(Repeats, SteadyPhaseOfAPipeline) {
  const graph::Graph g = PipelineStage(8, false);
  // Receive and forward nine times, of which the last begins the steady phase; then 87 times
  // receive, backward, receive, forward; then receive and backward nine times.
  const std::vector<RepeatedRun> runs = FindRepeats(g.programs[0].calls);
  const std::vector<RepeatedRun> expected = {{0, 2, 9, 1}, {18, 4, 87, 1}, {366, 2, 9, 1}};
  EXPECT_EQ(runs, expected);
  EXPECT_TRUE(FindRepeats({CallOf(BlockId(0), 0, 1, 0), CallOf(BlockId(0), 0, 1, 1)}).empty());
}

TEST(LayerStates, RunsAreCutAndGapsHoldNothing) {
  LayerStates states;
  states.Set({2, 9, 1});
  states.Set({4, 5, 2});
  states.Set({9, 9, kNothing});
  std::vector<LayerRun> runs;
  states.Get(0, 10, &runs);
  const std::vector<LayerRun> expected = {{0, 1, 0}, {2, 3, 1}, {4, 5, 2}, {6, 8, 1}, {9, 10, 0}};
  EXPECT_EQ(runs, expected);
  states.Set({0, 20, kNothing});
  EXPECT_TRUE(states.empty());
}

TEST(LayerStates, AgreesWithAnArray) {
  CounterRng rng(1);
  LayerStates states;
  std::array<StateId, 24> plain{};
  for (int step = 0; step < 3000; ++step) {
    const int first = static_cast<int>(rng.Below(24));
    const int last = first + static_cast<int>(rng.Below(static_cast<std::uint64_t>(24 - first)));
    const StateId state = static_cast<StateId>(rng.Below(3));
    states.Set({first, last, state});
    for (int i = first; i <= last; ++i) plain[static_cast<std::size_t>(i)] = state;
    std::vector<LayerRun> runs;
    states.Get(0, 23, &runs);
    int next = 0;
    for (const LayerRun& run : runs) {
      ASSERT_EQ(run.first, next);
      for (; next <= run.last; ++next) ASSERT_EQ(plain[static_cast<std::size_t>(next)], run.state);
    }
    ASSERT_EQ(next, 24);
  }
}

// Not a gate: CPU seconds are printed, only a hundredfold loss fails.
TEST(Memory, ReplayIsCheap) {
  for (const bool split : {false, true}) {
    const graph::Graph g = PipelineStage(8, split);
    const std::vector<BlockNet> nets = BlockNets(g);
    constexpr int kCount = 20;
    const auto time = [&](const char* what, const auto& body) {
      const std::clock_t start = std::clock();
      std::int64_t sum = 0;
      for (int i = 0; i < kCount; ++i) sum += body();
      const double cpu = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC * 1e6;
      EXPECT_GT(sum, 0);
      EXPECT_LT(cpu / kCount, 500'000);
      std::printf("%s, %zu calls: %.1f us\n", what, g.programs[0].calls.size(), cpu / kCount);
    };
    time("replay", [&] { return Replay(g, ProgramId(0), Device(), kBare)->peak_allocated; });
    time("quick peak", [&] { return *QuickPeak(g, ProgramId(0), nets); });
  }
}

}  // namespace
}  // namespace orrery::memory
