// Which lines of a SimAI workload are a micro-batch, which of these are layers, and the same lines
// at other sizes of pipeline and tensor parallelism.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/workload/importers/astra_text/layers.h"

namespace orrery::workload {

// Where the lines of the first micro-batch stand: `repeats` equal runs of lines follow each other.
// Lines are equal by name and communication; times may differ. No length: there are none.
struct SimaiBody {
  std::size_t begin = 0, length = 0;
};
SimaiBody FindBody(const std::vector<TextLayer>& layers, std::size_t repeats);

// Where a micro-batch's chunks begin, within its lines, and where the last ends: equal runs of
// lines, one for each chunk; what stands before them is the first's, what stands behind the last's,
// and is of another kind. Empty: there are none.
std::vector<std::size_t> FindChunks(const std::vector<TextLayer>& layers, const SimaiBody& body,
                                    std::size_t chunks);

// The lines of a stage of `to` stages, from those of one of `from`: its layers move between stages,
// what stands around them stays with each. Gradients' bytes outside of micro-batches go with the
// number of layers.
Status MoveStages(std::int64_t from, std::int64_t to, std::size_t micro_batches,
                  std::vector<TextLayer>* layers, std::vector<std::string>* assumed);

// The lines of a rank of `to` tensor-parallel ones, from those of one of `from`: its share of the
// work and of the gradients outside of micro-batches. A layer's messages hold whole activations,
// whatever the size; those of experts do not, and are refused.
Status MoveShards(std::int64_t from, std::int64_t to, std::size_t micro_batches,
                  std::vector<TextLayer>* layers, std::vector<std::string>* assumed);

}  // namespace orrery::workload
