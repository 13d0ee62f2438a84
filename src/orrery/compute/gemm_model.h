// GEMM on tensor cores, from first principles: tiles, waves, K depth, split-K, memory floor.
//
// C is cut into tiles; the busiest SM computes ceil(tiles · splits / sms) of them. One tile takes
//   main      2·tm·tn·k / (sustained rate per SM · g), the padding of ragged tiles included, where
//             g = 1 / (1 + stall · e·F / (64·AI)), AI = tm·tn / (tm + tn), taken relative to
//             256x128: the part of the operand traffic from L2 (64 B per clock and SM) that F
//             multiply-adds per clock do not hide; it is what makes small tiles slow
//   fill      one memory latency before the first multiply-add
//   epilogue  the tile of C to L2; where C is added to, its reading before: the tiles of a wave end
//             together, and C lies in HBM since the last micro-batch, so an SM has its part of
//             HBM's bandwidth (what is written the L2 takes and drains beside the next tiles)
// Volta and Ampere pay fill and epilogue for every tile. Hopper's producer warp fills ahead, but
// its accumulators are registers, so the epilogue stops the products (CUTLASS, cooperative
// kernels); Blackwell's lie in tensor memory, where one is stored while the next is summed. Deep K
// with few tiles is split; partial sums in fp32 go through L2 and cost a second kernel. The fastest
// tile and split is taken, as a tuned heuristic would. Memory: A, B and C once, or what each wave
// of tiles re-reads when the operands do not fit in L2. Rows whose length is no multiple of 128
// bytes run at kPartLineRate, and where it is none of 16 at kMisalignedRate. Batches pay neither,
// but those of the latter (the attention products of a head size that 8 does not divide) leave the
// tensor cores and run at the fp32 rate (BLOOM's tuning chronicles: head sizes 108 and 150 against
// 104, 112 and 144). Experts' products come one after the other, each with its own last wave
// (Transformer Engine calls cuBLASLt expert by expert, on four streams; what that hides and what
// it costs is kGroupedRate); one expert alone is a plain product. A piece of a product beside
// communication takes a third of the waves that it and two more fill (kPiece). Assumes hot clocks
// under sustained load, cuBLAS-class kernels. Layout only decides alignment. Cost: 8 tiles × up to
// 3 splits, about 200 ns; no libm but sqrt.
#pragma once

#include "orrery/compute/device_rates.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

ModelTime GemmTime(const graph::Gemm& gemm, const DeviceRates& device);

}  // namespace orrery::compute
