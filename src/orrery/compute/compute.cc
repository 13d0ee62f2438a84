#include "orrery/compute/compute.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "orrery/compute/constants.h"
#include "orrery/compute/device_rates.h"
#include "orrery/compute/model.h"

namespace orrery::compute {
namespace {

SimTime ToPs(double seconds) {
  return RoundToPs(std::min(seconds * 1e12, static_cast<double>(kMaxDuration)));
}

}  // namespace

std::string_view Name(Provenance provenance) {
  switch (provenance) {
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kInterpolated:
      return "interpolated";
    case Provenance::kScaled:
      return "scaled";
    case Provenance::kModelled:
      return "modelled";
    case Provenance::kGiven:
      return "given";
    case Provenance::kCount:
      break;
  }
  return "?";
}

struct CostModel::Impl {
  DeviceRates rates;
};

CostModel::CostModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;
CostModel::~CostModel() = default;

Result<CostModel> CostModel::Create(const cluster::DeviceSpec& device, const Options&) {
  auto impl = std::make_unique<Impl>();
  ORRERY_ASSIGN_OR_RETURN(impl->rates, DeviceRates::Make(device));
  return CostModel(std::move(impl));
}

KernelTime CostModel::Price(const graph::Kernel& kernel) const {
  if (const auto* timed = std::get_if<graph::Timed>(&kernel)) {
    return {.duration = timed->duration_ps, .provenance = Provenance::kGiven, .spread = 0};
  }
  const ModelTime time = Model(kernel, impl_->rates);
  return {.duration = ToPs(time.total_s()),
          .provenance = Provenance::kModelled,
          .spread = static_cast<float>(ModelSpread(kernel, time))};
}

SimTime CostModel::launch_latency() const { return ToPs(kLaunchLatency_s); }
SimTime CostModel::host_issue(const graph::Kernel& kernel) const { return ToPs(HostIssue(kernel)); }
SimTime CostModel::host_issue_comm() const { return ToPs(kHostComm_s); }

}  // namespace orrery::compute
