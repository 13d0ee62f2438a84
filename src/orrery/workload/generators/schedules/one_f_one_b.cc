// 1F1B without interleaving, as Megatron's forward_backward_pipelining_without_interleaving.
//
// Stage s warms up with pp - 1 - s forward passes, then alternates. In the steady state a send and
// the receive that answers it are one batch: send forward with receive backward, send backward with
// receive forward. Every exchange blocks the compute stream. With one stage it is plain gradient
// accumulation.
#include <algorithm>

#include "orrery/workload/generators/schedules/schedules.h"

namespace orrery::workload {

namespace {

// One stage whose backward pass of a micro-batch runs with the next one's forward pass.
void WriteCombined(ProgramWriter* w) {
  const int m = w->microbatches();
  w->Forward(0, 0);
  for (int i = 1; i < m; ++i) w->ForwardAndBackward(0, i, 0, i - 1, false);
  w->Backward(0, m - 1, ReducesInBackward(*w));
}

}  // namespace

void Write1f1b(ProgramWriter* w) {
  if (w->plan().experts.moe_comm_overlap) return WriteCombined(w);
  const int m = w->microbatches();
  const int warmup = std::min(w->stages() - w->stage() - 1, m);
  const int steady = m - warmup;
  const int receive_forward = w->first() ? 0 : kRecvPrevious;
  const int send_forward = w->last() ? 0 : kSendNext;
  const int receive_backward = w->last() ? 0 : kRecvNext;
  const int send_backward = w->first() ? 0 : kSendPrevious;
  const bool reduces = ReducesInBackward(*w);

  for (int i = 0; i < warmup; ++i) {
    w->BatchedExchange(receive_forward, 0, i);
    w->Forward(0, i);
    w->BatchedExchange(send_forward, 0, i);
  }
  if (steady > 0) w->BatchedExchange(receive_forward, 0, warmup);
  for (int i = 0; i < steady; ++i) {
    const bool last = i + 1 == steady;
    w->Forward(0, warmup + i);
    w->BatchedExchange(send_forward | receive_backward, 0, warmup + i);
    w->Backward(0, i, reduces && ((last && warmup == 0) || w->reduces_each()));
    w->BatchedExchange(last ? send_backward : send_backward | receive_forward, 0, i);
  }
  for (int i = 0; i < warmup; ++i) {
    w->BatchedExchange(receive_backward, 0, steady + i);
    w->Backward(0, steady + i, i + 1 == warmup && reduces);
    w->BatchedExchange(send_backward, 0, steady + i);
  }
}

}  // namespace orrery::workload
