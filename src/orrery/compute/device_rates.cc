#include "orrery/compute/device_rates.h"

#include <algorithm>
#include <cmath>

#include "orrery/compute/constants.h"

namespace orrery::compute {
namespace {

Status Positive(const cluster::DeviceSpec& device, const char* field, double value) {
  if (value > 0 && value < 1e30) return {};
  return InvalidInput("device '{}': {} = {} must be a positive number; give the data-sheet value",
                      device.name, field, value);
}

// The one published gain is Hopper's; MLPerf's scripts set Blackwell's slider to 0.
double Vboost(const cluster::DeviceSpec& device) {
  return device.vboost && device.arch == cluster::Arch::kHopper ? kVboost : 1;
}

// cuBLAS and cuDNN of CUDA 12 were the first for Blackwell.
double Libraries(const cluster::DeviceSpec& device) {
  const bool early = device.arch == cluster::Arch::kBlackwell && device.cuda <= 12;
  return early ? device.constants[constants::kLibraryRateBlackwell12] : 1;
}

// What tensor cores sustain is set by the board's power, not by the clock behind its printed peak:
// that of the architecture's reference board, for as many SMs and watts. At the limit a clock goes
// with a power of the watts per SM between the cube root (the voltage follows the clock) and the
// first (the voltage is at its floor): their square root here. `rate` and the result: fractions of
// a type's peak, which is `reference` on that board and `peak` on this one.
double AtItsPower(const cluster::DeviceSpec& device, double rate, double reference, double peak) {
  rate *= Vboost(device) * Libraries(device);
  if (device.power_w <= 0) return rate;
  const std::size_t arch = Index(device.arch);
  const double boards =
      device.power_w * device.sms / (kReferencePower_W[arch] * kReferenceSms[arch]);
  return std::min(kMostOfPeak, rate * reference / peak * std::sqrt(boards));
}

// What a large 16-bit GEMM sustains of the reference board's peak.
double GemmRate16(cluster::Arch arch, const constants::Set& known) {
  switch (arch) {
    case cluster::Arch::kVolta:
      return kGemmRate16Volta;
    case cluster::Arch::kAmpere:
      return known[constants::kGemmRate16Ampere];
    case cluster::Arch::kHopper:
      return known[constants::kGemmRate16Hopper];
    case cluster::Arch::kBlackwell:
      return known[constants::kGemmRate16Blackwell];
  }
  return kGemmRate16Volta;
}

}  // namespace

Result<DeviceRates> DeviceRates::Make(const cluster::DeviceSpec& device) {
  ORRERY_RETURN_IF_ERROR(Positive(device, "sms", device.sms));
  ORRERY_RETURN_IF_ERROR(Positive(device, "fp16_flops", device.fp16_flops));
  ORRERY_RETURN_IF_ERROR(Positive(device, "fp32_flops", device.fp32_flops));
  ORRERY_RETURN_IF_ERROR(
      Positive(device, "memory_bandwidth_Bps", static_cast<double>(device.memory_bandwidth_Bps)));
  ORRERY_RETURN_IF_ERROR(Positive(device, "l2_bytes", static_cast<double>(device.l2_bytes)));
  const std::size_t arch = Index(device.arch);
  DeviceRates r;
  r.constants = device.constants;
  const auto& known = r.constants;
  r.arch = device.arch;
  r.sms = device.sms;
  r.clock_Hz = device.fp16_flops / (2 * r.sms * kMacsPerClock[arch]);
  r.hbm_Bps = static_cast<double>(device.memory_bandwidth_Bps);
  r.tensor_cores = Vboost(device) * Libraries(device);
  r.exp_per_clock = device.exp_per_clock > 0 ? device.exp_per_clock : kExpPerClock;
  r.l2_usable_bytes = kL2Usable * static_cast<double>(device.l2_bytes);
  r.l2_Bps = std::max(kL2Rate * kL2BytesPerClock * r.clock_Hz * r.sms, r.hbm_Bps);

  const double tf32 = device.tf32_flops > 0 ? device.tf32_flops : device.fp32_flops;
  const double fp8 = device.fp8_flops > 0 ? device.fp8_flops : device.fp16_flops;
  const bool has_fp4 = device.arch == cluster::Arch::kBlackwell && device.fp8_flops > 0;
  const double fp4 = !has_fp4 ? fp8 : device.fp4_flops > 0 ? device.fp4_flops : kFp4PerFp8 * fp8;
  // In DType's order, as `rates` below.
  static_assert(kDTypes == 9);
  r.peak_flops = {device.fp32_flops, tf32, device.fp16_flops,
                  device.fp16_flops, fp8,  fp4,
                  device.fp32_flops, fp8,  device.int8_flops > 0 ? device.int8_flops : fp8};
  const bool blackwell = device.arch == cluster::Arch::kBlackwell;
  const auto sustained16 = [&](double rate, double peak_of_16, double peak) {
    return AtItsPower(device, rate, peak_of_16 * kReferenceFp16_flops[arch], peak);
  };
  const double gemm16 = GemmRate16(device.arch, known);
  const double rate16 = sustained16(gemm16, 1, device.fp16_flops);
  const double rate_fp16 =
      device.arch == cluster::Arch::kAmpere
          ? sustained16(known[constants::kGemmRateFp16Ampere], 1, device.fp16_flops)
          : rate16;
  // Tensor cores multiply in tf32 at half their rate in 16 bits.
  const double rate_tf32 =
      device.tf32_flops > 0 ? sustained16(gemm16, 0.5, device.tf32_flops) : kGemmRateFp32;
  const auto sustained8 = [&](double rate) {
    return AtItsPower(device, rate, kReferenceFp8_flops[arch], device.fp8_flops);
  };
  const double rate8 =
      device.fp8_flops <= 0
          ? rate16
          : sustained8(
                known[blackwell ? constants::kGemmRate8Blackwell : constants::kGemmRate8Hopper]);
  const double rate4 = has_fp4 ? sustained8(known[constants::kGemmRate4Blackwell]) : rate8;
  const std::array<double, kDTypes> rates = {
      kGemmRateFp32, rate_tf32,          rate16, rate_fp16, rate8, rate4,
      kGemmRateFp32, rate8 * kMxfp8Rate, rate8};
  for (std::size_t i = 0; i < kDTypes; ++i) {
    r.gemm_flops[i] = rates[i] * r.peak_flops[i];
    r.macs_per_clock[i] = kMacsPerClock[arch] * r.peak_flops[i] / device.fp16_flops;
  }
  return r;
}

}  // namespace orrery::compute
