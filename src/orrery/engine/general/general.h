// Runs graphs that are not straight (graph/verify/straight.h), on every back end.
#pragma once

#include "orrery/engine/engine.h"
#include "orrery/engine/prices.h"
#include "orrery/network/network.h"

namespace orrery::engine::general {

// As engine::Run, by the general machine: unfolded, on one thread. Refuses by name what it does not
// do: jitter, and what a transport (transport.h) or joint endpoints lack.
Result<Record> Run(const Inputs& inputs, const Options& options,
                   const network::BackendInfo& backend, PriceCache* prices, Sink* sink);

}  // namespace orrery::engine::general
