// Graphs for tests: a pipeline of stages with tensor- and data-parallel groups, its blocks drawn at
// random but always consistent. Not part of the library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/graph/graph.h"

namespace orrery::graph {

struct SampleShape {
  int stages = 2, dp = 2, tp = 2;
  int layers = 3, microbatches = 4;
  bool ring = false;   // the last stage sends on to the first (two stages: one peer in both slots)
  bool paces = false;  // layers end with a kHostPace
  std::size_t ops = 12;  // kernels in a layer
};

class SampleBuilder {
 public:
  SampleBuilder(std::uint64_t seed, const SampleShape& shape) : rng_(seed), shape_(shape) {}

  Graph Build() {
    const BlockId fixed = Static();
    const BlockId forward = Layer(Pass::kForward), backward = Layer(Pass::kBackward);
    const BlockId wait = WaitBlock();
    for (int s = 0; s < shape_.stages; ++s) {
      Program p;
      p.name = "stage " + std::to_string(s);
      p.stage = s;
      p.events = 3;
      p.prologue.push_back({.block = fixed});
      for (std::int32_t m = 0; m < shape_.microbatches; ++m) {
        if (s > 0 || shape_.ring) AddCall(&p, Exchange(PeerSlot::kPrevious, false, 0), m);
        AddLayers(&p, forward, m, 0);
        if (s + 1 < shape_.stages || shape_.ring)
          AddCall(&p, Exchange(PeerSlot::kNext, true, 0), m);
      }
      for (std::int32_t m = 0; m < shape_.microbatches; ++m) {
        if (s + 1 < shape_.stages) AddCall(&p, Exchange(PeerSlot::kNext, false, 1), m);
        AddLayers(&p, backward, m, shape_.layers - 1);
        if (s > 0) AddCall(&p, Exchange(PeerSlot::kPrevious, true, 1), m);
      }
      p.calls.push_back({.block = Reduce(s), .event = 2});
      p.calls.push_back({.block = wait, .event = 2});
      graph_.programs.push_back(std::move(p));
    }
    Bind();
    for (Block& block : graph_.blocks) block.Seal();
    return std::move(graph_);
  }

 private:
  void AddCall(Program* p, BlockId block, std::int32_t microbatch) {
    p->calls.push_back({.block = block, .microbatch = microbatch});
  }
  void AddLayers(Program* p, BlockId block, std::int32_t microbatch, int first) {
    Call call;
    call.block = block;
    call.microbatch = microbatch;
    call.repeat = static_cast<std::uint16_t>(shape_.layers);
    call.first_layer = static_cast<std::int16_t>(first);
    call.chunk = 1;
    p->calls.push_back(call);
  }
  std::int64_t Size() { return static_cast<std::int64_t>(rng_.Below(1u << rng_.Below(28))); }
  template <class T>
  T Any(T last) {
    return static_cast<T>(rng_.Below(static_cast<std::uint64_t>(last) + 1));
  }
  Block& New(const char* name, Pass pass) {
    Block block;
    block.name = graph_.Intern(name);
    block.pass = pass;
    graph_.blocks.push_back(std::move(block));
    return graph_.blocks.back();
  }
  BlockId Last() const { return BlockId(graph_.blocks.size() - 1); }
  void Add(Block* b, OpKind kind, std::size_t index, const std::string& name,
           std::int32_t event = kNoEvent) {
    Op op;
    op.kind = kind;
    op.event = event;
    op.index = static_cast<std::uint32_t>(index);
    op.name = graph_.Intern(name);
    if (rng_.Below(3) > 0) op.module = graph_.Intern("module." + std::to_string(rng_.Below(3)));
    b->ops.push_back(op);
  }
  void AddBuffer(Block* b, OpKind kind, std::uint32_t id, Lifetime lifetime, std::int64_t bytes) {
    b->buffers.push_back({id, static_cast<MemoryKind>(id % 6), lifetime, bytes,
                          graph_.Intern("buffer " + std::to_string(id))});
    Add(b, kind, b->buffers.size() - 1, "");
  }

  Kernel AnyKernel() {
    switch (rng_.Below(4)) {
      case 0:
        return Gemm{Size(),
                    Size(),
                    Size(),
                    1 + Size() % 4,
                    Any(kLastDType),
                    Any(GemmLayout::kTN),
                    rng_.Below(2) == 0,
                    Any(kLastDType),
                    Any(GemmKind::kPiece)};
      case 1:
        return Attention{Size(),
                         Size(),
                         Size(),
                         Size(),
                         Size(),
                         128,
                         Any(kLastDType),
                         rng_.Below(2) == 0,
                         Any(Pass::kOptimizer),
                         Any(AttentionKernel::kFlash4),
                         Size(),
                         Size()};
      case 2:
        return MemoryBound{Any(kLastMemoryOp),   Size(), Size(), Size(), Size(), Any(kLastDType),
                           Any(Pass::kOptimizer)};
      default:
        return Timed{Size()};
    }
  }

  BlockId Static() {
    Block& b = New("static", Pass::kOptimizer);
    for (std::uint32_t id = 0; id < 4; ++id) {
      AddBuffer(&b, OpKind::kAlloc, id, Lifetime::kForever, Size());
    }
    return Last();
  }

  BlockId Layer(Pass pass) {
    Block& b = New(pass == Pass::kForward ? "layer.forward" : "layer \"backward\"\n\\", pass);
    const OpKind act = pass == Pass::kForward ? OpKind::kAlloc : OpKind::kFree;
    for (std::uint32_t id = 10; id < 13; ++id)
      AddBuffer(&b, act, id, Lifetime::kMicrobatch, 64 * id);
    AddBuffer(&b, OpKind::kAlloc, 20, Lifetime::kCall, Size());
    for (std::size_t i = 0; i < shape_.ops; ++i) {
      b.kernels.push_back(AnyKernel());
      Add(&b, OpKind::kKernel, rng_.Below(b.kernels.size()), "kernel " + std::to_string(i));
      if (rng_.Below(4) != 0) continue;
      if (rng_.Below(2) == 0) {
        b.host_ps.push_back(Size());
        Add(&b, OpKind::kHost, b.host_ps.size() - 1, "host");
        continue;
      }
      const bool blocking = rng_.Below(2) == 0;
      b.comms.push_back({.collective = Any(Collective::kBroadcast),
                         .group = GroupSlot::kTp,
                         .blocking = blocking,
                         .event = blocking ? kNoEvent : 0,
                         .dtype = Any(kLastDType),
                         .bytes = {.value = Size()}});
      Add(&b, OpKind::kComm, b.comms.size() - 1, "collective");
      if (!blocking) Add(&b, OpKind::kWait, 0, "wait", 0);
    }
    Add(&b, OpKind::kFree, 3, "");
    if (rng_.Below(2) == 0) Add(&b, OpKind::kHostSync, 0, "synchronise");
    if (shape_.paces) Add(&b, OpKind::kHostPace, 0, "rate_limiter");
    return Last();
  }

  BlockId WaitBlock() {
    Block& b = New("wait", Pass::kForward);
    Add(&b, OpKind::kWait, 0, "wait", kCallEvent);
    return Last();
  }

  BlockId Exchange(PeerSlot peer, bool send, std::int32_t tag) {
    Block& b = New(send ? "send" : "receive", Pass::kForward);
    for (int i = 0; i < 2; ++i) {
      b.comms.push_back({.collective = send ? Collective::kSend : Collective::kRecv,
                         .group = GroupSlot::kPp,
                         .peer = peer,
                         .stream = 4,
                         .tag = tag,
                         .batch = 7,
                         .bytes = {.value = 4096 + 512 * i}});
      Add(&b, OpKind::kComm, b.comms.size() - 1, "message");
    }
    return Last();
  }

  // Stages split what they reduce differently; all of a data-parallel group are of one stage.
  BlockId Reduce(int stage) {
    Block& b = New("reduce", Pass::kOptimizer);
    for (int i = 0; i <= stage; ++i) {
      const Quantity bytes{.value = 1 << (10 + i)};
      b.comms.push_back({.group = GroupSlot::kDp,
                         .stream = 2,
                         .blocking = i < stage,
                         .event = i < stage ? kNoEvent : kCallEvent,
                         .bytes = bytes});
      Add(&b, OpKind::kComm, b.comms.size() - 1, "reduce");
    }
    b.comms.push_back(
        {.group = GroupSlot::kModel, .stream = 3, .dtype = DType::kFp32, .bytes = {.value = 4}});
    Add(&b, OpKind::kComm, b.comms.size() - 1, "norm");
    return Last();
  }

  RankId Rank(int stage, int d, int t) const {
    return RankId(static_cast<std::size_t>((stage * shape_.dp + d) * shape_.tp + t));
  }

  void Bind() {
    const auto ranks = static_cast<std::size_t>(shape_.stages * shape_.dp * shape_.tp);
    graph_.jobs.push_back({"job \"x\"", static_cast<std::uint32_t>(ranks), 1 << 20, 1.0 / 3});
    graph_.bindings.resize(ranks);
    std::vector<RankId> all;
    for (std::size_t r = 0; r < ranks; ++r) {
      all.push_back(RankId(r));
      Binding& b = graph_.bindings[r];
      b.program = ProgramId(r / static_cast<std::size_t>(shape_.dp * shape_.tp));
      b.job = JobId(0);
      b.logical_rank = static_cast<std::uint32_t>(ranks - 1 - r);
    }
    AddGroup(GroupSlot::kModel, all);
    for (int s = 0; s < shape_.stages; ++s) {
      for (int d = 0; d < shape_.dp; ++d) {
        std::vector<RankId> members;
        for (int t = 0; t < shape_.tp; ++t) members.push_back(Rank(s, d, t));
        AddGroup(GroupSlot::kTp, members);
        for (const RankId r : members) SetPeers(r, s, d, static_cast<int>(r.value) % shape_.tp);
      }
      for (int t = 0; t < shape_.tp; ++t) {
        std::vector<RankId> members;
        for (int d = 0; d < shape_.dp; ++d) members.push_back(Rank(s, d, t));
        AddGroup(GroupSlot::kDp, members);
      }
    }
  }
  void SetPeers(RankId rank, int s, int d, int t) {
    const int n = shape_.stages;
    std::array<RankId, kPeerSlots>& peers = graph_.bindings[rank.index()].peers;
    if (s > 0 || shape_.ring) peers[0] = Rank((s + n - 1) % n, d, t);
    if (s + 1 < n || shape_.ring) peers[1] = Rank((s + 1) % n, d, t);
  }
  void AddGroup(GroupSlot slot, const std::vector<RankId>& members) {
    const GroupId id = graph_.groups.Add(slot, members);
    for (const RankId r : members) {
      graph_.bindings[r.index()].groups[static_cast<std::size_t>(slot)] = id;
    }
  }

  CounterRng rng_;
  SampleShape shape_;
  Graph graph_;
};

inline Graph SampleGraph(std::uint64_t seed, const SampleShape& shape = {}) {
  return SampleBuilder(seed, shape).Build();
}

// A shape drawn from the seed: 2 to 24 ranks.
inline SampleShape AnyShape(std::uint64_t seed) {
  CounterRng rng(seed ^ 0x5a5a);
  SampleShape shape;
  shape.stages = static_cast<int>(1 + rng.Below(3));
  shape.dp = static_cast<int>(1 + rng.Below(4));
  shape.tp = 2;
  shape.ring = shape.stages > 1 && rng.Below(3) == 0;
  shape.paces = rng.Below(3) == 0;
  return shape;
}

}  // namespace orrery::graph
