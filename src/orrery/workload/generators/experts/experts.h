// The experts of one layer, forward and backward, as Megatron Core's MoELayer runs them.
//
// T tokens of this rank (after sequence parallelism), k experts a token, E experts over ep ranks,
// each expert's matrices over etp ranks. Forward: router GEMM, scores and top-k, auxiliary loss;
// dispatch; grouped GEMM fc1, activation times the router's weight, grouped GEMM fc2; combine;
// shared experts, an ordinary tensor-parallel feed-forward, after it or beside it. Backward: the
// same in reverse, a grouped GEMM being data gradient then weight gradient.
//
// Dispatchers, with bytes of one rank:
//   all-to-all  k copies of every token are permuted by expert, counts are gathered and read by the
//               host, then T·k·h·e over ep (and 4·T·k of weights); then sorted by local expert
//   all-gather  every rank gathers all T·ep tokens, their weights and choices, and picks its own;
//               a reduce-scatter brings them back
//   DeepEP      a token goes once to every rank that has one of its experts: T·d·h·e, where d is
//               the expected number of such ranks for a uniform choice; permuted on arrival. Where
//               the ranks lie in several NVLink domains, it goes once to every such domain over the
//               NICs (d counts domains) and is handed on over NVLink, in one pipeline that tokens
//               of the own domain pass as well: DeepEP's README gives 43 to 58 GB/s over 400 Gb/s
//               NICs with these counted, so that all T·d·h·e bytes go at the NICs' rate
//   HybridEP    as DeepEP, with the maps of all ranks' choices gathered first and each token's
//               probabilities for all experts of a domain beside it; its own kernel permutes and
//               pads; where the iteration is one graph its buffers have fixed sizes and the host
//               reads nothing
// Experts that work on a narrower width (Nemotron 3's LatentMoE) get tokens projected before the
// dispatch, and their results are projected back behind the combine. In 8 or 4 bits the grouped
// GEMMs and these projections run in low precision, casts of precision.h before them; tokens travel
// in 16. With etp > 1 the tokens are gathered over etp before the experts and reduce-scattered
// behind.
//
// Kernels have the rows that a rank's experts get, the same for each of them: those of the busiest
// rank everywhere (ExpertPlan::moe_imbalance), or by layer and rank (routing.h). Source:
// megatron/core/transformer/moe (moe_layer.py, token_dispatcher.py, experts.py, router.py),
// DeepEP's README; read for their behaviour.
#pragma once

#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/experts/expert_adapters.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Tokens of a rank and what its experts see.
struct ExpertLoad {
  std::int64_t sent = 0;      // token copies that leave a rank's router: T·k less what is dropped
  std::int64_t received = 0;  // that this rank gets, before the gathering over etp
  std::int64_t rows = 0;      // that its experts work on
  std::int64_t each = 0;      // rows of one expert, rounded up
  std::int64_t on_wire = 0;   // tokens that the exchange counts for the busiest rank
  std::int64_t arrived = 0;   // and for this one
  std::int64_t once = 0;      // of those, a token once: before copies for each expert are made
};
ExpertLoad LoadOf(const Shape& s);

class ExpertWriter {
 public:
  // REQUIRES: s.experts.count > 0.
  ExpertWriter(const Shape& s, BlockWriter* w);

  // From the norm's output to the sum that meets the residual. `keep`: tensors stay for backward.
  void Forward(bool keep);
  // From the gradient of that sum to the gradient of the norm's output.
  void Backward();

 private:
  enum class Way : std::uint8_t { kThere, kBack };

  // A module's operations follow; its host work.
  void Enter(std::string_view module, graph::Pass pass);
  void Router(graph::Pass pass);
  void Latent(std::string_view name, std::int64_t out, std::int64_t in, graph::Pass pass);
  // Tokens to their experts (there) or results to their tokens (back); backward runs them swapped.
  void Permute(Way way, graph::Pass pass);
  void Exchange(Way way, graph::Pass pass, bool blocking);
  void RoutingMap();
  void ReadCounts();
  std::int64_t ProbabilityBytes(Way way) const;
  void Sort(Way way, graph::Pass pass);
  void Pad(std::string_view name, graph::Pass pass);
  void SharedForward(bool first_half);
  void SharedBackward();
  void ExpertsForward(bool keep);
  void ExpertsBackward();
  // All of it between router and the sum of branches, expert by expert (expert_loop.cc).
  void LoopForward(bool keep);
  // The shared experts, and what is not kept.
  void FinishForward(bool keep);
  void LoopBackward();
  void FinishBackward();  // of shared experts and router
  void OutputBias(graph::Pass pass);
  void Activation(graph::Pass pass, std::int64_t rows, std::int64_t cols);
  void Clamp(graph::Pass pass, std::int64_t rows, std::int64_t cols);
  bool overlaps() const {
    return e_.shared_overlap && e_.ep > 1 && e_.dispatcher != Dispatcher::kAllGather;
  }
  // Rows are ordered on arrival, not before they leave.
  bool permutes_received() const {
    return e_.dispatcher == Dispatcher::kAllGather || e_.dispatcher == Dispatcher::kHybridEp;
  }
  std::int64_t fc1(std::int64_t width) const;

  const Shape& s_;
  const Shape routed_, dense_;  // of the experts' and the shared ones' linear layers
  const ExpertShape& e_;
  BlockWriter* w_;
  ExpertLoad load_;
  ExpertAdapters adapters_;
  graph::Buffer logits_, latent_, permuted_, fc1_out_, unweighted_, activated_, shared_fc1_,
      shared_act_;
  graph::Buffer unscaled_;                // a loop's rows before their weights
  graph::Buffer fc1_wide_, shared_wide_;  // where they are kept in fewer bits (stored_inputs.h)
};

}  // namespace orrery::workload
