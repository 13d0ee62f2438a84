// Fused attention, forward and backward.
//
// Work is the score pairs that the kernel visits in blocks of 128, times 4·d FLOP each (10·d
// backward: five products where forward has two), d rounded up to the template sizes 32, 64, 96,
// 128, 192, 256. Causal visits pairs below the diagonal and all of the diagonal's blocks;
// bottom-right aligned. Rate = peak · fraction(kernel, architecture, pass) at d = 128, times (1 +
// x)/(1 + x·128/d): each score also needs an exponential, of which kExpStall is not hidden behind
// the products; x is their ratio at d = 128. A device with more exponentials a clock (Blackwell
// Ultra) is faster by (1 + x)/(1 + x') (backward 2/5 of x: one exponential beside five products).
// Products in 8 bits take half as long, exponentials as long as ever: (1 + x)/(1 + x8) beside the
// peak's ratio. Causal runs at kCausalRate of that (masks, uneven blocks). Waves: one item is a
// block of 128 queries (backward: of keys) of one head; without a mask the busiest SM does
// ceil(items/sms), with it the longer of the mean and the longest item (heaviest first). Backward
// adds two small kernels (row sums of dO·O, conversion of dQ). A kernel that an architecture does
// not have (flash3 elsewhere than on Hopper, flash4 before) is priced as flash2; flash4 on Hopper
// as flash3, from whose design its kernels there are. Assumes dropout off, no bias, contiguous [b,
// s, h, d]. Cost about 50 ns.
#pragma once

#include "orrery/compute/device_rates.h"
#include "orrery/graph/kernel.h"

namespace orrery::compute {

ModelTime AttentionTime(const graph::Attention& attention, const DeviceRates& device);

}  // namespace orrery::compute
