#include "orrery/workload/generators/passes.h"

#include <array>
#include <deque>

namespace orrery::workload {

namespace {

using Kind = PipelinePass::Kind;

// Of a message: what it carries and which neighbour it comes from or goes to.
struct Route {
  bool crosses = false;  // to another stage at all
  bool next = false;     // the neighbour is the next stage
  bool gradient = false;
};

class Passes {
 public:
  Passes(std::span<const PipelinePass> passes, ProgramWriter* w) : passes_(passes), w_(*w) {
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const Route route = Input(passes[i]);
      if (route.crosses) takers_[Index(route)].push_back(i);
      last_[static_cast<std::size_t>(passes[i].chunk)] = i;
    }
  }

  void Write() {
    for (std::size_t k = 0; k < takers_.size(); ++k) Post(k);
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const PipelinePass& pass = passes_[i];
      if (const Route route = Input(pass); route.crosses) {
        const std::size_t k = Index(route);
        w_.Wait(posted_[k]);
        Post(k);
      }
      Run(pass);
      if (const Route route = Output(pass); route.crosses) {
        Send(Index(route),
             w_.StartMessage(true, route.next, route.gradient, pass.chunk, pass.microbatch));
      }
      if (w_.plan().overlap_grad_reduce && last_[static_cast<std::size_t>(pass.chunk)] == i) {
        w_.ReduceChunk(pass.chunk);
      }
    }
    for (const auto& kind : sends_) {
      for (const std::int16_t send : kind) w_.Wait(send);
    }
  }

 private:
  static std::size_t Index(const Route& r) { return (r.next ? 1u : 0u) + (r.gradient ? 2u : 0u); }

  bool Descends(int chunk) const { return !w_.folds() || chunk % 2 == 0; }
  // Where the part of the model before (or behind) a chunk lies.
  Route Neighbour(int chunk, bool before) const {
    const bool descends = Descends(chunk);
    const int step = descends != before ? 1 : -1;  // towards higher stages?
    const int stage = w_.stage() + step;
    if (stage >= 0 && stage < w_.stages()) return {.crosses = true, .next = step > 0};
    return {};  // the model's end, or the V's turn, which stays on this stage
  }
  Route Input(const PipelinePass& pass) const {
    if (pass.kind == Kind::kWeight) return {};
    const bool gradient = pass.kind != Kind::kForward;
    Route route = Neighbour(pass.chunk, !gradient);
    route.gradient = gradient;
    return route;
  }
  Route Output(const PipelinePass& pass) const {
    if (pass.kind == Kind::kWeight) return {};
    const bool gradient = pass.kind != Kind::kForward;
    Route route = Neighbour(pass.chunk, gradient);
    route.gradient = gradient;
    return route;
  }

  // Posts the next receive of a kind, if there is one.
  void Post(std::size_t k) {
    if (takers_[k].empty()) return;
    const PipelinePass& pass = passes_[takers_[k].front()];
    takers_[k].pop_front();
    posted_[k] = w_.StartMessage(false, (k & 1) != 0, (k & 2) != 0, pass.chunk, pass.microbatch);
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
  std::array<std::int16_t, 4> posted_{};
  std::array<std::size_t, 2> last_{};              // last pass of each chunk
  std::array<std::deque<std::int16_t>, 4> sends_;  // under way, by kind
};

}  // namespace

void WritePasses(std::span<const PipelinePass> passes, ProgramWriter* w) {
  Passes(passes, w).Write();
}

}  // namespace orrery::workload
