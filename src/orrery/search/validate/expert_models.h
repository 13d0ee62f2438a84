// Rows with experts: their model and their expert parallelism.
//
// The model is the public configuration of the family that the name begins with; the columns of the
// row must agree with it, except for the number of layers (proxies have fewer). Megatron's own test
// runs take their shapes from the columns alone. Every default stands in `assumed`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orrery/search/validate/mapping.h"
#include "orrery/workload/model.h"

namespace orrery::search {

bool HasExperts(const Configuration& row);

// A known model's shapes, and its preset's name. No known family is named: nullopt, for MapModel to
// take the columns' shapes.
Result<std::optional<workload::Model>> MapKnownModel(const Mapping& m);
// The columns `experts`, `topk` and `ffn_hidden` put into a dense model's place.
Status AddExperts(const Configuration& row, workload::Model* model,
                  std::vector<std::string>* assumed);
// Chunks that layers do not divide. REQUIRES: stages are mapped.
void BalanceLayers(const Mapping& m);
// ep, etp, dispatcher, routing, graphs and overlap. REQUIRES: degrees, batch and overlap are
// mapped.
Status MapExperts(const Mapping& m);

}  // namespace orrery::search
