// Gradient buckets of one model chunk, Megatron's and DistributedDataParallel's.
//
// Parameters are laid out from the last to the first; a bucket closes when it has at least `limit`
// elements (0: one bucket). Under ZeRO-1 every parameter starts at a multiple of 64, every bucket
// ends at a multiple of lcm(dp, 128), and a tied embedding has a bucket of its own. Sources:
// megatron/core/distributed/param_and_grad_buffer.py; torch/csrc/distributed/c10d/reducer.cpp,
// whose first bucket is smaller, so that the first reduction starts early.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// A chunk's units in forward order: 0 the embedding, 1 … layers, layers + 1 the head.
struct ChunkParts {
  int layers = 0;
  bool embedding = false, head = false;
  bool copies_embedding = false;  // the tied output layer of a last stage that is not the first
  std::vector<Kind> kinds = {};   // of the layers (bits of LayerKind); empty: all plain

  Kind kind(int unit) const {
    return kinds.empty() ? Kind{0} : kinds[static_cast<std::size_t>(unit - 1)];
  }
};

struct BucketRule {
  std::int64_t limit = 0;
  std::int64_t first = 0;  // of the first bucket; 0: as the others
  std::int64_t dp = 1;
  bool distributed = false;
  bool whole = false;  // experts are of all replicas, and lie among the others (DDP)
};

struct Bucket {
  std::int64_t elements = 0;  // padding included
  int unit = 0;               // its gradients are complete when this unit's backward is
  std::int64_t tensors = 0;
  bool experts = false;  // parameters of experts, replicated over their own group
};

// FSDP's units over stages: embedding, each layer, head; each layer's experts. Padded so that
// `ranks`, and those that hold the same experts, have equal shards.
std::vector<Bucket> MakeUnits(const Shape& s, const ChunkParts& parts, std::int64_t ranks,
                              std::int64_t expert_ranks);
// In the order in which backward completes them.
std::vector<Bucket> MakeBuckets(const Shape& s, const ChunkParts& parts, const BucketRule& rule);
// The experts' parameters, which lie in buffers of their own.
std::vector<Bucket> MakeExpertBuckets(const Shape& s, const ChunkParts& parts,
                                      const BucketRule& rule);

}  // namespace orrery::workload
