#include "orrery/compute/attention_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "orrery/compute/constants.h"

namespace orrery::compute {
namespace {

using cluster::Arch;
using graph::Attention;
using graph::AttentionKernel;

constexpr std::int64_t kBlock = 128;

// The a-priori rates of both passes, moved together so that forward is what the constant says.
AttentionRate Moved(AttentionRate rate, double forward) {
  return {forward, rate.backward * (forward / rate.forward)};
}

AttentionRate RateOf(AttentionKernel kernel, Arch arch, const constants::Set& known) {
  if (kernel == AttentionKernel::kFlash4 && arch == Arch::kBlackwell) return kFlash4Rate;
  if ((kernel == AttentionKernel::kFlash3 || kernel == AttentionKernel::kFlash4) &&
      arch == Arch::kHopper) {
    return Moved(kFlash3Rate, known[constants::kFlash3Hopper]);
  }
  if (kernel == AttentionKernel::kCudnn && arch == Arch::kHopper) {
    return Moved(kCudnnHopperRate, known[constants::kCudnnHopper]);
  }
  if (kernel == AttentionKernel::kCudnn && arch == Arch::kBlackwell) {
    return Moved(kCudnnBlackwellRate, known[constants::kCudnnBlackwell]);
  }
  AttentionRate flash2 = kFlash2Rate[Index(arch)];
  if (arch == Arch::kAmpere) flash2 = Moved(flash2, known[constants::kFlash2Ampere]);
  if (arch == Arch::kHopper) flash2 = Moved(flash2, known[constants::kFlash2Hopper]);
  if (kernel != AttentionKernel::kFlash1) return flash2;
  const AttentionRate part = Moved(kFlash1OverFlash2, known[constants::kFlash1]);
  return {flash2.forward * part.forward, flash2.backward * part.backward};
}

std::int64_t Padded(std::int64_t d) {
  for (const std::int64_t size : {32, 64, 96, 128, 192, 256}) {
    if (d <= size) return size;
  }
  return (d + 63) / 64 * 64;
}

std::int64_t Blocks(std::int64_t length) { return (length + kBlock - 1) / kBlock; }

// Width of a head, averaged over the products: forward one over keys' and one over values' width,
// backward three and two.
double Width(const Attention& a, bool forward) {
  const double qk = static_cast<double>(Padded(a.head_dim));
  if (a.v_head_dim <= 0 || a.v_head_dim == a.head_dim) return qk;
  const double v = static_cast<double>(Padded(a.v_head_dim));
  return forward ? (qk + v) / 2 : (3 * qk + 2 * v) / 5;
}

// Blocks of 128x128 scores that one head visits. Bottom-right aligned: query i sees keys
// 0 … i + s_kv - s_q, and of these no more than a window's: the diagonal's block and those the
// window reaches. For s queries and keys and a window w that is s·w - w²/2 scores.
double VisitedBlocks(const Attention& a) {
  const double kv = static_cast<double>(Blocks(a.seq_kv));
  const bool windowed = a.window > 0 && a.window < a.seq_kv;
  const double window = windowed ? static_cast<double>(Blocks(a.window)) : kv;
  const double all = static_cast<double>(Blocks(a.seq_q));
  if (!a.causal) return all * std::min(kv, window);
  const double q = std::min(all, kv);  // earlier queries see nothing
  const double before = kv - q;        // blocks that the first of these sees beside its diagonal's
  const double growing = std::min(std::max(window - before, 0.0), q);
  return q + growing * before + growing * (growing - 1) / 2 + (q - growing) * std::min(window, kv);
}

double Bytes(const Attention& a) {
  const double e = static_cast<double>(graph::SizeOf(a.dtype));
  const double v = static_cast<double>(a.v_head_dim > 0 ? a.v_head_dim : a.head_dim);
  // q and dQ, k and dK are head_dim wide, o and dO, v and dV are v wide: half of each.
  const double d = (static_cast<double>(a.head_dim) + v) / 2, b = static_cast<double>(a.batch);
  const double q = b * static_cast<double>(a.heads) * static_cast<double>(a.seq_q) * d * e;
  const double kv = b * static_cast<double>(a.kv_heads) * static_cast<double>(a.seq_kv) * d * e;
  // Forward: q, o, k, v. Backward: q, o, dO read, dQ accumulated in fp32 and cast; k, v, dK, dV.
  if (a.pass == graph::Pass::kForward) return 2 * q + 2 * kv;
  return 4 * q + 3 * q * 4 / e + 4 * kv;
}

// The rates are those of devices with kExpPerClock; of `exp_share` beside a clock of products a
// faster special-function unit leaves less.
double FasterExp(const DeviceRates& device, double exp_share) {
  return (1 + exp_share) / (1 + exp_share * kExpPerClock / device.exp_per_clock);
}

// The rates are those of 16 bits: beside narrower products `exp_share` is larger, for the
// exponentials take what they took.
double Narrower(const DeviceRates& device, graph::DType type, double exp_share) {
  if (graph::SizeOf(type) > 1) return 1;
  const auto macs = [&](graph::DType t) {
    return device.macs_per_clock[static_cast<std::size_t>(t)];
  };
  return (1 + exp_share * macs(graph::DType::kBf16) / macs(type)) / (1 + exp_share);
}

}  // namespace

ModelTime AttentionTime(const Attention& a, const DeviceRates& device) {
  const bool forward = a.pass == graph::Pass::kForward;
  ModelTime time;
  time.fixed_s = forward ? device.constants[constants::kKernelFloor]
                         : 3 * device.constants[constants::kKernelFloor];
  if (a.batch <= 0 || a.heads <= 0 || a.seq_q <= 0 || a.seq_kv <= 0 || a.head_dim <= 0) return time;
  const std::size_t type = static_cast<std::size_t>(a.dtype);
  const double d = Width(a, forward);
  const AttentionRate rates = RateOf(a.kernel, device.arch, device.constants);
  // Clocks per score: products 2·d/F, exponentials not hidden kExpStall/16.
  const double exp_share = kExpStall / kExpPerClock * device.macs_per_clock[type] / (2.0 * 128.0);
  const double head = (1 + exp_share) / (1 + exp_share * 128.0 / d);
  const double beside = forward ? exp_share : exp_share * 2 / 5;
  const double rate = device.peak(a.dtype) / device.sms * device.tensor_cores *
                      (forward ? rates.forward : rates.backward) * head *
                      FasterExp(device, beside) * Narrower(device, a.dtype, beside) *
                      (a.causal ? kCausalRate : 1.0);
  const double block_s = static_cast<double>(kBlock * kBlock) * d * (forward ? 4 : 10) / rate;
  const double heads = static_cast<double>(a.batch) * static_cast<double>(a.heads);
  // Items run over queries forward, over keys backward; the longest sees the whole other side.
  const double items = heads * static_cast<double>(Blocks(forward ? a.seq_q : a.seq_kv));
  double longest = static_cast<double>(Blocks(forward ? a.seq_kv : a.seq_q));
  if (a.window > 0) longest = std::min(longest, static_cast<double>(Blocks(a.window) + 1));
  const double mean = heads * VisitedBlocks(a) / device.sms;
  const double busiest =
      a.causal ? std::max(mean, longest) : std::ceil(items / device.sms) * longest;
  time.compute_s = busiest * block_s + kMemoryLatency_s;
  time.memory_s = StreamTime(device, Bytes(a), device.constants[constants::kStreamRate]);
  return time;
}

}  // namespace orrery::compute
