#include "orrery/workload/generators/schedules/passes.h"

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

namespace orrery::workload {

namespace {

using Kind = PipelinePass::Kind;

// Of a message: what it carries and which neighbour it comes from or goes to.
struct Route : Neighbour {
  bool gradient = false;
};

class PassWriter {
 public:
  PassWriter(std::span<const PipelinePass> passes, ProgramWriter* w)
      : passes_(passes),
        w_(*w),
        events_(passes.size(), graph::kNoEvent),
        last_(static_cast<std::size_t>(w->plan().parallel.vpp)) {
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const Route route = Input(passes[i]);
      if (route.crosses) takers_[Index(route)].push_back(i);
      last_[static_cast<std::size_t>(passes[i].chunk)] = i;
    }
    const Plan& plan = w_.plan();
    if (plan.parallel.schedule != Schedule::kGiven || !plan.parallel.given->by_microbatch) return;
    for (std::size_t k = 0; k < takers_.size(); ++k) OrderAsMade(*plan.parallel.given, k);
  }

  void Write() {
    for (std::size_t k = 0; k < takers_.size(); ++k) Post(k);
    const bool pairs = w_.plan().experts.moe_comm_overlap;
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      WaitInput(i);
      if (pairs && passes_[i].in_step) {
        const PipelinePass& forward = passes_[i];
        const PipelinePass& backward = passes_[i + 1];
        WaitInput(i + 1);
        w_.ForwardAndBackward(forward.chunk, forward.microbatch, backward.chunk,
                              backward.microbatch, false);
        Finish(i++);
      } else {
        Run(passes_[i]);
      }
      Finish(i);
    }
    for (const auto& kind : sends_) {
      for (const std::int16_t send : kind) w_.Wait(send);
    }
  }

 private:
  static std::size_t Index(const Route& r) { return (r.next ? 1u : 0u) + (r.gradient ? 2u : 0u); }

  Route Input(const PipelinePass& pass) const { return RouteOf(w_.stage(), pass, true); }
  Route Output(const PipelinePass& pass) const { return RouteOf(w_.stage(), pass, false); }
  Route RouteOf(int stage, const PipelinePass& pass, bool input) const {
    if (pass.kind == Kind::kWeight) return {};
    const bool gradient = pass.kind != Kind::kForward;
    return {NeighbourOf(w_.plan(), stage, pass.chunk, input != gradient), gradient};
  }

  void WaitInput(std::size_t i) {
    const Route route = Input(passes_[i]);
    if (!route.crosses) return;
    const std::size_t k = Index(route);
    while (events_[i] == graph::kNoEvent) Post(k);
    w_.Wait(events_[i]);
    if (--under_way_[k] == 0) Post(k);
  }

  // Sends what a pass has made, and reduces its chunk's gradients behind the last pass.
  void Finish(std::size_t i) {
    const PipelinePass& pass = passes_[i];
    if (const Route route = Output(pass); route.crosses) {
      Send(Index(route),
           w_.StartMessage(true, route.next, route.gradient, pass.chunk, pass.microbatch));
    }
    if (w_.plan().framework.overlap_grad_reduce &&
        last_[static_cast<std::size_t>(pass.chunk)] == i) {
      w_.ReduceChunk(pass.chunk);
    }
  }

  // Posts the next receive of a kind, if there is one.
  void Post(std::size_t k) {
    if (takers_[k].empty()) return;
    const std::size_t taker = takers_[k].front();
    const PipelinePass& pass = passes_[taker];
    takers_[k].pop_front();
    events_[taker] =
        w_.StartMessage(false, (k & 1) != 0, (k & 2) != 0, pass.chunk, pass.microbatch);
    ++under_way_[k];
  }

  // Receives of a kind in the order in which the neighbour sends.
  void OrderAsMade(const GivenSchedule& given, std::size_t k) {
    if (takers_[k].empty()) return;
    const int sender = Input(passes_[takers_[k].front()]).stage;
    const auto microbatches = static_cast<std::size_t>(w_.plan().microbatches());
    const auto at = [&](int chunk, int microbatch) {
      return static_cast<std::size_t>(chunk) * microbatches + static_cast<std::size_t>(microbatch);
    };
    std::vector<std::size_t> place(static_cast<std::size_t>(w_.plan().parallel.vpp) * microbatches);
    std::size_t made = 0;
    for (const PipelinePass& pass : given.stages[static_cast<std::size_t>(sender)]) {
      Route route = RouteOf(sender, pass, false);
      route.next = !route.next;  // as it is seen here
      if (route.crosses && Index(route) == k) place[at(pass.chunk, pass.microbatch)] = made++;
    }
    std::ranges::sort(takers_[k], {}, [&](std::size_t taker) {
      const PipelinePass& pass = passes_[taker];
      return place[at(Input(pass).chunk, pass.microbatch)];
    });
  }

  // The engine counts a rank's messages under way in 8 bits.
  void Send(std::size_t k, std::int16_t event) {
    constexpr std::size_t kMostSends = 60;
    sends_[k].push_back(event);
    if (sends_[k].size() <= kMostSends) return;
    w_.Wait(sends_[k].front());
    sends_[k].pop_front();
  }

  void Run(const PipelinePass& pass) {
    switch (pass.kind) {
      case Kind::kForward:
        return w_.Forward(pass.chunk, pass.microbatch);
      case Kind::kBackward:
        return w_.Backward(pass.chunk, pass.microbatch, false);
      case Kind::kData:
        return w_.BackwardHalf(pass.chunk, pass.microbatch, false);
      case Kind::kWeight:
        return w_.BackwardHalf(pass.chunk, pass.microbatch, true);
    }
  }

  std::span<const PipelinePass> passes_;
  ProgramWriter& w_;
  std::array<std::deque<std::size_t>, 4> takers_;  // passes that wait for a message, by kind
  std::vector<std::int16_t> events_;  // of the messages that passes wait for, once posted
  std::array<int, 4> under_way_{};    // of those posted, by kind
  std::vector<std::size_t> last_;     // last pass of each chunk
  std::array<std::deque<std::int16_t>, 4> sends_;  // under way, by kind
};

}  // namespace

void WritePasses(std::span<const PipelinePass> passes, ProgramWriter* w) {
  PassWriter(passes, w).Write();
}

}  // namespace orrery::workload
