// How tokens come to their experts and back (experts.h): permutation, sorting, padding, exchange.
#include <algorithm>

#include "orrery/workload/generators/experts/expert_host.h"
#include "orrery/workload/generators/experts/experts.h"
#include "orrery/workload/generators/experts/torch_experts.h"
#include "orrery/workload/generators/layers/layer_ops.h"

namespace orrery::workload {

using graph::Collective;
using graph::GroupSlot;
using graph::MemoryBound;
using graph::MemoryOp;
using graph::Pass;

namespace {

// Rows of tokens as wide as experts see them, read and written once, gathered by index.
MemoryBound Moved(const Shape& s, MemoryOp op, std::int64_t read_rows, std::int64_t written_rows,
                  Pass pass) {
  const std::int64_t width = s.experts.width;
  MemoryBound k = Elementwise(s, op, std::max(read_rows, written_rows), width, 0, 0, pass);
  k.bytes_read = read_rows * width * s.element_bytes;
  k.bytes_written = written_rows * width * s.element_bytes;
  return k;
}

// Who sends how much, where it is not the same to all; what was received goes back.
struct Shared {
  SharesId shares;
  bool returned = false;
};

void Collect(const Shape& s, BlockWriter* w, std::string_view name, Collective kind,
             GroupSlot group, std::int64_t bytes, graph::DType dtype, bool blocking = true,
             const Shared& shared = {}) {
  w->Host("communication", s.framework.host.communication);
  w->Comm(name, {.collective = kind,
                 .group = group,
                 .stream = group == GroupSlot::kEp ? kEpStream : kExpertTpStream,
                 .blocking = blocking,
                 .event = blocking ? graph::kNoEvent : kExpertEvent,
                 .dtype = dtype,
                 .bytes = {.value = bytes},
                 .shares = shared.shares,
                 .returned = shared.shares.valid() && shared.returned});
}

}  // namespace

// HybridEP knows where tokens go from every rank's map of choices, a byte an expert: it gathers the
// maps of all tokens and counts them twice (hybrid_ep/executor.cu, allgather_routing_map and scan).
void ExpertWriter::RoutingMap() {
  if (e_.dispatcher != Dispatcher::kHybridEp || e_.ep == 1) return;
  const std::int64_t tokens = s_.local_tokens() * e_.ep;
  w_->Comm("all_gather.routing_map", {.collective = Collective::kAllGather,
                                      .group = GroupSlot::kEp,
                                      .stream = kEpStream,
                                      .blocking = true,
                                      .dtype = graph::DType::kFp8,
                                      .bytes = {.value = tokens * e_.count}});
  w_->Kernel("scan_routing_map", Elementwise(s_, MemoryOp::kRouterTopk, tokens,
                                             e_.count / e_.domains, 2, 0, Pass::kForward));
}

// What HybridEP sends with a token on its way to the experts, and back with its gradient: fp32
// probabilities of all experts in the NVLink domain that it goes to, zeros included.
std::int64_t ExpertWriter::ProbabilityBytes(Way way) const {
  if (e_.dispatcher != Dispatcher::kHybridEp || way != Way::kThere) return 0;
  return e_.count / e_.domains * 4;
}

// A pass in reverse turns a way round: its permutation spreads gradients where forward gathered.
void ExpertWriter::Permute(Way way, Pass pass) {
  const bool there = (way == Way::kThere) == (pass == Pass::kForward);
  const std::int64_t tokens = s_.local_tokens();
  // HybridEP launches its own kernel (hybrid_ep/executor.cu), behind the exchange.
  if (e_.dispatcher != Dispatcher::kHybridEp) ExpertHost(s_, w_, ExpertPiece::kPermute, pass);
  if (TorchExperts(s_)) return TorchPermute(s_, w_, load_.sent, way == Way::kThere, pass);
  if (e_.dispatcher == Dispatcher::kAllToAll) {
    w_->Kernel(there ? "permute" : "unpermute",
               there ? Moved(s_, MemoryOp::kPermute, load_.sent, load_.sent, pass)
                     : Moved(s_, MemoryOp::kUnpermute, load_.sent, tokens, pass));
  }
  if (e_.dispatcher == Dispatcher::kHybridEp) {
    MemoryBound moved = there ? Moved(s_, MemoryOp::kPermute, load_.once, load_.rows, pass)
                              : Moved(s_, MemoryOp::kUnpermute, load_.rows, load_.once, pass);
    // Gradients of probabilities go back as whole rows, zeros of other ranks' experts included.
    if (!there) moved.bytes_written += load_.once * ProbabilityBytes(way);
    w_->Kernel(there ? "permute" : "unpermute", moved);
  }
  if (e_.dispatcher == Dispatcher::kAllGather) {
    const std::int64_t all = tokens * e_.ep * e_.etp;
    w_->Kernel(there ? "permute" : "unpermute",
               there ? Moved(s_, MemoryOp::kPermute, load_.rows, load_.rows, pass)
                     : Moved(s_, MemoryOp::kUnpermute, load_.rows, all, pass));
  }
}

// Copies between an expert's rows and as many as low precision can multiply (Transformer Engine's
// Fp8Padding and its reverse).
void ExpertWriter::Pad(std::string_view name, Pass pass) {
  if (!e_.pads) return;
  ExpertHost(s_, w_, ExpertPiece::kSort, pass);
  w_->Kernel(name, Moved(s_, MemoryOp::kCopy, load_.rows, load_.rows, pass));
}

// Rows in order of their expert, or back; only some dispatchers leave this to do. DeepEP's tokens
// arrive once a rank and are copied to each of their experts here, or summed up.
void ExpertWriter::Sort(Way way, Pass pass) {
  const bool there = (way == Way::kThere) == (pass == Pass::kForward);
  if (TorchExperts(s_)) {
    ExpertHost(s_, w_, ExpertPiece::kSort, pass);
    return TorchSort(s_, w_, load_.rows, way == Way::kThere, pass);
  }
  const bool needed =
      e_.dispatcher == Dispatcher::kDeepEp ||
      (e_.dispatcher == Dispatcher::kAllToAll && e_.local > 1 && (e_.ep > 1 || e_.etp > 1));
  if (needed) {
    ExpertHost(s_, w_, ExpertPiece::kSort, pass);
    w_->Kernel("sort_by_expert", Moved(s_, MemoryOp::kPermute, there ? load_.once : load_.rows,
                                       there ? load_.rows : load_.once, pass));
  }
}

void ExpertWriter::Exchange(Way way, Pass pass, bool blocking) {
  const bool there = (way == Way::kThere) == (pass == Pass::kForward);
  const std::int64_t token = e_.width * s_.element_bytes;
  if (e_.ep > 1 || e_.etp > 1) ExpertHost(s_, w_, ExpertPiece::kExchange, pass);
  if (e_.dispatcher == Dispatcher::kAllGather) {
    const auto kind = there ? Collective::kAllGather : Collective::kReduceScatter;
    const std::int64_t one = s_.local_tokens() * token;
    const auto over = [&](GroupSlot group, std::int64_t ranks, std::int64_t gathered) {
      if (ranks == 1) return;
      Collect(s_, w_, there ? "all_gather.tokens" : "reduce_scatter.tokens", kind, group, gathered,
              s_.dtype);
      if (way != Way::kThere || pass != Pass::kForward) return;
      Collect(s_, w_, "all_gather.choices", Collective::kAllGather, group,
              gathered / token * e_.count * 5, graph::DType::kFp32);
    };
    if (there) {
      over(GroupSlot::kEp, e_.ep, one * e_.ep);
      over(GroupSlot::kExpertTp, e_.etp, one * e_.ep * e_.etp);
    } else {
      over(GroupSlot::kExpertTp, e_.etp, one * e_.ep * e_.etp);
      over(GroupSlot::kEp, e_.ep, one * e_.ep);
    }
    return;
  }
  const std::string_view name = there ? "dispatch" : "combine";
  const Shared shared{e_.shares, !there};
  const std::int64_t gathered = load_.rows * token;
  if (!there && e_.etp > 1) {
    Collect(s_, w_, "reduce_scatter.tokens", Collective::kReduceScatter, GroupSlot::kExpertTp,
            gathered, s_.dtype);
  }
  if (e_.ep > 1) {
    if (way == Way::kThere && e_.dispatcher == Dispatcher::kAllToAll && !TorchExperts(s_)) {
      Collect(s_, w_, "weights", Collective::kAllToAll, GroupSlot::kEp, load_.on_wire * 4,
              graph::DType::kFp32, true, shared);
    }
    Collect(s_, w_, name, Collective::kAllToAll, GroupSlot::kEp,
            load_.on_wire * (token + ProbabilityBytes(way)), s_.dtype, blocking, shared);
  }
  if (there && e_.etp > 1) {
    Collect(s_, w_, "all_gather.tokens", Collective::kAllGather, GroupSlot::kExpertTp, gathered,
            s_.dtype);
  }
}

// The host must know how many tokens every expert has before it can launch the grouped GEMMs.
void ExpertWriter::ReadCounts() {
  if (!e_.host_reads) return;
  if (e_.ep > 1 && e_.dispatcher == Dispatcher::kAllToAll) {
    Collect(s_, w_, "all_gather.counts", Collective::kAllGather, GroupSlot::kEp,
            e_.ep * e_.count * 8, graph::DType::kInt64);
  }
  w_->HostSync("tokens_per_expert");
}

}  // namespace orrery::workload
