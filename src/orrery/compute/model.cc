#include "orrery/compute/model.h"

#include <variant>

#include "orrery/compute/attention_model.h"
#include "orrery/compute/constants.h"
#include "orrery/compute/gemm_model.h"
#include "orrery/compute/memory_bound_model.h"

namespace orrery::compute {
namespace {

using graph::Pass;

struct ModelVisitor {
  const DeviceRates& device;
  ModelTime operator()(const graph::Gemm& g) const { return GemmTime(g, device); }
  ModelTime operator()(const graph::Attention& a) const { return AttentionTime(a, device); }
  ModelTime operator()(const graph::MemoryBound& m) const { return MemoryBoundTime(m, device); }
  ModelTime operator()(const graph::Timed& t) const {
    return {.fixed_s = 0, .compute_s = static_cast<double>(t.duration_ps) * 1e-12, .memory_s = 0};
  }
  // The roofline of an elementwise kernel's rate and a product's.
  ModelTime operator()(const graph::Generic& g) const {
    ModelTime time = MemoryBoundTime({.op = graph::MemoryOp::kCopy,
                                      .bytes_read = g.bytes_read,
                                      .bytes_written = g.bytes_written},
                                     device);
    time.compute_s =
        static_cast<double>(g.flops) / device.gemm_flops[static_cast<std::size_t>(g.dtype)];
    return time;
  }
};

struct SpreadVisitor {
  double operator()(const graph::Gemm&) const { return kSpreadGemm; }
  double operator()(const graph::Attention&) const { return kSpreadAttention; }
  double operator()(const graph::MemoryBound&) const { return kSpreadMemory; }
  double operator()(const graph::Timed&) const { return 0; }
  double operator()(const graph::Generic&) const { return kSpreadMemory; }
};

double HostIssue(Pass pass) {
  if (pass == Pass::kForward) return kHostForward_s;
  return graph::IsBackward(pass) ? kHostBackward_s : kHostOptimizer_s;
}

struct HostVisitor {
  double operator()(const graph::Gemm& g) const {
    return g.layout == graph::GemmLayout::kNT ? kHostGemmForward_s : kHostGemmBackward_s;
  }
  double operator()(const graph::Attention& a) const {
    return a.pass == Pass::kForward ? kHostAttentionForward_s : kHostAttentionBackward_s;
  }
  double operator()(const graph::MemoryBound& m) const { return HostIssue(m.pass); }
  double operator()(const graph::Generic& g) const { return HostIssue(g.pass); }
  double operator()(const graph::Timed&) const { return kHostTimed_s; }
};

}  // namespace

ModelTime Model(const graph::Kernel& kernel, const DeviceRates& device) {
  return std::visit(ModelVisitor{device}, kernel);
}

double ModelSpread(const graph::Kernel& kernel, const ModelTime& time) {
  const double total = time.total_s();
  if (total <= 0) return 0;
  const double fixed = time.fixed_s / total;
  return std::visit(SpreadVisitor{}, kernel) * (1 - fixed) + kSpreadFloor * fixed;
}

double HostIssue(const graph::Kernel& kernel) { return std::visit(HostVisitor{}, kernel); }

}  // namespace orrery::compute
