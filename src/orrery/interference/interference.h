// How kernels and communication slow each other when they share a GPU.
//
// The engine asks once per (kernel, class) when it prices a block, never per event. A class is the
// set of kinds of communication in flight beside the compute stream.
//
// For now a documented constant model with a physical base. A communication kernel holds one SM per
// channel and moves, per byte that it sends, about three bytes of HBM (it reads its part, writes
// what arrives, and reads it again to reduce or forward). Beside it
//   GEMM, attention       sms / (sms - channels): their blocks fit on fewer SMs
//   memory-bound kernels  1 / (1 - 3·rate/HBM): they keep the bandwidth that is left
//   kernels of a trace    the mean of both, as their kind is unknown
// and communication takes a constant factor longer: small over NICs, whose rate leaves slack.
// Both kinds at once: channels and bandwidth add, at most half of the device is lost.
// Upper reference, not fitted: Moye (arXiv 2025) Table 2, beside a 25 MB all-reduce on an A800:
// GEMM +27 % (here 108/(108-24) = +29 %), sums +51 %, gradients +61 %; Table 3: layer norm +9 to 21
// % (here memory-bound kernels +55 %, at the A100's full NVLink rate; +31 % at the A800's two
// thirds). Wave quantisation, L2 contention, copy engines and clocks are left out.
#pragma once

#include <cstdint>

#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"

namespace orrery::interference {

// Bit mask: what runs beside the compute stream of a rank.
using Class = std::uint8_t;
inline constexpr Class kAlone = 0;
inline constexpr Class kIntraNode = 1;  // a collective over NVLink
inline constexpr Class kInterNode = 2;  // a collective that crosses NICs
inline constexpr int kClasses = 4;

// Point-to-point messages are left out (factor 1): few channels, short. An all-to-all over NICs is
// of both kinds: DeepEP's takes 20 to 24 SMs, NCCL's sends and receives as many channels.
Class ClassOf(graph::Collective collective, bool crosses_nics);

struct Factors {
  double compute = 1;        // the kernel takes this much longer, >= 1
  double communication = 1;  // and so does the communication beside it
};
// REQUIRES: concurrent < kClasses.
Factors Slowdown(const graph::Kernel& kernel, Class concurrent, const cluster::DeviceSpec& device);
// Over a whole communication that does not block the compute stream.
double CommunicationFactor(Class own, const cluster::DeviceSpec& device);

}  // namespace orrery::interference
