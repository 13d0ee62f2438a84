#include "orrery/compute/compute.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
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

// Boards of one die at one power limit (H100 SXM, H800, H200): what the tensor cores bound takes
// the same time on both.
bool Twins(const cluster::DeviceSpec& a, const cluster::DeviceSpec& b) {
  return a.arch == b.arch && a.sms == b.sms && a.power_w > 0 && a.power_w == b.power_w &&
         a.fp16_flops == b.fp16_flops;
}

// Adds to a device's own samples those of a twin that the tensor cores bound.
void AddTwin(const std::vector<Sample>& samples, const DeviceRates& there, const DeviceRates& here,
             std::vector<Sample>* own) {
  for (Sample sample : samples) {
    const ModelTime model = Model(sample.kernel, there);
    if (!model.compute_bound()) continue;
    sample.time_s = Scale(sample.kernel, sample.time_s, model, there, here);
    sample.twin = true;
    own->push_back(sample);
  }
}

}  // namespace

struct CostModel::Impl {
  DeviceRates rates;
  double transfer_spread = 0;  // of another architecture's kernels
  MeasuredLookup measured;
  std::vector<Reference> references;  // of the same architecture

  std::optional<KernelTime> Scaled(const graph::Kernel& kernel, const SampleKey& key) const {
    for (const Reference& reference : references) {
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
  impl->transfer_spread = device.transfer_spread;
  if (options.measured_database.empty()) return CostModel(std::move(impl));
  ORRERY_ASSIGN_OR_RETURN(std::vector<Sample> own,
                          ReadSamples(options.measured_database, device.table));
  std::set<std::string> seen = {device.table};
  for (const cluster::DeviceSpec& other : options.references) {
    // Kernels are written for one architecture: scaled to another, measured times are further off
    // than the model (docs/compute.md).
    if (other.arch != device.arch || !seen.insert(other.table).second) continue;
    Reference reference;
    ORRERY_ASSIGN_OR_RETURN(reference.rates, DeviceRates::Make(other));
    ORRERY_ASSIGN_OR_RETURN(std::vector<Sample> samples,
                            ReadSamples(options.measured_database, other.table));
    if (samples.empty()) continue;
    if (Twins(device, other)) AddTwin(samples, reference.rates, impl->rates, &own);
    reference.measured = MeasuredLookup(std::move(samples), reference.rates);
    impl->references.push_back(std::move(reference));
  }
  impl->measured = MeasuredLookup(std::move(own), impl->rates);
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
  double spread = ModelSpread(kernel, time);
  const double transfer = impl_->transfer_spread;
  if (transfer > 0) spread = std::sqrt(spread * spread + transfer * transfer);
  return {.duration = ToPs(time.total_s()),
          .provenance = Provenance::kModelled,
          .spread = static_cast<float>(spread)};
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
