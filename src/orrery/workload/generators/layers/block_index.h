// Blocks of keys that queries of ordinary attention see (MiniMax-M3's sparse attention).
//
// A small indexer scores every earlier key for each of its heads, q(t, h) · k(s), takes the largest
// score of each block of keys, and keeps the best blocks and the query's own; a group of
// attention's heads attends to the blocks that its index head chose. Attention is priced as one
// whose window has as many keys. Every tensor-parallel rank has the indexer whole and runs it on
// all tokens. It has no value and no loss of its own, and a choice has no gradient: its backward
// pass is empty. Source: transformers 5.24.0, models/minimax_m3_vl (MiniMaxM3VLIndexer), read for
// its behaviour; how MiniMax trained it is not public.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Queries, the one key, and their norms; empty without an indexer.
std::vector<std::int64_t> BlockIndexParameters(const Shape& s);

// From the layer's normalised input to the blocks. REQUIRES: s.block_index.heads > 0.
void BlockIndexForward(const Shape& s, BlockWriter* w);

}  // namespace orrery::workload
