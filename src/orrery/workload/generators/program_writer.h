// Writes the program of one pipeline stage: what a schedule says, with gradient reduction and
// parameter gathering where Megatron puts them.
//
// A schedule is a function of this class; it decides the order of micro-batches and exchanges only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "orrery/graph/graph.h"
#include "orrery/workload/generators/block_source.h"
#include "orrery/workload/generators/schedules/exchange.h"
#include "orrery/workload/generators/sharding/buckets.h"
#include "orrery/workload/plan.h"
#include "orrery/workload/routing.h"

namespace orrery::workload {

// What all stages of a job share.
struct JobContext {
  const Model* model = nullptr;
  const Plan* plan = nullptr;
  const Shape* shape = nullptr;
  BlockSource* blocks = nullptr;
  std::span<const int> chunk_layers;      // pp·vpp, in chunk order
  std::int64_t norm_group = 1;            // ranks that sum the gradient norm
  std::span<const LayerLoad> loads = {};  // by layer, where a routing is drawn; else empty

  bool distributed() const { return plan->memory.sharding != Sharding::kNone; }
  // Muon under ZeRO-1: Megatron's layer-wise distributed optimizer. Every rank has all gradients,
  // and state of whole matrices.
  bool layer_wise() const { return distributed() && plan->optimizer == Optimizer::kMuon; }
  // Whether two stages hold, and sum the gradients of, one table.
  bool ties_across_stages() const {
    return model->tied_embeddings && plan->parallel.pp > 1 && plan->lora.rank == 0 &&
           !plan->v_shape() && !plan->dual();
  }
};

class ProgramWriter {
 public:
  // `expert_rank`: over ep, where a routing is drawn.
  ProgramWriter(const JobContext& job, int stage, graph::Program* out, int expert_rank = 0);

  const Plan& plan() const { return *job_.plan; }
  int stage() const { return stage_; }
  int stages() const { return plan().parallel.pp; }
  int chunks() const { return static_cast<int>(chunks_.size()); }
  int microbatches() const { return static_cast<int>(plan().microbatches()); }
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages(); }
  // Whether every micro-batch reduces its gradients, not only the last.
  bool reduces_each() const { return plan().framework.reducer == Reducer::kDeepSpeed; }
  // Whether the model ends here.
  bool holds_head() const {
    return plan().dual() ? first() || last() : v_shape() ? first() : last();
  }
  // Whether a chunk begins, or ends, the model.
  bool begins(int chunk) const {
    return plan().dual() ? (chunk == 0 ? first() : last()) : first() && chunk == 0;
  }
  bool ends(int chunk) const {
    return plan().dual() ? (chunk == 0 ? last() : first())
                         : holds_head() && chunk + 1 == plan().parallel.vpp;
  }

  // Static memory, zeroed gradients, the first parameter gathers.
  void Begin();
  // Passes and exchanges of the chunk `index`.
  void Forward(int index, int microbatch);
  // `reduce`: this is the chunk's last micro-batch and its buckets are reduced as they complete.
  void Backward(int index, int microbatch, bool reduce);
  // A forward and a backward pass of two micro-batches; with ExpertPlan::moe_comm_overlap layer by
  // layer, exchanges of tokens of one beside compute of the other
  // (generators/experts/expert_parts.h).
  void ForwardAndBackward(int forward, int forward_microbatch, int backward,
                          int backward_microbatch, bool reduce);
  // One half of a backward pass (generators/layers/split_backward.h).
  void BackwardHalf(int index, int microbatch, bool weights);
  bool v_shape() const { return plan().v_shape(); }
  // Whether odd chunks run backwards through the stages.
  bool folds() const { return v_shape() || plan().dual(); }
  // Starts a send or a receive of activations or gradients; returns the event that Wait takes.
  std::int16_t StartMessage(bool send, bool to_next, bool gradient, int chunk, int microbatch);
  // Blocking exchanges, batched or not; the empty set is nothing.
  void BatchedExchange(int directions, int chunk, int microbatch);
  void UnbatchedExchange(int directions, int chunk, int microbatch);
  // Returns the event that Wait takes; an event is free again once waited for.
  std::int16_t Start(Direction direction, int chunk, int microbatch);
  void Wait(std::int16_t event);
  // Starts the reduction of all buckets of a chunk, once. For schedules with reduction overlapped.
  void ReduceChunk(int index);
  // Starts gathering all parameters of a chunk, once. For schedules with aligned gathers.
  void GatherChunk(int index);
  // Weight gradients of the output layer that backward passes left out
  // (FrameworkBehaviour::deferred_head).
  void DeferredHead();
  // Whatever reductions are left, gradients over tp and the embedding group, optimizer, loss.
  void End();

 private:
  struct Chunk {
    ChunkParts parts;
    std::vector<int> run_first, run_last;  // units of the run of equal layers that a layer is in
    std::vector<Bucket> buckets;           // of what several ranks hold alike
    std::int64_t alone = 0;                // elements of what no other rank holds
    int first_layer = 0;
    std::size_t gathered = 0;  // buckets whose gather has started, in forward order
    std::size_t copied = 0;    // of those, copied out (FSDP2)
    std::int16_t gather_event = graph::kNoEvent;  // of the last one
    bool reduced = false, forwarded = false;
    bool holds_gradients = false;  // FSDP2: of its units, until they are reduced
  };

  void Call(BlockId block, int chunk, int microbatch, int first_layer = 0, int repeat = 1,
            std::int16_t event = graph::kNoEvent);
  void ForwardUnits(const Chunk& chunk, int index, int from, int to, int microbatch);
  void BackwardUnits(const Chunk& chunk, int index, int from, int to, int microbatch);
  void HeadUnit(bool forward, const Chunk& chunk, int index, int microbatch);
  void Pair(const Chunk& f, int forward, int forward_microbatch, int forward_unit, const Chunk& b,
            int backward, int backward_microbatch, int backward_unit);
  void DelayedWeights();
  void ForwardGathering(Chunk* chunk, int index, int microbatch);
  void Gather(Chunk* chunk, std::size_t upto);
  void WaitGather(Chunk* chunk);
  BlockId Frozen() const;
  std::int64_t StepFlags() const;  // of kStatic and kOptimizer
  BlockId LayerBlock(bool forward, Kind kind, bool linked, int layer, std::uint8_t places = 0);
  // Whether a layer's experts have a load of their own.
  bool draws(Kind kind) const { return !job_.loads.empty() && (kind & kExpertLayer) != 0; }
  // The loads of a layer's experts on this rank, and what its routers send: of BlockKind.
  std::array<std::int64_t, 2> LoadNumbers(Kind kind, int layer) const;
  void Halves(const Chunk& chunk, int index, int microbatch, bool weights);
  void PartlyOffloaded(bool forward, const Chunk& chunk, int index, int from, int to,
                       int microbatch);
  void OffloadedLayers(bool forward, const Chunk& chunk, int index, int unit, int layers,
                       int microbatch);
  void Reduce(const Bucket& bucket, int chunk, bool last, bool blocking, int microbatch);
  // FSDP2's units that stay gathered: gradients appear with a chunk's first backward pass.
  void HoldGradients(int index);
  // Those that nothing reduces.
  std::int64_t UnreducedGradients() const;
  BlockId EndBackward(bool head, int microbatch);
  void FinishReduction();
  void FreeGradients();
  void Optimizer();
  void Orthogonalise();
  void OrthogonalisePart(std::int64_t kind, std::int64_t layers);
  std::int16_t TakeEvent();
  std::int64_t elements() const;
  // Whether a micro-batch's output layer leaves its weight gradient out.
  bool defers_head(int microbatch) const { return microbatch < plan().framework.deferred_head; }
  std::int64_t shard() const;  // elements whose optimizer state lies here
  // Ranks that hold the same parameters, and those among them that share their optimizer state.
  std::int64_t replicas_of(const Bucket& bucket) const {
    return bucket.experts ? plan().expert_dp() : plan().replicas();
  }
  std::int64_t shards_of(const Bucket& bucket) const {
    return bucket.experts ? plan().expert_dp() : plan().shard_ranks();
  }
  // Elements of a shard that FSDP2 casts before it gathers.
  std::int64_t CastBefore(const Bucket& bucket) const {
    return plan().keeps_units() && !plan().framework.model_type_states
               ? bucket.elements / shards_of(bucket)
               : 0;
  }
  // `of_stage`: layers in the stage's chunks before.
  void MakeChunk(std::size_t position, int first_layer, int of_stage);
  // Whether gradients are reduced at all.
  bool reduces() const { return reduces_; }
  void Layers(bool forward, const Chunk& chunk, int index, int from, int to, int microbatch);
  // Layers of groups that run again at once; one by one of a group, and its second run.
  void GroupedLayers(bool forward, const Chunk& chunk, int index, int from, int to, int microbatch);
  void GroupRun(bool forward, bool again, const Chunk& chunk, int index, int from, int to,
                int microbatch);
  std::int64_t Boundary(bool next) const;
  bool overlaps_gather() const;
  // Whether a micro-batch's gradients are added to tensors of earlier ones.
  bool adds_tensors(int microbatch) const {
    return plan().framework.reducer == Reducer::kDdp && microbatch > 0;
  }

  // Weight gradients that run behind the first exchange of the next pair of layers.
  struct DelayedCall {
    BlockId block;
    int chunk, microbatch, layer;
  };

  // The block in `slot`, looked up when it is first asked for.
  BlockId Known(BlockId* slot, BlockKind kind, std::int64_t a = 0, std::int64_t b = 0,
                std::int64_t c = 0, std::int64_t d = 0) {
    if (!slot->valid()) *slot = job_.blocks->Get(kind, a, b, c, d);
    return *slot;
  }

  const JobContext& job_;
  int stage_;
  int expert_rank_;
  graph::Program* out_;
  // Blocks that every micro-batch calls.
  std::map<std::pair<Kind, bool>, BlockId> layer_forward_, layer_backward_;  // by kind, linked
  BlockId embedding_forward_, head_forward_, enter_chunk_, wait_exchange_;
  std::array<BlockId, 2> embedding_backward_, head_backward_;  // plain, and adding to gradients
  std::array<BlockId, 16> batched_, unbatched_, start_;
  std::vector<Chunk> chunks_;
  std::vector<std::int16_t> free_events_;
  std::int16_t next_event_ = kFirstCallEvent;
  bool reduces_ = false;
  std::optional<DelayedCall> delayed_;
  // Activations in host memory: the copies out and back that are under way.
  std::int16_t offload_event_ = graph::kNoEvent, reload_event_ = graph::kNoEvent;
  bool offloaded_ = false;
  // With offload_layers: an event a layer for the copy out, then one a layer for the copy back.
  std::vector<std::int16_t> layer_copies_;
};

}  // namespace orrery::workload
