// A graph's programs as writers of trace formats read them: flat (engine/general/flat_program.h),
// with what their operations cost on the cluster at hand. One a program, shared by its ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "orrery/engine/engine.h"
#include "orrery/engine/general/flat_program.h"
#include "orrery/engine/general/op_costs.h"
#include "orrery/engine/general/peers.h"

namespace orrery::job {

class FlatPrograms {
 public:
  using Node = engine::general::Node;

  // `iterations` of each job that repeats. `inputs` must outlive the result.
  static Result<FlatPrograms> Make(const engine::Inputs& inputs, int iterations);

  const engine::general::FlatProgram& of(std::uint32_t rank) const {
    return *programs_[program(rank)].flat;
  }
  std::size_t program(std::uint32_t rank) const {
    return in_->graph->bindings[rank].program.index();
  }
  const graph::Comm& comm(const Node& n) const {
    const graph::Block& block = in_->graph->blocks[n.block];
    return block.comms[block.ops[n.op].index];
  }
  std::int64_t amount(std::uint32_t rank, const Node& n) const {
    return n.amount.slot < 0 ? n.amount.value
                             : in_->graph->number(in_->graph->bindings[rank], n.amount);
  }
  // Of a kHost or kWork node. REQUIRES: it is one.
  SimTime Duration(std::uint32_t rank, const Node& n) const;

  // What none of these formats says, sentence by sentence: of all nodes and of the graph.
  // `times`: also what communications were measured to take.
  std::vector<std::string> Lost(bool times) const;

 private:
  struct Program {
    std::unique_ptr<engine::general::FlatProgram> flat;
    std::vector<engine::general::BlockCosts> costs;  // by call
  };

  explicit FlatPrograms(const engine::Inputs& inputs) : in_(&inputs) {}

  const engine::Inputs* in_;
  std::vector<Program> programs_;
};

}  // namespace orrery::job
