// Host work of a layer's experts, beside the launch of the kernels that experts.h writes.
//
// Router, bookkeeping and permutation are chains of small PyTorch operators whose kernels are too
// short to matter and whose host time is not: each takes HostWork::operator_*. Their numbers, read
// from Megatron Core's router.py, moe_utils.py, token_dispatcher.py and experts.py, stand in
// expert_host.cc, by piece, pass, and whether Transformer Engine's fused router and fused
// permutation replace them. A grouped GEMM is one launch to the model; Transformer Engine's loops
// over the experts of the rank and calls cuBLASLt once each (HostWork::grouped_expert), and so does
// a grouped cast.
#pragma once

#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

enum class ExpertPiece : std::uint8_t {
  kRouter,      // scores, top-k, maps, auxiliary loss and its logging
  kPreprocess,  // tokens per expert and rank, copies to the host
  kPermute,     // or its reverse
  kExchange,    // an autograd function, splits, buffers
  kSort,        // by local expert, or back
  kActivation,  // times the router's weights
};

// Modules whose host work runs one by one although graphs of layers are captured: Megatron captures
// a layer up to what the router needs, and the dispatch onwards runs eagerly.
bool RunsEagerly(std::string_view module);

void ExpertHost(const Shape& s, BlockWriter* w, ExpertPiece piece, graph::Pass pass);
// Of `calls` calls over the experts of this rank.
void GroupedHost(const Shape& s, BlockWriter* w, std::int64_t calls);

}  // namespace orrery::workload
