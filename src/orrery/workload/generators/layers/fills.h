// What PyTorch's deterministic mode adds: torch.use_deterministic_algorithms(True) leaves
// torch.utils.deterministic.fill_uninitialized_memory on, with which at::empty fills what it
// allocates (aten/src/ATen/native/cuda/TensorFactories.cu, fill_empty_deterministic_).
//
// Every buffer that a block allocates is written by a kernel of its own behind its allocation; what
// lives for ever was allocated before the step. Results of ATen's structured operators are not
// filled there; here all are, and what Transformer Engine allocates beside a layer's tensors
// (statistics, workspaces) is not counted.
#pragma once

#include "orrery/workload/generators/block_writer.h"

namespace orrery::workload {

graph::Block WithFills(graph::Block block, Names* names);

}  // namespace orrery::workload
