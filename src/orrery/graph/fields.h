// Internal to the graph's text and binary forms: the fields of each record, once, with their names.
//
// A visitor is called as visit(name, field, default) for each field in order; the text form leaves
// out fields that equal their default, the binary form writes all of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "orrery/graph/graph.h"

namespace orrery::graph::fields {

inline std::string_view Name(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kCall:
      return "call";
    case Lifetime::kMicrobatch:
      return "microbatch";
    case Lifetime::kForever:
      return "forever";
    case Lifetime::kLingering:
      return "lingering";
  }
  return "?";
}

// How many values an enumeration has; they count from 0.
constexpr int Count(Collective) { return 11; }
constexpr int Count(GroupSlot) { return static_cast<int>(kGroupSlots); }
constexpr int Count(PeerSlot) { return static_cast<int>(kPeerSlots); }
constexpr int Count(MemoryKind) { return static_cast<int>(MemoryKind::kCount); }
constexpr int Count(Lifetime) { return 4; }
constexpr int Count(OpKind) { return 8; }
constexpr int Count(DType) { return static_cast<int>(kLastDType) + 1; }
constexpr int Count(Pass) { return 3; }
constexpr int Count(Launch) { return 3; }
constexpr int Count(GemmLayout) { return 3; }
constexpr int Count(GemmKind) { return 4; }
constexpr int Count(AttentionKernel) { return 5; }
constexpr int Count(MemoryOp) { return 24; }

// An event number, told apart from other numbers: the text form writes kCallEvent as `call`.
template <class Int>
struct EventField {
  Int& number;
};
template <class Int>
EventField(Int&) -> EventField<Int>;

template <class T, class Record>
concept MaybeConst = std::is_same_v<std::remove_const_t<T>, Record>;

template <class V, MaybeConst<Gemm> T>
void Visit(V& visit, T& g) {
  const Gemm d;
  visit("m", g.m, d.m), visit("n", g.n, d.n), visit("k", g.k, d.k);
  visit("batch", g.batch, d.batch), visit("dtype", g.dtype, d.dtype);
  visit("layout", g.layout, d.layout), visit("accumulate", g.accumulate, d.accumulate);
  visit("out", g.out_dtype, d.out_dtype), visit("kind", g.kind, d.kind);
}

template <class V, MaybeConst<Attention> T>
void Visit(V& visit, T& a) {
  const Attention d;
  visit("batch", a.batch, d.batch), visit("heads", a.heads, d.heads);
  visit("kv_heads", a.kv_heads, d.kv_heads), visit("seq_q", a.seq_q, d.seq_q);
  visit("seq_kv", a.seq_kv, d.seq_kv), visit("head_dim", a.head_dim, d.head_dim);
  visit("dtype", a.dtype, d.dtype), visit("causal", a.causal, d.causal);
  visit("pass", a.pass, d.pass), visit("kernel", a.kernel, d.kernel);
  visit("v_head_dim", a.v_head_dim, d.v_head_dim), visit("window", a.window, d.window);
}

template <class V, MaybeConst<MemoryBound> T>
void Visit(V& visit, T& m) {
  const MemoryBound d;
  visit("op", m.op, d.op), visit("rows", m.rows, d.rows), visit("cols", m.cols, d.cols);
  visit("read", m.bytes_read, d.bytes_read), visit("written", m.bytes_written, d.bytes_written);
  visit("dtype", m.dtype, d.dtype), visit("pass", m.pass, d.pass);
}

template <class V, MaybeConst<Timed> T>
void Visit(V& visit, T& t) {
  visit("ps", t.duration_ps, std::int64_t{0});
}

// The kind of communication is written by the caller.
template <class V, MaybeConst<Comm> T>
void Visit(V& visit, T& c) {
  const Comm d;
  visit("group", c.group, d.group), visit("peer", c.peer, d.peer);
  visit("stream", c.stream, d.stream), visit("tag", c.tag, d.tag), visit("batch", c.batch, d.batch);
  visit("blocking", c.blocking, d.blocking), visit("event", EventField{c.event}, d.event);
  visit("dtype", c.dtype, d.dtype), visit("bytes", c.bytes, d.bytes);
  visit("shares", c.shares, d.shares), visit("returned", c.returned, d.returned);
}

template <class V, MaybeConst<Buffer> T>
void Visit(V& visit, T& b) {
  const Buffer d;
  visit("id", b.id, d.id), visit("kind", b.kind, d.kind), visit("life", b.lifetime, d.lifetime);
  visit("bytes", b.bytes, d.bytes), visit("buffer", b.name, d.name);
}

template <class V, MaybeConst<Call> T>
void Visit(V& visit, T& c) {
  const Call d;
  visit("block", c.block, d.block), visit("repeat", c.repeat, d.repeat);
  visit("event", EventField{c.event}, d.event), visit("layer", c.first_layer, d.first_layer);
  visit("chunk", c.chunk, d.chunk), visit("mb", c.microbatch, d.microbatch);
}

template <class V, MaybeConst<JobInfo> T>
void Visit(V& visit, T& j) {
  const JobInfo d;
  visit("ranks", j.ranks, d.ranks), visit("tokens", j.tokens_per_step, d.tokens_per_step);
  visit("flops", j.model_flops_per_step, d.model_flops_per_step);
}

template <class V, MaybeConst<Program> T>
void Visit(V& visit, T& p) {
  const Program d;
  visit("stage", p.stage, d.stage), visit("events", p.events, d.events);
}

template <class V, MaybeConst<Binding> T>
void Visit(V& visit, T& b) {
  const Binding d;
  visit("program", b.program, d.program), visit("job", b.job, d.job);
  visit("logical", b.logical_rank, d.logical_rank);
  for (std::size_t s = 0; s < kGroupSlots; ++s) {
    visit(graph::Name(static_cast<GroupSlot>(s)), b.groups[s], GroupId());
  }
  for (std::size_t s = 0; s < kPeerSlots; ++s) {
    visit(graph::Name(static_cast<PeerSlot>(s)), b.peers[s], RankId());
  }
  visit("numbers", b.first_number, d.first_number);
}

// One name a kind of kernel, in the order of the variant.
inline constexpr std::array<std::string_view, 4> kKernelNames = {"gemm", "attention", "memory",
                                                                 "timed"};

}  // namespace orrery::graph::fields
