// What transformers' modules ask of the host beside the kernels that a layer writes.
//
// data/host_calls.csv counts, for a part of a layer and each pass, the operators that reach
// PyTorch's dispatcher, the views among them apart, the modules called, and the functions written
// in Python. A layer's calls are the sum over its parts. Each takes a time (CallTimes); an operator
// for which the layer has written a kernel has it from the kernel's launch already.
#pragma once

#include <cstddef>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

struct HostCalls {
  double operators = 0, views = 0, modules = 0, functions = 0;
};
// Of a layer's pass; the backward one with the forward pass that runs again.
HostCalls LayerCalls(const Shape& s, graph::Pass pass);
// Of embedding, rotary angles, masks, last norm, output layer and loss.
HostCalls EndCalls(graph::Pass pass);
// Write their time, less what stands for the block's kernels (a layer's: from `first` on). Nothing,
// at no cost, where the framework's calls are not counted.
void WriteLayerCalls(const Shape& s, BlockWriter* w, std::size_t first, graph::Pass pass);
void WriteEndCalls(const Shape& s, BlockWriter* w, graph::Pass pass);

}  // namespace orrery::workload
