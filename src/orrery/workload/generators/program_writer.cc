#include "orrery/workload/generators/program_writer.h"

#include <algorithm>

#include "orrery/workload/generators/sharding/reduce_and_update.h"
#include "orrery/workload/generators/sharding/tensor_gradients.h"

namespace orrery::workload {

using graph::kNoEvent;

ProgramWriter::ProgramWriter(const JobContext& job, int stage, graph::Program* out, int expert_rank)
    : job_(job), stage_(stage), expert_rank_(expert_rank), out_(out) {
  out_->stage = stage;
  const int count = plan().parallel.vpp;
  chunks_.resize(static_cast<std::size_t>(count));
  int first_layer = 0, of_stage = 0;
  for (std::size_t i = 0; i < job.chunk_layers.size(); ++i) {
    const int chunk = static_cast<int>(i) / plan().parallel.pp,
              place = static_cast<int>(i) % plan().parallel.pp;
    if (plan().dual() && place == 0) first_layer = 0;
    const int at = folds() && chunk % 2 != 0 ? plan().parallel.pp - 1 - place : place;
    if (at == stage) {
      MakeChunk(i, first_layer, of_stage);
      of_stage += job.chunk_layers[i];
    }
    first_layer += job.chunk_layers[i];
  }
  for (const Chunk& chunk : chunks_) {
    for (const Bucket& bucket : chunk.buckets) reduces_ |= replicas_of(bucket) > 1;
  }
  out_->calls.reserve(static_cast<std::size_t>(microbatches() * count * 6 + 64));
}

void ProgramWriter::MakeChunk(std::size_t position, int first_layer, int of_stage) {
  const int index = static_cast<int>(position) / plan().parallel.pp;
  const bool head = ends(index);
  Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  chunk.first_layer = first_layer;
  chunk.parts = {.layers = job_.chunk_layers[position],
                 .embedding = begins(index) && job_.model->net == nullptr,
                 .head = head,
                 .copies_embedding =
                     head && job_.model->tied_embeddings && plan().parallel.pp > 1 && !folds()};
  std::vector<Kind>& kinds = chunk.parts.kinds;
  for (int l = 0; l < chunk.parts.layers; ++l) {
    kinds.push_back(KindOf(*job_.model, plan(), first_layer + l) |
                    KeepingOf(plan(), l, of_stage + l));
  }
  for (std::int64_t i = 0; head && i < job_.model->mtp_modules(); ++i) {
    for (const Kind kind : MtpKindsOf(*job_.model, plan())) kinds.push_back(kind);
  }
  chunk.parts.layers = static_cast<int>(kinds.size());
  bool experts = false;
  for (std::size_t at = 0; at < kinds.size(); ++at) {
    experts |= job_.model->net == nullptr && (kinds[at] & kExpertLayer) != 0;
    const bool same = at > 0 && kinds[at] == kinds[at - 1] && !draws(kinds[at]);
    chunk.run_first.push_back(same ? chunk.run_first.back() : static_cast<int>(at) + 1);
  }
  chunk.run_last.resize(kinds.size());
  for (std::size_t at = kinds.size(); at-- > 0;) {
    const bool same = at + 1 < kinds.size() && kinds[at] == kinds[at + 1] && !draws(kinds[at]);
    chunk.run_last[at] = same ? chunk.run_last[at + 1] : static_cast<int>(at) + 1;
  }
  const auto rule = [&](int dp, int shards) {
    BucketRule r{.dp = shards, .distributed = job_.distributed()};
    // Only the first stage's first chunk is on the critical path; the others keep one bucket.
    if (first() && index == 0 && plan().framework.overlap_grad_reduce) {
      r.limit = std::max(plan().framework.bucket_elements, std::int64_t{1'000'000} * dp);
    }
    r.whole = plan().framework.reducer != Reducer::kBuffer;
    if (plan().framework.reducer == Reducer::kDeepSpeed) r.limit = plan().framework.bucket_elements;
    if (plan().framework.reducer == Reducer::kDdp) {
      r.first = kDdpFirstBucketBytes / job_.shape->gradient_bytes;
      r.limit = plan().framework.bucket_bytes / job_.shape->gradient_bytes;
    }
    return r;
  };
  if (plan().keeps_units()) {
    chunk.buckets = MakeUnits(*job_.shape, chunk.parts, plan().shard_ranks(), plan().expert_dp());
  } else {
    chunk.buckets =
        MakeBuckets(*job_.shape, chunk.parts, rule(plan().replicas(), plan().shard_ranks()));
  }
  if (!experts || plan().framework.reducer != Reducer::kBuffer) return;
  if (!plan().keeps_units()) {
    const auto more =
        MakeExpertBuckets(*job_.shape, chunk.parts, rule(plan().expert_dp(), plan().expert_dp()));
    chunk.buckets.insert(chunk.buckets.end(), more.begin(), more.end());
  }
  // In the order in which backward completes them; what nobody else holds is not reduced.
  std::stable_sort(chunk.buckets.begin(), chunk.buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.unit > b.unit; });
  if (plan().replicas() == 1 && plan().expert_dp() == 1) return;
  std::erase_if(chunk.buckets, [&](const Bucket& bucket) {
    if (replicas_of(bucket) > 1) return false;
    chunk.alone += bucket.elements;
    return true;
  });
}

void ProgramWriter::Call(BlockId block, int chunk, int microbatch, int first_layer, int repeat,
                         std::int16_t event) {
  out_->calls.push_back({.block = block,
                         .repeat = static_cast<std::uint16_t>(repeat),
                         .event = event,
                         .first_layer = static_cast<std::int16_t>(first_layer),
                         .chunk = static_cast<std::int16_t>(chunk),
                         .microbatch = microbatch});
}

std::int16_t ProgramWriter::TakeEvent() {
  if (free_events_.empty()) return next_event_++;
  const std::int16_t event = free_events_.back();
  free_events_.pop_back();
  return event;
}

std::int64_t ProgramWriter::elements() const {
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) {
    sum += chunk.alone;
    for (const Bucket& bucket : chunk.buckets) sum += bucket.elements;
  }
  return sum;
}

std::int64_t ProgramWriter::shard() const {
  if (!job_.distributed()) return elements();
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) {
    sum += chunk.alone;
    for (const Bucket& bucket : chunk.buckets) sum += bucket.elements / shards_of(bucket);
  }
  return sum;
}

// Layers from, from + 1, … to, or backward from, from - 1, … to: one call a run of equal kinds.
void ProgramWriter::Layers(bool forward, const Chunk& chunk, int index, int from, int to,
                           int microbatch) {
  if (plan().recomputed_together() > 1) {
    return GroupedLayers(forward, chunk, index, from, to, microbatch);
  }
  if (plan().memory.offload_layers > 0) {
    return PartlyOffloaded(forward, chunk, index, from, to, microbatch);
  }
  const int step = forward ? 1 : -1;
  for (int unit = from; (to - unit) * step >= 0;) {
    const auto at = static_cast<std::size_t>(unit - 1);
    const int end = forward ? std::min(to, chunk.run_last[at]) : std::max(to, chunk.run_first[at]);
    const int layers = (end - unit) * step + 1;
    if (!plan().memory.offload_activations) {
      const bool adds = !forward && adds_tensors(microbatch);
      const int layer = chunk.first_layer + unit - 1;
      Call(LayerBlock(forward, chunk.parts.kinds[at], adds, layer), index, microbatch, layer,
           layers);
    } else {
      OffloadedLayers(forward, chunk, index, unit, layers, microbatch);
    }
    unit = end + step;
  }
}

std::array<std::int64_t, 2> ProgramWriter::LoadNumbers(Kind kind, int layer) const {
  if (!draws(kind)) return {};
  const LayerLoad& load = job_.loads[static_cast<std::size_t>(layer) % job_.loads.size()];
  return {PackLoad(load.received[static_cast<std::size_t>(expert_rank_)], load.shares), load.sent};
}

BlockId ProgramWriter::LayerBlock(bool forward, Kind kind, bool linked, int layer,
                                  std::uint8_t places) {
  if (draws(kind) || places != 0) {
    const auto [load, sent] = LoadNumbers(kind, layer);
    return job_.blocks->Get(forward ? BlockKind::kLayerForward : BlockKind::kLayerBackward, kind,
                            PackCall(linked, places), load, sent);
  }
  BlockId* known = &(forward ? layer_forward_ : layer_backward_)[{kind, linked}];
  return Known(known, forward ? BlockKind::kLayerForward : BlockKind::kLayerBackward, kind,
               linked ? 1 : 0);
}

// Of the first n of L layers the copies stand between the layers' calls
// (generators/layers/offload.h, where layer i's partner is the layer in front of which its copy
// ends, or begins).
void ProgramWriter::PartlyOffloaded(bool forward, const Chunk& chunk, int index, int from, int to,
                                    int microbatch) {
  const int moved = static_cast<int>(plan().memory.offload_layers);
  const int stay = chunk.parts.layers - moved;
  while (layer_copies_.size() < 2 * static_cast<std::size_t>(moved)) {
    layer_copies_.push_back(TakeEvent());
  }
  const auto copy = [&](BlockKind kind, int layer, bool back) {
    const Kind of = chunk.parts.kinds[static_cast<std::size_t>(layer)];
    Call(job_.blocks->Get(kind, of), index, microbatch, chunk.first_layer + layer, 1,
         layer_copies_[static_cast<std::size_t>(back ? moved + layer : layer)]);
  };
  const int step = forward ? 1 : -1;
  for (int unit = from; (to - unit) * step >= 0; unit += step) {
    const int layer = unit - 1, partner = layer - stay + (forward ? 0 : 1);
    if (partner >= 0 && partner < moved) {
      copy(forward ? BlockKind::kOffloadEnd : BlockKind::kReloadBegin, partner, !forward);
    }
    if (!forward && layer < moved) copy(BlockKind::kReloadEnd, layer, true);
    const bool adds = !forward && adds_tensors(microbatch);
    const int of_model = chunk.first_layer + layer;
    Call(LayerBlock(forward, chunk.parts.kinds[static_cast<std::size_t>(layer)], adds, of_model),
         index, microbatch, of_model, 1);
    if (forward && layer < moved) copy(BlockKind::kOffloadBegin, layer, false);
  }
}

// Equal layers whose activations go to the host and come back (generators/layers/offload.h).
// Forward, each waits for the copy before it, but for the first of an iteration; backward, each but
// the last starts its successor's copy.
void ProgramWriter::OffloadedLayers(bool forward, const Chunk& chunk, int index, int unit,
                                    int layers, int microbatch) {
  const Kind kind = chunk.parts.kinds[static_cast<std::size_t>(unit - 1)];
  if (offload_event_ == kNoEvent) {
    offload_event_ = TakeEvent();
    reload_event_ = TakeEvent();
  }
  const std::int16_t event = forward ? offload_event_ : reload_event_;
  if (!forward) {
    Call(job_.blocks->Get(BlockKind::kReload, kind), index, microbatch, 0, 1, event);
  }
  const int alone = !forward || !offloaded_ ? 1 : 0;  // calls without a link to a neighbour
  const int layer = chunk.first_layer + unit - 1;
  if (forward && alone > 0) {
    Call(LayerBlock(true, kind, false, layer), index, microbatch, layer, 1, event);
    offloaded_ = true;
  }
  if (layers > alone) {
    Call(LayerBlock(forward, kind, true, layer), index, microbatch, layer + (forward ? alone : 0),
         layers - alone, event);
  }
  if (!forward) {
    Call(LayerBlock(false, kind, false, layer), index, microbatch, layer - layers + 1, 1, event);
  }
}

bool ProgramWriter::overlaps_gather() const {
  if (plan().keeps_units()) return plan().framework.prefetch;
  if (job_.layer_wise()) return false;
  return job_.distributed() && reduces() && plan().framework.overlap_param_gather &&
         plan().framework.overlap_grad_reduce && !plan().framework.broadcast_parameters;
}

void ProgramWriter::ForwardUnits(const Chunk& chunk, int index, int from, int to, int microbatch) {
  if (from == 0) {
    if (chunk.parts.embedding) {
      Call(Known(&embedding_forward_, BlockKind::kEmbeddingForward), index, microbatch);
    } else if (!chunk.parts.head && job_.shape->framework.host.module_forward > 0) {
      Call(Known(&enter_chunk_, BlockKind::kEnterChunk), index, microbatch);
    }
    from = 1;
  }
  const int layers_to = std::min(to, chunk.parts.layers);
  if (from <= layers_to) Layers(true, chunk, index, from, layers_to, microbatch);
  if (to > chunk.parts.layers && chunk.parts.head) HeadUnit(true, chunk, index, microbatch);
}

void ProgramWriter::Forward(int index, int microbatch) {
  Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  if (overlaps_gather() && !chunk.forwarded) {
    ForwardGathering(&chunk, index, microbatch);
  } else {
    ForwardUnits(chunk, index, 0, chunk.parts.layers + 1, microbatch);
  }
  chunk.forwarded = true;
}

// Backward of units from, from - 1, … to.
void ProgramWriter::BackwardUnits(const Chunk& chunk, int index, int from, int to, int microbatch) {
  if (from > chunk.parts.layers) {
    if (chunk.parts.head) HeadUnit(false, chunk, index, microbatch);
    from = chunk.parts.layers;
  }
  const int layers_to = std::max(to, 1);
  if (from >= layers_to) Layers(false, chunk, index, from, layers_to, microbatch);
  if (to == 0 && chunk.parts.embedding) {
    Call(EndBackward(false, microbatch), index, microbatch);
  }
}

BlockId ProgramWriter::EndBackward(bool head, int microbatch) {
  const std::size_t adds = adds_tensors(microbatch) ? 1 : 0;
  return Known(&(head ? head_backward_ : embedding_backward_)[adds],
               head ? BlockKind::kHeadBackward : BlockKind::kEmbeddingBackward,
               static_cast<std::int64_t>(adds));
}

void ProgramWriter::Backward(int index, int microbatch, bool reduce) {
  Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  HoldGradients(index);
  int next = chunk.parts.layers + 1;  // the unit whose backward comes next
  if (reduce && reduces()) {
    chunk.reduced = true;
    for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
      const Bucket& bucket = chunk.buckets[i];
      // Without an embedding the chunk's backward ends with its first layer.
      const int unit = bucket.unit <= 1 && !chunk.parts.embedding ? 0 : bucket.unit;
      if (unit <= next) {
        BackwardUnits(chunk, index, next, unit, microbatch);
        next = unit - 1;
      }
      Reduce(bucket, index, i + 1 == chunk.buckets.size(), !plan().framework.overlap_grad_reduce,
             reduces_each() ? microbatch : -1);
    }
  }
  if (next >= 0) BackwardUnits(chunk, index, next, 0, microbatch);
}

void ProgramWriter::BackwardHalf(int index, int microbatch, bool weights) {
  const Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  if (chunk.parts.head) {
    Call(job_.blocks->Get(weights ? BlockKind::kHeadWeight : BlockKind::kHeadData), index,
         microbatch);
  }
  Halves(chunk, index, microbatch, weights);
  if (chunk.parts.embedding && !weights) {
    Call(EndBackward(false, microbatch), index, microbatch);
  }
}

void ProgramWriter::Halves(const Chunk& chunk, int index, int microbatch, bool weights) {
  const auto& kinds = chunk.parts.kinds;
  for (int unit = chunk.parts.layers; unit >= 1;) {
    const Kind kind = kinds[static_cast<std::size_t>(unit - 1)];
    int end = unit;
    while (end > 1 && kinds[static_cast<std::size_t>(end - 2)] == kind) --end;
    Call(job_.blocks->Get(weights ? BlockKind::kLayerWeight : BlockKind::kLayerData, kind), index,
         microbatch, chunk.first_layer + unit - 1, unit - end + 1);
    unit = end - 1;
  }
}

std::int16_t ProgramWriter::StartMessage(bool send, bool to_next, bool gradient, int chunk,
                                         int microbatch) {
  const std::int16_t event = TakeEvent();
  Call(job_.blocks->Get(BlockKind::kMessage, send ? 1 : 0, to_next ? 1 : 0, gradient ? 1 : 0),
       chunk, microbatch, 0, 1, event);
  return event;
}

void ProgramWriter::HoldGradients(int index) {
  Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  if (!plan().keeps_units() || !reduces() || chunk.holds_gradients) return;
  chunk.holds_gradients = true;
  for (const Bucket& bucket : chunk.buckets) {
    Call(job_.blocks->Get(BlockKind::kHoldGradients, bucket.elements, bucket.experts ? 1 : 0, 0),
         index, -1, bucket.unit);
  }
}

std::int64_t ProgramWriter::UnreducedGradients() const {
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) {
    if (!plan().framework.model_type_states) sum += chunk.alone;  // else each is its own shard
    for (const Bucket& bucket : chunk.buckets) sum += reduces() ? 0 : bucket.elements;
  }
  return sum;
}

void ProgramWriter::Reduce(const Bucket& bucket, int chunk, bool last, bool blocking,
                           int microbatch) {
  if (plan().framework.reducer != Reducer::kBuffer) {
    const std::int64_t mode = (blocking ? 1 : 0) + (last ? 2 : 0) + (microbatch > 0 ? 4 : 0);
    Call(job_.blocks->Get(BlockKind::kReduceTensors, bucket.elements, bucket.tensors,
                          shards_of(bucket), mode),
         0, microbatch);
    return;
  }
  const bool scatters = job_.distributed() && !job_.layer_wise();
  const std::int64_t mode =
      (scatters ? 1 : 0) + (blocking ? 2 : 0) + (last ? 4 : 0) + (bucket.experts ? 8 : 0);
  const bool held = plan().keeps_units();  // the unit's gradients go with it
  Call(job_.blocks->Get(BlockKind::kReduceBucket, bucket.elements, mode), held ? chunk : 0, -1,
       held ? bucket.unit : 0);
}

void ProgramWriter::ReduceChunk(int index) {
  Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  if (chunk.reduced || !reduces()) return;
  chunk.reduced = true;
  for (std::size_t i = 0; i < chunk.buckets.size(); ++i) {
    Reduce(chunk.buckets[i], index, i + 1 == chunk.buckets.size(), false, -1);
  }
}

// Elements of one image that pass a convolutional network's boundary; 0 for transformers.
std::int64_t ProgramWriter::Boundary(bool next) const {
  const ConvNet* net = job_.model->net;
  const std::vector<Kind>& kinds = chunks_.front().parts.kinds;
  if (net == nullptr || kinds.empty() || (next ? last() : first())) return 0;
  return next ? net->units[kinds.back()].outputs() : net->units[kinds.front()].inputs();
}

void ProgramWriter::BatchedExchange(int directions, int chunk, int microbatch) {
  if (directions == 0) return;
  Call(Known(&batched_[static_cast<std::size_t>(directions)], BlockKind::kBatchedExchange,
             directions, Boundary(false), Boundary(true)),
       chunk, microbatch);
}

void ProgramWriter::UnbatchedExchange(int directions, int chunk, int microbatch) {
  if (directions == 0) return;
  Call(Known(&unbatched_[static_cast<std::size_t>(directions)], BlockKind::kUnbatchedExchange,
             directions, stage_ % 2, Boundary(false), Boundary(true)),
       chunk, microbatch);
}

std::int16_t ProgramWriter::Start(Direction direction, int chunk, int microbatch) {
  const std::int16_t event = TakeEvent();
  Call(Known(&start_[direction], BlockKind::kStartExchange, direction), chunk, microbatch, 0, 1,
       event);
  return event;
}

void ProgramWriter::Wait(std::int16_t event) {
  Call(Known(&wait_exchange_, BlockKind::kWaitExchange), 0, -1, 0, 1, event);
  free_events_.push_back(event);
}

// Starts gathers until `upto` buckets are under way; the last one's end is recorded.
void ProgramWriter::Gather(Chunk* chunk, std::size_t upto) {
  upto = std::min(upto, chunk->buckets.size());
  if (chunk->gathered >= upto) return;
  const std::int16_t before = chunk->gather_event;
  chunk->gather_event = TakeEvent();
  if (before != kNoEvent) free_events_.push_back(before);
  for (; chunk->gathered < upto; ++chunk->gathered) {
    const Bucket& bucket = chunk->buckets[chunk->buckets.size() - 1 - chunk->gathered];
    const bool recorded = chunk->gathered + 1 == upto;
    const auto mode = recorded ? GatherMode::kRecorded : GatherMode::kStarted;
    Call(
        job_.blocks->Get(BlockKind::kGatherBucket, bucket.elements, static_cast<std::int64_t>(mode),
                         bucket.experts ? 1 : 0, CastBefore(bucket)),
        0, -1, 0, 1, recorded ? chunk->gather_event : kNoEvent);
  }
}

void ProgramWriter::WaitGather(Chunk* chunk) {
  if (chunk->gather_event == kNoEvent) return;
  std::int64_t copied = 0;  // FSDP2 copies the tensors of a unit out of what was gathered
  for (; chunk->copied < chunk->gathered && plan().keeps_units(); ++chunk->copied) {
    copied += chunk->buckets[chunk->buckets.size() - 1 - chunk->copied].elements;
  }
  Call(job_.blocks->Get(BlockKind::kWaitParameters, copied), 0, -1, 0, 1, chunk->gather_event);
  free_events_.push_back(chunk->gather_event);
  chunk->gather_event = kNoEvent;
}

void ProgramWriter::GatherChunk(int index) {
  Chunk& chunk = chunks_[static_cast<std::size_t>(index)];
  if (overlaps_gather()) Gather(&chunk, chunk.buckets.size());
}

// The first forward of a chunk. Before a unit runs, the buckets that hold its parameters have
// arrived and the next one is on its way: at least one bucket ahead, as Megatron, and at least one
// unit ahead, since Megatron waits per module and a call here is a whole layer.
void ProgramWriter::ForwardGathering(Chunk* chunk, int index, int microbatch) {
  const std::size_t count = chunk->buckets.size();
  const int units = chunk->parts.layers + 2;
  // Buckets needed for units 0 … u: all whose parameters begin at or before u. In forward order
  // bucket j spans from its unit to the unit of the bucket before it in backward order.
  const auto needed = [&](int unit) {
    std::size_t n = 0;
    while (n < count && (n == 0 || chunk->buckets[count - 1 - n].unit <= unit)) ++n;
    return n;
  };
  int from = 0;  // units not yet called
  std::size_t have = 0;
  for (int unit = 0; unit < units; ++unit) {
    const std::size_t now = needed(unit);
    if (now == have) continue;
    if (from < unit) ForwardUnits(*chunk, index, from, unit - 1, microbatch);
    from = unit;
    Gather(chunk, now);
    WaitGather(chunk);
    Gather(chunk, std::min(count, std::max(now + 1, needed(std::min(unit + 1, units - 1)))));
    have = now;
  }
  ForwardUnits(*chunk, index, from, units - 1, microbatch);
}

}  // namespace orrery::workload
