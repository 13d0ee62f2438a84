// GPipe (Huang et al. 2019): all forward passes, then all backward passes, micro-batches in order
// both times (as torch.distributed.pipelining does; the paper draws the backward passes in reverse,
// which takes equally long). Every micro-batch's activations are alive at once. Exchanges block.
#include "orrery/workload/generators/schedules/schedules.h"

namespace orrery::workload {

void WriteGpipe(ProgramWriter* w) {
  const int m = w->microbatches();
  for (int i = 0; i < m; ++i) {
    w->BatchedExchange(w->first() ? 0 : kRecvPrevious, 0, i);
    w->Forward(0, i);
    w->BatchedExchange(w->last() ? 0 : kSendNext, 0, i);
  }
  for (int i = 0; i < m; ++i) {
    w->BatchedExchange(w->last() ? 0 : kRecvNext, 0, i);
    w->Backward(0, i, i + 1 == m && ReducesInBackward(*w));
    w->BatchedExchange(w->first() ? 0 : kSendPrevious, 0, i);
  }
}

}  // namespace orrery::workload
