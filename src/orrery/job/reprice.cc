#include "orrery/job/reprice.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "orrery/base/text.h"
#include "orrery/base/time.h"
#include "orrery/cluster/catalog.h"
#include "orrery/workload/importers/trace/trace.h"

namespace orrery::job {
namespace {

constexpr std::string_view kLines[] = {
#include "orrery_data_traces_kernels.inc"
};

enum class Bound { kCompute, kMemory, kHost };

Bound BoundOf(std::string_view kernel) {
  const std::string name = Lower(kernel);
  for (std::size_t i = 1; i < std::size(kLines); ++i) {
    const std::string_view line = kLines[i];
    const std::size_t part = line.find(','), end = line.find(',', part + 1);
    if (name.find(line.substr(0, part)) == std::string::npos) continue;
    const std::string_view bound = line.substr(part + 1, end - part - 1);
    return bound == "compute" ? Bound::kCompute : bound == "host" ? Bound::kHost : Bound::kMemory;
  }
  return Bound::kMemory;
}

// The tensor cores' peak for the element type in a kernel's name; that of 16 bits if it names none.
double PeakOf(const cluster::DeviceSpec& d, std::string_view kernel) {
  const std::string name = Lower(kernel);
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if ((has("e4m3") || has("e5m2") || has("fp8")) && d.fp8_flops > 0) return d.fp8_flops;
  if (has("tf32") || has("s1688")) return d.tf32_flops > 0 ? d.tf32_flops : d.fp32_flops;
  if (has("sgemm") || has("ffma") || has("simt")) return d.fp32_flops;
  return d.fp16_flops > 0 ? d.fp16_flops : d.fp32_flops;
}

bool OnGpu(const graph::Graph& graph, std::uint32_t stream) {
  if (stream == graph::kNoStream) return true;
  if (stream >= graph.streams.size() || !graph.streams[stream].name.valid()) return false;
  const std::string& name = graph.name(graph.streams[stream].name);
  return name.starts_with("stream") || name.starts_with("GPU");
}

}  // namespace

Repriced RepriceKernels(const cluster::DeviceSpec& from, const cluster::DeviceSpec& to,
                        graph::Graph* graph) {
  Repriced done;
  const double memory = static_cast<double>(from.memory_bandwidth_Bps) /
                        static_cast<double>(std::max<std::int64_t>(1, to.memory_bandwidth_Bps));
  for (graph::Block& block : graph->blocks) {
    for (const graph::Op& op : block.ops) {
      if (op.kind != graph::OpKind::kTimed || !OnGpu(*graph, op.stream)) continue;
      graph::Quantity& time = block.times[op.index];
      if (time.slot >= 0 || !op.name.valid()) continue;
      const std::string& name = graph->name(op.name);
      const Bound bound = BoundOf(name);
      double ratio = memory;
      if (bound == Bound::kHost) {
        ++done.kept;
        continue;
      }
      if (bound == Bound::kCompute) ratio = PeakOf(from, name) / PeakOf(to, name);
      ++(bound == Bound::kCompute ? done.compute : done.memory);
      time.value = RoundToPs(static_cast<double>(time.value) * ratio);
    }
    block.Seal();
  }
  done.assumed = fmt::format(
      "kernels of the {} on the {}: measured times by the ratio of what bounds them, as their "
      "names say: {} by the tensor cores' peak ({:.2f} for 16 bits), {} by the memory's bandwidth "
      "({:.2f}); {} copies over PCIe, delays and threads as traced",
      from.name, to.name, HumanCount(static_cast<std::int64_t>(done.compute)),
      PeakOf(from, "") / PeakOf(to, ""), HumanCount(static_cast<std::int64_t>(done.memory)), memory,
      HumanCount(static_cast<std::int64_t>(done.kept)));
  return done;
}

void MoveKernels(const cluster::DeviceSpec& from, const cluster::DeviceSpec& to,
                 ImportedTrace* trace) {
  const bool same = from.name == to.name;
  if (trace->timed.empty()) {
    if (!same) trace->assumed.push_back(RepriceKernels(from, to, &trace->graph).assumed);
    return;
  }
  if (same) workload::UseMeasured(trace->timed, &trace->graph);
  trace->assumed.push_back(
      same ? fmt::format("kernels take what the trace measured on the {}", from.name)
           : fmt::format("kernels were measured on the {}; on the {} the model prices them",
                         from.name, to.name));
}

}  // namespace orrery::job
