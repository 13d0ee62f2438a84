// Point-to-point between pipeline stages, as Megatron's p2p_communication issues it.
//
// Activations travel to the next stage under tag 0, gradients to the previous one under tag 1.
// Batched: one NCCL group call on one stream, the compute stream waits for all of it. Unbatched:
// one call each on a stream per direction, issued in an order that alternates with the stage's
// parity so that a stage's send meets its neighbour's receive.
#pragma once

#include <span>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

enum Direction : std::uint8_t {
  kSendNext = 1,
  kRecvPrevious = 2,
  kSendPrevious = 4,
  kRecvNext = 8
};
using Directions = std::uint8_t;  // a set

// The order in which an even or odd stage issues unbatched calls.
std::span<const Direction> IssueOrder(bool odd_stage);

// All of `directions`, blocking.
graph::Block BatchedExchange(const Shape& s, Directions directions, Names* names);
graph::Block UnbatchedExchange(const Shape& s, Directions directions, bool odd_stage, Names* names);
// One message to or from a neighbour, recorded in the call's event. Each kind has its stream: where
// chunks lie in V shape, activations and gradients travel both ways.
graph::Block StartMessage(const Shape& s, bool send, bool to_next, bool gradient, Names* names);
// One direction, recorded in the call's event.
graph::Block StartExchange(const Shape& s, Direction direction, Names* names);

}  // namespace orrery::workload
