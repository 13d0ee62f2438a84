// One row on its way to a job document: what every part of the mapping (training.cc) reads and
// writes.
#pragma once

#include <algorithm>
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

}  // namespace orrery::search
