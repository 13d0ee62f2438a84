// One row on its way to a job document: what the parts of the mapping read and write. They run in
// the order in which they stand here (training.cc); errors name column and value.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "orrery/search/validate/configuration.h"
#include "orrery/search/validate/names.h"
#include "orrery/search/validate/release_recipes.h"
#include "orrery/search/validate/training.h"

namespace orrery::search {

struct Mapping {
  const Configuration& row;
  const RowTables& tables;
  FrameworkMatch rule;
  std::vector<std::string>* assumed;
  RowDraft* out;
  Release release;  // what its scripts set (release_recipes.h)

  job::Draft& job() const { return out->job; }
  const job::FrameworkDefaults& defaults() const { return rule.framework->defaults; }
  const job::FrameworkRecipe& recipe() const { return rule.framework->recipe; }

  // What the document says so far. REQUIRES: degrees and batch are mapped.
  std::int64_t degree(std::string_view key) const { return job().Whole(key, 1); }
  std::int64_t tp() const { return degree("parallel.tp"); }
  std::int64_t pp() const { return degree("parallel.pp"); }
  std::int64_t vpp() const { return degree("parallel.vpp"); }
  std::int64_t cp() const { return degree("parallel.cp"); }
  std::int64_t dp() const { return degree("parallel.dp"); }
  std::int64_t replicas() const { return dp() * cp(); }
  std::int64_t microbatches() const {
    return job().Whole("training.global_batch", 1) / (degree("training.micro_batch") * dp());
  }
  // Whether layers are gathered one by one (FSDP). REQUIRES: sharding is mapped.
  bool gathers_units() const {
    const std::string_view sharding = job().Text("training.sharding");
    return sharding == "zero3" || (sharding == "zero2" && !defaults().tensor_buckets);
  }

  template <class... Args>
  void Assume(fmt::format_string<Args...> format, Args&&... args) const {
    assumed->push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  // A blank cell, as the framework's published runs have it.
  template <class Value>
  void Fill(std::string_view column, std::string_view key, const Value& value) const {
    job().Set(key, value);
    Assume("{}={} (blank: {}'s default)", column, value, rule.label);
  }
};

// ---- parallelism.cc
// tp, pp, cp, vpp; dp is what the GPUs leave. Sequences and how the batch is cut; where nothing
// says it, into micro-batches of `open_micro_batch`.
Status MapDegrees(const Mapping& m);
Status MapBatch(const Mapping& m, std::int64_t open_micro_batch);

// ---- precision.cc
Status MapPrecision(const Mapping& m);
void MapBf16Parts(const Mapping& m);  // of the modules that the model has; last

// ---- models.cc: dimensions are the columns'; what they do not say (norm, activation, positions,
// biases, tied embeddings, vocabulary) is the public configuration's of the family that the name
// begins with (data/model_names.yaml), or is read from the shapes.
Status MapModel(const Mapping& m);  // and the preset that it begins with
// Keys of `model` that the release's scripts set, where no column does.
void ApplyRelease(const Mapping& m, workload::Model* model);

// ---- expert_models.cc: a model whose shapes are known, with which its columns must agree but for
// the number of layers (proxies have fewer); nullopt: none has this name.
bool HasExperts(const Configuration& row);
Result<std::optional<workload::Model>> MapKnownModel(const Mapping& m);
// The columns `experts`, `topk` and `ffn_hidden` put into a dense model's place.
Status AddExperts(const Configuration& row, workload::Model* model,
                  std::vector<std::string>* assumed);

// ---- parallelism.cc: chunks, what of the layers each has, groups of micro-batches.
void MapStages(const Mapping& m);

// ---- software.cc: overlap of communication, CUDA graphs, kernels, meters.
void MapAttention(const Mapping& m);
Status MapOverlap(const Mapping& m);
void MapLibraries(const Mapping& m);

// ---- expert_models.cc: ep, etp, dispatcher, routing, graphs and overlap.
Status MapExperts(const Mapping& m);

}  // namespace orrery::search
