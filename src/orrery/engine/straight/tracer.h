// Writes the intervals of selected ranks to a Sink, kernel by kernel. A run without a sink pays one
// test a rank step.
#pragma once

#include <vector>

#include "orrery/engine/straight/layout.h"
#include "orrery/engine/work.h"

namespace orrery::engine {

struct StreamState;

class Tracer {
 public:
  Tracer(const graph::Graph& graph, const Layout& layout, const PriceCache& prices, Sink* sink);

  bool wants(std::uint32_t sim_rank) const {
    return sink_ != nullptr && !wanted_[sim_rank].empty();
  }

  // A piece of work begins in a class; the class changes; it ends.
  void BeginWork(std::uint32_t r, SimTime now, interference::Class beside);
  void ChangeClass(std::uint32_t r, SimTime now, interference::Class beside);
  void EndWork(std::uint32_t r, const BlockPrice& price, const Item& item, const graph::Call& call,
               std::uint32_t layer, int iteration, const WorkProgress& progress, SimTime launch);
  void AddComm(std::uint32_t r, const BlockPrice& price, const Item& item,
               const StreamState& stream, SimTime end, const graph::Program& program);

 private:
  struct Change {
    SimTime time;
    interference::Class beside;
  };
  void Emit(std::uint32_t r, Sink::Interval interval);
  static std::int16_t LayerOf(const graph::Block& block, const graph::Call& call,
                              std::uint32_t repeat);

  const graph::Graph& graph_;
  const PriceCache& prices_;
  Sink* sink_;
  std::vector<std::vector<RankId>> wanted_;  // by simulated rank
  std::vector<std::vector<Change>> changes_;
};

}  // namespace orrery::engine
