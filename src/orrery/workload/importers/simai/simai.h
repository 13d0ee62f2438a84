// SimAI's workload files (.txt, as AICB writes them) as graphs that run on Orrery's own clusters.
//
// A line a layer (importers/astra_text/layers.h), times in ns. A communication's suffix names its
// group: none is TP in the forward and input-gradient columns and DP in the weight-gradient column;
// _EP, _DP_EP. Bytes are the whole buffer's. Ranks are laid out TP innermost, then DP (EP groups
// inside), then pipeline stages.
//
// SimAI runs all forwards, then all backwards, and adds a pipeline's bubble by a formula. Here the
// lines that AICB repeats `ga` times are micro-batches, and stages run them one forward, one
// backward (1F1B), with messages of pp_comm bytes between them. With vpp above 1 a micro-batch's
// lines are as many chunks, and stages run them interleaved, in Megatron's order. Forward and
// input-gradient communication is waited for, weight gradients' runs beside what follows, up to the
// end. Lines before the micro-batches (gradients, optimizer) run backward behind the last of them,
// lines behind (the loss) between the last forward and the backward that follows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"

namespace orrery::workload {

struct SimaiImport {
  graph::Graph graph;
  std::vector<std::string> assumed, warnings;
};

struct SimaiOptions {
  std::int64_t vpp = 0;   // in place of the file's; 0: the file's
  std::int64_t gpus = 0;  // likewise, of all_gpus: more or fewer replicas
};

Result<SimaiImport> ImportSimai(std::string_view text, const std::string& name,
                                const SimaiOptions& options = {});

}  // namespace orrery::workload
