#include "orrery/engine/services/services.h"

#include "orrery/engine/services/machine.h"

namespace orrery::engine::services {

Result<Record> Run(const Inputs& inputs, const graph::Requests& requests,
                   const graph::Services& services, Sink* sink) {
  ORRERY_ASSIGN_OR_RETURN(const auto network, SetUpFluidLinks(inputs));
  Machine machine(inputs, requests, services, network.get(), sink);
  ORRERY_RETURN_IF_ERROR(machine.Run());
  Record record;
  machine.Fill(&record);
  return record;
}

}  // namespace orrery::engine::services
