#include "orrery/compute/compute.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "orrery/compute/constants.h"
#include "orrery/compute/device_rates.h"
#include "orrery/compute/measured_lookup.h"
#include "orrery/compute/measured_table.h"
#include "orrery/compute/model.h"

namespace orrery::compute {
namespace {

SimTime ToPs(double seconds) { return RoundToPs(seconds * 1e12); }

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

namespace {

// A device whose measurements may be scaled.
struct Reference {
  DeviceRates rates;
  MeasuredLookup measured;
};

int ArchDistance(cluster::Arch a, cluster::Arch b) {
  const int distance = static_cast<int>(a) - static_cast<int>(b);
  return distance < 0 ? -distance : distance;
}

// Time here of a kernel that takes `there_s` on the reference, by the bound that holds there: the
// sustained rate of its type, or the memory bandwidth. The fixed part stays.
double Scale(const graph::Kernel& kernel, double there_s, const ModelTime& model_there,
             const DeviceRates& there, const DeviceRates& here) {
  double ratio = there.hbm_Bps / here.hbm_Bps;
  if (model_there.compute_bound()) {
    if (const auto* gemm = std::get_if<graph::Gemm>(&kernel)) {
      const auto type = static_cast<std::size_t>(gemm->dtype);
      ratio = there.gemm_flops[type] / here.gemm_flops[type];
    } else if (const auto* attention = std::get_if<graph::Attention>(&kernel)) {
      ratio = there.peak(attention->dtype) / here.peak(attention->dtype);
    }
  }
  const double fixed = std::min(model_there.fixed_s, there_s);
  return fixed + (there_s - fixed) * ratio;
}

// Attention kernels are written for one architecture; others carry to the next one.
bool Scalable(const graph::Kernel& kernel, const DeviceRates& there, const DeviceRates& here) {
  const int most = std::holds_alternative<graph::Attention>(kernel) ? 0 : 1;
  return ArchDistance(there.arch, here.arch) <= most;
}

}  // namespace

struct CostModel::Impl {
  DeviceRates rates;
  MeasuredLookup measured;
  std::vector<Reference> references;  // nearest architecture first

  std::optional<KernelTime> Scaled(const graph::Kernel& kernel, const SampleKey& key) const {
    for (const Reference& reference : references) {
      if (!Scalable(kernel, reference.rates, rates)) continue;
      const ModelTime there = Model(kernel, reference.rates);
      const auto found = reference.measured.Find(key, there.total_s());
      if (!found) continue;
      const double seconds = Scale(kernel, found->time_s, there, reference.rates, rates);
      const double spread =
          std::sqrt(found->spread * found->spread + kSpreadScaled * kSpreadScaled);
      return KernelTime{ToPs(seconds), Provenance::kScaled, static_cast<float>(spread)};
    }
    return {};
  }
};

CostModel::CostModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;
CostModel::~CostModel() = default;

Result<CostModel> CostModel::Create(const cluster::DeviceSpec& device, const Options& options) {
  auto impl = std::make_unique<Impl>();
  ORRERY_ASSIGN_OR_RETURN(impl->rates, DeviceRates::Make(device));
  if (options.measured_database.empty()) return CostModel(std::move(impl));
  ORRERY_ASSIGN_OR_RETURN(std::vector<Sample> own,
                          ReadSamples(options.measured_database, device.table));
  impl->measured = MeasuredLookup(std::move(own), impl->rates);
  for (const cluster::DeviceSpec& other : options.references) {
    if (other.table == device.table) continue;
    Reference reference;
    ORRERY_ASSIGN_OR_RETURN(reference.rates, DeviceRates::Make(other));
    ORRERY_ASSIGN_OR_RETURN(std::vector<Sample> samples,
                            ReadSamples(options.measured_database, other.table));
    if (samples.empty()) continue;
    reference.measured = MeasuredLookup(std::move(samples), reference.rates);
    impl->references.push_back(std::move(reference));
  }
  std::stable_sort(impl->references.begin(), impl->references.end(),
                   [&](const Reference& a, const Reference& b) {
                     return ArchDistance(a.rates.arch, device.arch) <
                            ArchDistance(b.rates.arch, device.arch);
                   });
  return CostModel(std::move(impl));
}

KernelTime CostModel::Price(const graph::Kernel& kernel) const {
  if (const auto* timed = std::get_if<graph::Timed>(&kernel)) {
    return {.duration = timed->duration_ps, .provenance = Provenance::kGiven, .spread = 0};
  }
  const ModelTime time = Model(kernel, impl_->rates);
  if (!impl_->measured.empty() || !impl_->references.empty()) {
    if (const auto key = KeyOf(kernel)) {
      if (const auto found = impl_->measured.Find(*key, time.total_s())) {
        return {.duration = ToPs(found->time_s),
                .provenance = found->exact ? Provenance::kMeasured : Provenance::kInterpolated,
                .spread = static_cast<float>(found->spread)};
      }
      if (const auto scaled = impl_->Scaled(kernel, *key)) return *scaled;
    }
  }
  return {.duration = ToPs(time.total_s()),
          .provenance = Provenance::kModelled,
          .spread = static_cast<float>(ModelSpread(kernel, time))};
}

SimTime CostModel::launch_latency() const { return ToPs(kLaunchLatency_s); }
SimTime CostModel::host_issue(const graph::Kernel& kernel) const {
  return ToPs(HostIssue(kernel) * impl_->rates.constants[constants::kHostLaunch]);
}
SimTime CostModel::host_issue_comm() const {
  return ToPs(kHostComm_s * impl_->rates.constants[constants::kHostLaunch]);
}
SimTime CostModel::host_issue_graph() const {
  return ToPs(kHostGraph_s * impl_->rates.constants[constants::kHostLaunch]);
}

}  // namespace orrery::compute
