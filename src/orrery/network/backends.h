// The constructors behind network.h's list: one line for each back end.
#pragma once

#include <memory>

#include "orrery/network/network.h"

namespace orrery::network {

std::unique_ptr<Network> MakeAnalytic();
std::unique_ptr<Network> MakeLinks();
std::unique_ptr<Network> MakeFlow(std::string_view name);
std::unique_ptr<Network> MakeLogGops(const Parameters& parameters);
std::unique_ptr<Network> MakeExternal();
std::unique_ptr<Network> MakePacket(const Parameters& parameters);

}  // namespace orrery::network
