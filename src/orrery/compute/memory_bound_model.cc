#include "orrery/compute/memory_bound_model.h"

#include "orrery/compute/constants.h"

namespace orrery::compute {
namespace {

using graph::MemoryOp;

constants::Id RateOf(const graph::MemoryBound& k) {
  switch (k.op) {
    case MemoryOp::kLayerNorm:
    case MemoryOp::kRmsNorm:
      return k.pass == graph::Pass::kBackward ? constants::kScatterRate
                                              : constants::kRowReductionRate;
    case MemoryOp::kScaledMaskSoftmax:
    case MemoryOp::kCrossEntropy:
    case MemoryOp::kRouterTopk:
    case MemoryOp::kStateDecay:
    case MemoryOp::kStateScan:  // relative to which kScanRate is
      return constants::kRowReductionRate;
    case MemoryOp::kPermute:
    case MemoryOp::kUnpermute:
    case MemoryOp::kEmbedding:
    case MemoryOp::kTranspose:
      return constants::kScatterRate;
    case MemoryOp::kGelu:
    case MemoryOp::kSwiglu:
    case MemoryOp::kBiasDropoutAdd:
    case MemoryOp::kRotary:
    case MemoryOp::kDropout:
    case MemoryOp::kAdam:
    case MemoryOp::kGradNorm:
    case MemoryOp::kGradScale:
    case MemoryOp::kCast:
    case MemoryOp::kCopy:
    case MemoryOp::kAdd:
    case MemoryOp::kZero:
    case MemoryOp::kCausalConv:
    case MemoryOp::kDequantize:
    case MemoryOp::kBlockwiseUpdate:
      return constants::kStreamRate;
  }
  return constants::kStreamRate;
}

// Of an SM, for each of a kernel's rows x cols values; 0 where bytes alone count.
double Clocks(MemoryOp op) {
  switch (op) {
    case MemoryOp::kStateDecay:
      return kDecayClocks;
    case MemoryOp::kDequantize:
      return kDequantizeClocks;
    case MemoryOp::kBlockwiseUpdate:
      return kBlockwiseUpdateClocks;
    default:
      return 0;
  }
}

}  // namespace

ModelTime MemoryBoundTime(const graph::MemoryBound& k, const DeviceRates& device) {
  ModelTime time;
  time.fixed_s = device.constants[constants::kKernelFloor];
  const double bytes = static_cast<double>(k.bytes_read) + static_cast<double>(k.bytes_written);
  if (bytes > 0) time.memory_s = StreamTime(device, bytes, device.constants[RateOf(k)]);
  const double values = static_cast<double>(k.rows) * static_cast<double>(k.cols);
  time.compute_s = values * Clocks(k.op) / (device.sms * device.clock_Hz);
  if (k.op == MemoryOp::kStateDecay || k.op == MemoryOp::kStateScan) {
    const double part = device.constants[constants::kScanRate];
    time.compute_s /= part, time.memory_s /= part;
  }
  return time;
}

}  // namespace orrery::compute
