// Small graphs for the memory tests: blocks from alloc/free lists, a random valid program, a stage
// of a large pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/rng.h"
#include "orrery/graph/graph.h"

namespace orrery::memory {

using graph::Buffer;
using graph::Lifetime;
using graph::MemoryKind;
using graph::OpKind;

// Builds one block: `+` of a buffer allocates, `-` frees.
class BlockBuilder {
 public:
  BlockBuilder(graph::Graph* graph, const std::string& name, graph::Pass pass) : graph_(graph) {
    block_.name = graph->Intern(name);
    block_.pass = pass;
  }
  BlockBuilder& Alloc(std::uint32_t id, Lifetime lifetime, std::int64_t bytes,
                      MemoryKind kind = MemoryKind::kActivation, const char* module = "layer") {
    return Add(OpKind::kAlloc, {.id = id, .kind = kind, .lifetime = lifetime, .bytes = bytes},
               module);
  }
  BlockBuilder& Free(std::uint32_t id, Lifetime lifetime, std::int64_t bytes) {
    return Add(OpKind::kFree, {.id = id, .lifetime = lifetime, .bytes = bytes}, "layer");
  }
  BlockId Done() {
    block_.Seal();
    graph_->blocks.push_back(block_);
    return BlockId(graph_->blocks.size() - 1);
  }

 private:
  BlockBuilder& Add(OpKind kind, Buffer buffer, const char* module) {
    buffer.name = graph_->Intern("b" + std::to_string(buffer.id));
    graph::Op op;
    op.kind = kind;
    op.index = static_cast<std::uint32_t>(block_.buffers.size());
    op.module = graph_->Intern(module);
    block_.buffers.push_back(buffer);
    block_.ops.push_back(op);
    return *this;
  }
  graph::Graph* graph_;
  graph::Block block_;
};

inline graph::Call CallOf(BlockId block, int first, int repeat, int microbatch, int chunk = 0) {
  graph::Call call;
  call.block = block;
  call.first_layer = static_cast<std::int16_t>(first);
  call.repeat = static_cast<std::uint16_t>(repeat);
  call.microbatch = microbatch;
  call.chunk = static_cast<std::int16_t>(chunk);
  return call;
}

// A random program that frees all that it allocates: forward calls over runs of layers, backward
// calls over the same layers cut elsewhere, micro-batches overlapping as in a pipeline.
inline graph::Graph RandomGraph(std::uint64_t seed) {
  CounterRng rng(seed);
  graph::Graph g;
  const auto bytes = [&] { return static_cast<std::int64_t>(rng.Below(5000)); };
  BlockBuilder weights(&g, "weights", graph::Pass::kForward);
  weights.Alloc(1, Lifetime::kForever, bytes(), MemoryKind::kParameter);
  weights.Alloc(2, Lifetime::kForever, bytes(), MemoryKind::kGradient);
  const BlockId prologue = weights.Done();
  BlockBuilder forward(&g, "forward", graph::Pass::kForward);
  BlockBuilder backward(&g, "backward", graph::Pass::kBackward);
  const std::uint32_t kept = 1 + static_cast<std::uint32_t>(rng.Below(6));
  for (std::uint32_t i = 0; i < kept; ++i) {
    const std::int64_t temporary = bytes(), saved = bytes(), gradient = bytes();
    forward.Alloc(i, Lifetime::kCall, temporary, MemoryKind::kTemporary);
    forward.Alloc(i, Lifetime::kMicrobatch, saved);
    forward.Free(i, Lifetime::kCall, temporary);
    backward.Alloc(i, Lifetime::kCall, gradient, MemoryKind::kTemporary);
    backward.Free(i, Lifetime::kMicrobatch, saved);
    backward.Free(i, Lifetime::kCall, gradient);
  }
  const BlockId f = forward.Done(), b = backward.Done();
  graph::Program p;
  p.name = "random";
  const int layers = 1 + static_cast<int>(rng.Below(8));
  const int chunks = 1 + static_cast<int>(rng.Below(2));
  const int batches = 1 + static_cast<int>(rng.Below(6));
  const int ahead = 1 + static_cast<int>(rng.Below(4));
  for (int c = 0; c < chunks; ++c) p.prologue.push_back(CallOf(prologue, 0, layers, -1, c));
  const auto pass = [&](BlockId block, int microbatch, bool down) {
    for (int c = 0; c < chunks; ++c) {
      for (int done = 0; done < layers;) {
        const int count =
            1 + static_cast<int>(rng.Below(static_cast<std::uint64_t>(layers - done)));
        const int first = down ? layers - 1 - done : done;
        p.calls.push_back(CallOf(block, first, count, microbatch, c));
        done += count;
      }
    }
  };
  for (int i = 0; i < batches + ahead; ++i) {
    if (i < batches) pass(f, i, false);
    if (i >= ahead) pass(b, i - ahead, true);
  }
  g.programs.push_back(std::move(p));
  return g;
}

// One stage of GPT-3 175B on eight: 12 layers of 30 buffers, 1F1B with 96 micro-batches and
// `warmup` of them in flight; calls of single layers when `split`, as full recompute makes them.
inline graph::Graph PipelineStage(int warmup, bool split) {
  graph::Graph g;
  BlockBuilder weights(&g, "weights", graph::Pass::kForward);
  weights.Alloc(1, Lifetime::kForever, 450'000'000, MemoryKind::kParameter);
  BlockBuilder forward(&g, "layer.forward", graph::Pass::kForward);
  BlockBuilder backward(&g, "layer.backward", graph::Pass::kBackward);
  for (std::uint32_t i = 0; i < 30; ++i) {
    forward.Alloc(i, Lifetime::kCall, 1'000'000, MemoryKind::kTemporary);
    forward.Alloc(i, Lifetime::kMicrobatch, 2'000'000);
    forward.Free(i, Lifetime::kCall, 1'000'000);
    backward.Free(i, Lifetime::kMicrobatch, 2'000'000);
  }
  BlockBuilder message(&g, "pipeline.receive", graph::Pass::kForward);
  message.Alloc(0, Lifetime::kCall, 50'331'648, MemoryKind::kCommunication);
  message.Free(0, Lifetime::kCall, 50'331'648);
  const BlockId w = weights.Done(), f = forward.Done(), b = backward.Done(), r = message.Done();
  graph::Program p;
  p.name = "stage 0";
  p.prologue.push_back(CallOf(w, 0, 12, -1));
  const int step = split ? 1 : 12;
  for (int i = 0; i < 96 + warmup; ++i) {
    if (i < 96) {
      p.calls.push_back(CallOf(r, 0, 1, i));
      for (int l = 0; l < 12; l += step) p.calls.push_back(CallOf(f, l, step, i));
    }
    if (i < warmup) continue;
    p.calls.push_back(CallOf(r, 0, 1, i - warmup));
    for (int l = 11; l >= 0; l -= step) p.calls.push_back(CallOf(b, l, step, i - warmup));
  }
  g.programs.push_back(std::move(p));
  return g;
}

}  // namespace orrery::memory
