// Runs a service's requests from their compact form (graph/services.h): operations exist only while
// their request is under way.
//
// It keeps the general machine's rules (general/machine.h) for what such requests consist of, and
// serves ties in the same order: ends, breakdowns, what links carried, and the fingerprint are
// those of the general machine on the graph that says the same, to the picosecond
// (services_test.cc). What it leaves out is what they do not need: programs in memory, and
// matching, for a message's receive is known.
//
// Cost: five events a message at most; some 50 bytes a request, 30 an operation of those under way.
#pragma once

#include "orrery/engine/engine.h"
#include "orrery/graph/requests.h"
#include "orrery/graph/services.h"

namespace orrery::engine::services {

// `inputs.graph` has the service's hosts without operations. The sink hears of each request's last
// operation. REQUIRES: inputs.network serves fluids over links; requests and services go together.
Result<Record> Run(const Inputs& inputs, const graph::Requests& requests,
                   const graph::Services& services, Sink* sink = nullptr);

}  // namespace orrery::engine::services
