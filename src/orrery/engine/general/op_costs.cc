#include "orrery/engine/general/op_costs.h"

#include <algorithm>

#include "orrery/base/text.h"
#include "orrery/interference/learned.h"

namespace orrery::engine::general {

using graph::OpKind;

Result<BlockCosts> CostsOf(const graph::Block& block, const compute::CostModel& compute,
                           const cluster::Spec& spec, double speed,
                           const interference::Learned* slowdown) {
  BlockCosts costs;
  const bool issued = block.issue == graph::Issue::kHost;
  if (!issued && block.kernels.empty()) return costs;
  costs.ops.resize(block.ops.size());
  const double scale = 1.0 / spec.cpu_relative_speed;
  bool in_graph = block.launch == graph::Launch::kInGraph;
  std::uint32_t batch = 0;
  const auto launch = [&](SimTime alone) -> SimTime {
    if (!issued) return 0;
    if (block.launch != graph::Launch::kEach) {
      if (std::exchange(in_graph, true)) return 0;
      alone = compute.host_issue_graph();
    }
    return RoundToPs(static_cast<double>(alone) * scale);
  };
  for (std::size_t i = 0; i < block.ops.size(); ++i) {
    const graph::Op& op = block.ops[i];
    OpCost& cost = costs.ops[i];
    if (op.kind == OpKind::kKernel) {
      const graph::Kernel& kernel = block.kernels[op.index];
      const compute::KernelTime time = compute.Price(kernel);
      cost.host = launch(compute.host_issue(kernel));
      cost.duration = interference::KernelTimes(kernel, static_cast<double>(time.duration) / speed,
                                                spec.device, slowdown);
      if (ToSeconds(cost.duration[0]) >= kLongest_s) {
        return InvalidInput("a kernel (op {}) would take {} or more, where {:.0f} s are the most",
                            i, HumanTime(cost.duration[0]), kLongest_s);
      }
      costs.provenance[static_cast<std::size_t>(time.provenance)] += cost.duration[0];
      costs.spread_ps += static_cast<double>(cost.duration[0]) * static_cast<double>(time.spread);
    } else if (op.kind == OpKind::kTimed) {
      cost.host = launch(compute.host_issue(graph::Timed{}));
    } else if (op.kind == OpKind::kComm) {
      const graph::Comm& comm = block.comms[op.index];
      if (comm.batch == 0 || comm.batch != batch) cost.host = launch(compute.host_issue_comm());
      batch = comm.batch;
      continue;
    }
    batch = 0;
  }
  return costs;
}

}  // namespace orrery::engine::general
