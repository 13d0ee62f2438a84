#include "orrery/interference/interference.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <variant>

#include "orrery/base/check.h"
#include "orrery/constants/constants.h"
#include "orrery/interference/learned.h"

namespace orrery::interference {
namespace {

// By architecture: Volta, Ampere, Hopper, Blackwell.
// Channels, hence SMs, of a collective over NVLink: what NCCL's logs show on DGX-1V/-2, DGX A100,
// DGX H100 and HGX B200 ("24 coll channels"; 32 is its default limit before CTA policies).
constexpr std::array<double, 4> kNvlinkChannels = {16, 24, 24, 32};
// Channels of a collective over the NIC beside a GPU.
constexpr double kNicChannels = 8;
// Payload per direction and GPU that a collective moves: 0.8 of NVLink's printed rate (150, 300,
// 450, 900 GB/s), and the NIC of the reference systems (100 Gb/s shared by two, 200, 400, 400
// Gb/s).
constexpr std::array<double, 4> kNvlinkRate_Bps = {120e9, 240e9, 360e9, 720e9};
constexpr std::array<double, 4> kNicRate_Bps = {6.25e9, 25e9, 50e9, 50e9};
constexpr double kMostLost = 0.5;

struct Lost {
  double sms = 0, bandwidth = 0;  // shares of the device
};

}  // namespace

Companion CompanionOf(Class concurrent, const cluster::DeviceSpec& device) {
  const std::size_t arch = static_cast<std::size_t>(device.arch);
  double channels = 0, rate = 0;
  if (concurrent & kIntraNode) {
    channels += kNvlinkChannels[arch];
    rate += kNvlinkRate_Bps[arch];
  }
  if (concurrent & kInterNode) {
    channels += kNicChannels;
    rate += kNicRate_Bps[arch];
  }
  return {.ctas = channels, .bytes_per_s = device.constants[constants::kBesideHbmBytes] * rate};
}

namespace {

Lost LostTo(Class concurrent, const cluster::DeviceSpec& device) {
  const Companion beside = CompanionOf(concurrent, device);
  const double hbm = static_cast<double>(device.memory_bandwidth_Bps);
  return {.sms = std::min(beside.ctas / device.sms, kMostLost),
          .bandwidth = std::min(beside.bytes_per_s / hbm, kMostLost)};
}

struct LostOf {
  const Lost& lost;
  double operator()(const graph::Gemm&) const { return lost.sms; }
  double operator()(const graph::Attention&) const { return lost.sms; }
  double operator()(const graph::MemoryBound&) const { return lost.bandwidth; }
  double operator()(const graph::Timed&) const { return (lost.sms + lost.bandwidth) / 2; }
  double operator()(const graph::Generic& g) const {
    return g.flops > 0 ? lost.sms : lost.bandwidth;
  }
};

}  // namespace

Class ClassOf(graph::Collective collective, bool crosses_nics) {
  if (graph::IsPointToPoint(collective)) return kAlone;
  // What these send over NICs is a part: the rest goes over NVLink at the same time.
  const bool exchange = collective == graph::Collective::kAllToAll ||
                        collective == graph::Collective::kGather ||
                        collective == graph::Collective::kScatter;
  if (exchange && crosses_nics) return kIntraNode | kInterNode;
  return crosses_nics ? kInterNode : kIntraNode;
}

Factors Slowdown(const graph::Kernel& kernel, Class concurrent, const cluster::DeviceSpec& device) {
  ORRERY_CHECK(concurrent < kClasses, "an interference class is a mask of two bits");
  if (concurrent == kAlone) return {};
  ORRERY_CHECK(device.sms > 0 && device.memory_bandwidth_Bps > 0, "a device has SMs and memory");
  const Lost lost = LostTo(concurrent, device);
  return {.compute = 1 / (1 - std::visit(LostOf{lost}, kernel)),
          .communication = CommunicationFactor(concurrent, device)};
}

double CommunicationFactor(Class own, const cluster::DeviceSpec& device) {
  double factor = 1;
  if (own & kIntraNode) factor = device.constants[constants::kBesideNvlink];
  if (own & kInterNode) factor = std::max(factor, device.constants[constants::kBesideNic]);
  return factor;
}

}  // namespace orrery::interference
