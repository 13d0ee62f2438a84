// How kernels and communication slow each other when they share a GPU.
//
// The engine asks once per (kernel, class) when it prices a block, never per event. A class is the set
// of kinds of communication in flight beside the compute stream. For now a documented constant model:
// a communication kernel holds `channels` SMs, so a compute-bound kernel keeps (sms - channels)/sms of
// its rate, and a memory-bound one loses the HBM bandwidth that the communication moves.
#pragma once

#include <cstdint>

#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"

namespace orrery::interference {

// Bit mask: what runs beside the compute stream of a rank.
using Class = std::uint8_t;
inline constexpr Class kAlone = 0;
inline constexpr Class kIntraNode = 1;   // a collective over NVLink
inline constexpr Class kInterNode = 2;   // a collective that crosses NICs
inline constexpr int kClasses = 4;

// Point-to-point messages are left out (factor 1): few channels, short.
Class ClassOf(graph::Collective collective, bool crosses_nics);

struct Factors {
  double compute = 1;                    // the kernel takes this much longer, >= 1
  double communication = 1;              // and so does the communication beside it
};
Factors Slowdown(const graph::Kernel& kernel, Class concurrent, const cluster::DeviceSpec& device);
// Over a whole communication that does not block the compute stream.
double CommunicationFactor(Class own);

}  // namespace orrery::interference
