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
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/importers/simai/busbw.h"

namespace orrery::workload {

struct SimaiImport {
  graph::Graph graph;
  std::vector<std::string> assumed, warnings;
};

// The share of a group's communication that SimAI takes to be hidden.
struct SimaiOverlap {
  std::optional<double> tp, dp, ep, pp;
};

struct SimaiOptions {
  std::int64_t vpp = 0;         // in place of the file's; 0: the file's
  std::int64_t gpus = 0;        // likewise, of all_gpus: more or fewer replicas
  std::int64_t tp = 0, pp = 0;  // likewise, of model_parallel_NPU_group and pp (lines.h)
  // Communication takes what the table says (Comm::measured).
  const BusBandwidths* bandwidths = nullptr;
  // Of a group that has a share, all communication is waited for, for the rest of its time.
  SimaiOverlap overlap;
};

Result<SimaiImport> ImportSimai(std::string_view text, const std::string& name,
                                const SimaiOptions& options = {});

}  // namespace orrery::workload
