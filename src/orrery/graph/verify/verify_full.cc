// The expensive half of Verify.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <variant>

#include "orrery/graph/verify/verify_facts.h"

namespace orrery::graph::verify {
namespace {

struct KernelFault {
  const char* operator()(const Gemm& g) const {
    if (std::min({g.m, g.n, g.k, g.batch}) < 0) return "a GEMM with a negative size";
    if (g.dtype > kLastDType || g.out_dtype > kLastDType) return "unknown element type";
    if (g.kind > GemmKind::kPiece) return "unknown kind of GEMM";
    return g.layout > GemmLayout::kTN ? "unknown GEMM layout" : nullptr;
  }
  const char* operator()(const Attention& a) const {
    if (std::min({a.batch, a.heads, a.kv_heads, a.seq_q, a.seq_kv, a.head_dim, a.v_head_dim,
                  a.window}) < 0) {
      return "attention with a negative size";
    }
    if (a.dtype > kLastDType) return "unknown element type";
    if (a.pass > kLastPass) return "unknown pass";
    return a.kernel > AttentionKernel::kFlash4 ? "unknown attention kernel" : nullptr;
  }
  const char* operator()(const MemoryBound& m) const {
    if (std::min({m.rows, m.cols, m.bytes_read, m.bytes_written}) < 0) {
      return "a memory-bound kernel with a negative size";
    }
    if (m.dtype > kLastDType) return "unknown element type";
    if (m.pass > kLastPass) return "unknown pass";
    return m.op > kLastMemoryOp ? "unknown memory-bound kernel" : nullptr;
  }
  const char* operator()(const Generic& g) const {
    if (std::min({g.bytes_read, g.bytes_written, g.flops}) < 0) {
      return "a generic kernel with a negative size";
    }
    if (g.dtype > kLastDType) return "unknown element type";
    return g.pass > kLastPass ? "unknown pass" : nullptr;
  }
  const char* operator()(const Timed& t) const {
    return t.duration_ps < 0 ? "a kernel with a negative duration" : nullptr;
  }
};

Status CheckTables(const Graph& graph, const Block& block, bool hashes) {
  for (std::size_t k = 0; k < block.kernels.size(); ++k) {
    if (const char* fault = std::visit(KernelFault{}, block.kernels[k])) {
      return InvalidInput("kernel {}: {}", k, fault);
    }
  }
  for (std::size_t i = 0; i < block.comms.size(); ++i) {
    if (block.comms[i].bytes.value <= kMostBytes) continue;
    return InvalidInput("communication {}: {} bytes, more than 2^52", i,
                        block.comms[i].bytes.value);
  }
  for (std::size_t i = 0; i < block.buffers.size(); ++i) {
    const Buffer& b = block.buffers[i];
    if (b.bytes < 0 || b.kind >= MemoryKind::kCount || b.lifetime > Lifetime::kLingering ||
        (b.name.valid() && b.name.index() >= graph.names().size())) {
      return InvalidInput("buffer {}: bytes {}, or a kind, lifetime or name out of range", i,
                          b.bytes);
    }
  }
  if (!hashes) return {};
  Block copy = block;
  copy.Seal();
  if (copy.content_hash != block.content_hash) {
    return InvalidInput("changed after it was sealed: call Seal after the last change");
  }
  return {};
}

// Which buffers of a program live. Keys hold what makes an id unique for its lifetime.
class Lifetimes {
 public:
  Status Act(const Op& op, const Buffer& buffer, const Call& call, int layer) {
    const Key key{buffer.lifetime, buffer.id, layer, call.microbatch, call.chunk};
    const Key forever{buffer.lifetime, buffer.id, 0, 0, 0};
    const Key& k = buffer.lifetime == Lifetime::kForever ? forever : key;
    if (op.kind == OpKind::kAlloc) {
      if (live_.emplace(k, buffer.bytes).second) return {};
      return InvalidInput("buffer {} is allocated while it lives", buffer.id);
    }
    if (buffer.lifetime == Lifetime::kForever) {
      return InvalidInput("buffer {} is freed, and lives for ever", buffer.id);
    }
    const auto at = live_.find(k);
    if (at == live_.end()) return InvalidInput("buffer {} is freed without an alloc", buffer.id);
    if (at->second != buffer.bytes) {
      return InvalidInput("buffer {} has {} bytes, and {} are freed", buffer.id, at->second,
                          buffer.bytes);
    }
    live_.erase(at);
    return {};
  }

  // After a call: its own buffers are gone. After an iteration: those of micro-batches too.
  Status Gone(Lifetime lifetime) const {
    const auto at = live_.lower_bound(Key{lifetime, 0, 0, -2, 0});
    if (at == live_.end() || std::get<0>(at->first) != lifetime) return {};
    return InvalidInput("buffer {} (layer {}, micro-batch {}, chunk {}) is never freed",
                        std::get<1>(at->first), std::get<2>(at->first), std::get<3>(at->first),
                        std::get<4>(at->first));
  }

 private:
  using Key = std::tuple<Lifetime, std::uint32_t, int, std::int32_t, std::int16_t>;
  std::map<Key, std::int64_t> live_;
};

Status RunCall(const Graph& graph, const Call& call, Lifetimes* lifetimes) {
  const Block& block = graph.blocks[call.block.index()];
  const int step = IsBackward(block.pass) ? -1 : 1;
  bool memory = false;
  for (const Op& op : block.ops) {
    memory = memory || op.kind == OpKind::kAlloc || op.kind == OpKind::kFree;
  }
  for (int i = 0; memory && i < call.repeat; ++i) {
    const int layer = call.first_layer + step * i;
    if (layer < 0) return InvalidInput("counts down below layer 0");
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const Op& op = block.ops[o];
      if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
      if (Status s = lifetimes->Act(op, block.buffers[op.index], call, layer); !s.ok()) {
        return std::move(s).In(fmt::format("op {}", o));
      }
    }
    ORRERY_RETURN_IF_ERROR(lifetimes->Gone(Lifetime::kCall));
    ORRERY_RETURN_IF_ERROR(lifetimes->Gone(Lifetime::kLingering));
  }
  return {};
}

Status CheckLifetimes(const Graph& graph, ProgramId id) {
  Lifetimes lifetimes;
  const Program& program = graph.programs[id.index()];
  // Two iterations, as the memory model replays: what the first leaves must not disturb the second.
  for (int pass = 0; pass < 3; ++pass) {
    const std::vector<Call>& calls = pass == 0 ? program.prologue : program.calls;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      if (Status s = RunCall(graph, calls[c], &lifetimes); !s.ok()) {
        return std::move(s).In(Where(graph, id, calls[c], c, pass == 0));
      }
    }
    if (Status s = lifetimes.Gone(Lifetime::kMicrobatch); pass > 0 && !s.ok()) {
      return std::move(s).In(Where(graph, id));
    }
  }
  return {};
}

Status CheckLogicalRanks(const Graph& graph) {
  std::set<std::pair<JobId, std::uint32_t>> seen;
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    const Binding& b = graph.bindings[r];
    if (b.logical_rank >= graph.jobs[b.job.index()].ranks) {
      return InvalidInput("rank {}: logical rank {} of a job of {}", r, b.logical_rank,
                          graph.jobs[b.job.index()].ranks);
    }
    if (!seen.emplace(b.job, b.logical_rank).second) {
      return InvalidInput("rank {}: logical rank {} of job {} is taken", r, b.logical_rank,
                          b.job.value);
    }
  }
  return {};
}

}  // namespace

Status VerifyFully(const Graph& graph, bool hashes) {
  for (std::size_t b = 0; b < graph.blocks.size(); ++b) {
    if (Status status = CheckTables(graph, graph.blocks[b], hashes); !status.ok()) {
      return std::move(status).In(Where(graph, BlockId(b)));
    }
  }
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    ORRERY_RETURN_IF_ERROR(CheckLifetimes(graph, ProgramId(p)));
  }
  return CheckLogicalRanks(graph);
}

}  // namespace orrery::graph::verify
