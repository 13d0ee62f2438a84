// Kernels of a convolutional network's unit, forward and backward, and its loss.
//
// A convolution is an implicit GEMM, as cuDNN's on tensor cores (channels last): forward [N·OH·OW,
// C·K²] · [C·K², OC]; data gradient [N·H·W, OC·K²/stride²] · [OC·K²/stride², C]; weight gradient
// [OC, N·OH·OW] · [N·OH·OW, C·K²]. In fp32 convolutions run in TF32
// (torch.backends.cudnn.allow_tf32, on by default) and linear layers in fp32. Batch norm in
// training reads its input twice; backward it reads input and gradient twice. It is priced as a
// layer norm of the same bytes, pooling as a copy. ReLU and the sum with the shortcut work in
// place. Memory: a unit keeps its input and what autograd saves of its inside:
// outputs of convolutions and norms, indices of max pooling (8 bytes), masks of dropout. Not
// modelled: conversions of layout, Winograd and FFT algorithms, cuDNN's workspaces, the broadcast
// of norms' running means by DistributedDataParallel, reading and copying images.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// REQUIRES: s.net, s.unit.
void WriteUnitForward(const Shape& s, BlockWriter* w);
void WriteUnitBackward(const Shape& s, BlockWriter* w);
graph::Block ImageLossForward(const Shape& s, Names* names);
graph::Block ImageLossBackward(const Shape& s, Names* names);

}  // namespace orrery::workload
