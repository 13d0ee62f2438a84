#include "orrery/workload/generators/sharding/buckets.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "orrery/workload/generators/experts/expert_adapters.h"

namespace orrery::workload {

namespace {

class Layout {
 public:
  Layout(const BucketRule& rule, std::vector<Bucket>* out) : rule_(rule), out_(out) {}

  void Add(std::int64_t elements, int unit, bool alone) {
    if (rule_.distributed) at_ = RoundUp(at_, 64);
    if (alone) Close();
    at_ += elements;
    unit_ = unit;
    used_ = true;
    ++tensors_;
    const std::int64_t limit = out_->empty() && rule_.first > 0 ? rule_.first : rule_.limit;
    if (alone || (limit > 0 && at_ - start_ >= limit)) Close();
  }
  void Close() {
    if (!used_) return;
    if (rule_.distributed) at_ = RoundUp(at_, std::lcm(rule_.dp, std::int64_t{128}));
    out_->push_back({.elements = at_ - start_, .unit = unit_, .tensors = tensors_});
    start_ = at_;
    tensors_ = 0;
    used_ = false;
  }

 private:
  static std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  const BucketRule& rule_;
  std::vector<Bucket>* out_;
  std::int64_t start_ = 0, at_ = 0, tensors_ = 0;
  int unit_ = 0;
  bool used_ = false;
};

// Of every expert by itself where they are modules, else each product's of all experts together.
void AddExperts(const Shape& s, std::vector<std::int64_t>* layer) {
  const std::vector<std::int64_t> experts = ExpertParameters(s);
  if (s.framework.expert_loop) {
    layer->insert(layer->end(), experts.begin(), experts.end());
    return;
  }
  const std::size_t each = s.mlp_bias ? 4 : 2;
  for (std::size_t i = 0; i < std::min(each, experts.size()); ++i) {
    layer->push_back(experts[i] * s.experts.local);
  }
}

}  // namespace

std::vector<Bucket> MakeUnits(const Shape& s, const ChunkParts& parts, std::int64_t ranks,
                              std::int64_t expert_ranks) {
  std::vector<Bucket> units;
  const auto add = [&](const std::vector<std::int64_t>& tensors, int unit, bool experts) {
    const std::int64_t shards = experts ? expert_ranks : ranks;
    const std::int64_t sum = std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0});
    if (sum == 0) return;
    units.push_back({.elements = (sum + shards - 1) / shards * shards,
                     .unit = unit,
                     .tensors = static_cast<std::int64_t>(tensors.size()),
                     .experts = experts});
  };
  if (parts.head) add(HeadParameters(s, true), parts.layers + 1, false);
  for (int unit = parts.layers; unit >= 1; --unit) {
    const Shape layer = OfKind(s, parts.kind(unit));
    add(LayerParameters(layer), unit, false);
    add(ExpertParameters(layer), unit, true);
  }
  if (parts.embedding) add(EmbeddingParameters(s), 0, false);
  return units;
}

std::vector<Bucket> MakeBuckets(const Shape& s, const ChunkParts& parts, const BucketRule& rule) {
  std::vector<Bucket> buckets;
  Layout layout(rule, &buckets);
  if (parts.head && !s.frozen()) {
    const auto head = HeadParameters(s, !s.tied || parts.copies_embedding);
    for (std::size_t i = head.size(); i-- > 0;) {
      const bool shared = parts.copies_embedding && i + 1 == head.size();
      layout.Add(head[i], parts.layers + 1, shared && rule.distributed);
    }
  }
  std::map<Kind, std::vector<std::int64_t>> layers;
  for (int unit = parts.layers; unit >= 1; --unit) {
    const Kind kind = parts.kind(unit);
    std::vector<std::int64_t>& layer = layers[kind];
    if (layer.empty()) {
      const Shape of_kind = OfKind(s, kind);
      layer = TrainedParameters(of_kind);
      if (rule.whole && !s.frozen()) AddExperts(of_kind, &layer);
    }
    for (std::size_t i = layer.size(); i-- > 0;) layout.Add(layer[i], unit, false);
  }
  if (parts.embedding && !s.frozen()) {
    const auto embedding = EmbeddingParameters(s);
    for (std::size_t i = embedding.size(); i-- > 0;) {
      layout.Add(embedding[i], 0, i == 0 && s.tied && rule.distributed);
    }
  }
  layout.Close();
  return buckets;
}

std::vector<Bucket> MakeExpertBuckets(const Shape& s, const ChunkParts& parts,
                                      const BucketRule& rule) {
  std::vector<Bucket> buckets;
  if (s.frozen() && s.experts.ep == 1) return buckets;  // with the layer's other adapters
  Layout layout(rule, &buckets);
  const auto layer = s.frozen() ? ExpertAdapterParameters(s) : ExpertParameters(s);
  for (int unit = parts.layers; unit >= 1; --unit) {
    if ((parts.kind(unit) & kExpertLayer) == 0) continue;
    for (std::size_t i = layer.size(); i-- > 0;) layout.Add(layer[i], unit, false);
  }
  layout.Close();
  for (Bucket& bucket : buckets) bucket.experts = true;
  return buckets;
}

}  // namespace orrery::workload
