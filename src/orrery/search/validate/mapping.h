// One row on its way to a job document: what the parts of the mapping read and write. They run in
// the order of training.cc; errors name column and value.
#pragma once

#include <string>
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
  template <class... Args>
  void Assume(fmt::format_string<Args...> format, Args&&... args) const {
    assumed->push_back(fmt::format(format, std::forward<Args>(args)...));
  }
};

// The model, and the preset that it begins with. With experts or state-space layers its shapes are
// known by its name (data/model_names.yaml). Else they are the columns', and what those do not say
// (norm, activation, positions, biases, tied embeddings, vocabulary) is the public configuration's
// of the family that the name begins with, or is read from the shapes. Rules of the model run
// behind the release's keys in the first case, before them in the second.
Status MapModel(const Mapping& m, RuledRow* ruled);

}  // namespace orrery::search
