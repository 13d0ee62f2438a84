// model + plan → graph, as Megatron-LM runs it.
//
// Cost: blocks are built once per (model, plan shape) and kept; a plan after that costs
// O(pp · microbatches · vpp) calls and O(ranks) bindings. GPT-3 175B, TP8 PP8 DP16, 96
// micro-batches: 0.10 ms cold, 0.055 ms warm; Llama 3.1 405B on 16,384 ranks: 0.19 ms warm (one
// core of a 2-core VM).
#pragma once

#include <memory>
#include <string>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"
#include "orrery/workload/model.h"
#include "orrery/workload/plan.h"

namespace orrery::workload {

// Keeps blocks between plans. Not thread-safe: one per thread.
class Generator {
 public:
  Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  // Appends one job to `graph`: blocks, programs (one per pipeline stage), groups, bindings. Rank
  // order is Megatron's: tp fastest, then cp, then dp, then pp. Logical rank r of the job becomes
  // RankId(first + r).
  Status AddJob(const Model& model, const Plan& plan, const std::string& job_name,
                graph::Graph* graph);

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace orrery::workload
