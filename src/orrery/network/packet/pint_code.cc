#include "orrery/network/packet/pint_code.h"

#include <algorithm>
#include <array>

namespace orrery::network::packet {
namespace {

constexpr double kBase = 1.05, kScale = 512;

// Powers of the base up to 512 times a utilisation of 30.
constexpr auto kPowers = [] {
  std::array<double, 200> powers{};
  double power = 1;
  for (double& p : powers) {
    p = power;
    power *= kBase;
  }
  return powers;
}();

}  // namespace

std::uint32_t ToPintCode(double utilisation, double draw) {
  const double value = std::clamp(utilisation * kScale, 1.0, kPowers.back());
  const auto above = std::upper_bound(kPowers.begin(), kPowers.end() - 1, value);
  const auto code = static_cast<std::uint32_t>(above - kPowers.begin()) - 1;
  const double share = (value - kPowers[code]) / (kPowers[code + 1] - kPowers[code]);
  return draw < share ? code + 1 : code;
}

double FromPintCode(std::uint32_t code) {
  return kPowers[std::min<std::size_t>(code, kPowers.size() - 1)] / kScale;
}

}  // namespace orrery::network::packet
