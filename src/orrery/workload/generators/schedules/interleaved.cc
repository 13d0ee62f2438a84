// Interleaved 1F1B, as Megatron's forward_backward_pipelining_with_interleaving.
//
// A stage holds vpp chunks. Virtual micro-batches run in groups: `microbatch_group` micro-batches
// through chunk 0, the same through chunk 1, …; backward visits the chunks in reverse. Stage s
// warms up with 2(pp - 1 - s) + (vpp - 1)·group forward passes. With p2p overlapped the steady
// state starts each exchange right after the pass that produced it and waits for a receive right
// before the pass that needs it; warm-up and cool-down block, or do the same, receives then started
// a pass ahead. Without, one batch per pair of passes.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "orrery/workload/generators/schedules/schedules.h"

namespace orrery::workload {

namespace {

class Interleaved {
 public:
  explicit Interleaved(ProgramWriter* w)
      : w_(*w),
        pp_(w->stages()),
        stage_(w->stage()),
        vpp_(w->chunks()),
        m_(w->microbatches()),
        total_(m_ * vpp_),
        overlap_(w->plan().framework.overlap_p2p),
        overlap_ends_(overlap_ && w->plan().framework.overlap_p2p_warmup_flush) {
    const int group =
        w->plan().parallel.microbatch_group > 0 ? w->plan().parallel.microbatch_group : pp_;
    table_.reserve(static_cast<std::size_t>(total_));
    for (int from = 0; from < m_; from += group) {
      for (int chunk = 0; chunk < vpp_; ++chunk) {
        for (int i = from; i < std::min(from + group, m_); ++i) table_.emplace_back(i, chunk);
      }
    }
    // Passes that run in step must not wait for each other: one more is in flight.
    const int combined = w_.plan().experts.moe_comm_overlap ? 1 : 0;
    warmup_ = std::min(2 * (pp_ - 1 - stage_) + (vpp_ - 1) * group + combined, total_);
  }

  void Write() {
    Exchange(w_.first() ? 0 : kRecvPrevious, 0);
    for (int k = 0; k < warmup_; ++k) overlap_ends_ ? WarmupOverlapped(k) : Warmup(k);
    for (int k = 0; k < total_ - warmup_; ++k) overlap_ ? SteadyOverlapped(k) : Steady(k);
    if (warmup_ == total_ && !w_.last()) Exchange(kRecvNext, 0);
    for (int k = total_ - warmup_; k < total_; ++k) {
      overlap_ends_ ? CooldownOverlapped(k) : Cooldown(k);
    }
    if (send_previous_ != graph::kNoEvent) w_.Wait(send_previous_);
  }

 private:
  int Microbatch(int k) const { return table_[static_cast<std::size_t>(k % total_)].first; }
  int ForwardChunk(int k) const { return table_[static_cast<std::size_t>(k % total_)].second; }
  int BackwardChunk(int k) const { return vpp_ - 1 - ForwardChunk(k); }
  bool StartsModel(int chunk) const { return w_.first() && chunk == 0; }
  bool EndsModel(int chunk) const { return w_.last() && chunk == vpp_ - 1; }

  // Whether the input of virtual micro-batch k + 1 comes from a neighbour. The leading stage (first
  // in forward, last in backward) is pp - 1 ahead of the trailing one, whose output wraps around.
  bool ReceivesForward(int k) const {
    if (!w_.first()) return true;
    return k >= pp_ - 1 && ForwardChunk(k - (pp_ - 1)) != vpp_ - 1;
  }
  bool ReceivesBackward(int k) const {
    if (!w_.last()) return true;
    return k >= pp_ - 1 && BackwardChunk(k - (pp_ - 1)) != 0;
  }

  void Exchange(int directions, int k) {
    if (overlap_) {
      w_.UnbatchedExchange(directions, ForwardChunk(k), Microbatch(k));
    } else {
      w_.BatchedExchange(directions, ForwardChunk(k), Microbatch(k));
    }
  }

  void Forward(int k) {
    GatherAhead(k);
    w_.Forward(ForwardChunk(k), Microbatch(k));
  }

  void GatherAhead(int k) {
    // A chunk's parameters are gathered when the first stage comes to the chunk before it.
    const int ahead = k + stage_;
    if (w_.plan().framework.align_param_gather && ahead < total_ && Microbatch(ahead) == 0) {
      const int chunk = ForwardChunk(ahead) + 1;
      if (chunk > 1 && chunk < vpp_) w_.GatherChunk(chunk);
    }
  }

  void Combined(int forward, int k) {
    GatherAhead(forward);
    w_.ForwardAndBackward(ForwardChunk(forward), Microbatch(forward), BackwardChunk(k),
                          Microbatch(k), ReducesWith(k));
    ReduceBehind(k);
  }

  // With aligned reduction all stages start a chunk's reduction together, `stage` passes late.
  void Backward(int k) {
    w_.Backward(BackwardChunk(k), Microbatch(k), ReducesWith(k));
    ReduceBehind(k);
  }
  bool ReducesWith(int k) const {
    return w_.plan().framework.overlap_grad_reduce && !w_.plan().framework.align_grad_reduce &&
           Microbatch(k) == m_ - 1;
  }
  void ReduceBehind(int k) {
    const bool overlap = w_.plan().framework.overlap_grad_reduce;
    const bool align = w_.plan().framework.align_grad_reduce;
    const int behind = k - stage_;
    if (overlap && align && behind >= 0 && Microbatch(behind) == m_ - 1) {
      w_.ReduceChunk(BackwardChunk(behind));
    }
  }

  void Warmup(int k) {
    Forward(k);
    const int send = EndsModel(ForwardChunk(k)) ? 0 : kSendNext;
    const int receive = k != total_ - 1 && ReceivesForward(k) ? kRecvPrevious : 0;
    const bool turns = k == warmup_ - 1 && warmup_ < total_;
    const int receive_backward = turns && !w_.last() ? kRecvNext : 0;
    if (!overlap_) return Exchange(send | receive | receive_backward, k);
    Exchange(send | receive, k);
    if (receive_backward != 0) StartAll(kRecvNext, k);
  }

  // The leading stage starts its receive behind its pass: the trailing one sends no earlier.
  void WarmupOverlapped(int k) {
    if (k != 0 && !StartsModel(ForwardChunk(k))) WaitFirst(&receives_previous_);
    const int receive = k != total_ - 1 && ReceivesForward(k) ? kRecvPrevious : 0;
    if (!w_.first()) StartAll(receive, k);
    Forward(k);
    StartAll((EndsModel(ForwardChunk(k)) ? 0 : kSendNext) | (w_.first() ? receive : 0), k);
    Rotate(&send_next_, &started_next_);
    if (k == warmup_ - 1 && warmup_ < total_ && !w_.last()) StartAll(kRecvNext, k);
  }

  // Starts the calls in the order of this stage's parity and notes whom to wait for.
  void StartAll(int directions, int k) {
    for (const Direction d : IssueOrder(stage_ % 2 != 0)) {
      if (!(directions & d)) continue;
      const std::int16_t event = w_.Start(d, ForwardChunk(k), Microbatch(k));
      switch (d) {
        case kSendNext:
          started_next_ = event;
          break;
        case kSendPrevious:
          started_previous_ = event;
          break;
        case kRecvPrevious:
          receives_previous_.push_back(event);
          break;
        case kRecvNext:
          receives_next_.push_back(event);
          break;
      }
    }
  }

  void WaitFirst(std::deque<std::int16_t>* receives) {
    if (receives->empty()) return;
    w_.Wait(receives->front());
    receives->pop_front();
  }

  // The send before the one just started must be over before its buffer is freed.
  void Rotate(std::int16_t* pending, std::int16_t* started) {
    if (*pending != graph::kNoEvent) w_.Wait(*pending);
    *pending = std::exchange(*started, graph::kNoEvent);
  }

  void SteadyOverlapped(int k) {
    const int forward = k + warmup_;
    if (!StartsModel(ForwardChunk(forward))) WaitFirst(&receives_previous_);
    if (w_.plan().experts.moe_comm_overlap) {
      if (!EndsModel(BackwardChunk(k))) WaitFirst(&receives_next_);
      Combined(forward, k);
    } else {
      Forward(forward);
    }
    const bool receive = k != total_ - warmup_ - 1 && ReceivesForward(forward);
    StartAll((EndsModel(ForwardChunk(forward)) ? 0 : kSendNext) | (receive ? kRecvPrevious : 0),
             forward);
    Rotate(&send_next_, &started_next_);
    if (!w_.plan().experts.moe_comm_overlap) {
      if (!EndsModel(BackwardChunk(k))) WaitFirst(&receives_next_);
      Backward(k);
    }
    StartAll(
        (StartsModel(BackwardChunk(k)) ? 0 : kSendPrevious) | (ReceivesBackward(k) ? kRecvNext : 0),
        k);
    Rotate(&send_previous_, &started_previous_);
  }

  void Steady(int k) {
    const int forward = k + warmup_;
    Combined(forward, k);
    const bool receive = k != total_ - warmup_ - 1 && ReceivesForward(forward);
    Exchange((EndsModel(ForwardChunk(forward)) ? 0 : kSendNext) |
                 (StartsModel(BackwardChunk(k)) ? 0 : kSendPrevious) |
                 (receive ? kRecvPrevious : 0) | (ReceivesBackward(k) ? kRecvNext : 0),
             forward);
  }

  void Cooldown(int k) {
    if (!EndsModel(BackwardChunk(k)) && k != 0) WaitFirst(&receives_next_);
    Backward(k);
    const bool receive = k != total_ - 1 && ReceivesBackward(k);
    Exchange((StartsModel(BackwardChunk(k)) ? 0 : kSendPrevious) | (receive ? kRecvNext : 0), k);
  }

  void CooldownOverlapped(int k) {
    if (k != 0 && !EndsModel(BackwardChunk(k))) WaitFirst(&receives_next_);
    const int receive = k != total_ - 1 && ReceivesBackward(k) ? kRecvNext : 0;
    if (!w_.last()) StartAll(receive, k);
    Backward(k);
    StartAll((StartsModel(BackwardChunk(k)) ? 0 : kSendPrevious) | (w_.last() ? receive : 0), k);
    Rotate(&send_previous_, &started_previous_);
  }

  ProgramWriter& w_;
  int pp_, stage_, vpp_, m_, total_;
  bool overlap_, overlap_ends_;
  int warmup_ = 0;
  std::vector<std::pair<int, int>> table_;  // (micro-batch, chunk) of each virtual micro-batch
  std::deque<std::int16_t> receives_previous_, receives_next_;
  std::int16_t send_next_ = graph::kNoEvent, send_previous_ = graph::kNoEvent;
  std::int16_t started_next_ = graph::kNoEvent, started_previous_ = graph::kNoEvent;
};

}  // namespace

void Write1f1bInterleaved(ProgramWriter* w) { Interleaved(w).Write(); }

}  // namespace orrery::workload
