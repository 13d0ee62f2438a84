// PINT's code of a utilisation: log_1.05 of 512 u, rounded at random (control/pint.cc).
#pragma once

#include <cstdint>

namespace orrery::network::packet {

// The code is rounded up where `draw`, in [0, 1), is below the value's place between two codes.
std::uint32_t ToPintCode(double utilisation, double draw);
double FromPintCode(std::uint32_t code);

}  // namespace orrery::network::packet
