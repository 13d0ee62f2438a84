#include "orrery/engine/straight/tracer.h"

#include "orrery/engine/straight/machine.h"

namespace orrery::engine {

Tracer::Tracer(const graph::Graph& graph, const Layout& layout, const PriceCache& prices,
               Sink* sink)
    : graph_(graph), prices_(prices), sink_(sink) {
  if (sink_ == nullptr) return;
  wanted_.resize(layout.ranks.size());
  changes_.resize(layout.ranks.size());
  for (std::size_t r = 0; r < graph.bindings.size(); ++r) {
    if (sink_->wants(RankId(r))) wanted_[layout.sim_of(RankId(r))].push_back(RankId(r));
  }
}

void Tracer::BeginWork(std::uint32_t r, SimTime now, interference::Class beside) {
  changes_[r].assign(1, {now, beside});
}

void Tracer::ChangeClass(std::uint32_t r, SimTime now, interference::Class beside) {
  changes_[r].push_back({now, beside});
}

void Tracer::Emit(std::uint32_t r, Sink::Interval interval) {
  for (RankId rank : wanted_[r]) {
    interval.rank = rank;
    sink_->Add(interval);
  }
}

std::int16_t Tracer::LayerOf(const graph::Block& block, const graph::Call& call,
                             std::uint32_t repeat) {
  const int step = graph::IsBackward(block.pass) ? -1 : 1;
  return static_cast<std::int16_t>(call.first_layer + step * static_cast<int>(repeat));
}

// Plays the work again under the classes it met, and notes where each kernel starts and ends.
void Tracer::EndWork(std::uint32_t r, const BlockPrice& price, const Item& item,
                     const graph::Call& call, std::uint32_t layer, int iteration,
                     const WorkProgress& progress, SimTime launch) {
  const graph::Block& block = graph_.blocks[call.block.index()];
  WorkProgress p;
  p.time = p.start = progress.start;
  p.host = progress.host;
  const std::vector<Change>& changes = changes_[r];
  std::size_t c = 0;
  for (std::uint32_t k = 0; k < item.count; ++k) {
    Item one = item;
    one.count = k + 1;
    SimTime start = kNever;
    for (;;) {
      const interference::Class now = changes[c].beside;
      SimTime idle = 0;
      const SimTime end = Finish(price, one, p, now, launch, &idle);
      if (start == kNever) start = p.time + idle;
      const bool changes_before = c + 1 < changes.size() && changes[c + 1].time < end;
      if (!changes_before) {
        Advance(price, one, &p, end, now, launch);
        const graph::Op& op = block.ops[price.kernels[item.first + k].op];
        Sink::Interval i;
        i.start = start;
        i.end = end;
        i.name = op.name;
        i.module = op.module;
        i.microbatch = call.microbatch;
        i.layer = LayerOf(block, call, layer);
        i.iteration = iteration;
        Emit(r, i);
        break;
      }
      Advance(price, one, &p, changes[++c].time, now, launch);
    }
  }
}

void Tracer::AddComm(std::uint32_t r, const BlockPrice& price, const Item& item,
                     const StreamState& stream, SimTime end, const graph::Program& program) {
  const graph::Call& call = program.calls[stream.call];
  const graph::Block& block = graph_.blocks[call.block.index()];
  for (std::uint32_t k = 0; k < item.count; ++k) {
    const CommPrice& comm = price.comms[item.first + k];
    if (comm.plan < 0 && !item.local) continue;
    const graph::Op& op = block.ops[comm.op];
    Sink::Interval i;
    i.stream = item.stream;
    i.start = stream.arrival;
    i.end = end;
    i.name = op.name;
    i.module = op.module;
    i.microbatch = call.microbatch;
    i.layer = LayerOf(block, call, stream.layer);
    i.iteration = stream.iteration;
    i.waited = stream.start > stream.arrival ? stream.start - stream.arrival : 0;
    i.bytes = comm.comm.bytes.value;
    if (!item.local) i.detail = collective::Name(prices_.plan(comm.plan).protocol);
    Emit(r, i);
  }
}

}  // namespace orrery::engine
