// Internal to the graph's text and binary forms: the fields of each record, once, with their names.
//
// A visitor is called as visit(name, field, default) for each field in order; the text form leaves
// out fields that equal their default, the binary form those that equal the record's before.
#pragma once

#include <array>
#include <cstddef>
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
constexpr int Count(Collective) { return kCollectives; }
constexpr int Count(PeerSlot) { return static_cast<int>(kPeerSlots); }
constexpr int Count(PeerKind) { return 5; }
constexpr int Count(StreamOrder) { return 4; }
constexpr int Count(ReduceOp) { return 6; }
constexpr int Count(Issue) { return 2; }
constexpr int Count(MemoryKind) { return static_cast<int>(MemoryKind::kCount); }
constexpr int Count(Lifetime) { return 4; }
constexpr int Count(OpKind) { return kOpKinds; }
constexpr int Count(DType) { return static_cast<int>(kLastDType) + 1; }
constexpr int Count(Pass) { return static_cast<int>(kLastPass) + 1; }
constexpr int Count(Launch) { return 3; }
constexpr int Count(GemmLayout) { return 3; }
constexpr int Count(GemmKind) { return 4; }
constexpr int Count(AttentionKernel) { return 5; }
constexpr int Count(MemoryOp) { return static_cast<int>(kLastMemoryOp) + 1; }

// Numbers that the text form writes by a word where they have a meaning of their own: an event
// (`call`), a stream (`none`, `host`), a tag (`any`).
enum class Meaning { kEvent, kStream, kTag };
template <Meaning meaning, class Int>
struct Field {
  Int& number;
};
template <class Int>
Field<Meaning::kEvent, Int> EventField(Int& number) {
  return {number};
}
template <class Int>
Field<Meaning::kStream, Int> StreamField(Int& number) {
  return {number};
}
template <class Int>
Field<Meaning::kTag, Int> TagField(Int& number) {
  return {number};
}
struct Word {
  std::int64_t number;
  std::string_view word;
};
constexpr std::array<Word, 2> Words(Meaning meaning) {
  if (meaning == Meaning::kEvent) return {{{kCallEvent, "call"}, {kCallEvent, "call"}}};
  if (meaning == Meaning::kTag) return {{{kAnyTag, "any"}, {kAnyTag, "any"}}};
  return {{{kNoStream, "none"}, {kHostStream, "host"}}};
}

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

template <class V, MaybeConst<Generic> T>
void Visit(V& visit, T& g) {
  const Generic d;
  visit("read", g.bytes_read, d.bytes_read), visit("written", g.bytes_written, d.bytes_written);
  visit("flops", g.flops, d.flops), visit("dtype", g.dtype, d.dtype), visit("pass", g.pass, d.pass);
}

// The kind of communication is written by the caller. What changes most often from one to the next
// stands first: the binary form then needs fewer bytes.
template <class V, MaybeConst<Comm> T>
void Visit(V& visit, T& c) {
  const Comm d;
  visit("bytes", c.bytes, d.bytes), visit("peer", c.peer, d.peer);
  visit("tag", TagField(c.tag), d.tag), visit("event", EventField(c.event), d.event);
  visit("group", c.group, d.group), visit("stream", StreamField(c.stream), d.stream);
  visit("blocking", c.blocking, d.blocking), visit("batch", c.batch, d.batch);
  visit("dtype", c.dtype, d.dtype), visit("shares", c.shares, d.shares);
  visit("returned", c.returned, d.returned), visit("reduce", c.reduce, d.reduce);
  visit("current", StreamField(c.after), d.after), visit("measured", c.measured, d.measured);
}

// Its kind, and what it depends on, are written by the caller.
template <class V, MaybeConst<Op> T>
void Visit(V& visit, T& o) {
  const Op d;
  visit("index", o.index, d.index), visit("event", EventField(o.event), d.event);
  visit("name", o.name, d.name), visit("stream", StreamField(o.stream), d.stream);
  visit("module", o.module, d.module), visit("hold", o.hold, d.hold);
  visit("priority", o.priority, d.priority);
}

template <class V, MaybeConst<Quantity> T>
void Visit(V& visit, T& q) {
  visit("ps", q, Quantity());
}

template <class V, MaybeConst<Buffer> T>
void Visit(V& visit, T& b) {
  const Buffer d;
  visit("id", b.id, d.id), visit("kind", b.kind, d.kind), visit("life", b.lifetime, d.lifetime);
  visit("bytes", b.bytes, d.bytes), visit("buffer", b.name, d.name);
  visit("pool", StreamField(b.stream), d.stream);
}

template <class V, MaybeConst<Call> T>
void Visit(V& visit, T& c) {
  const Call d;
  visit("block", c.block, d.block), visit("repeat", c.repeat, d.repeat);
  visit("event", EventField(c.event), d.event), visit("layer", c.first_layer, d.first_layer);
  visit("chunk", c.chunk, d.chunk), visit("mb", c.microbatch, d.microbatch);
}

template <class V, MaybeConst<JobInfo> T>
void Visit(V& visit, T& j) {
  const JobInfo d;
  visit("ranks", j.ranks, d.ranks), visit("tokens", j.tokens_per_step, d.tokens_per_step);
  visit("flops", j.model_flops_per_step, d.model_flops_per_step), visit("once", j.once, d.once);
  visit("noise", j.noise, d.noise);
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
  visit("more", b.more_groups, d.more_groups), visit("row", b.row, d.row);
}

template <class V, MaybeConst<Stream> T>
void Visit(V& visit, T& s) {
  const Stream d;
  visit("name", s.name, d.name), visit("order", s.order, d.order);
}

template <class V, MaybeConst<Hold> T>
void Visit(V& visit, T& h) {
  const Hold d;
  visit("cpu", h.cpu, d.cpu), visit("nic", h.nic, d.nic);
}

template <class V, MaybeConst<Routed> T>
void Visit(V& visit, T& r) {
  const Routed d;
  visit("op", r.op, d.op), visit("routing", r.routing, d.routing);
}

template <class V, MaybeConst<Assumption> T>
void Visit(V& visit, T& a) {
  const Assumption d;
  visit("op", a.op, d.op), visit("text", a.text, d.text);
}

template <class V, MaybeConst<Routing> T>
void Visit(V& visit, T& r) {
  const Routing d;
  visit("layer", r.layer, d.layer), visit("group", r.group, d.group);
  visit("tokens", r.tokens, d.tokens), visit("experts", r.experts, d.experts);
  visit("top_k", r.top_k, d.top_k), visit("capacity", r.capacity, d.capacity);
  visit("token_bytes", r.token_bytes, d.token_bytes);
}

// One name a kind of kernel, in the order of the variant.
inline constexpr std::array<std::string_view, 5> kKernelNames = {"gemm", "attention", "memory",
                                                                 "timed", "generic"};

}  // namespace orrery::graph::fields
